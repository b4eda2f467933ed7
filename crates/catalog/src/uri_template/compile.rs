//! Compiles a URI template to steps.

use super::{Class, Step, symbols};

/// Real templates have a tenth of this.
const LONGEST_TEMPLATE: usize = 2048;

/// Each variable is a few steps that may be active at the same time.
const MAX_VARIABLES: usize = 64;

/// A longer prefix (`{var:100}`) counts as unlimited.
const LONGEST_PREFIX: usize = 32;

/// The steps of a whole template; `None` if it is malformed or too large.
pub(super) fn template(text: &str) -> Option<Vec<Step>> {
    if text.len() > LONGEST_TEMPLATE {
        return None;
    }
    let mut program = Program::default();
    let mut variables_left = MAX_VARIABLES;
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        let (literal, expression) = rest.split_at(at);
        program.literal(literal);
        let (inside, behind) = expression.strip_prefix('{')?.split_once('}')?;
        let expression = Expression::parse(inside)?;
        variables_left = variables_left.checked_sub(expression.variables.len())?;
        program.expression(&expression);
        rest = behind;
    }
    program.literal(rest);
    Some(program.steps)
}

/// An expression between braces.
struct Expression<'t> {
    operator: Operator,
    variables: Vec<Variable<'t>>,
}

#[derive(Clone, Copy)]
enum Operator {
    Simple,
    Reserved,
    Fragment,
    Label,
    Segments,
    Parameters,
    Query,
    QueryContinued,
}

struct Variable<'t> {
    name: &'t str,
    is_exploded: bool,
    longest: Option<usize>,
}

impl<'t> Expression<'t> {
    fn parse(inside: &'t str) -> Option<Self> {
        let operator = match inside.as_bytes().first()? {
            b'+' => Operator::Reserved,
            b'#' => Operator::Fragment,
            b'.' => Operator::Label,
            b'/' => Operator::Segments,
            b';' => Operator::Parameters,
            b'?' => Operator::Query,
            b'&' => Operator::QueryContinued,
            // Reserved for extensions that never came.
            b'=' | b',' | b'!' | b'@' | b'|' => return None,
            _ => Operator::Simple,
        };
        let names = if matches!(operator, Operator::Simple) { inside } else { &inside[1..] };
        let variables = names.split(',').map(Variable::parse).collect::<Option<_>>()?;
        Some(Self { operator, variables })
    }
}

impl<'t> Variable<'t> {
    /// Names are not checked: servers use more characters than the RFC allows.
    fn parse(text: &'t str) -> Option<Self> {
        let (text, is_exploded) = text.strip_suffix('*').map_or((text, false), |text| (text, true));
        let (name, longest) = match text.split_once(':') {
            Some((name, longest)) => (name, Some(longest.parse().ok()?)),
            None => (text, None),
        };
        (!name.is_empty() && !name.contains('{')).then_some(Self { name, is_exploded, longest })
    }
}

#[derive(Default)]
struct Program {
    steps: Vec<Step>,
}

impl Program {
    fn literal(&mut self, text: &str) {
        self.steps.extend(symbols(text).map(Step::Literal));
    }

    fn expression(&mut self, expression: &Expression<'_>) {
        let variables = &expression.variables;
        match expression.operator {
            Operator::Simple => self.simple(variables),
            Operator::Reserved => self.list(variables, Class::Any),
            Operator::Fragment => self.optional(|program| {
                program.literal("#");
                program.list(variables, Class::Any);
            }),
            Operator::Label => self.each_behind(".", variables),
            Operator::Segments => self.each_behind("/", variables),
            Operator::Parameters => self.repeated(|program| {
                program.literal(";");
                program.pair(variables, Class::Parameter);
            }),
            Operator::Query => self.optional(|program| {
                program.literal("?");
                program.pair(variables, Class::Query);
                program.more_pairs(variables);
            }),
            Operator::QueryContinued => self.more_pairs(variables),
        }
    }

    /// `{path*}` is a list in the RFC, and the rest of a path for servers built on FastMCP.
    fn simple(&mut self, variables: &[Variable<'_>]) {
        let is_path = variables.iter().any(|variable| variable.is_exploded);
        self.list(variables, if is_path { Class::Path } else { Class::Segment });
    }

    /// Values separated by commas. A comma is part of every class, so several are like one without a limit.
    fn list(&mut self, variables: &[Variable<'_>], class: Class) {
        match variables {
            [single] => self.value(class, single.longest),
            _ => self.value(class, None),
        }
    }

    /// For each variable nothing, or its value after `mark`.
    fn each_behind(&mut self, mark: &str, variables: &[Variable<'_>]) {
        for variable in variables {
            let one = |program: &mut Self| {
                program.literal(mark);
                program.value(Class::Segment, variable.longest);
            };
            if variable.is_exploded { self.repeated(one) } else { self.optional(one) }
        }
    }

    fn more_pairs(&mut self, variables: &[Variable<'_>]) {
        self.repeated(|program| {
            program.literal("&");
            program.pair(variables, Class::Query);
        });
    }

    /// `name=value` of any of the variables: clients use any order. An exploded one may be a map, so its names are
    /// arbitrary.
    fn pair(&mut self, variables: &[Variable<'_>], class: Class) {
        if variables.iter().any(|variable| variable.is_exploded) {
            return self.value(class, None);
        }
        let mut ends = Vec::with_capacity(variables.len());
        for variable in variables {
            let split = self.reserve();
            self.literal(variable.name);
            self.optional(|program| {
                program.literal("=");
                program.value(class, variable.longest);
            });
            ends.push(self.reserve());
            self.steps[split] = Step::Split(self.steps.len());
        }
        // After the last alternative there is none.
        self.reserve();
        for end in ends {
            self.steps[end] = Step::Jump(self.steps.len());
        }
    }

    fn value(&mut self, class: Class, longest: Option<usize>) {
        match longest {
            Some(longest) if longest <= LONGEST_PREFIX => self.at_most(longest, class),
            _ => self.repeated(|program| program.steps.push(Step::Value(class))),
        }
    }

    /// Up to this many characters, which may be multi-byte.
    fn at_most(&mut self, characters: usize, class: Class) {
        let Some(others) = characters.checked_sub(1) else { return };
        self.optional(|program| {
            program.steps.push(Step::Value(class));
            program.repeated(|program| program.steps.push(Step::Continuation));
            program.at_most(others, class);
        });
    }

    fn optional(&mut self, part: impl FnOnce(&mut Self)) {
        let split = self.reserve();
        part(self);
        self.steps[split] = Step::Split(self.steps.len());
    }

    fn repeated(&mut self, part: impl FnOnce(&mut Self)) {
        let start = self.steps.len();
        self.optional(|program| {
            part(program);
            program.steps.push(Step::Jump(start));
        });
    }

    /// Reserves a step that is set later. Unset, it leads nowhere.
    fn reserve(&mut self) -> usize {
        self.steps.push(Step::Jump(self.steps.len()));
        self.steps.len() - 1
    }
}

//! A program applied to a value.
//!
//! Every answer is one of three: the value fits, it does not, or that is not known because something could not be
//! checked. Schemas are applied inside each other by recursion, whose depth is limited.

use std::cmp::Ordering;

use serde_json::{Number, Value};

use crate::compile::shortened;
use crate::equality::{is_equal, size};
use crate::format::Format;
use crate::marks::Marks;
use crate::message::{Options, clipped, counted};
use crate::pattern::{self, Pattern, Unusable};
use crate::program::{Keyword, NodeId, Program, ResourceId, Type};
use crate::steps::Steps;
use crate::{Limits, NotChecked, Outcome, Violation, number};

/// Whether a value fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Truth {
    Yes,
    No,
    Unknown,
}

impl Truth {
    pub(crate) fn of(it: bool) -> Self {
        if it { Self::Yes } else { Self::No }
    }

    /// Both must hold.
    pub(crate) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::No, _) | (_, Self::No) => Self::No,
            (Self::Unknown, _) | (_, Self::Unknown) => Self::Unknown,
            (Self::Yes, Self::Yes) => Self::Yes,
        }
    }
}

/// Why a check ends before its end.
pub(crate) enum Stop {
    NotChecked(NotChecked),
    EnoughViolations,
}

impl From<NotChecked> for Stop {
    fn from(why: NotChecked) -> Self {
        Self::NotChecked(why)
    }
}

pub(crate) type Evaluated<T> = Result<T, Stop>;

/// Where a value is: a member or an item of another, or the whole.
#[derive(Clone, Copy)]
pub(crate) struct Location<'a> {
    above: Option<&'a Location<'a>>,
    step: Step<'a>,
    /// How many schemas are applied inside each other here.
    pub(crate) depth: usize,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Root,
    Member(&'a str),
    Item(usize),
}

impl<'a> Location<'a> {
    pub(crate) fn member(&'a self, name: &'a str) -> Self {
        Self { above: Some(self), step: Step::Member(name), depth: self.depth }
    }

    pub(crate) fn item(&'a self, location: usize) -> Self {
        Self { above: Some(self), step: Step::Item(location), depth: self.depth }
    }

    fn path(&self) -> Vec<String> {
        let mut path = Vec::new();
        let mut here = Some(self);
        while let Some(location) = here {
            match location.step {
                Step::Root => {}
                Step::Member(name) => path.push(name.to_owned()),
                Step::Item(number) => path.push(number.to_string()),
            }
            here = location.above;
        }
        path.reverse();
        path
    }
}

/// Checks a value.
pub(crate) fn evaluate(program: &Program<'_>, value: &Value, limits: Limits, steps: Steps<'_>) -> Outcome {
    let mut evaluator = Evaluator {
        program,
        steps,
        patterns: std::iter::repeat_with(|| None).take(program.patterns.len()).collect(),
        violations: Vec::new(),
        most_violations: limits.violations.max(1),
        quiet: 0,
        scope: Vec::new(),
        skipped: None,
    };
    let root = Location { above: None, step: Step::Root, depth: 0 };
    let ended = evaluator.apply(0, value, &root);
    // What is wrong so far is wrong, however the check ended.
    if !evaluator.violations.is_empty() {
        return Outcome::Invalid(evaluator.violations);
    }
    match (ended, evaluator.skipped) {
        (Ok((Truth::Yes, _)), _) => Outcome::Valid,
        (Err(Stop::NotChecked(why)), _) | (_, Some(why)) => Outcome::NotChecked(why),
        (_, None) => Outcome::NotChecked(NotChecked::NotRun("it ended without a result".to_owned())),
    }
}

pub(crate) struct Evaluator<'p, 's, 'a> {
    pub(crate) program: &'p Program<'s>,
    pub(crate) steps: Steps<'a>,
    /// Patterns that were needed, compiled.
    patterns: Vec<Option<Result<Pattern, Unusable>>>,
    violations: Vec<Violation>,
    most_violations: usize,
    /// While this is not 0, violations are no errors: another branch may fit.
    quiet: usize,
    /// The resources that were entered, for `$dynamicRef`.
    scope: Vec<ResourceId>,
    /// What could not be checked first.
    skipped: Option<NotChecked>,
}

impl<'p> Evaluator<'p, '_, '_> {
    /// Applies a schema to a value.
    pub(crate) fn apply(&mut self, node: NodeId, value: &Value, location: &Location<'_>) -> Evaluated<(Truth, Marks)> {
        let location = &Location { depth: location.depth + 1, ..*location };
        self.steps.check_depth(location.depth)?;
        let program: &'p Program<'_> = self.program;
        let node = &program.nodes[node];
        self.steps.take(1)?;
        let enters = self.scope.last() != Some(&node.resource);
        if enters {
            self.scope.push(node.resource);
        }
        let mut marks = Marks::default();
        let mut truth = Truth::Yes;
        for keyword in &node.keywords {
            self.steps.take(1)?;
            truth = truth.and(self.keyword(keyword, value, location, &mut marks)?);
            if truth == Truth::No && self.quiet > 0 {
                break;
            }
        }
        if enters {
            self.scope.pop();
        }
        marks.is_uncertain |= truth == Truth::Unknown;
        Ok((truth, marks))
    }

    /// Applies a schema to the same value, and takes over what it evaluated.
    pub(crate) fn apply_here(
        &mut self,
        node: NodeId,
        value: &Value,
        location: &Location<'_>,
        marks: &mut Marks,
    ) -> Evaluated<Truth> {
        let (truth, more) = self.apply(node, value, location)?;
        self.take_over(truth, more, marks)?;
        Ok(truth)
    }

    pub(crate) fn take_over(&mut self, truth: Truth, more: Marks, marks: &mut Marks) -> Evaluated<()> {
        if truth != Truth::No && self.program.needs_marks {
            self.steps.take(more.size())?;
            marks.add_others(more);
        }
        Ok(())
    }

    /// Applies a schema without reporting what does not fit.
    pub(crate) fn apply_quietly(
        &mut self,
        node: NodeId,
        value: &Value,
        location: &Location<'_>,
    ) -> Evaluated<(Truth, Marks)> {
        self.quiet += 1;
        let applied = self.apply(node, value, location);
        self.quiet -= 1;
        applied
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet > 0
    }

    /// Reports a violation, unless another branch may still fit.
    pub(crate) fn violation(&mut self, location: &Location<'_>, message: std::fmt::Arguments<'_>) -> Evaluated<Truth> {
        self.violation_of(location, message, None, Vec::new())
    }

    pub(crate) fn violation_of(
        &mut self,
        location: &Location<'_>,
        message: std::fmt::Arguments<'_>,
        unexpected: Option<&str>,
        expected_types: Vec<&'static str>,
    ) -> Evaluated<Truth> {
        if self.quiet > 0 {
            return Ok(Truth::No);
        }
        let unexpected = unexpected.map(str::to_owned);
        self.violations.push(Violation {
            path: location.path(),
            message: clipped(message),
            unexpected,
            expected_types,
        });
        if self.violations.len() >= self.most_violations { Err(Stop::EnoughViolations) } else { Ok(Truth::No) }
    }

    /// Notes what could not be checked.
    pub(crate) fn skip(&mut self, why: impl FnOnce() -> NotChecked) -> Truth {
        self.skipped.get_or_insert_with(why);
        Truth::Unknown
    }

    fn require(&mut self, fits: bool, location: &Location<'_>, message: std::fmt::Arguments<'_>) -> Evaluated<Truth> {
        if fits { Ok(Truth::Yes) } else { self.violation(location, message) }
    }

    fn keyword(
        &mut self,
        keyword: &'p Keyword<'_>,
        value: &Value,
        location: &Location<'_>,
        marks: &mut Marks,
    ) -> Evaluated<Truth> {
        match keyword {
            Keyword::Never => self.violation(location, format_args!("False schema does not allow {value}")),
            Keyword::Types(types) => self.types(types, value, location),
            Keyword::Enum { options, hashes } => {
                self.steps.take(size(value))?;
                let candidates = hashes.get(&self.program.hasher.hash(value));
                let fits = candidates.is_some_and(|all| all.iter().any(|index| is_equal(&options[*index], value)));
                self.require(fits, location, format_args!("{value} is not one of {}", Options(options)))
            }
            Keyword::Const(expected) => {
                self.steps.take(size(value))?;
                self.require(is_equal(expected, value), location, format_args!("{expected} was expected"))
            }
            Keyword::Minimum(_)
            | Keyword::ExclusiveMinimum(_)
            | Keyword::Maximum(_)
            | Keyword::ExclusiveMaximum(_)
            | Keyword::MultipleOf(_) => match value {
                Value::Number(number) => self.number(keyword, number, location),
                _ => Ok(Truth::Yes),
            },
            Keyword::MinLength(_) | Keyword::MaxLength(_) | Keyword::Pattern(_) | Keyword::Format(..) => match value {
                Value::String(text) => self.text(keyword, text, value, location),
                _ => Ok(Truth::Yes),
            },
            Keyword::AllOf(nodes) => self.all_of(nodes, value, location, marks),
            Keyword::AnyOf(nodes) => self.any_of(nodes, value, location, marks),
            Keyword::OneOf(nodes) => self.one_of(nodes, value, location, marks),
            Keyword::Not(node) => self.not(*node, value, location),
            Keyword::If { condition, then, otherwise } => {
                let (truth, more) = self.apply_quietly(*condition, value, location)?;
                self.take_over(truth, more, marks)?;
                let branch = match truth {
                    Truth::Yes => *then,
                    Truth::No => *otherwise,
                    Truth::Unknown => {
                        marks.is_uncertain = true;
                        return Ok(Truth::Unknown);
                    }
                };
                branch.map_or(Ok(Truth::Yes), |branch| self.apply_here(branch, value, location, marks))
            }
            Keyword::Reference(node) => self.apply_here(*node, value, location, marks),
            Keyword::DynamicReference { target, anchor } => {
                let node = anchor.as_ref().map_or(Ok(*target), |anchor| self.dynamic_target(anchor, *target))?;
                self.apply_here(node, value, location, marks)
            }
            Keyword::RecursiveReference(target) => {
                let node = self.recursive_target(*target)?;
                self.apply_here(node, value, location, marks)
            }
            Keyword::Unresolved(reference) => {
                marks.is_uncertain = true;
                Ok(self.skip(|| NotChecked::UnresolvedReference(shortened(reference))))
            }
            Keyword::MinItems(_)
            | Keyword::MaxItems(_)
            | Keyword::UniqueItems
            | Keyword::Items { .. }
            | Keyword::Contains { .. }
            | Keyword::UnevaluatedItems(_) => match value {
                Value::Array(items) => self.array(keyword, items, value, location, marks),
                _ => Ok(Truth::Yes),
            },
            Keyword::MinProperties(_)
            | Keyword::MaxProperties(_)
            | Keyword::Required(_)
            | Keyword::PropertyNames(_)
            | Keyword::Members(_)
            | Keyword::DependentRequired(_)
            | Keyword::DependentSchemas(_)
            | Keyword::UnevaluatedProperties(_) => match value {
                Value::Object(members) => self.object(keyword, members, value, location, marks),
                _ => Ok(Truth::Yes),
            },
        }
    }

    fn types(&mut self, types: &[Type], value: &Value, location: &Location<'_>) -> Evaluated<Truth> {
        if types.iter().any(|wanted| has_type(value, *wanted)) {
            return Ok(Truth::Yes);
        }
        let names: Vec<&'static str> = types.iter().map(|wanted| wanted.name()).collect();
        let quoted = names.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ");
        let word = if names.len() == 1 { "type" } else { "types" };
        self.violation_of(location, format_args!("{value} is not of {word} {quoted}"), None, names)
    }

    fn number(&mut self, keyword: &Keyword<'_>, number: &Number, location: &Location<'_>) -> Evaluated<Truth> {
        let is = |limit: &Number, wanted: &[Ordering]| wanted.contains(&number::compare(number, limit));
        let (fits, wrong, limit) = match keyword {
            Keyword::Minimum(limit) => {
                (is(limit, &[Ordering::Greater, Ordering::Equal]), "less than the minimum", limit)
            }
            Keyword::ExclusiveMinimum(limit) => {
                (is(limit, &[Ordering::Greater]), "less than or equal to the minimum", limit)
            }
            Keyword::Maximum(limit) => {
                (is(limit, &[Ordering::Less, Ordering::Equal]), "greater than the maximum", limit)
            }
            Keyword::ExclusiveMaximum(limit) => {
                (is(limit, &[Ordering::Less]), "greater than or equal to the maximum", limit)
            }
            Keyword::MultipleOf(divisor) => (number::is_multiple(number, divisor), "not a multiple", divisor),
            _ => return Ok(Truth::Yes),
        };
        self.require(fits, location, format_args!("{number} is {wrong} of {limit}"))
    }

    fn text(&mut self, keyword: &Keyword<'_>, text: &str, value: &Value, location: &Location<'_>) -> Evaluated<Truth> {
        self.steps.take(text.len() / 64)?;
        let length = |text: &str| text.chars().count() as u64;
        match keyword {
            Keyword::MinLength(min) => {
                let words = counted(*min, "character", "characters");
                self.require(length(text) >= *min, location, format_args!("{value} is shorter than {words}"))
            }
            Keyword::MaxLength(max) => {
                let words = counted(*max, "character", "characters");
                self.require(length(text) <= *max, location, format_args!("{value} is longer than {words}"))
            }
            Keyword::Pattern(pattern) => match self.matches(*pattern, text)? {
                Truth::No => {
                    let source = self.program.patterns[*pattern];
                    self.violation(location, format_args!("{value} does not match \"{source}\""))
                }
                known => Ok(known),
            },
            Keyword::Format(format, name) => {
                if *format == Format::Regex {
                    self.steps.take(pattern::compile_steps(text))?;
                }
                self.require(format.accepts(text), location, format_args!("{value} is not a \"{name}\""))
            }
            _ => Ok(Truth::Yes),
        }
    }

    /// Whether a pattern matches a text.
    pub(crate) fn matches(&mut self, pattern: usize, text: &str) -> Evaluated<Truth> {
        let source = self.program.patterns[pattern];
        if self.patterns[pattern].is_none() {
            self.steps.take(pattern::compile_steps(source))?;
            self.patterns[pattern] = Some(Pattern::new(source));
        }
        self.steps.take(1 + text.len() / 32)?;
        let why = match &mut self.patterns[pattern] {
            Some(Ok(compiled)) => {
                let (found, work) = compiled.matches(text);
                self.steps.take(work)?;
                match found {
                    Some(found) => return Ok(Truth::of(found)),
                    None => "it takes too much work on this text".to_owned(),
                }
            }
            Some(Err(unusable)) => unusable.why().to_owned(),
            None => String::new(),
        };
        Ok(self.skip(|| NotChecked::Pattern { pattern: shortened(source), why }))
    }

    fn all_of(
        &mut self,
        nodes: &[NodeId],
        value: &Value,
        location: &Location<'_>,
        marks: &mut Marks,
    ) -> Evaluated<Truth> {
        let mut truth = Truth::Yes;
        for node in nodes {
            truth = truth.and(self.apply_here(*node, value, location, marks)?);
            if truth == Truth::No && self.is_quiet() {
                break;
            }
        }
        Ok(truth)
    }

    fn not(&mut self, node: NodeId, value: &Value, location: &Location<'_>) -> Evaluated<Truth> {
        match self.apply_quietly(node, value, location)?.0 {
            Truth::Yes => {
                let schema = self.program.nodes[node].schema;
                self.violation(location, format_args!("{schema} is not allowed for {value}"))
            }
            Truth::No => Ok(Truth::Yes),
            Truth::Unknown => Ok(Truth::Unknown),
        }
    }

    fn any_of(
        &mut self,
        nodes: &[NodeId],
        value: &Value,
        location: &Location<'_>,
        marks: &mut Marks,
    ) -> Evaluated<Truth> {
        let mut truth = Truth::No;
        for node in nodes {
            let (fits, more) = self.apply_quietly(*node, value, location)?;
            self.take_over(fits, more, marks)?;
            match fits {
                Truth::Yes => truth = Truth::Yes,
                Truth::Unknown if truth == Truth::No => truth = Truth::Unknown,
                _ => {}
            }
            // The others could only add to what is evaluated.
            if truth == Truth::Yes && !self.program.needs_marks {
                break;
            }
        }
        if truth == Truth::No {
            let message = format_args!("{value} is not valid under any of the schemas listed in the 'anyOf' keyword");
            return self.violation(location, message);
        }
        Ok(truth)
    }

    fn one_of(
        &mut self,
        nodes: &[NodeId],
        value: &Value,
        location: &Location<'_>,
        marks: &mut Marks,
    ) -> Evaluated<Truth> {
        let (mut fitting, mut unknown) = (0, 0);
        for node in nodes {
            let (fits, more) = self.apply_quietly(*node, value, location)?;
            self.take_over(fits, more, marks)?;
            match fits {
                Truth::Yes => fitting += 1,
                Truth::Unknown => unknown += 1,
                Truth::No => {}
            }
            if fitting > 1 {
                let message =
                    format_args!("{value} is valid under more than one of the schemas listed in the 'oneOf' keyword");
                return self.violation(location, message);
            }
        }
        match (fitting, unknown) {
            (_, 1..) => Ok(Truth::Unknown),
            (0, 0) => {
                let message =
                    format_args!("{value} is not valid under any of the schemas listed in the 'oneOf' keyword");
                self.violation(location, message)
            }
            _ => Ok(Truth::Yes),
        }
    }

    /// The outermost schema in the dynamic scope with this anchor.
    fn dynamic_target(&mut self, anchor: &str, target: NodeId) -> Evaluated<NodeId> {
        self.steps.take(self.scope.len())?;
        let resources = self.scope.iter().map(|resource| &self.program.resources[*resource]);
        let outermost = resources.filter_map(|resource| resource.dynamic_anchors.get(anchor)).next();
        Ok(outermost.copied().unwrap_or(target))
    }

    /// The outermost schema of those with `$recursiveAnchor`, if the target has one.
    fn recursive_target(&mut self, target: NodeId) -> Evaluated<NodeId> {
        self.steps.take(self.scope.len())?;
        let resources = &self.program.resources;
        if !resources[self.program.nodes[target].resource].is_recursive {
            return Ok(target);
        }
        let outermost = self.scope.iter().map(|resource| &resources[*resource]).find(|resource| resource.is_recursive);
        Ok(outermost.map_or(target, |resource| resource.root))
    }
}

fn has_type(value: &Value, wanted: Type) -> bool {
    match (value, wanted) {
        (Value::Null, Type::Null)
        | (Value::Bool(_), Type::Boolean)
        | (Value::Number(_), Type::Number)
        | (Value::String(_), Type::String)
        | (Value::Array(_), Type::Array)
        | (Value::Object(_), Type::Object) => true,
        (Value::Number(number), Type::Integer) => number::is_integer(number),
        _ => false,
    }
}

//! Finds the `x-mcp-header` annotations in an input schema, in one pass.
//!
//! The walk uses its own stack instead of recursion: schemas come from servers and may be nested to any depth.

use crate::bridge::header_params::{HeaderParam, InvalidParams};
use crate::scan::{Cursor, Malformed, Span};
use crate::text;

/// The key of the annotation.
pub(crate) const ANNOTATION: &str = "x-mcp-header";

/// Annotated properties of one tool. A request has at most 64 kB of headers.
pub const MAX_HEADER_PARAMS: usize = 100;

/// Bytes of the paths of all annotated properties of one tool, with their headers. Each path is stored, so nested
/// properties repeat the names of the outer ones.
pub const MAX_HEADER_PARAM_BYTES: usize = 64 << 10;

/// Characters of a path or a header in an error.
const MAX_SHOWN_CHARS: usize = 200;

/// Every annotated property of the schema; the error describes the first invalid annotation.
pub(crate) fn of_schema(text: &[u8], schema: Span) -> Result<Vec<HeaderParam>, InvalidParams> {
    let mut walk = Walk { text, open: Vec::new(), path: Vec::new(), path_bytes: 0, found: Vec::new(), found_bytes: 0 };
    walk.run(Cursor::at(text, schema))?;
    Ok(walk.found)
}

struct Walk<'t> {
    text: &'t [u8],
    open: Vec<OpenValue>,
    /// The properties that lead to the current position, if only `properties` lead there.
    path: Vec<String>,
    /// The size of `path`.
    path_bytes: usize,
    found: Vec<HeaderParam>,
    /// The size of what is in `found`.
    found_bytes: usize,
}

/// An object or array around the current position.
struct OpenValue {
    role: Role,
    is_array: bool,
    header: Option<Span>,
    kind: Option<Span>,
}

/// The role of a value in a schema.
#[derive(Clone, Copy, PartialEq)]
enum Role {
    /// The root schema.
    Root,
    /// A schema that is reached through `properties` alone.
    Property,
    /// The `properties` of one of these two.
    Properties,
    /// Any other schema, or a list of such.
    Elsewhere,
    /// A map of schemas that are reached another way.
    NamedElsewhere,
    /// Not a schema.
    Data,
}

impl Role {
    /// The role of the member `name`.
    fn of_member(self, name: &str) -> Self {
        match (self, name) {
            (Self::Properties, _) => Self::Property,
            (Self::NamedElsewhere, _) => Self::Elsewhere,
            (Self::Root | Self::Property, "properties") => Self::Properties,
            (_, "properties" | "patternProperties" | "dependentSchemas" | "$defs" | "definitions") => {
                Self::NamedElsewhere
            }
            (_, ANNOTATION | "type" | "default" | "const" | "enum" | "examples") => Self::Data,
            _ => Self::Elsewhere,
        }
    }

    /// Whether a value that starts with this byte may contain annotations.
    fn has_schemas(self, first: u8) -> bool {
        match first {
            b'{' => self != Self::Data,
            b'[' => self == Self::Elsewhere,
            _ => false,
        }
    }
}

impl Walk<'_> {
    fn run(&mut self, mut cursor: Cursor<'_>) -> Result<(), InvalidParams> {
        let not_json = |error: Malformed| InvalidParams::Invalid(error.to_string());
        self.enter(&mut cursor, Role::Root).map_err(not_json)?;
        while let Some(&OpenValue { role, is_array, .. }) = self.open.last() {
            if cursor.take(if is_array { b']' } else { b'}' }) {
                self.leave()?;
                continue;
            }
            // The text is valid JSON, so commas are where they must be.
            cursor.take(b',');
            if is_array {
                self.enter(&mut cursor, Role::Elsewhere).map_err(not_json)?;
                continue;
            }
            let key = cursor.key().map_err(not_json)?;
            let name = text::decode(key.of(self.text)).unwrap_or_default();
            let role_below = role.of_member(&name);
            if role_below == Role::Property {
                self.path_bytes += step_bytes(&name);
                self.path.push(name.clone().into_owned());
            }
            let value = self.enter(&mut cursor, role_below).map_err(not_json)?;
            match value {
                Some(value) if role_below == Role::Data => self.note(role, &name, value)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Enters a value, or skips and returns it if it cannot contain annotations.
    fn enter(&mut self, cursor: &mut Cursor<'_>, role: Role) -> Result<Option<Span>, Malformed> {
        let first = cursor.peek().unwrap_or_default();
        if role.has_schemas(first) {
            cursor.expect(first)?;
            self.open.push(OpenValue { role, is_array: first == b'[', header: None, kind: None });
            return Ok(None);
        }
        if role == Role::Property {
            self.leave_property();
        }
        cursor.value().map(Some)
    }

    /// Records the `type` or the annotation of the innermost schema.
    fn note(&mut self, role: Role, name: &str, value: Span) -> Result<(), InvalidParams> {
        let Some(open) = self.open.last_mut() else { return Ok(()) };
        match name {
            "type" => open.kind = Some(value),
            ANNOTATION if role == Role::Property => open.header = Some(value),
            ANNOTATION => {
                let why = format!("{ANNOTATION} stands where no argument is reached by name");
                return Err(InvalidParams::Invalid(why));
            }
            _ => {}
        }
        Ok(())
    }

    fn leave(&mut self) -> Result<(), InvalidParams> {
        let Some(OpenValue { role: Role::Property, header, kind, .. }) = self.open.pop() else { return Ok(()) };
        if let Some(header) = header {
            let header = header_name(header.of(self.text)).map_err(|rule| self.wrong(rule))?;
            let kind = kind.and_then(|kind| text::decode(kind.of(self.text)));
            if !matches!(kind.as_deref(), Some("string" | "integer" | "boolean")) {
                return Err(self.wrong("is for a string, an integer or a boolean only"));
            }
            self.found_bytes += self.path_bytes + header.len();
            if self.found.len() == MAX_HEADER_PARAMS {
                return Err(InvalidParams::TooMuch(format!(
                    "has more than {MAX_HEADER_PARAMS} {ANNOTATION} annotations"
                )));
            }
            if self.found_bytes > MAX_HEADER_PARAM_BYTES {
                let why =
                    format!("has {ANNOTATION} annotations whose paths have more than {MAX_HEADER_PARAM_BYTES} bytes");
                return Err(InvalidParams::TooMuch(why));
            }
            self.found.push(HeaderParam { header, path: self.path.clone() });
        }
        self.leave_property();
        Ok(())
    }

    fn leave_property(&mut self) {
        self.path_bytes -= self.path.pop().map_or(0, |name| step_bytes(&name));
    }

    fn wrong(&self, rule: &str) -> InvalidParams {
        let dots = std::iter::once("").chain(std::iter::repeat("."));
        let path = dots.zip(&self.path).flat_map(|(dot, name)| dot.chars().chain(name.chars()));
        InvalidParams::Invalid(format!("{ANNOTATION} of property `{}` {rule}", shortened(path)))
    }
}

/// As much of a name as fits into an error.
pub(crate) fn shortened(mut name: impl Iterator<Item = char>) -> String {
    let mut shown: String = name.by_ref().take(MAX_SHOWN_CHARS).collect();
    if name.next().is_some() {
        shown.push('…');
    }
    shown
}

/// A name in a path takes memory even if it is empty.
fn step_bytes(name: &str) -> usize {
    name.len() + size_of::<String>()
}

fn header_name(token: &[u8]) -> Result<String, &'static str> {
    let name = text::decode(token).ok_or("must be a string")?;
    if name.is_empty() {
        return Err("must not be empty");
    }
    // A token as defined in RFC 9110.
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if !name.bytes().all(is_token) {
        return Err("must be usable as the name of a header");
    }
    Ok(name.into_owned())
}

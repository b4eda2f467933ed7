//! Finds the `x-mcp-header` annotations in an input schema, in one pass.
//!
//! The walk uses its own stack instead of recursion: schemas come from servers and may be nested to any depth.

use crate::bridge::header_params::HeaderParam;
use crate::scan::{Cursor, Malformed, Span};
use crate::text;

/// The key of the annotation.
pub(crate) const ANNOTATION: &str = "x-mcp-header";

/// Every annotated property of the schema; the error describes the first invalid annotation.
pub(crate) fn of_schema(text: &[u8], schema: Span) -> Result<Vec<HeaderParam>, String> {
    let mut walk = Walk { text, open: Vec::new(), path: Vec::new(), found: Vec::new() };
    walk.run(Cursor::at(text, schema))?;
    Ok(walk.found)
}

struct Walk<'t> {
    text: &'t [u8],
    open: Vec<OpenValue>,
    /// The properties that lead to the current position, if only `properties` lead there.
    path: Vec<String>,
    found: Vec<HeaderParam>,
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
    fn run(&mut self, mut cursor: Cursor<'_>) -> Result<(), String> {
        let not_json = |error: Malformed| error.to_string();
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
            self.path.pop();
        }
        cursor.value().map(Some)
    }

    /// Records the `type` or the annotation of the innermost schema.
    fn note(&mut self, role: Role, name: &str, value: Span) -> Result<(), String> {
        let Some(open) = self.open.last_mut() else { return Ok(()) };
        match name {
            "type" => open.kind = Some(value),
            ANNOTATION if role == Role::Property => open.header = Some(value),
            ANNOTATION => return Err(format!("{ANNOTATION} stands where no argument is reached by name")),
            _ => {}
        }
        Ok(())
    }

    fn leave(&mut self) -> Result<(), String> {
        let Some(OpenValue { role: Role::Property, header, kind, .. }) = self.open.pop() else { return Ok(()) };
        if let Some(header) = header {
            let header = header_name(header.of(self.text)).map_err(|rule| self.wrong(rule))?;
            let kind = kind.and_then(|kind| text::decode(kind.of(self.text)));
            if !matches!(kind.as_deref(), Some("string" | "integer" | "boolean")) {
                return Err(self.wrong("is for a string, an integer or a boolean only"));
            }
            self.found.push(HeaderParam { header, path: self.path.clone() });
        }
        self.path.pop();
        Ok(())
    }

    fn wrong(&self, rule: &str) -> String {
        format!("{ANNOTATION} of property `{}` {rule}", self.path.join("."))
    }
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

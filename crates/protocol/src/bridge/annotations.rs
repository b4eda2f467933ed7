//! The `x-mcp-header` annotations in an input schema, found in one pass.
//!
//! The walk keeps a stack of its own: schemas come from servers and may be of any depth.

use crate::bridge::header_params::HeaderParam;
use crate::scan::{Cursor, Malformed, Span};
use crate::text;

/// What the annotation is called.
pub(crate) const ANNOTATION: &str = "x-mcp-header";

/// Every annotated property of the schema; an error says what is wrong with the first wrong one.
pub(crate) fn of_schema(text: &[u8], schema: Span) -> Result<Vec<HeaderParam>, String> {
    let mut walk = Walk { text, open: Vec::new(), path: Vec::new(), found: Vec::new() };
    walk.run(Cursor::at(text, schema))?;
    Ok(walk.found)
}

struct Walk<'t> {
    text: &'t [u8],
    open: Vec<OpenValue>,
    /// The properties that lead to where the walk is, as far as nothing else does.
    path: Vec<String>,
    found: Vec<HeaderParam>,
}

/// An object or array the walk is in.
struct OpenValue {
    role: Role,
    is_array: bool,
    header: Option<Span>,
    kind: Option<Span>,
}

/// What a value is in a schema.
#[derive(Clone, Copy, PartialEq)]
enum Role {
    /// The schema itself.
    Root,
    /// A schema reached through `properties` alone.
    Property,
    /// The `properties` of one of these two.
    Properties,
    /// Any other schema, or a list of such.
    Elsewhere,
    /// Schemas by name that are reached another way.
    NamedElsewhere,
    /// No schema at all.
    Data,
}

impl Role {
    /// What the member called `name` of such an object is.
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

    /// Whether annotations may be found inside, if it begins with this byte.
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
            // The text is known to be valid, so commas stand where they should.
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

    /// Goes into a value, or over it if there is nothing to find inside: then it is returned.
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

    /// Remembers what the innermost schema says about itself.
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
    // RFC 9110 calls this a token.
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if !name.bytes().all(is_token) {
        return Err("must be usable as the name of a header");
    }
    Ok(name.into_owned())
}

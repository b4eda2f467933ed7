//! One endpoint: method, path, parameters, body, responses and handler. The OpenAPI document is generated from
//! endpoints.

use std::pin::Pin;

use http::Method;
use registry::Role;
use service::{Error, Problem};

use crate::request::{ApiRequest, Members};
use crate::response::ApiResponse;
use crate::schema::Schema;

/// Answers a request.
pub(crate) type Handler = fn(ApiRequest) -> Pin<Box<dyn Future<Output = Result<ApiResponse, Error>> + Send>>;

/// One endpoint of the API.
pub(crate) struct Endpoint {
    pub(crate) method: Method,
    /// The whole path, with `{name}` for parameters.
    pub(crate) path: String,
    pub(crate) group: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) about: &'static str,
    pub(crate) query: Vec<Parameter>,
    pub(crate) body: Option<Content>,
    pub(crate) answers: Vec<DocumentedResponse>,
    /// The error codes of this endpoint, beside the common ones.
    pub(crate) fails: Vec<&'static str>,
    /// The role that it needs.
    pub(crate) role: Role,
    /// Members of the query or the body that need a higher role if they are true.
    pub(crate) role_flags: Vec<(&'static str, Role)>,
    /// Whether no token is needed: everybody gets the same, public response.
    pub(crate) is_public: bool,
    /// Whether it shows and does only what the profile of a bound principal allows. Others refuse bound principals.
    pub(crate) is_within_profile: bool,
    /// Whether the request ends when its client disconnects, because it changes nothing of ours. Requests that change
    /// something always run to their end.
    pub(crate) ends_with_client: bool,
    pub(crate) run: Handler,
}

/// A query parameter.
pub(crate) struct Parameter {
    pub(crate) name: &'static str,
    pub(crate) schema: Schema,
    pub(crate) is_required: bool,
}

/// A request body.
pub(crate) struct Content {
    pub(crate) schema: Schema,
    pub(crate) is_optional: bool,
    /// Further checks of an invalid body, so that the client gets all problems at once.
    pub(crate) extra_checks: Option<fn(&Members) -> Vec<Problem>>,
}

/// A successful response.
pub(crate) struct DocumentedResponse {
    pub(crate) status: u16,
    pub(crate) about: &'static str,
    pub(crate) content_type: &'static str,
    /// None if the response has no body.
    pub(crate) schema: Option<Schema>,
    pub(crate) is_page: bool,
}

/// The prefix of most paths.
pub(crate) const PREFIX: &str = "/api/v1/aggregator";
const MAX_PAGE_SIZE: i64 = 1000;

impl Endpoint {
    pub(crate) fn get(path: &str, summary: &'static str, run: Handler) -> Self {
        Self::new(Method::GET, path, summary, run)
    }

    pub(crate) fn post(path: &str, summary: &'static str, run: Handler) -> Self {
        Self::new(Method::POST, path, summary, run)
    }

    pub(crate) fn put(path: &str, summary: &'static str, run: Handler) -> Self {
        Self::new(Method::PUT, path, summary, run)
    }

    pub(crate) fn patch(path: &str, summary: &'static str, run: Handler) -> Self {
        Self::new(Method::PATCH, path, summary, run)
    }

    pub(crate) fn delete(path: &str, summary: &'static str, run: Handler) -> Self {
        Self::new(Method::DELETE, path, summary, run)
    }

    fn new(method: Method, path: &str, summary: &'static str, run: Handler) -> Self {
        Self {
            path: format!("{PREFIX}{path}"),
            group: "",
            summary,
            about: "",
            query: Vec::new(),
            body: None,
            answers: Vec::new(),
            fails: Vec::new(),
            role: Role::Operator,
            role_flags: Vec::new(),
            is_public: false,
            is_within_profile: false,
            ends_with_client: method == Method::GET,
            method,
            run,
        }
    }

    /// Sets a path outside the prefix.
    pub(crate) fn at(mut self, path: &str) -> Self {
        path.clone_into(&mut self.path);
        self
    }

    /// Adds a description to the summary.
    pub(crate) fn about(mut self, about: &'static str) -> Self {
        self.about = about;
        self
    }

    /// Adds an optional query parameter.
    pub(crate) fn optional_query(mut self, name: &'static str, schema: Schema) -> Self {
        self.query.push(Parameter { name, schema, is_required: false });
        self
    }

    /// Adds a required query parameter.
    pub(crate) fn required_query(mut self, name: &'static str, schema: Schema) -> Self {
        self.query.push(Parameter { name, schema, is_required: true });
        self
    }

    /// Returns one page of a list.
    pub(crate) fn pages(self, about: &'static str, item: Schema) -> Self {
        let limit = Schema::integer(1, MAX_PAGE_SIZE).by_default(100).about("The maximum number of items to return.");
        self.optional_query("limit", limit).optional_query("offset", offset()).listing(about, item)
    }

    /// Returns a list, or one page of it if the client asks for one.
    pub(crate) fn parts(self, about: &'static str, item: Schema) -> Self {
        let limit =
            Schema::integer(1, i64::from(u32::MAX)).about("The maximum number of items to return; by default all.");
        self.optional_query("limit", limit).optional_query("offset", offset()).listing(about, item)
    }

    fn listing(self, about: &'static str, item: Schema) -> Self {
        let mut endpoint = self.answers(200, about, Schema::list(item));
        if let Some(reply) = endpoint.answers.last_mut() {
            reply.is_page = true;
        }
        endpoint
    }

    /// Takes this body. Members that the schema does not name are refused, because a misspelled member would have no
    /// effect.
    pub(crate) fn takes(mut self, schema: Schema) -> Self {
        self.body = Some(Content { schema: schema.and_no_more(), is_optional: false, extra_checks: None });
        self
    }

    /// Adds checks that only the service can do. Their problems are reported together with those of the schema.
    pub(crate) fn with_extra_checks(mut self, look: fn(&Members) -> Vec<Problem>) -> Self {
        if let Some(content) = &mut self.body {
            content.extra_checks = Some(look);
        }
        self
    }

    /// Takes this body, or none.
    pub(crate) fn takes_optional(mut self, schema: Schema) -> Self {
        self.body = Some(Content { schema: schema.and_no_more(), is_optional: true, extra_checks: None });
        self
    }

    /// Returns JSON.
    pub(crate) fn answers(self, status: u16, about: &'static str, schema: Schema) -> Self {
        self.answers_with(status, about, "application/json", Some(schema))
    }

    /// Returns only a status.
    pub(crate) fn answers_nothing(self, status: u16, about: &'static str) -> Self {
        self.answers_with(status, about, "", None)
    }

    /// Returns another content type.
    pub(crate) fn answers_with(
        mut self,
        status: u16,
        about: &'static str,
        content_type: &'static str,
        schema: Option<Schema>,
    ) -> Self {
        self.answers.push(DocumentedResponse { status, about, content_type, schema, is_page: false });
        self
    }

    /// Adds error codes.
    pub(crate) fn fails(mut self, codes: &[&'static str]) -> Self {
        self.fails.extend(codes);
        self
    }

    /// Ends the request when its client disconnects.
    pub(crate) fn ends_with_client(mut self) -> Self {
        self.ends_with_client = true;
        self
    }

    /// Is for principals that are bound to a profile, too: everything it uses of the service is narrowed to the profile.
    pub(crate) fn within_profile(mut self) -> Self {
        self.is_within_profile = true;
        self
    }

    /// Needs no token.
    pub(crate) fn public(mut self) -> Self {
        self.is_public = true;
        self.role = Role::User;
        self
    }

    /// May be used by everybody who is let in; without this, it takes an operator.
    pub(crate) fn for_users(mut self) -> Self {
        self.role = Role::User;
        self
    }

    /// May be used by admins only.
    pub(crate) fn for_admins(mut self) -> Self {
        self.role = Role::Admin;
        self
    }

    /// Needs this role if that member of the query or the body is true.
    pub(crate) fn with_flag_for(mut self, member: &'static str, role: Role) -> Self {
        self.role_flags.push((member, role));
        self
    }

    /// The parameters of a path, if it matches this endpoint.
    pub(crate) fn fits(&self, path: &str) -> Option<Vec<(String, String)>> {
        let (mut ours, mut given) = (self.path.split('/'), path.split('/'));
        let mut found = Vec::new();
        loop {
            match (ours.next(), given.next()) {
                (None, None) => return Some(found),
                (Some(part), Some(value)) => match name_of(part) {
                    Some(name) if !value.is_empty() => found.push((name.to_owned(), decode(value))),
                    None if part == value => {}
                    _ => return None,
                },
                _ => return None,
            }
        }
    }
}

/// `server` of `{server}`.
fn name_of(part: &str) -> Option<&str> {
    part.strip_prefix('{')?.strip_suffix('}')
}

fn offset() -> Schema {
    Schema::integer(0, i64::from(i32::MAX)).by_default(0).about("The number of items to skip.")
}

fn decode(value: &str) -> String {
    crate::request::percent_decoded(value)
}

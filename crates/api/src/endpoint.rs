//! One thing that can be asked for: how, with what, what comes back, and who answers. The document is made of these.

use std::pin::Pin;

use http::Method;
use service::{Error, Problem};

use crate::request::{ApiRequest, Members};
use crate::response::ApiResponse;
use crate::schema::Schema;

/// Who answers.
pub(crate) type Handler = fn(ApiRequest) -> Pin<Box<dyn Future<Output = Result<ApiResponse, Error>> + Send>>;

/// One thing that can be asked for.
pub(crate) struct Endpoint {
    pub(crate) method: Method,
    /// The whole path, with `{name}` where something of the client's stands.
    pub(crate) path: String,
    pub(crate) group: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) about: &'static str,
    pub(crate) query: Vec<Parameter>,
    pub(crate) body: Option<Content>,
    pub(crate) answers: Vec<DocumentedResponse>,
    /// The codes of what can go wrong here and not everywhere.
    pub(crate) fails: Vec<&'static str>,
    /// Whoever asks need not say who they are: everybody gets the same, and it tells nothing.
    pub(crate) is_public: bool,
    /// It changes nothing of ours, and is given up when whoever asked is gone. What changes something is done to its end.
    pub(crate) ends_with_client: bool,
    pub(crate) run: Handler,
}

/// Something in the query.
pub(crate) struct Parameter {
    pub(crate) name: &'static str,
    pub(crate) schema: Schema,
    pub(crate) is_required: bool,
}

/// A body.
pub(crate) struct Content {
    pub(crate) schema: Schema,
    pub(crate) is_optional: bool,
    /// What else is wrong with a body that is not as described: who sent it is to hear of everything at once.
    pub(crate) extra_checks: Option<fn(&Members) -> Vec<Problem>>,
}

/// A good answer.
pub(crate) struct DocumentedResponse {
    pub(crate) status: u16,
    pub(crate) about: &'static str,
    pub(crate) content_type: &'static str,
    /// Nothing is sent where there is none.
    pub(crate) schema: Option<Schema>,
    pub(crate) is_page: bool,
}

/// Where most of it is.
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
            is_public: false,
            ends_with_client: method == Method::GET,
            method,
            run,
        }
    }

    /// It is not below the prefix.
    pub(crate) fn at(mut self, path: &str) -> Self {
        path.clone_into(&mut self.path);
        self
    }

    /// More than the summary says.
    pub(crate) fn about(mut self, about: &'static str) -> Self {
        self.about = about;
        self
    }

    /// The query may have this.
    pub(crate) fn asks(mut self, name: &'static str, schema: Schema) -> Self {
        self.query.push(Parameter { name, schema, is_required: false });
        self
    }

    /// The query must have this.
    pub(crate) fn needs(mut self, name: &'static str, schema: Schema) -> Self {
        self.query.push(Parameter { name, schema, is_required: true });
        self
    }

    /// It answers with a part of a list.
    pub(crate) fn pages(self, about: &'static str, item: Schema) -> Self {
        let limit = Schema::integer(1, MAX_PAGE_SIZE).by_default(100).about("At most so many.");
        self.asks("limit", limit).asks("offset", offset()).listing(about, item)
    }

    /// It answers with a list, or with a part of it if one is asked for.
    pub(crate) fn parts(self, about: &'static str, item: Schema) -> Self {
        let limit = Schema::integer(1, i64::from(u32::MAX)).about("At most so many; else all.");
        self.asks("limit", limit).asks("offset", offset()).listing(about, item)
    }

    fn listing(self, about: &'static str, item: Schema) -> Self {
        let mut endpoint = self.answers(200, about, Schema::list(item));
        if let Some(reply) = endpoint.answers.last_mut() {
            reply.is_page = true;
        }
        endpoint
    }

    /// It takes this body, and no members that the schema does not name: a member that is misspelt would mean nothing.
    pub(crate) fn takes(mut self, schema: Schema) -> Self {
        self.body = Some(Content { schema: schema.and_no_more(), is_optional: false, extra_checks: None });
        self
    }

    /// What only the service knows to be wrong with a body is told together with what its description tells.
    pub(crate) fn with_extra_checks(mut self, look: fn(&Members) -> Vec<Problem>) -> Self {
        if let Some(content) = &mut self.body {
            content.extra_checks = Some(look);
        }
        self
    }

    /// It takes this body, or none.
    pub(crate) fn takes_optional(mut self, schema: Schema) -> Self {
        self.body = Some(Content { schema: schema.and_no_more(), is_optional: true, extra_checks: None });
        self
    }

    /// It answers with JSON.
    pub(crate) fn answers(self, status: u16, about: &'static str, schema: Schema) -> Self {
        self.answers_with(status, about, "application/json", Some(schema))
    }

    /// It answers with nothing but the status.
    pub(crate) fn answers_nothing(self, status: u16, about: &'static str) -> Self {
        self.answers_with(status, about, "", None)
    }

    /// It answers with something else.
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

    /// What can go wrong here.
    pub(crate) fn fails(mut self, codes: &[&'static str]) -> Self {
        self.fails.extend(codes);
        self
    }

    /// It is given up when whoever asked is gone.
    pub(crate) fn ends_with_client(mut self) -> Self {
        self.ends_with_client = true;
        self
    }

    /// Everybody may ask.
    pub(crate) fn public(mut self) -> Self {
        self.is_public = true;
        self
    }

    /// What the path says in place of its names, if it leads here.
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
    Schema::integer(0, i64::from(i32::MAX)).by_default(0).about("After so many others.")
}

fn decode(value: &str) -> String {
    crate::request::percent_decoded(value)
}

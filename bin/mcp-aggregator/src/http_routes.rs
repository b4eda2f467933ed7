//! The routes beside MCP: the REST API, and the console.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use api::Api;
use bytes::Bytes;
use catalog::Role;
use console::{AuthenticatedByConnection, Console, ConsoleDependencies, Documents, Found, SignedIn};
use http::StatusCode;
use http::request::Parts;
use http_server::{AdmittedByConnection, FallbackBody, FallbackResponse, FallbackService, Voucher};
use notebook::Folder;
use registry::{Actor, Principal};
use service::Service;

use crate::access::Access;
use crate::import::clients::{Client, Machine};
use crate::import::plan::{ImportDecision, plan};
use crate::import::{found_in, pasted, read_jsonc};

/// Adds the API and the console.
pub(crate) struct HttpRoutes {
    pub(crate) api: Arc<Api>,
    pub(crate) console: Arc<Console>,
}

impl FallbackService for HttpRoutes {
    fn has(&self, path: &str) -> bool {
        self.api.has(path) || self.console.has(path)
    }

    fn is_public(&self, path: &str) -> bool {
        // The console serves its sign-in page to everybody, and checks access itself.
        self.api.is_public(path) || !self.api.has(path)
    }

    fn is_for_allowed_origins(&self, path: &str) -> bool {
        self.api.has(path)
    }

    fn vouch(&self, parts: &Parts) -> Option<Voucher> {
        self.console.vouch(parts).and_then(voucher)
    }

    fn session_owner(&self, parts: &Parts) -> Option<Voucher> {
        self.console.session_owner(parts).and_then(voucher)
    }

    fn required_role(&self, parts: &Parts) -> Role {
        let (method, path) = (&parts.method, parts.uri.path());
        match self.api.has(path) {
            true => self.api.required_role(method, path),
            false => self.console.required_role(method, path),
        }
    }

    fn is_sign_in(&self, parts: &Parts) -> bool {
        self.console.is_sign_in(parts)
    }

    fn answer(
        self: Arc<Self>,
        mut parts: Parts,
        body: Bytes,
        principal: Arc<Principal>,
    ) -> Pin<Box<dyn Future<Output = FallbackResponse> + Send>> {
        if parts.extensions.get::<AdmittedByConnection>().is_some() {
            parts.extensions.insert(AuthenticatedByConnection);
        }
        Box::pin(async move {
            // The console answers unknown paths with an error page.
            let path = parts.uri.path();
            let signed_out = self.console.until_signed_out(&parts);
            match self.console.has(path) || !self.api.has(path) {
                true => Arc::clone(&self.console).answer(parts, body, principal).await.map(FallbackBody::new),
                false => {
                    let response = self.api.answer(parts, body, principal).await.map(FallbackBody::new);
                    // An event stream of a session ends with the session.
                    match signed_out {
                        Some(over) if is_stream(&response) => response.map(|body| body.until(over)),
                        _ => response,
                    }
                }
            }
        })
    }

    fn refuse(&self, status: StatusCode, why: &str) -> FallbackResponse {
        self.api.refuse(status, why).map(FallbackBody::new)
    }

    fn leave(&self) {
        self.api.leave();
    }
}

/// What the HTTP server knows about who is signed in to the console.
fn voucher(signed_in: SignedIn) -> Option<Voucher> {
    match signed_in {
        SignedIn::Token(token) => Some(Voucher::Token(token)),
        SignedIn::Person(person) => person.principal().map(Voucher::Person),
    }
}

/// Whether a response is an endless stream.
fn is_stream(response: &FallbackResponse) -> bool {
    let kind = response.headers().get(http::header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.starts_with("text/event-stream"))
}

/// What the console needs from the program.
pub(crate) fn console_dependencies(
    access: &Access,
    service: &Arc<Service>,
    api: &Arc<Api>,
    folder: Option<&Arc<Folder>>,
    has_assistant: bool,
    url: &str,
) -> ConsoleDependencies {
    let documents =
        folder.map(|folder| documents(Arc::clone(service), Arc::clone(api), Arc::clone(folder), has_assistant));
    let named = access.tokens.clone();
    let token_names = Box::new(move || named.iter().flat_map(|tokens| tokens.names()).collect());
    let (here, also_here) = (url.to_owned(), url.to_owned());
    let read_config = Box::new(move |text: &str| read_config(text, &here));
    let on_this_machine = Box::new(move || on_this_machine(&also_here));
    ConsoleDependencies {
        identity_providers: None,
        resolve_principal: access.resolve_principal(),
        token_place: access.token_place(),
        redeem_code: access.redeem_code(),
        token_names,
        read_config,
        on_this_machine,
        documents,
    }
}

/// The structure of documents, as the API returns it.
fn documents(service: Arc<Service>, api: Arc<Api>, folder: Arc<Folder>, has_assistant: bool) -> Documents {
    let opened = Arc::clone(&folder);
    let open = move |path: String| -> console::Opening {
        let (service, folder) = (Arc::clone(&service), Arc::clone(&opened));
        Box::pin(async move { api::open_document(&service, &folder, path, has_assistant).await })
    };
    let run = move |actor: Actor, wanted: serde_json::Value| -> console::Running {
        let api = Arc::clone(&api);
        Box::pin(async move { api.run_document(actor, &wanted).await })
    };
    Documents { folder, open: Box::new(open), run: Box::new(run) }
}

/// The servers in the config of any client.
fn read_config(text: &str, url: &str) -> Result<Vec<Found>, String> {
    let file = pasted::understood(text)?;
    Ok(fitting(found_in(&file, "what you pasted"), url))
}

/// The servers of programs on this machine. A file that cannot be read is listed with the reason.
fn on_this_machine(url: &str) -> Vec<Found> {
    let machine = Machine::this();
    in_files(Client::ALL.into_iter().flat_map(|client| machine.files(client)), url)
}

/// The servers in files of clients. A file that exists and cannot be read is listed with the reason.
fn in_files(files: impl Iterator<Item = PathBuf>, url: &str) -> Vec<Found> {
    let (mut found, mut unreadable, mut seen) = (Vec::new(), Vec::new(), Vec::new());
    for path in files {
        let from = path.display().to_string();
        // In the home folder, the files of a project are those of the user.
        let whole = path.canonicalize().unwrap_or_else(|_| path.clone());
        if seen.contains(&whole) {
            continue;
        }
        seen.push(whole);
        let read = match std::fs::read_to_string(&path) {
            Ok(text) if text.trim().is_empty() => continue,
            Ok(text) => read_jsonc(&text).map_err(|error| format!("The file is not valid JSON: {error}")),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => continue,
            Err(error) => Err(format!("The file could not be read: {error}")),
        };
        match read {
            Ok(file) => found.extend(found_in(&file, &from)),
            Err(problem) => unreadable.push(unusable(&path, from, problem)),
        }
    }
    let mut all = fitting(found, url);
    all.extend(unreadable);
    all
}

fn unusable(path: &Path, from: String, problem: String) -> Found {
    let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    Found { name, from, registration: serde_json::Map::new(), notes: Vec::new(), problem: Some(problem) }
}

/// Servers with valid names. `url` is our address: an entry that refers to mcp-aggregator is never added.
fn fitting(found: Vec<crate::import::Found>, url: &str) -> Vec<Found> {
    let planned = plan(found, &[], Some(url)).into_iter();
    planned
        .map(|planned| {
            let crate::import::Found { from, registration, notes, .. } = planned.found;
            let problem = match planned.fate {
                ImportDecision::Add | ImportDecision::Exists => None,
                ImportDecision::Twice { first } => Some(format!("the same as in {first}")),
                ImportDecision::Ours => {
                    Some("it is this service itself, which would serve its own tools in a loop".to_owned())
                }
                ImportDecision::Unusable { why } => Some(why),
            };
            Found { name: planned.name, from, registration, notes, problem }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unreadable_client_file_is_listed_with_its_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let files = [
            folder.path().join("none.json"),
            file("broken.json", b"{\"mcpServers\": {"),
            file("bytes.json", b"\xff"),
            file("good.json", br#"{"mcpServers": {"one": {"command": "one"}}}"#),
        ];
        let found = in_files(files.into_iter(), "http://localhost:1");
        let listed: Vec<_> = found.iter().map(|found| (found.name.as_str(), found.problem.is_some())).collect();
        assert_eq!(listed, [("one", false), ("broken.json", true), ("bytes.json", true)], "{found:?}");
    }
}

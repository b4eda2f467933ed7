//! A client that calls a server without a sign-in is sent to the sign-in page, if it can be asked by URL, and its call
//! continues afterwards.
//!
//! A legacy client receives an `elicitation/create` while its call waits. A modern client receives an
//! `input_required` and sends its call again; the request state is only a mark, because nothing is kept in between.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use catalog::{Kind, Principal, ServerEntry, ServerName, login_command};
use protocol::bridge::{elicitation, input, meta};
use protocol::scan::member;
use protocol::{Lifecycle, RequestEnvelope, Span, reply, text};
use tokio::time::timeout;
use upstream::{CallError, RemoteFailure, ResponseHandler as _};

use crate::client::{lifecycle_of, next_number};
use crate::client_sink::ClientSink;
use crate::dispatch::{Aggregator, FlushSet, Incoming};
use crate::responder::failure;
use crate::server_requests::ServerRequests;
use crate::suspended_request::{Handler, SuspendedRequest, Target};
use crate::{bridge, call, unavailable};

/// How long a person may take to sign in. Attempts expire after the same time.
const SIGN_IN_TIMEOUT: Duration = Duration::from_secs(600);
/// The request state of a modern client's call, and the key of the address it is to open.
const STATE: &str = "mcp-aggregator-sign-in";
const KEY: &str = "sign-in";

/// What a host returns.
pub type SignInFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Starts sign-ins, in programs that support them.
pub trait SignInHost: Send + Sync {
    /// Starts a sign-in to the server in that slot on behalf of a principal. Returns the address of the page; `None` if
    /// it cannot be started.
    fn begin(&self, server: usize, principal: Arc<Principal>) -> SignInFuture<Option<String>>;

    /// Waits until the server in that slot is connected, or certainly is not going to be. If the principal has an
    /// instance of its own, waits until it has signed in there.
    fn settled(&self, server: usize, principal: Arc<Principal>) -> SignInFuture<()>;
}

/// The host, and whether any modern client was asked to sign in.
#[derive(Default)]
pub(crate) struct SignInPages {
    host: OnceLock<Arc<dyn SignInHost>>,
    /// Until the first one, no call is searched for our request state.
    has_asked_modern_clients: AtomicBool,
}

impl SignInPages {
    pub(crate) fn set_host(&self, host: Arc<dyn SignInHost>) {
        self.host.get_or_init(|| host);
    }

    fn expects_retries(&self) -> bool {
        self.has_asked_modern_clients.load(Ordering::Relaxed)
    }
}

/// Asks the client to open the sign-in page of the server, if the server needs a sign-in and the client can be asked.
/// Returns whether the call is taken care of.
pub(crate) fn ask(
    aggregator: &Arc<Aggregator>,
    message: &Incoming<'_>,
    request: &RequestEnvelope,
    server: usize,
    target: Target,
) -> bool {
    let view = aggregator.fleet.view_of(message.client);
    unavailable::needs_sign_in(&view.snapshot.servers()[server])
        && ask_for_instance(aggregator, message, request, server, target)
}

/// The same for an instance of the server that needs a sign-in, whatever the state of the server itself is.
pub(crate) fn ask_for_instance(
    aggregator: &Arc<Aggregator>,
    message: &Incoming<'_>,
    request: &RequestEnvelope,
    server: usize,
    target: Target,
) -> bool {
    let Some(host) = aggregator.sign_in_pages.host.get() else { return false };
    let view = aggregator.fleet.view_of(message.client);
    let entry = &view.snapshot.servers()[server];
    let Incoming { client, to, line, .. } = message;
    if client.server_requests.is_closed() {
        return false;
    }
    let said = meta::read(line, &request.params);
    let legacy_capabilities = client.client_meta().capabilities;
    let (is_modern, capabilities) = match lifecycle_of(&request.params) {
        Lifecycle::SelfContained => (true, said.capabilities.map_or(&b"{}"[..], |span| span.of(line))),
        Lifecycle::Session => (false, &legacy_capabilities[..]),
    };
    if !elicitation::is_offered(capabilities, elicitation::METHOD, br#"{"mode":"url"}"#) {
        return false;
    }
    let sink = match (is_modern, to.sink_for_server_requests()) {
        (true, _) => None,
        (false, Some(sink)) => Some(Arc::clone(sink)),
        (false, None) => return false,
    };
    let name = entry.name.to_string();
    let call = WaitingCall {
        suspended: SuspendedRequest::new(aggregator, message, request, target),
        aggregator: Arc::clone(aggregator),
        host: Arc::clone(host),
        server,
        name,
    };
    client.defer(line.slice(request.id.start..request.id.end), to, async move {
        match sink {
            Some(sink) => call.of_legacy_client(&sink).await,
            None => call.of_modern_client().await,
        }
    });
    true
}

/// A call of a client that is asked to sign in.
struct WaitingCall {
    suspended: SuspendedRequest,
    aggregator: Arc<Aggregator>,
    host: Arc<dyn SignInHost>,
    server: usize,
    name: String,
}

impl WaitingCall {
    async fn of_legacy_client(self, sink: &Arc<dyn ClientSink>) {
        let to = self.suspended.to();
        // It takes no concurrency slot while a person signs in.
        to.on_held();
        let is_settled = timeout(SIGN_IN_TIMEOUT, self.visit(sink)).await.unwrap_or(false);
        to.on_released();
        self.go_on(is_settled);
    }

    /// Whether the person went to the page, and the server is settled since.
    async fn visit(&self, sink: &Arc<dyn ClientSink>) -> bool {
        let Some(url) = self.begin().await else { return false };
        let id = format!("sign-in-{}", next_number());
        let params = elicitation::to_legacy(&self.params(&url), Some(&id));
        let asked = ServerRequests::ask(self.suspended.client(), sink, elicitation::METHOD, &params);
        let is_accepted =
            asked.answer().await.is_some_and(|answer| answer.is_ok_and(|answer| is_accepted(&answer, whole(&answer))));
        if is_accepted {
            self.host.settled(self.server, Arc::clone(self.suspended.client().principal())).await;
        }
        is_accepted
    }

    async fn of_modern_client(self) {
        let to = self.suspended.to();
        let Some(url) = self.begin().await else { return self.go_on(false) };
        self.aggregator.sign_in_pages.has_asked_modern_clients.store(true, Ordering::Relaxed);
        let params = elicitation::to_modern(&self.params(&url));
        let requests = [(KEY.to_owned(), elicitation::METHOD, params)];
        to.respond(&reply::result(self.suspended.id(), &input::required(&requests, STATE)));
        to.flush();
    }

    async fn begin(&self) -> Option<String> {
        self.host.begin(self.server, Arc::clone(self.suspended.client().principal())).await
    }

    fn params(&self, url: &str) -> Bytes {
        let text = format!("Sign in to `{}` to continue.", self.name);
        let members = [("mode", reply::string("url")), ("message", reply::string(&text)), ("url", reply::string(url))];
        reply::object(members).into()
    }

    /// Continues the call if the server can be called now; otherwise it fails with the usual error.
    fn go_on(&self, is_settled: bool) {
        let mut flush_set = FlushSet::default();
        let view = self.aggregator.fleet.view_of(self.suspended.client());
        let entry = &view.snapshot.servers()[self.server];
        if is_settled && !unavailable::needs_sign_in(entry) {
            self.suspended.resume(&mut flush_set);
        } else {
            self.suspended.to().respond(&refusal(self.suspended.id(), entry));
        }
        flush_set.flush();
        self.suspended.to().flush();
    }
}

/// The error of a call whose person did not sign in.
fn refusal(id: &[u8], server: &ServerEntry) -> Vec<u8> {
    if !server.state.offers() {
        return unavailable::answer(id, server);
    }
    // Only the person's own instance needs it.
    failure(id, &sign_in_error(server.name.clone(), "nobody signed in"))
}

/// The error of a call to an instance that needs a sign-in.
pub(crate) fn sign_in_error(server: ServerName, why: &str) -> CallError {
    let command = Some(login_command(server.as_str()));
    CallError::Remote { server, problem: why.to_owned(), failure: RemoteFailure::SignInRequired, command }
}

/// A call that a modern client sends again after it was asked to sign in: without what belongs to that, and whether the
/// person went to the page.
pub(crate) struct Retry {
    line: Bytes,
    is_accepted: bool,
}

/// The retry in a request, if it is one.
pub(crate) fn retry(aggregator: &Aggregator, line: &Bytes, request: &RequestEnvelope) -> Option<Retry> {
    if !aggregator.sign_in_pages.expects_retries() || lifecycle_of(&request.params) != Lifecycle::SelfContained {
        return None;
    }
    let found = input::of_request(line, &request.params);
    found.state.filter(|state| state == STATE)?;
    let answer = found.responses.and_then(|responses| input::response(line, responses, KEY));
    let is_accepted = answer.is_some_and(|answer| is_accepted(line, answer));
    Some(Retry { line: input::without_retry(line, &request.params), is_accepted })
}

/// Continues a modern client's call once the server is settled. A client that declined gets the usual error.
pub(crate) fn resume(
    aggregator: &Arc<Aggregator>,
    message: Incoming<'_>,
    retry: &Retry,
    kind: Kind,
    server: Option<usize>,
) {
    let request = bridge::scanned_request(&retry.line);
    let message = Incoming { line: &retry.line, ..message };
    let view = aggregator.fleet.view_of(message.client);
    let is_waiting = |&server: &usize| {
        let entry = &view.snapshot.servers()[server];
        unavailable::needs_sign_in(entry) || aggregator.fleet.instances_of(server).is_some()
    };
    let waiting = server.filter(is_waiting);
    let (Some(server), Some(host)) = (waiting, aggregator.sign_in_pages.host.get()) else {
        return call::route(aggregator, message, &request, kind);
    };
    let Incoming { client, to, line, .. } = &message;
    if !retry.is_accepted {
        return to.respond(&refusal(request.id.of(line), &view.snapshot.servers()[server]));
    }
    let again: Handler = match kind {
        Kind::Prompt => |aggregator, message, request| call::route(aggregator, message, request, Kind::Prompt),
        _ => |aggregator, message, request| call::route(aggregator, message, request, Kind::Tool),
    };
    let suspended = SuspendedRequest::new(aggregator, &message, &request, Target::Method(again));
    let (host, limit) = (Arc::clone(host), aggregator.options.answer_timeout.min(SIGN_IN_TIMEOUT));
    let principal = Arc::clone(client.principal());
    client.defer(line.slice(request.id.start..request.id.end), to, async move {
        // If it is not settled by then, the client is asked again.
        drop(timeout(limit, host.settled(server, principal)).await);
        let mut flush_set = FlushSet::default();
        suspended.resume(&mut flush_set);
        flush_set.flush();
        suspended.to().flush();
    });
}

fn is_accepted(line: &[u8], answer: Span) -> bool {
    member(line, answer, "action").is_some_and(|action| text::token_is(action.of(line), "accept"))
}

fn whole(bytes: &[u8]) -> Span {
    Span { start: 0, end: bytes.len() }
}

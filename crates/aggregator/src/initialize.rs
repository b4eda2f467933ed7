//! `initialize` and `server/discover`: our name, capabilities and instructions.

use std::sync::Arc;

use bytes::Bytes;
use catalog::Scope;
use protocol::bridge::meta::{self, ClientMeta};
use protocol::reply::{self, code};
use protocol::scan::{Span, member};
use protocol::{Lifecycle, Params, Revision, text};

use crate::client::Client;
use crate::dispatch::{Aggregator, Incoming};
use crate::responder::Responder;
use crate::unavailable;

impl Aggregator {
    /// `initialize`, the first request of a legacy client.
    pub(crate) fn initialize(self: &Arc<Self>, message: &Incoming<'_>, id: Span, params: &Params) {
        let Incoming { client, to, line, .. } = message;
        let whole = params.span.unwrap_or(Span { start: 0, end: 0 });
        let text_at = |span: Option<Span>| span.and_then(|span| text::decode(span.of(line)));
        let Some(wanted) = text_at(member(line, whole, "protocolVersion")) else {
            let text = "Invalid params: `protocolVersion` must be a string";
            return to.respond(&reply::error(id.of(line), code::INVALID_PARAMS, text, None));
        };
        if let Some(text) = self.options.client_limits.refusal_of_initialize(line, params) {
            return to.respond(&reply::error(id.of(line), code::INVALID_PARAMS, &text, None));
        }
        let info = member(line, whole, "clientInfo");
        let name = text_at(info.and_then(|info| member(line, info, "name"))).unwrap_or_default();
        let revision = Revision::agreed(&wanted);
        tracing::debug!(client = %name, wanted = %wanted, agreed = %revision, "client connected");
        if client.is_alone() {
            self.fleet.note_client_lifecycle(Lifecycle::Session);
        }
        let taken = |span: Span| Bytes::copy_from_slice(span.of(line));
        let capabilities = member(line, whole, "capabilities").filter(|value| line[value.start] == b'{');
        client.set_initialized_as(
            &name,
            revision,
            ClientMeta {
                capabilities: capabilities.map_or(Bytes::from_static(b"{}"), taken),
                info: info.map(taken),
                log_level: None,
            },
        );
        if let Some(clients) = &self.clients {
            let version = text_at(info.and_then(|info| member(line, info, "version")));
            let connected = clients.begin_session(&name, version.as_deref(), revision, client.principal());
            client.set_connected(Some(connected));
        }
        let id = line.slice(id.start..id.end);
        self.when_known(client, to, id, move |aggregator, client| {
            let members = aggregator.described(client, Lifecycle::Session);
            let version = ("protocolVersion", reply::string(revision.as_str()));
            reply::object([version].into_iter().chain(members))
        });
    }

    /// `server/discover`, which a modern client may send at any time.
    pub(crate) fn discover(self: &Arc<Self>, message: &Incoming<'_>, id: Span) {
        let id = message.line.slice(id.start..id.end);
        self.when_known(message.client, message.to, id, |aggregator, client| {
            let mut members = aggregator.described(client, Lifecycle::SelfContained);
            let at = members.iter().position(|(name, _)| *name == "serverInfo");
            let info = at.map_or(b"{}".to_vec(), |at| members.remove(at).1);
            let versions: Vec<_> = Revision::supported().map(reply::string).collect();
            let meta = reply::object([(meta::SERVER_INFO, info)]);
            let head = [
                ("resultType", reply::string("complete")),
                ("supportedVersions", [&b"["[..], &versions.join(&b','), b"]"].concat()),
            ];
            let tail = [("ttlMs", b"0".to_vec()), ("cacheScope", reply::string("private")), ("_meta", meta)];
            reply::object(head.into_iter().chain(members).chain(tail))
        });
    }

    /// Responds with the result of `describe`: at once if nothing more will be known later, else when the servers are
    /// up or have used up their time. A legacy client receives instructions only here.
    fn when_known(
        self: &Arc<Self>,
        client: &Arc<Client>,
        to: &Arc<Responder>,
        id: Bytes,
        describe: impl FnOnce(&Self, &Client) -> Vec<u8> + Send + 'static,
    ) {
        if self.options.method_set.is_tools_only || self.fleet.is_known(client) || client.has_many_deferred() {
            return to.respond(&self.initialize_response(client, &id, describe));
        }
        let (aggregator, owner, answer_to, parked_id) =
            (Arc::clone(self), Arc::clone(client), Arc::clone(to), id.clone());
        client.defer(parked_id, to, async move {
            tokio::select! {
                () = aggregator.fleet.known(&owner) => {}
                () = owner.leaving() => {}
            }
            answer_to.respond(&aggregator.initialize_response(&owner, &id, describe));
            answer_to.flush();
        });
    }

    /// The response to `initialize` or `server/discover`. A client that sees a single server, which is down, receives
    /// the cause as an error: otherwise it could not tell it from a server that has no items.
    fn initialize_response(
        &self,
        client: &Client,
        id: &[u8],
        describe: impl FnOnce(&Self, &Client) -> Vec<u8>,
    ) -> Vec<u8> {
        if let Scope::One(server) = client.scope() {
            let view = self.fleet.view_of(client);
            let server = &view.snapshot.servers()[server];
            if !server.state.offers() && !server.state.is_starting_or_asleep() {
                client.clear_initialize();
                return unavailable::answer(id, server);
            }
        }
        reply::result(id, &describe(self, client))
    }

    /// The members that both responses share.
    fn described(&self, client: &Client, lifecycle: Lifecycle) -> Vec<(&'static str, Vec<u8>)> {
        let view = self.fleet.view_of(client);
        let (scope, snapshot) = (client.scope(), &view.snapshot);
        let ours = || {
            reply::object([
                ("name", reply::string(&self.options.name)),
                ("version", reply::string(&self.options.version)),
            ])
        };
        let info = match scope.only().map(|server| &snapshot.servers()[server].offer.for_lifecycle(lifecycle).info) {
            Some(info) if info.len() > 2 => info.to_vec(),
            _ => ours(),
        };
        let capabilities = if self.options.method_set.is_tools_only {
            br#"{"tools":{"listChanged":true}}"#.to_vec()
        } else {
            snapshot.capabilities(scope, lifecycle).to_vec()
        };
        let mut members = vec![("capabilities", capabilities), ("serverInfo", info)];
        let instructions = if self.options.method_set.is_tools_only { None } else { snapshot.instructions(scope) };
        members.extend(instructions.map(|text| ("instructions", reply::string(&text))));
        members
    }
}

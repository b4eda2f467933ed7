//! Tests a connection to a server apart from all others; nothing of it is stored.

use std::convert::Infallible;
use std::sync::Arc;

use aggregator::UpstreamEvent;
use catalog::{Kind, Offer, ServerSpec, ServerState, Transport};
use protocol::Lifecycle;
use tokio::sync::oneshot;
use tokio::time::Instant;
use upstream::{Cause, Connector, Ending, Report, Stop};

use crate::context::ServiceContext;
use crate::servers::TestReport;
use crate::supervisor::tool_records::server_info;

/// Why a test failed.
struct TestFailure {
    why: String,
    /// A person has to sign in, which is all that is missing.
    is_sign_in_required: bool,
}

/// Tests a server, whose config may be invalid, until the caller is cancelled; cleans up in any case. `remote` connects
/// it, if it is no local program.
pub(crate) async fn test_connection(
    context: &ServiceContext,
    spec: Result<ServerSpec, String>,
    remote: Option<Connector>,
    requester: oneshot::Receiver<Infallible>,
) -> TestReport {
    let began = Instant::now();
    let met = match spec {
        Ok(spec) => connect_once(context, spec, remote, requester).await,
        Err(why) => Err(TestFailure { why, is_sign_in_required: false }),
    };
    let duration_ms = crate::servers::in_milliseconds(began.elapsed());
    match met {
        Ok(offer) => TestReport {
            success: true,
            duration_ms,
            server_info: Some(server_info(&offer)),
            tools: offer.items(Kind::Tool).iter().map(|tool| tool.id.to_string()).collect(),
            descriptions: offer.items(Kind::Tool).iter().map(|tool| described(&tool.definition)).collect(),
            error: None,
            sign_in_required: false,
        },
        Err(failure) => TestReport {
            success: false,
            duration_ms,
            server_info: None,
            tools: Vec::new(),
            descriptions: Vec::new(),
            error: Some(failure.why),
            sign_in_required: failure.is_sign_in_required,
        },
    }
}

/// The description in a definition.
fn described(definition: &[u8]) -> Option<String> {
    let definition: serde_json::Value = serde_json::from_slice(definition).ok()?;
    definition["description"].as_str().or(definition["title"].as_str()).map(str::to_owned)
}

async fn connect_once(
    context: &ServiceContext,
    spec: ServerSpec,
    remote: Option<Connector>,
    mut requester: oneshot::Receiver<Infallible>,
) -> Result<Arc<Offer>, TestFailure> {
    let fleet = context.fleet.beside(context.options.clone(), &context.chain, remote);
    let spec = isolated(spec);
    let nothing = Arc::new(Offer::new(Lifecycle::Session));
    let slot_index = fleet.register(spec.name.clone(), ServerState::Initializing, nothing);
    let mut handle = fleet.begin(slot_index, spec, None).await;
    let mut met = None;
    let mut report: Option<Arc<Report>> = None;
    let mut how_it_ended = None;
    loop {
        let event = tokio::select! {
            event = handle.next() => event,
            () = context.stop_requested() => break,
            // Nothing is ever sent: the caller was cancelled.
            _ = &mut requester => break,
        };
        match event {
            Some(UpstreamEvent::Running(offer)) => {
                met = Some(offer);
                handle.stop(Stop::Gently);
            }
            Some(
                UpstreamEvent::Changed(_)
                | UpstreamEvent::Preparing(_)
                | UpstreamEvent::ContainerStarted(_)
                | UpstreamEvent::ProcessStarted(_),
            ) => {}
            Some(UpstreamEvent::Ended(ending)) => how_it_ended = Some(ending),
            Some(UpstreamEvent::Reported(reported)) => report = Some(reported),
            None => break,
        }
    }
    fleet.stop(Stop::Promptly);
    fleet.ended().await;
    met.ok_or_else(|| {
        let is_sign_in_required =
            matches!(how_it_ended.as_deref(), Some(Ending::Failed { cause: Cause::SignInRequired { .. }, .. }));
        let why = report.map(|report| report.to_string()).or(how_it_ended.map(|ending| ending.to_string()));
        TestFailure { why: why.unwrap_or_else(|| "it ended before it was ready".to_owned()), is_sign_in_required }
    })
}

/// The same beside an existing run: a container name or port that only one container can have is removed.
fn isolated(spec: ServerSpec) -> ServerSpec {
    match spec.transport {
        Transport::Container(container) => ServerSpec { transport: Transport::Container(container.apart()), ..spec },
        transport => ServerSpec { transport, ..spec },
    }
}

//! A server tried apart from all others: a life of its own, of which nothing is kept.

use std::convert::Infallible;
use std::sync::Arc;

use aggregator::fleet::UpstreamEvent;
use catalog::{Kind, Offer, ServerSpec, ServerState, Transport};
use protocol::Lifecycle;
use tokio::sync::oneshot;
use tokio::time::Instant;
use upstream::{Report, Stop};

use crate::context::ServiceContext;
use crate::servers::TestReport;
use crate::supervisor::tool_records::server_info;

/// Tries a server that may not even be described well; until nobody wants to know any more, and never leaves anything of it.
pub(crate) async fn test_connection(
    context: &ServiceContext,
    spec: Result<ServerSpec, String>,
    requester: oneshot::Receiver<Infallible>,
) -> TestReport {
    let began = Instant::now();
    let met = match spec {
        Ok(spec) => connect_once(context, spec, requester).await,
        Err(why) => Err(why),
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
        },
        Err(why) => TestReport {
            success: false,
            duration_ms,
            server_info: None,
            tools: Vec::new(),
            descriptions: Vec::new(),
            error: Some(why),
        },
    }
}

/// What a definition says of itself.
fn described(definition: &[u8]) -> Option<String> {
    let definition: serde_json::Value = serde_json::from_slice(definition).ok()?;
    definition["description"].as_str().or(definition["title"].as_str()).map(str::to_owned)
}

async fn connect_once(
    context: &ServiceContext,
    spec: ServerSpec,
    mut requester: oneshot::Receiver<Infallible>,
) -> Result<Arc<Offer>, String> {
    let fleet = context.fleet.beside(context.options.clone(), &context.chain, context.remote.clone());
    let spec = isolated(spec);
    let nothing = Arc::new(Offer::new(Lifecycle::Session));
    let place = fleet.register(spec.name.clone(), ServerState::Initializing, nothing);
    let mut handle = fleet.begin(place, spec, None);
    let mut met = None;
    let mut report: Option<Arc<Report>> = None;
    let mut how_it_ended = None;
    loop {
        let event = tokio::select! {
            event = handle.next() => event,
            () = context.stop_requested() => break,
            // Nothing is ever said: who asked has gone.
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
            Some(UpstreamEvent::Ended(ending)) => how_it_ended = Some(ending.to_string()),
            Some(UpstreamEvent::Reported(reported)) => report = Some(reported),
            None => break,
        }
    }
    fleet.stop(Stop::Promptly);
    fleet.ended().await;
    let why = || report.map(|report| report.to_string()).or(how_it_ended);
    met.ok_or_else(|| why().unwrap_or_else(|| "it ended before it was ready".to_owned()))
}

/// The same beside the one there may be: a name or port that only one container can have is not its own.
fn isolated(spec: ServerSpec) -> ServerSpec {
    match spec.transport {
        Transport::Container(container) => ServerSpec { transport: Transport::Container(container.apart()), ..spec },
        transport => ServerSpec { transport, ..spec },
    }
}

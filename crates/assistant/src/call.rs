//! One tool call of a model: what it requests, and its outcome.

use std::time::{Duration, Instant};

use models::{ToolCall, ToolResult};

use crate::content;
use crate::executor::{OfferedTool, Permission, ToolCallError, ToolExecutor};
use crate::search_surface;

/// A call that can be made.
#[derive(Debug, Clone)]
pub(crate) enum Prepared {
    /// A call of the offered tool at this index.
    Call { place: usize, arguments: String },
    /// A search for tools with this query, and the maximum number of results.
    Search { query: String, limit: usize },
    /// A request for the whole definition of the offered tool at this index.
    Describe { place: usize },
}

/// A call that is not made.
pub(crate) struct RejectedCall {
    /// What the model gets instead of a result.
    pub(crate) why: String,
    pub(crate) kind: Kind,
}

/// Why a call is not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An error of the model that it can correct.
    Mistake,
    /// The same call was made before.
    Repeat,
    /// The limit of calls is reached.
    Spent,
}

/// The outcome of a call.
pub(crate) enum CallOutcome {
    /// The call was made, with this result.
    Made(ToolResult),
    /// The call was not made; the model gets the reason.
    RejectedCall(ToolResult),
    /// The call was stopped: the dialogue ends.
    Stopped(String),
}

/// A rejection because the same call was made before.
pub(crate) fn rejected_repeat() -> RejectedCall {
    let why = "this was called with the same arguments before, and its result is above. Do not call it again; answer with \
               what you know, or try something else.";
    RejectedCall { why: why.to_owned(), kind: Kind::Repeat }
}

/// Makes one call if it is permitted, and measures it.
pub(crate) async fn execute_call(
    call: &ToolCall,
    prepared: &Result<Prepared, RejectedCall>,
    offers: &[OfferedTool],
    executor: &impl ToolExecutor,
) -> (CallOutcome, Duration) {
    let (offer, arguments) = match prepared {
        Ok(Prepared::Call { place, arguments }) => (&offers[*place], arguments),
        Ok(Prepared::Describe { place }) => {
            let text = search_surface::described(&offers[*place].tool);
            return (CallOutcome::Made(ToolResult::text(call, text)), Duration::ZERO);
        }
        Ok(Prepared::Search { query, limit }) => {
            let began = Instant::now();
            let result = match executor.find(query, *limit).await {
                Ok(names) => {
                    let named = |name: &String| offers.iter().find(|offer| offer.tool.name == *name);
                    ToolResult::text(call, search_surface::found(names.iter().filter_map(named)))
                }
                Err(why) => ToolResult::error(call, format!("the search failed: {why}")),
            };
            return (CallOutcome::Made(result), began.elapsed());
        }
        Err(RejectedCall { why, .. }) => {
            return (CallOutcome::RejectedCall(ToolResult::error(call, why)), Duration::ZERO);
        }
    };
    if offer.is_destructive
        && let Permission::Refused(why) = executor.permit(offer, arguments).await
    {
        return (CallOutcome::RejectedCall(ToolResult::error(call, why)), Duration::ZERO);
    }
    // The time a person needs to grant permission is not part of the call.
    let began = Instant::now();
    let outcome = match executor.call(&offer.tool.name, arguments).await {
        Ok(result) => CallOutcome::Made(content::result(call, &result)),
        Err(ToolCallError::Failed(why)) => CallOutcome::Made(ToolResult::error(call, why)),
        Err(ToolCallError::Stopped(why)) => CallOutcome::Stopped(why),
    };
    (outcome, began.elapsed())
}

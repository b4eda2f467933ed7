//! One call that a model wants: what it means, and how it goes.

use std::time::{Duration, Instant};

use models::{ToolCall, ToolResult};

use crate::content;
use crate::executor::{OfferedTool, Permission, ToolCallError, ToolExecutor};
use crate::search_surface;

/// A call that can be made.
#[derive(Debug, Clone)]
pub(crate) enum Prepared {
    /// Of the tool at this place among those offered.
    Call { place: usize, arguments: String },
    /// For tools that fit these words, so many at most.
    Search { query: String, limit: usize },
    /// For all that is known of the tool at this place.
    Describe { place: usize },
}

/// A call that is not made.
pub(crate) struct RejectedCall {
    /// What the model is told instead of a result.
    pub(crate) why: String,
    pub(crate) kind: Kind,
}

/// Why a call is not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The model got something wrong that it can mend.
    Mistake,
    /// The same was asked for before.
    Repeat,
    /// No more calls may be made.
    Spent,
}

/// How a call went.
pub(crate) enum CallOutcome {
    /// It was made, and gave this.
    Made(ToolResult),
    /// It was not made; the model is told why.
    RejectedCall(ToolResult),
    /// Somebody stopped it: everything ends.
    Stopped(String),
}

/// The same was asked for before.
pub(crate) fn rejected_repeat() -> RejectedCall {
    let why = "this was called with the same arguments before, and its result is above. Do not call it again; answer with \
               what you know, or try something else.";
    RejectedCall { why: why.to_owned(), kind: Kind::Repeat }
}

/// Makes one call, if it may be made; and how long that took.
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
    // Whoever thinks about a permission takes their time; that is no time of the call.
    let began = Instant::now();
    let outcome = match executor.call(&offer.tool.name, arguments).await {
        Ok(result) => CallOutcome::Made(content::result(call, &result)),
        Err(ToolCallError::Failed(why)) => CallOutcome::Made(ToolResult::error(call, why)),
        Err(ToolCallError::Stopped(why)) => CallOutcome::Stopped(why),
    };
    (outcome, began.elapsed())
}

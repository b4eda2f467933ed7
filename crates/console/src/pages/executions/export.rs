//! Exports executions as files, for programs and spreadsheets.

use registry::{ExecutionRecord, Page as Part};
use service::Error;

use super::ExecutionQuery;
use crate::request::PageRequest;
use crate::response::PageResponse;

/// The limit of calls in a file.
const MAX_EXPORTED: u32 = 10_000;

/// All matching calls as JSON.
pub(crate) async fn export_json(request: &PageRequest<'_>) -> Result<PageResponse, Error> {
    let content = serde_json::to_vec(&calls(request).await?).expect("what we show has texts as its keys");
    Ok(PageResponse::File { name: "executions.json".into(), content_type: "application/json", content })
}

/// All matching calls as CSV.
pub(crate) async fn export_csv(request: &PageRequest<'_>) -> Result<PageResponse, Error> {
    let mut table = String::from(
        "id,submitted_at,started_at,completed_at,server,tool,source,caller,client,status,duration_ms,retries,request_bytes,response_bytes,error_message\r\n",
    );
    for call in calls(request).await? {
        table.push_str(&line(&call));
    }
    Ok(PageResponse::File {
        name: "executions.csv".into(),
        content_type: "text/csv; charset=utf-8",
        content: table.into_bytes(),
    })
}

async fn calls(request: &PageRequest<'_>) -> Result<Vec<ExecutionRecord>, Error> {
    Ok(request.service().executions(&ExecutionQuery::of(request).filter()?, Part::first(MAX_EXPORTED)).await?.items)
}

fn line(call: &ExecutionRecord) -> String {
    let moment = |at: Option<registry::Timestamp>| at.map(|at| at.to_string()).unwrap_or_default();
    let number = |bytes: Option<u64>| bytes.map(|bytes| bytes.to_string()).unwrap_or_default();
    let fields = [
        call.id.to_string(),
        call.submitted_at.to_string(),
        moment(call.started_at),
        moment(call.completed_at),
        call.server_name.to_string(),
        call.tool_name.to_string(),
        call.source.to_string(),
        call.caller.as_deref().unwrap_or_default().to_owned(),
        call.client.as_deref().unwrap_or_default().to_owned(),
        call.status.to_string(),
        call.duration.map(|span| format!("{:.3}", span.as_secs_f64() * 1000.0)).unwrap_or_default(),
        call.retries.to_string(),
        number(call.request_bytes),
        number(call.response_bytes),
        call.error_message.clone().unwrap_or_default(),
    ];
    let mut line = fields.map(|field| quoted(&field)).join(",");
    line.push_str("\r\n");
    line
}

/// A CSV field. Anything that looks like a formula becomes text, because names and errors are untrusted.
fn quoted(field: &str) -> String {
    let is_formula = field.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let field = if is_formula { format!("'{field}") } else { field.to_owned() };
    if field.contains(['"', ',', '\n', '\r', '\'']) { format!("\"{}\"", field.replace('"', "\"\"")) } else { field }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_one_field_and_never_a_formula() {
        assert_eq!(quoted("plain"), "plain");
        assert_eq!(quoted("a,\"b\"\nc"), "\"a,\"\"b\"\"\nc\"");
        assert_eq!(quoted("=HYPERLINK(1)"), "\"'=HYPERLINK(1)\"");
    }
}

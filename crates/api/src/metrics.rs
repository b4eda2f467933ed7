//! Numbers for Prometheus, in its text format.

use service::Service;

/// What Prometheus expects.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// All numbers as they are now.
pub(crate) async fn text(service: &Service) -> String {
    let state = service.state();
    format!("mcp_tools {}\n", state.total_tools)
}

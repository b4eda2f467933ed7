//! Health checks of an address.

use std::pin::Pin;
use std::time::Duration;

use catalog::Remote;
use hyper::StatusCode;
use tokio::time::timeout;
use upstream::ProbeResult;

use crate::http::Http;

/// Checks an address, for [`upstream::Probe`]. Only 200 is healthy. Redirects are not followed: a redirect does not
/// report the health of the server.
pub fn probe(url: String, limit: Duration) -> Pin<Box<dyn Future<Output = ProbeResult> + Send>> {
    Box::pin(async move {
        match timeout(limit, look(&url)).await {
            Ok(finding) => finding,
            Err(_) => ProbeResult::Unhealthy(format!("it did not answer within {} s", limit.as_secs_f32())),
        }
    })
}

async fn look(url: &str) -> ProbeResult {
    let remote = Remote::at(url, Vec::new());
    let http = match Http::new(&remote) {
        Ok(http) => http,
        Err(error) => return ProbeResult::Unhealthy(error.to_string()),
    };
    match http.look().await {
        Ok(StatusCode::OK) => ProbeResult::Healthy,
        Ok(status) if status.is_server_error() => ProbeResult::Unhealthy(format!("it answered HTTP {status}")),
        Ok(status) => {
            let what = format!("it answered HTTP {status}, but only 200 counts as healthy; check the address");
            match status {
                StatusCode::NOT_FOUND | StatusCode::GONE => ProbeResult::Missing(what),
                _ => ProbeResult::Unhealthy(what),
            }
        }
        Err(error) => ProbeResult::Unhealthy(error.to_string()),
    }
}

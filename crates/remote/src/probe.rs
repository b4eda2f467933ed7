//! Whether somebody is well at an address: where servers are watched from outside.

use std::pin::Pin;
use std::time::Duration;

use catalog::{Dialect, Remote};
use hyper::StatusCode;
use tokio::time::timeout;
use upstream::ProbeResult;

use crate::http::Http;

/// Looks at an address, for [`upstream::Probe`]. Only 200 is well. Redirects are not followed: who answers one does not say
/// how anybody is.
pub fn probe(url: String, limit: Duration) -> Pin<Box<dyn Future<Output = ProbeResult> + Send>> {
    Box::pin(async move {
        match timeout(limit, look(&url)).await {
            Ok(finding) => finding,
            Err(_) => ProbeResult::Unhealthy(format!("it did not answer within {} s", limit.as_secs_f32())),
        }
    })
}

async fn look(url: &str) -> ProbeResult {
    let remote = Remote { url: url.into(), headers: Vec::new(), dialect: Dialect::Unknown };
    let http = match Http::new(&remote) {
        Ok(http) => http,
        Err(error) => return ProbeResult::Unhealthy(error.to_string()),
    };
    match http.look().await {
        Ok(StatusCode::OK) => ProbeResult::Healthy,
        Ok(status) if status.is_server_error() => ProbeResult::Unhealthy(format!("it answered HTTP {status}")),
        Ok(status) => {
            let what = format!("it answered HTTP {status}, and only 200 is healthy; is it the right address?");
            match status {
                StatusCode::NOT_FOUND | StatusCode::GONE => ProbeResult::Missing(what),
                _ => ProbeResult::Unhealthy(what),
            }
        }
        Err(error) => ProbeResult::Unhealthy(error.to_string()),
    }
}

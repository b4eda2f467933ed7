//! Waits for an unreachable database, for example while a machine boots and PostgreSQL is not up yet.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aggregator::Signals;
use http_server::Listener;
use registry::Store;
use tokio::time::{Instant, sleep};

use crate::environment;
use crate::failure::Failure;
use crate::output::print_message;
use crate::storage::{OpenFailure, StorageArguments};

/// The variable with the number of seconds to wait, unless `--database-wait` is given.
pub(crate) const WAIT_VARIABLE: &str = "MCP_AGGREGATOR_DATABASE_WAIT";
/// The default wait.
const DEFAULT_WAIT: u64 = 60;
/// The longest wait that can be configured: a day.
pub(crate) const MAX_WAIT_SECONDS: u64 = 24 * 3600;
/// The pause after each of the first attempts, and after each later one.
const FIRST_RETRY_DELAY: Duration = Duration::from_secs(1);
const LATER_PAUSE: Duration = Duration::from_secs(2);
const FIRST_ATTEMPTS: u32 = 5;

/// The configured wait: of the flag, or else of the variable.
pub(crate) fn limit(flag: Option<u64>) -> Result<Duration, Failure> {
    let seconds = match (flag, environment::text(WAIT_VARIABLE)?) {
        (Some(seconds), _) => seconds,
        (None, None) => DEFAULT_WAIT,
        (None, Some(text)) => {
            let seconds = text.trim().parse().ok().filter(|seconds| (0..=MAX_WAIT_SECONDS).contains(seconds));
            seconds.ok_or_else(|| {
                let message =
                    format!("{WAIT_VARIABLE} is `{text}`: expected a number of seconds from 0 to {MAX_WAIT_SECONDS}");
                Failure::usage(message)
            })?
        }
    };
    Ok(Duration::from_secs(seconds))
}

/// The result of waiting.
pub(crate) enum Waited {
    Opened(Store),
    /// A signal arrived first.
    Stopped,
}

/// Opens the registry. While its database is unreachable, retries for at most `limit`; until then `listener` answers
/// every request with 503 and the reason.
pub(crate) async fn open(
    storage: &StorageArguments,
    limit: Duration,
    listener: &Listener,
    url: &str,
    signals: &mut Signals,
) -> Result<Waited, Failure> {
    let first = match storage.try_open().await {
        Ok(store) => return Ok(Waited::Opened(store)),
        Err(OpenFailure { failure, is_unreachable: true }) if !limit.is_zero() => failure,
        Err(not_opened) => return Err(not_opened.failure),
    };
    let seconds = limit.as_secs();
    print_message(format_args!(
        "waiting up to {seconds} s for the database; {url}/health returns 503 until it is reachable"
    ));
    let began = Instant::now();
    let attempts = Arc::new(Mutex::new(1));
    let counted = Arc::clone(&attempts);
    let message = move || {
        let attempts = *counted.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = began.elapsed().as_secs();
        format!(
            "waiting for the database: it was unreachable {attempts} times in {waited} s; giving up after {seconds} s"
        )
    };
    let opening = async {
        let mut failure = first;
        for attempt in 1.. {
            *attempts.lock().unwrap_or_else(PoisonError::into_inner) = attempt;
            let left = limit.saturating_sub(began.elapsed());
            if left.is_zero() {
                break;
            }
            let pause = left.min(if attempt < FIRST_ATTEMPTS { FIRST_RETRY_DELAY } else { LATER_PAUSE });
            print_message(format_args!(
                "attempt {attempt}: {}; retrying in {:.0} s",
                failure.message,
                pause.as_secs_f64()
            ));
            sleep(pause).await;
            match storage.try_open().await {
                Ok(store) => return Ok(store),
                Err(OpenFailure { failure: again, is_unreachable: true }) => failure = again,
                Err(not_opened) => return Err(not_opened.failure),
            }
        }
        failure.message = format!("{}; gave up after {seconds} s (--database-wait)", failure.message);
        Err(failure)
    };
    let answering = http_server::answer_while(listener, message, opening);
    tokio::select! {
        opened = answering => opened.map(Waited::Opened),
        () = signals.next() => Ok(Waited::Stopped),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_sets_the_wait_which_is_a_minute_by_default() {
        assert_eq!(limit(Some(0)).unwrap(), Duration::ZERO);
        assert_eq!(limit(None).unwrap(), Duration::from_secs(60));
    }
}

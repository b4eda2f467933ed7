//! Timeouts, retries and budgets of requests to models.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::{Duration, SystemTime};

use remote::Reply;
use tokio::time::sleep;

use crate::error::ModelErrorKind;

/// Timeouts and retries.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The timeout until the first byte of a response. A local model may have to be loaded first.
    pub first_byte: Duration,
    /// The timeout between two parts of a response.
    pub idle: Duration,
    /// How often a request is sent at most, including the first time.
    pub tries: u32,
    /// The delay before the first retry, unless the provider says so; it doubles each time.
    pub first_pause: Duration,
    /// If the provider asks for a longer delay, the request fails.
    pub longest_pause: Duration,
    /// How many requests run at the same time.
    pub at_once: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            first_byte: Duration::from_secs(120),
            idle: Duration::from_secs(60),
            tries: 4,
            first_pause: Duration::from_millis(500),
            longest_pause: Duration::from_secs(30),
            at_once: 4,
        }
    }
}

/// The retries of one request.
pub(crate) struct RetryState<'l> {
    limits: &'l Limits,
    made: u32,
}

impl<'l> RetryState<'l> {
    pub(crate) fn new(limits: &'l Limits) -> Self {
        Self { limits, made: 0 }
    }

    /// Waits until the next attempt; returns the error if there is none.
    pub(crate) async fn again(&mut self, error: ModelErrorKind) -> Result<(), ModelErrorKind> {
        self.made += 1;
        let wanted = match &error {
            ModelErrorKind::Busy { retry_after, .. } => *retry_after,
            _ => None,
        };
        let is_too_long = wanted.is_some_and(|wanted| wanted > self.limits.longest_pause);
        if self.made >= self.limits.tries || is_too_long || !error.may_be_repeated() {
            return Err(error);
        }
        let unless_told = self.limits.first_pause.saturating_mul(2_u32.saturating_pow(self.made - 1));
        let pause = wanted.unwrap_or(unless_told.min(self.limits.longest_pause));
        tracing::debug!(%error, ?pause, "retrying a request to a model");
        sleep(pause + jitter(pause)).await;
        Ok(())
    }
}

/// Adds up to a quarter, so that clients that failed together do not retry together.
fn jitter(pause: Duration) -> Duration {
    // Without random numbers every client waits equally long, which works, too.
    let dice = getrandom::u32().unwrap_or_default();
    pause / 4 * (dice % 256) / 256
}

/// When to retry, if the response says so: in seconds, in milliseconds (OpenAI), or as a date.
pub(crate) fn retry_after(reply: &Reply) -> Option<Duration> {
    let milliseconds = reply.header("retry-after-ms").and_then(|value| value.trim().parse::<u64>().ok());
    milliseconds.map(Duration::from_millis).or_else(|| moment(reply.header("retry-after")?, SystemTime::now()))
}

fn moment(value: &str, now: SystemTime) -> Option<Duration> {
    let value = value.trim();
    if let Ok(seconds) = value.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let date = httpdate::parse_http_date(value).ok()?;
    Some(date.duration_since(now).unwrap_or_default())
}

/// A budget of requests and tokens that several models share.
#[derive(Debug, Default)]
pub struct Budget {
    requests: Option<u64>,
    tokens: Option<u64>,
    spent: Mutex<Spent>,
}

/// What was spent so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spent {
    /// Requests, including failed ones.
    pub requests: u64,
    /// Tokens, as far as known.
    pub tokens: u64,
}

impl Budget {
    /// A budget without limits.
    pub fn unlimited() -> Self {
        Self::default()
    }

    /// A budget with limits; None means no limit.
    pub fn new(requests: Option<u64>, tokens: Option<u64>) -> Self {
        Self { requests, tokens, spent: Mutex::default() }
    }

    /// What was spent so far.
    pub fn spent(&self) -> Spent {
        *self.lock()
    }

    /// Resets what was spent.
    pub fn renew(&self) {
        *self.lock() = Spent::default();
    }

    /// Takes one request from the budget.
    pub(crate) fn take(&self) -> Result<(), ModelErrorKind> {
        let mut spent = self.lock();
        if let Some(most) = self.requests.filter(|&most| spent.requests >= most) {
            return Err(ModelErrorKind::BudgetSpent(format!("{most} requests")));
        }
        if let Some(most) = self.tokens.filter(|&most| spent.tokens >= most) {
            return Err(ModelErrorKind::BudgetSpent(format!("{most} tokens")));
        }
        spent.requests += 1;
        Ok(())
    }

    pub(crate) fn spend(&self, tokens: u64) {
        self.lock().tokens += tokens;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Spent> {
        self.spent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_reported_in_seconds_or_as_a_date() {
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        assert_eq!(moment("2", now), Some(Duration::from_secs(2)));
        assert_eq!(moment(" 0.5 ", now), Some(Duration::from_millis(500)));
        assert_eq!(moment("Sun, 06 Nov 1994 08:49:40 GMT", now), Some(Duration::from_secs(3)));
        assert_eq!(moment("Sun, 06 Nov 1994 08:00:00 GMT", now), Some(Duration::ZERO));
        assert_eq!((moment("soon", now), moment("-1", now), moment("1e300", now)), (None, None, None));
    }

    #[test]
    fn a_budget_ends_and_can_be_renewed() {
        let budget = Budget::new(Some(2), Some(100));
        assert!(budget.take().is_ok());
        budget.spend(100);
        assert_eq!(budget.take(), Err(ModelErrorKind::BudgetSpent("100 tokens".to_owned())));
        budget.renew();
        assert!(budget.take().is_ok() && budget.take().is_ok());
        assert_eq!(budget.take(), Err(ModelErrorKind::BudgetSpent("2 requests".to_owned())));
    }
}

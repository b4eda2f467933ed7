//! How long we wait for a model, how often we ask again, and how much we may ask at all.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::{Duration, SystemTime};

use remote::Reply;
use tokio::time::sleep;

use crate::error::ModelErrorKind;

/// How patient we are with a model.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Until the first byte of an answer. A local model may have to be loaded first.
    pub first_byte: Duration,
    /// Between two pieces of an answer.
    pub idle: Duration,
    /// How often a request is sent at most, the first time included.
    pub tries: u32,
    /// How long to wait before the second try, unless the provider says so; then twice as long, and so on.
    pub first_pause: Duration,
    /// A provider that wants us to wait longer has refused.
    pub longest_pause: Duration,
    /// How many requests are under way at once.
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

/// Asking again.
pub(crate) struct RetryState<'l> {
    limits: &'l Limits,
    made: u32,
}

impl<'l> RetryState<'l> {
    pub(crate) fn new(limits: &'l Limits) -> Self {
        Self { limits, made: 0 }
    }

    /// Waits until it may be tried again; the trouble, if it may not.
    pub(crate) async fn again(&mut self, trouble: ModelErrorKind) -> Result<(), ModelErrorKind> {
        self.made += 1;
        let wanted = match &trouble {
            ModelErrorKind::Busy { retry_after, .. } => *retry_after,
            _ => None,
        };
        let is_too_long = wanted.is_some_and(|wanted| wanted > self.limits.longest_pause);
        if self.made >= self.limits.tries || is_too_long || !trouble.may_be_repeated() {
            return Err(trouble);
        }
        let unless_told = self.limits.first_pause.saturating_mul(2_u32.saturating_pow(self.made - 1));
        let pause = wanted.unwrap_or(unless_told.min(self.limits.longest_pause));
        tracing::debug!(%trouble, ?pause, "a model is asked again");
        sleep(pause + jitter(pause)).await;
        Ok(())
    }
}

/// Up to a quarter more, so that those who were refused together do not come back together.
fn jitter(pause: Duration) -> Duration {
    // Without random numbers everybody waits equally long, which works, too.
    let dice = getrandom::u32().unwrap_or_default();
    pause / 4 * (dice % 256) / 256
}

/// When to ask again, as far as an answer says so: in seconds, in milliseconds (OpenAI), or as a date.
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

/// How much may be asked, of all that share it.
#[derive(Debug, Default)]
pub struct Budget {
    requests: Option<u64>,
    tokens: Option<u64>,
    spent: Mutex<Spent>,
}

/// What was asked so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spent {
    /// Requests, those that failed included.
    pub requests: u64,
    /// Tokens, as far as they are known.
    pub tokens: u64,
}

impl Budget {
    /// As much as one likes.
    pub fn unlimited() -> Self {
        Self::default()
    }

    /// So much at most; as much as one likes of what is not said.
    pub fn new(requests: Option<u64>, tokens: Option<u64>) -> Self {
        Self { requests, tokens, spent: Mutex::default() }
    }

    /// What was asked so far.
    pub fn spent(&self) -> Spent {
        *self.lock()
    }

    /// Begins anew.
    pub fn renew(&self) {
        *self.lock() = Spent::default();
    }

    /// One more request, if there may be one.
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

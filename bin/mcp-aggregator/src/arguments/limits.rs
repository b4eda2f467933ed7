//! Limits on what clients of `serve` may do, each by an option or a variable.

use std::env;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use front::{AuthFailures, Limits};

use crate::failure::Failure;

/// The time in which wrong tokens of one address are counted.
const AUTH_FAILURE_WINDOW: Duration = Duration::from_secs(60);
const AUTH_FAILURES: u32 = 20;

/// The limits that can be chosen.
#[derive(Debug, Args)]
pub(crate) struct LimitArguments {
    /// How long the body of a request may stall or trickle before it is refused with 408; else the variable
    /// MCP_AGGREGATOR_BODY_TIMEOUT [default: 20]
    #[arg(long, verbatim_doc_comment, value_name = "SECONDS")]
    body_timeout: Option<u64>,
    /// The minimum rate of a body that takes longer than that, in bytes per second; else the variable
    /// MCP_AGGREGATOR_BODY_RATE [default: 16384]
    #[arg(long, verbatim_doc_comment, value_name = "BYTES")]
    body_rate: Option<u64>,
    /// How many wrong tokens an address may send in a minute before it is answered 429; else the variable
    /// MCP_AGGREGATOR_AUTH_FAILURES [default: 20]
    #[arg(long, verbatim_doc_comment, value_name = "COUNT")]
    auth_failures: Option<u32>,
}

impl LimitArguments {
    /// Other limits with what was chosen here.
    pub(crate) fn applied_to(&self, limits: Limits) -> Result<Limits, Failure> {
        let timeout = chosen(self.body_timeout, "--body-timeout", "MCP_AGGREGATOR_BODY_TIMEOUT")?;
        let rate = chosen(self.body_rate, "--body-rate", "MCP_AGGREGATOR_BODY_RATE")?;
        Ok(Limits {
            body_timeout: timeout.map_or(limits.body_timeout, Duration::from_secs),
            body_rate: rate.unwrap_or(limits.body_rate),
            ..limits
        })
    }

    /// What is counted of requests that were not let in.
    pub(crate) fn auth_failures(&self) -> Result<AuthFailures, Failure> {
        let limit = chosen(self.auth_failures, "--auth-failures", "MCP_AGGREGATOR_AUTH_FAILURES")?;
        Ok(AuthFailures::new(limit.unwrap_or(AUTH_FAILURES), AUTH_FAILURE_WINDOW))
    }
}

/// The number that an option says, or else a variable. Nothing is not a limit.
fn chosen<N: FromStr + PartialOrd + From<u8>>(
    option: Option<N>,
    name: &str,
    variable: &str,
) -> Result<Option<N>, Failure> {
    let (number, from) = match (option, env::var_os(variable)) {
        (Some(number), _) => (Some(number), name),
        (None, Some(text)) if !text.is_empty() => (text.to_str().and_then(|text| text.trim().parse().ok()), variable),
        (None, _) => return Ok(None),
    };
    match number {
        Some(number) if number >= N::from(1) => Ok(Some(number)),
        _ => Err(Failure::usage(format!("{from} must be a whole number of at least 1"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_a_number_of_at_least_one() {
        let arguments = |timeout| LimitArguments { body_timeout: timeout, body_rate: None, auth_failures: None };
        assert_eq!(arguments(Some(3)).applied_to(Limits::default()).unwrap().body_timeout, Duration::from_secs(3));
        assert_eq!(arguments(None).applied_to(Limits::default()).unwrap().body_timeout, Duration::from_secs(20));
        let failure = arguments(Some(0)).applied_to(Limits::default()).unwrap_err().message;
        assert_eq!(failure, "--body-timeout must be a whole number of at least 1");
    }
}

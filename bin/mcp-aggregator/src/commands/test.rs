//! `test`: tests a server with a separate connection.

use clap::Args;
use serde_json::Value;

use crate::cli::shared::OneServer;
use crate::client::encoded;
use crate::failure::Failure;
use crate::output::{self, print_message};
use crate::table::printable;
use crate::{progress, session};

/// Test a server with a separate connection, and list its tools.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mcp-aggregator test memory
  mcp-aggregator test memory --json | jq .success")]
pub(crate) struct TestArguments {
    #[command(flatten)]
    pub(crate) one: OneServer,
}

pub(crate) fn run(arguments: &TestArguments) -> Result<(), Failure> {
    let one = &arguments.one;
    let report = session::block_on(async {
        let service = one.target.service().await?;
        let path = format!("/servers/{}/test", encoded(&one.server));
        Ok(progress::with_spinner(&format!("testing `{}`", one.server), service.post(&path, None)).await?)
    })?;
    if one.json {
        output::print_json(&report)?;
    }
    let seconds = report["duration_ms"].as_f64().unwrap_or_default() / 1000.0;
    if report["success"] != true {
        let why = report["error"].as_str().unwrap_or("the cause is unknown");
        let why = why.lines().map(printable).collect::<Vec<_>>().join("\n  ");
        return Err(Failure::new(format!("`{}` does not work: {why}", one.server)));
    }
    let tools: Vec<String> =
        report["tools"].as_array().into_iter().flatten().filter_map(Value::as_str).map(printable).collect();
    if !one.json {
        output::print_lines(&tools)?;
    }
    print_message(format_args!("`{}` works: {} tools, {seconds:.2} s", one.server, tools.len()));
    Ok(())
}

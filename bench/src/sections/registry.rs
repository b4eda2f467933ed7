//! Many servers with many tools in one service: registered one after the other over REST, listed, called.

use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::processes::{memory, relay_processes};
use crate::report::{Measure, Table};
use crate::rest_client::{RestClient, Timed};
use crate::run::Run;
use crate::service::Service;
use crate::session::server_key;
use crate::statistics::{Samples, Summary, show_bytes, show_time};

const SERVERS: usize = 50;
const TOOLS: usize = 1000;
const READS: usize = 100;
/// What is promised of a registration, and of a look at how things are.
const REGISTRATION_LIMIT: Measure = Measure::Milliseconds(2000.0);
const READ_LIMIT: Measure = Measure::Milliseconds(10.0);
const TOOL: &str = "text_100";

pub(crate) fn measure(run: &mut Run) -> Result<()> {
    let (servers, tools) = (run.effort.of(SERVERS, 5), run.effort.of(TOOLS, 50));
    run.report.heading(&format!("{servers} servers with {tools} tools each, over REST"))?;
    let mut client = RestClient::open(start(run)?)?;
    let mut table = Table::new(["", "times", "p50", "p99", "longest", "answer"]);

    let config = json!({"command": run.programs.server, "args": ["--tools", tools.to_string()]});
    let registrations = timed(servers, |number| {
        let body = json!({"name": server_key(number), "transport_type": "stdio", "connection_config": config});
        let answer = client.post("/servers", &body, 201)?;
        let found = answer.body["tools"].as_array().map(Vec::len);
        ensure!(found == Some(tools), "wrong answer: {found:?} tools instead of {tools}: {}", answer.body["status"]);
        Ok(answer)
    })?;
    row(&mut table, "register a server", &registrations);
    run.report.promise(
        "registering a server, the longest",
        REGISTRATION_LIMIT,
        Some(milliseconds(registrations.0.max)),
    );

    let looks = run.effort.of(READS, 5);
    let state = timed(looks, |_| client.get("/state"))?;
    row(&mut table, "`/state`", &state);
    let listed = timed(looks, |_| expect_items(client.get("/servers")?, servers))?;
    row(&mut table, "`/servers`", &listed);
    let page = timed(looks, |_| expect_items(client.get("/tools?limit=100&offset=100")?, 100))?;
    row(&mut table, "`/tools?limit=100`", &page);
    let of_one = timed(looks, |number| {
        expect_items(client.get(&format!("/servers/{}/tools", server_key(number % servers)))?, tools)
    })?;
    row(&mut table, "`/servers/{server}/tools`", &of_one);
    let all = timed(looks.div_ceil(20), |_| expect_items(client.get("/tools")?, servers * tools))?;
    row(&mut table, "`/tools`, all of them", &all);
    let calls = timed(looks, |number| {
        let name = format!("{}.{TOOL}", server_key(number % servers));
        client.post("/tools/call", &json!({"name": name, "arguments": {}}), 200)
    })?;
    row(&mut table, "call a tool", &calls);
    for (what, measured) in [("/state", &state), ("/servers", &listed), ("a page of /tools", &page)] {
        run.report.promise(format!("{what}, p50"), READ_LIMIT, Some(milliseconds(measured.0.p50)));
    }

    run.report.table(&table)?;
    let memory = memory(&relay_processes(client.service.pid())).context("its memory cannot be read")?;
    let (resident, peak) = (show_bytes(memory.resident), show_bytes(memory.peak));
    run.report.note(&format!("Memory of the service with all of that: {resident} RSS, {peak} at its peak."))
}

fn start(run: &Run) -> Result<Arc<Service>> {
    let scratch = run.programs.scratch.path();
    let mut command = Command::new(&run.programs.service);
    command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(scratch.join("registry.data"));
    let service = Service::start(&mut command, &scratch.join("registry.stderr"));
    Ok(Arc::new(service.context("could not start the service")?))
}

/// Does something so often; how long it took, and how long the last answer was.
fn timed(times: usize, mut operation: impl FnMut(usize) -> Result<Timed>) -> Result<(Summary, usize)> {
    let mut samples = Samples::default();
    let mut bytes = 0;
    for number in 0..times {
        let answer = operation(number)?;
        samples.add(answer.time);
        bytes = answer.bytes;
    }
    Ok((samples.summary().context("nothing was measured")?, bytes))
}

fn expect_items(answer: Timed, count: usize) -> Result<Timed> {
    let found = answer.body.as_array().map(Vec::len);
    ensure!(found == Some(count), "wrong answer: {found:?} items instead of {count}");
    Ok(answer)
}

fn row(table: &mut Table, what: &str, (summary, bytes): &(Summary, usize)) {
    let times = [summary.p50, summary.p99, summary.max].map(show_time);
    let cells = [what.to_owned(), summary.count.to_string()].into_iter().chain(times);
    table.row(cells.chain([show_bytes(*bytes as u64)]));
}

fn milliseconds(time: std::time::Duration) -> Measure {
    Measure::Milliseconds(time.as_secs_f64() * 1000.0)
}

//! The console in a real browser: scripts, accessibility, and text of servers that is never interpreted.
//! `MCP_SCREENSHOTS=docs/console` saves screenshots of the pages.

mod appearance;
mod chromium;
mod documents;
mod forms;
mod live;
mod newcomer;
mod playground;
mod results;
mod shapes;
mod sign_in;
mod tabs;

use testkit::Serve;

use chromium::Driver;

/// Runs a scenario with browsers, if they are installed.
#[track_caller]
fn with_browsers(scenario: impl AsyncFnOnce(&Driver)) {
    let Some(driver) = Driver::start() else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime can be made");
    runtime.block_on(scenario(&driver));
}

/// The address of a page.
fn at(serve: &Serve, path: &str) -> String {
    format!("http://{}{path}", serve.address())
}

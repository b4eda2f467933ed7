//! The console in a real browser: what scripts do, what people who cannot see or use a mouse get, and that nothing of
//! what servers say is ever obeyed. `MCP_SCREENSHOTS=docs/console` keeps pictures of the pages.

mod appearance;
mod chromium;
mod documents;
mod forms;
mod live;
mod newcomer;
mod playground;
mod results;
mod shapes;
mod tabs;

use testkit::Serve;

use chromium::Driver;

/// Runs a scenario with browsers, where there are any.
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

//! Servers: register, list, change, connect, test and remove them.

use std::sync::Arc;

use http::StatusCode;
use registry::{Status, Transport};
use serde_json::{Value, json};
use service::{Error, Problem, Registration, ServerView, Service, Update};

use crate::endpoint::Endpoint;
use crate::endpoints::documents::wants_events;
use crate::log::{LogStream, lines_to_json};
use crate::request::{ApiRequest, Members, refuse};
use crate::response::ApiResponse;
use crate::schema::Schema;
use crate::schemas;

pub(super) fn endpoints() -> Vec<Endpoint> {
    let server = || Schema::named("Server");
    vec![
        Endpoint::post("/servers", "Register a server", |request| Box::pin(register(request)))
            .about(
                "Connects the server unless `auto_connect` or `enabled` is false, and waits up to 1.5 s for its \
                 tools. If that takes longer, the status in the response is `connecting`.",
            )
            .takes(schemas::registration())
            .with_extra_checks(problems_with_config)
            .answers(201, "The registered server.", server())
            .fails(&["SERVER_ALREADY_EXISTS"]),
        Endpoint::get("/servers", "List servers", |request| Box::pin(list(request)))
            .optional_query(
                "status",
                Schema::one_of(Status::ALL.iter().map(|status| status.as_str()))
                    .about("Only servers with this status, in any case."),
            )
            .optional_query(
                "include_tools",
                Schema::truth().by_default(false).about("Include the tools of each server."),
            )
            .optional_query(
                "include_usage",
                Schema::truth().by_default(false).about(
                    "Include CPU and memory use of each \
                 server's process or container. Containers that the engine does not report within 3 s are left out.",
                ),
            )
            .pages("Servers ordered by name.", server())
            .fails(&["VALIDATION_ERROR"]),
        Endpoint::post("/servers/test", "Test a connection without registering it", |request| {
            Box::pin(test_unregistered(request))
        })
        .ends_with_client()
        .about("Stores nothing. A failed connection is not an HTTP error: `success` is false.")
        .takes(schemas::test_request())
        .with_extra_checks(problems_with_config)
        .answers(200, "The result of the test.", Schema::named("TestReport")),
        of_server(Endpoint::get("/servers/{server}", "Show a server", |request| Box::pin(show(request)))).answers(
            200,
            "The server.",
            server(),
        ),
        of_server(Endpoint::patch("/servers/{server}", "Change a server", |request| Box::pin(change(request))))
            .about(
                "Members that are not in the body keep their value. Null removes the description or the health \
                 check URL. The server reconnects only if the change requires it.",
            )
            .takes(schemas::update())
            .with_extra_checks(problems_with_other_config)
            .answers(200, "The changed server.", server())
            .fails(&["SERVER_ALREADY_EXISTS", "SERVER_READ_ONLY", "CONFLICT"]),
        of_server(Endpoint::delete("/servers/{server}", "Remove a server", |request| Box::pin(remove(request))))
            .about("Also removes its tools and its history.")
            .optional_query("force", schemas::force())
            .answers_nothing(204, "The server is removed.")
            .fails(&["SERVER_READ_ONLY", "VALIDATION_ERROR"]),
        of_server(Endpoint::post("/servers/{server}/connect", "Connect a server", |request| {
            Box::pin(connect(request))
        }))
        .about(
            "Waits until the server is connected or the attempt fails. Connecting a connected server changes nothing.",
        )
        .answers(200, "The connected server.", server())
        .fails(&["SERVER_UNAVAILABLE", "SERVER_CONNECTION_FAILED"]),
        of_server(Endpoint::post("/servers/{server}/disconnect", "Disconnect a server", |request| {
            Box::pin(disconnect(request))
        }))
        .about(
            "Waits up to 30 s for running calls; with `force`, in the query or in the body, cancels them. \
                 Disconnecting a disconnected server changes nothing.",
        )
        .optional_query("force", schemas::force())
        .takes_optional(Schema::object().with_optional("force", schemas::force()).and_no_more())
        .answers(200, "The disconnected server.", server()),
        of_server(Endpoint::post("/servers/{server}/restart", "Restart a server", |request| {
            Box::pin(restart(request))
        }))
        .about("Disconnects the server as `disconnect` does, connects it again, and waits for the outcome.")
        .optional_query("force", schemas::force())
        .takes_optional(Schema::object().with_optional("force", schemas::force()).and_no_more())
        .answers(200, "The connected server.", server())
        .fails(&["SERVER_UNAVAILABLE", "SERVER_CONNECTION_FAILED"]),
        of_server(Endpoint::post("/servers/{server}/enable", "Enable a server", |request| Box::pin(enable(request))))
            .about("Resets its failure count and connects it.")
            .answers(200, "The server.", server())
            .fails(&["SERVER_READ_ONLY", "SERVER_CONNECTION_FAILED"]),
        of_server(Endpoint::post("/servers/{server}/disable", "Disable a server", |request| {
            Box::pin(disable(request))
        }))
        .answers(200, "The server.", server())
        .fails(&["SERVER_READ_ONLY"]),
        of_server(Endpoint::post("/servers/{server}/test", "Test the connection of a server", |request| {
            Box::pin(test(request))
        }))
        .ends_with_client()
        .about("Opens a second connection; the existing one is not affected.")
        .answers(200, "The result of the test.", Schema::named("TestReport")),
        of_server(Endpoint::post("/servers/{server}/login", "Start a sign-in to a server", |request| {
            Box::pin(start_sign_in(request))
        }))
        .about(
            "For servers over HTTP that require OAuth. Open `authorization_url` in a browser; the redirect comes back \
             to `/oauth/callback` of this service, which completes the sign-in and connects the server. An attempt \
             works once, for ten minutes.",
        )
        .takes_optional(schemas::sign_in_request())
        .answers(200, "Where the user continues.", Schema::named("SignInAttempt"))
        .fails(&["SIGN_IN_NOT_SUPPORTED", "SIGN_IN_FAILED"]),
        of_server(Endpoint::get("/servers/{server}/login", "Show the sign-in of a server", |request| {
            Box::pin(sign_in_state(request))
        }))
        .answers(200, "How far the sign-in is.", Schema::named("SignInState"))
        .fails(&["SIGN_IN_FAILED"]),
        of_server(Endpoint::delete("/servers/{server}/login", "Sign out of a server", |request| {
            Box::pin(sign_out(request))
        }))
        .about(
            "Revokes the tokens if the authorization server offers that, and forgets them. The status of the server \
             becomes `sign_in_required`. Signing out twice changes nothing.",
        )
        .answers(
            200,
            "Nobody is signed in any more.",
            Schema::object().with(
                "warning",
                Schema::text().or_null().about("Why the tokens could not be revoked; they are forgotten here."),
            ),
        )
        .fails(&["SIGN_IN_NOT_SUPPORTED", "SIGN_IN_FAILED"]),
        of_server(Endpoint::get("/servers/{server}/health", "Check the health of a server", |request| {
            Box::pin(health(request))
        }))
        .answers(200, "The health of the server.", Schema::named("Health")),
        of_server(Endpoint::get("/servers/{server}/log", "Read the stderr of a server", |request| {
            Box::pin(log(request))
        }))
        .about(
            "Returns the last 200 lines of a server that mcp-aggregator starts, with secrets masked. With `Accept: \
                 text/event-stream`, the response is a stream: the last lines arrive as an event `log.tail`, new lines \
                 as events `log.lines`. `missed` is the number of lines that were dropped because they arrived too \
                 fast.",
        )
        .answers(
            200,
            "The lines.",
            Schema::object().with("lines", Schema::list(Schema::text())).with("missed", Schema::count()),
        )
        .answers_with(
            200,
            "The same, as a stream that continues with new lines.",
            "text/event-stream",
            Some(Schema::text()),
        ),
        of_server(Endpoint::get("/servers/{server}/history", "Show the connection history of a server", |request| {
            Box::pin(history(request))
        }))
        .pages("Events, newest first.", Schema::named("HistoryEvent"))
        .fails(&["VALIDATION_ERROR"]),
    ]
}

/// Adds the error of an unknown server.
pub(super) fn of_server(endpoint: Endpoint) -> Endpoint {
    endpoint.fails(&["SERVER_NOT_FOUND"])
}

/// Problems of the connection config, if the transport is given, too.
fn problems_with_config(body: &Members) -> Vec<Problem> {
    let transport = body.text("transport_type").and_then(|word| word.parse().ok());
    let given = transport.zip(body.object("connection_config"));
    given.map(|(transport, config)| service::problems_with_config(transport, &config)).unwrap_or_default()
}

/// The same for a change: values that stay as they are cannot be checked here.
fn problems_with_other_config(body: &Members) -> Vec<Problem> {
    let is_masked = |config| registry::ConnectionConfig::from(config).is_masked();
    if body.object("connection_config").is_some_and(is_masked) { Vec::new() } else { problems_with_config(body) }
}

async fn register(request: ApiRequest) -> Result<ApiResponse, Error> {
    let new = registration(request.body.whole())?;
    let view = request.service.register(&request.actor, new).await?;
    with_tools(&request.service, StatusCode::CREATED, view).await
}

/// The answer about a server that was just connected.
async fn with_tools(service: &Arc<Service>, status: StatusCode, view: ServerView) -> Result<ApiResponse, Error> {
    service.describe_with_tools(view, move |view| ApiResponse::json(status, view)).await
}

fn registration(body: serde_json::Map<String, Value>) -> Result<Registration, Error> {
    serde_json::from_value(Value::Object(body)).map_err(|error| refuse(&["body"], "value_error", error.to_string()))
}

async fn list(request: ApiRequest) -> Result<ApiResponse, Error> {
    let mut listed = request.service.servers(request.parsed("status"), request.page());
    if request.flag("include_usage") {
        request.service.measure(&mut listed.items).await;
    }
    if !request.flag("include_tools") {
        return Ok(ApiResponse::page(&listed.items, listed.total));
    }
    let service = Arc::clone(&request.service);
    let servers: Vec<_> = listed.items.iter().map(|view| view.record.id).collect();
    let (place, mut tools) = service.tools_of_servers(&servers).await?;
    place
        .run(move |_| {
            for view in &mut listed.items {
                view.tools = Some(service.with_states(tools.remove(&view.record.id).unwrap_or_default()));
            }
            Ok(ApiResponse::page(&listed.items, listed.total))
        })
        .await
}

async fn log(request: ApiRequest) -> Result<ApiResponse, Error> {
    let mut reader = request.service.log(request.server())?;
    if wants_events(&request) {
        return Ok(ApiResponse::events(LogStream::new(reader, request.closing)));
    }
    Ok(ApiResponse::ok(&lines_to_json(&reader.now())))
}

async fn test_unregistered(request: ApiRequest) -> Result<ApiResponse, Error> {
    let mut body = request.body.whole();
    body.entry("name").or_insert_with(|| json!("test"));
    let report = request.service.test_unregistered(registration(body)?).await?;
    Ok(ApiResponse::ok(&report))
}

async fn show(request: ApiRequest) -> Result<ApiResponse, Error> {
    Ok(ApiResponse::ok(&request.service.server(request.server()).await?))
}

async fn change(request: ApiRequest) -> Result<ApiResponse, Error> {
    let body = &request.body;
    let transport_type: Option<Transport> = body.text("transport_type").and_then(|word| word.parse().ok());
    let update = Update {
        name: body.text("name"),
        description: body.text_or_null("description"),
        transport_type,
        deployment_type: body.text("deployment_type").and_then(|word| word.parse().ok()),
        connection_config: body.object("connection_config"),
        health_check_url: body.text_or_null("health_check_url"),
        auto_connect: body.truth("auto_connect"),
        enabled: body.truth("enabled"),
    };
    Ok(ApiResponse::ok(&request.service.update(&request.actor, request.server(), update).await?))
}

async fn remove(request: ApiRequest) -> Result<ApiResponse, Error> {
    request.service.remove(&request.actor, request.server(), request.flag("force")).await?;
    Ok(ApiResponse::nothing(StatusCode::NO_CONTENT))
}

async fn connect(request: ApiRequest) -> Result<ApiResponse, Error> {
    let view = request.service.connect(&request.actor, request.server()).await?;
    with_tools(&request.service, StatusCode::OK, view).await
}

async fn disconnect(request: ApiRequest) -> Result<ApiResponse, Error> {
    Ok(ApiResponse::ok(&request.service.disconnect(&request.actor, request.server(), request.flag("force")).await?))
}

async fn restart(request: ApiRequest) -> Result<ApiResponse, Error> {
    let view = request.service.restart(&request.actor, request.server(), request.flag("force")).await?;
    with_tools(&request.service, StatusCode::OK, view).await
}

async fn enable(request: ApiRequest) -> Result<ApiResponse, Error> {
    Ok(ApiResponse::ok(&request.service.enable(&request.actor, request.server()).await?))
}

async fn disable(request: ApiRequest) -> Result<ApiResponse, Error> {
    Ok(ApiResponse::ok(&request.service.disable(&request.actor, request.server()).await?))
}

async fn test(request: ApiRequest) -> Result<ApiResponse, Error> {
    Ok(ApiResponse::ok(&request.service.test(request.server()).await?))
}

async fn start_sign_in(request: ApiRequest) -> Result<ApiResponse, Error> {
    let redirect_uri = request.body.text("redirect_uri");
    let attempt = request.service.begin_sign_in(&request.actor, request.server(), redirect_uri).await?;
    Ok(ApiResponse::ok(&attempt))
}

async fn sign_in_state(request: ApiRequest) -> Result<ApiResponse, Error> {
    Ok(ApiResponse::ok(&request.service.sign_in_state(request.server()).await?))
}

async fn sign_out(request: ApiRequest) -> Result<ApiResponse, Error> {
    let warning = request.service.sign_out(&request.actor, request.server()).await?;
    Ok(ApiResponse::ok(&json!({ "warning": warning })))
}

async fn health(request: ApiRequest) -> Result<ApiResponse, Error> {
    Ok(ApiResponse::ok(&request.service.server_health(request.server()).await?))
}

async fn history(request: ApiRequest) -> Result<ApiResponse, Error> {
    let listed = request.service.history(request.server(), request.page()).await?;
    Ok(ApiResponse::page(&listed.items, listed.total))
}

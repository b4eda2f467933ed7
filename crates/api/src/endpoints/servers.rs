//! Servers: registered, looked at, changed, connected, tried, removed.

use http::StatusCode;
use registry::{Status, Transport};
use serde_json::{Value, json};
use service::servers::{Registration, Update};
use service::{Error, Problem};

use crate::endpoint::Endpoint;
use crate::endpoints::documents::wants_events;
use crate::log::{LogStream, told};
use crate::request::{ApiRequest, Members, refuse};
use crate::response::ApiResponse;
use crate::schema::Schema;
use crate::schemas;

pub(super) fn endpoints() -> Vec<Endpoint> {
    let server = || Schema::named("Server");
    vec![
        Endpoint::post("/servers", "Register a server", |request| Box::pin(register(request)))
            .about("Connects it, unless told otherwise, and waits up to 1.5 s for its tools. What takes longer is answered as `connecting`.")
            .takes(schemas::registration())
            .with_extra_checks(problems_with_config)
            .answers(201, "The server as it is kept.", server())
            .fails(&["SERVER_ALREADY_EXISTS"]),
        Endpoint::get("/servers", "List servers", |request| Box::pin(list(request)))
            .asks("status", Schema::word(Status::ALL.iter().map(|status| status.as_str())).about("Only those. Any case is read."))
            .asks("include_tools", Schema::truth().by_default(false).about("With their tools."))
            .asks("include_usage", Schema::truth().by_default(false).about("With what their processes use, and their containers as far as the engine says so within 3 s."))
            .pages("Servers in the order of their names.", server())
            .fails(&["VALIDATION_ERROR"]),
        Endpoint::post("/servers/test", "Try a connection without registering it", |request| Box::pin(test_unregistered(request)))
            .ends_with_client()
            .about("Nothing is kept. That it did not work is an answer, too: `success` is false then.")
            .takes(schemas::test_request())
            .with_extra_checks(problems_with_config)
            .answers(200, "What the try showed.", Schema::named("TestReport")),
        of_server(Endpoint::get("/servers/{server}", "Look at a server", |request| Box::pin(show(request))))
            .answers(200, "The server.", server()),
        of_server(Endpoint::patch("/servers/{server}", "Change a server", |request| Box::pin(change(request))))
            .about("What is not named stays. Null takes a description or a health address away. It is connected anew only if that is needed.")
            .takes(schemas::update())
            .with_extra_checks(problems_with_other_config)
            .answers(200, "The server as it is now.", server())
            .fails(&["SERVER_ALREADY_EXISTS", "SERVER_READ_ONLY"]),
        of_server(Endpoint::delete("/servers/{server}", "Remove a server", |request| Box::pin(remove(request))))
            .about("With its tools and its history.")
            .asks("force", schemas::force())
            .answers_nothing(204, "It is gone.")
            .fails(&["SERVER_READ_ONLY", "VALIDATION_ERROR"]),
        of_server(Endpoint::post("/servers/{server}/connect", "Connect a server", |request| Box::pin(connect(request))))
            .about("Waits for how that goes. Doing it again is fine.")
            .answers(200, "The server, connected.", server())
            .fails(&["SERVER_UNAVAILABLE", "SERVER_CONNECTION_FAILED"]),
        of_server(Endpoint::post("/servers/{server}/disconnect", "Disconnect a server", |request| Box::pin(disconnect(request))))
            .about("Waits up to 30 s for calls in flight, or cancels them by `force`, which may stand in the query or in the body. Doing it again is fine.")
            .asks("force", schemas::force())
            .takes_optional(Schema::object().with_optional("force", schemas::force()).and_no_more())
            .answers(200, "The server, disconnected.", server()),
        of_server(Endpoint::post("/servers/{server}/restart", "Restart a server", |request| Box::pin(restart(request))))
            .about("Disconnects it as `disconnect` does, connects it again, and waits for how that goes.")
            .asks("force", schemas::force())
            .takes_optional(Schema::object().with_optional("force", schemas::force()).and_no_more())
            .answers(200, "The server, connected.", server())
            .fails(&["SERVER_UNAVAILABLE", "SERVER_CONNECTION_FAILED"]),
        of_server(Endpoint::post("/servers/{server}/enable", "Allow a server to be connected", |request| Box::pin(enable(request))))
            .about("Forgets its failures and connects it.")
            .answers(200, "The server.", server())
            .fails(&["SERVER_READ_ONLY", "SERVER_CONNECTION_FAILED"]),
        of_server(Endpoint::post("/servers/{server}/disable", "Disconnect a server and keep it so", |request| Box::pin(disable(request))))
            .answers(200, "The server.", server())
            .fails(&["SERVER_READ_ONLY"]),
        of_server(Endpoint::post("/servers/{server}/test", "Try the connection of a server", |request| Box::pin(test(request))))
            .ends_with_client()
            .about("By a connection of its own, beside the one there may be.")
            .answers(200, "What the try showed.", Schema::named("TestReport")),
        of_server(Endpoint::get("/servers/{server}/health", "How well a server is", |request| Box::pin(health(request))))
            .answers(200, "How well it is.", Schema::named("Health")),
        of_server(Endpoint::get("/servers/{server}/log", "What a server writes to stderr", |request| Box::pin(log(request))))
            .about(
                "The last 200 lines of a server that we start, without its secrets. With `Accept: text/event-stream` they \
                 come as an event `log.tail`, and what follows as it is written, as events `log.lines`; `missed` says how \
                 many lines came too fast to be kept.",
            )
            .answers(200, "The lines.", Schema::object().with("lines", Schema::list(Schema::text())).with("missed", Schema::count()))
            .answers_with(200, "The same, and what follows.", "text/event-stream", Some(Schema::text())),
        of_server(Endpoint::get("/servers/{server}/history", "What happened to its connection", |request| Box::pin(history(request))))
            .pages("What happened, newest first.", Schema::named("HistoryEvent"))
            .fails(&["VALIDATION_ERROR"]),
    ]
}

/// Every endpoint of one server can miss it.
pub(super) fn of_server(endpoint: Endpoint) -> Endpoint {
    endpoint.fails(&["SERVER_NOT_FOUND"])
}

/// What is wrong with how a server is to be reached, where both parts of that are given.
fn problems_with_config(body: &Members) -> Vec<Problem> {
    let transport = body.text("transport_type").and_then(|word| word.parse().ok());
    let given = transport.zip(body.object("connection_config"));
    given.map(|(transport, config)| service::servers::problems_with_config(transport, &config)).unwrap_or_default()
}

/// The same for a change: what stays as it was cannot be looked at here.
fn problems_with_other_config(body: &Members) -> Vec<Problem> {
    let is_masked = |config| registry::ConnectionConfig::from(config).is_masked();
    if body.object("connection_config").is_some_and(is_masked) { Vec::new() } else { problems_with_config(body) }
}

async fn register(request: ApiRequest) -> Result<ApiResponse, Error> {
    let new = registration(request.body.whole())?;
    let view = request.service.register(&request.actor, new).await?;
    Ok(ApiResponse::json(StatusCode::CREATED, &view))
}

fn registration(body: serde_json::Map<String, Value>) -> Result<Registration, Error> {
    serde_json::from_value(Value::Object(body)).map_err(|error| refuse(&["body"], "value_error", error.to_string()))
}

async fn list(request: ApiRequest) -> Result<ApiResponse, Error> {
    let mut listed =
        request.service.servers(request.word("status"), request.says("include_tools"), request.page()).await?;
    if request.says("include_usage") {
        request.service.measure(&mut listed.items).await;
    }
    Ok(ApiResponse::page(&listed.items, listed.total))
}

async fn log(request: ApiRequest) -> Result<ApiResponse, Error> {
    let mut reader = request.service.log(request.server())?;
    if wants_events(&request) {
        return Ok(ApiResponse::events(LogStream::new(reader, request.closing)));
    }
    Ok(ApiResponse::ok(&told(&reader.now())))
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
    request.service.remove(&request.actor, request.server(), request.says("force")).await?;
    Ok(ApiResponse::nothing(StatusCode::NO_CONTENT))
}

async fn connect(request: ApiRequest) -> Result<ApiResponse, Error> {
    Ok(ApiResponse::ok(&request.service.connect(&request.actor, request.server()).await?))
}

async fn disconnect(request: ApiRequest) -> Result<ApiResponse, Error> {
    Ok(ApiResponse::ok(&request.service.disconnect(&request.actor, request.server(), request.says("force")).await?))
}

async fn restart(request: ApiRequest) -> Result<ApiResponse, Error> {
    Ok(ApiResponse::ok(&request.service.restart(&request.actor, request.server(), request.says("force")).await?))
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

async fn health(request: ApiRequest) -> Result<ApiResponse, Error> {
    Ok(ApiResponse::ok(&request.service.server_health(request.server()).await?))
}

async fn history(request: ApiRequest) -> Result<ApiResponse, Error> {
    let listed = request.service.history(request.server(), request.page()).await?;
    Ok(ApiResponse::page(&listed.items, listed.total))
}

//! Finding tools by words and by meaning.

use serde_json::Value;
use service::Error;
use tool_search::{DEFAULT_SKILL_THRESHOLD, SearchRequest, SearchResults};

use crate::endpoint::Endpoint;
use crate::request::ApiRequest;
use crate::response::ApiResponse;
use crate::schema::Schema;
use crate::schemas;

const DEFAULT_LIMIT: usize = 10;

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        searching(Endpoint::post("/search", "Search tools", |request| Box::pin(list(request))).within_profile())
            .answers(200, "The best matches, best first.", Schema::list(Schema::named("FoundTool"))),
        searching(Endpoint::post("", "Search tools with details", |request| Box::pin(whole(request))).within_profile())
            .at("/api/v1/search")
            .answers(200, "The best matches, best first, and how they were found.", Schema::named("Findings")),
    ]
}

fn searching(endpoint: Endpoint) -> Endpoint {
    endpoint
        .about(
            "Searches the tools of connected servers by words and by meaning. A new tool is found by words and \
             the word table until its vector is computed. Tools are sorted by score, but of tools that do the same, as \
             those of two servers of one kind do, at most three are among the first ten; the others follow after these, \
             sorted by score. The strategy `hierarchical` first searches skills, then their tools and the tools \
             without a skill; if no skill matches, it searches all tools.",
        )
        .for_users()
        .ends_with_client()
        .takes(schemas::search())
        .fails(&["SERVER_NOT_FOUND", "SKILL_NOT_FOUND"])
}

async fn list(request: ApiRequest) -> Result<ApiResponse, Error> {
    Ok(ApiResponse::ok(&find(&request).await?.tools))
}

async fn whole(request: ApiRequest) -> Result<ApiResponse, Error> {
    Ok(ApiResponse::ok(&find(&request).await?))
}

async fn find(request: &ApiRequest) -> Result<SearchResults, Error> {
    let body = &request.body;
    let texts = |name: &str| match body.get(name) {
        Some(Value::Array(values)) => values.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => Vec::new(),
    };
    let share = |name: &str| body.get(name).and_then(|value| value.as_f64()).map(|number| number as f32);
    let wanted = SearchRequest {
        query: body.text("query").unwrap_or_default(),
        limit: body.number("limit").and_then(|limit| usize::try_from(limit).ok()).unwrap_or(DEFAULT_LIMIT),
        servers: texts("server_filter"),
        skills: texts("skill_filter"),
        strategy: body.text("strategy").and_then(|word| word.parse().ok()).unwrap_or_default(),
        skill_threshold: share("skill_threshold").unwrap_or(DEFAULT_SKILL_THRESHOLD),
        threshold: share("threshold").unwrap_or(0.0),
        include_schemas: body.truth("include_schemas").unwrap_or(false),
        profile: None,
    };
    // All our tools come from servers.
    if body.truth("include_external") == Some(false) {
        return request.service.search(SearchRequest { limit: 0, ..wanted }).await;
    }
    request.service.search(wanted).await
}

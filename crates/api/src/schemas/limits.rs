//! Schemas of limits of calls.

use registry::LimitKind;
use serde_json::json;

use super::{moment, string_enum};
use crate::schema::Schema;

/// A limit with what counts against it.
pub(super) fn shown_limit() -> Schema {
    let one = Schema::object()
        .with("name", Schema::text())
        .with("running", Schema::count().about("Calls in progress, including those that wait."))
        .with("today", Schema::count().about("Calls of this day, in UTC."))
        .with("available", Schema::count().or_null().about("How many calls may begin at once now, with `per_second`."));
    Schema::object()
        .with("kind", string_enum!(LimitKind))
        .with("name", Schema::text().about("`*` is the default for each without a limit of its own."))
        .with("per_second", Schema::number().or_null())
        .with("burst", Schema::count().or_null())
        .with("concurrent", Schema::count().or_null())
        .with("per_day", Schema::count().or_null())
        .with("updated_at", moment())
        .with("refused", Schema::count().about("Calls that it refused since the service started."))
        .with("counted", Schema::count().about("How many identities, profiles, servers or tools it counts."))
        .with("uses", Schema::list(one).about("What counts for each of them; at most 100, those with the most calls."))
        .with(
            "exists",
            Schema::truth().or_null().about("Whether there is a server or tool of that name; null for other kinds."),
        )
}

/// The body that sets a limit. Its values are checked by the service.
pub(crate) fn limit() -> Schema {
    let number = |about| Schema::number().or_null().about(about);
    Schema::object()
        .with_optional(
            "per_second",
            number("Calls that may begin per second: 0.001 to 100000, at most three decimals."),
        )
        .with_optional(
            "burst",
            number("How many of them may begin at once after a pause, 1 to 1000000; by default those of a second."),
        )
        .with_optional("concurrent", number("Calls in progress, including those that wait: 1 to 1000000."))
        .with_optional("per_day", number("Calls that may begin in a day, in UTC: 1 to 1000000000000."))
        .and_no_more()
        .such_as(json!({"per_second": 5, "burst": 20, "concurrent": 10, "per_day": 10_000}))
}

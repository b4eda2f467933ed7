//! Which role a page or an action needs. The menu and the pages show only what the role of the user may use.

use http::Method;
use registry::Role;

/// The role that a request needs.
pub(crate) fn required(method: &Method, path: &str) -> Role {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let is_change = !matches!(*method, Method::GET | Method::HEAD);
    match parts.as_slice() {
        ["login" | "logout" | "assets" | "oauth", ..] | ["playground" | "prompts" | "resources", ..] => Role::User,
        ["tools" | "documents", ..] if !is_change => Role::User,
        // Secrets, and what applies to everybody.
        ["settings" | "audit" | "export" | "import" | "limits" | "profiles", ..] => Role::Admin,
        // Also what is unknown.
        _ => Role::Operator,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_has_its_role() {
        for (method, path, role) in [
            (Method::GET, "/login", Role::User),
            (Method::POST, "/logout", Role::User),
            (Method::GET, "/tools/git/log", Role::User),
            (Method::POST, "/tools", Role::Operator),
            (Method::POST, "/playground", Role::User),
            (Method::GET, "//documents//", Role::User),
            (Method::POST, "/documents/run", Role::Operator),
            (Method::GET, "/", Role::Operator),
            (Method::POST, "/connect", Role::Operator),
            (Method::GET, "/servers/git", Role::Operator),
            (Method::GET, "/executions", Role::Operator),
            (Method::GET, "/something/new", Role::Operator),
            (Method::GET, "/settings", Role::Admin),
            (Method::GET, "/profiles", Role::Admin),
            (Method::POST, "/limits/remove", Role::Admin),
            (Method::POST, "/export", Role::Admin),
            (Method::HEAD, "/audit", Role::Admin),
        ] {
            assert_eq!(required(&method, path), role, "{method} {path}");
        }
    }
}

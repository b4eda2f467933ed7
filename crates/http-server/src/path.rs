//! The paths that the HTTP server serves.

use std::borrow::Cow;

/// The target of a path.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PathTarget<'p> {
    /// Streamable HTTP: of all servers, or of the one named.
    Mcp(Option<Cow<'p, str>>),
    /// HTTP+SSE: of all servers, or of the one named.
    Sse(Option<Cow<'p, str>>),
    /// Where clients of HTTP+SSE send their messages.
    Message,
    /// The health of the service.
    Health,
    /// No target.
    Unknown,
}

impl<'p> PathTarget<'p> {
    /// The target of `path`. A name that is not UTF-8 has none.
    pub(crate) fn at(path: &'p str) -> Self {
        match path {
            "/mcp" => Self::Mcp(None),
            "/sse" => Self::Sse(None),
            "/message" | "/messages" => Self::Message,
            "/health" => Self::Health,
            _ => Self::of_one(path, "/mcp/", Self::Mcp)
                .or_else(|| Self::of_one(path, "/sse/", Self::Sse))
                .unwrap_or(Self::Unknown),
        }
    }

    fn of_one(path: &'p str, under: &str, target: fn(Option<Cow<'p, str>>) -> Self) -> Option<Self> {
        let name = path.strip_prefix(under)?;
        let name = name.strip_suffix('/').unwrap_or(name);
        if name.is_empty() {
            return Some(target(None));
        }
        percent_decode(name).map(|name| target(Some(name)))
    }
}

/// The endpoint of MCP that a path is: what a token can be for. Only what can stand in a header as it is.
pub(crate) fn endpoint(path: &str) -> Option<&str> {
    let path = path.strip_suffix('/').unwrap_or(path);
    let is_endpoint = matches!(path, "/mcp" | "/sse") || path.starts_with("/mcp/") || path.starts_with("/sse/");
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\');
    Some(path).filter(|path| is_endpoint && path.bytes().all(is_plain))
}

/// The value of `name` in a query; the first, if there are several.
pub(crate) fn query<'q>(query: Option<&'q str>, name: &str) -> Option<Cow<'q, str>> {
    let pairs = query?.split('&').filter_map(|pair| pair.split_once('='));
    pairs.into_iter().find(|(key, _)| *key == name).and_then(|(_, value)| percent_decode(value))
}

fn percent_decode(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('%') {
        return Some(Cow::Borrowed(text));
    }
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let escaped = (*first == b'%').then(|| tail.get(..2)).flatten().and_then(|digits| {
            let digit = |byte: u8| char::from(byte).to_digit(16);
            Some(u8::try_from(digit(digits[0])? * 16 + digit(digits[1])?).expect("two hex digits make a byte"))
        });
        decoded.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8(decoded).ok().map(Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_is_found() {
        assert_eq!(PathTarget::at("/mcp"), PathTarget::Mcp(None));
        assert_eq!(PathTarget::at("/mcp/"), PathTarget::Mcp(None));
        assert_eq!(PathTarget::at("/mcp/git"), PathTarget::Mcp(Some("git".into())));
        assert_eq!(PathTarget::at("/mcp/git/"), PathTarget::Mcp(Some("git".into())));
        assert_eq!(PathTarget::at("/sse/a%20b%2Fc"), PathTarget::Sse(Some("a b/c".into())));
        assert_eq!(PathTarget::at("/message"), PathTarget::Message);
        assert_eq!(PathTarget::at("/health"), PathTarget::Health);
        for path in ["/", "", "/mcpx", "/MCP", "/health/x", "/mcp/%ff"] {
            assert_eq!(PathTarget::at(path), PathTarget::Unknown, "{path}");
        }
    }

    #[test]
    fn a_percent_sign_that_escapes_nothing_is_literal() {
        assert_eq!(percent_decode("100%").unwrap(), "100%");
        assert_eq!(percent_decode("%zz%4").unwrap(), "%zz%4");
        assert_eq!(percent_decode("%C3%a9").unwrap(), "é");
    }

    #[test]
    fn a_query_returns_its_parameters() {
        assert_eq!(query(Some("a=1&sessionId=x%2Dy&sessionId=z"), "sessionId").unwrap(), "x-y");
        assert_eq!(query(Some("sessionid=x"), "sessionId"), None);
        assert_eq!(query(None, "sessionId"), None);
    }
}

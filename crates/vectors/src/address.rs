//! The address of a Qdrant collection.

use std::str::FromStr;

use http::Uri;

/// The default gRPC port of Qdrant.
const USUAL_PORT: u16 = 6334;
/// The default name of the collection.
const USUAL_COLLECTION: &str = "mcp_tools";

/// `http://host[:port][/collection]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Scheme, host and port.
    pub(crate) url: String,
    /// The alias of the collection, and the prefix of its name.
    pub(crate) collection: String,
}

/// Why an address is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{address}` is not an address of Qdrant: {why}")]
pub struct BadAddress {
    address: String,
    why: &'static str,
}

impl FromStr for Address {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        // The invalid part may be a secret, so only parts that cannot be one are shown.
        let shown = text.rsplit_once('@').map_or(text, |(_, rest)| rest);
        let bad = |why| BadAddress { address: shown.to_owned(), why };
        let uri: Uri = text.parse().map_err(|_| bad("use http://HOST[:PORT][/COLLECTION]"))?;
        let (Some(scheme @ ("http" | "https")), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(bad("use http://HOST[:PORT][/COLLECTION]"));
        };
        if authority.as_str().contains('@') {
            return Err(bad("put the key into the environment variable QDRANT_API_KEY"));
        }
        let port = match uri.port_u16() {
            Some(6333) => return Err(bad("6333 is the port for REST; use the one for gRPC, usually 6334")),
            Some(port) => port,
            None => USUAL_PORT,
        };
        let collection = match uri.path().trim_matches('/') {
            "" => USUAL_COLLECTION,
            name => name,
        };
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
        if !collection.bytes().all(is_plain) || collection.len() > 64 || uri.query().is_some() {
            return Err(bad("the name of a collection consists of letters, digits, `_` and `-`, at most 64"));
        }
        let url = format!("{scheme}://{}:{port}", authority.host());
        Ok(Self { url, collection: collection.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_and_collection_may_be_left_out() {
        let parsed = |text: &str| {
            let address: Address = text.parse().unwrap();
            (address.url, address.collection)
        };
        let expected = |url: &str, collection: &str| (url.to_owned(), collection.to_owned());
        assert_eq!(parsed("http://localhost"), expected("http://localhost:6334", "mcp_tools"));
        assert_eq!(parsed("https://q.example:7000/team-a/"), expected("https://q.example:7000", "team-a"));
        assert_eq!(parsed("http://[::1]:6334"), expected("http://[::1]:6334", "mcp_tools"));
    }

    #[test]
    fn problems_are_reported_without_secrets() {
        for (text, word) in [
            ("localhost:6334", "use http://"),
            ("ftp://localhost", "use http://"),
            ("http://localhost:6333", "gRPC"),
            ("http://:secret@localhost", "QDRANT_API_KEY"),
            ("http://localhost/a/b", "letters"),
            ("", "use http://"),
        ] {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains(word) && !error.contains("secret"), "{error}");
        }
    }
}

//! `WWW-Authenticate`: what a 401 or 403 says (RFC 9110, 11.6.1).

/// The `Bearer` challenge of a response, and whether it had others.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Challenge {
    /// Whether there is a `Bearer` challenge.
    pub(crate) is_bearer: bool,
    /// Whether there are only challenges of other schemes.
    pub(crate) is_other_scheme: bool,
    /// Where the metadata of the resource is.
    pub(crate) resource_metadata: Option<String>,
    /// The scopes that are needed.
    pub(crate) scopes: Option<Vec<String>>,
    /// The error code.
    pub(crate) error: Option<String>,
}

impl Challenge {
    /// Reads the headers of a response. Whatever is malformed is passed over: other headers may be well-formed.
    pub(crate) fn parse<S: AsRef<str>>(headers: &[S]) -> Self {
        let mut challenge = Self::default();
        let mut has_other = false;
        for (scheme, parameters) in headers.iter().flat_map(|header| challenges(header.as_ref())) {
            if !scheme.eq_ignore_ascii_case("bearer") {
                has_other = true;
                continue;
            }
            challenge.is_bearer = true;
            for (name, value) in parameters {
                let member = match name.to_ascii_lowercase().as_str() {
                    "resource_metadata" => &mut challenge.resource_metadata,
                    "error" => &mut challenge.error,
                    "scope" => {
                        let scopes: Vec<String> = value.split_whitespace().map(str::to_owned).collect();
                        challenge.scopes = challenge.scopes.take().or((!scopes.is_empty()).then_some(scopes));
                        continue;
                    }
                    _ => continue,
                };
                *member = member.take().or(Some(value));
            }
        }
        challenge.is_other_scheme = has_other && !challenge.is_bearer;
        challenge
    }

    /// Whether a 403 with it asks for more scopes. Some servers give the scopes and leave out the error code.
    pub(crate) fn wants_more_scopes(&self) -> bool {
        match &self.error {
            Some(error) => error == "insufficient_scope",
            None => self.is_bearer && self.scopes.is_some(),
        }
    }
}

type Parameters = Vec<(String, String)>;

/// The challenges of one header: scheme and parameters.
fn challenges(header: &str) -> Vec<(String, Parameters)> {
    let mut found: Vec<(String, Parameters)> = Vec::new();
    let mut rest = header.trim_start_matches([' ', '\t', ',']);
    while !rest.is_empty() {
        let word = token(rest);
        if word.is_empty() {
            // Not a token: pass over it.
            let end = rest.find(',').map_or(rest.len(), |at| at + 1);
            rest = rest[end..].trim_start_matches([' ', '\t', ',']);
            continue;
        }
        let after = &rest[word.len()..];
        let blank = after.trim_start_matches([' ', '\t']);
        match (blank.strip_prefix('='), found.last_mut()) {
            (Some(value), Some((_, parameters))) => {
                let (value, behind) = value_of(value.trim_start_matches([' ', '\t']));
                parameters.push((word.to_owned(), value));
                rest = behind;
            }
            // A parameter without a scheme.
            (Some(value), None) => rest = value_of(value.trim_start_matches([' ', '\t'])).1,
            (None, _) => {
                found.push((word.to_owned(), Vec::new()));
                rest = blank;
            }
        }
        rest = rest.trim_start_matches([' ', '\t', ',']);
    }
    found
}

/// The token at the start; some servers use characters of token68 in parameters as well.
fn token(text: &str) -> &str {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~/:".contains(&byte);
    let length = text.bytes().take_while(|&byte| is_part(byte)).count();
    &text[..length]
}

/// A quoted string or a token, and what is behind it.
fn value_of(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        // Unquoted scopes and addresses are seen in the wild: take all up to the next comma or blank.
        let end = text.find([',', ' ', '\t']).unwrap_or(text.len());
        return (text[..end].to_owned(), &text[end..]);
    };
    let mut value = String::new();
    let mut letters = quoted.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return (value, &quoted[at + 1..]),
            '\\' => value.extend(letters.next().map(|(_, letter)| letter)),
            _ => value.push(letter),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(header: &str) -> Challenge {
        Challenge::parse(&[header])
    }

    #[test]
    fn a_bearer_challenge_is_found_among_others_in_any_notation() {
        for header in [
            r#"Bearer resource_metadata="https://x/m", scope="a b", error="invalid_token""#,
            r#"bearer  Error="invalid_token" ,scope="a b",resource_metadata = "https://x/m""#,
            r#"Basic realm="a, Bearer scope=\"no\"", Bearer error=invalid_token, scope="a b", resource_metadata=https://x/m"#,
            r#"Negotiate, Bearer scope="a  b" resource_metadata="https:\/\/x/m" error="invalid_token""#,
        ] {
            let challenge = parse(header);
            assert!(challenge.is_bearer && !challenge.is_other_scheme, "{header}");
            assert_eq!(challenge.resource_metadata.as_deref(), Some("https://x/m"), "{header}");
            assert_eq!(challenge.scopes, Some(vec!["a".to_owned(), "b".to_owned()]), "{header}");
            assert_eq!(challenge.error.as_deref(), Some("invalid_token"), "{header}");
        }
    }

    #[test]
    fn other_schemes_and_malformed_headers_are_no_bearer_challenge() {
        assert!(parse("Basic realm=\"x\"").is_other_scheme);
        assert_eq!(Challenge::parse::<&str>(&[]), Challenge::default());
        for header in ["", ",", "=", "\"", "é", "Bearer", "Bearer scope=\"", "Bearer scope", "a=b=c,,"] {
            let challenge = parse(header);
            assert_eq!((challenge.scopes, challenge.resource_metadata), (None, None), "{header}");
        }
        let both = Challenge::parse(&["Basic realm=\"x\"", "Bearer"]);
        assert!(both.is_bearer && !both.is_other_scheme);
    }

    #[test]
    fn more_scopes_are_wanted_by_the_error_or_by_scopes_alone() {
        assert!(parse(r#"Bearer error="insufficient_scope", scope="a""#).wants_more_scopes());
        assert!(parse(r#"Bearer scope="a""#).wants_more_scopes());
        assert!(!parse(r#"Bearer error="invalid_token", scope="a""#).wants_more_scopes());
        assert!(!parse("Bearer").wants_more_scopes());
    }
}

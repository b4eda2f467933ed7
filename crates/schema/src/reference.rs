//! References between schemas: URIs resolved as RFC 3986 says, and JSON pointers.

/// A URI without its fragment, and the fragment.
pub(crate) fn split_fragment(uri: &str) -> (&str, &str) {
    uri.split_once('#').unwrap_or((uri, ""))
}

/// The URI that a reference means at a place whose base URI is known. Neither has a fragment.
pub(crate) fn resolve(base: &str, reference: &str) -> String {
    if base.is_empty() {
        return reference.to_owned();
    }
    if reference.is_empty() {
        return base.to_owned();
    }
    let (base, wanted) = (Parts::of(base), Parts::of(reference));
    let resolved = match &wanted {
        Parts { scheme: Some(_), .. } => Parts { path: without_dots(&wanted.path), ..wanted },
        Parts { authority: Some(_), .. } => Parts { scheme: base.scheme, path: without_dots(&wanted.path), ..wanted },
        Parts { path, query, .. } if path.is_empty() => {
            Parts { scheme: base.scheme, authority: base.authority, path: base.path, query: query.or(base.query) }
        }
        Parts { path, .. } => {
            let path = match path.starts_with('/') {
                true => without_dots(path),
                false => {
                    let folder = match base.path.rfind('/') {
                        Some(end) => &base.path[..=end],
                        None if base.authority.is_some() => "/",
                        None => "",
                    };
                    without_dots(&format!("{folder}{path}"))
                }
            };
            Parts { scheme: base.scheme, authority: base.authority, path, query: wanted.query }
        }
    };
    resolved.written()
}

struct Parts<'a> {
    scheme: Option<&'a str>,
    authority: Option<&'a str>,
    path: String,
    query: Option<&'a str>,
}

impl<'a> Parts<'a> {
    fn of(uri: &'a str) -> Self {
        let (before, query) = match uri.split_once('?') {
            Some((before, query)) => (before, Some(query)),
            None => (uri, None),
        };
        let is_scheme = |scheme: &str| {
            scheme.starts_with(|first: char| first.is_ascii_alphabetic())
                && scheme.chars().all(|it| it.is_ascii_alphanumeric() || matches!(it, '+' | '-' | '.'))
        };
        let (scheme, rest) = match before.split_once(':') {
            Some((scheme, rest)) if is_scheme(scheme) => (Some(scheme), rest),
            _ => (None, before),
        };
        let (authority, path) = match rest.strip_prefix("//") {
            Some(rest) => {
                let end = rest.find('/').unwrap_or(rest.len());
                (Some(&rest[..end]), &rest[end..])
            }
            None => (None, rest),
        };
        Self { scheme, authority, path: path.to_owned(), query }
    }

    fn written(&self) -> String {
        let scheme = self.scheme.map(|scheme| format!("{scheme}:")).unwrap_or_default();
        let authority = self.authority.map(|authority| format!("//{authority}")).unwrap_or_default();
        let query = self.query.map(|query| format!("?{query}")).unwrap_or_default();
        format!("{scheme}{authority}{}{query}", self.path)
    }
}

/// A path without its `.` and `..` segments.
fn without_dots(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut segments = path.split('/').peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        match segment {
            "." | ".." => {
                // What stands before the first `/` of an absolute path is empty, and stays.
                if segment == ".." && kept.len() > 1 {
                    kept.pop();
                }
                if is_last {
                    kept.push("");
                }
            }
            segment => kept.push(segment),
        }
    }
    kept.join("/")
}

/// A fragment without its percent-encoding. What is not UTF-8 afterwards names nothing.
pub(crate) fn decoded(fragment: &str) -> Option<String> {
    if !fragment.contains('%') {
        return Some(fragment.to_owned());
    }
    let mut bytes = Vec::with_capacity(fragment.len());
    let mut rest = fragment.as_bytes();
    while let [first, tail @ ..] = rest {
        let hex = |digits: &[u8]| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
        match (first, tail.get(..2).and_then(hex)) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8(bytes).ok()
}

/// The steps of a JSON pointer that begins with `/`.
pub(crate) fn pointer_steps(pointer: &str) -> impl Iterator<Item = String> {
    pointer.split('/').skip(1).map(|step| step.replace("~1", "/").replace("~0", "~"))
}

#[cfg(test)]
mod tests {
    use super::{decoded, resolve};

    #[test]
    fn references_are_resolved_as_the_rfc_says() {
        let base = "http://a/b/c/d;p?q";
        for (reference, expected) in [
            ("g:h", "g:h"),
            ("g", "http://a/b/c/g"),
            ("./g", "http://a/b/c/g"),
            ("g/", "http://a/b/c/g/"),
            ("/g", "http://a/g"),
            ("//g", "http://g"),
            ("?y", "http://a/b/c/d;p?y"),
            ("g?y", "http://a/b/c/g?y"),
            ("", "http://a/b/c/d;p?q"),
            (".", "http://a/b/c/"),
            ("..", "http://a/b/"),
            ("../g", "http://a/b/g"),
            ("../../g", "http://a/g"),
            ("../../../g", "http://a/g"),
            ("g;x=1/../y", "http://a/b/c/y"),
        ] {
            assert_eq!(resolve(base, reference), expected, "{reference}");
        }
        assert_eq!(resolve("http://a", "g"), "http://a/g");
        assert_eq!(resolve("", "g"), "g");
        assert_eq!(resolve("urn:x:y", "urn:z"), "urn:z");
    }

    #[test]
    fn percent_signs_that_encode_nothing_stay() {
        assert_eq!(decoded("/a%25b").as_deref(), Some("/a%b"));
        assert_eq!(decoded("100%").as_deref(), Some("100%"));
        assert_eq!(decoded("%ff"), None);
    }
}

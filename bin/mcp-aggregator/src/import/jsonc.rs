//! Parses JSON with comments and trailing commas, as in settings of editors.

use serde_json::Value;

/// Parses the text. Plain JSON is parsed directly.
pub(crate) fn read(text: &str) -> Result<Value, serde_json::Error> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    serde_json::from_str(text).or_else(|_| serde_json::from_str(&catalog::jsonc::plain(text)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn comments_and_trailing_commas_are_left_out_but_not_in_strings() {
        let text = r#"{
            // a comment, with "quotes"
            "url": "http://x/*y*/", /* another
            one */ "list": [1, 2, ],
            "text": "a \" // b,}",
        }"#;
        assert_eq!(read(text).unwrap(), json!({"url": "http://x/*y*/", "list": [1, 2], "text": "a \" // b,}"}));
    }

    #[test]
    fn what_is_broken_stays_broken_and_is_reported_by_its_line() {
        assert_eq!(read("{\n/* \n */ \"a\": }").unwrap_err().line(), 3);
        for text in ["", "{", "\"", "/*", "{\"a\": \"\\"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}

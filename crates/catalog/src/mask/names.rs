//! Whether a name (of an option, a variable, a query parameter, a key) means that its value is a secret.

/// Parts of names of secrets, at any position.
const PARTS: [&str; 9] =
    ["token", "secret", "password", "passwd", "passphrase", "apikey", "api-key", "api_key", "authorization"];

/// Words in names of secrets. As parts of other words they mean nothing.
const WORDS: [&str; 20] = [
    "auth",
    "bearer",
    "cookie",
    "cred",
    "credential",
    "credentials",
    "creds",
    "jwt",
    "key",
    "pass",
    "passcode",
    "pat",
    "psw",
    "pswd",
    "pw",
    "pwd",
    "sas",
    "sig",
    "signature",
    "userpwd",
];

/// A name that ends with one of these describes the place or kind of a secret, not the secret.
const PLACES: [&str; 16] = [
    "dir", "endpoint", "file", "filename", "folder", "length", "method", "mode", "path", "port", "provider", "timeout",
    "ttl", "type", "uri", "url",
];

/// An option that starts with one of these has no value.
const NEGATIONS: [&str; 5] = ["disable", "ignore", "no", "skip", "without"];

/// Whether the value of this name is a secret.
pub(super) fn means_a_secret(name: &str) -> bool {
    let words = words(name);
    let first = words.iter().find(|word| !word.is_empty());
    if words.last().is_some_and(|last| PLACES.contains(&last.as_str()))
        || name.starts_with('-') && first.is_some_and(|first| NEGATIONS.contains(&first.as_str()))
    {
        return false;
    }
    has_secretive_part(name) || words.iter().any(|word| WORDS.contains(&word.as_str()))
}

/// The same for keys of a config, where only the most obvious names count.
pub(super) fn has_secretive_part(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    PARTS.iter().any(|part| name.contains(part))
}

/// The lowercase words of a name: `X-Amz-Signature`, `access_key` and `sharedAccessKey` have three, two and three.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_small = false;
    for letter in name.chars() {
        let is_new = !letter.is_ascii_alphanumeric() || letter.is_ascii_uppercase() && was_small;
        was_small = letter.is_ascii_lowercase() || letter.is_ascii_digit();
        if is_new {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| letter.is_ascii_alphanumeric()) {
            word.push(letter.to_ascii_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_word_by_word() {
        for name in
            ["sig", "X-Amz-Signature", "AccountKey", "access_key", "Pwd", "--auth", "GITHUB_PAT", "clientSecret"]
        {
            assert!(means_a_secret(name), "{name}");
        }
        for name in
            ["monkey", "--author", "design", "--port", "--token-file", "authUrl", "--no-auth", "signed", "passive", ""]
        {
            assert!(!means_a_secret(name), "{name}");
        }
    }
}

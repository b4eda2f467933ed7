//! Who may come in over HTTP: the tokens a user has set, and whether none will do.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http_server::{MIN_SECURE_TOKEN_CHARS, Tokens};
use service::Service;

use crate::failure::Failure;

/// The variable that holds one token. It is not passed on to servers.
pub(crate) const TOKEN_VARIABLE: &str = "MCP_AGGREGATOR_TOKEN";

/// The tokens from the file and from the environment; none if there is neither.
pub(crate) fn tokens(file: Option<&Path>, variable: Option<&str>) -> Result<Option<Tokens>, Failure> {
    let tokens = all_tokens(file, variable)?;
    for name in tokens.iter().flat_map(Tokens::guessable) {
        tracing::warn!(
            token = %name,
            "a token of less than {MIN_SECURE_TOKEN_CHARS} characters can be guessed; `openssl rand -hex 32` makes a good one"
        );
    }
    if let Some(file) = file.filter(|file| is_open_to_all(file)) {
        tracing::warn!(file = %file.display(), "everybody on this machine can read the tokens; `chmod 600` the file");
    }
    Ok(tokens)
}

/// How often it is looked whether the file has changed.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Follows the file: who is taken out of it is let in no more. As long as it makes no sense, what it said before counts.
pub(crate) async fn follow(tokens: Arc<Tokens>, file: PathBuf, service: Arc<Service>) {
    let variable = std::env::var(TOKEN_VARIABLE).ok();
    let mut seen = stamp(&file);
    loop {
        tokio::time::sleep(POLL_INTERVAL).await;
        let stamp = stamp(&file);
        if stamp == seen {
            continue;
        }
        seen = stamp;
        match self::tokens(Some(&file), variable.as_deref()) {
            Ok(Some(now)) => {
                tokens.replace(&now);
                service.note_token_error(None);
                tracing::info!(file = %file.display(), tokens = ?tokens, "the token file has changed");
            }
            Ok(None) => {}
            Err(failure) => {
                let trouble = format!("{}; the tokens before stay", failure.message);
                tracing::error!("{trouble}");
                service.note_token_error(Some(trouble));
            }
        }
    }
}

/// What tells one state of a file from another.
fn stamp(file: &Path) -> Option<(SystemTime, u64, u64)> {
    let metadata = fs::metadata(file).ok()?;
    Some((metadata.modified().ok()?, metadata.len(), metadata.ino()))
}

/// A file whose owner does not mind the group is none of our business; one for everybody usually is a mistake.
fn is_open_to_all(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|metadata| metadata.permissions().mode() & 0o004 != 0)
}

fn all_tokens(file: Option<&Path>, variable: Option<&str>) -> Result<Option<Tokens>, Failure> {
    let of_file = file.map(read).transpose()?;
    let Some(secret) = variable else { return Ok(of_file) };
    let all = of_file.unwrap_or_default().with_default(secret);
    all.map(Some).map_err(|error| Failure::usage(format!("{TOKEN_VARIABLE} cannot be used: {error}")))
}

fn read(path: &Path) -> Result<Tokens, Failure> {
    let shown = path.display();
    let text = fs::read_to_string(path)
        .map_err(|error| Failure::new(format!("could not read the token file {shown}: {error}")))?;
    Tokens::read(&text).map_err(|error| {
        Failure::new(format!("the token file {shown} cannot be used: {error}"))
            .with_hint("write one `name:token` a line; `openssl rand -hex 32` makes a good token")
    })
}

/// Without tokens, whoever reaches us may use everything; so then nobody but this machine may reach us.
pub(crate) fn check_exposure(listen: SocketAddr, has_tokens: bool) -> Result<(), Failure> {
    if has_tokens || listen.ip().to_canonical().is_loopback() {
        return Ok(());
    }
    let message =
        format!("refusing to listen at {listen} without tokens: anybody who can reach it could use every tool");
    let hint = format!(
        "set {TOKEN_VARIABLE}, give a --token-file with `name:token` lines, or listen at 127.0.0.1:{}",
        listen.port()
    );
    Err(Failure::usage(message).with_hint(hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_tokens_only_this_machine_is_served() {
        for (listen, is_fine) in [
            ("127.0.0.1:1", true),
            ("[::1]:1", true),
            ("[::ffff:127.0.0.1]:1", true),
            ("0.0.0.0:1", false),
            ("[::]:1", false),
            ("192.168.0.1:1", false),
        ] {
            let listen = listen.parse().unwrap();
            assert_eq!(check_exposure(listen, false).is_ok(), is_fine, "{listen}");
            assert!(check_exposure(listen, true).is_ok());
        }
    }

    #[test]
    fn tokens_come_from_both_places_and_errors_tell_none() {
        assert!(tokens(None, None).unwrap().is_none());
        assert!(tokens(None, Some("secret")).unwrap().is_some());
        let error = tokens(None, Some("se cret")).unwrap_err().message;
        assert!(error.starts_with("MCP_AGGREGATOR_TOKEN cannot be used") && !error.contains("cret:"), "{error}");
        let missing = tokens(Some(Path::new("/nonexistent/tokens")), None).unwrap_err().message;
        assert!(missing.contains("/nonexistent/tokens"), "{missing}");
    }
}

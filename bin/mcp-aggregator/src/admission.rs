//! The tokens for access over HTTP, and whether access without tokens is safe.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use catalog::Role;
use http_server::{MIN_SECURE_TOKEN_CHARS, Tokens};
use service::Service;

use crate::failure::Failure;

/// The variable with one token. It is not passed on to servers.
pub(crate) const TOKEN_VARIABLE: &str = "MCP_AGGREGATOR_TOKEN";

/// Where tokens come from.
#[derive(Debug, Default)]
pub(crate) struct TokenSource {
    /// The token file.
    pub(crate) file: Option<PathBuf>,
    /// The value of [`TOKEN_VARIABLE`].
    pub(crate) variable: Option<String>,
    /// The profiles that tokens without one are bound to, by their roles.
    pub(crate) profile_of_role: Vec<(Role, String)>,
}

impl TokenSource {
    /// All tokens; `None` if there is neither a file nor a variable. Warns about what is risky.
    pub(crate) fn read_first(&self) -> Result<Option<Tokens>, Failure> {
        let tokens = self.read()?;
        if let Some(tokens) = &tokens {
            warn_of_risks(self.file.as_deref(), tokens);
        }
        Ok(tokens)
    }

    fn read(&self) -> Result<Option<Tokens>, Failure> {
        let tokens = all_tokens(self.file.as_deref(), self.variable.as_deref())?;
        Ok(tokens.map(|tokens| tokens.with_profiles(&self.profile_of_role)))
    }
}

/// Warns about tokens that can be guessed, and about a token file that everybody can read.
fn warn_of_risks(file: Option<&Path>, tokens: &Tokens) {
    for name in tokens.guessable() {
        tracing::warn!(
            token = %name,
            "a token of less than {MIN_SECURE_TOKEN_CHARS} characters can be guessed; `openssl rand -hex 32` generates a good one"
        );
    }
    if let Some(file) = file.filter(|file| is_open_to_all(file)) {
        tracing::warn!(file = %file.display(), "other users of this machine can read the token file; restrict it with `chmod 600`");
    }
}

/// How often the token file is compared with its last contents.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Applies every change of the token file. While the file is unreadable or invalid, the last valid tokens remain in use.
///
/// The whole file is compared, not its time stamp: a secret that is replaced while the service starts, or by one of the
/// same length within one tick of the file system's clock, must not be missed.
pub(crate) async fn follow(tokens: Arc<Tokens>, source: TokenSource, service: Arc<Service>) {
    let Some(file) = source.file.clone() else { return };
    let mut seen = None;
    loop {
        tokio::time::sleep(POLL_INTERVAL).await;
        let contents = fs::read(&file).map_err(|error| error.kind());
        if seen.as_ref() == Some(&contents) {
            continue;
        }
        let is_first = seen.replace(contents).is_none();
        match source.read() {
            Ok(Some(now)) => {
                service.note_token_error(None);
                // Usually the file has not changed since the start.
                if is_first && tokens.is_same(&now) {
                    continue;
                }
                warn_of_risks(Some(&file), &now);
                tokens.replace(&now);
                tracing::info!(file = %file.display(), tokens = ?tokens, "the token file has changed");
            }
            Ok(None) => {}
            Err(error) => {
                let error = format!("{}; the last valid tokens remain in use", error.message);
                tracing::error!("{error}");
                service.note_token_error(Some(error));
            }
        }
    }
}

/// A file that its group can read may be intended; one that everybody can read is usually a mistake.
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
        Failure::new(format!("the token file {shown} cannot be used: {error}")).with_hint(
            "write one `name:token[:role[:profile]]` per line; `openssl rand -hex 32` generates a good token",
        )
    })
}

/// Without tokens everybody who can connect may use everything, so connections must come from this machine only.
pub(crate) fn check_exposure(listen: SocketAddr, has_tokens: bool) -> Result<(), Failure> {
    if has_tokens || listen.ip().to_canonical().is_loopback() {
        return Ok(());
    }
    let message =
        format!("refusing to listen on {listen} without tokens: anyone who can reach it could use every tool");
    let hint = format!(
        "set {TOKEN_VARIABLE}, pass a --token-file with `name:token` lines, or listen on 127.0.0.1:{}",
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
    fn tokens_come_from_file_and_environment_and_errors_contain_none() {
        let tokens = |file: Option<&str>, variable: Option<&str>| {
            let profile_of_role = vec![(Role::Admin, "all".to_owned())];
            let (file, variable) = (file.map(PathBuf::from), variable.map(str::to_owned));
            TokenSource { file, variable, profile_of_role }.read_first()
        };
        assert!(tokens(None, None).unwrap().is_none());
        let bound = tokens(None, Some("secret")).unwrap().unwrap();
        assert_eq!(bound.principals()[0].profile().map(|name| &**name), Some("all"));
        let error = tokens(None, Some("se cret")).unwrap_err().message;
        assert!(error.starts_with("MCP_AGGREGATOR_TOKEN cannot be used") && !error.contains("cret:"), "{error}");
        let missing = tokens(Some("/nonexistent/tokens"), None).unwrap_err().message;
        assert!(missing.contains("/nonexistent/tokens"), "{missing}");
    }
}

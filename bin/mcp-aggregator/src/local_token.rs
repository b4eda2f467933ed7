//! The local token: a secret in the data directory, for systems that do not report the user of a connection.
//!
//! It is created at the first start without tokens. The commands of this program send it automatically.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::instance_lock::private_folder;

const NAME: &str = "local.token";
/// How long an unused sign-in link is valid.
const LINK_LIFETIME: Duration = Duration::from_secs(10 * 60);

/// The token and its path. Not `Debug`, because it contains the secret.
pub(crate) struct LocalToken {
    pub(crate) secret: Arc<str>,
    pub(crate) file: PathBuf,
}

impl LocalToken {
    /// The token in `folder`, which is created if it is missing.
    pub(crate) fn find_or_create(folder: &Path) -> Result<Self, Failure> {
        let file = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned()).join(NAME);
        let failed = |error: io::Error| {
            Failure::new(format!("could not create the local token {}: {error}", file.display()))
                .with_hint("set MCP_AGGREGATOR_TOKEN or pass --token-file, so that it is not needed")
        };
        if !file.try_exists().map_err(failed)? {
            private_folder(folder).and_then(|()| create(&file)).map_err(failed)?;
        }
        Ok(Self { secret: read(&file)?.into(), file })
    }
}

/// Written under another name first, so that readers see all of it or nothing. Called with the lock of the folder held.
fn create(file: &Path) -> io::Result<()> {
    let draft = file.with_extension("new");
    let mut written = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
    written.set_permissions(fs::Permissions::from_mode(0o600))?;
    writeln!(written, "{}", http_server::random_secret())?;
    written.sync_all()?;
    fs::rename(&draft, file)
}

/// The token in a file that nobody else can read.
pub(crate) fn read(file: &Path) -> Result<String, Failure> {
    let shown = file.display();
    let failed = |error: io::Error| Failure::new(format!("could not read the local token {shown}: {error}"));
    let mode = fs::metadata(file).map_err(failed)?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(Failure::new(format!("the local token {shown} is readable by other users (mode {mode:o})"))
            .with_hint(format!("remove it: the next `mcp-aggregator serve` creates a new one; rm '{shown}'")));
    }
    let secret = fs::read_to_string(file).map_err(failed)?.trim().to_owned();
    if secret.len() < http_server::MIN_SECURE_TOKEN_CHARS || !secret.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Failure::new(format!("there is no usable token in {shown}"))
            .with_hint(format!("remove it: the next `mcp-aggregator serve` creates a new one; rm '{shown}'")));
    }
    Ok(secret)
}

/// A link that signs in to the console once, printed on the terminal where the service was started.
pub(crate) struct SignInLink {
    code: Mutex<Option<(String, Instant)>>,
    secret: Arc<str>,
}

impl SignInLink {
    /// A new link, and its code.
    pub(crate) fn new(token: &LocalToken) -> (Self, String) {
        let code = http_server::random_secret();
        let link = Self {
            code: Mutex::new(Some((code.clone(), Instant::now() + LINK_LIFETIME))),
            secret: Arc::clone(&token.secret),
        };
        (link, code)
    }

    /// The token, if this is the code of the link and it is unused.
    pub(crate) fn redeem(&self, code: &str) -> Option<Arc<str>> {
        self.redeem_at(code, Instant::now())
    }

    fn redeem_at(&self, code: &str, now: Instant) -> Option<Arc<str>> {
        let mut known = self.code.lock().unwrap_or_else(PoisonError::into_inner);
        let is_right = known.as_ref().is_some_and(|(known, until)| known == code && now < *until);
        is_right.then(|| {
            *known = None;
            Arc::clone(&self.secret)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_is_made_once_and_for_its_user_alone() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let token = LocalToken::find_or_create(&data).unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!(fs::metadata(&token.file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(&data).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(token.secret.len(), 64);
        let again = LocalToken::find_or_create(&data).unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!(again.secret, token.secret);
    }

    #[test]
    fn a_token_that_others_can_read_or_guess_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let token = LocalToken::find_or_create(folder.path()).unwrap_or_else(|failure| panic!("{failure}"));
        fs::set_permissions(&token.file, fs::Permissions::from_mode(0o640)).unwrap();
        let failure = LocalToken::find_or_create(folder.path()).err().unwrap().to_string();
        assert!(failure.contains("is readable by other users (mode 640)") && failure.contains("rm '"), "{failure}");
        assert!(!failure.contains(&*token.secret));
        fs::set_permissions(&token.file, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&token.file, "short").unwrap();
        assert!(read(&token.file).is_err());
    }

    #[test]
    fn a_link_opens_once_and_not_for_ever() {
        let token = LocalToken { secret: "secret".into(), file: PathBuf::new() };
        let (link, code) = SignInLink::new(&token);
        assert_eq!(link.redeem("wrong"), None);
        assert_eq!(link.redeem(&code).as_deref(), Some("secret"));
        assert_eq!(link.redeem(&code), None);
        let (link, code) = SignInLink::new(&token);
        assert_eq!(link.redeem_at(&code, Instant::now() + LINK_LIFETIME), None);
    }
}

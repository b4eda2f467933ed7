//! The key that encrypts credentials, and its sources.

use std::fmt;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD};

/// The variable that holds the key, in hex or base64.
pub const KEY_VARIABLE: &str = "MCP_CREDENTIAL_KEY";

/// The file in the data directory that holds a generated key.
pub const KEY_FILE: &str = "credential.key";

const LENGTH: usize = 32;

/// A secret key of 256 bits.
#[derive(Clone, PartialEq, Eq)]
pub struct CredentialKey([u8; LENGTH]);

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The given value is not a key.
    #[error("{from} is not a key: it must be 32 bytes, in hex (64 digits) or base64")]
    Malformed {
        /// Its source, for the user.
        from: String,
    },
    /// The key file can be read by others.
    #[error("the key file `{}` can be read by others (mode {mode:o})", path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The key file cannot be read or created.
    #[error("could not {operation} the key file `{}`", path.display())]
    File {
        /// The operation: read or create.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The system provides no random bytes.
    #[error("could not create a key")]
    NoRandomness(#[source] getrandom::Error),
}

impl KeyError {
    /// What a person can do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Malformed { from } if from != KEY_VARIABLE => {
                format!(
                    "restore the right file, or set {KEY_VARIABLE}: encrypted credentials cannot be read with another key"
                )
            }
            Self::Malformed { .. } => format!("`openssl rand -hex 32` creates one for {KEY_VARIABLE}"),
            Self::Exposed { path, .. } => format!("if nobody has read it: chmod 600 '{}'", path.display()),
            Self::File { .. } => format!("set {KEY_VARIABLE} to work without a key file"),
            Self::NoRandomness(_) => format!("set {KEY_VARIABLE} to a key created elsewhere"),
        }
    }
}

impl CredentialKey {
    /// The key to use: the value of the variable, or else the file in the data directory, which is created if it does
    /// not exist.
    pub fn find(variable: Option<&str>, data_dir: &Path) -> Result<Self, KeyError> {
        match variable {
            Some(text) => Self::parse(text).ok_or_else(|| KeyError::Malformed { from: KEY_VARIABLE.to_owned() }),
            None => Self::from_file(&data_dir.join(KEY_FILE)),
        }
    }

    /// A new random key.
    pub fn generate() -> Result<Self, KeyError> {
        let mut bytes = [0; LENGTH];
        getrandom::fill(&mut bytes).map_err(KeyError::NoRandomness)?;
        Ok(Self(bytes))
    }

    /// 32 bytes in hex or base64.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if let Some(bytes) = from_hex(text) {
            return Some(Self(bytes));
        }
        let engines = [STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD];
        let bytes = engines.iter().find_map(|engine| engine.decode(text).ok())?;
        bytes.try_into().ok().map(Self)
    }

    /// The key in a file, which is created if it does not exist.
    pub fn from_file(path: &Path) -> Result<Self, KeyError> {
        match read(path) {
            Err(KeyError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            result => return result,
        }
        match create(path, &Self::generate()?) {
            // Another program created it in the meantime; use that key.
            Err(source) if source.kind() == io::ErrorKind::AlreadyExists => {}
            Err(source) => return Err(KeyError::File { operation: "make", path: path.to_owned(), source }),
            Ok(()) => tracing::info!(path = %path.display(), "created a key for credentials"),
        }
        read(path)
    }

    pub(crate) fn bytes(&self) -> &[u8; LENGTH] {
        &self.0
    }
}

impl fmt::Debug for CredentialKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CredentialKey(..)")
    }
}

fn from_hex(text: &str) -> Option<[u8; LENGTH]> {
    if text.len() != LENGTH * 2 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; LENGTH];
    for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
        let digits = std::str::from_utf8(digits).expect("hex digits are ASCII");
        *byte = u8::from_str_radix(digits, 16).expect("both are hex digits");
    }
    Some(bytes)
}

fn read(path: &Path) -> Result<CredentialKey, KeyError> {
    let failed = |source| KeyError::File { operation: "read", path: path.to_owned(), source };
    #[cfg(unix)]
    {
        let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(path).map_err(failed)?.permissions()) & 0o777;
        if mode & 0o077 != 0 {
            return Err(KeyError::Exposed { path: path.to_owned(), mode });
        }
    }
    let text = fs::read_to_string(path).map_err(failed)?;
    CredentialKey::parse(&text).ok_or_else(|| KeyError::Malformed { from: format!("`{}`", path.display()) })
}

/// Creates the file completely or not at all: a half-written key would make the credentials unreadable forever.
fn create(path: &Path, key: &CredentialKey) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)?;

    let draft = folder.join(format!(".{KEY_FILE}.{}", uuid::Uuid::new_v4()));
    let written = write_draft(&draft, key).and_then(|()| {
        // Unlike a rename, a hard link does not replace a file that another program created in the meantime.
        fs::hard_link(&draft, path)?;
        fs::File::open(folder)?.sync_all()
    });
    match fs::remove_file(&draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(path = %draft.display(), %error, "failed to remove a temporary key file");
        }
        _ => {}
    }
    written
}

fn write_draft(draft: &Path, key: &CredentialKey) -> io::Result<()> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(draft)?;
    let hex: String = key.0.iter().map(|byte| format!("{byte:02x}")).collect();
    writeln!(file, "{hex}")?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191A1B1C1D1E1F";

    #[test]
    fn a_key_is_read_in_hex_and_in_base64() {
        let key = CredentialKey::parse(HEX).unwrap();
        for text in ["AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=", " AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8\n"] {
            assert_eq!(CredentialKey::parse(text).unwrap(), key);
        }
    }

    #[test]
    fn what_is_no_key_is_refused_and_not_repeated() {
        for text in ["", "short", &HEX[1..], &format!("{HEX}00"), &HEX.replace('0', "x")] {
            let error = CredentialKey::find(Some(text), Path::new("/nowhere")).unwrap_err();
            assert_eq!(
                error.to_string(),
                "MCP_CREDENTIAL_KEY is not a key: it must be 32 bytes, in hex (64 digits) or base64"
            );
            assert!(error.hint().contains("openssl rand -hex 32"));
        }
    }

    #[test]
    fn a_missing_key_file_is_made_once_and_for_its_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let data_dir = folder.path().join("new/data");
        let keys: Vec<CredentialKey> = std::thread::scope(|scope| {
            let makers: Vec<_> =
                (0..8).map(|_| scope.spawn(|| CredentialKey::find(None, &data_dir).unwrap())).collect();
            makers.into_iter().map(|maker| maker.join().unwrap()).collect()
        });
        assert!(keys.windows(2).all(|pair| pair[0] == pair[1]));
        let names: Vec<_> = fs::read_dir(&data_dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, [KEY_FILE]);
        let mode =
            std::os::unix::fs::PermissionsExt::mode(&fs::metadata(data_dir.join(KEY_FILE)).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_key_file_that_others_can_read_is_refused_with_a_hint() {
        let folder = tempfile::tempdir().unwrap();
        CredentialKey::find(None, folder.path()).unwrap();
        let path = folder.path().join(KEY_FILE);
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
        let error = CredentialKey::find(None, folder.path()).unwrap_err();
        assert!(matches!(error, KeyError::Exposed { mode: 0o644, .. }), "{error}");
        assert!(error.hint().contains("chmod 600"));
    }

    #[test]
    fn a_debug_print_does_not_show_the_key() {
        assert_eq!(format!("{:?}", CredentialKey::parse(HEX).unwrap()), "CredentialKey(..)");
    }
}

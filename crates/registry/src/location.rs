//! Where the registry is kept: a file, or a PostgreSQL server.

use std::fmt;
use std::path::{Path, PathBuf};

/// Where the registry is kept.
#[derive(Clone, PartialEq, Eq)]
pub enum Location {
    /// A SQLite file. It and its folder are made where they are missing.
    File(PathBuf),
    /// A PostgreSQL server, as `postgres://user:password@host:port/database?sslmode=...`.
    Postgres(String),
}

/// A text that names no place we know.
#[derive(Debug, thiserror::Error)]
#[error("`{scheme}` databases are not known; use postgres://... or leave it out for a file in the data directory")]
pub struct UnknownDatabase {
    scheme: String,
}

/// The file's name in a data directory.
const FILE_NAME: &str = "registry.db";

impl Location {
    /// The usual file in a data directory.
    pub fn in_folder(data_dir: &Path) -> Self {
        Self::File(data_dir.join(FILE_NAME))
    }

    /// What a user writes after `--database`: a PostgreSQL address, or the path of a file, with or without `sqlite:`.
    pub fn parse(text: &str) -> Result<Self, UnknownDatabase> {
        let Some((scheme, rest)) = text.split_once(':') else { return Ok(Self::File(text.into())) };
        match scheme {
            "postgres" | "postgresql" => Ok(Self::Postgres(text.to_owned())),
            "sqlite" | "file" => Ok(Self::File(rest.strip_prefix("//").unwrap_or(rest).into())),
            _ if rest.starts_with("//") => Err(UnknownDatabase { scheme: scheme.to_owned() }),
            _ => Ok(Self::File(text.into())),
        }
    }
}

/// Without the password.
impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Postgres(url) => f.write_str(&without_password(url)),
        }
    }
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Location({self})")
    }
}

fn without_password(url: &str) -> String {
    // Options may hold a password too (`?password=`), and none of them is needed to know which database is meant.
    if url.contains("://") { catalog::mask::place(url) } else { "postgres".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_is_shown_without_its_password() {
        for (written, shown) in [
            ("postgres://me:s3cret@host:5432/db?sslmode=require", "postgres://me@host:5432/db"),
            ("postgres://me:s3c@ret@host/db", "postgres://me@host/db"),
            ("postgres://host/db?password=s3cret", "postgres://host/db"),
            ("postgres://me:s3c?ret@host/db", "postgres://me@host/db"),
            ("postgres://me:s3c/ret@host/db", "postgres://me@host/db"),
            ("postgres:s3cret", "postgres"),
        ] {
            let location = Location::parse(written).unwrap();
            assert_eq!(location.to_string(), shown);
            assert!(!format!("{location:?}").contains("s3c"));
        }
    }

    #[test]
    fn a_path_is_a_file_and_other_databases_are_refused_by_name() {
        assert_eq!(Location::parse("sqlite:///var/x.db").unwrap(), Location::File("/var/x.db".into()));
        assert_eq!(Location::parse("x.db").unwrap(), Location::File("x.db".into()));
        assert!(Location::parse("mysql://host/db").unwrap_err().to_string().contains("`mysql`"));
    }
}

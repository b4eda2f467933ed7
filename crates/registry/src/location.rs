//! The location of the registry: a file, or a PostgreSQL server.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The location of the registry.
#[derive(Clone, PartialEq, Eq)]
pub enum Location {
    /// A SQLite file. It and its folder are created if they do not exist.
    File(PathBuf),
    /// A schema of a database on a PostgreSQL server.
    Postgres(PostgresLocation),
}

/// A schema of a database on a PostgreSQL server.
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresLocation {
    /// The database, as `postgres://user:password@host:port/database?sslmode=...`.
    pub url: String,
    /// The schema of our tables.
    pub schema: SchemaName,
}

/// The name of a schema that never needs escapes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaName(String);

/// An invalid schema name.
#[derive(Debug, thiserror::Error)]
#[error(
    "`{name}` cannot be the name of a schema: it must have 1 to 63 letters, digits, `_` or `-`, and start with a \
     letter or `_`, but not with `pg_`"
)]
pub struct InvalidSchemaName {
    name: String,
}

/// PostgreSQL truncates longer names.
const MAX_SCHEMA_NAME_LEN: usize = 63;

impl SchemaName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for SchemaName {
    fn default() -> Self {
        Self("mcp".to_owned())
    }
}

impl FromStr for SchemaName {
    type Err = InvalidSchemaName;

    fn from_str(name: &str) -> Result<Self, InvalidSchemaName> {
        let begins = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
        let is_plain = name.chars().all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-'));
        // PostgreSQL reserves these.
        let is_reserved = name.to_ascii_lowercase().starts_with("pg_");
        if begins && is_plain && !is_reserved && name.len() <= MAX_SCHEMA_NAME_LEN {
            return Ok(Self(name.to_owned()));
        }
        Err(InvalidSchemaName { name: name.to_owned() })
    }
}

/// An unsupported location.
#[derive(Debug, thiserror::Error)]
#[error("`{scheme}` databases are not supported; use postgres://... or omit it to use a file in the data directory")]
pub struct UnknownDatabase {
    scheme: String,
}

/// The file's name in a data directory.
const FILE_NAME: &str = "registry.db";

impl Location {
    /// The default file in a data directory.
    pub fn in_folder(data_dir: &Path) -> Self {
        Self::File(data_dir.join(FILE_NAME))
    }

    /// The default schema of a PostgreSQL database.
    pub fn postgres(url: impl Into<String>) -> Self {
        Self::Postgres(PostgresLocation { url: url.into(), schema: SchemaName::default() })
    }

    /// Parses the value of `--database`: a PostgreSQL address, or the path of a file, with or without `sqlite:`.
    pub fn parse(text: &str) -> Result<Self, UnknownDatabase> {
        let Some((scheme, rest)) = text.split_once(':') else { return Ok(Self::File(text.into())) };
        match scheme {
            "postgres" | "postgresql" => Ok(Self::postgres(text)),
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
            Self::Postgres(PostgresLocation { url, schema }) if *schema == SchemaName::default() => {
                f.write_str(&without_password(url))
            }
            Self::Postgres(PostgresLocation { url, schema }) => {
                write!(f, "{} (schema {})", without_password(url), schema.as_str())
            }
        }
    }
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Location({self})")
    }
}

fn without_password(url: &str) -> String {
    // Options may contain a password, too (`?password=`), and are not needed to identify the database.
    if url.contains("://") { catalog::mask::address(url) } else { "postgres".to_owned() }
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
    fn another_schema_is_another_place_and_its_name_needs_no_escapes() {
        let Location::Postgres(usual) = Location::postgres("postgres://host/db") else { unreachable!("it is one") };
        let other = PostgresLocation { schema: "team_a".parse().unwrap(), ..usual.clone() };
        assert_eq!(Location::Postgres(other).to_string(), "postgres://host/db (schema team_a)");
        assert_eq!(usual.schema.as_str(), "mcp");
        for bad in ["", "1a", "a.b", "a\"b", "a b", "pg_mine", "PG_x", "é", &"a".repeat(64)] {
            assert!(bad.parse::<SchemaName>().unwrap_err().to_string().contains(bad), "{bad}");
        }
    }

    #[test]
    fn a_path_is_a_file_and_other_databases_are_refused_by_name() {
        assert_eq!(Location::parse("sqlite:///var/x.db").unwrap(), Location::File("/var/x.db".into()));
        assert_eq!(Location::parse("x.db").unwrap(), Location::File("x.db".into()));
        assert!(Location::parse("mysql://host/db").unwrap_err().to_string().contains("`mysql`"));
    }
}

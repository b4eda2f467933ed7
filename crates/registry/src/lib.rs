//! What must survive a restart: servers, their tools and their history, executions, settings, skills, bindings, the
//! audit log.
//! SQLite in a file, or PostgreSQL; the same behaviour on both.
//!
//! This crate knows nothing of HTTP, clients or processes. Only this crate contains SQL.
//!
//! # Layout
//! - [`Store`] (`store.rs`): opened once with a [`Location`] and a [`CredentialKey`], cloned freely. Its operations are
//!   next to the types they are about: `servers.rs`, `tools.rs`, `history.rs`, `executions.rs`, `settings.rs`, `skills.rs`,
//!   `bindings.rs`, `audit.rs`, `backup.rs`, `oauth_grants.rs`, `limits.rs`
//! - [`Transaction`] (`transaction.rs`): changes that are committed together, with their rows in the audit log
//! - [`Error`] (`error.rs`): whether to retry, to change the request, or to notify an operator
//! - `enums.rs`, `ids.rs`, `timestamp.rs`, `json.rs`, `page.rs`: small types that all others use
//! - [`ConnectionConfig`] (`config.rs`): the connection config, masked unless revealed; `key.rs`, `seal.rs`: its
//!   encryption
//! - `migrations.rs` and the folder `migrations`: versions of the schema
//! - `database.rs` and below: one interface for both databases. Statements are written once, for PostgreSQL
//!
//! ```no_run
//! use registry::{ConnectionConfig, CredentialKey, Location, NewServer, Store, Transport};
//!
//! # async fn example(data_dir: &std::path::Path, config: ConnectionConfig) -> Result<(), Box<dyn std::error::Error>> {
//! let key = CredentialKey::find(std::env::var(registry::KEY_VARIABLE).ok().as_deref(), data_dir)?;
//! let store = Store::open(&Location::in_folder(data_dir), &key).await?;
//! let server = store.insert_server(NewServer::new("github", Transport::Http, config)).await?;
//! assert_eq!(store.find_server("github").await?.id, server.id);
//! # Ok(())
//! # }
//! ```

mod adoption;
mod audit;
mod backup;
mod bindings;
mod classifications;
mod config;
mod database;
mod enums;
mod error;
mod executions;
mod history;
mod ids;
mod json;
mod key;
mod limits;
mod location;
mod migrations;
mod oauth_grants;
mod page;
mod profiles;
mod seal;
mod select;
mod servers;
mod settings;
mod short_str;
mod skills;
mod store;
mod timestamp;
mod tool_uses;
mod tools;
mod transaction;

pub use audit::{Actor, AuditFilter, AuditNote, AuditRecord};
pub use backup::{Existing, ImportReport, Secrets};
pub use bindings::{BindingRecord, MAX_BINDINGS_OF_DOCUMENT, NewBinding, Section};
pub use catalog::{Principal, Role};
pub use classifications::{LlmClassification, SuggestionRecord};
pub use config::{ConnectionConfig, MASK, masked_address};
pub use enums::{
    Deployment, EventKind, ExecutionStatus, LimitKind, Origin, SectionKind, Source, Status, Transport, UnknownValue,
};
pub use error::{Cause, Error, OpenError};
pub use executions::{Batch, ExecutionFilter, ExecutionRecord};
pub use history::HistoryEvent;
pub use ids::{BindingId, ExecutionId, ServerId, ToolId};
pub use json::RawJson;
pub use key::{CredentialKey, KEY_FILE, KEY_VARIABLE, KeyError};
pub use limits::{CallLimit, CallRate, LimitCount, LimitRecord, several_calls};
pub use location::{InvalidSchemaName, Location, PostgresLocation, SchemaName, UnknownDatabase};
pub use oauth_grants::{GrantReplaced, StoredGrant};
pub use page::{Listed, Page, RetentionPolicy};
pub use profiles::ProfileRecord;
pub use seal::UnsealError;
pub use servers::{NewServer, ServerFilter, ServerPatch, ServerRecord, StatusChange, StatusChanged};
pub use short_str::ShortStr;
pub use skills::SkillRecord;
pub use store::Store;
pub use timestamp::{InvalidTimestamp, Timestamp};
pub use tool_uses::ToolUse;
pub use tools::{Classified, Embedding, ListedTool, NameConflicts, ToolChanges, ToolCounts, ToolFilter, ToolRecord};
pub use transaction::Transaction;

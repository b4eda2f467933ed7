//! Export of the whole registry as one JSON value, and import.

use std::collections::{BTreeMap, HashSet};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::bindings::{self, Section};
use crate::database::{Row, values};
use crate::error::Error;
use crate::limits;
use crate::profiles;
use crate::servers;
use crate::settings;
use crate::skills;
use crate::store::{KeyLock, check_key_of};
use crate::{
    CallLimit, ConnectionConfig, Deployment, LimitKind, MASK, NewBinding, NewServer, Origin, Page, ServerFilter,
    ServerId, ServerPatch, ServerRecord, SkillRecord, Store, Timestamp, Transaction, Transport, masked_address,
};

const FORMAT: &str = "mcp-aggregator registry";
const VERSION: u32 = 1;

/// Whether an export contains credentials.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Secrets {
    /// In plain text. Anyone who has the export can read them.
    Revealed,
    /// Masked. A new server that is imported needs them again.
    Masked,
}

/// How an import treats existing servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// They are not changed.
    Kept,
    /// They are replaced. Masked secrets keep their stored values.
    Replaced,
}

/// The result of an import, by server name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ImportReport {
    /// Added servers.
    pub added: Vec<String>,
    /// Replaced servers.
    pub replaced: Vec<String>,
    /// Existing servers that were not changed.
    pub kept: Vec<String>,
    /// Servers whose secrets are missing. They are registered, but disabled.
    pub without_secrets: Vec<String>,
    /// The number of imported settings.
    pub settings: usize,
    /// The number of imported skills.
    pub skills: usize,
    /// The number of imported limits.
    pub limits: usize,
    /// The number of imported profiles.
    pub profiles: usize,
    /// The number of imported bindings.
    pub bindings: usize,
    /// The number of bindings that name an unknown server and were skipped.
    pub bindings_left_out: usize,
}

/// The format of an export.
#[derive(Serialize, Deserialize)]
struct Backup {
    format: String,
    version: u32,
    #[serde(default)]
    exported_at: Option<Timestamp>,
    #[serde(default)]
    servers: Vec<Server>,
    #[serde(default)]
    settings: BTreeMap<String, Value>,
    #[serde(default)]
    skills: Vec<SkillRecord>,
    #[serde(default)]
    bindings: Vec<Binding>,
    #[serde(default)]
    switched_off: Vec<DisabledTool>,
    #[serde(default)]
    limits: Vec<ExportedLimit>,
    #[serde(default)]
    profiles: BTreeMap<String, Value>,
}

#[derive(Serialize, Deserialize)]
struct ExportedLimit {
    kind: LimitKind,
    name: String,
    #[serde(flatten)]
    limit: CallLimit,
}

/// A disabled tool.
#[derive(Serialize, Deserialize)]
struct DisabledTool {
    server: String,
    tool: String,
}

#[derive(Serialize, Deserialize)]
struct Server {
    name: String,
    #[serde(default)]
    description: Option<String>,
    transport_type: Transport,
    connection_config: serde_json::Map<String, Value>,
    #[serde(default)]
    health_check_url: Option<String>,
    #[serde(default)]
    deployment_type: Option<Deployment>,
    #[serde(default = "yes")]
    enabled: bool,
    #[serde(default = "yes")]
    auto_connect: bool,
}

fn yes() -> bool {
    true
}

#[derive(Serialize, Deserialize)]
struct Binding {
    document: String,
    #[serde(flatten)]
    section: Section,
    /// The name of the server: ids differ between registries.
    server: String,
    #[serde(default)]
    inherit_to_children: bool,
}

impl Store {
    /// Exports registered servers, settings, skills, profiles, bindings, limits and disabled tools. Servers of a config
    /// file, discovered tools, executions and the audit log are not included.
    pub async fn export(&self, secrets: Secrets) -> Result<Value, Error> {
        let mut servers = self.servers(&ServerFilter::default(), Page::ALL).await?.items;
        // Their order matters: the first one runs blocks that name no server.
        servers.sort_by_key(|server| server.registered_at);
        let (settings, skills) = (self.settings().await?, self.skills().await?);
        let limits = self.limits().await?.into_iter();
        let bindings = bindings::all(&mut self.read("export bindings").await?).await?;
        let name_of = |id: ServerId| servers.iter().find(|server| server.id == id).map(|server| server.name.clone());
        let bindings: Vec<Binding> = bindings
            .into_iter()
            .filter_map(|record| {
                let NewBinding { document, section, server_id, inherit_to_children } = record.binding;
                Some(Binding { document, section, server: name_of(server_id)?, inherit_to_children })
            })
            .collect();
        let sql = "SELECT s.name AS server, o.original_name AS tool FROM mcp.tool_switches AS o \
            JOIN mcp.external_servers AS s ON s.id = o.source_server_id ORDER BY s.name, o.original_name";
        let mut session = self.read("export disabled tools").await?;
        let off = |row: &mut Row| Ok(DisabledTool { server: row.take("server")?, tool: row.take("tool")? });
        let switched_off = session.all(sql, values![], off).await?;
        let profiles = profiles::all(&mut session).await?.into_iter().map(|profile| (profile.name, profile.spec));
        let registered = servers.iter().filter(|server| server.origin == Origin::Registered);
        Ok(json!(Backup {
            format: FORMAT.to_owned(),
            version: VERSION,
            exported_at: Some(Timestamp::now()),
            servers: registered.map(|server| exported(server, secrets)).collect(),
            settings,
            skills,
            bindings,
            switched_off,
            limits: limits.map(|it| ExportedLimit { kind: it.kind, name: it.name, limit: it.limit }).collect(),
            profiles: profiles.collect(),
        }))
    }

    /// Imports an export: everything or nothing.
    pub async fn import(&self, backup: &Value, existing: Existing) -> Result<ImportReport, Error> {
        let mut transaction = self.transaction("import a registry").await?;
        let report = transaction.import(backup, existing).await?;
        transaction.commit().await?;
        Ok(report)
    }
}

impl Transaction {
    /// As [`Store::import`].
    pub async fn import(&mut self, backup: &Value, existing: Existing) -> Result<ImportReport, Error> {
        let backup = parse_backup(backup)?;
        let Self { session, sealer } = self;
        check_key_of(session, sealer, KeyLock::Shared).await?;
        let mut report = ImportReport { settings: backup.settings.len(), ..ImportReport::default() };
        for server in backup.servers {
            let name = server.name.clone();
            match servers::by_name(session, sealer, &name).await? {
                Some(known) if existing == Existing::Kept || known.origin == Origin::Config => report.kept.push(name),
                Some(known) => {
                    let config = known.connection_config.updated_with(server.connection_config.clone().into());
                    if config.is_masked() {
                        report.without_secrets.push(name.clone());
                    }
                    servers::update(session, sealer, known, server.into_patch(config)).await?;
                    report.replaced.push(name);
                }
                None => {
                    let new = server.into_new();
                    if new.connection_config.is_masked() {
                        report.without_secrets.push(name.clone());
                    }
                    servers::insert(session, sealer, new).await?;
                    report.added.push(name);
                }
            }
        }
        // For existing servers, the tools that are enabled or disabled here stay so.
        let added: HashSet<&String> = report.added.iter().collect();
        let off = backup.switched_off.into_iter().filter(|off| added.contains(&off.server));
        let sql = "INSERT INTO mcp.tool_switches (source_server_id, original_name) \
            SELECT id, $2 FROM mcp.external_servers WHERE name = $1 ON CONFLICT DO NOTHING";
        session.execute_each(sql, off.map(|off| values![off.server, off.tool]).collect()).await?;
        settings::put(session, backup.settings).await?;
        let known = skills::all(session).await?;
        for skill in &backup.skills {
            if existing == Existing::Replaced || known.iter().all(|known| known.id != skill.id) {
                skills::put(session, skill).await?;
                report.skills += 1;
            }
        }
        let known = limits::all(session).await?;
        for ExportedLimit { kind, name, limit } in &backup.limits {
            let is_known = known.iter().any(|known| known.kind == *kind && known.name == *name);
            if existing == Existing::Replaced || !is_known {
                limits::put(session, *kind, name, *limit).await?;
                report.limits += 1;
            }
        }
        let known = profiles::all(session).await?;
        for (name, spec) in &backup.profiles {
            if existing == Existing::Replaced || known.iter().all(|known| known.name != *name) {
                profiles::put(session, name, spec).await?;
                report.profiles += 1;
            }
        }
        let known = bindings::all(session).await?;
        let mut known: HashSet<NewBinding> = known.into_iter().map(|known| known.binding).collect();
        for binding in backup.bindings {
            let Some(server) = servers::by_name(session, sealer, &binding.server).await? else {
                report.bindings_left_out += 1;
                continue;
            };
            let new = NewBinding {
                document: binding.document,
                section: binding.section,
                server_id: server.id,
                inherit_to_children: binding.inherit_to_children,
            };
            if !known.contains(&new) {
                bindings::check_number(known.len() as u64)?;
                known.insert(bindings::insert(session, new).await?.binding);
                report.bindings += 1;
            }
        }
        Ok(report)
    }
}

fn exported(server: &ServerRecord, secrets: Secrets) -> Server {
    let connection_config = match (secrets, server.connection_config.masked()) {
        (Secrets::Masked, Value::Object(masked)) => masked,
        _ => server.connection_config.reveal().clone(),
    };
    let health_check_url = match secrets {
        Secrets::Masked => server.health_check_url.as_deref().map(masked_address),
        Secrets::Revealed => server.health_check_url.clone(),
    };
    Server {
        name: server.name.clone(),
        description: server.description.clone(),
        transport_type: server.transport,
        connection_config,
        health_check_url,
        deployment_type: Some(server.deployment),
        enabled: server.enabled,
        auto_connect: server.auto_connect,
    }
}

fn parse_backup(backup: &Value) -> Result<Backup, Error> {
    let invalid = |what: String| Error::Invalid { what };
    // A completely different format is reported before its members are checked.
    if !backup.get("format").is_some_and(Value::is_string) {
        let what = "this is not an exported registry: that is an object with `format`, `version` and `servers`, as `mcp-aggregator export` writes it";
        return Err(invalid(what.to_owned()));
    }
    let backup =
        Backup::deserialize(backup).map_err(|error| invalid(format!("this is not an exported registry: {error}")))?;
    if backup.format != FORMAT || backup.version != VERSION {
        let (format, version) = (backup.format, backup.version);
        return Err(invalid(format!("`{format}` version {version} is not supported, only `{FORMAT}` {VERSION}")));
    }
    Ok(backup)
}

impl Server {
    fn into_new(self) -> NewServer {
        let config = ConnectionConfig::from(self.connection_config);
        let new = NewServer::new(self.name, self.transport_type, config);
        NewServer {
            description: self.description,
            health_check_url: self.health_check_url.filter(|url| !url.contains(MASK)),
            deployment: self.deployment_type.unwrap_or(new.deployment),
            enabled: self.enabled && !new.connection_config.is_masked(),
            auto_connect: self.auto_connect,
            ..new
        }
    }

    fn into_patch(self, config: ConnectionConfig) -> ServerPatch {
        ServerPatch {
            name: None,
            description: Some(self.description),
            transport: Some(self.transport_type),
            // A masked secret keeps the stored value.
            health_check_url: Some(self.health_check_url)
                .filter(|url| !url.as_deref().is_some_and(|url| url.contains(MASK))),
            deployment: self.deployment_type,
            enabled: Some(self.enabled && !config.is_masked()),
            auto_connect: Some(self.auto_connect),
            origin: None,
            connection_config: Some(config),
        }
    }
}

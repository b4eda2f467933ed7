//! The whole registry as one JSON value, and back.

use std::collections::{BTreeMap, HashSet};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::bindings::{self, Section};
use crate::database::{Row, values};
use crate::error::Error;
use crate::servers;
use crate::settings;
use crate::skills;
use crate::store::{KeyLock, check_key_of};
use crate::{
    ConnectionConfig, Deployment, MASK, NewBinding, NewServer, Origin, Page, ServerFilter, ServerId, ServerPatch,
    ServerRecord, SkillRecord, Store, Timestamp, Transaction, Transport, masked_address,
};

const FORMAT: &str = "mcp-aggregator registry";
const VERSION: u32 = 1;

/// Whether what is exported has credentials in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Secrets {
    /// As they are. Who has the export has them.
    Revealed,
    /// Masked. A server that is imported so, and is not known yet, needs them again.
    Masked,
}

/// What happens to servers that are there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// They stay as they are.
    Kept,
    /// They become as the import says. What is masked there stays as it is here.
    Replaced,
}

/// What an import did, by names of servers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ImportReport {
    /// New ones.
    pub added: Vec<String>,
    /// Those that are as the import says now.
    pub replaced: Vec<String>,
    /// Those that were there and were kept.
    pub kept: Vec<String>,
    /// Those whose secrets are missing. They are registered, but switched off.
    pub without_secrets: Vec<String>,
    /// How many settings were set.
    pub settings: usize,
    /// How many skills were taken over.
    pub skills: usize,
    /// How many bindings were made.
    pub bindings: usize,
    /// How many bindings name a server that is not there, and were left out.
    pub bindings_left_out: usize,
}

/// What is written and read.
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
    switched_off: Vec<SwitchedOff>,
}

/// A tool that nobody lists, finds or calls.
#[derive(Serialize, Deserialize)]
struct SwitchedOff {
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
    /// By name: ids differ from one registry to the next.
    server: String,
    #[serde(default)]
    inherit_to_children: bool,
}

impl Store {
    /// Registered servers, settings, skills, bindings, and which tools are off. What a config file says, what is found out by connecting, and what
    /// happened is not in it.
    pub async fn export(&self, secrets: Secrets) -> Result<Value, Error> {
        let mut servers = self.servers(&ServerFilter::default(), Page::ALL).await?.items;
        // Their order means something: the first one runs blocks that name none.
        servers.sort_by_key(|server| server.registered_at);
        let (settings, skills) = (self.settings().await?, self.skills().await?);
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
        let mut session = self.read("export which tools are off").await?;
        let off = |row: &mut Row| Ok(SwitchedOff { server: row.take("server")?, tool: row.take("tool")? });
        let switched_off = session.all(sql, values![], off).await?;
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
        }))
    }

    /// Takes in what was exported, all or nothing.
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
        // Of servers that were there already, what is on and off here counts.
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
    // What has another form altogether is told so before its parts are looked at.
    if !backup.get("format").is_some_and(Value::is_string) {
        let what = "this is not an exported registry: that is an object with `format`, `version` and `servers`, as `mcp-aggregator export` writes it";
        return Err(invalid(what.to_owned()));
    }
    let backup =
        Backup::deserialize(backup).map_err(|error| invalid(format!("this is not an exported registry: {error}")))?;
    if backup.format != FORMAT || backup.version != VERSION {
        let (format, version) = (backup.format, backup.version);
        return Err(invalid(format!("`{format}` version {version} is not known here, only `{FORMAT}` {VERSION}")));
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
            // Where only the mask is left of a secret, what there is stays.
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

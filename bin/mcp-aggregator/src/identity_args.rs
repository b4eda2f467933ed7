//! The identity providers whose tokens the service accepts: options, and `auth` in the config file.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use catalog::Role;
use clap::Args;
use identity::{ClaimRules, ClientSettings, IssuerSettings, check_issuer};
use oauth::Secret;
use serde_json::{Map, Value};

use crate::config::ConfigSource;
use crate::failure::Failure;

/// The member of a config file.
const MEMBER: &str = "auth";

/// Identity providers.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Identity")]
pub(crate) struct IdentityArguments {
    /// Accept the access tokens of this identity provider: its issuer, exactly as in its metadata. Tokens must be issued
    /// for --public-url. May be repeated; more is in `auth` in the file of --config
    #[arg(long, verbatim_doc_comment, value_name = "URL", value_parser = issuer)]
    oauth_issuer: Vec<String>,
    /// The id of this service as a client of the issuer, for sign-ins to the console and for tokens that are no JWT
    #[arg(long, verbatim_doc_comment, value_name = "ID")]
    oauth_client_id: Option<String>,
    /// The file that contains the secret of that client
    #[arg(long, value_name = "FILE", requires = "oauth_client_id")]
    oauth_client_secret_file: Option<PathBuf>,
    /// The claim with the roles of an identity (user, operator, admin), a string or an array; a.b is b in a. Without it,
    /// the scopes mcp:user, mcp:operator and mcp:admin give roles
    #[arg(long, verbatim_doc_comment, value_name = "NAME")]
    role_claim: Option<String>,
    /// The claim with the name of the profile that an identity is bound to
    #[arg(long, value_name = "NAME")]
    profile_claim: Option<String>,
}

/// What options and config say.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct IdentityPlan {
    pub(crate) issuers: Vec<IssuerSettings>,
    pub(crate) rules: ClaimRules,
}

fn issuer(text: &str) -> Result<String, String> {
    check_issuer(text).map(|()| text.to_owned())
}

/// Checks `auth` in a config.
pub(crate) fn check(config: ConfigSource<'_>) -> Result<(), Failure> {
    IdentityArguments::default().plan(Some(config)).map(drop)
}

impl IdentityArguments {
    /// The identity providers, and what their claims mean. There may be none.
    pub(crate) fn plan(self, config: Option<ConfigSource<'_>>) -> Result<IdentityPlan, Failure> {
        let mut plan = config.map(in_config).transpose()?.unwrap_or_default();
        for issuer in self.oauth_issuer {
            if plan.issuers.iter().all(|known| known.issuer != issuer) {
                plan.issuers.push(IssuerSettings { issuer, client: None });
            }
        }
        if let Some(id) = self.oauth_client_id {
            let secret = self.oauth_client_secret_file.as_deref().map(secret).transpose()?;
            let [only] = plan.issuers.as_mut_slice() else { return Err(client_of_whom(plan.issuers.len())) };
            only.client = Some(ClientSettings { id, secret });
        }
        plan.rules.role_claim = self.role_claim.or(plan.rules.role_claim);
        plan.rules.profile_claim = self.profile_claim.or(plan.rules.profile_claim);
        let claim = [("--role-claim", &plan.rules.role_claim), ("--profile-claim", &plan.rules.profile_claim)];
        match claim.iter().find(|(_, claim)| claim.is_some()) {
            Some((option, _)) if plan.issuers.is_empty() => {
                let message = format!("{option} needs an identity provider, whose tokens have claims");
                Err(Failure::usage(message).with_hint("add --oauth-issuer URL"))
            }
            _ => Ok(plan),
        }
    }
}

fn client_of_whom(issuers: usize) -> Failure {
    match issuers {
        0 => Failure::usage("--oauth-client-id needs an identity provider").with_hint("add --oauth-issuer URL"),
        _ => Failure::usage("--oauth-client-id belongs to one issuer, and there are several").with_hint(
            "write them into the config: \"auth\": {\"issuers\": [{\"issuer\": \"https://…\", \"clientId\": \"…\", \
             \"clientSecretFile\": \"…\"}]}",
        ),
    }
}

/// The secret in a file.
fn secret(file: &Path) -> Result<Secret, Failure> {
    let shown = file.display();
    let text = fs::read_to_string(file).map_err(|error| {
        Failure::new(format!("could not read the client secret {shown} (--oauth-client-secret-file): {error}"))
            .with_hint("the file must exist and be readable by the user of the service")
    })?;
    if fs::metadata(file).is_ok_and(|metadata| metadata.permissions().mode() & 0o004 != 0) {
        tracing::warn!(file = %shown, "other users of this machine can read the client secret; restrict it with `chmod 600`");
    }
    match text.trim() {
        "" => Err(Failure::new(format!("the client secret file {shown} is empty"))
            .with_hint("write the secret of the client into it; a public client has none, and needs no file")),
        secret => Ok(Secret::from(secret)),
    }
}

fn in_config(config: ConfigSource<'_>) -> Result<IdentityPlan, Failure> {
    let document = config.document()?;
    let wrong = |what: String| Failure::new(format!("{}: {what}", config.path.display()));
    let members = match document.get(MEMBER) {
        None => return Ok(IdentityPlan::default()),
        Some(Value::Object(members)) => members,
        Some(_) => return Err(wrong(format!("`{MEMBER}` must be an object"))),
    };
    let mut plan = IdentityPlan::default();
    for (name, value) in members {
        let text = || match value {
            Value::String(text) if !text.is_empty() => Ok(Some(text.clone())),
            _ => Err(wrong(format!("`{MEMBER}.{name}` must be the name of a claim"))),
        };
        match name.as_str() {
            "issuers" => plan.issuers = issuers(value).map_err(wrong)?,
            "roleClaim" | "role_claim" => plan.rules.role_claim = text()?,
            "profileClaim" | "profile_claim" => plan.rules.profile_claim = text()?,
            "profiles" => plan.rules.profile_of_role = profiles(value).map_err(wrong)?,
            other => {
                let known = "known are issuers, roleClaim, profileClaim and profiles";
                return Err(wrong(format!("`{MEMBER}.{other}` is unknown; {known}")));
            }
        }
    }
    // A secret that cannot be read is a failure of its own.
    for settings in &mut plan.issuers {
        let file = settings.client.as_mut().and_then(|client| client.secret.as_mut());
        if let Some(file) = file {
            let folder = config.path.parent().unwrap_or(Path::new("."));
            *file = secret(&folder.join(file.reveal()))?;
        }
    }
    Ok(plan)
}

/// The issuers in a config, each its address, or an object with its client. In place of a secret is the name of its file.
fn issuers(value: &Value) -> Result<Vec<IssuerSettings>, String> {
    let Value::Array(items) = value else { return Err(format!("`{MEMBER}.issuers` must be an array")) };
    let mut issuers: Vec<IssuerSettings> = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let place = format!("`{MEMBER}.issuers[{index}]`");
        let settings = match item {
            Value::String(issuer) => IssuerSettings { issuer: issuer.clone(), client: None },
            Value::Object(members) => settings(members, &place)?,
            _ => return Err(format!("{place} must be an address, or an object with `issuer`")),
        };
        check_issuer(&settings.issuer).map_err(|why| format!("{place}: {:?}: {why}", settings.issuer))?;
        if issuers.iter().any(|known| known.issuer == settings.issuer) {
            return Err(format!("{place}: {} is there twice", settings.issuer));
        }
        issuers.push(settings);
    }
    Ok(issuers)
}

fn settings(members: &Map<String, Value>, place: &str) -> Result<IssuerSettings, String> {
    let (mut issuer, mut id, mut file) = (None, None, None);
    for (name, value) in members {
        let text = || match value {
            Value::String(text) if !text.is_empty() => Ok(Some(text.clone())),
            _ => Err(format!("{place}: `{name}` must be a string")),
        };
        match name.as_str() {
            "issuer" => issuer = text()?,
            "clientId" | "client_id" => id = text()?,
            "clientSecretFile" | "client_secret_file" => file = text()?,
            "clientSecret" | "client_secret" => {
                return Err(format!("{place}: a secret must not be in a config; name a file with `clientSecretFile`"));
            }
            other => return Err(format!("{place}: `{other}` is unknown")),
        }
    }
    let issuer = issuer.ok_or(format!("{place}: `issuer` is missing"))?;
    let client = match (id, file) {
        (Some(id), file) => Some(ClientSettings { id, secret: file.map(Secret::from) }),
        (None, Some(_)) => return Err(format!("{place}: `clientSecretFile` needs `clientId`")),
        (None, None) => None,
    };
    Ok(IssuerSettings { issuer, client })
}

fn profiles(value: &Value) -> Result<Vec<(Role, String)>, String> {
    let Value::Object(members) = value else {
        return Err(format!("`{MEMBER}.profiles` must be an object, with a profile for each role"));
    };
    let read = |(role, profile): (&String, &Value)| match (Role::named(role), profile) {
        (None, _) => Err(format!("`{MEMBER}.profiles.{role}`: there is no such role; use user, operator or admin")),
        (Some(role), Value::String(profile)) if !profile.is_empty() => Ok((role, profile.clone())),
        (Some(role), _) => Err(format!("`{MEMBER}.profiles.{role}` must be the name of a profile")),
    };
    members.iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn planned(arguments: IdentityArguments, auth: &Value) -> Result<IdentityPlan, Failure> {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("secret"), " hunter2\n").unwrap();
        fs::write(folder.path().join("empty"), "\n").unwrap();
        let bytes = json!({"mcpServers": {}, "auth": auth}).to_string();
        let path = folder.path().join("mcp.json");
        arguments.plan(Some(ConfigSource { path: &path, bytes: bytes.as_bytes() }))
    }

    #[test]
    fn options_and_config_are_combined() {
        let auth = json!({
            "issuers": ["https://a.example", {"issuer": "https://b.example", "clientId": "mcp", "clientSecretFile": "secret"}],
            "roleClaim": "roles", "profiles": {"user": "readers"}
        });
        let arguments = IdentityArguments {
            oauth_issuer: vec!["https://a.example".to_owned(), "https://c.example".to_owned()],
            role_claim: Some("groups".to_owned()),
            ..IdentityArguments::default()
        };
        let plan = planned(arguments, &auth).unwrap();
        let issuers: Vec<&str> = plan.issuers.iter().map(|it| it.issuer.as_str()).collect();
        assert_eq!(issuers, ["https://a.example", "https://b.example", "https://c.example"]);
        let client = plan.issuers[1].client.as_ref().unwrap();
        assert_eq!((client.id.as_str(), client.secret.as_ref().unwrap().reveal()), ("mcp", "hunter2"));
        assert_eq!(plan.rules.role_claim.as_deref(), Some("groups"));
        assert_eq!(plan.rules.profile_of_role, [(Role::User, "readers".to_owned())]);
        assert_eq!(IdentityArguments::default().plan(None).unwrap(), IdentityPlan::default());
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let a = "https://a.example";
        for (auth, part) in [
            (json!([]), "`auth` must be an object"),
            (json!({"issuer": a}), "`auth.issuer` is unknown"),
            (json!({"issuers": a}), "must be an array"),
            (json!({"issuers": ["http://a.example"]}), "expected https"),
            (json!({"issuers": [a, a]}), "twice"),
            (json!({"issuers": [{"clientId": "x"}]}), "`issuer` is missing"),
            (json!({"issuers": [{"issuer": a, "clientSecret": "hunter2"}]}), "clientSecretFile"),
            (json!({"issuers": [{"issuer": a, "clientSecretFile": "secret"}]}), "needs `clientId`"),
            (json!({"issuers": [{"issuer": a, "clientId": "x", "clientSecretFile": "none"}]}), "could not read"),
            (json!({"issuers": [{"issuer": a, "clientId": "x", "clientSecretFile": "empty"}]}), "is empty"),
            (json!({"issuers": [a], "profiles": {"root": "x"}}), "no such role"),
            (json!({"roleClaim": "roles"}), "needs an identity provider"),
            (json!({"issuers": [a], "roleClaim": 7}), "name of a claim"),
        ] {
            let message = planned(IdentityArguments::default(), &auth).unwrap_err().message;
            assert!(message.contains(part) && !message.contains("hunter2"), "{auth}: {message}");
        }
        let client = || IdentityArguments { oauth_client_id: Some("x".to_owned()), ..IdentityArguments::default() };
        assert!(client().plan(None).unwrap_err().message.contains("needs an identity provider"));
        let two = json!({"issuers": [a, "https://b.example"]});
        assert!(planned(client(), &two).unwrap_err().message.contains("several"));
    }
}

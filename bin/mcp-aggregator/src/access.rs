//! Who can use the service, as configured at the start and as reported to users.

use std::sync::Arc;

use catalog::Role;
use http_server::{CertificateRules, LocalAccess, ProtectedResource, Tokens};
use identity::{SignIns, Verifier};

use crate::failure::Failure;
use crate::local_token::{LocalToken, SignInLink};
use crate::storage::StorageArguments;

/// The credentials that the service accepts.
pub(crate) struct Access {
    pub(crate) tokens: Option<Arc<Tokens>>,
    /// Whose identities are accepted beside the tokens.
    pub(crate) verifier: Option<Arc<Verifier>>,
    /// What clients with a certificate may do, if they are asked for one.
    pub(crate) client_certificates: Option<CertificateRules>,
    pub(crate) local: Arc<LocalAccess>,
    pub(crate) local_token: Option<LocalToken>,
    /// On systems that do not report the user of a connection: a link that signs in to the console, and its code.
    link: Option<(Arc<SignInLink>, String)>,
}

impl Access {
    /// Requires one of the tokens. Without tokens, accepts the user of this process, and the local token, which is
    /// created in the data directory.
    ///
    /// With identity providers or client certificates only, the local token is accepted as well: commands on this
    /// machine have no other way.
    pub(crate) fn new(
        tokens: Option<Tokens>,
        verifier: Option<Verifier>,
        client_certificates: Option<CertificateRules>,
        storage: &StorageArguments,
    ) -> Result<Self, Failure> {
        let (tokens, local_token) = match tokens {
            None if verifier.is_none() && client_certificates.is_none() => {
                return Self::without_tokens(LocalAccess::of_this_user(), storage);
            }
            None => {
                let token = LocalToken::find_or_create(&storage.folder()?)?;
                let tokens = Tokens::read(&format!("local:{}", token.secret))
                    .map_err(|error| Failure::new(format!("{} cannot be used: {error}", token.file.display())))?;
                (tokens, Some(token))
            }
            Some(tokens) => (tokens, None),
        };
        let local = Arc::new(LocalAccess::new(rustix::process::geteuid().as_raw(), None));
        Ok(Self {
            tokens: Some(Arc::new(tokens)),
            verifier: verifier.map(Arc::new),
            client_certificates,
            local,
            local_token,
            link: None,
        })
    }

    /// What accepts the tokens of identity providers, which are for `url`.
    pub(crate) fn resource(&self, url: &str) -> Option<ProtectedResource> {
        self.verifier.as_ref().map(|verifier| ProtectedResource::new(Arc::clone(verifier), url))
    }

    fn without_tokens(local: LocalAccess, storage: &StorageArguments) -> Result<Self, Failure> {
        let token = storage.folder().and_then(|folder| LocalToken::find_or_create(&folder));
        let token = match token {
            Ok(token) => token,
            // It is only needed on systems that do not report the user of a connection.
            Err(failure) if local.knows_users() => {
                tracing::warn!(why = failure.message, "there is no local token");
                return Ok(Self {
                    tokens: None,
                    verifier: None,
                    client_certificates: None,
                    local: Arc::new(local),
                    local_token: None,
                    link: None,
                });
            }
            Err(failure) => return Err(failure),
        };
        let link = (!local.knows_users()).then(|| SignInLink::new(&token)).map(|(link, code)| (Arc::new(link), code));
        let local = local
            .with_token(&token.secret, &token.file.display().to_string())
            .map_err(|error| Failure::new(format!("{} cannot be used: {error}", token.file.display())))?;
        Ok(Self {
            tokens: None,
            verifier: None,
            client_certificates: None,
            local: Arc::new(local),
            local_token: Some(token),
            link,
        })
    }

    /// The sign-ins to the console at `url`.
    pub(crate) fn sign_ins(&self, url: &str) -> Option<Arc<SignIns>> {
        let redirect_uri = format!("{url}{}", console::SIGN_IN_CALLBACK);
        SignIns::new(self.verifier.as_ref()?, url, redirect_uri).map(Arc::new)
    }

    /// Whether every client has to send a token.
    pub(crate) fn needs_token(&self) -> bool {
        self.tokens.is_some() || !self.local.knows_users()
    }

    /// The name of the token with this secret, if there is one.
    pub(crate) fn resolve_principal(&self) -> console::ResolvePrincipal {
        let (tokens, local) = (self.tokens.clone(), Arc::clone(&self.local));
        Arc::new(move |secret: &str| match &tokens {
            Some(tokens) => tokens.owner_of(secret),
            None => local.owner_of(secret),
        })
    }

    /// Where a user finds a valid token.
    pub(crate) fn token_place(&self) -> String {
        match &self.local_token {
            Some(token) => format!("the one in {}", token.file.display()),
            None => "one from the token file, or the one in MCP_AGGREGATOR_TOKEN".to_owned(),
        }
    }

    /// What accepts the code of a sign-in link.
    pub(crate) fn redeem_code(&self) -> console::RedeemCode {
        let link = self.link.as_ref().map(|(link, _)| Arc::clone(link));
        Box::new(move |code| link.as_ref()?.redeem(code))
    }

    /// The address of the console below `url`, printed on the terminal where the service was started.
    pub(crate) fn console_address(&self, url: &str) -> String {
        match &self.link {
            Some((_, code)) => format!("{url}/login?code={code} (signs in once, within ten minutes)"),
            None => format!("{url}/"),
        }
    }

    /// Who can use the service, in one sentence.
    pub(crate) fn reachable_by(&self) -> String {
        let issuers = self.verifier.as_ref().map(|verifier| {
            let issuers = verifier.issuers().collect::<Vec<_>>().join(" or ");
            format!("anyone to whom {issuers} issues a token for this service, and ")
        });
        let certified = self.client_certificates.as_ref().map(|_| "anyone with a client certificate, and ");
        if issuers.is_some() || certified.is_some() {
            let also = match &self.local_token {
                Some(token) => format!("the token in {}", token.file.display()),
                None => self.tokens.as_deref().map(which_token).unwrap_or_default(),
            };
            let (issuers, certified) = (issuers.unwrap_or_default(), certified.unwrap_or_default());
            return format!("{issuers}{certified}anyone with {also}");
        }
        if let Some(tokens) = &self.tokens {
            return format!("anyone with {}", which_token(tokens));
        }
        match (&self.local_token, self.local.knows_users()) {
            (_, true) => format!("{} on this machine; no tokens are set", users(self.local.uid())),
            (Some(token), false) => format!(
                "anyone on this machine with the token in {}; no other tokens are set, and this system does not report \
                 the user of a connection",
                token.file.display()
            ),
            (None, false) => "nobody: there is no token".to_owned(),
        }
    }
}

fn which_token(tokens: &Tokens) -> String {
    let principals = tokens.principals();
    let of_role = |role: &Role| (*role, principals.iter().filter(|principal| principal.role() == *role).count());
    let roles: Vec<_> = Role::ALL.iter().rev().map(of_role).filter(|(_, count)| *count > 0).collect();
    let roles = match roles.as_slice() {
        [] | [(Role::Admin, _)] => String::new(),
        roles => {
            let shown: Vec<String> = roles.iter().map(|(role, count)| format!("{count} {role}")).collect();
            format!(" ({})", shown.join(", "))
        }
    };
    match tokens.names().as_slice() {
        [name] => format!("the token `{name}`{roles}"),
        names => format!("one of {} tokens{roles}", names.len()),
    }
}

fn users(uid: u32) -> String {
    match (uid, user_name(uid)) {
        (0, _) => "root (uid 0)".to_owned(),
        (_, Some(name)) => format!("user {name} (uid {uid}) and root"),
        (_, None) => format!("the user with uid {uid} and root"),
    }
}

/// The name of a user in `/etc/passwd`, if it is there.
fn user_name(uid: u32) -> Option<String> {
    let text = std::fs::read_to_string("/etc/passwd").ok()?;
    name_in(&text, uid)
}

fn name_in(passwd: &str, uid: u32) -> Option<String> {
    let uid = uid.to_string();
    let mut lines = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let found = lines.find(|fields| fields.get(2) == Some(&uid.as_str()))?;
    found.first().map(|name| (*name).to_owned()).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    struct Knows;

    impl http_server::PeerLookup for Knows {
        fn user_of(&self, _: SocketAddr, _: SocketAddr) -> Option<u32> {
            None
        }
    }

    fn storage(folder: &std::path::Path) -> StorageArguments {
        StorageArguments { data_dir: Some(folder.to_owned()), database: None, database_schema: None }
    }

    #[test]
    fn access_to_the_service_is_described() {
        let folder = tempfile::tempdir().unwrap();
        let description_of =
            |access: Result<Access, Failure>| access.unwrap_or_else(|failure| panic!("{failure}")).reachable_by();
        let three = Tokens::read("a:1\nb:2\nc:3").unwrap();
        assert_eq!(
            description_of(Access::new(Some(three), None, None, &storage(folder.path()))),
            "anyone with one of 3 tokens"
        );
        let roles = Tokens::read("a:1\nb:2:user\nc:3:operator\nd:4:user").unwrap();
        let with_roles = description_of(Access::new(Some(roles), None, None, &storage(folder.path())));
        assert_eq!(with_roles, "anyone with one of 4 tokens (1 admin, 1 operator, 2 user)");
        let one = Tokens::read("ann:1").unwrap();
        assert_eq!(
            description_of(Access::new(Some(one), None, None, &storage(folder.path()))),
            "anyone with the token `ann`"
        );
        assert!(!folder.path().join("local.token").exists(), "with tokens none is made");

        let known = |uid| LocalAccess::new(uid, Some(Box::new(Knows)));
        let root = Access::without_tokens(known(0), &storage(folder.path()));
        assert_eq!(description_of(root), "root (uid 0) on this machine; no tokens are set");
        let nameless = Access::without_tokens(known(4_000_000_000), &storage(folder.path()));
        assert_eq!(
            description_of(nameless),
            "the user with uid 4000000000 and root on this machine; no tokens are set"
        );
        let unknown = description_of(Access::without_tokens(LocalAccess::new(1000, None), &storage(folder.path())));
        assert!(unknown.contains("anyone on this machine with the token in /"), "{unknown}");
        assert!(folder.path().join("local.token").exists());
    }

    #[test]
    fn on_systems_without_connection_users_a_link_opens_the_console() {
        let folder = tempfile::tempdir().unwrap();
        let access = Access::without_tokens(LocalAccess::new(1000, None), &storage(folder.path()));
        let access = access.unwrap_or_else(|failure| panic!("{failure}"));
        assert!(access.needs_token());
        let address = access.console_address("http://h:1");
        let code = address.strip_prefix("http://h:1/login?code=").unwrap().split(' ').next().unwrap();
        let token = (access.redeem_code())(code).unwrap();
        assert_eq!((access.resolve_principal())(&token).map(|it| it.to_string()).as_deref(), Some("local"));
        assert_eq!((access.redeem_code())(code), None);
    }

    #[test]
    fn without_a_place_for_the_token_users_must_be_distinguished() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        let known = Access::without_tokens(LocalAccess::new(7, Some(Box::new(Knows))), &storage(&file));
        assert!(known.is_ok_and(|access| access.local_token.is_none() && !access.needs_token()));
        let failure = Access::without_tokens(LocalAccess::new(7, None), &storage(&file)).err().unwrap().to_string();
        assert!(failure.contains("local.token") && failure.contains("--token-file"), "{failure}");
    }

    #[test]
    fn the_name_of_a_user_is_found() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\nbroken\n";
        assert_eq!(name_in(passwd, 1000).as_deref(), Some("ann"));
        assert_eq!(name_in(passwd, 1001), None);
    }
}

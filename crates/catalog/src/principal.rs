//! Who makes a request, as its authentication found out: a token, a person, or the local user.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// What a principal may do. Each role includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// May use MCP, and call tools.
    User,
    /// May administer servers and calls as well, but sees no secrets.
    Operator,
    /// May do everything.
    Admin,
}

impl Role {
    /// All roles, from the one with the fewest rights.
    pub const ALL: [Self; 3] = [Self::User, Self::Operator, Self::Admin];

    /// Its name in files, options and scopes.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }

    /// The role of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == name)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

/// Who makes a request. Two principals are equal if they have the same id: a person stays the same one when a token is
/// refreshed, or when the role changes.
#[derive(Debug, Clone)]
pub struct Principal {
    id: Arc<str>,
    name: Arc<str>,
    role: Role,
    profile: Option<Arc<str>>,
}

impl Principal {
    /// The user of a service without tokens, or of a program without a service. Its id is empty.
    pub fn local() -> Arc<Self> {
        Arc::new(Self { id: Arc::from(""), name: Arc::from(""), role: Role::Admin, profile: None })
    }

    /// The holder of a static token. Its id is the token's name, which contains no `:`.
    pub fn of_token(name: &str, role: Role, profile: Option<&str>) -> Arc<Self> {
        let name = Arc::<str>::from(name);
        Arc::new(Self { id: Arc::clone(&name), name, role, profile: profile.map(Arc::from) })
    }

    /// The person, or the program, that an issuer knows as `subject`.
    pub fn of_identity(issuer: &str, subject: &str, name: &str, role: Role, profile: Option<&str>) -> Arc<Self> {
        // No token has this id: the name of a token contains no `:`. An issuer contains no space.
        let id = Arc::from(format!("oauth:{issuer} {subject}"));
        Arc::new(Self { id, name: Arc::from(name), role, profile: profile.map(Arc::from) })
    }

    /// The client whose certificate is for `subject`.
    pub fn of_certificate(subject: &str, name: &str, role: Role, profile: Option<&str>) -> Arc<Self> {
        // Neither a token nor an identity has this id.
        let id = Arc::from(format!("certificate:{subject}"));
        Arc::new(Self { id, name: Arc::from(name), role, profile: profile.map(Arc::from) })
    }

    /// Something that mcp-aggregator does by itself, or a command that works without a service.
    pub fn internal(name: &str) -> Arc<Self> {
        Self::of_token(name, Role::Admin, None)
    }

    /// What it is known by: sessions, parked calls, tasks, limits and counts belong to it. Empty for the local user.
    pub fn id(&self) -> &Arc<str> {
        &self.id
    }

    /// Its name for people. Empty for the local user.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// What it may do.
    pub fn role(&self) -> Role {
        self.role
    }

    /// The profile that it is bound to, and cannot leave.
    pub fn profile(&self) -> Option<&Arc<str>> {
        self.profile.as_ref()
    }

    /// Whether there are neither tokens nor identities, so that everybody who is let in is the same.
    pub fn is_local(&self) -> bool {
        self.id.is_empty()
    }
}

impl PartialEq for Principal {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for Principal {}

impl Hash for Principal {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id.hash(state);
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_person_is_never_taken_for_a_token() {
        let person = Principal::of_identity("https://id.example", "42", "ann", Role::User, None);
        assert_ne!(person, Principal::of_token("ann", Role::User, None));
        assert_eq!(person, Principal::of_identity("https://id.example", "42", "Ann B.", Role::Admin, Some("dev")));
        assert_ne!(person, Principal::of_identity("https://other.example", "42", "ann", Role::User, None));
        let certified = Principal::of_certificate("CN=ann", "ann", Role::User, None);
        assert_ne!(certified, Principal::of_token("ann", Role::User, None));
        assert_ne!(certified, person);
    }

    #[test]
    fn roles_include_each_other() {
        assert!(Role::Admin > Role::Operator && Role::Operator > Role::User);
        assert_eq!(Role::ALL.map(|role| Role::named(role.as_str())), Role::ALL.map(Some));
        assert_eq!(Role::named("root"), None);
    }
}

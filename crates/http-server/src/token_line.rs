//! One line of a token file: `name:token[:role[:profile]]`.

use catalog::Role;

/// What is wrong with the part after the token.
const NO_ROLE: &str = "what follows the second `:` must be a role (user, operator or admin); a token cannot contain `:`, so \
    replace one that does, for example by `openssl rand -hex 32`";

/// The parts of a line after the name: the token, and what it is good for.
pub(crate) struct Grant<'l> {
    pub(crate) secret: &'l str,
    pub(crate) role: Role,
    pub(crate) profile: Option<&'l str>,
}

impl<'l> Grant<'l> {
    /// Reads `token[:role[:profile]]`. A third part that is no role is an error: it was a part of the token before there
    /// were roles, and must not become something else unnoticed.
    pub(crate) fn read(text: &'l str) -> Result<Self, &'static str> {
        let mut parts = text.split(':').map(str::trim);
        let secret = parts.next().unwrap_or_default();
        let role = match parts.next() {
            None => Role::Admin,
            Some(name) => Role::named(name).ok_or(NO_ROLE)?,
        };
        let profile = parts.next();
        if profile == Some("") {
            return Err("the name of the profile after the last `:` is missing");
        }
        match parts.next() {
            None => Ok(Self { secret, role, profile }),
            Some(_) => Err("expected `name:token:role:profile` at most; a token cannot contain `:`"),
        }
    }
}

//! The transport of a server: a program to start, an address, or a container.

use super::super::Accepted;
use super::super::path::quoted;
use super::super::tree::Node;
use super::container::BLOCK;
use super::report::Wanted;
use super::{Check, Entry, Variables};
use crate::server::{Dialect, Filled, Program, Remote, Transport};

/// Keys under which clients write the address of a server they do not start themselves.
const ADDRESS_KEYS: [&str; 3] = ["url", "serverUrl", "httpUrl"];

/// Keys under which clients write the transport; the first one present is used.
const WORD_KEYS: [&str; 2] = ["type", "transport"];

/// What kind of server an entry describes.
enum Kind {
    Program,
    Remote(Dialect),
}

/// The transport that an entry states.
struct Stated<'a> {
    key: &'static str,
    written: &'a str,
    /// None for an unknown word.
    kind: Option<Kind>,
}

impl Kind {
    fn of_word(word: &str) -> Option<Self> {
        match word.trim().to_ascii_lowercase().replace(['_', ' '], "-").as_str() {
            "stdio" => Some(Self::Program),
            "http" | "streamable-http" | "streamablehttp" => Some(Self::Remote(Dialect::Streamable)),
            "sse" => Some(Self::Remote(Dialect::Sse)),
            _ => None,
        }
    }

    /// Derives the kind from the members of the entry.
    fn of_members(server: &Entry<'_>) -> Self {
        let has_address = ADDRESS_KEYS.into_iter().any(|key| server.get(key).is_some());
        let is_remote = has_address && server.get("command").is_none();
        if is_remote { Self::Remote(Dialect::Unknown) } else { Self::Program }
    }
}

impl Check<'_> {
    /// The stated transport, or else the one derived from the members.
    pub(super) fn transport(&mut self, server: &Entry<'_>) -> Option<Transport> {
        let (kind, stated) = match self.stated(server) {
            Some(Stated { key, written, kind }) => (kind, Some((key, written))),
            None => (Some(Kind::of_members(server)), None),
        };
        // An unknown word is reported below.
        if let Some(kind) = &kind
            && server.get(BLOCK).is_some()
        {
            return self.in_container(server, kind);
        }
        self.warn_of_second_transport(server, kind.as_ref());
        match (kind, self.accepted) {
            (Some(Kind::Program), _) => self.program(server).map(Transport::Stdio),
            (Some(Kind::Remote(dialect)), Accepted::All) => self.remote(server, dialect).map(Transport::Remote),
            (None, Accepted::All) => {
                let (key, written) = stated.expect("only a word can be unknown");
                let message = format!("has an unknown {key} {}", quoted(written));
                self.problem_with_hint(&server.path, message, Some("known are \"stdio\", \"http\" and \"sse\""));
                None
            }
            (Some(Kind::Remote(_)) | None, Accepted::StdioOnly) => {
                // A disabled server need not use stdio.
                if server.variables == Variables::Fill {
                    let hint = "use `mcp-aggregator` for servers over HTTP or SSE";
                    self.problem_with_hint(&server.path, refusal_of_remote(server, stated), Some(hint));
                }
                None
            }
        }
    }

    /// A server in a container; over stdio unless stated otherwise.
    fn in_container(&mut self, server: &Entry<'_>, kind: &Kind) -> Option<Transport> {
        if self.accepted == Accepted::StdioOnly {
            // A disabled server needs no engine.
            if server.variables == Variables::Fill {
                let message = format!("runs in a container (`{BLOCK}`); this program starts programs only");
                self.problem_with_hint(&server.path, message, Some("use `mcp-aggregator` for servers in containers"));
            }
            return None;
        }
        self.warn_about_members_outside_block(server);
        let dialect = match kind {
            Kind::Program | Kind::Remote(Dialect::Unknown) => None,
            Kind::Remote(dialect) => Some(*dialect),
        };
        self.container(server, dialect).map(Transport::Container)
    }

    /// Warns that one of the two is not used.
    fn warn_of_second_transport(&mut self, server: &Entry<'_>, kind: Option<&Kind>) {
        let address = ADDRESS_KEYS.into_iter().find(|key| server.get(key).is_some());
        let (Some(address), Some(_), Some(kind)) = (address, server.get("command"), kind) else { return };
        let unused = match kind {
            Kind::Program => address,
            Kind::Remote(_) => "command",
        };
        self.warning(&server.path, format!("has both `command` and `{address}`; `{unused}` is not used"));
    }

    fn stated<'e>(&mut self, server: &Entry<'e>) -> Option<Stated<'e>> {
        for key in WORD_KEYS {
            if let Some(value) = server.get(key)
                && !matches!(value, Node::String(_))
            {
                self.wrong_kind(&server.path.member(key), value, Wanted::Text);
            }
        }
        let is_text = |key: &&'static str| matches!(server.get(key), Some(Node::String(_)));
        let key = WORD_KEYS.into_iter().find(is_text)?;
        let word = self.word(server, key)?;
        Some(Stated { key, kind: Kind::of_word(&word.value), written: word.written })
    }

    /// Everything is checked before a missing command ends it.
    fn program(&mut self, server: &Entry<'_>) -> Option<Program> {
        let command = self.command(server);
        let args = self.args(server);
        let env = self.named_texts(server, "env", unfit_variable);
        let cwd = self.cwd(server);
        Some(Program { command: command?, args, env, cwd })
    }

    fn remote(&mut self, server: &Entry<'_>, dialect: Dialect) -> Option<Remote> {
        let url = self.url(server);
        let oauth = self.oauth(server);
        let headers = self.headers(server)?;
        Some(Remote { url: url?, headers, dialect, oauth })
    }

    pub(super) fn headers(&mut self, server: &Entry<'_>) -> Option<Vec<(String, String)>> {
        let headers = self.named_texts(server, "headers", |name| {
            let fits = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte));
            (!fits).then_some("has a name that is not valid for a header")
        });
        let mut fits = true;
        for (name, value) in &headers {
            if value.bytes().any(|byte| byte < b' ' && byte != b'\t' || byte == 0x7f) {
                self.problem(&server.path.member("headers").member(name), "contains a control character");
                fits = false;
            }
        }
        fits.then_some(headers)
    }

    fn url(&mut self, server: &Entry<'_>) -> Option<Filled> {
        let key = ADDRESS_KEYS.into_iter().find(|key| server.get(key).is_some());
        let path = server.path.member(key.unwrap_or("url"));
        let Some(value) = key.and_then(|key| server.get(key)) else {
            self.problem(&path, "is missing");
            return None;
        };
        let url = self.text_not_blank(&path, value, server.variables)?;
        // The rest of an address is checked when connecting; an address is not a secret, but its query may be.
        let is_http = ["http://", "https://"].iter().any(|scheme| url.value.to_ascii_lowercase().starts_with(scheme));
        if !is_http && server.variables == Variables::Fill {
            self.problem(&path, "must start with http:// or https://");
            return None;
        }
        // Credentials would be shown wherever the address is.
        let authority = url.value.split(['/', '?', '#']).nth(2).unwrap_or_default();
        if authority.contains('@') {
            self.problem_with_hint(&path, "must not contain credentials", Some("put them into `headers`"));
            return None;
        }
        Some(url)
    }

    fn command(&mut self, server: &Entry<'_>) -> Option<Filled> {
        let path = server.path.member("command");
        let Some(value) = server.get("command") else {
            self.problem(&path, "is missing");
            return None;
        };
        self.text_not_blank(&path, value, server.variables)
    }

    fn args(&mut self, server: &Entry<'_>) -> Vec<String> {
        let path = server.path.member("args");
        match server.get("args") {
            None => Vec::new(),
            Some(Node::Array(args)) => {
                let args = args.iter().enumerate();
                args.filter_map(|(at, arg)| self.text(&path.index(at), arg, server.variables)).collect()
            }
            Some(other) => {
                self.wrong_kind(&path, other, Wanted::Texts);
                Vec::new()
            }
        }
    }

    fn cwd(&mut self, server: &Entry<'_>) -> Option<Filled> {
        let value = server.get("cwd")?;
        self.text_not_blank(&server.path.member("cwd"), value, server.variables)
    }
}

/// What is wrong with the name of a variable.
pub(super) fn unfit_variable(name: &str) -> Option<&'static str> {
    let unfit = name.contains(['=', '\0']);
    unfit.then_some("has a name that is not valid for a variable: it contains `=` or NUL")
}

/// The message about a remote server where only stdio is supported.
fn refusal_of_remote(server: &Entry<'_>, stated: Option<(&str, &str)>) -> String {
    if let Some((key, written)) = stated {
        return format!("has the {key} {}; this program starts servers over stdio only", quoted(written));
    }
    let key = ADDRESS_KEYS.into_iter().find(|key| server.get(key).is_some()).unwrap_or("url");
    format!("is reached over HTTP (`{key}`); this program starts servers over stdio only")
}

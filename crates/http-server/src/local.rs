//! Access without tokens: connections of the user that runs the service and of root, and requests with the local
//! token.
//!
//! Every user of a machine can connect to its loopback addresses, so a local connection is not enough. The system is
//! queried once per connection for its user. Where it does not report one, a request must carry the local token, a
//! secret in a file that only the user of the service can read.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use catalog::Principal;
use hyper::HeaderMap;

use crate::socket::ClientSocket;
use crate::tokens::{Denied, TokenCredential, TokenError, Tokens};

/// The principal of requests with the local token.
const LOCAL_TOKEN_NAME: &str = "local";
const ROOT: u32 = 0;

/// Looks up which user of this machine a connection belongs to.
pub trait PeerLookup: Send + Sync {
    /// The uid of the process that connected from `peer` to `local`, if the system reports it beyond doubt.
    fn user_of(&self, peer: SocketAddr, local: SocketAddr) -> Option<u32>;
}

/// The access rules as long as there are no tokens.
pub struct LocalAccess {
    uid: u32,
    lookup: Option<Box<dyn PeerLookup>>,
    token: Option<Tokens>,
    /// Where the local token is, for error messages.
    token_location: String,
}

/// The owner of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peer {
    /// The user of the service, or root.
    Served,
    /// Another user.
    Other,
    /// It cannot be determined.
    Unknown,
}

impl LocalAccess {
    /// Serves the user of this process. Whether the system distinguishes users is tested first.
    pub fn of_this_user() -> Self {
        let uid = rustix::process::geteuid().as_raw();
        let lookup = system_lookup().filter(|lookup| {
            let tried = try_out(&**lookup);
            let is_right = matches!(tried, Ok(Some(found)) if found == uid);
            if !is_right {
                tracing::debug!(?tried, "the system does not report which user a connection belongs to");
            }
            is_right
        });
        Self::new(uid, lookup)
    }

    /// Serves one user, distinguished from others by `lookup`; without it, the owner of every connection is unknown.
    pub fn new(uid: u32, lookup: Option<Box<dyn PeerLookup>>) -> Self {
        Self { uid, lookup, token: None, token_location: String::new() }
    }

    /// Also serves requests with this token, whoever sends them. `location` is for error messages.
    pub fn with_token(self, secret: &str, location: &str) -> Result<Self, TokenError> {
        let token = Tokens::read(&format!("{LOCAL_TOKEN_NAME}:{secret}"))?;
        Ok(Self { token: Some(token), token_location: location.to_owned(), ..self })
    }

    /// Whether the system distinguishes users.
    pub fn knows_users(&self) -> bool {
        self.lookup.is_some()
    }

    /// The user that is served.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// The principal of the local token, if `secret` is that token.
    pub fn owner_of(&self, secret: &str) -> Option<Arc<Principal>> {
        self.token.as_ref()?.owner_of(secret)
    }

    /// The local token, if `secret` is it.
    pub(crate) fn identify(&self, secret: &str) -> Option<TokenCredential> {
        self.token.as_ref()?.identify(secret)
    }

    /// The owner of a connection. `None` if it has ended meanwhile.
    pub(crate) fn peer(&self, stream: &ClientSocket) -> Option<Peer> {
        let stream = match stream {
            ClientSocket::Tcp(stream) => stream,
            // The system knows who connected, also if that process has ended.
            ClientSocket::Unix(stream) => {
                return Some(self.judge(stream.peer_cred().ok().map(|credentials| credentials.uid())));
            }
        };
        let (peer, local) = (stream.peer_addr().ok()?, stream.local_addr().ok()?);
        let user = self.lookup.as_ref().and_then(|lookup| lookup.user_of(peer, local));
        // As long as our end is connected, no other connection has these two addresses. After a reset another user could
        // have got the port, and the lookup would have been about that one.
        stream.peer_addr().ok()?;
        Some(self.judge(user))
    }

    fn judge(&self, user: Option<u32>) -> Peer {
        match user {
            Some(uid) if uid == self.uid || uid == ROOT => Peer::Served,
            Some(_) => Peer::Other,
            None => Peer::Unknown,
        }
    }

    /// The credential of a request; `None` if its connection is sufficient.
    pub(crate) fn admit(&self, peer: Peer, headers: &HeaderMap) -> Option<Result<TokenCredential, Denied>> {
        if peer == Peer::Served {
            return None;
        }
        let admitted = self.token.as_ref().map_or(Err(Denied::Missing), |token| token.admit(headers));
        Some(admitted.map_err(|denied| match (denied, peer) {
            (Denied::Missing, Peer::Other) => Denied::OtherUser,
            (Denied::Missing, _) => Denied::UnknownUser,
            (denied, _) => denied,
        }))
    }

    /// The hint for a connection of another user.
    pub(crate) fn other_user_hint(&self) -> String {
        format!(
            "Forbidden: this service has no tokens and accepts only connections of its own user (uid {}) and of root; \
             to accept others, start it with --token-file or MCP_AGGREGATOR_TOKEN, and send `Authorization: Bearer \
             <token>`",
            self.uid
        )
    }

    /// The hint for a connection whose user is unknown.
    pub(crate) fn unknown_user_hint(&self) -> String {
        match self.token_location.as_str() {
            "" => {
                "Unauthorized: the user of this connection cannot be determined; start the service with --token-file \
                 or MCP_AGGREGATOR_TOKEN, and send `Authorization: Bearer <token>`"
                    .to_owned()
            }
            location => format!(
                "Unauthorized: the user of this connection cannot be determined; send `Authorization: Bearer <token>` \
                 with the token in {location}"
            ),
        }
    }
}

impl fmt::Debug for LocalAccess {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("LocalAccess")
            .field("uid", &self.uid)
            .field("knows_users", &self.knows_users())
            .finish_non_exhaustive()
    }
}

/// An unguessable secret: 256 bits, as 64 hexadecimal digits.
pub fn random_secret() -> String {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).expect("the system has random numbers");
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(target_os = "linux")]
fn system_lookup() -> Option<Box<dyn PeerLookup>> {
    let opened = crate::sock_diag::SockDiag::open();
    let opened = opened.inspect_err(|error| tracing::debug!(%error, "failed to open a netlink socket"));
    opened.ok().map(|lookup| Box::new(lookup) as Box<dyn PeerLookup>)
}

#[cfg(not(target_os = "linux"))]
fn system_lookup() -> Option<Box<dyn PeerLookup>> {
    None
}

/// Looks up a connection of our own.
fn try_out(lookup: &dyn PeerLookup) -> io::Result<Option<u32>> {
    let listener =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).or_else(|_| TcpListener::bind((Ipv6Addr::LOCALHOST, 0)))?;
    let _client = TcpStream::connect(listener.local_addr()?)?;
    let (accepted, peer) = listener.accept()?;
    Ok(lookup.user_of(peer, accepted.local_addr()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::AUTHORIZATION;

    /// A lookup with a constant result.
    struct Always(Option<u32>);

    impl PeerLookup for Always {
        fn user_of(&self, _: SocketAddr, _: SocketAddr) -> Option<u32> {
            self.0
        }
    }

    fn access(user: Option<u32>) -> LocalAccess {
        LocalAccess::new(1000, Some(Box::new(Always(user)))).with_token("0123456789abcdef", "/x/token").unwrap()
    }

    async fn peer_of(access: &LocalAccess) -> Peer {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _client = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        access.peer(&ClientSocket::Tcp(accepted)).unwrap()
    }

    #[tokio::test]
    async fn the_user_of_a_unix_socket_is_the_one_that_connected() {
        let own = rustix::process::geteuid().as_raw();
        let peer_of = |uid: u32| {
            let (_client, accepted) = tokio::net::UnixStream::pair().unwrap();
            LocalAccess::new(uid, None).peer(&ClientSocket::Unix(accepted)).unwrap()
        };
        assert_eq!(peer_of(own), Peer::Served, "no lookup is needed");
        assert_eq!(peer_of(own + 1), if own == ROOT { Peer::Served } else { Peer::Other });
    }

    fn headers(token: &str) -> HeaderMap {
        HeaderMap::from_iter([(AUTHORIZATION, format!("Bearer {token}").parse().unwrap())])
    }

    #[tokio::test]
    async fn only_the_same_user_and_root_are_served() {
        for (user, peer) in [
            (Some(1000), Peer::Served),
            (Some(0), Peer::Served),
            (Some(1001), Peer::Other),
            (Some(65_534), Peer::Other),
            (None, Peer::Unknown),
        ] {
            assert_eq!(peer_of(&access(user)).await, peer, "{user:?}");
        }
        assert_eq!(peer_of(&LocalAccess::new(1000, None)).await, Peer::Unknown);
        let of_root = LocalAccess::new(0, Some(Box::new(Always(Some(1000)))));
        assert_eq!(peer_of(&of_root).await, Peer::Other);
    }

    #[test]
    fn others_need_the_local_token() {
        let access = access(None);
        let none = HeaderMap::new();
        assert_eq!(access.admit(Peer::Served, &headers("wrong")), None, "its connection is enough");
        assert_eq!(access.admit(Peer::Other, &none), Some(Err(Denied::OtherUser)));
        assert_eq!(access.admit(Peer::Unknown, &none), Some(Err(Denied::UnknownUser)));
        for peer in [Peer::Other, Peer::Unknown] {
            assert_eq!(access.admit(peer, &headers("wrong")), Some(Err(Denied::Wrong)));
            assert_eq!(access.admit(peer, &headers("0123456789abcdef")), access.identify("0123456789abcdef").map(Ok));
        }
        let without = LocalAccess::new(1000, None);
        assert_eq!(without.admit(Peer::Unknown, &headers("")), Some(Err(Denied::UnknownUser)));
    }

    #[tokio::test]
    async fn a_connection_that_was_reset_is_nobodys() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        client.set_zero_linger().unwrap();
        drop(client);
        assert_eq!(access(Some(1000)).peer(&ClientSocket::Tcp(accepted)), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_system_reports_the_user_of_a_connection() {
        let access = LocalAccess::of_this_user();
        assert!(access.knows_users());
        assert_eq!(access.uid(), rustix::process::geteuid().as_raw());
    }

    #[test]
    fn debug_output_and_hints_contain_no_token() {
        let access = access(None);
        for text in [format!("{access:?}"), access.other_user_hint(), access.unknown_user_hint()] {
            assert!(!text.contains("0123456789abcdef"), "{text}");
        }
        assert!(access.unknown_user_hint().contains("/x/token"));
    }
}

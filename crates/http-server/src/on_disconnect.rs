//! What happens when the reader of a response disconnects, whether the response is complete or not.

use std::fmt;
use std::sync::Arc;

use aggregator::Client;

use crate::server::Shared;
use crate::session::Session;
use crate::stream::Stream;

/// Acts when dropped.
pub(crate) enum OnDisconnect {
    /// Nothing: in a session, a dropped connection cancels nothing, and the client may reconnect.
    Nothing,
    /// A modern client that closes the response before it is complete has cancelled the request.
    Cancel { shared: Arc<Shared>, client: Arc<Client>, stream: Arc<Stream> },
    /// With HTTP+SSE the session is the stream.
    End { shared: Arc<Shared>, session: Arc<Session> },
}

impl Drop for OnDisconnect {
    fn drop(&mut self) {
        match self {
            Self::Nothing => {}
            Self::Cancel { shared, client, stream } => {
                if !stream.is_complete() {
                    shared.aggregator.abandon(client);
                }
            }
            Self::End { shared, session } => shared.end(session),
        }
    }
}

impl fmt::Debug for OnDisconnect {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Nothing => "Nothing",
            Self::Cancel { .. } => "Cancel",
            Self::End { .. } => "End",
        })
    }
}

//! Letters to a server over Streamable HTTP, on their way.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;
use upstream::Connection;
use upstream::failure::Cause;
use upstream::wire::Letter;

use crate::session::{NOTICE_PATIENCE, Session};

/// Posts every letter, each on its own. A server that cannot be reached fails the call, not the connection: it may be
/// back for the next. So this ends only with the connection itself.
///
/// Requests travel side by side. A notification is delivered before what follows it, because it may announce that.
pub(crate) async fn carry(
    session: Arc<Session>,
    connection: Arc<Connection>,
    mut letters: mpsc::UnboundedReceiver<Letter>,
) -> Cause {
    let mut under_way = UnderWay::default();
    loop {
        tokio::select! {
            letter = letters.recv() => {
                let Some(letter) = letter else { return Cause::ClosedOutput };
                if letter.number.is_none() {
                    drop(timeout(NOTICE_PATIENCE, session.post(&connection, &letter)).await);
                    // It may have been a cancellation.
                    under_way.drop_abandoned(&connection);
                } else {
                    under_way.post(&session, &connection, letter);
                }
            }
            () = session.may_listen() => under_way.hear(&session, &connection),
            Some(ended) = under_way.tasks.join_next() => under_way.forget(ended.ok().flatten()),
        }
    }
}

/// What is being waited for.
#[derive(Default)]
struct UnderWay {
    /// Each returns the number of its request, if it is one.
    tasks: JoinSet<Option<u64>>,
    requests: HashMap<u64, AbortHandle>,
    hearing: Option<AbortHandle>,
}

impl UnderWay {
    fn post(&mut self, session: &Arc<Session>, connection: &Arc<Connection>, letter: Letter) {
        let (session, connection, number) = (Arc::clone(session), Arc::clone(connection), letter.number);
        let task = self.tasks.spawn(async move {
            session.post(&connection, &letter).await;
            number
        });
        self.requests.extend(number.map(|number| (number, task)));
    }

    /// Opens the stream for what the server says unasked, in place of an earlier one.
    fn hear(&mut self, session: &Arc<Session>, connection: &Arc<Connection>) {
        let (session, connection) = (Arc::clone(session), Arc::clone(connection));
        let task = self.tasks.spawn(async move {
            session.hear(&connection).await;
            None
        });
        if let Some(earlier) = self.hearing.replace(task) {
            earlier.abort();
        }
    }

    /// Lets go of requests whose answer nobody wants any more, lest a server that never answers holds them for ever.
    fn drop_abandoned(&mut self, connection: &Connection) {
        for (_, task) in self.requests.extract_if(|&number, _| !connection.is_open(number)) {
            task.abort();
        }
    }

    fn forget(&mut self, number: Option<u64>) {
        number.map(|number| self.requests.remove(&number));
    }
}

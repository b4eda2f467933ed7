//! A message of the server while it is being read: its maximum length, and the memory reserved for it.

use std::sync::Arc;

use bytes::Bytes;
use protocol::Line;
use protocol::envelope::salvage_id;

use super::Connection;
use crate::failure::Unreadable;
use crate::limits::{LARGE_MESSAGE, Limit, OverLimit, Room};
use crate::response_handler::ResponseHandler;

/// A message that is being read. It can be reused for the next one.
#[derive(Debug)]
pub struct IncomingMessage {
    connection: Arc<Connection>,
    about: Option<u64>,
    room: Option<Room>,
    /// Why the rest of it is skipped.
    over: Option<OverLimit>,
}

impl IncomingMessage {
    /// Reports how many bytes have arrived. Once it fails, the message must be dropped.
    pub fn grow(&mut self, bytes: usize) -> Result<(), OverLimit> {
        if let Some(over) = self.over {
            return Err(over);
        }
        if bytes <= LARGE_MESSAGE {
            return Ok(());
        }
        let (limit, most) = self.connection.longest_message(self.about);
        let room = self.room.get_or_insert_with(|| Room::new(&self.connection.undelivered));
        let grown = room.grow(bytes, limit, most);
        if let Err(over) = grown {
            self.room = None;
            self.over = Some(over);
        }
        grown
    }

    /// The complete message. A large one counts towards the limits until its bytes are dropped.
    pub fn whole(&mut self, message: Bytes) -> Result<Bytes, OverLimit> {
        self.grow(message.len())?;
        Ok(match self.room.take() {
            Some(room) => room.hold(message),
            None => message,
        })
    }

    /// Prepares for the next message.
    fn restart(&mut self) -> Option<OverLimit> {
        self.room = None;
        self.over.take()
    }
}

impl Connection {
    /// A message that is about to be read, on the stream that answers the request `about`, or on none.
    pub fn incoming(self: &Arc<Self>, about: Option<u64>) -> IncomingMessage {
        IncomingMessage { connection: Arc::clone(self), about, room: None, over: None }
    }

    /// The maximum length of a message, and the limit that sets it. Only results of calls may be very long.
    fn longest_message(&self, about: Option<u64>) -> (Limit, usize) {
        let open = self.lock();
        let is_awaited = match about {
            Some(number) => open.get(number).is_some(),
            None => open.calls().next().is_some(),
        };
        drop(open);
        match is_awaited {
            true => (Limit::Message, self.limits.most(Limit::Message)),
            false => (Limit::Catalog, self.limits.most_unasked()),
        }
    }

    /// Handles a line that may be long, or the two ends of one that was too long.
    pub(super) fn receive_large(
        self: &Arc<Self>,
        line: Line,
        incoming: &mut IncomingMessage,
        handlers: &mut Vec<Arc<dyn ResponseHandler>>,
    ) {
        let (head, tail) = match line {
            Line::Whole(line) => match incoming.whole(line.clone()) {
                Ok(line) => {
                    incoming.restart();
                    return self.receive(Line::Whole(line), None, handlers);
                }
                Err(_) => (line.clone(), line),
            },
            Line::TooLong { head, tail, .. } => (head, tail),
        };
        match incoming.restart() {
            Some(over) => self.fail_unreadable(salvage_id(&head, &tail), Unreadable::TooLong(over), &head),
            None => self.receive(Line::TooLong { length: 0, head, tail }, None, handlers),
        }
    }
}

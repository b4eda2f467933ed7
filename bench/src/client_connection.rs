//! What measuring needs of a connection, be it a pair of pipes or HTTP.

use std::os::fd::AsFd;

use anyhow::Result;

/// One client's way to a contestant. Blocking, and as cheap as possible.
///
/// As a descriptor ([`AsFd`]) it is readable when [`fill`](Self::fill) would not block.
pub(crate) trait ClientConnection: AsFd {
    /// An id this client has not used yet.
    fn next_id(&mut self) -> u64;

    /// Sends a request that ends with a newline.
    fn send(&mut self, request: &[u8]) -> Result<()>;

    /// Sends a notification that ends with a newline.
    fn notify(&mut self, notification: &[u8]) -> Result<()> {
        self.send(notification)
    }

    /// One read; blocks when nothing has come.
    fn fill(&mut self) -> Result<()>;

    /// Whether a whole answer has been read that was not taken yet; it then is [`taken`](Self::taken).
    fn take(&mut self) -> Result<bool>;

    /// The answer taken last: its JSON, without a newline.
    fn taken(&self) -> &[u8];

    /// The next answer; notifications are passed over.
    fn answer(&mut self) -> Result<&[u8]> {
        while !self.take()? {
            self.fill()?;
        }
        Ok(self.taken())
    }

    /// The next answer, if it has been read already.
    fn buffered_answer(&mut self) -> Result<Option<&[u8]>> {
        let taken = self.take()?;
        Ok(taken.then(|| self.taken()))
    }
}

impl ClientConnection for Box<dyn ClientConnection> {
    fn next_id(&mut self) -> u64 {
        (**self).next_id()
    }

    fn send(&mut self, request: &[u8]) -> Result<()> {
        (**self).send(request)
    }

    fn notify(&mut self, notification: &[u8]) -> Result<()> {
        (**self).notify(notification)
    }

    fn fill(&mut self) -> Result<()> {
        (**self).fill()
    }

    fn take(&mut self) -> Result<bool> {
        (**self).take()
    }

    fn taken(&self) -> &[u8] {
        (**self).taken()
    }
}

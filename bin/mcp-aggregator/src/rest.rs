//! The REST API as the front sees it: what else is served at its address.

use std::pin::Pin;
use std::sync::Arc;

use api::Api;
use bytes::Bytes;
use front::{Annexe, Foreign, ForeignBody};
use http::StatusCode;
use http::request::Parts;

/// The API beside the front.
pub(crate) struct Rest(pub(crate) Api);

impl Annexe for Rest {
    fn has(&self, path: &str) -> bool {
        self.0.has(path)
    }

    fn is_public(&self, path: &str) -> bool {
        self.0.is_public(path)
    }

    fn answer(
        self: Arc<Self>,
        parts: Parts,
        body: Bytes,
        principal: Arc<str>,
    ) -> Pin<Box<dyn Future<Output = Foreign> + Send>> {
        Box::pin(async move { self.0.answer(parts, body, principal).await.map(ForeignBody::new) })
    }

    fn refuse(&self, status: StatusCode, why: &str) -> Foreign {
        self.0.refuse(status, why).map(ForeignBody::new)
    }

    fn leave(&self) {
        self.0.leave();
    }
}

//! The marks of refreshes: stored before a refresh begins, so that nobody else uses the same refresh token.

use std::sync::PoisonError;

use crate::grant::{Grant, RefreshMark, unix_now};
use crate::shared::Shared;
use crate::store::{Replaced, StoreError, Version};

impl Shared {
    /// Stores a mark that a refresh begins, unless the version is another one; `None` then. If the store fails, the mark
    /// may be there nevertheless: it is remembered, so that it is not taken for a refresh that was sent.
    pub(crate) async fn mark(&self, key: &str, version: Version, grant: &Grant) -> Result<Option<Version>, StoreError> {
        let mark = RefreshMark { owner: self.owner.clone(), began: unix_now() };
        let marked = Grant { refresh: Some(mark.clone()), ..grant.clone() };
        let replaced = self.store.replace(key, Some(version), Some(marked)).await;
        let mut unsent = self.unsent_marks.lock().unwrap_or_else(PoisonError::into_inner);
        match replaced {
            Ok(Replaced::Stored(version)) => {
                unsent.remove(key);
                Ok(version)
            }
            Ok(Replaced::Conflict) => Ok(None),
            Err(error) => {
                unsent.insert(key.to_owned(), mark);
                Err(error)
            }
        }
    }

    /// Removes a mark whose request was not sent. Whoever calls this holds the lock of the key.
    pub(crate) async fn remove_unsent_mark(&self, key: &str) -> Result<(), StoreError> {
        let unsent = self.unsent_marks.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned();
        let Some(unsent) = unsent else { return Ok(()) };
        while let Some((version, grant)) = self.store.load(key).await? {
            if grant.refresh.as_ref() != Some(&unsent) {
                return Ok(());
            }
            let grant = Grant { refresh: None, ..grant };
            if let Replaced::Stored(_) = self.store.replace(key, Some(version), Some(grant)).await? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Whether there may be a mark whose request was not sent.
    pub(crate) fn has_unsent_mark(&self, key: &str) -> bool {
        self.unsent_marks.lock().unwrap_or_else(PoisonError::into_inner).contains_key(key)
    }
}

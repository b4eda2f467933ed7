//! The file that a model's weights come in: safetensors, a header that says what is where and then the numbers.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Value;

use super::linear::Linear;
use super::table::Table;
use crate::matrix::Rows;

/// What the header has besides tensors.
const METADATA: &str = "__metadata__";

/// Why a model's file cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WeightsError {
    /// Its beginning, which says what is where, is broken.
    #[error("it has no readable header")]
    Header(#[source] Option<serde_json::Error>),
    /// Something that the model needs is not there, or reaches beyond the end.
    #[error("it lacks `{0}`")]
    Lacks(String),
    /// Something is there in another form than the model needs.
    #[error("its `{name}` is {found} instead of {wanted}")]
    Form {
        /// What it is.
        name: String,
        /// How it is.
        found: String,
        /// How it should be.
        wanted: String,
    },
    /// Something that should be a number is infinite, or none.
    #[error("its `{0}` has numbers that are none")]
    NotFinite(String),
}

/// Where the layers of a model get their weights from, in whatever form they are kept.
pub(crate) trait Weights {
    /// A matrix of which a text needs a few rows.
    fn table(&self, name: &str, rows: usize, width: usize) -> Result<Table, WeightsError>;

    /// A matrix that every text is multiplied with.
    fn matrix(&self, name: &str, rows: usize, width: usize) -> Result<Rows, WeightsError>;

    /// A row of numbers.
    fn floats(&self, name: &str, count: usize) -> Result<Vec<f32>, WeightsError>;

    /// A matrix, and what is added to what comes out.
    fn linear(&self, name: &str, outputs: usize, width: usize) -> Result<Linear, WeightsError> {
        let weights = self.matrix(&format!("{name}.weight"), outputs, width)?;
        Ok(Linear { weights, bias: self.floats(&format!("{name}.bias"), outputs)? })
    }
}

/// Where a tensor is, and what it is.
#[derive(Deserialize)]
pub(super) struct Entry {
    pub(super) dtype: String,
    pub(super) shape: Vec<usize>,
    data_offsets: (usize, usize),
}

/// The named parts of a file.
pub(crate) struct Tensors<'a> {
    entries: HashMap<String, Entry>,
    data: &'a [u8],
}

impl<'a> Tensors<'a> {
    pub(crate) fn read(file: &'a [u8]) -> Result<Self, WeightsError> {
        let (length, rest) = file.split_first_chunk::<8>().ok_or(WeightsError::Header(None))?;
        let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| WeightsError::Header(None))?;
        let (header, data) = rest.split_at_checked(length).ok_or(WeightsError::Header(None))?;
        let broken = |error| WeightsError::Header(Some(error));
        let mut named: HashMap<String, Value> = serde_json::from_slice(header).map_err(broken)?;
        named.remove(METADATA);
        let entries = named.into_iter().map(|(name, entry)| Ok((name, serde_json::from_value(entry)?)));
        Ok(Self { entries: entries.collect::<Result<_, _>>().map_err(broken)?, data })
    }

    #[cfg(test)]
    pub(super) fn entries(&self) -> impl Iterator<Item = (&String, &Entry)> {
        self.entries.iter()
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.entries.contains_key(name)
    }

    /// A tensor as it is written.
    pub(super) fn get(&self, name: &str) -> Result<(&Entry, &'a [u8]), WeightsError> {
        let lacks = || WeightsError::Lacks(name.to_owned());
        let entry = self.entries.get(name).ok_or_else(lacks)?;
        let (start, end) = entry.data_offsets;
        Ok((entry, self.data.get(start..end).ok_or_else(lacks)?))
    }
}

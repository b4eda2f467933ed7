//! The safetensors format: a header that describes the tensors, then the numbers.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Value;

use super::linear::{Linear, Matrix};
use super::table::Table;

/// What the header has besides tensors.
const METADATA: &str = "__metadata__";

/// Why a model's file cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WeightsError {
    /// The header is broken.
    #[error("it has no readable header")]
    Header(#[source] Option<serde_json::Error>),
    /// A tensor is missing, or extends beyond the end.
    #[error("it has no `{0}`")]
    Lacks(String),
    /// A tensor has an unexpected shape or type.
    #[error("its `{name}` is {found} instead of {wanted}")]
    Form {
        /// The tensor.
        name: String,
        /// The shape or type in the file.
        found: String,
        /// The expected shape or type.
        wanted: String,
    },
    /// A number is infinite or NaN.
    #[error("its `{0}` contains values that are not numbers")]
    NotFinite(String),
}

/// Provides the weights of the layers, in any encoding.
pub(crate) trait Weights {
    /// A matrix of which a text needs a few rows.
    fn table(&self, name: &str, rows: usize, width: usize) -> Result<Table, WeightsError>;

    /// A matrix that every text is multiplied with.
    fn matrix(&self, name: &str, rows: usize, width: usize) -> Result<Matrix, WeightsError>;

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
pub(crate) struct Entry {
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
    pub(crate) fn get(&self, name: &str) -> Result<(&Entry, &'a [u8]), WeightsError> {
        let lacks = || WeightsError::Lacks(name.to_owned());
        let entry = self.entries.get(name).ok_or_else(lacks)?;
        let (start, end) = entry.data_offsets;
        Ok((entry, self.data.get(start..end).ok_or_else(lacks)?))
    }
}

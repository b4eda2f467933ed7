//! Weights as they are published: floats of 32 or 16 bits.

use super::linear::Matrix;
use super::table::Table;
use super::tensors::{Entry, Tensors, Weights, WeightsError};
use crate::matrix::Rows;

/// Some files prefix all names with this.
const PREFIX: &str = "bert.";
/// A name that shows whether this file does.
const FIRST: &str = "embeddings.word_embeddings.weight";

/// The parts of a file in floats.
pub(crate) struct Plain<'a> {
    tensors: Tensors<'a>,
    prefix: &'static str,
}

impl<'a> Plain<'a> {
    pub(crate) fn read(file: &'a [u8]) -> Result<Self, WeightsError> {
        let tensors = Tensors::read(file)?;
        let has_prefix = !tensors.has(FIRST) && tensors.has(&format!("{PREFIX}{FIRST}"));
        Ok(Self { tensors, prefix: if has_prefix { PREFIX } else { "" } })
    }

    fn values(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, WeightsError> {
        let name = format!("{}{name}", self.prefix);
        let (entry, bytes) = self.tensors.get(&name)?;
        let form = |found: String, wanted: String| WeightsError::Form { name: name.clone(), found, wanted };
        if entry.shape != shape {
            return Err(form(format!("{:?}", entry.shape), format!("{shape:?}")));
        }
        let values = numbers(entry, bytes).ok_or_else(|| form(entry.dtype.clone(), "F32, F16 or BF16".to_owned()))?;
        if values.len() != shape.iter().product::<usize>() {
            return Err(form(format!("{} numbers", values.len()), format!("{shape:?}")));
        }
        if !values.iter().all(|value| value.is_finite()) {
            return Err(WeightsError::NotFinite(name));
        }
        Ok(values)
    }
}

impl Weights for Plain<'_> {
    fn table(&self, name: &str, rows: usize, width: usize) -> Result<Table, WeightsError> {
        Ok(Table::Scaled(Rows::scaled(&self.values(name, &[rows, width])?, width)))
    }

    fn matrix(&self, name: &str, rows: usize, width: usize) -> Result<Matrix, WeightsError> {
        Ok(Matrix::Rows(Rows::scaled(&self.values(name, &[rows, width])?, width)))
    }

    fn floats(&self, name: &str, count: usize) -> Result<Vec<f32>, WeightsError> {
        self.values(name, &[count])
    }
}

fn numbers(entry: &Entry, bytes: &[u8]) -> Option<Vec<f32>> {
    let pairs = || bytes.as_chunks::<2>().0.iter().map(|pair| u16::from_le_bytes(*pair));
    match entry.dtype.as_str() {
        "F32" => Some(bytes.as_chunks::<4>().0.iter().map(|four| f32::from_le_bytes(*four)).collect()),
        "F16" => Some(pairs().map(super::half).collect()),
        "BF16" => Some(pairs().map(|bits| f32::from_bits(u32::from(bits) << 16)).collect()),
        _ => None,
    }
}

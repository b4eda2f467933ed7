//! Reads the model's file: safetensors, with matrices in four bits and a scale for every 32 weights.

use std::collections::HashMap;

use serde::Deserialize;

use super::linear::Linear;
use crate::matrix::Rows;

/// How many weights share a scale.
const GROUP: usize = 32;

/// Why a model's file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum WeightsError {
    /// Its beginning, which says what is where, is broken.
    #[error("the model's file has no readable header")]
    Header(#[source] Option<serde_json::Error>),
    /// Something that the model needs is not there, or not as long as it must be.
    #[error("the model's file lacks `{0}`")]
    Lacks(String),
}

#[derive(Deserialize)]
struct Entry {
    data_offsets: (usize, usize),
}

/// The named parts of a file.
pub(super) struct Tensors<'a> {
    entries: HashMap<String, Entry>,
    data: &'a [u8],
}

/// A matrix that stays in four bits, for tables of which a text needs a few rows.
pub(super) struct Table<'a> {
    packed: &'a [u8],
    scales: &'a [u8],
    width: usize,
}

impl<'a> Tensors<'a> {
    pub(super) fn read(file: &'a [u8]) -> Result<Self, WeightsError> {
        let (length, rest) = file.split_first_chunk::<8>().ok_or(WeightsError::Header(None))?;
        let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| WeightsError::Header(None))?;
        let (header, data) = rest.split_at_checked(length).ok_or(WeightsError::Header(None))?;
        let entries = serde_json::from_slice(header).map_err(|error| WeightsError::Header(Some(error)))?;
        Ok(Self { entries, data })
    }

    fn bytes(&self, name: &str, length: usize) -> Result<&'a [u8], WeightsError> {
        let entry = self.entries.get(name).map(|entry| entry.data_offsets);
        entry
            .and_then(|(start, end)| self.data.get(start..end))
            .filter(|bytes| bytes.len() == length)
            .ok_or_else(|| WeightsError::Lacks(name.to_owned()))
    }

    /// A row of plain floats.
    pub(super) fn floats(&self, name: &str, count: usize) -> Result<Vec<f32>, WeightsError> {
        let bytes = self.bytes(name, count * 4)?;
        Ok(bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
    }

    pub(super) fn table(&self, name: &str, rows: usize, width: usize) -> Result<Table<'a>, WeightsError> {
        let packed = self.bytes(&format!("{name}.q4"), rows * width / 2)?;
        let scales = self.bytes(&format!("{name}.scales"), rows * width / GROUP * 2)?;
        Ok(Table { packed, scales, width })
    }

    pub(super) fn linear(&self, name: &str, outputs: usize, width: usize) -> Result<Linear, WeightsError> {
        let table = self.table(&format!("{name}.weight"), outputs, width)?;
        let values: Vec<f32> = (0..outputs).flat_map(|row| table.row(row)).collect();
        Ok(Linear { weights: Rows::scaled(&values, width), bias: self.floats(&format!("{name}.bias"), outputs)? })
    }
}

impl Table<'_> {
    pub(super) fn row(&self, index: usize) -> impl Iterator<Item = f32> {
        let packed = &self.packed[index * self.width / 2..][..self.width / 2];
        let scales = &self.scales[index * self.width / GROUP * 2..][..self.width / GROUP * 2];
        let scales = scales.as_chunks::<2>().0.iter().map(|bytes| half(u16::from_le_bytes(*bytes)));
        packed.as_chunks::<{ GROUP / 2 }>().0.iter().zip(scales).flat_map(|(group, scale)| {
            let pairs = group.iter().flat_map(|byte| [byte & 15, byte >> 4]);
            pairs.map(move |four_bits| (f32::from(four_bits) - 8.0) * scale)
        })
    }
}

/// A 16-bit float. Scales are ordinary numbers: neither infinite nor NaN.
fn half(bits: u16) -> f32 {
    let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
    let exponent = i32::from(bits >> 10 & 31);
    let fraction = f32::from(bits & 0x3ff);
    if exponent == 0 {
        return sign * fraction * 2.0_f32.powi(-24);
    }
    sign * (1024.0 + fraction) * 2.0_f32.powi(exponent - 25)
}

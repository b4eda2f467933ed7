//! Weights in four bits, with a scale for every 32 of them: the encoding of the built-in model.

use super::linear::Matrix;
use super::table::Table;
use super::tensors::{Tensors, Weights, WeightsError};
use crate::columns::Columns;
#[cfg(any(test, feature = "reference"))]
use crate::matrix::Rows;

/// How many weights share a scale.
const GROUP: usize = 32;

/// The parts of a file in four bits.
pub(crate) struct Packed {
    pub(crate) tensors: Tensors<'static>,
    pub(crate) form: PackedForm,
}

/// What the matrices of the layers are unpacked into.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PackedForm {
    EightBits,
    #[cfg(any(test, feature = "reference"))]
    SixteenBits,
}

/// A matrix that stays in four bits.
pub(crate) struct PackedTable {
    packed: &'static [u8],
    scales: &'static [u8],
    width: usize,
}

impl Packed {
    fn bytes(&self, name: &str, length: usize) -> Result<&'static [u8], WeightsError> {
        let (_, bytes) = self.tensors.get(name)?;
        if bytes.len() != length {
            return Err(WeightsError::Lacks(name.to_owned()));
        }
        Ok(bytes)
    }

    fn packed(&self, name: &str, rows: usize, width: usize) -> Result<PackedTable, WeightsError> {
        let packed = self.bytes(&format!("{name}.q4"), rows * width / 2)?;
        let scales = self.bytes(&format!("{name}.scales"), rows * width / GROUP * 2)?;
        Ok(PackedTable { packed, scales, width })
    }
}

#[cfg(test)]
impl Packed {
    /// Everything in it by name and shape, in floats.
    pub(crate) fn all(&self) -> Vec<(String, Vec<usize>, Vec<f32>)> {
        let mut all = Vec::new();
        for (name, entry) in self.tensors.entries() {
            if let Some(matrix) = name.strip_suffix(".q4") {
                let (_, scales) = self.tensors.get(&format!("{matrix}.scales")).expect("each matrix has scales");
                let numbers = scales.len() / 2 * GROUP;
                let width =
                    if matrix.ends_with(".output.dense.weight") && !matrix.contains("attention") { 1536 } else { 384 };
                let table = self.packed(matrix, numbers / width, width).expect("it is there");
                let values = (0..numbers / width).flat_map(|row| table.row(row)).collect();
                all.push((matrix.to_owned(), vec![numbers / width, width], values));
            } else if entry.dtype == "F32" {
                let count = entry.shape.iter().product();
                all.push((name.clone(), vec![count], self.floats(name, count).expect("it is there")));
            }
        }
        all
    }
}

impl Weights for Packed {
    fn table(&self, name: &str, rows: usize, width: usize) -> Result<Table, WeightsError> {
        Ok(Table::Packed(self.packed(name, rows, width)?))
    }

    fn matrix(&self, name: &str, rows: usize, width: usize) -> Result<Matrix, WeightsError> {
        let table = self.packed(name, rows, width)?;
        let values: Vec<f32> = (0..rows).flat_map(|row| table.row(row)).collect();
        Ok(match self.form {
            PackedForm::EightBits => Matrix::Columns(Columns::scaled(&values, width)),
            #[cfg(any(test, feature = "reference"))]
            PackedForm::SixteenBits => Matrix::Rows(Rows::scaled(&values, width)),
        })
    }

    fn floats(&self, name: &str, count: usize) -> Result<Vec<f32>, WeightsError> {
        let bytes = self.bytes(name, count * 4)?;
        Ok(bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
    }
}

impl PackedTable {
    pub(super) fn row(&self, index: usize) -> impl Iterator<Item = f32> {
        let packed = &self.packed[index * self.width / 2..][..self.width / 2];
        let scales = &self.scales[index * self.width / GROUP * 2..][..self.width / GROUP * 2];
        let scales = scales.as_chunks::<2>().0.iter().map(|bytes| super::half(u16::from_le_bytes(*bytes)));
        packed.as_chunks::<{ GROUP / 2 }>().0.iter().zip(scales).flat_map(|(group, scale)| {
            let pairs = group.iter().flat_map(|byte| [byte & 15, byte >> 4]);
            pairs.map(move |four_bits| (f32::from(four_bits) - 8.0) * scale)
        })
    }
}

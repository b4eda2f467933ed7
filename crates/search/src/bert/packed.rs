//! Weights in four bits, with a scale for every 32 of them: the encoding of the built-in model.

use super::linear::Matrix;
use super::table::Table;
use super::tensors::{Tensors, Weights, WeightsError};
use crate::four_bits::FourBitColumns;
use crate::kernel::GROUP;
#[cfg(any(test, feature = "reference"))]
use crate::matrix::Rows;

/// The parts of a file in four bits.
pub(crate) struct Packed {
    pub(crate) tensors: Tensors<'static>,
    pub(crate) form: PackedForm,
}

/// How the matrices of the layers are multiplied.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PackedForm {
    FourBits,
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
        Ok(match self.form {
            PackedForm::FourBits => Matrix::Columns(FourBitColumns::new(rows, width, table.groups(0))),
            #[cfg(any(test, feature = "reference"))]
            PackedForm::SixteenBits => {
                let values: Vec<f32> = (0..rows).flat_map(|row| table.row(row)).collect();
                Matrix::Rows(Rows::scaled(&values, width))
            }
        })
    }

    fn floats(&self, name: &str, count: usize) -> Result<Vec<f32>, WeightsError> {
        let bytes = self.bytes(name, count * 4)?;
        Ok(bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
    }
}

impl PackedTable {
    /// Its weights from a row on, two in a byte with the first one in the lower bits, and their scales.
    fn groups(&self, first_row: usize) -> impl Iterator<Item = (&'static [u8; GROUP / 2], f32)> {
        let first = first_row * self.width / GROUP;
        let (scales, _) = self.scales.as_chunks::<2>();
        let scales = scales[first..].iter().map(|bytes| super::half(u16::from_le_bytes(*bytes)));
        self.packed.as_chunks::<{ GROUP / 2 }>().0[first..].iter().zip(scales)
    }

    pub(super) fn row(&self, index: usize) -> impl Iterator<Item = f32> {
        self.groups(index).take(self.width / GROUP).flat_map(|(group, scale)| {
            let pairs = group.iter().flat_map(|byte| [byte & 15, byte >> 4]);
            pairs.map(move |four_bits| (f32::from(four_bits) - 8.0) * scale)
        })
    }
}

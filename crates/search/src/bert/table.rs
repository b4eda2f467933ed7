//! Tables of which a text needs a few rows: one for every word, one for every position.

#[cfg(feature = "builtin-model")]
use super::packed::PackedTable;
use crate::matrix::Rows;

/// A table in the form that it is kept in.
pub(crate) enum Table {
    /// In four bits, as it is compiled in.
    #[cfg(feature = "builtin-model")]
    Packed(PackedTable),
    /// In twelve bits, with a scale for every row.
    Scaled(Rows),
}

impl Table {
    /// Adds a row to some numbers.
    pub(super) fn add_row(&self, index: usize, numbers: &mut [f32]) {
        match self {
            #[cfg(feature = "builtin-model")]
            Self::Packed(table) => numbers.iter_mut().zip(table.row(index)).for_each(|(number, more)| *number += more),
            Self::Scaled(rows) => numbers.iter_mut().zip(rows.get(index)).for_each(|(number, more)| *number += more),
        }
    }
}

//! Which binding applies to a line, computed once for all lines.

use super::{Placed, breadth};

/// Pieces of a document, in each of which one binding applies, or none.
#[derive(Debug, Clone)]
pub(super) struct LineBindings {
    /// The first lines of the pieces, in order.
    starts: Vec<usize>,
    /// The binding of each piece, as an index.
    holders: Vec<Option<usize>>,
}

impl LineBindings {
    /// Of several bindings for a line, the one for the fewest lines wins, then the closer kind of part, then the first:
    /// comments come before front matter, and that before the registry.
    pub(super) fn of(placed: &[Placed]) -> Self {
        let mut starts: Vec<usize> =
            placed.iter().filter(|it| !it.held.is_empty()).flat_map(|it| [it.held.start, it.held.end]).collect();
        starts.sort_unstable();
        starts.dedup();
        let mut holders = vec![None; starts.len()];
        let mut order: Vec<usize> = (0..placed.len()).collect();
        order.sort_by_key(|place| (placed[*place].lines.len(), breadth(&placed[*place].binding.section)));
        // The next unassigned piece at or after each: every piece is assigned once.
        let mut free: Vec<usize> = (0..=starts.len()).collect();
        let piece = |line: usize| starts.partition_point(|start| *start < line);
        for place in order {
            let held = &placed[place].held;
            if held.is_empty() {
                continue;
            }
            let end = piece(held.end);
            let mut next = next_free(&mut free, piece(held.start));
            while next < end {
                holders[next] = Some(place);
                free[next] = next + 1;
                next = next_free(&mut free, next);
            }
        }
        Self { starts, holders }
    }

    /// The binding of a line.
    pub(super) fn at(&self, line: usize) -> Option<usize> {
        let piece = self.starts.partition_point(|start| *start <= line).checked_sub(1)?;
        self.holders[piece]
    }
}

fn next_free(free: &mut [usize], from: usize) -> usize {
    let mut end = from;
    while free[end] != end {
        end = free[end];
    }
    // Skip visited pieces next time.
    let mut here = from;
    while free[here] != end {
        here = std::mem::replace(&mut free[here], end);
    }
    end
}

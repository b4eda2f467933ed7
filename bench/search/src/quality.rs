//! How good a ranking is: the usual measures, in percent.

use std::ops::AddAssign;

/// The sums over some requests, or their means.
#[derive(Clone, Copy, Default)]
pub(crate) struct Quality {
    requests: f64,
    first_is_right: f64,
    recall_at_5: f64,
    recall_at_10: f64,
    ndcg_at_10: f64,
}

impl Quality {
    /// Of one request: what was found, best first, and what is right.
    pub(crate) fn of(found: &[usize], right: &[usize]) -> Self {
        let is_right: Vec<bool> = found.iter().take(10).map(|tool| right.contains(tool)).collect();
        let share = |count: usize| {
            let hits = is_right.iter().take(count).filter(|is_right| **is_right).count();
            hits as f64 / right.len() as f64
        };
        let gain = |place: usize| 1.0 / (place as f64 + 2.0).log2();
        let gained =
            is_right.iter().enumerate().filter(|(_, right)| **right).fold(0.0, |sum, (place, _)| sum + gain(place));
        let ideal: f64 = (0..right.len().min(10)).map(gain).sum();
        Self {
            requests: 1.0,
            first_is_right: if is_right.first() == Some(&true) { 1.0 } else { 0.0 },
            recall_at_5: share(5),
            recall_at_10: share(10),
            ndcg_at_10: gained / ideal,
        }
    }

    /// Hit@1, Recall@5, Recall@10 and nDCG@10 as cells of a table.
    pub(crate) fn cells(&self) -> String {
        let percent = |sum: f64| sum / self.requests.max(1.0) * 100.0;
        format!(
            "{:.1} | {:.1} | {:.1} | {:.1}",
            percent(self.first_is_right),
            percent(self.recall_at_5),
            percent(self.recall_at_10),
            percent(self.ndcg_at_10)
        )
    }
}

impl AddAssign for Quality {
    fn add_assign(&mut self, other: Self) {
        self.requests += other.requests;
        self.first_is_right += other.first_is_right;
        self.recall_at_5 += other.recall_at_5;
        self.recall_at_10 += other.recall_at_10;
        self.ndcg_at_10 += other.ndcg_at_10;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_perfect_ranking_has_all_points() {
        assert_eq!(Quality::of(&[3, 1, 2], &[1, 3]).cells(), "100.0 | 100.0 | 100.0 | 100.0");
    }

    #[test]
    fn a_right_tool_in_second_place_has_fewer() {
        assert_eq!(Quality::of(&[3, 1], &[1]).cells(), "0.0 | 100.0 | 100.0 | 63.1");
        assert_eq!(Quality::of(&[], &[1]).cells(), "0.0 | 0.0 | 0.0 | 0.0");
    }
}

//! How good rankings are: the usual measures of every request, their means in percent, and how sure these are.

/// Names of the measures, as the head of a table.
pub(crate) const MEASURES: [&str; 4] = ["Hit@1", "Recall@5", "Recall@10", "nDCG@10"];
/// How often requests are drawn anew for an interval.
const RESAMPLES: usize = 2_000;
/// The share of the resampled means within an interval.
const CONFIDENCE: f64 = 0.95;
const SEED: u64 = 20_261_119;

/// The measures of one ranking, from 0 to 1.
pub(crate) type Measures = [f64; 4];

/// Of one request: what was found, best first, and what is right.
pub(crate) fn measures(found: &[usize], right: &[usize]) -> Measures {
    let is_right: Vec<bool> = found.iter().take(10).map(|tool| right.contains(tool)).collect();
    let share = |count: usize| {
        let hits = is_right.iter().take(count).filter(|is_right| **is_right).count();
        hits as f64 / right.len() as f64
    };
    let gain = |place: usize| 1.0 / (place as f64 + 2.0).log2();
    let gained: f64 = is_right.iter().enumerate().filter(|(_, right)| **right).map(|(place, _)| gain(place)).sum();
    let ideal: f64 = (0..right.len().min(10)).map(gain).sum();
    let first = if is_right.first() == Some(&true) { 1.0 } else { 0.0 };
    [first, share(5), share(10), gained / ideal]
}

/// The measures of many requests, in their order.
#[derive(Clone, Default)]
pub(crate) struct Quality(pub(crate) Vec<Measures>);

impl Quality {
    /// The means with their intervals, as cells of a table.
    pub(crate) fn cells(&self) -> String {
        let intervals = intervals(&self.0);
        let means = mean(&self.0);
        let cell = |place: usize| {
            let [low, high] = intervals[place];
            format!("{:.1} [{low:.1}, {high:.1}]", means[place])
        };
        [0, 1, 2, 3].map(cell).join(" | ")
    }

    /// The means of the differences from another ranking of the same requests, with their intervals.
    pub(crate) fn differences_from(&self, other: &Self) -> String {
        let pairs = self.0.iter().zip(&other.0);
        let differences: Vec<Measures> =
            pairs.map(|(mine, other)| std::array::from_fn(|place| mine[place] - other[place])).collect();
        let intervals = intervals(&differences);
        let means = mean(&differences);
        let cell = |place: usize| {
            let [low, high] = intervals[place];
            format!("{:+.1} [{low:+.1}, {high:+.1}]", means[place])
        };
        [0, 1, 2, 3].map(cell).join(" | ")
    }
}

/// In percent.
fn mean(all: &[Measures]) -> Measures {
    let mut sums = [0.0; 4];
    for one in all {
        sums.iter_mut().zip(one).for_each(|(sum, value)| *sum += value);
    }
    sums.map(|sum| sum / all.len().max(1) as f64 * 100.0)
}

/// The bootstrap intervals of the means, in percent. The draws are always the same.
fn intervals(all: &[Measures]) -> [[f64; 2]; 4] {
    let mut state = SEED;
    let mut means: [Vec<f64>; 4] = Default::default();
    for _ in 0..RESAMPLES {
        let drawn: Vec<Measures> = (0..all.len()).map(|_| all[draw(&mut state, all.len())]).collect();
        means.iter_mut().zip(mean(&drawn)).for_each(|(means, mean)| means.push(mean));
    }
    let outside = (1.0 - CONFIDENCE) / 2.0;
    let place = |share: f64| ((RESAMPLES as f64 * share) as usize).min(RESAMPLES - 1);
    means.map(|mut means| {
        means.sort_unstable_by(f64::total_cmp);
        [means[place(outside)], means[place(1.0 - outside)]]
    })
}

/// A pseudo-random number below a limit (SplitMix64).
fn draw(state: &mut u64, limit: usize) -> usize {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^= mixed >> 31;
    (mixed % limit as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_perfect_ranking_has_all_points() {
        assert_eq!(measures(&[3, 1, 2], &[1, 3]), [1.0; 4]);
    }

    #[test]
    fn a_right_tool_in_second_place_has_fewer() {
        let [first, at_5, at_10, ndcg] = measures(&[3, 1], &[1]);
        assert_eq!((first, at_5, at_10), (0.0, 1.0, 1.0));
        assert!((ndcg - 0.6309).abs() < 1e-4);
        assert_eq!(measures(&[], &[1]), [0.0; 4]);
    }

    #[test]
    fn an_interval_contains_the_mean_and_shrinks_with_more_requests() {
        let half = |count: usize| (0..count).map(|number| [(number % 2) as f64; 4]).collect::<Vec<_>>();
        let [few, many] = [half(40), half(4_000)].map(|all| intervals(&all)[0]);
        assert!(few[0] < 50.0 && 50.0 < few[1] && many[0] < 50.0 && 50.0 < many[1]);
        assert!(many[1] - many[0] < (few[1] - few[0]) / 5.0);
        assert!(Quality(half(40)).differences_from(&Quality(half(40))).starts_with("+0.0 [+0.0, +0.0]"));
    }
}

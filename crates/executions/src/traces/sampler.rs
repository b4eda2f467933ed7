//! Which calls are recorded.

/// Decides which calls are recorded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampler {
    /// The decision of the caller is followed, if there is one.
    pub follows_parent: bool,
    /// The decision otherwise.
    pub root: Root,
}

/// The decision for a new trace.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Root {
    /// All are recorded.
    Always,
    /// None is.
    Never,
    /// This fraction of them, between 0 and 1. The id of the trace decides, so that other services decide the same.
    Ratio(f64),
}

impl Default for Sampler {
    fn default() -> Self {
        Self { follows_parent: true, root: Root::Always }
    }
}

impl Sampler {
    pub(super) fn takes(&self, trace_id: &[u8; 16], parent_is_sampled: Option<bool>) -> bool {
        if let Some(is_sampled) = parent_is_sampled.filter(|_| self.follows_parent) {
            return is_sampled;
        }
        match self.root {
            Root::Always => true,
            Root::Never => false,
            Root::Ratio(ratio) => {
                // As the SDKs of OpenTelemetry do it: the lower half of the id, without its last bit.
                let (_, low) = trace_id.split_at(8);
                let drawn = u64::from_be_bytes(low.try_into().expect("half of an id has eight bytes")) >> 1;
                (drawn as f64) < ratio * (1_u64 << 63) as f64
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(low: u64) -> [u8; 16] {
        (7_u128 << 64 | u128::from(low)).to_be_bytes()
    }

    #[test]
    fn a_caller_that_has_decided_is_followed_if_that_is_wanted() {
        let never = Sampler { follows_parent: true, root: Root::Never };
        assert!(never.takes(&id(1), Some(true)) && !never.takes(&id(1), None));
        assert!(!Sampler::default().takes(&id(1), Some(false)) && Sampler::default().takes(&id(1), None));
        let own_mind = Sampler { follows_parent: false, root: Root::Never };
        assert!(!own_mind.takes(&id(1), Some(true)));
    }

    #[test]
    fn a_ratio_takes_that_part_of_all_traces() {
        let taken = |ratio: f64| {
            let sampler = Sampler { follows_parent: true, root: Root::Ratio(ratio) };
            (0..1000).filter(|&part| sampler.takes(&id(u64::MAX / 1000 * part), None)).count()
        };
        assert_eq!([taken(0.0), taken(0.25), taken(1.0)], [0, 250, 1000]);
    }
}

//! What every section needs: who takes part, how much to measure, where to write; and how failures are judged.

use anyhow::{Context, Result};

use crate::contestant::{Contestant, Programs, Servers};
use crate::options::Effort;
use crate::report::Report;
use crate::session::Session;

pub(crate) struct Run {
    pub(crate) programs: Programs,
    pub(crate) contestants: Vec<Contestant>,
    pub(crate) effort: Effort,
    pub(crate) report: Report,
}

impl Run {
    /// Starts those contestants that `takes_part` picks, all with the same servers.
    pub(crate) fn start(
        &self,
        servers: Servers,
        takes_part: impl Fn(&Contestant) -> bool,
    ) -> Result<Vec<(&Contestant, Session)>> {
        let mut started = Vec::new();
        for contestant in self.contestants.iter().filter(|contestant| takes_part(contestant)) {
            let session = self.judge(contestant, contestant.start(&self.programs, servers))?;
            started.extend(session.map(|session| (contestant, session)));
        }
        Ok(started)
    }

    /// A failure of ours ends the run; a failure of another aggregator is told, and the run goes on without it.
    pub(crate) fn judge<T>(&self, contestant: &Contestant, outcome: Result<T>) -> Result<Option<T>> {
        match outcome {
            Ok(value) => Ok(Some(value)),
            Err(error) if contestant.is_other() => {
                self.report.note(&format!("({} left out here: {error:#})\n", contestant.name))?;
                Ok(None)
            }
            Err(error) => Err(error).with_context(|| contestant.name.clone()),
        }
    }
}

/// The order of `count` contestants in this round: each goes first equally often, so that no one always follows the
/// same predecessor's cold caches.
pub(crate) fn turns(round: usize, count: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |turn| (turn + round) % count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_contestant_has_one_turn_per_round_and_is_first_once() {
        assert_eq!(turns(0, 3).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(turns(1, 3).collect::<Vec<_>>(), [1, 2, 0]);
        assert_eq!(turns(5, 3).collect::<Vec<_>>(), [2, 0, 1]);
    }
}

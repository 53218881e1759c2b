//! The programs whose procedures are counted: each that was executed has copies and lanes of its own, which its forks have, too.

use std::collections::BTreeMap;

use callpath_measurement::MeasurementError;
use callpath_tables::paths::Executed;
use callpath_target::Maps;

use super::counts::Counted;
use crate::moved::ProgramNumber;

/// All of them that a process may still run.
#[derive(Default)]
pub(crate) struct Programs {
    all: BTreeMap<ProgramNumber, Counted>,
    next: u32,
    /// Of those that have ended: what a guide was good for, and what was counted.
    executed: Option<(Executed, &'static str)>,
}

impl Programs {
    /// The number of the next one.
    pub(super) fn begin(&mut self) -> ProgramNumber {
        self.next += 1;
        ProgramNumber(self.next)
    }

    /// Whether programs are counted.
    pub(crate) fn has_any(&self) -> bool {
        self.next > 0
    }

    /// Adds one that counts from now on.
    pub(super) fn add(&mut self, number: ProgramNumber, counted: Counted) {
        self.all.insert(number, counted);
    }

    /// Which of them a process runs, by its memory map: it has the lanes.
    pub(crate) fn of(&self, maps: &Maps) -> Option<ProgramNumber> {
        self.all.iter().find(|(_, counted)| counted.lanes.is_mapped_in(maps)).map(|(number, _)| *number)
    }

    /// What is counted in one.
    pub(crate) fn get(&self, number: ProgramNumber) -> Option<&Counted> {
        self.all.get(&number)
    }

    /// The same, to be changed.
    pub(super) fn get_mut(&mut self, number: ProgramNumber) -> Option<&mut Counted> {
        self.all.get_mut(&number)
    }

    /// Gives up those that no process runs any more: none that `is_used` knows of, and none that was forked just now. Returns which.
    ///
    /// # Errors
    /// If there was no memory to look: what such a process counts is lost.
    pub(crate) fn give_up(
        &mut self,
        is_used: impl Fn(ProgramNumber) -> bool,
    ) -> Result<Vec<ProgramNumber>, MeasurementError> {
        let mut ended = Vec::new();
        let unused: Vec<ProgramNumber> = self.all.keys().copied().filter(|number| !is_used(*number)).collect();
        for number in unused {
            let Some(counted) = self.all.remove(&number) else { continue };
            let executed = counted.executed();
            match counted.lanes.give_up() {
                Ok(Some(lanes)) => {
                    self.all.insert(number, Counted { lanes, ..counted });
                    continue;
                }
                Ok(None) => {}
                Err(error) => {
                    let source = std::io::Error::other(error.to_string());
                    return Err(MeasurementError::Read { path: "/proc/self/fd".into(), source });
                }
            }
            self.add_executed(executed);
            ended.push(number);
        }
        Ok(ended)
    }

    fn add_executed(&mut self, executed: Option<(Executed, &'static str)>) {
        self.executed = sum(self.executed, executed);
    }

    /// What a guide was good for, if there was one.
    pub(crate) fn note_of_guide(&self) -> Option<String> {
        let (Executed { guided, by_depth }, what) =
            self.all.values().map(Counted::executed).fold(self.executed, sum)?;
        Some(format!("--guide: {guided} {what} were executed; placed by loop depth they would have been {by_depth}"))
    }
}

/// Of two programs, what was counted in the one or the other.
fn sum(
    one: Option<(Executed, &'static str)>,
    other: Option<(Executed, &'static str)>,
) -> Option<(Executed, &'static str)> {
    let (Some((mut executed, what)), Some((more, _))) = (one, other) else { return one.or(other) };
    executed.add(more, 1);
    Some((executed, what))
}

//! The programs into which code is put at their beginning: each that was executed has code of its own, which its forks have, too, and
//! memory by which they are known: lanes, if its procedures are counted, else a page that marks it.

use std::collections::BTreeMap;

use callpath_measurement::MeasurementError;
use callpath_tables::paths::Executed;
use callpath_target::{Maps, SharedMemory, TargetError};

use super::counts::Counted;
use crate::moved::ProgramNumber;

/// What is known of one.
enum Known {
    /// Its procedures are counted.
    Counted(Box<Counted>),
    /// It is probed: whoever has this memory mapped runs it.
    Marked(SharedMemory),
}

impl Known {
    /// By which its processes are known.
    fn memory(&self) -> &SharedMemory {
        match self {
            Known::Counted(counted) => &counted.lanes,
            Known::Marked(mark) => mark,
        }
    }

    fn counted(&self) -> Option<&Counted> {
        match self {
            Known::Counted(counted) => Some(counted),
            Known::Marked(_) => None,
        }
    }

    /// Gives it up, unless a process can still write into its memory.
    fn give_up(self) -> Result<Option<Known>, TargetError> {
        match self {
            Known::Counted(counted) => {
                let counted = *counted;
                let Counted { lanes, .. } = counted;
                let lanes = lanes.give_up()?;
                Ok(lanes.map(|lanes| Known::Counted(Box::new(Counted { lanes, ..counted }))))
            }
            Known::Marked(mark) => Ok(mark.give_up()?.map(Known::Marked)),
        }
    }
}

/// All of them that a process may still run.
#[derive(Default)]
pub(crate) struct Programs {
    all: BTreeMap<ProgramNumber, Known>,
    next: u32,
    /// Their procedures are counted.
    are_counted: bool,
    /// Of those that have ended: what a guide was good for, and what was counted.
    executed: Option<(Executed, &'static str)>,
}

impl Programs {
    /// The number of the next one.
    pub(crate) fn next(&mut self) -> ProgramNumber {
        self.next += 1;
        ProgramNumber(self.next)
    }

    /// The number of the next one, whose procedures shall be counted.
    pub(super) fn begin(&mut self) -> ProgramNumber {
        self.are_counted = true;
        self.next()
    }

    /// Whether programs are counted.
    pub(crate) fn are_counted(&self) -> bool {
        self.are_counted
    }

    /// Adds one that counts from now on.
    pub(super) fn add(&mut self, number: ProgramNumber, counted: Counted) {
        self.all.insert(number, Known::Counted(Box::new(counted)));
    }

    /// Adds one that is probed: a process has the mark mapped, to be written.
    pub(crate) fn add_marked(&mut self, number: ProgramNumber, mark: SharedMemory) {
        self.all.insert(number, Known::Marked(mark));
    }

    /// Which of them a process runs, by its memory map.
    pub(crate) fn of(&self, maps: &Maps) -> Option<ProgramNumber> {
        self.all.iter().find(|(_, known)| known.memory().is_mapped_in(maps)).map(|(number, _)| *number)
    }

    /// Whether a process may still run one.
    pub(crate) fn has(&self, number: ProgramNumber) -> bool {
        self.all.contains_key(&number)
    }

    /// What is counted in one.
    pub(crate) fn get(&self, number: ProgramNumber) -> Option<&Counted> {
        self.all.get(&number)?.counted()
    }

    /// The same, to be changed.
    pub(super) fn get_mut(&mut self, number: ProgramNumber) -> Option<&mut Counted> {
        match self.all.get_mut(&number)? {
            Known::Counted(counted) => Some(counted),
            Known::Marked(_) => None,
        }
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
            let Some(known) = self.all.remove(&number) else { continue };
            let executed = known.counted().and_then(Counted::executed);
            match known.give_up() {
                Ok(Some(known)) => {
                    self.all.insert(number, known);
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
            self.all.values().filter_map(Known::counted).map(Counted::executed).fold(self.executed, sum)?;
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

//! The findings of the doctor, about the machine and the program.

use super::finding::{Finding, State};
use super::program::Program;

/// All that was found.
pub(super) struct Report {
    pub(super) machine: Vec<Finding>,
    pub(super) program: Option<Program>,
}

impl Report {
    pub(super) fn is_hopeless(&self) -> bool {
        let of_program = self.program.iter().flat_map(|program| &program.findings);
        self.machine.iter().chain(of_program).any(|finding| finding.state == State::Bad)
    }
}

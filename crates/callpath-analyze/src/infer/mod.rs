//! Maps of call paths (`callpath_infer`): made of contexts that a run was in, and asked for what samples without a walk have measured.
//!
//! Data flow: [`Measurement`] -> [`code`]: of each frame its procedure, and how much higher the stack is in what a call calls ->
//! [`train`]: contexts with their heights -> [`PathMap`].
//!
//! [`Measurement`]: callpath_measurement::Measurement
//! [`PathMap`]: callpath_infer::PathMap

mod answer;
mod check;
mod code;
mod from_code;
mod linked;
mod maps;
mod named_calls;
mod novel;
mod told;
mod train;

pub use answer::{Inferred, has_heights, infer, novel_profile, profile};
pub use check::{Checked, Missing, Verdicts, Walks, check};
pub use code::identity_bytes;
pub use from_code::{FromCode, ProgramFiles, from_code};
pub use maps::{Maps, absent_files, not_measured};
pub use named_calls::MapCalls;
pub use novel::{Novel, NovelSamples, novel, novel_of_inferred};
pub use told::{ToldBlocks, check_builds, told_blocks};
pub use train::{Trained, train};

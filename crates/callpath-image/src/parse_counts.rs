//! How often each part of an image was parsed: what is more than once is work done twice.

use std::sync::atomic::{AtomicU32, Ordering};

/// A part of an image that analyses have in common, and that takes time to parse.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ImagePart {
    /// Call frame information, all of it.
    CallFrames,
    /// Where exceptions land, of all procedures.
    LandingPads,
    /// Relocations, and what else the loader goes through.
    Relocations,
    /// The symbols that name procedures, for analyses of code. Names for people are read by themselves.
    ProcedureSymbols,
}

impl ImagePart {
    /// All of them.
    pub const ALL: [ImagePart; 4] =
        [ImagePart::CallFrames, ImagePart::LandingPads, ImagePart::Relocations, ImagePart::ProcedureSymbols];
}

/// A count for each part.
#[derive(Default)]
pub(crate) struct ParseCounts([AtomicU32; ImagePart::ALL.len()]);

impl ParseCounts {
    pub(crate) fn count(&self, part: ImagePart) {
        self.0[part as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn of(&self, part: ImagePart) -> u32 {
        self.0[part as usize].load(Ordering::Relaxed)
    }
}

//! Where in its procedure an instruction stands: what makes a frame easy or hard to unwind.

use std::ops::Range;
use std::sync::Arc;

use callpath_format::address::LinkAddr;
use callpath_image::elf::Image;
use callpath_image::module_file::ModuleFile;
use callpath_image::plt;
use callpath_image::symbols::Procedures;

use crate::listing;

/// Instructions from a procedure's start, or up to its end, that may be its prologue or epilogue.
const NEAR: usize = 10;

/// The kind of code that an instruction belongs to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum CodeKind {
    /// The first instruction of a procedure.
    Entry,
    /// One of the next few, before any branch.
    Prologue,
    /// None of the others.
    Body,
    /// One of the last few before a return or a jump out of the procedure.
    Epilogue,
    /// A stub of the procedure linkage table.
    Plt,
    /// No call frame information speaks of it.
    NoCfi,
    /// Code of no module.
    Outside,
}

impl CodeKind {
    /// In a word or two.
    pub fn name(self) -> &'static str {
        match self {
            CodeKind::Entry => "entry",
            CodeKind::Prologue => "prologue",
            CodeKind::Body => "body",
            CodeKind::Epilogue => "epilogue",
            CodeKind::Plt => "PLT",
            CodeKind::NoCfi => "no CFI",
            CodeKind::Outside => "outside",
        }
    }
}

/// A module's code, as far as kinds of code need it.
pub struct CodeKinds {
    image: Arc<Image>,
    procedures: Procedures,
    plt: Vec<Range<LinkAddr>>,
    /// Code that some FDE speaks of, sorted.
    frames: Vec<Range<LinkAddr>>,
}

impl CodeKinds {
    /// Those of an image.
    pub fn new(image: Arc<Image>) -> CodeKinds {
        let file = ModuleFile::new(Arc::clone(&image));
        let frames = file.call_frames().ranges.iter();
        let mut frames: Vec<Range<LinkAddr>> = frames.map(|range| range.code.clone()).collect();
        frames.sort_by_key(|range| (range.start, range.end));
        let plt = plt::sections(&image).into_iter().map(|section| section.code).collect();
        CodeKinds { procedures: Procedures::new(image.clone(), None), plt, frames, image }
    }

    /// The kind of code that an instruction belongs to.
    pub fn kind(&self, addr: LinkAddr) -> CodeKind {
        if self.plt.iter().any(|range| range.contains(&addr)) {
            return CodeKind::Plt;
        }
        if !self.has_frame(addr) {
            return CodeKind::NoCfi;
        }
        let start = self.procedures.procedure_at(addr).map_or(addr, |procedure| procedure.start);
        if start == addr {
            return CodeKind::Entry;
        }
        if listing::is_straight(&self.image, start, addr, NEAR) {
            return CodeKind::Prologue;
        }
        let end = self.procedures.procedure_at(addr).map_or(addr.0, |p| p.start.0.saturating_add(p.len));
        if listing::leaves(&self.image, addr, start..LinkAddr(end), NEAR) { CodeKind::Epilogue } else { CodeKind::Body }
    }

    /// The procedure around an address: its start and its name.
    pub fn procedure(&self, addr: LinkAddr) -> Option<(LinkAddr, Option<&str>)> {
        self.procedures.procedure_at(addr).map(|procedure| (procedure.start, procedure.name))
    }

    /// The image.
    pub fn image(&self) -> &Image {
        &self.image
    }

    fn has_frame(&self, addr: LinkAddr) -> bool {
        let after = self.frames.partition_point(|range| range.start <= addr);
        // Ranges hardly ever nest.
        self.frames[..after].iter().rev().take(8).any(|range| range.contains(&addr))
    }
}

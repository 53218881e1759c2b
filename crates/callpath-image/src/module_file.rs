//! A module's file as this process knows it: its bytes, and the parts that several analyses ask for. Each part is
//! parsed when it is first asked for, by whichever thread, and then shared.
//!
//! The parts live as long as the `ModuleFile`: whoever needs the bytes alone from
//! then on keeps the [`Image`] and drops this.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use callpath_format::address::LinkAddr;

use crate::cfi::CallFrames;
use crate::elf::Image;
use crate::landing_pads::LandingPads;
use crate::loading::Loading;

/// A module's file: see the module's own words.
pub struct ModuleFile {
    image: Arc<Image>,
    code: Vec<Range<LinkAddr>>,
    code_left_out: Option<LinkAddr>,
    call_frames: OnceLock<CallFrames>,
    landing_pads: OnceLock<LandingPads>,
    loading: OnceLock<Loading>,
}

impl ModuleFile {
    /// Of an image that was read. Parses nothing yet.
    pub fn new(image: Arc<Image>) -> ModuleFile {
        let (code, code_left_out) = bounded_code(&image);
        ModuleFile {
            image,
            code,
            code_left_out,
            call_frames: OnceLock::new(),
            landing_pads: OnceLock::new(),
            loading: OnceLock::new(),
        }
    }

    /// The file's bytes and headers.
    pub fn image(&self) -> &Arc<Image> {
        &self.image
    }

    /// The executable ranges that are analysed, sorted and disjoint: no more bytes than the
    /// file has, twice, whatever its headers claim.
    pub fn code(&self) -> &[Range<LinkAddr>] {
        &self.code
    }

    /// Where executable ranges begin that are too much.
    pub fn code_left_out(&self) -> Option<LinkAddr> {
        self.code_left_out
    }

    /// All that its call frame information says of [`code`](ModuleFile::code).
    pub fn call_frames(&self) -> &CallFrames {
        self.call_frames.get_or_init(|| CallFrames::of_image(&self.image, &self.code))
    }

    /// Somebody has asked for the call frame information.
    pub fn has_call_frames(&self) -> bool {
        self.call_frames.get().is_some()
    }

    /// Where exceptions land, by the order of [`call_frames`](ModuleFile::call_frames).
    pub fn landing_pads(&self) -> &LandingPads {
        self.landing_pads.get_or_init(|| LandingPads::of_image(&self.image, self.call_frames()))
    }

    /// What the dynamic loader puts where.
    pub fn loading(&self) -> &Loading {
        self.loading.get_or_init(|| Loading::of(&self.image))
    }

    /// Drops [`loading`](ModuleFile::loading); the next question parses it again.
    pub fn release_relocations(&mut self) {
        self.loading.take();
    }
}

/// The executable ranges that fit, and where those begin that do not.
fn bounded_code(image: &Image) -> (Vec<Range<LinkAddr>>, Option<LinkAddr>) {
    let mut budget = image.file_len().saturating_mul(2);
    let mut code = image.executable_ranges();
    let mut fits = 0;
    for range in &code {
        match budget.checked_sub(range.end.0 - range.start.0) {
            Some(left) => budget = left,
            None => break,
        }
        fits += 1;
    }
    let left_out = code.get(fits).map(|range| range.start);
    code.truncate(fits);
    (code, left_out)
}

//! One call that runs everything here on any bytes: for the mutation tests and for fuzz targets.
//! Knows nothing of what the answers should be, only that there are some.

use std::path::Path;
use std::sync::Arc;

use callpath_format::address::LinkAddr;

use crate::debug_file::DebugFiles;
use crate::demangle::demangle;
use crate::elf::Image;
use crate::lines::Lines;
use crate::symbols::Procedures;

/// How many addresses are asked for.
const PROBES: u64 = 200;

/// Reads `bytes` as an image and asks it everything; gives how much was answered.
pub fn fuzz_image(bytes: &[u8]) -> usize {
    let Ok(image) = Image::from_bytes(bytes.to_vec(), Path::new("/nowhere/fuzzed")) else { return 0 };
    let found = DebugFiles::find(&image, &[]);
    let mut answers = found.diagnostics.iter().map(|error| error.to_string().len()).sum::<usize>();
    answers += image.diagnostics().iter().map(|error| error.to_string().len()).sum::<usize>();
    answers += usize::from(image.is_static_pie()) + usize::from(image.interpreter().is_some());
    let addrs = probes(&image);
    let image = Arc::new(image);
    let procedures = Procedures::new(Arc::clone(&image), Some(&image));
    for procedure in addrs.iter().filter_map(|&addr| procedures.procedure_at(addr)) {
        answers += procedure.name.map_or(1, |name| demangle(name).len());
    }
    let lines = Lines::new(Arc::clone(&image), Some(image));
    answers += lines.lines(&addrs).into_iter().flatten().map(|line| line.file.len()).sum::<usize>();
    answers + lines.diagnostics().len()
}

/// Reads any bytes as a linker's name.
pub fn fuzz_name(bytes: &[u8]) -> usize {
    demangle(&String::from_utf8_lossy(bytes)).len()
}

/// Addresses spread over all executable bytes, and the most awkward ones.
fn probes(image: &Image) -> Vec<LinkAddr> {
    let ranges = image.executable_ranges();
    let spread = ranges.iter().flat_map(|range| {
        let step = ((range.end.0 - range.start.0) / PROBES).max(1);
        (range.start.0..range.end.0).step_by(usize::try_from(step).unwrap_or(usize::MAX)).map(LinkAddr)
    });
    spread.take(2 * PROBES as usize).chain([0, 1, u64::MAX - 1, u64::MAX].map(LinkAddr)).collect()
}

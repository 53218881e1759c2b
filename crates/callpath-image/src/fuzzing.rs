//! One call that runs everything here on any bytes: for the mutation tests and for fuzz targets.
//! Knows nothing of what the answers should be, only that there are some.

use std::path::Path;
use std::sync::Arc;

use callpath_format::address::LinkAddr;

use crate::debug_file::DebugFiles;
use crate::demangle::demangle;
use crate::elf::Image;
use crate::lines::Lines;
use crate::scopes::Scopes;
use crate::symbols::Procedures;

/// How many addresses are asked for.
const PROBES: u64 = 200;
/// How many pieces of a scope are looked at.
const LISTED: usize = 20;

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
    let lines = Lines::new(Arc::clone(&image), Some(Arc::clone(&image)));
    answers += lines.lines(&addrs).into_iter().flatten().map(|line| line.file.len()).sum::<usize>();
    answers + lines.diagnostics().len() + scopes(image, &addrs)
}

/// Asks all that scopes can be asked.
fn scopes(image: Arc<Image>, addrs: &[LinkAddr]) -> usize {
    let scopes = Scopes::new(Arc::clone(&image), Some(image), None);
    let mut answers = scopes.diagnostics().len();
    for unit in scopes.units() {
        let unit = match scopes.read(unit) {
            Ok(unit) => unit,
            Err(error) => {
                answers += error.to_string().len();
                continue;
            }
        };
        answers += unit.diagnostics().iter().map(|error| error.to_string().len()).sum::<usize>();
        for scope in unit.scopes() {
            answers += scope.origin.and_then(|origin| origin.display_name()).map_or(0, |name| name.len());
            answers += scope.origin.map_or(0, |origin| origin.containers().count());
            answers += scope.ranges.iter().map(|range| unit.lines(range.clone()).count()).sum::<usize>();
            let pieces = scope.ranges.iter().map(|range| unit.pieces(range.clone()));
            answers += pieces.flatten().take(LISTED).map(|(piece, _)| unit.chain(piece.start).count()).sum::<usize>();
        }
        answers += addrs.iter().map(|&addr| unit.chain(addr).count()).sum::<usize>();
        answers += addrs.iter().filter_map(|&addr| unit.procedure_at(addr)).count();
    }
    answers
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

//! Which compilation unit holds an address.
//! Knows nothing of what a unit says about it.
//!
//! `.debug_aranges` answers without a look into the units. Those that it does not cover (clang and rustc write none)
//! are asked for their own ranges.

use std::collections::HashSet;
use std::path::Path;

use gimli::{DebugInfoOffset, Dwarf, UnitType};

use crate::dwarf::{DwarfSections, Reader};
use crate::error::ImageError;

/// How many ranges that begin before an address are tried: units overlap rarely, and never deeply.
const OVERLAP_LIMIT: usize = 32;

struct UnitRange {
    start: u64,
    end: u64,
    /// The greatest `end` of this one and all before it.
    greatest_end: u64,
    unit: DebugInfoOffset,
}

/// All units' ranges.
pub(crate) struct Units {
    /// Sorted by start.
    ranges: Vec<UnitRange>,
}

/// What is being collected.
struct Index<'a> {
    path: &'a Path,
    ranges: Vec<UnitRange>,
    /// How many ranges may still be added: each takes more than one byte in a sound file, but in a hostile one many
    /// units can share one list.
    ranges_left: usize,
    diagnostics: Vec<ImageError>,
}

impl Units {
    /// Finds the ranges of all units. What is broken is left out and told.
    pub(crate) fn index(sections: &DwarfSections, path: &Path) -> (Units, Vec<ImageError>) {
        let dwarf = sections.dwarf();
        let ranges_left = sections.total_len();
        let mut index = Index { path, ranges: Vec::new(), ranges_left, diagnostics: Vec::new() };
        let covered = index.add_aranges(&dwarf);
        index.add_units(&dwarf, &covered);
        let Index { mut ranges, diagnostics, .. } = index;
        ranges.sort_unstable_by_key(|range| (range.start, range.end, range.unit.0));
        let mut greatest_end = 0;
        for range in &mut ranges {
            greatest_end = range.end.max(greatest_end);
            range.greatest_end = greatest_end;
        }
        (Units { ranges }, diagnostics)
    }

    /// The unit that holds `addr`; of several, the one whose range begins last.
    pub(crate) fn unit_at(&self, addr: u64) -> Option<DebugInfoOffset> {
        let before = self.ranges.get(..self.ranges.partition_point(|range| range.start <= addr))?;
        let nearest = before.iter().rev().take(OVERLAP_LIMIT).take_while(|range| range.greatest_end > addr);
        nearest.into_iter().find(|range| range.end > addr).map(|range| range.unit)
    }
}

impl Index<'_> {
    /// Gives the units that `.debug_aranges` covers.
    fn add_aranges(&mut self, dwarf: &Dwarf<Reader<'_>>) -> HashSet<DebugInfoOffset> {
        let mut covered = HashSet::new();
        let mut headers = dwarf.debug_aranges.headers();
        loop {
            let header = match headers.next() {
                Ok(Some(header)) => header,
                Ok(None) => return covered,
                Err(error) => {
                    // The rest is not lost: the units tell their ranges themselves.
                    self.diagnose(".debug_aranges", 0, error);
                    return covered;
                }
            };
            let unit = header.debug_info_offset();
            let mut entries = header.entries();
            loop {
                match entries.next() {
                    Ok(Some(entry)) => {
                        if self.add(entry.address(), entry.address().saturating_add(entry.length()), unit) {
                            covered.insert(unit);
                        }
                    }
                    Ok(None) => break,
                    // One range that overflows the address space; the next may be good.
                    Err(gimli::Error::AddressOverflow) => {}
                    Err(error) => {
                        self.diagnose(".debug_aranges", header.offset().0, error);
                        covered.remove(&unit);
                        break;
                    }
                }
            }
        }
    }

    fn add_units(&mut self, dwarf: &Dwarf<Reader<'_>>, covered: &HashSet<DebugInfoOffset>) {
        let mut headers = dwarf.units();
        let mut next_offset = 0;
        loop {
            let header = match headers.next() {
                Ok(Some(header)) => header,
                Ok(None) => return,
                Err(error) => return self.diagnose(".debug_info, whose further units are lost,", next_offset, error),
            };
            let Some(unit) = header.debug_info_offset() else { continue };
            next_offset = unit.0.saturating_add(header.length_including_self());
            let holds_code = matches!(header.type_(), UnitType::Compilation | UnitType::Skeleton(_));
            if !holds_code || covered.contains(&unit) {
                continue;
            }
            if let Err(error) = self.add_ranges_of(dwarf, header, unit) {
                self.diagnose("the unit in .debug_info", unit.0, error);
            }
        }
    }

    fn add_ranges_of(
        &mut self,
        dwarf: &Dwarf<Reader<'_>>,
        header: gimli::UnitHeader<Reader<'_>>,
        offset: DebugInfoOffset,
    ) -> Result<(), gimli::Error> {
        let unit = dwarf.unit(header)?;
        let mut ranges = dwarf.unit_ranges(&unit)?;
        while let Some(range) = ranges.next()? {
            self.add(range.begin, range.end, offset);
        }
        Ok(())
    }

    /// Adds a range unless it is empty, or of code that the linker dropped: that begins at 0, where no code lies.
    fn add(&mut self, start: u64, end: u64, unit: DebugInfoOffset) -> bool {
        if start == 0 || start >= end || self.ranges_left == 0 {
            return false;
        }
        self.ranges_left -= 1;
        self.ranges.push(UnitRange { start, end, greatest_end: end, unit });
        true
    }

    fn diagnose(&mut self, what: &'static str, offset: usize, error: gimli::Error) {
        let (path, why) = (self.path.to_path_buf(), error.to_string());
        self.diagnostics.push(ImageError::Malformed { path, what, offset: offset as u64, why });
    }
}

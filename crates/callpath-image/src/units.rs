//! Which compilation unit holds an address.
//!
//! Each unit's first entry is asked. `.debug_aranges`, which clang and rustc do not write, and
//! the line map stand in where that is broken.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use gimli::{Abbreviations, DebugAbbrevOffset, DebugInfoOffset, Dwarf, SectionId, UnitType};

use crate::code_ranges::{CodeEnd, Within};
use crate::dwarf::{DwarfSections, Home, Reader};
use crate::error::ImageError;
use crate::scopes::root::{UnitRoot, read_root};

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
    /// How many bytes of line programs may still be run.
    lines_left: usize,
    code_end: CodeEnd,
    /// Those of the unit before.
    abbreviations: Option<(DebugAbbrevOffset, Arc<Abbreviations>)>,
    diagnostics: Vec<ImageError>,
}

impl Units {
    /// Finds the ranges of all units. Broken ones are left out and reported.
    pub(crate) fn index(sections: &DwarfSections, path: &Path) -> (Units, Vec<ImageError>) {
        let dwarf = sections.dwarf();
        let ranges_left = sections.total_len();
        let mut index = Index {
            path,
            ranges: Vec::new(),
            ranges_left,
            lines_left: 2 * sections.section(SectionId::DebugLine).slice().len(),
            code_end: CodeEnd::of(sections.image()),
            abbreviations: None,
            diagnostics: Vec::new(),
        };
        let by_aranges = index.read_aranges(&dwarf);
        index.add_units(&dwarf, by_aranges);
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
    /// What `.debug_aranges` says, by unit.
    fn read_aranges(&mut self, dwarf: &Dwarf<Reader<'_>>) -> HashMap<usize, Vec<(u64, u64)>> {
        let mut by_unit: HashMap<usize, Vec<(u64, u64)>> = HashMap::new();
        let mut headers = dwarf.debug_aranges.headers();
        let mut next_offset = 0;
        loop {
            let header = match headers.next() {
                Ok(Some(header)) => header,
                Ok(None) => return by_unit,
                Err(error) => {
                    // The rest is not lost: the units tell their ranges themselves.
                    self.diagnose(".debug_aranges", next_offset, error.to_string());
                    return by_unit;
                }
            };
            let offset = header.offset().0;
            next_offset = offset.saturating_add(header.length()).saturating_add(4);
            let listed = by_unit.entry(header.debug_info_offset().0).or_default();
            let mut entries = header.entries();
            loop {
                match entries.next() {
                    Ok(Some(entry)) => {
                        let (start, end) = (entry.address(), entry.address().saturating_add(entry.length()));
                        if start != 0 && start < end && self.code_end.holds(end) {
                            listed.push((start, end));
                        }
                    }
                    Ok(None) => break,
                    // One range that overflows the address space; the next may be good.
                    Err(gimli::Error::AddressOverflow) => {}
                    Err(error) => {
                        self.diagnose(".debug_aranges", offset, error.to_string());
                        break;
                    }
                }
            }
        }
    }

    /// Adds what the units say of themselves, which is believed, and reports where `.debug_aranges` says less.
    fn add_units(&mut self, dwarf: &Dwarf<Reader<'_>>, mut by_aranges: HashMap<usize, Vec<(u64, u64)>>) {
        let mut headers = dwarf.units();
        let mut next_offset = 0;
        loop {
            let header = match headers.next() {
                Ok(Some(header)) => header,
                Ok(None) => break,
                Err(error) => {
                    self.diagnose(".debug_info, whose further units are lost,", next_offset, error.to_string());
                    break;
                }
            };
            let Some(unit) = header.debug_info_offset() else { continue };
            next_offset = unit.0.saturating_add(header.length_including_self());
            if !matches!(header.type_(), UnitType::Compilation | UnitType::Skeleton(_)) {
                continue;
            }
            let listed = by_aranges.remove(&unit.0);
            if let Err(why) = self.add_unit(dwarf, header, listed.as_deref()) {
                self.diagnose("the unit in .debug_info", unit.0, why);
            }
        }
        // Behind a broken header units are lost, unless they are named here.
        let (none, lost): (Vec<_>, Vec<_>) = by_aranges.into_iter().partition(|(unit, _)| *unit < next_offset);
        for (unit, listed) in lost {
            if dwarf.debug_info.header_from_offset(DebugInfoOffset(unit)).is_ok() {
                listed.into_iter().for_each(|(start, end)| _ = self.add(start, end, DebugInfoOffset(unit)));
            }
        }
        if let Some(unit) = none.iter().map(|(unit, _)| *unit).min() {
            self.diagnose(".debug_aranges", 0, format!("it speaks of a unit at {unit:#x}, where none begins"));
        }
    }

    /// Its own ranges, and those of `.debug_aranges` where that says more. Where neither says all, its line map's, too.
    fn add_unit(
        &mut self,
        dwarf: &Dwarf<Reader<'_>>,
        header: gimli::UnitHeader<Reader<'_>>,
        listed: Option<&[(u64, u64)]>,
    ) -> Result<(), String> {
        let unit = DebugInfoOffset(header.offset().0);
        let before = self.ranges.len();
        let code_end = self.code_end;
        let root = self.abbreviations(dwarf, &header).and_then(|abbreviations| {
            read_root(dwarf, Home::Main, header, abbreviations).map_err(|error| error.to_string())
        });
        let mut said = match &root {
            Ok(root) => root.code.each(&Within { dwarf, unit: &root.unit, code_end }, |start, end| {
                self.add(start, end, unit);
                Ok(())
            }),
            Err(why) => Err(why.clone()),
        };
        let own = sum(self.ranges.get(before..).unwrap_or_default().iter().map(|range| (range.start, range.end)));
        let of_list = sum(listed.unwrap_or_default().iter().copied());
        if of_list > own || own == 0 {
            listed.unwrap_or_default().iter().for_each(|&(start, end)| _ = self.add(start, end, unit));
        } else if listed.is_some() && of_list < own {
            let why =
                format!("it speaks of {of_list:#x} bytes of code of the unit at {:#x}, which has {own:#x}", unit.0);
            self.diagnose(".debug_aranges", 0, why);
        }
        // Addresses in a table of their own are 0 where that is broken, too.
        let may_lack = match &root {
            Ok(root) => root.unit.header.version() >= 5 && matches!(said, Ok(true)),
            Err(_) => false,
        };
        if (may_lack || said.is_err() || own == 0)
            && of_list == 0
            && let Ok(root) = &root
        {
            // What is wrong with it is reported when its lines are asked for.
            let sequences = self.sequences(dwarf, root);
            if !sequences.is_empty() && own == 0 && said.is_ok() {
                said = Err("it has lines, and says of no code that it is its".to_owned());
            }
            sequences.into_iter().for_each(|(start, end)| _ = self.add(start, end, unit));
        }
        said.map(|_| ())
    }

    /// Units that follow each other often share theirs.
    fn abbreviations(
        &mut self,
        dwarf: &Dwarf<Reader<'_>>,
        header: &gimli::UnitHeader<Reader<'_>>,
    ) -> Result<Arc<Abbreviations>, String> {
        let offset = header.debug_abbrev_offset();
        if let Some((_, known)) = self.abbreviations.as_ref().filter(|(known, _)| *known == offset) {
            return Ok(Arc::clone(known));
        }
        let read = dwarf.debug_abbrev.abbreviations(offset).map_err(|error| error.to_string())?;
        let read = Arc::new(read);
        self.abbreviations = Some((offset, Arc::clone(&read)));
        Ok(read)
    }

    /// Where the sequences of a unit's line map begin and end, as far as it can be read.
    fn sequences(&mut self, dwarf: &Dwarf<Reader<'_>>, root: &UnitRoot<'_>) -> Vec<(u64, u64)> {
        let mut found = Vec::new();
        let program = root
            .line_offset
            .and_then(|offset| dwarf.debug_line.program(offset, root.unit.header.address_size(), None, None).ok());
        let Some(program) = program else { return found };
        // Many units can share one program.
        let Some(left) = self.lines_left.checked_sub(program.header().raw_program_buf().len()) else { return found };
        self.lines_left = left;
        let mut rows = program.rows();
        let mut start = None;
        while let Ok(Some((_, row))) = rows.next_row() {
            let first = *start.get_or_insert(row.address());
            if row.end_sequence() {
                found.push((first, row.address()));
                start = None;
            }
        }
        found.retain(|&(start, end)| start != 0 && start < end && self.code_end.holds(end));
        found
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

    fn diagnose(&mut self, what: &'static str, offset: usize, why: String) {
        let path = self.path.to_path_buf();
        self.diagnostics.push(ImageError::Malformed { path, what, offset: offset as u64, why });
    }
}

/// Bytes of code; what overlaps counts twice.
fn sum(ranges: impl Iterator<Item = (u64, u64)>) -> u64 {
    ranges.fold(0, |sum, (start, end)| sum.saturating_add(end.saturating_sub(start)))
}

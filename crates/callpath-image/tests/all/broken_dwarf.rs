//! DWARF with each attribute wrong in turn: diagnostics name the unit and the entry, and the rest stays.

use crate::tools;

use std::path::Path;
use std::sync::Arc;

use callpath_format::address::LinkAddr;
use callpath_image::elf::Image;
use callpath_image::fuzzing::{FUZZED_SECTIONS, fuzz_scopes};
use callpath_image::scopes::{LineRun, ScopeKind, Scopes, UnitScopes};
use gimli::{DebugAbbrev, DebugInfo, LittleEndian};
use tools::compile;

/// A program and where its DWARF lies in the file.
struct Program {
    bytes: Vec<u8>,
    info: std::ops::Range<usize>,
    abbrev: std::ops::Range<usize>,
    line: std::ops::Range<usize>,
}

/// An attribute of the unit's entries.
struct AttributeLocation {
    entry: usize,
    is_root: bool,
    tag: gimli::DwTag,
    name: gimli::DwAt,
    form: gimli::DwForm,
    /// In `.debug_info`.
    value: std::ops::Range<usize>,
}

impl Program {
    fn new(version: &str) -> Program {
        let dir = tempfile::tempdir().unwrap();
        let bytes = std::fs::read(compile(dir.path(), "inlined.c", "inlined", &["-g", "-O2", version])).unwrap();
        let image = Image::from_bytes(bytes.clone(), Path::new("inlined")).unwrap();
        let location = |name: &str| {
            let data = image.section(name).unwrap().data.into_owned();
            let at = bytes.windows(data.len()).position(|window| window == data).unwrap();
            at..at + data.len()
        };
        Program {
            info: location(".debug_info"),
            abbrev: location(".debug_abbrev"),
            line: location(".debug_line"),
            bytes,
        }
    }

    fn attributes(&self) -> Vec<AttributeLocation> {
        let info = DebugInfo::new(&self.bytes[self.info.clone()], LittleEndian);
        let header = info.units().next().unwrap().unwrap();
        let abbrev = DebugAbbrev::new(&self.bytes[self.abbrev.clone()], LittleEndian);
        let abbreviations = header.abbreviations(&abbrev).unwrap();
        let mut entries = header.entries_raw(&abbreviations, None).unwrap();
        let mut locations = Vec::new();
        while !entries.is_empty() {
            let (entry, depth) = (entries.next_offset().0, entries.next_depth());
            let Some(abbreviation) = entries.read_abbreviation().unwrap() else { continue };
            for spec in abbreviation.attributes() {
                let start = entries.next_offset().0;
                let attribute = entries.read_attribute(*spec).unwrap();
                let value = start..entries.next_offset().0;
                let (tag, name, form) = (abbreviation.tag(), attribute.name(), spec.form());
                locations.push(AttributeLocation { entry, is_root: depth == 0, tag, name, form, value });
            }
        }
        locations
    }

    /// With the bytes of an attribute replaced, as far as they go.
    fn with(&self, section: &std::ops::Range<usize>, at: usize, new: &[u8]) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        bytes[section.start + at..section.start + at + new.len()].copy_from_slice(new);
        bytes
    }
}

/// The scopes and lines of the first unit.
fn read(bytes: Vec<u8>) -> Result<UnitScopes, String> {
    let scopes = Scopes::new(Arc::new(Image::from_bytes(bytes, Path::new("broken")).unwrap()), None, None);
    let unit = scopes.units().next().ok_or("no units")?;
    scopes.read(unit).map_err(|error| error.to_string())
}

fn lines(unit: &UnitScopes) -> Vec<LineRun> {
    unit.lines(LinkAddr(0)..LinkAddr(u64::MAX)).collect()
}

/// Asks everything; a chain is no longer than the number of scopes.
fn ask(unit: &UnitScopes) {
    for scope in unit.scopes() {
        scope.origin.map(|origin| (origin.display_name().map(|name| name.len()), origin.containers().count()));
        for range in scope.ranges {
            assert!(unit.chain(range.start).count() <= unit.scopes().count() + 1);
        }
    }
}

#[test]
fn each_attribute_wrong_in_turn() {
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        let program = Program::new(version);
        let whole = read(program.bytes.clone()).unwrap();
        assert!(whole.diagnostics().is_empty() && whole.has_inlined_calls(), "{:?}", whole.diagnostics());
        let locations = program.attributes();
        assert!(locations.len() > 100);
        for location in locations.iter().filter(|location| !location.value.is_empty()) {
            let len = location.value.len();
            let old = &program.bytes[program.info.start..][location.value.clone()];
            let entry = &(location.entry as u64).to_le_bytes()[..len.min(8)];
            let flipped: Vec<u8> = old.iter().map(|byte| byte ^ 0x11).collect();
            for new in [&vec![0; len], &vec![0xff; len], &vec![0x7f; len], &entry.to_vec(), &flipped] {
                let context = format!("{version}, {} of {:#x} as {new:x?}", location.name, location.entry);
                let unit = match read(program.with(&program.info, location.value.start, new)) {
                    Ok(unit) => unit,
                    Err(why) => {
                        assert!(location.is_root && why.contains("unit at 0x0"), "{context}: {why}");
                        continue;
                    }
                };
                ask(&unit);
                // The next simpler way: whatever an entry says, the line map stays.
                assert!(location.is_root || lines(&unit) == lines(&whole), "{context}");
            }
        }
    }
}

#[test]
fn each_form_wrong_in_turn() {
    let program = Program::new("-gdwarf-5");
    let whole = read(program.bytes.clone()).unwrap();
    let abbrev = &program.bytes[program.abbrev.clone()];
    let mut diagnosed = 0;
    for at in 0..abbrev.len() {
        for form in [0x01, 0x06, 0x08, 0x0f, 0x10, 0x13, 0x15, 0x16, 0x17, 0x19, 0x1b, 0x20, 0x21, 0x22, 0x23, 0x7e] {
            // Codes, tags, names, whether there are children: all bytes of the table get all these values.
            let Ok(unit) = read(program.with(&program.abbrev, at, &[form])) else { continue };
            ask(&unit);
            diagnosed += usize::from(!unit.diagnostics().is_empty());
            if unit.diagnostics().is_empty() && unit.scopes().count() == whole.scopes().count() {
                continue;
            }
            assert!(
                unit.diagnostics()
                    .iter()
                    .all(|error| error.to_string().contains("of the unit at 0x0 in .debug_info of broken"))
            );
        }
    }
    assert!(diagnosed > 500, "{diagnosed}");
}

fn has_code(tag: gimli::DwTag) -> bool {
    matches!(tag, gimli::DW_TAG_subprogram | gimli::DW_TAG_inlined_subroutine)
}

/// Diagnostics of references that lead nowhere, or back to their own entry.
#[test]
fn what_is_wrong_is_diagnosed() {
    let program = Program::new("-gdwarf-4");
    let whole = read(program.bytes.clone()).unwrap();
    let origins: Vec<AttributeLocation> =
        program.attributes().into_iter().filter(|location| location.name == gimli::DW_AT_abstract_origin).collect();
    let all_diagnosed = |value: &dyn Fn(&AttributeLocation) -> u32, what: &str| {
        let mut diagnosed = 0;
        for location in origins.iter().filter(|location| location.form == gimli::DW_FORM_ref4) {
            let unit = read(program.with(&program.info, location.value.start, &value(location).to_le_bytes())).unwrap();
            let at = format!("the entry at {:#x} of the unit at 0x0 in .debug_info of broken: ", location.entry);
            diagnosed += unit
                .diagnostics()
                .iter()
                .map(ToString::to_string)
                .filter(|d| d.contains(&at) && d.contains(what))
                .count();
            assert_eq!(unit.scopes().count(), whole.scopes().count());
        }
        diagnosed
    };
    let expected = whole.scopes().filter(|scope| scope.kind == ScopeKind::InlinedCall).count();
    assert!(expected >= 3, "{expected}");
    assert!(all_diagnosed(&|_| 0x7fff_ffff, "it refers to 0x7fffffff, outside of the unit") >= expected);
    assert!(all_diagnosed(&|location| location.entry as u32, "its origins go round in a circle") >= expected);
    let ranges = program
        .attributes()
        .into_iter()
        .filter(|location| location.name == gimli::DW_AT_ranges && has_code(location.tag));
    let mut diagnosed = 0;
    for location in ranges {
        let unit = read(program.with(&program.info, location.value.start, &[0xf0, 0xff, 0xff, 0x7f])).unwrap();
        let wanted = format!(
            "the entry at {:#x} of the unit at 0x0 in .debug_info of broken: its code cannot be found",
            location.entry
        );
        assert!(unit.diagnostics().iter().any(|error| error.to_string().contains(&wanted)), "{:?}", unit.diagnostics());
        diagnosed += 1;
    }
    assert!(diagnosed > 0);
}

/// Entries do not need lines: procedures and inlined calls stay, whatever the line program says.
#[test]
fn absurd_line_tables() {
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        let program = Program::new(version);
        let whole = read(program.bytes.clone()).unwrap();
        let expected: Vec<_> = whole.scopes().map(|scope| (scope.parent, scope.ranges.to_vec())).collect();
        let mut diagnosed = 0;
        for at in 0..program.line.len() {
            for byte in [0, 1, 0x7f, 0xff] {
                let unit = read(program.with(&program.line, at, &[byte])).unwrap();
                ask(&unit);
                // A row takes a byte of the program at least, and ends one stretch of lines.
                assert!(lines(&unit).len() <= program.line.len(), "{version}: {byte:#x} at {at:#x} of .debug_line");
                let found: Vec<_> = unit.scopes().map(|scope| (scope.parent, scope.ranges.to_vec())).collect();
                assert!(found == expected, "{version}: {byte:#x} at {at:#x} of .debug_line");
                let diagnostics = unit.diagnostics().iter().map(ToString::to_string);
                diagnosed += diagnostics.filter(|diagnostic| diagnostic.contains("its line program")).count();
            }
        }
        assert!(diagnosed > 10, "{diagnosed}");
    }
}

/// What a fuzzer does for hours.
#[test]
fn any_bytes_as_sections() {
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        let program = Program::new(version);
        let image = Image::from_bytes(program.bytes.clone(), Path::new("original")).unwrap();
        let mut input = Vec::new();
        for name in FUZZED_SECTIONS {
            let data = image.section(name).map(|section| section.data.into_owned()).unwrap_or_default();
            input.extend_from_slice(&(data.len() as u16).to_le_bytes());
            input.extend_from_slice(&data);
        }
        assert!(fuzz_scopes(&input) > 50);
        let mut random = fastrand::Rng::with_seed(0x51de_c0de);
        for round in 0..4000 {
            let mut bytes = input.clone();
            for _ in 0..=random.usize(..4) {
                let at = random.usize(..bytes.len());
                bytes[at] =
                    [0, 0xff, bytes[at] ^ (1 << random.usize(..8)), random.usize(..256) as u8][random.usize(..4)];
            }
            // Measured: 0.6 answers a byte.
            let answers = fuzz_scopes(&bytes);
            assert!(answers <= 2 * bytes.len(), "round {round} of {version}: {answers} from {} bytes", bytes.len());
        }
    }
}

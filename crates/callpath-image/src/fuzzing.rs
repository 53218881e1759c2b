//! One call that runs everything here on any bytes: for the mutation tests and for fuzz targets.
//! There must be answers; which, is not checked.

use std::path::Path;
use std::sync::Arc;

use callpath_format::address::LinkAddr;

use crate::abi;
use crate::code_symbols::CodeSymbols;
use crate::debug_file::DebugFiles;
use crate::demangle::demangle;
use crate::elf::Image;
use crate::lines::Lines;
use crate::module_file::ModuleFile;
use crate::scopes::Scopes;
use crate::symbols::Procedures;

/// How many addresses are asked for.
const PROBES: u64 = 200;
/// How many ranges of a scope are looked at.
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
    answers += CodeSymbols::of(&image, Some(&image)).all().len();
    let procedures = Procedures::new(Arc::clone(&image), Some(&image));
    for procedure in addrs.iter().filter_map(|&addr| procedures.procedure_at(addr)) {
        answers += procedure.name.map_or(1, |name| demangle(name).len());
    }
    let lines = Lines::new(Arc::clone(&image), Some(Arc::clone(&image)));
    answers += lines.lines(&addrs).into_iter().flatten().map(|line| line.file.len()).sum::<usize>();
    let module = ModuleFile::new(Arc::clone(&image));
    let landings = module.landing_pads();
    answers += landings.pads.len() + landings.diagnostics.iter().map(|odd| odd.to_string().len()).sum::<usize>();
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
            let scope_ranges = scope.ranges.iter().map(|range| unit.scope_ranges(range.clone()));
            answers += scope_ranges
                .flatten()
                .take(LISTED)
                .map(|(scope_range, _)| unit.chain(scope_range.start).count())
                .sum::<usize>();
        }
        answers += addrs.iter().map(|&addr| unit.chain(addr).count()).sum::<usize>();
        answers += addrs.iter().filter_map(|&addr| unit.procedure_at(addr)).count();
    }
    answers
}

/// The sections that [`fuzz_scopes`] makes of its input.
pub const FUZZED_SECTIONS: [&str; 10] = [
    ".debug_info",
    ".debug_abbrev",
    ".debug_line",
    ".debug_line_str",
    ".debug_str",
    ".debug_ranges",
    ".debug_rnglists",
    ".debug_aranges",
    ".debug_addr",
    ".debug_str_offsets",
];

/// Reads any bytes as DWARF: for each of [`FUZZED_SECTIONS`] its length in two bytes, then the section's own; the last
/// takes what is left. Gives how much was answered.
pub fn fuzz_scopes(bytes: &[u8]) -> usize {
    let mut rest = bytes;
    let sections = FUZZED_SECTIONS.map(|name| {
        let (len, behind) = rest.split_first_chunk::<2>().unwrap_or((&[0; 2], &[]));
        let (section, behind) = behind.split_at(usize::from(u16::from_le_bytes(*len)).min(behind.len()));
        rest = behind;
        (name, section)
    });
    let Ok(image) = Image::from_bytes(elf_with(&sections), Path::new("/nowhere/fuzzed")) else { return 0 };
    let addrs: Vec<LinkAddr> = (0..PROBES).map(|index| LinkAddr(0x1000 + 7 * index)).collect();
    scopes(Arc::new(image), &addrs)
}

/// A shared object with these sections and nothing else.
fn elf_with(sections: &[(&str, &[u8])]) -> Vec<u8> {
    const HEADER_LEN: usize = 64;
    let mut body = Vec::new();
    let mut names = vec![0];
    let mut headers = vec![0; HEADER_LEN];
    let mut add = |name: &str, kind: u32, data: &[u8], names: &mut Vec<u8>| {
        let (offset, name_offset) = ((HEADER_LEN + body.len()) as u64, names.len() as u32);
        body.extend_from_slice(data);
        names.extend_from_slice(name.as_bytes());
        names.push(0);
        headers.extend_from_slice(&name_offset.to_le_bytes());
        headers.extend_from_slice(&kind.to_le_bytes());
        for field in [0, 0, offset, data.len() as u64, 0, 1, 0] {
            headers.extend_from_slice(&field.to_le_bytes());
        }
    };
    for (name, data) in sections {
        add(name, abi::SHT_PROGBITS, data, &mut names);
    }
    let all_names = [&names[..], b".shstrtab\0"].concat();
    add(".shstrtab", abi::SHT_STRTAB, &all_names, &mut names);
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    file.extend_from_slice(&[3, 0, 62, 0, 1, 0, 0, 0]); // ET_DYN, EM_X86_64, EV_CURRENT
    for field in [0, 0, (HEADER_LEN + body.len()) as u64] {
        file.extend_from_slice(&field.to_le_bytes());
    }
    let count = sections.len() as u16 + 2;
    file.extend_from_slice(&[0; 4]);
    for field in [HEADER_LEN as u16, 56, 0, 64, count, count - 1] {
        file.extend_from_slice(&field.to_le_bytes());
    }
    file.extend_from_slice(&body);
    file.extend_from_slice(&headers);
    file
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

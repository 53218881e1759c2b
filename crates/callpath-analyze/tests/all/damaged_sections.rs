//! Damages each section that structure is found from in turn: there is an answer, diagnostics say what is wrong, and
//! as much is found as without the section.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use callpath_analyze::names::ModuleNames;
use callpath_analyze::structure::{ModuleSource, ModuleStructure, structure};
use callpath_image::elf::Image;
use callpath_tables::module::Module;

fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn compiled(directory: &Path, compiler: &str, options: &[&str]) -> PathBuf {
    compiled_of(directory, "shapes.cc", compiler, options)
}

fn compiled_of(directory: &Path, source: &str, compiler: &str, options: &[&str]) -> PathBuf {
    let source = &format!("{}/../callpath-image/tests/programs/{source}", env!("CARGO_MANIFEST_DIR"));
    let path = directory.join("shapes");
    run(compiler, &[options, &["-O2", source, "-o", text(&path)]].concat());
    path
}

fn found(bytes: Vec<u8>) -> ModuleStructure {
    let image = Arc::new(Image::from_bytes(bytes, Path::new("damaged")).unwrap());
    structure(
        &ModuleSource { module: Arc::new(Module::new(Arc::clone(&image))), with_dwarf: image, supplement: None },
        None,
        &|_, _| {},
    )
}

/// How much there is: scopes, and lines of code.
fn amounts(found: &ModuleStructure) -> (usize, usize) {
    let scopes = found.procedures.iter().map(|procedure| procedure.scopes.len()).sum();
    let pieces = found.procedures.iter().flat_map(|procedure| &procedure.scoped_ranges);
    (scopes, pieces.filter(|scoped_range| scoped_range.location.is_some()).count())
}

/// A section header: where it is in the file, its section's name, offset and length.
struct Header {
    at: usize,
    name: String,
    offset: usize,
    len: usize,
}

/// ELF's own layout, so that what is damaged is not where the reader under test says.
fn headers(file: &[u8]) -> Vec<Header> {
    let number = |at: usize, len: usize| file[at..at + len].iter().rev().fold(0, |n, byte| n << 8 | usize::from(*byte));
    let (table, count, names) = (number(40, 8), number(60, 2), number(62, 2));
    let names = number(table + 64 * names + 24, 8);
    let header = |at: usize| {
        let name = &file[names + number(at, 4)..];
        let name = String::from_utf8(name.iter().copied().take_while(|byte| *byte != 0).collect()).unwrap();
        Header { at, name, offset: number(at + 24, 8), len: number(at + 32, 8) }
    };
    (0..count).map(|index| header(table + 64 * index)).collect()
}

/// What can happen to a section.
const DAMAGES: [&str; 5] = ["zeros", "ones", "random", "cut in half", "second half zeros"];

fn damaged(file: &[u8], header: &Header, how: &str) -> Vec<u8> {
    let mut bytes = file.to_vec();
    let section = &mut bytes[header.offset..header.offset + header.len];
    match how {
        "zeros" => section.fill(0),
        "ones" => section.fill(0xff),
        "random" => fastrand::Rng::with_seed(0x0bad_5eed).fill(section),
        "cut in half" => {
            bytes[header.at + 32..header.at + 40].copy_from_slice(&(header.len as u64 / 2).to_le_bytes());
        }
        "second half zeros" => section[header.len / 2..].fill(0),
        _ => unreachable!("{how}"),
    }
    bytes
}

/// What structure does not need is not read, so that damage there is not seen.
const NOT_READ: [&str; 4] = [".debug_loc", ".debug_loclists", ".debug_macro", ".debug_gdb_scripts"];

#[test]
fn each_section_of_dwarf() {
    let directory = tempfile::tempdir().unwrap();
    for (compiler, version) in
        [("g++", "-gdwarf-4"), ("g++", "-gdwarf-5"), ("clang++", "-gdwarf-4"), ("clang++", "-gdwarf-5")]
    {
        let path = compiled(directory.path(), compiler, &["-g", version]);
        let file = std::fs::read(&path).unwrap();
        let whole = found(file.clone());
        assert_eq!(whole.diagnostics, Vec::<String>::new());
        let mut seen = 0;
        for header in headers(&file).iter().filter(|header| header.name.starts_with(".debug_")) {
            let without = directory.path().join("without");
            run("objcopy", &["-R", &header.name, text(&path), text(&without)]);
            let least = amounts(&found(std::fs::read(&without).unwrap()));
            for how in DAMAGES {
                let context = format!("{compiler} {version}, {}, {how}", header.name);
                let damaged = found(damaged(&file, header, how));
                let have = amounts(&damaged);
                assert!(have.0 >= least.0 && have.1 >= least.1, "{context}: {have:?}, without it {least:?}");
                if NOT_READ.contains(&&*header.name) {
                    assert!(damaged == whole, "{context}");
                    continue;
                }
                assert!(!damaged.diagnostics.is_empty(), "{context}");
                for said in &damaged.diagnostics {
                    let names_place = said.contains(" at offset 0x") || said.contains(" of the unit at 0x");
                    assert!(said.starts_with("failed to ") && said.contains(" of damaged") && names_place, "{said}");
                }
                seen += 1;
            }
        }
        assert!(seen >= 25, "{compiler} {version}: {seen}");
    }
}

#[test]
fn call_frame_information_of_a_stripped_program() {
    let directory = tempfile::tempdir().unwrap();
    let file = std::fs::read(compiled(directory.path(), "g++", &["-s"])).unwrap();
    let whole = found(file.clone());
    assert_eq!(whole.diagnostics, Vec::<String>::new());
    let entries = |found: &ModuleStructure| found.procedures.iter().map(|p| p.entry).collect::<Vec<_>>();
    let headers = headers(&file);
    let section = |name: &str| headers.iter().find(|header| header.name == name).unwrap();
    for name in [".eh_frame", ".eh_frame_hdr"] {
        for how in DAMAGES {
            // The loader finds it without the section header.
            let is_unharmed = (name, how) == (".eh_frame_hdr", "cut in half");
            let damaged = found(damaged(&file, section(name), how));
            let said = damaged
                .diagnostics
                .iter()
                .any(|said| said.contains(&format!("{name}, ")) && said.contains(" at offset 0x"));
            assert!(said != is_unharmed, "{name}, {how}: {:?}", damaged.diagnostics);
            let (had, have) = (entries(&whole), entries(&damaged));
            assert!(had.iter().all(|entry| have.contains(entry)), "{name}, {how}: {had:x?} and {have:x?}");
            // A procedure whose only call is unknown may be seen twice.
            assert!(have.len() <= had.len() + 2, "{name}, {how}: {} procedures of {}", have.len(), had.len());
            assert_eq!(amounts(&damaged).0, amounts(&whole).0, "{name}, {how}");
        }
    }
    // Both gone: only the code is left.
    let mut both = damaged(&file, section(".eh_frame"), "ones");
    both = damaged(&both, section(".eh_frame_hdr"), "ones");
    let both = found(both);
    assert!(both.diagnostics.len() >= 2, "{:?}", both.diagnostics);
    assert_eq!(amounts(&both).0, amounts(&whole).0);
}

/// Broken landing pads take nothing but loops through them; the diagnostics name
/// the file, the table and the place in it.
#[test]
fn landing_pads() {
    let directory = tempfile::tempdir().unwrap();
    let file = std::fs::read(compiled_of(directory.path(), "throws.cc", "g++", &["-shared", "-fPIC"])).unwrap();
    assert_eq!(found(file.clone()).diagnostics, Vec::<String>::new());
    let headers = headers(&file);
    let table = headers.iter().find(|header| header.name == ".gcc_except_table").unwrap();
    let damaged = found(damaged(&file, table, "random"));
    assert!(!damaged.diagnostics.is_empty());
    for said in damaged.diagnostics {
        let names_table = said.contains(": the landing pads at 0x") && said.contains(", offset 0x");
        assert!(said.starts_with("failed to read damaged") && names_table, "{said}");
    }
}

/// Section headers that lead nowhere, are zeros, or are too few: reported, and program
/// headers lead to the code and its frames.
#[test]
fn section_headers_and_cut_files() {
    let directory = tempfile::tempdir().unwrap();
    let file = std::fs::read(compiled(directory.path(), "g++", &["-s"])).unwrap();
    let whole = found(file.clone());
    let names = |bytes: Vec<u8>| {
        let image = Image::from_bytes(bytes, Path::new("damaged"));
        ModuleNames::from_module(Path::new("damaged"), image.map(Module::from), None, &[])
    };
    assert_eq!(names(file.clone()).diagnostics().collect::<Vec<_>>(), Vec::<String>::new());
    let table = usize::try_from(u64::from_le_bytes(file[40..48].try_into().unwrap())).unwrap();
    let with = |at: usize, new: &[u8]| {
        let mut bytes = file.clone();
        bytes[at..at + new.len()].copy_from_slice(new);
        bytes
    };
    let code = whole.procedures.iter().flat_map(|p| &p.fragments).map(|f| f.end.0).max().unwrap() as usize;
    let cases = [
        ("e_shoff behind the end", with(40, &(file.len() as u64 + 64).to_le_bytes()), "the section headers"),
        ("e_shoff 0", with(40, &[0; 8]), "the section headers"),
        ("e_shnum too large", with(60, &[0xff, 0x7f]), "the section headers"),
        ("e_shnum too small", with(60, &[2, 0]), "the section headers"),
        ("e_shstrndx wrong", with(62, &[1, 0]), "the section headers"),
        ("a table of zeros", with(table, &vec![0; file.len() - table]), "the section headers"),
        ("cut behind its code", file[..code].to_vec(), "a segment"),
        ("cut in its code", file[..code - 0x200].to_vec(), "a segment"),
    ];
    for (what, bytes, named) in cases {
        let said: Vec<String> = names(bytes.clone()).diagnostics().collect();
        let tells = |said: &String| said.contains(named) && said.contains("damaged") && said.contains("offset 0x");
        assert!(said.iter().any(tells), "{what}: {said:?}");
        assert!(said.iter().any(|said| said.contains("copy or build it anew")), "{what}: {said:?}");
        let found = found(bytes);
        // Call frame information lies behind the code: without it procedures are found by their code alone.
        match named {
            "a segment" => assert!(!found.procedures.is_empty(), "{what}"),
            _ => assert_eq!(amounts(&found).0, amounts(&whole).0, "{what}"),
        }
    }
}

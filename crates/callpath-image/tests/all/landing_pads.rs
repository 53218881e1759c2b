//! Landing pads against what compilers themselves write: their assembler output names each call site and each pad by
//! labels, which are kept in the linked file. And broken tables: an answer that lies in the code, or a diagnostic.

use crate::tools;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use callpath_image::elf::Image;
use callpath_image::landing_pads::{LandingPad, LandingPads, fuzz_landing_pads};
use callpath_image::module_file::ModuleFile;
use tools::{run, source};

fn landing_pads(image: Image) -> LandingPads {
    ModuleFile::new(Arc::new(image)).landing_pads().clone()
}

/// Assembles and links, with the compiler's labels kept.
fn link(directory: &Path, assembler: &Path) -> (Image, BTreeMap<String, u64>) {
    let path = |name: &str| directory.join(name).to_str().unwrap().to_owned();
    run("gcc", &["-c", "-Wa,-L", assembler.to_str().unwrap(), "-o", &path("code.o")]);
    run("gcc", &["-shared", "-nostdlib", &path("code.o"), "-o", &path("program")]);
    let symbols = run("nm", &[&path("program")]);
    let symbol = |line: &str| {
        let mut words = line.split_whitespace();
        let address = u64::from_str_radix(words.next()?, 16).ok()?;
        Some((words.nth(1)?.to_owned(), address))
    };
    (Image::read(Path::new(&path("program"))).unwrap(), symbols.lines().filter_map(symbol).collect())
}

/// `(start, end, pad, catches)` of each call site in assembler whose exceptions land.
fn written(assembler: &str, symbols: &BTreeMap<String, u64>) -> BTreeSet<(u64, u64, u64, bool)> {
    let at = |label: &str| *symbols.get(label).unwrap_or_else(|| panic!("{label} is no symbol"));
    let mut sites = BTreeSet::new();
    // A distance between labels, or a number.
    let mut numbers: Option<Vec<(Option<&str>, u64)>> = None;
    for line in assembler.lines().map(|line| line.split('#').next().unwrap().trim()) {
        if let Some(label) = line.strip_suffix(':') {
            let is_inside = label.starts_with(".LLSDACSB") || label.starts_with(".Lcst_begin");
            let is_end = label.starts_with(".LLSDACSE") || label.starts_with(".Lcst_end");
            if is_inside {
                numbers = Some(Vec::new());
            } else if is_end {
                for site in numbers.take().unwrap_or_default().chunks(4) {
                    let [(Some(start), _), (_, len), (Some(pad), _), (_, action)] = site else { continue };
                    sites.insert((at(start), at(start) + len, at(pad), *action != 0));
                }
            }
            continue;
        }
        let number = line.strip_prefix(".uleb128").or_else(|| line.strip_prefix(".byte")).map(str::trim);
        if let (Some(numbers), Some(number)) = (&mut numbers, number) {
            numbers.push(match number.split_once('-') {
                Some((to, from)) => (Some(to), at(to) - at(from)),
                None => {
                    let digits = number.strip_prefix("0x").map(|digits| u64::from_str_radix(digits, 16));
                    (None, digits.unwrap_or_else(|| number.parse()).unwrap())
                }
            });
        }
    }
    sites
}

fn check(compiler: &str, level: &str, least: usize) {
    let directory = tempfile::tempdir().unwrap();
    let assembler = directory.path().join("code.s");
    let output = assembler.to_str().unwrap();
    if compiler == "rustc" {
        let level = format!("-Copt-level={level}");
        let options = ["--edition=2024", "--crate-type=lib", "--emit=asm", "-Ccodegen-units=1", "-Cpanic=unwind"];
        run(compiler, &[&options[..], &[&level, source("drops.rs").to_str().unwrap(), "-o", output]].concat());
    } else {
        let level = format!("-O{level}");
        // The assembler does not know clang's table of addresses.
        let option = if compiler == "clang++" { "-fno-addrsig" } else { "-fexceptions" };
        run(compiler, &["-S", "-fPIC", option, &level, source("throws.cc").to_str().unwrap(), "-o", output]);
    }
    let (image, symbols) = link(directory.path(), &assembler);
    let written = written(&std::fs::read_to_string(&assembler).unwrap(), &symbols);
    assert!(written.len() >= least, "{compiler} {level}: {written:x?}");
    let found = landing_pads(image);
    assert!(found.diagnostics.is_empty(), "{:?}", found.diagnostics);
    let pads = found.pads.iter().map(|pad| (pad.calls.start.0, pad.calls.end.0, pad.pad.0, pad.catches));
    assert_eq!(pads.collect::<BTreeSet<_>>(), written, "{compiler} {level}");
}

#[test]
fn pads_of_gcc() {
    for level in ["0", "1", "2", "3", "s"] {
        check("g++", level, 6);
    }
}

#[test]
fn pads_of_clang() {
    for level in ["0", "2", "3", "s"] {
        check("clang++", level, 4);
    }
}

#[test]
fn pads_of_rust() {
    for level in ["0", "1", "2", "3", "s"] {
        check("rustc", level, 2);
    }
}

/// Each byte of the tables, and of what leads to them, with each of these values.
#[test]
fn broken_tables() {
    let directory = tempfile::tempdir().unwrap();
    let assembler = directory.path().join("code.s");
    run("g++", &["-S", "-O2", "-fPIC", source("throws.cc").to_str().unwrap(), "-o", assembler.to_str().unwrap()]);
    let (image, _) = link(directory.path(), &assembler);
    let whole = landing_pads(Image::from_bytes(image.bytes().to_vec(), Path::new("whole")).unwrap());
    let code = image.executable_ranges();
    let mut odd = 0;
    let mut other = 0;
    for name in [".gcc_except_table", ".eh_frame"] {
        let section = image.section(name).unwrap();
        let at = image.bytes().windows(section.data.len()).position(|bytes| bytes == &*section.data).unwrap();
        for index in at..at + section.data.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff, image.bytes()[index] ^ 0x10] {
                let mut bytes = image.bytes().to_vec();
                bytes[index] = value;
                let broken = Image::from_bytes(bytes, Path::new("broken")).unwrap();
                let found = landing_pads(broken);
                for LandingPad { calls, pad, .. } in &found.pads {
                    assert!(calls.start < calls.end && code.iter().any(|range| range.contains(pad)));
                }
                odd += usize::from(!found.diagnostics.is_empty());
                other += usize::from(found.pads != whole.pads);
            }
        }
    }
    assert!(odd > 100 && other > 300, "{odd} {other}");
}

/// A pad in a cut table, a length beyond the end, an unknown encoding: diagnostics say where.
#[test]
fn what_is_wrong_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let check = |table: &str, expected: &str| {
        let path = directory.path().join("odd.s");
        let code = "f: .cfi_startproc\n.cfi_lsda 0x1b, table\n.cfi_personality 0x1b, f\nnop\nnop\nret\n.cfi_endproc\n";
        let text = format!("{code}.section .gcc_except_table,\"a\"\ntable: {table}\n");
        std::fs::write(&path, text).unwrap();
        let (image, _) = link(directory.path(), &path);
        let found = landing_pads(image);
        let said = found.diagnostics.iter().map(|odd| odd.to_string()).collect::<Vec<_>>().join("\n");
        assert!(said.contains(expected), "{table}: {said}");
        assert!(found.pads.is_empty(), "{table}: {:?}", found.pads);
    };
    check(".byte 0xff, 0xff, 1, 100", "offset 0x4: the table ends too early");
    check(".byte 0xff, 0xff, 0x55, 4, 0, 1, 2, 0", "offset 0x4: an unknown encoding of pointers, 0x55");
    check(".byte 0xff, 0xff, 1, 4, 0, 9, 2, 0", "offset 0x4: a call site or its landing pad is outside");
    check(".byte 0xff, 0xff, 1, 6, 0, 1, 0xff, 0xff, 0x7f, 0", "outside of the code");
    check(".byte 0x20, 1", "offset 0x1: an unknown encoding of pointers, 0x20");
}

#[test]
fn any_bytes() {
    let mut random = fastrand::Rng::with_seed(0x2545_f491_4f6c_dd1d);
    for len in 0..20_000 {
        let bytes: Vec<u8> = (0..len % 40)
            .map(|index| {
                // Mostly as tables begin.
                [0xff, 0xff, random.choice([1, 3, 0, 9]).unwrap_or(0)].get(index).copied().unwrap_or(random.u8(..))
            })
            .collect();
        fuzz_landing_pads(&bytes);
    }
}

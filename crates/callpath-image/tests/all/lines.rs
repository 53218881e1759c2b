//! Source lines, compared with addr2line's, for every form of debug information that compilers here write.

use crate::tools;

use std::path::Path;
use std::sync::Arc;

use callpath_format::address::LinkAddr;
use callpath_image::debug_file::DebugFiles;
use callpath_image::elf::Image;
use callpath_image::lines::Lines;
use tools::{compile, filter, installed, objcopy};

/// Every third byte of the executable part of the sections that hold procedures of the program itself.
fn addrs(image: &Image) -> Vec<LinkAddr> {
    let text = image.section(".text").unwrap();
    (text.addr.0..text.addr.0 + text.data.len() as u64).step_by(3).map(LinkAddr).collect()
}

fn compare(debug: &Path, addrs: &[LinkAddr]) -> usize {
    compare_by(debug, addrs, |line| Some(line.to_string()))
}

/// Compares `part` of the line of all of `addrs` with binutils' addr2line on `debug`; gives how many have a line.
fn compare_by(debug: &Path, addrs: &[LinkAddr], part: impl Fn(&str) -> Option<String>) -> usize {
    let lines = Lines::new(Arc::new(Image::read(debug).unwrap()), None);
    let ours = lines.lines(addrs);
    assert_eq!(lines.diagnostics(), Vec::<String>::new());
    let asked: Vec<String> = addrs.iter().map(|addr| format!("{addr:#x}")).collect();
    let expected = filter("addr2line", &["-e", debug.to_str().unwrap()], &asked);
    assert_eq!(expected.len(), addrs.len());
    let mut found = 0;
    for ((addr, ours), expected) in addrs.iter().zip(&ours).zip(&expected) {
        // "file:12 (discriminator 3)"; "file:?" where the line is 0; "??:0" where nothing is known.
        let expected = expected.split(" (discriminator").next().unwrap();
        let ours = ours.as_ref().map(|line| format!("{}:{}", line.file, line.line));
        let known = !expected.ends_with(":?") && !expected.ends_with(":0");
        let expected = known.then_some(expected).and_then(&part);
        assert_eq!(ours.as_deref().and_then(&part), expected, "at {addr} of {}", debug.display());
        found += usize::from(known);
    }
    found
}

#[test]
fn lines_are_as_addr2line_says() {
    let dir = tempfile::tempdir().unwrap();
    for (name, flags) in [
        ("dwarf5", &["-g", "-O2", "-gdwarf-5"][..]),
        ("dwarf4", &["-g", "-O2", "-gdwarf-4"]),
        ("dwarf3", &["-g", "-O1", "-gdwarf-3", "-gstrict-dwarf"]),
        ("zlib", &["-g", "-O2", "-gz=zlib"]),
        ("sections", &["-g", "-O1", "-ffunction-sections", "-Wl,--gc-sections"]),
        ("fixed", &["-g", "-O2", "-no-pie"]),
        ("relative", &["-g", "-O2", "-ffile-prefix-map=/=", "-gdwarf-4"]),
        ("no-aranges", &["-g", "-O2", "-Wl,--strip-debug"]),
    ] {
        for source in ["small.c", "shapes.cc"] {
            let program = compile(dir.path(), source, name, flags);
            let found = compare(&program, &addrs(&Image::read(&program).unwrap()));
            assert!(found > 20 || name == "no-aranges", "{name} {source}: {found}");
        }
    }
}

#[test]
fn without_aranges_the_units_are_asked() {
    let dir = tempfile::tempdir().unwrap();
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        let program = compile(dir.path(), "shapes.cc", "with", &["-g", "-O2", version]);
        let without = dir.path().join("without");
        objcopy(&["--remove-section=.debug_aranges", program.to_str().unwrap(), without.to_str().unwrap()]);
        assert!(compare(&without, &addrs(&Image::read(&without).unwrap())) > 20);
    }
}

/// binutils says nothing where the other half of the information is not found; the lines are all in this half.
#[test]
fn split_debug_information_keeps_its_lines() {
    let dir = tempfile::tempdir().unwrap();
    let whole = Arc::new(Image::read(&compile(dir.path(), "small.c", "whole", &["-g", "-O2"])).unwrap());
    let split =
        Arc::new(Image::read(&compile(dir.path(), "small.c", "split", &["-g", "-O2", "-gsplit-dwarf"])).unwrap());
    let addrs = addrs(&whole);
    assert_eq!(whole.section(".text").unwrap().data, split.section(".text").unwrap().data);
    let expected = Lines::new(whole, None).lines(&addrs);
    assert!(expected.iter().flatten().count() > 20);
    assert_eq!(Lines::new(split, None).lines(&addrs), expected);
}

/// Only the numbers: libc6-dbg has its files relative to the build's directory, which binutils writes twice, and of
/// code from an included file binutils 2.40 names the including one, unlike gdb.
#[test]
fn lines_of_the_c_library() {
    for path in installed(&["/lib/x86_64-linux-gnu/libc.so.6"]) {
        let image = Image::read(&path).unwrap();
        let found = DebugFiles::find(&image, &["/usr/lib/debug".into()]);
        let Some(debug_file) = found.debug_file else {
            eprintln!("SKIPPED: libc6-dbg is not installed");
            return;
        };
        let addrs: Vec<LinkAddr> = addrs(&image).into_iter().step_by(101).collect();
        let number = |line: &str| line.rsplit(':').next().map(str::to_string);
        assert!(compare_by(debug_file.origin(), &addrs, number) > addrs.len() / 2);
    }
}

#[test]
fn broken_units_are_named_and_the_rest_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    // Without .debug_aranges the units themselves have to be read.
    let program = compile(dir.path(), "small.c", "program", &["-g", "-O2", "-gdwarf-4"]);
    let without = dir.path().join("without");
    objcopy(&["--remove-section=.debug_aranges", program.to_str().unwrap(), without.to_str().unwrap()]);
    let mut bytes = std::fs::read(&without).unwrap();
    let image = Image::from_bytes(bytes.clone(), &without).unwrap();
    let info = image.section(".debug_info").unwrap().data.into_owned();
    let at = bytes.windows(info.len()).position(|window| window == info).unwrap();
    let addrs = addrs(&image);
    // The header of the first unit places its abbreviations far outside.
    bytes[at + 6..at + 10].copy_from_slice(&0x7fff_ffffu32.to_le_bytes());
    let lines = Lines::new(Arc::new(Image::from_bytes(bytes, &without).unwrap()), None);
    assert_eq!(lines.lines(&addrs).iter().flatten().count(), 0);
    let [diagnostic] = &lines.diagnostics()[..] else { panic!("{:?}", lines.diagnostics()) };
    assert!(diagnostic.starts_with("failed to make sense of the unit in .debug_info of "), "{diagnostic}");
    assert!(diagnostic.contains("without at offset 0x0: "), "{diagnostic}");
}

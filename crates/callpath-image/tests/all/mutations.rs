//! Files cut anywhere and with any bytes changed: an answer or an error, never a panic or an endless loop, and
//! no more answers than such a file can hold.
//!
//! A few seconds of what a fuzzer does for hours; the generator and its seed are fixed, so that a failure repeats.

use crate::tools;

use std::path::Path;

use callpath_image::elf::Image;
use callpath_image::fuzzing::{fuzz_image, fuzz_name};
use callpath_image::peek::ElfPeek;
use fastrand::Rng;
use tools::{compile, objcopy};

/// Changes a few bytes, or cuts, or both; `hot` are places that are worth changing.
fn mutate(original: &[u8], hot: &[usize], random: &mut Rng) -> Vec<u8> {
    let mut bytes = original.to_vec();
    for _ in 0..=random.usize(..4) {
        let at = match random.usize(..4) {
            0 => random.usize(..bytes.len()),
            _ => (hot[random.usize(..hot.len())] + random.usize(..256)).min(bytes.len() - 1),
        };
        bytes[at] = match random.usize(..4) {
            0 => 0,
            1 => 0xff,
            2 => bytes[at] ^ (1 << random.usize(..8)),
            _ => random.u8(..),
        };
    }
    if random.usize(..8) == 0 {
        bytes.truncate(random.usize(..bytes.len()));
    }
    bytes
}

/// Where headers, tables and sections begin.
fn hot_places(bytes: &[u8]) -> Vec<usize> {
    let image = Image::from_bytes(bytes.to_vec(), Path::new("original")).unwrap();
    let mut places = vec![0, 64];
    for name in [
        ".eh_frame",
        ".eh_frame_hdr",
        ".symtab",
        ".dynsym",
        ".dynstr",
        ".dynamic",
        ".rela.plt",
        ".plt",
        ".debug_info",
        ".debug_abbrev",
        ".debug_line",
        ".debug_aranges",
        ".debug_str",
        ".debug_rnglists",
        ".debug_line_str",
        ".note.gnu.build-id",
        ".shstrtab",
        ".gnu_debuglink",
    ] {
        let Some(section) = image.section(name) else { continue };
        let found = bytes.windows(section.data.len().max(1)).position(|window| window == &section.data[..]);
        places.extend(found.into_iter().flat_map(|at| [at, at, at + section.data.len() / 2]));
    }
    // The section headers are the last thing that linkers write.
    places.push(bytes.len().saturating_sub(1200));
    places.push(bytes.len().saturating_sub(2000));
    places
}

/// A broken file answers at most so many times as much as the whole one. Measured: 1.6.
const ANSWERS: usize = 4;
/// A demangled name is at most so many times as long as its mangled form. Measured:
/// 13; substitutions repeat what they name.
const LENGTH: usize = 32;

fn survive(original: &[u8], count: usize, seed: u64) {
    let whole = fuzz_image(original);
    assert!(whole > 0);
    let hot = hot_places(original);
    let mut random = Rng::with_seed(seed);
    for round in 0..count {
        let bytes = mutate(original, &hot, &mut random);
        let answers = fuzz_image(&bytes);
        assert!(
            answers <= ANSWERS * whole,
            "round {round} with seed {seed:#x}: {answers} answers, {whole} of the whole file"
        );
    }
}

#[test]
fn a_program_with_symbols_and_lines() {
    let dir = tempfile::tempdir().unwrap();
    for (flags, seed) in [(["-g", "-O2", "-gdwarf-5"], 0x1dea_11fe), (["-g", "-O2", "-gdwarf-4"], 0xacc0_1ade)] {
        let path = compile(dir.path(), "small.c", "small", &flags);
        survive(&std::fs::read(path).unwrap(), 8000, seed);
    }
}

#[test]
fn a_stripped_program() {
    let dir = tempfile::tempdir().unwrap();
    let small = compile(dir.path(), "small.c", "small", &["-O2"]);
    let stripped = dir.path().join("stripped");
    objcopy(&["--strip-all", small.to_str().unwrap(), stripped.to_str().unwrap()]);
    survive(&std::fs::read(stripped).unwrap(), 8000, 0x5eed);
}

#[test]
fn compressed_debug_information() {
    let dir = tempfile::tempdir().unwrap();
    let path = compile(dir.path(), "small.c", "small", &["-g3", "-O2", "-gz=zlib"]);
    survive(&std::fs::read(path).unwrap(), 300, 0xc0de);
}

#[test]
fn cut_at_every_length() {
    let dir = tempfile::tempdir().unwrap();
    let path = compile(dir.path(), "small.c", "small", &["-g", "-O2"]);
    let bytes = std::fs::read(path).unwrap();
    for len in (0..2048.min(bytes.len())).chain((2048..bytes.len()).step_by(97)) {
        fuzz_image(&bytes[..len]);
    }
}

#[test]
fn names_with_any_byte_changed() {
    let names = [
        "_ZNSt8_Rb_treeINSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEESt4pairIKS5_S5_ESt10_Select1stIS8_ESt4lessIS5_ESaIS8_EE22_M_emplace_hint_uniqueIJS5_S5_EEESt17_Rb_tree_iteratorIS8_ESt23_Rb_tree_const_iteratorIS8_EDpOT_",
        "_RNvXs5_NtNtCs4fqI2P2rA04_4core3fmt3numlNtB7_7Display3fmt",
        "_ZN66_$LT$alloc..vec..Vec$LT$T$GT$$u20$as$u20$core..ops..drop..Drop$GT$4drop17h0123456789abcdefE",
        "_ZmlILj1EtiE8poly_intIXT_EN11poly_resultIT0_N10if_nonpolyIT1_S4_Xsr15poly_int_traitsIS4_E7is_polyEE4typeEE4typeEE",
    ];
    let mut random = Rng::with_seed(0xdead_beef);
    for name in names {
        for _ in 0..5000 {
            let mut bytes = name.as_bytes().to_vec();
            for _ in 0..=random.usize(..3) {
                let (at, from) = (random.usize(..bytes.len()), random.usize(..bytes.len()));
                bytes[at] = if random.usize(..2) == 0 { bytes[from] } else { random.u8(..) & 0x7f };
            }
            assert!(fuzz_name(&bytes) <= LENGTH * name.len(), "{}", String::from_utf8_lossy(&bytes));
        }
    }
}

#[test]
fn a_peek_into_broken_files() {
    let dir = tempfile::tempdir().unwrap();
    let path = compile(dir.path(), "small.c", "small", &["-O2"]);
    let mut original = std::fs::read(&path).unwrap();
    original.truncate(1000);
    let mut random = Rng::with_seed(0x9ee9);
    for _ in 0..1000 {
        let bytes = mutate(&original, &[0, 64, 300], &mut random);
        std::fs::write(&path, bytes).unwrap();
        match ElfPeek::read(&path) {
            Ok(peek) => assert!(!format!("{peek:?}").is_empty()),
            Err(error) => assert!(error.to_string().contains(path.to_str().unwrap())),
        }
    }
}

//! What is written of moved code is read back: each row, and each exception table, says of it what the original says.

use std::path::Path;
use std::sync::Arc;

use callpath_format::address::LinkAddr;
use callpath_format::recipe::{Cfa, Recipe};
use callpath_format::register::Reg;
use callpath_image::cfi::{CallFrames, CfiInput, FrameRange, IndexRow};
use callpath_image::elf::Image;
use callpath_image::exception_table::ExceptionTable;
use callpath_image::module_file::ModuleFile;
use callpath_image::moved_frames::{MovableFrames, MovedCode, Piece, Size, fuzz_exception_table_written};

/// How far code is moved, and where what is written lies.
const BY: u64 = 0x1000_0000;
const AT: LinkAddr = LinkAddr(0x2000_0000);

fn moved(at: LinkAddr) -> LinkAddr {
    LinkAddr(at.0 + BY)
}

/// The recipe of a range at an address, with the expressions of none.
fn recipe(frames: &CallFrames, range: &FrameRange, at: LinkAddr) -> Recipe {
    let rows = frames.rows_of(range);
    let row = rows[rows.partition_point(|row| row.start <= at) - 1];
    frames.recipes[row.recipe as usize]
}

/// Moves all code of a file, with rsp lower in the last piece of each procedure, and reads what is written.
fn check(path: &Path) -> (usize, usize) {
    let file = ModuleFile::new(Arc::new(Image::read(path).unwrap()));
    let frames = file.call_frames();
    let movable = MovableFrames::of(&file);
    let spoken: Vec<&FrameRange> = frames.ranges.iter().filter(|range| movable.speak_of(range.code.start)).collect();
    let code: Vec<MovedCode> = spoken
        .iter()
        .map(|range| {
            let piece = |at| Piece { at: moved(at), origin: at, lowered_bytes: 0, size: Size::AsAtHome };
            let mut pieces: Vec<Piece> = frames.rows_of(range).iter().map(|row| piece(row.start)).collect();
            let table = ExceptionTable::of(&file, range).unwrap();
            let sites = table.iter().flat_map(|table| &table.call_sites);
            pieces.extend(sites.flat_map(|site| [piece(site.calls.start), piece(site.calls.end)]));
            pieces.sort_by_key(|piece| piece.at);
            pieces.dedup();
            pieces.retain(|piece| range.code.contains(&piece.origin));
            MovedCode { pieces, end: moved(range.code.end) }
        })
        .collect();
    let written = movable.write(&code, AT).unwrap();
    assert_eq!(written.entries, spoken.len());
    let bytes = &written.bytes;
    let word = |at: u64| i32::from_le_bytes(bytes[at as usize..][..4].try_into().unwrap());
    // The header, as the Linux Standard Base describes it.
    let header = written.header;
    assert_eq!(bytes[header as usize..][..4], [1, 0x1b, 3, 0x3b]);
    assert_eq!(word(header + 8) as usize, spoken.len());
    let eh_frame = (header + 4).wrapping_add_signed(word(header + 4).into());
    let index: Vec<IndexRow> = (0..spoken.len() as u64)
        .map(|row| {
            let at = header + 12 + 8 * row;
            let start = LinkAddr((AT.0 + header).wrapping_add_signed(word(at).into()));
            let entry = (header - eh_frame).wrapping_add_signed(word(at + 4).into());
            IndexRow { start, entry, offset: at - header }
        })
        .collect();
    let executable = [LinkAddr(0)..LinkAddr(u64::MAX)];
    let read = CallFrames::read(&CfiInput {
        eh_frame: Some((LinkAddr(AT.0 + eh_frame), &bytes[eh_frame as usize..header as usize])),
        code: &executable,
        index: &index,
        ..CfiInput::default()
    });
    assert_eq!(read.diagnostics, []);
    assert_eq!(read.ranges.len(), spoken.len());
    let mut tables = 0;
    for (original, range) in spoken.iter().zip(&read.ranges) {
        assert_eq!(range.code, moved(original.code.start)..moved(original.code.end));
        for row in frames.rows_of(original) {
            let (expected, found) = (recipe(frames, original, row.start), recipe(&read, range, moved(row.start)));
            // Expressions lie elsewhere.
            let has_none = |recipe: &Recipe| matches!(recipe.cfa, Cfa::Register { .. });
            assert_eq!(has_none(&expected), has_none(&found));
            assert!(!has_none(&expected) || expected == found, "{:#x}: {expected:?} {found:?}", row.start.0);
        }
        let Some(expected) = ExceptionTable::of(&file, original).unwrap() else {
            assert_eq!(range.landing_table, None);
            continue;
        };
        tables += 1;
        let at = range.landing_table.unwrap();
        let found = ExceptionTable::parse(&bytes[(at.0 - AT.0) as usize..], at, range.code.clone()).unwrap();
        // Neighbours that say the same may have become one, empty ones are gone.
        for site in expected.call_sites.iter().filter(|site| !site.calls.is_empty()) {
            let same = found.call_sites.iter().find(|found| found.calls.contains(&moved(site.calls.start))).unwrap();
            assert_eq!(same.pad, site.pad);
            assert!(found.clauses(same).eq(expected.clauses(site)));
            assert!(same.calls.end >= moved(site.calls.end));
        }
        assert_eq!(found.types, expected.types);
        assert!(found.types.is_empty() || found.types_are_indirect() == expected.types_are_indirect());
        assert_eq!(found.lists, expected.lists);
    }
    (spoken.len(), tables)
}

#[test]
fn all_of_a_program_is_read_back() {
    let own = std::env::current_exe().unwrap();
    let (entries, tables) = check(&own);
    assert!(entries > 1000 && tables > 100, "{entries} entries, {tables} tables");
    let libraries = ["/usr/lib/x86_64-linux-gnu/libstdc++.so.6", "/lib/x86_64-linux-gnu/libc.so.6"];
    for library in libraries.map(Path::new).into_iter().filter(|path| path.exists()) {
        let (entries, _) = check(library);
        let all = ModuleFile::new(Arc::new(Image::read(library).unwrap())).call_frames().ranges.len();
        // What is left out are stubs, whose frames depend on where they lie, and code that signals return to.
        assert!(entries + 10 > all, "{}: {entries} of {all}", library.display());
    }
}

#[test]
fn where_rsp_is_lower_the_frame_is_farther() {
    let file = ModuleFile::new(Arc::new(Image::read(&std::env::current_exe().unwrap()).unwrap()));
    let movable = MovableFrames::of(&file);
    let frames = file.call_frames();
    let is_simple = |range: &&FrameRange| {
        let recipe = recipe(frames, range, range.code.start);
        movable.speak_of(range.code.start) && recipe.cfa == Cfa::Register { reg: Reg::RSP, disp: 8 }
    };
    let range = frames.ranges.iter().find(is_simple).unwrap();
    let origin = range.code.start;
    let pieces = [(0, 0), (4, 136), (20, 0)].map(|(offset, lowered_bytes)| Piece {
        at: LinkAddr(moved(origin).0 + offset),
        origin,
        lowered_bytes,
        size: Size::AsAtHome,
    });
    let end = LinkAddr(moved(origin).0 + 30);
    let written = movable.write(&[MovedCode { pieces: pieces.to_vec(), end }], AT).unwrap();
    let executable = [moved(origin)..end];
    let tables = written.bytes.iter().position(|byte| *byte != 0).unwrap();
    let frames_at = written.bytes.windows(9).position(|bytes| bytes.starts_with(&[0, 0, 0, 0, 1, b'z'])).unwrap() - 4;
    assert!(tables <= frames_at);
    let read = CallFrames::read(&CfiInput {
        eh_frame: Some((LinkAddr(AT.0 + frames_at as u64), &written.bytes[frames_at..written.header as usize])),
        code: &executable,
        ..CfiInput::default()
    });
    let cfas: Vec<(u64, Cfa)> =
        read.rows.iter().map(|row| (row.start.0 - moved(origin).0, read.recipes[row.recipe as usize].cfa)).collect();
    let above = |disp| Cfa::Register { reg: Reg::RSP, disp };
    assert_eq!(cfas, [(0, above(8)), (4, above(144)), (20, above(8))]);
}

/// Also after random changes.
#[test]
fn exception_tables_are_read_back_equal() {
    let own = Arc::new(Image::read(&std::env::current_exe().unwrap()).unwrap());
    let file = ModuleFile::new(Arc::clone(&own));
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let tables = file.call_frames().ranges.iter().filter_map(|range| range.landing_table);
    for table in tables.take(500) {
        let mut bytes = own.bytes_from(table).unwrap()[..].to_vec();
        bytes.truncate(400);
        fuzz_exception_table_written(&bytes);
        for _ in 0..20 {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let at = (random >> 33) as usize % bytes.len().min(60);
            bytes[at] = (random >> 24) as u8;
            fuzz_exception_table_written(&bytes);
        }
    }
}

//! Exception tables of procedures whose clauses the source says, and what is
//! parsed written again: it parses to the same.

use crate::tools;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use callpath_format::address::LinkAddr;
use callpath_image::elf::Image;
use callpath_image::exception_table::{
    Action, CallSite, Clause, ExceptionTable, LsdaTrouble, TypeEntry, fuzz_exception_table,
};
use callpath_image::module_file::ModuleFile;
use callpath_image::symbols::Procedures;
use tools::run;

/// A shared library, or with `-fno-PIC` a program.
fn built(directory: &Path, compiler: &str, flags: &[&str]) -> PathBuf {
    let output = directory.join("clauses.so");
    let source = tools::source("clauses.cc");
    let named = [source.to_str().unwrap(), "-o", output.to_str().unwrap()];
    let kind = match flags {
        ["-fno-PIC"] => ["-no-pie", "-Wl,--unresolved-symbols=ignore-all,-e,0", "-nostartfiles"],
        _ => ["-shared", "-fPIC", "-O2"],
    };
    let fixed = ["-std=c++14", "-Wno-deprecated", "-Wno-dynamic-exception-spec"];
    run(compiler, &[&fixed[..], &kind, flags, &named].concat());
    output
}

fn module(path: &Path) -> ModuleFile {
    ModuleFile::new(Arc::new(Image::read(path).unwrap()))
}

fn tables(module: &ModuleFile) -> Vec<ExceptionTable> {
    let ranges = module.call_frames().ranges.iter();
    ranges.filter_map(|range| ExceptionTable::of(module, range).unwrap()).collect()
}

/// What lies at an address that a type's entry leads to: the symbol, by the relocation of the word there.
fn types_by_address(path: &Path) -> BTreeMap<u64, String> {
    let listed = run("readelf", &["-rW", path.to_str().unwrap()]);
    let relocation = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let name = words.get(4)?.split('@').next()?.to_owned();
        Some((u64::from_str_radix(words.first()?, 16).ok()?, name))
    };
    listed.lines().filter_map(relocation).collect()
}

/// The clauses of all call sites of a procedure's parts with a pad, in words.
fn said(path: &Path) -> BTreeMap<String, Vec<String>> {
    let module = module(path);
    let procedures = Procedures::new(Arc::clone(module.image()), None);
    let types = types_by_address(path);
    let name_of = |table: &ExceptionTable, index: u32| match table.types[index as usize] {
        TypeEntry::Any => "...".to_owned(),
        TypeEntry::At(address) => {
            assert!(table.types_are_indirect());
            types.get(&address.0).unwrap_or_else(|| panic!("nothing at {address}")).clone()
        }
    };
    let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for table in tables(&module) {
        let name = procedures.procedure_at(table.code.start).unwrap().name.unwrap();
        let of = all.entry(name.trim_end_matches(".cold").to_owned()).or_default();
        for site in &table.call_sites {
            let mut words: Vec<String> = table
                .clauses(site)
                .map(|clause| match clause {
                    Clause::CleanUp => "clean up".to_owned(),
                    Clause::Catch(index) => format!("catch {}", name_of(&table, index)),
                    Clause::OnlyListed(list) => {
                        let names = table.lists[list as usize].iter().map(|index| name_of(&table, *index));
                        // A set: each compiler has an order of its own.
                        let mut names: Vec<String> = names.collect();
                        names.sort();
                        format!("only [{}]", names.join(" "))
                    }
                })
                .collect();
            if words.is_empty() && site.pad.is_some() {
                words.push("clean up".to_owned());
            }
            if !words.is_empty() {
                of.push(words.join(", "));
            }
        }
        of.sort();
        of.dedup();
    }
    all
}

/// By the source, whatever the compiler makes of it: gcc, and clang, which fold other things.
#[test]
fn clauses_are_those_of_the_source() {
    let directory = tempfile::tempdir().unwrap();
    for compiler in ["g++", "clang++"] {
        for level in ["-O0", "-O1", "-O2"] {
            let path = built(directory.path(), compiler, &[level]);
            let said = said(&path);
            let has = |name: &str, clause: &str| {
                let of = said.get(name).unwrap_or_else(|| panic!("{compiler} {level}: {name} has no table: {said:?}"));
                assert!(of.iter().any(|said| said == clause), "{compiler} {level}: {name}: {of:?}");
            };
            has("by_type", "catch _ZTISt13runtime_error, catch _ZTIi");
            has("all", "catch ...");
            has("cleans", "clean up");
            // The inner try's clause is asked first; then, past the guard's destructor, the outer one's.
            let nested = &said["nested"];
            let inner = nested.iter().find(|clauses| clauses.starts_with("catch _ZTISt9bad_alloc, "));
            assert!(inner.is_some_and(|clauses| clauses.ends_with("catch ...")), "{compiler} {level}: {nested:?}");
            has("listed", "only [_ZTISt9bad_alloc _ZTIi]");
            has("none", "catch _ZTIl, only [_ZTISt11logic_error]");
            // gcc gives it a table in which no call is; clang catches all and terminates.
            let must_not = &said["must_not"];
            assert!(must_not.iter().all(|clauses| clauses == "catch ..."), "{compiler} {level}: {must_not:?}");
            assert_eq!(must_not.is_empty(), compiler == "g++", "{compiler} {level}: {must_not:?}");
        }
    }
}

/// Writes a table as `ExceptionTable` says it, at its own address: its bytes.
fn encode(table: &ExceptionTable) -> Vec<u8> {
    let uleb = |bytes: &mut Vec<u8>, mut value: u64| {
        while value >= 0x80 {
            bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        bytes.push(value as u8);
    };
    // Of a fixed length, so that it is known where the next one begins.
    let sleb_of_5 = |bytes: &mut Vec<u8>, value: i64| {
        bytes.extend((0..5).map(|digit| (value >> (7 * digit)) as u8 & 0x7f | if digit < 4 { 0x80 } else { 0 }));
    };
    let number = |bytes: &mut Vec<u8>, encoding: u8, value: u64| match encoding & 0x0f {
        0x01 => uleb(bytes, value),
        0x03 | 0x0b => bytes.extend((value as u32).to_le_bytes()),
        0x00 => bytes.extend(value.to_le_bytes()),
        other => panic!("encoding {other:#x}"),
    };
    let pads_from = table.pads_from.unwrap_or(table.code.start);
    const ACTION_LEN: i64 = 10;
    let mut sites = Vec::new();
    for site in &table.call_sites {
        number(&mut sites, table.call_site_encoding, site.calls.start.0 - table.code.start.0);
        number(&mut sites, table.call_site_encoding, site.calls.end.0 - site.calls.start.0);
        number(&mut sites, table.call_site_encoding, site.pad.map_or(0, |pad| pad.0 - pads_from.0));
        uleb(&mut sites, site.action.map_or(0, |action| u64::from(action) * ACTION_LEN as u64 + 1));
    }
    let mut lists = Vec::new();
    let mut starts = Vec::new();
    for list in &table.lists {
        starts.push(lists.len() as i64 + 1);
        list.iter().for_each(|index| uleb(&mut lists, u64::from(*index) + 1));
        lists.push(0);
    }
    let mut actions = Vec::new();
    for (index, action) in (0i64..).zip(&table.actions) {
        let what = match action.clause {
            Clause::CleanUp => 0,
            Clause::Catch(index) => i64::from(index) + 1,
            Clause::OnlyListed(list) => -starts[list as usize],
        };
        sleb_of_5(&mut actions, what);
        let distance = action.next.map_or(0, |next| (i64::from(next) - index) * ACTION_LEN - 5);
        sleb_of_5(&mut actions, distance);
    }
    let type_len = table.type_encoding.map_or(0, |encoding| if encoding & 0x0f == 0 { 8 } else { 4 });
    let mut bytes = Vec::new();
    match table.pads_from {
        None => bytes.push(0xff),
        Some(from) => {
            bytes.push(0);
            bytes.extend(from.0.to_le_bytes());
        }
    }
    let mut behind = Vec::new();
    behind.push(table.call_site_encoding);
    uleb(&mut behind, sites.len() as u64);
    behind.extend(sites);
    behind.extend(actions);
    let Some(encoding) = table.type_encoding else {
        bytes.push(0xff);
        bytes.extend(behind);
        return bytes;
    };
    bytes.push(encoding);
    uleb(&mut bytes, (behind.len() + type_len * table.types.len()) as u64);
    bytes.extend(behind);
    for entry in table.types.iter().rev() {
        let here = if encoding & 0x70 == 0x10 { table.at.0 + bytes.len() as u64 } else { 0 };
        let value = match entry {
            TypeEntry::Any => 0,
            TypeEntry::At(address) => address.0.wrapping_sub(here),
        };
        number(&mut bytes, encoding, value);
    }
    bytes.extend(lists);
    bytes
}

fn assert_written_and_read(table: &ExceptionTable) {
    let read = ExceptionTable::parse(&encode(table), table.at, table.code.clone());
    assert_eq!(read.as_ref(), Ok(table));
}

#[test]
fn what_is_written_again_parses_to_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let mut lists = 0;
    // Without -fPIC types are named by their addresses.
    let ways = [("g++", "-O2"), ("g++", "-O0"), ("clang++", "-O2"), ("g++", "-fno-PIC"), ("clang++", "-fno-PIC")];
    for (compiler, flag) in ways {
        let found = tables(&module(&built(directory.path(), compiler, &[flag])));
        assert!(found.len() >= 7, "{compiler} {flag}");
        assert!(found.iter().any(|table| table.types_are_indirect() != (flag == "-fno-PIC")), "{compiler} {flag}");
        lists += found.iter().map(|table| table.lists.len()).sum::<usize>();
        found.iter().for_each(assert_written_and_read);
    }
    assert!(lists >= 10, "{lists}");
    // A whole library of C++, as somebody else has built it.
    let module = module(Path::new("/usr/lib/x86_64-linux-gnu/libstdc++.so.6"));
    let found = tables(&module);
    assert!(found.len() > 500, "{}", found.len());
    let has_pads = found.iter().map(|table| table.call_sites.iter().filter(|site| site.pad.is_some()).count());
    assert_eq!(has_pads.sum::<usize>(), module.landing_pads().pads.len());
    found.iter().for_each(assert_written_and_read);
}

/// A table in words: actions in a circle, out of the table; a type that is not there.
#[test]
fn what_is_wrong_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let read = |table: &str| {
        let (source, output) = (directory.path().join("odd.s"), directory.path().join("odd.so"));
        let code = "f: .cfi_startproc\n.cfi_lsda 0x1b, table\n.cfi_personality 0x1b, f\nnop\nnop\nret\n.cfi_endproc\n";
        std::fs::write(&source, format!("{code}.section .gcc_except_table,\"a\"\ntable: {table}\n")).unwrap();
        run("gcc", &["-shared", "-nostdlib", source.to_str().unwrap(), "-o", output.to_str().unwrap()]);
        let module = module(&output);
        ExceptionTable::of(&module, &module.call_frames().ranges[0]).map(Option::unwrap).map_err(|odd| odd.trouble)
    };
    // The second action's next one is the first.
    let circle = "0xff, 0x03, 12, 1, 4, 0, 1, 2, 1, 1, 1, 1, 0x7d, 0, 0";
    assert_eq!(read(&format!(".byte {circle}")), Err(LsdaTrouble::Action));
    assert_eq!(read(".byte 0xff, 0xff, 1, 4, 0, 1, 2, 0xff, 0xff, 0x7f"), Err(LsdaTrouble::Action));
    assert_eq!(read(".byte 0xff, 0xff, 1, 4, 0, 1, 2, 1, 0, 0x40"), Err(LsdaTrouble::Action));
    assert_eq!(read(".byte 0xff, 0xff, 1, 4, 0, 1, 2, 1, 1, 0"), Err(LsdaTrouble::Type));
    assert_eq!(read(".byte 0xff, 0x03, 8, 1, 4, 0, 1, 2, 1, 9, 0"), Err(LsdaTrouble::Type));
    assert_eq!(read(".byte 0xff, 0xff, 1, 4, 0, 9, 2, 0"), Err(LsdaTrouble::Outside));
    let table = read(".byte 0xff, 0x03, 12, 1, 4, 0, 1, 2, 1, 1, 0, 0, 0, 0, 0, 0, 0").unwrap();
    assert_eq!(table.types, [TypeEntry::Any]);
    assert_eq!(table.call_sites[0].pad, Some(LinkAddr(table.code.start.0 + 2)));
}

/// Each call site has an action of its own: all are read in one go.
#[test]
fn a_table_of_many_actions() {
    const COUNT: u32 = 100_000;
    let code = LinkAddr(0x2000)..LinkAddr(0x2000 + u64::from(COUNT));
    let call = |index: u32| CallSite {
        calls: LinkAddr(code.start.0 + u64::from(index))..LinkAddr(code.start.0 + u64::from(index) + 1),
        pad: Some(LinkAddr(code.start.0 + 1)),
        action: Some(index),
    };
    let table = ExceptionTable {
        at: LinkAddr(0x10_0000),
        code: code.clone(),
        pads_from: None,
        call_site_encoding: 1,
        type_encoding: None,
        call_sites: (0..COUNT).map(call).collect(),
        actions: vec![Action { clause: Clause::CleanUp, next: None }; COUNT as usize],
        types: Vec::new(),
        lists: Vec::new(),
    };
    assert_written_and_read(&table);
}

/// Of lists that begin in one another, their bytes do not bound what they hold.
#[test]
fn lists_that_overlap_are_bounded() {
    const COUNT: u32 = 1000;
    let code = LinkAddr(0x2000)..LinkAddr(0x3000);
    let mut actions = Vec::new();
    let mut sites = Vec::new();
    for index in 0..COUNT {
        sites.extend([0, 1, 1, (index * 3 + 1) as u8 & 0x7f | 0x80, ((index * 3 + 1) >> 7) as u8]);
        // -(index + 1), in two bytes; no next one
        let list = -(i64::from(index) + 1);
        actions.extend([list as u8 & 0x7f | 0x80, (list >> 7) as u8 & 0x7f, 0]);
    }
    let uleb3 = |value: usize| [value as u8 | 0x80, (value >> 7) as u8 | 0x80, (value >> 14) as u8];
    let mut behind = vec![1];
    behind.extend(uleb3(sites.len()));
    behind.extend(sites);
    behind.extend(actions);
    behind.extend([0; 4]);
    let mut bytes = vec![0xff, 0x03];
    bytes.extend(uleb3(behind.len()));
    bytes.extend(behind);
    bytes.extend([1; COUNT as usize]);
    bytes.push(0);
    let odd = ExceptionTable::parse(&bytes, LinkAddr(0x10_0000), code).unwrap_err();
    assert_eq!(odd.trouble, LsdaTrouble::Lists);
    assert!(odd.to_string().contains("more than 65536 types"), "{odd}");
}

#[test]
fn any_bytes() {
    let mut random = fastrand::Rng::with_seed(0x2545_f491_4f6c_dd1d);
    for len in 0..20_000 {
        let bytes: Vec<u8> = (0..len % 48)
            .map(|index| {
                // Mostly as tables begin, and small numbers.
                [0xff, 0x03, 16, 1, 4].get(index).copied().unwrap_or(random.u8(..) & [0x07, 0x7f, 0xff][len % 3])
            })
            .collect();
        fuzz_exception_table(&bytes);
    }
}

//! What a program is by its first bytes, as the kernel decides it.

use crate::tools;

use std::path::Path;

use callpath_image::elf::Image;
use callpath_image::error::ImageError;
use callpath_image::peek::ElfPeek;
use tools::compile;

#[test]
fn programs_of_all_sorts() {
    let dir = tempfile::tempdir().unwrap();
    let peek = |path: &Path| ElfPeek::read(path).unwrap();
    let loader = ElfPeek::Dynamic { interpreter: "/lib64/ld-linux-x86-64.so.2".into() };
    assert_eq!(peek(&compile(dir.path(), "small.c", "pie", &[])), loader);
    assert_eq!(peek(&compile(dir.path(), "small.c", "fixed", &["-no-pie"])), loader);
    assert_eq!(peek(&compile(dir.path(), "small.c", "static", &["-static"])), ElfPeek::Static);
    let static_pie = compile(dir.path(), "small.c", "static-pie", &["-static-pie"]);
    assert_eq!(peek(&static_pie), ElfPeek::Static);

    let mut bytes = std::fs::read(static_pie).unwrap();
    let changed = dir.path().join("changed");
    for (at, byte, expected) in
        [(4, 1, ElfPeek::Elf32), (18, 183, ElfPeek::OtherMachine { machine: 183 }), (0, 0, ElfPeek::NotElf)]
    {
        let before = std::mem::replace(&mut bytes[at], byte);
        std::fs::write(&changed, &bytes).unwrap();
        assert_eq!(peek(&changed), expected);
        bytes[at] = before;
    }
}

#[test]
fn scripts_and_files_that_are_no_program() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    for (content, interpreter, argument) in [
        ("#!/bin/sh\necho\n", "/bin/sh", None),
        ("#! /usr/bin/env  python3 -u \n", "/usr/bin/env", Some("python3 -u")),
        ("#!/bin/sh", "/bin/sh", None),
    ] {
        std::fs::write(&path, content).unwrap();
        let argument = argument.map(str::to_string);
        assert_eq!(ElfPeek::read(&path).unwrap(), ElfPeek::Script { interpreter: interpreter.into(), argument });
    }
    for content in ["", "#", "#!", "#!\n", "hello"] {
        std::fs::write(&path, content).unwrap();
        assert_eq!(ElfPeek::read(&path).unwrap(), ElfPeek::NotElf, "{content:?}");
    }
    std::fs::write(&path, b"\x7fELF").unwrap();
    assert!(matches!(ElfPeek::read(&path), Err(ImageError::Cut { .. })));
    assert!(matches!(ElfPeek::read(dir.path()), Err(ImageError::NotRegular { .. })));
    assert!(matches!(ElfPeek::read(&dir.path().join("none")), Err(ImageError::Read { .. })));
}

/// Shared memory that a program has made executable looks like a file of hundreds of megabytes.
#[test]
fn of_what_is_no_elf_file_only_the_beginning_is_read() {
    const LEN_BYTES: u64 = 64 << 20;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("zeros");
    std::fs::File::create(&path).and_then(|file| file.set_len(LEN_BYTES)).unwrap();
    let bytes_read = || {
        let account = std::fs::read_to_string("/proc/thread-self/io").unwrap();
        account.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap().parse::<u64>().unwrap()
    };
    let before = bytes_read();
    let whole = Image::read(&path).map(drop);
    let partly = Image::read_partly(&path, |_, _| false).map(drop);
    for outcome in [whole, partly] {
        assert!(matches!(outcome, Err(ImageError::NotElf { .. })), "{outcome:?}");
    }
    let read = bytes_read() - before;
    assert!(read < LEN_BYTES / 100, "{read} bytes were read");
}

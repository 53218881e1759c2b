//! One program under sanitizers, with other allocators preloaded, and in the hands of what runs programs as data.

use super::row::{PLAIN, Row};

const ALLOC: &[(&str, &str)] = &[("alloc.cpp", include_str!("../inputs/alloc.cpp"))];
const PLAINLY: &str = "g++ -O2 -g -pthread -o alloc alloc.cpp";

/// The program; a row says how it is built and run.
const PROGRAM: Row = Row { files: ALLOC, ..PLAIN };

/// The program in the hands of another.
const fn inside(
    name: &'static str,
    does: &'static str,
    packages: &'static [&'static str],
    run: &'static [&'static str],
) -> Row {
    Row { name, does, packages, build: PLAINLY, run, ..PROGRAM }
}

/// The program with another allocator, preloaded where everything is started from: a program that changes `LD_PRELOAD`
/// for its children takes callpath from them.
const fn preloaded(
    name: &'static str,
    does: &'static str,
    packages: &'static [&'static str],
    environment: &'static [(&'static str, &'static str)],
) -> Row {
    let run = &["./alloc", "600000"];
    Row { name, does, packages, build: PLAINLY, run, environment, ..PROGRAM }
}

pub const ROWS: &[Row] = &[
    Row {
        name: "gcc-asan",
        does: "g++ -fsanitize=address: two threads that allocate",
        packages: &["g++"],
        build: "g++ -O2 -g -pthread -fsanitize=address -o alloc alloc.cpp",
        run: &["./alloc", "250000"],
        ..PROGRAM
    },
    Row {
        name: "gcc-tsan",
        does: "g++ -fsanitize=thread: the same",
        packages: &["g++"],
        build: "g++ -O2 -g -pthread -fsanitize=thread -o alloc alloc.cpp",
        run: &["./alloc", "100000"],
        ..PROGRAM
    },
    Row {
        name: "gcc-ubsan",
        does: "g++ -fsanitize=undefined: the same",
        packages: &["g++"],
        build: "g++ -O2 -g -pthread -fsanitize=undefined -o alloc alloc.cpp",
        run: &["./alloc", "500000"],
        ..PROGRAM
    },
    Row {
        name: "clang-asan",
        does: "clang++ -fsanitize=address: the same",
        packages: &["clang", "libclang-rt-14-dev", "g++"],
        build: "clang++ -O2 -g -pthread -fsanitize=address -o alloc alloc.cpp",
        run: &["./alloc", "250000"],
        ..PROGRAM
    },
    Row {
        name: "clang-tsan",
        does: "clang++ -fsanitize=thread: the same",
        packages: &["clang", "libclang-rt-14-dev", "g++"],
        build: "clang++ -O2 -g -pthread -fsanitize=thread -o alloc alloc.cpp",
        run: &["./alloc", "150000"],
        ..PROGRAM
    },
    preloaded(
        "jemalloc",
        "jemalloc preloaded: the same",
        &["libjemalloc2", "g++"],
        &[("LD_PRELOAD", "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2")],
    ),
    preloaded(
        "tcmalloc",
        "tcmalloc preloaded: the same",
        &["libtcmalloc-minimal4", "g++"],
        &[("LD_PRELOAD", "/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4")],
    ),
    preloaded(
        "mimalloc",
        "mimalloc preloaded: the same",
        &["libmimalloc2.0", "g++"],
        &[("LD_PRELOAD", "/usr/lib/x86_64-linux-gnu/libmimalloc.so.2")],
    ),
    inside(
        "valgrind-memcheck",
        "valgrind, memcheck: the same",
        &["valgrind", "g++", "libc6-dbg"],
        &["valgrind", "-q", "--tool=memcheck", "./alloc", "4000"],
    ),
    inside(
        "valgrind-none",
        "valgrind without a tool: the same",
        &["valgrind", "g++", "libc6-dbg"],
        &["valgrind", "-q", "--tool=none", "./alloc", "40000"],
    ),
    inside("qemu-user", "qemu-x86_64: the same", &["qemu-user", "g++"], &["qemu-x86_64", "./alloc", "80000"]),
];

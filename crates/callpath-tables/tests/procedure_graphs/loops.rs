//! Compares loops of compiled C with those in the source: the procedures are named after their loops.

use callpath_x86::loops::forest;

use crate::{SOURCES, graphs, link, run};

#[test]
fn loops_are_those_of_the_source() {
    let directory = tempfile::tempdir().unwrap();
    let source = format!("{SOURCES}/loops.c");
    for level in ["-O0", "-O1", "-O2", "-O3", "-Os"] {
        for kind in ["-fpic", "-fno-pic"] {
            run(directory.path(), "gcc", &["-S", level, kind, &source, "-o", "code.s"]);
            let program = link(directory.path(), directory.path().join("code.s"), kind == "-fpic");
            let graphs = graphs(&program.module);
            let mut checked = 0;
            for (name, &address) in &program.symbols {
                let Some((word, depths)) = name.split_once('_') else { continue };
                if word.is_empty() || !depths.bytes().all(|byte| byte.is_ascii_digit()) {
                    continue;
                }
                let graph = graphs.iter().find(|graph| graph.entry.0 == address).unwrap_or_else(|| panic!("{name}"));
                let loops = forest(graph).loops;
                // The order in the machine code may differ.
                let mut found: Vec<u32> = loops.iter().map(|l| l.depth).collect();
                let mut expect: Vec<u32> = depths.bytes().map(|digit| u32::from(digit - b'0')).collect();
                found.sort_unstable();
                expect.sort_unstable();
                assert_eq!(found, expect, "{name} {level} {kind}");
                // gcc 12 at -O2 enters the second loop of two_00 at its condition and at its body.
                let is_plain = level == "-O0";
                assert!(!is_plain || loops.iter().all(|l| !l.is_irreducible), "{name} {level} {kind}");
                checked += 1;
            }
            assert_eq!(checked, 9);
        }
    }
}

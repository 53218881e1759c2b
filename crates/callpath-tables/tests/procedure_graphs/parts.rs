//! Compares hot and cold parts, tail calls, and calls that do not return with the symbols of the unstripped program.

use std::collections::BTreeSet;

use callpath_tables::module::Module;
use callpath_x86::graph::Terminator;

use crate::{SOURCES, graphs, link, run};

/// gcc names the cold part of a procedure after it: both are one graph, whose fragments begin there.
#[test]
fn cold_parts_belong_to_their_procedures() {
    let directory = tempfile::tempdir().unwrap();
    let source = format!("{SOURCES}/parts.c");
    let mut parts = 0;
    for kind in ["-fpic", "-fno-pic"] {
        let arguments = ["-S", "-O2", kind, &source, "-o", "code.s"];
        run(directory.path(), "gcc", &arguments);
        let program = link(directory.path(), directory.path().join("code.s"), kind == "-fpic");
        let graphs = graphs(&program.module);
        for (name, &address) in &program.symbols {
            let Some(hot) = name.strip_suffix(".cold") else { continue };
            let hot = program.symbols[hot];
            let graph = graphs.iter().find(|graph| graph.entry.0 == hot).unwrap_or_else(|| panic!("{name}"));
            let starts: BTreeSet<u64> = graph.fragments.iter().map(|fragment| fragment.start.0).collect();
            assert_eq!(starts, BTreeSet::from([hot, address]), "{name} {kind}");
            assert!(graphs.iter().all(|graph| graph.entry.0 != address), "{name} {kind}");
            parts += 1;
        }
        let graph = |name: &str| {
            let at = program.symbols[name];
            graphs.iter().find(|graph| graph.entry.0 == at).unwrap_or_else(|| panic!("{name} is no procedure"))
        };
        let ends = |name: &str, end: Terminator| graph(name).blocks.iter().any(|block| block.terminator == end);
        let target = callpath_format::address::LinkAddr(program.symbols["target"]);
        assert!(ends("tail", Terminator::TailCall(Some(target))), "{kind}");
        assert!(ends("indirect_tail", Terminator::TailCall(None)), "{kind}");
        // It calls a procedure of this file that calls abort.
        assert!(ends("fails", Terminator::NoReturnCall), "{kind}");
        assert!(graph("fails").calls.iter().any(|call| !call.returns && call.target.is_some()), "{kind}");
        assert!(!ends("comes_back", Terminator::NoReturnCall), "{kind}");
        assert!(ends("trap", Terminator::Trap), "{kind}");
        assert!(graphs.iter().all(|graph| graph.unresolved() == 0), "{kind}");
    }
    assert!(parts >= 6, "{parts}");
}

/// A cold part that is aligned by chance, as procedures are, and runs before there is a frame: only its symbol shows
/// what it is.
#[test]
fn an_aligned_cold_part_is_known_by_its_name() {
    let directory = tempfile::tempdir().unwrap();
    let source = format!("{SOURCES}/early.c");
    for kind in ["-fpic", "-fno-pic"] {
        run(directory.path(), "gcc", &["-S", "-O2", kind, &source, "-o", "code.s"]);
        let code = directory.path().join("code.s");
        let text = std::fs::read_to_string(&code).unwrap();
        // Also before the entry of call frame information.
        let section = "\t.section\t.text.unlikely\n\t.cfi_startproc";
        assert!(text.contains(section), "{text}");
        std::fs::write(&code, text.replace(section, &section.replace("\n", "\n\t.p2align 4\n"))).unwrap();
        let program = link(directory.path(), code, kind == "-fpic");
        let (hot, cold) = (program.symbols["early"], program.symbols["early.cold"]);
        assert_eq!(cold % 16, 0, "{kind}");
        let graphs = graphs(&Module::read(&directory.path().join("program")).unwrap());
        let graph = graphs.iter().find(|graph| graph.entry.0 == hot).unwrap_or_else(|| panic!("{kind}: {graphs:?}"));
        let starts: BTreeSet<u64> = graph.fragments.iter().map(|fragment| fragment.start.0).collect();
        assert_eq!(starts, BTreeSet::from([hot, cold]), "{kind}");
        assert!(graphs.iter().all(|graph| graph.entry.0 != cold), "{kind}");
    }
}

//! Frames in several fragments of one procedure, from a measurement of a real program.

use std::path::Path;
use std::process::Command;

use callpath_analyze::attribute::{AttributeOptions, attribute};
use callpath_analyze::names::ModuleNames;
use callpath_analyze::structure::structure;
use callpath_db::{Metric, MetricId, ScopeKind};
use callpath_format::address::LinkAddr;
use callpath_format::frame::{FrameKey, ModuleIndex};
use callpath_measurement::{FULL_ROOT, Measurement, ModuleRecord, ProcessFile, SessionFile, ThreadProfile};

/// gcc puts what `scan` does before it exits far away from its loop, behind a frame description entry of its own.
const SOURCE: &str = r#"
#include <stdio.h>
#include <stdlib.h>
__attribute__((cold, noinline)) void say(long v) { fprintf(stderr, "%ld\n", v); }
__attribute__((noinline)) int scan(int *p, int n) {
  int s = 0;
  for (int i = 0; i < n; i++) {
    if (__builtin_expect(p[i] < 0, 0)) { say(i); say(s); exit(3); }
    s += p[i] * s;
  }
  return s;
}
int main(void) { static int q[1000]; q[999] = -1; return scan(q, 1000); }
"#;

/// The procedures of a profile with one sample at each of the addresses of `program`.
fn procedures(program: &Path, addresses: &[LinkAddr]) -> Vec<String> {
    let mut thread = ThreadProfile { tid: 1, count: 1, name: "main".into(), ..ThreadProfile::default() };
    for &address in addresses {
        let node = thread.tree.child(FULL_ROOT, FrameKey::in_module(ModuleIndex(0), address));
        thread.tree.add(node, 1, &[1]);
    }
    let modules = vec![ModuleRecord { path: program.to_owned(), identity: None }];
    let process = ProcessFile { pid: 1, metric_count: 1, modules, threads: vec![thread], ..ProcessFile::default() };
    let metrics = vec![Metric::of(MetricId::CPU_TIME), Metric::of(MetricId::SAMPLES)];
    let measurement = Measurement {
        directory: "m.callpath".into(),
        session: SessionFile { metrics, ..SessionFile::default() },
        processes: vec![process],
        names: Vec::new(),
        unreadable: Vec::new(),
        ranks: None,
    };
    let options = AttributeOptions::default();
    let profile = attribute(&measurement, &options, &mut |_, _| ());
    let nodes = profile.tree.nodes().filter(|&node| profile.tree.scope(node).kind == ScopeKind::Procedure);
    nodes.map(|node| profile.strings.get(profile.tree.scope(node).name).to_owned()).collect()
}

#[test]
fn a_stripped_procedure_is_one_with_its_cold_fragment() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("cold.c");
    std::fs::write(&source, SOURCE).unwrap();
    for (options, name) in [(&["-s"][..], None), (&[], Some("scan")), (&["-g", "-Wl,-s"], None)] {
        let program = dir.path().join("cold");
        let said = Command::new("gcc").args(["-O2", "-o"]).arg(&program).arg(&source).args(options).output();
        let said = said.expect("gcc is needed");
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        let names = ModuleNames::open(&program, None, &[]);
        let found = structure(&names.structure_source().unwrap(), None, &|_, _| ());
        let split = found.procedures.iter().find(|procedure| procedure.fragments.len() == 2).expect("a cold fragment");
        let middles: Vec<LinkAddr> =
            split.fragments.iter().map(|fragment| LinkAddr(fragment.start.0.midpoint(fragment.end.0))).collect();
        let expected = name.map_or_else(|| format!("cold+{:#x}", split.entry), str::to_owned);
        assert_eq!(procedures(&program, &middles), [expected], "{options:?}");
    }
}

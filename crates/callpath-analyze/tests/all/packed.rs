//! A pack gives the profile that the modules gave; damage in it is an error that names it.

use std::path::Path;
use std::process::Command;

use callpath_analyze::attribute::{AttributeOptions, Packed, attribute_and_pack, attribute_packed, fuzz_pack};
use callpath_analyze::names::ModuleNames;
use callpath_db::{Metric, MetricId, Profile, ScopeKind};
use callpath_format::address::{LinkAddr, RunAddr};
use callpath_format::frame::{FrameKey, ModuleIndex};
use callpath_measurement::{
    FULL_ROOT, Measurement, ModuleRecord, PARTIAL_ROOT, PackFile, ProcessFile, SessionFile, ThreadProfile,
};

const SOURCE: &str = r#"
static inline int twice(int x) { int s = 0; for (int i = 0; i < x; i++) s += i * s + x; return s; }
__attribute__((noinline)) int leaf(int n) { int s = 1; for (int i = 0; i < n; i++) s += twice(i ^ s); return s; }
__attribute__((noinline)) long wrapper(long number) {
  long result;
  __asm__ volatile("mov %1, %%rax; syscall" : "=&a"(result) : "r"(number) : "rcx", "r11", "memory");
  return result;
}
__attribute__((noinline)) int middle(int n) { return leaf(n) + (int)wrapper(39) + leaf(n + 1); }
int main(int count, char **words) { (void)words; return middle(count) + middle(count + 2); }
"#;

/// The profile as text, in the tree's order.
fn shown(profile: &Profile) -> String {
    let mut text = String::new();
    for node in profile.tree.nodes() {
        let scope = profile.tree.scope(node);
        let strings = |name: Option<callpath_db::Name>| name.map(|name| profile.strings.get(name).to_owned());
        let site = scope.call_site.map(|site| (strings(Some(site.file)), site.line));
        let words = (strings(Some(scope.name)), strings(scope.module), strings(scope.file));
        let numbers = (scope.line, scope.address, scope.discriminator, profile.tree.parent(node));
        let values = profile.tree.values(node).to_vec();
        text += &format!("{:?} {words:?} {numbers:?} {site:?} {values:?}\n", scope.kind);
    }
    text + &format!("{:?}\n{:?}\n", profile.quality, profile.info)
}

/// Every instruction of the program's own procedures as a sample, called from every call of another one.
fn measurement(program: &Path, directory: &Path) -> Measurement {
    let names = ModuleNames::open(program, None, &[]);
    let key = |address: LinkAddr| FrameKey::in_module(ModuleIndex(0), address);
    let code = |name: &str| {
        let start = names.starts().find(|start| names.procedure(*start).name == name).expect("it has a symbol");
        let len = names.bounds(start).expect("bounds").len;
        (start.0..start.0 + len).map(LinkAddr)
    };
    let mut thread = ThreadProfile { tid: 1, count: 1, name: "main".into(), ..ThreadProfile::default() };
    for caller in code("middle") {
        let outer = thread.tree.child(FULL_ROOT, key(caller));
        for address in code("leaf").chain(code("wrapper")) {
            let node = thread.tree.child(outer, key(address));
            thread.tree.add(node, 1, &[3]);
        }
    }
    let partial = thread.tree.child(PARTIAL_ROOT, FrameKey::outside(RunAddr(0x7000)));
    let inner = thread.tree.child(partial, key(code("leaf").next().expect("code")));
    thread.tree.add(inner, 1, &[5]);
    let modules = vec![
        ModuleRecord { path: program.to_owned(), identity: None },
        ModuleRecord { path: "/nowhere/lib.so".into(), identity: None },
    ];
    let process = ProcessFile { pid: 1, metric_count: 1, modules, threads: vec![thread], ..ProcessFile::default() };
    let metrics = vec![Metric::of(MetricId::CPU_TIME), Metric::of(MetricId::SAMPLES)];
    Measurement {
        directory: directory.to_owned(),
        session: SessionFile { metrics, ..SessionFile::default() },
        processes: vec![process],
        names: Vec::new(),
        unreadable: Vec::new(),
        ranks: None,
    }
}

#[test]
fn a_pack_gives_the_same_profile_without_the_program() {
    let dir = tempfile::tempdir().unwrap();
    let (source, program) = (dir.path().join("program.c"), dir.path().join("program"));
    std::fs::write(&source, SOURCE).unwrap();
    let said = Command::new("gcc").args(["-O2", "-g", "-o"]).arg(&program).arg(&source).output();
    let said = said.expect("gcc is needed");
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let measured = measurement(&program, dir.path());
    let options = AttributeOptions::default();
    let Packed { profile, pack, unusable } = attribute_and_pack(&measured, &options, &mut |_, _| ());
    assert!(unusable.is_empty(), "{unusable:?}");
    let expected = shown(&profile);
    let kinds: Vec<ScopeKind> = profile.tree.nodes().map(|node| profile.tree.scope(node).kind).collect();
    for kind in [ScopeKind::Loop, ScopeKind::Inlined, ScopeKind::Line, ScopeKind::SystemCall, ScopeKind::Partial] {
        assert!(kinds.contains(&kind), "{kind:?} in\n{expected}");
    }
    // By the constant that the wrapper's caller passes.
    assert!(expected.contains("SystemCall (Some(\"getpid\")"), "{expected}");
    let links = profile.quality.links;
    assert!(links.valid > 0 && links.invalid > 0, "{links:?}");

    pack.write(dir.path()).unwrap();
    std::fs::remove_file(&program).unwrap();
    let pack = PackFile::read(dir.path()).unwrap().expect("it was written");
    assert_eq!(shown(&attribute_packed(&measured, &pack).unwrap()), expected);

    // Each cut and each changed byte is an error that names the file.
    let path = dir.path().join("pack");
    let whole = std::fs::read(&path).unwrap();
    let step = whole.len() / 100 + 1;
    for at in (0..whole.len()).step_by(step).filter(|at| !(12..16).contains(at)) {
        let mut changed = whole.clone();
        changed[at] ^= 0x41;
        for damaged in [&changed[..], &whole[..at]] {
            std::fs::write(&path, damaged).unwrap();
            let error = PackFile::read(dir.path()).unwrap_err().to_string();
            assert!(error.contains(&path.display().to_string()), "{error}");
        }
    }
    // Behind a right checksum, too, nothing panics.
    let mut random = fastrand::Rng::with_seed(15);
    let body = &whole[32..];
    fuzz_pack(body);
    for _ in 0..2000 {
        let mut changed = body.to_vec();
        for _ in 0..=random.usize(..3) {
            changed[random.usize(..body.len())] = random.u8(..);
        }
        changed.truncate(body.len() - random.usize(..8));
        fuzz_pack(&changed);
    }
}

//! Which procedures of a module can be copied, and why others cannot, compared with what its source says.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use callpath_format::address::LinkAddr;
use callpath_image::loading::each_procedure_symbol;
use callpath_tables::copies::{copy_all, copy_chosen, copyable};
use callpath_tables::module::Module;
use callpath_x86::rewrite::{Operation, Place, Plan, Reason};

const AT: LinkAddr = LinkAddr(0x100_0000);

fn compile(options: &[&str], into: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/copies.c");
    let program = into.join(format!("copies{}", options.concat()));
    let status = Command::new("gcc").args(options).arg(source).arg("-o").arg(&program).status().unwrap();
    assert!(status.success());
    program
}

/// Where procedures begin, by name.
fn named(module: &Module) -> BTreeMap<String, LinkAddr> {
    let mut found = BTreeMap::new();
    each_procedure_symbol(module.image(), |symbol| {
        found.insert(symbol.name.to_owned(), symbol.code.start);
    });
    found
}

#[test]
fn code_that_others_know_by_its_address_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    for options in [&["-O2", "-fPIE", "-pie"][..], &["-O2", "-no-pie"], &["-O2", "-static"]] {
        let module = Module::read(&compile(options, directory.path())).unwrap();
        let names = named(&module);
        let found: BTreeMap<LinkAddr, Option<Reason>> =
            copyable(&module).into_iter().map(|one| (one.entry, one.refusal.map(|refusal| refusal.reason))).collect();
        let expected = [
            ("plain", None),
            ("sequence", Some(Reason::Restartable)),
            ("aborted", Some(Reason::Restartable)),
            ("chosen", Some(Reason::Resolver)),
            ("forks", Some(Reason::Vfork)),
            ("forks_itself", Some(Reason::Vfork)),
            ("another_call", None),
            ("_dl_tlsdesc_mine", Some(Reason::KeepsRegisters)),
            ("__fentry__", Some(Reason::KeepsRegisters)),
        ];
        for (name, reason) in expected {
            assert_eq!(found.get(&names[name]), Some(&reason), "{options:?} {name}");
        }
        // With copies the same is refused.
        let copies = copy_all(&module, AT, |_, _| Plan::default());
        let refused: BTreeMap<LinkAddr, Reason> =
            copies.refused.iter().map(|refused| (refused.entry, refused.refusal.reason)).collect();
        let only_refused = found.iter().filter_map(|(entry, reason)| Some((*entry, (*reason)?)));
        assert_eq!(refused, only_refused.collect(), "{options:?}");
        assert_eq!(copies.made.len() + refused.len(), found.len());
    }
    let loader = Module::read(Path::new("/lib64/ld-linux-x86-64.so.2")).unwrap();
    let all = copyable(&loader);
    assert!(all.len() > 100 && all.iter().all(|one| one.refusal.unwrap().reason == Reason::Loader));
}

#[test]
fn chosen_procedures_are_those_of_all() {
    let directory = tempfile::tempdir().unwrap();
    let module = Module::read(&compile(&["-O2", "-fPIE", "-pie"], directory.path())).unwrap();
    let names = named(&module);
    let plan = || {
        let mut plan = Plan::default();
        plan.insert(Place::Entry, Operation::Call(AT));
        plan
    };
    let (main, plain) = (names["main"], names["plain"]);
    let inside = LinkAddr(plain.0 + 1);
    // The cold part belongs to the procedure that jumps there.
    let (hot, cold) = (names["split"], names["split.cold"]);
    let stub = callpath_image::plt::sections(module.image())[0].code.start;
    let nothing = LinkAddr(0x10);
    let chosen = [plain, main, plain, hot, cold, inside, stub, nothing];
    let copies = copy_chosen(&module, AT, &chosen, |_, _, refused| refused.is_none().then(plan));
    let mut entries = [plain, main, hot];
    entries.sort_unstable();
    assert!(copies.made.iter().map(|made| made.copy.entry).eq(entries));
    let refused: BTreeMap<_, _> =
        copies.refused.iter().map(|one| (one.entry, (one.refusal.reason, one.refusal.at))).collect();
    let expected = [
        (cold, (Reason::NotAtEntry, hot)),
        (inside, (Reason::NotAtEntry, plain)),
        (stub, (Reason::LinkageStub, stub)),
        (nothing, (Reason::NoCode, nothing)),
    ];
    assert_eq!(refused, expected.into());
    // At the same address the copy is the same.
    let all = copy_all(&module, AT, |_, _| plan());
    let in_all = all.made.iter().find(|made| made.copy.entry == main).unwrap();
    let alone = copy_chosen(&module, in_all.copy.at, &[main], |_, _, refused| refused.is_none().then(plan));
    assert_eq!(alone.made[0].copy, in_all.copy);
}

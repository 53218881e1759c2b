//! The calls that are found in a compiled program, compared with its source.

use std::process::Command;

use callpath_format::address::LinkAddr;
use callpath_tables::call_graph::{Callee, ModuleCalls, ProcedureCalls, module_calls};
use callpath_tables::graphs::with_flow;
use callpath_tables::module::Module;

const SOURCE: &str = r#"
#include <alloca.h>
#include <stdio.h>
#define APART __attribute__((noinline, noclone))
volatile int sink;
APART void leaf(int a) { sink += a; }
APART void two(int a, int b) { sink = a; sink = b; }
APART void none(void) { sink++; }
void (*volatile changes)(int, int) = two;
APART void frame(int a) { volatile char own[100]; own[0] = a; leaf(a); sink += own[0]; }
APART void jumps(int a) { sink = 1; leaf(a); }
APART void varies(int a) { volatile char *own = alloca(a); own[0] = a; leaf(a); sink += own[0]; }
APART void with(void (*called)(int)) { sink = 2; called(7); sink = 3; }
APART void *gives(void) { return (void *)none; }
APART void prints(void) { puts("one"); sink = 4; }
int main(int count, char **words) {
    frame(count); jumps(count); varies(count + 100); with(leaf); changes(1, count); prints(); sink += gives() != 0;
    return 0;
}
"#;

struct Compiled {
    calls: ModuleCalls,
    symbols: Vec<(String, u64)>,
}

impl Compiled {
    fn with(options: &[&str]) -> Compiled {
        let directory = tempfile::tempdir().unwrap();
        let (source, program) = (directory.path().join("calls.c"), directory.path().join("calls"));
        std::fs::write(&source, SOURCE).unwrap();
        let mut gcc = Command::new("gcc");
        gcc.args(["-O2", "-fno-ipa-icf", "-o"]).arg(&program).arg(&source).args(options);
        assert!(gcc.status().unwrap().success());
        let nm = Command::new("nm").arg(&program).output().unwrap();
        let symbols = String::from_utf8(nm.stdout).unwrap();
        let symbol = |line: &str| {
            let mut words = line.split(' ');
            let address = u64::from_str_radix(words.next()?, 16).ok()?;
            Some((words.nth(1)?.to_owned(), address))
        };
        let symbols = symbols.lines().filter_map(symbol).collect();
        let module = Module::read(&program).unwrap();
        Compiled { calls: with_flow(&module, |flow, _| module_calls(&module, flow)), symbols }
    }

    fn at(&self, name: &str) -> LinkAddr {
        LinkAddr(self.symbols.iter().find(|(symbol, _)| symbol == name).unwrap().1)
    }

    fn of(&self, name: &str) -> &ProcedureCalls {
        let at = self.at(name);
        self.calls.procedures.iter().find(|calls| calls.entry == at).unwrap()
    }

    /// Calls of a procedure that lead to another by its address: their heights.
    fn heights(&self, caller: &str, callee: &str) -> Vec<Option<i64>> {
        let callee = Callee::Procedure(self.at(callee));
        self.of(caller).calls.iter().filter(|call| call.callee == callee).map(|call| call.height).collect()
    }
}

#[test]
fn what_the_source_has_is_found() {
    for options in [&[][..], &["-no-pie", "-fno-pic"], &["-fcf-protection=full"], &["-Wl,-z,lazy"]] {
        let compiled = Compiled::with(options);
        let [height] = compiled.heights("frame", "leaf")[..] else { panic!("{options:?}: {:?}", compiled.of("frame")) };
        assert!(height.is_some_and(|height| height > 100 && height % 16 == 0), "{options:?}: {height:?}");
        assert_eq!(compiled.heights("varies", "leaf"), [None], "{options:?}");
        assert_eq!(compiled.of("jumps").jumps, [Callee::Procedure(compiled.at("leaf"))], "{options:?}");
        assert!(compiled.of("jumps").calls.is_empty());
        let by_pointer = |name: &str| -> Vec<u8> {
            let calls = compiled.of(name).calls.iter();
            calls
                .filter_map(|call| if let Callee::Pointer(set) = &call.callee { Some(set.bits()) } else { None })
                .collect()
        };
        let [passed] = by_pointer("with")[..] else { panic!("{options:?}") };
        assert_eq!(passed & 1, 1, "{options:?}");
        assert!(
            by_pointer("main").iter().all(|passed| passed & 3 == 3) && by_pointer("main").len() == 1,
            "{options:?}"
        );
        assert_eq!(["leaf", "two", "none"].map(|name| compiled.of(name).arguments.bits()), [1, 3, 0], "{options:?}");
        assert!(compiled.of("main").takes.contains(&compiled.at("leaf")), "{options:?}");
        assert_eq!(compiled.of("gives").takes, [compiled.at("none")], "{options:?}");
        assert!(compiled.calls.pointed.contains(&compiled.at("two")), "{options:?}: a pointer in data");
        assert!(!compiled.calls.pointed.contains(&compiled.at("frame")), "{options:?}");
        assert_eq!(compiled.calls.start, Some(compiled.at("_start")));
        // Through a stub, which jumps to what the loader finds.
        let puts = Callee::Named("puts".to_owned());
        let stub = compiled.of("prints").calls.iter().find_map(|call| match &call.callee {
            Callee::Procedure(stub) => compiled.calls.procedures.iter().find(|calls| calls.entry == *stub),
            _ => None,
        });
        assert!(stub.unwrap().jumps.contains(&puts), "{options:?}: {stub:?}");
    }
}

/// What is chosen when a library is loaded is among what the procedure that chooses has the addresses of.
#[test]
fn the_c_librarys_choices() {
    let module = Module::read("/lib/x86_64-linux-gnu/libc.so.6".as_ref()).unwrap();
    let calls = with_flow(&module, |flow, _| module_calls(&module, flow));
    let chosen = calls.procedures.iter().flat_map(|of| of.calls.iter().map(|call| &call.callee).chain(&of.jumps));
    let resolvers: Vec<LinkAddr> =
        chosen.filter_map(|callee| if let Callee::ChosenBy(by) = callee { Some(*by) } else { None }).collect();
    assert!(resolvers.len() > 10);
    let of = |entry: LinkAddr| calls.procedures.iter().find(|calls| calls.entry == entry);
    assert!(resolvers.iter().all(|by| of(*by).is_some_and(|calls| !calls.takes.is_empty())));
}

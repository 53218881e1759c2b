//! Structure of generated sources that have much of something in one procedure: what is
//! found of them is as small as what they say.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use callpath_analyze::structure::{ModuleSource, ProcedureStructure, StaticKind, structure};
use callpath_image::elf::Image;
use callpath_tables::module::Module;

/// The structure of `run` in a C source.
fn run_of(source: &str, options: &[&str]) -> ProcedureStructure {
    let directory = tempfile::tempdir().unwrap();
    let (path, program) = (directory.path().join("source.c"), directory.path().join("program"));
    std::fs::write(&path, source).unwrap();
    let status = Command::new("gcc").args(options).arg("-o").arg(&program).arg(&path).status().unwrap();
    assert!(status.success());
    of_file(&program)
}

fn of_file(program: &Path) -> ProcedureStructure {
    let image = Arc::new(Image::read(program).unwrap());
    let source =
        ModuleSource { module: Arc::new(Module::new(Arc::clone(&image))), with_dwarf: image, supplement: None };
    let found = structure(&source, None, &|_, _| {});
    assert!(found.diagnostics.is_empty(), "{:?}", found.diagnostics);
    let is_run = |procedure: &ProcedureStructure| procedure.name.as_deref() == Some("run");
    found.procedures.into_iter().find(is_run).unwrap()
}

/// An interpreter of so many operations, which jump to one another by a computed `goto`. Every eighth has a loop, every
/// fourth an inlined call. The first is in line 4.
fn interpreter(operations: usize) -> String {
    let mut source =
        String::from("static inline long mix(long a, long b) { a ^= b >> 3; return a & 1 ? a * 3 : b - a; }\n");
    let labels: Vec<String> = (0..operations).map(|number| format!("&&op{number}")).collect();
    source += &format!(
        "long run(const unsigned short *code, long a, long b) {{ static const void *const to[] = {{{}}};\n",
        labels.join(",")
    );
    source += "  goto *to[*code++];\n";
    for number in 0..operations - 1 {
        let body = match number {
            _ if number % 8 == 3 => format!("for (long k = 0; k < b; k++) a += k * {number};"),
            _ if number % 4 == 1 => format!("a = mix(a + {number}, b);"),
            _ => format!("a += b * {number}; if (a > {number}) b = a;"),
        };
        source += &format!("op{number}: {body} goto *to[*code++];\n");
    }
    source
        + &format!(
            "op{}: return a;\n}}\nint main(int n, char **v) {{ return run((void *)v, n, n); }}\n",
            operations - 1
        )
}

/// All that goes round by the dispatch is one loop, in which each operation's own loop stands.
#[test]
fn the_dispatch_of_an_interpreter_is_one_loop() {
    for options in [&["-g", "-O2"][..], &["-g", "-O2", "-fPIC"], &["-g1", "-O2"]] {
        for operations in [64, 200] {
            let run = run_of(&interpreter(operations), options);
            let is_loop = |index: &u32| matches!(run.scopes[*index as usize].kind, StaticKind::Loop { .. });
            let depth = |index: u32| run.chain(Some(index)).iter().filter(|index| is_loop(index)).count();
            let loops: Vec<usize> = (0..run.scopes.len() as u32).filter(is_loop).map(depth).collect();
            let own = (0..operations - 1).filter(|number| number % 8 == 3).count();
            assert_eq!(loops.iter().filter(|depth| **depth == 1).count(), 1, "{options:?}: {loops:?}");
            assert_eq!(loops.iter().filter(|depth| **depth == 2).count(), own, "{options:?}: {loops:?}");
            assert_eq!(loops.len(), own + 1);
            let dispatch = run.scopes.iter().find(|scope| matches!(scope.kind, StaticKind::Loop { .. })).unwrap();
            assert_eq!(dispatch.kind, StaticKind::Loop { is_irreducible: false });
            let lines = dispatch.lines.unwrap();
            assert!(lines.0 <= 5 && lines.1 as usize >= operations, "{lines:?}");
        }
    }
}

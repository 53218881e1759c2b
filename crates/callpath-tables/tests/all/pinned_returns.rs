//! Compares a table's pinned frames with the facts from the compiler, the linker and documentation.

use std::path::Path;
use std::process::Command;

use callpath_format::address::LinkAddr;
use callpath_format::recipe::Packed;
use callpath_format::table::Table;
use callpath_image::elf::Image;
use callpath_tables::module::Module;
use callpath_tables::recipes::{RecipeOptions, build_table};

/// The flags of the recipe at an address.
fn bits(table: &Table<'_>, at: LinkAddr) -> u16 {
    let packed = table.find(at).and_then(|id| table.packed(id)).expect("the address is code");
    packed.head & (Packed::PINNED | Packed::PINS_CALLEE)
}

/// `(name, address)` of procedures, from `nm`.
fn procedures(file: &Path, dynamic: bool) -> Vec<(String, LinkAddr)> {
    let output = Command::new("nm").args(dynamic.then_some("-D")).arg(file).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let procedure = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let &[address, "t" | "T" | "W" | "i", name] = &words[..] else { return None };
        Some((name.split('@').next()?.to_owned(), LinkAddr(u64::from_str_radix(address, 16).ok()?)))
    };
    said.lines().filter_map(procedure).collect()
}

fn libc() -> &'static Path {
    Path::new("/lib/x86_64-linux-gnu/libc.so.6")
}

#[test]
fn procedures_that_read_their_own_return_address() {
    let module = Module::read(libc()).unwrap();
    let build = build_table(&module, &RecipeOptions::default());
    let table = Table::new(&build.bytes).unwrap();
    assert_eq!(table.check(), Ok(()));
    let of = |names: &[&str]| {
        let found: Vec<_> = procedures(libc(), true).into_iter().filter(|(name, _)| names.contains(&&**name)).collect();
        assert!(found.len() >= names.len(), "{names:?}: {found:?}");
        found
    };
    for (name, at) in of(&["setjmp", "_setjmp", "getcontext", "swapcontext", "dlsym", "dlopen", "mcount"]) {
        assert_eq!(bits(&table, at), Packed::PINNED, "{name}");
    }
    for (name, at) in of(&["malloc", "qsort", "printf", "strtol", "getenv", "fwrite", "pthread_create", "longjmp"]) {
        assert_eq!(bits(&table, at), 0, "{name}");
    }
}

/// A procedure with a jump to an unknown target may jump to dlsym, if the program has dlsym's address: in its data, in
/// a register from the global offset table, or as that of its stub.
#[test]
fn procedures_that_go_on_through_pointers() {
    const PROGRAM: &str = "#include <dlfcn.h>\n\
        typedef void *Asks(void *, const char *); extern Asks *whom; int more(void);\n\
        __attribute__((noinline)) void *goes_on(void *handle) { more(); return whom(handle, \"x\"); }\n\
        __attribute__((noinline)) int more(void) { return whom != 0; }\n";
    const TAKES: &str = "Asks *whom = dlsym; int main(void) { return goes_on(0) != 0; }";
    const LOADS: &str = "Asks *whom; int main(void) { whom = dlsym; return goes_on(0) != 0; }";
    const CALLS: &str = "Asks *whom; int main(void) { return goes_on(0) != dlsym(0, \"y\"); }";
    let directory = tempfile::tempdir().unwrap();
    let (source, program) = (directory.path().join("goes.c"), directory.path().join("goes"));
    for (rest, options, expected) in [
        (TAKES, &["-fPIE", "-pie"][..], Packed::PINNED),
        (LOADS, &["-fPIE", "-pie"], Packed::PINNED),
        (TAKES, &["-fno-pie", "-no-pie"], Packed::PINNED),
        (LOADS, &["-fno-pie", "-no-pie"], Packed::PINNED),
        (CALLS, &["-fPIE", "-pie"], 0),
        (CALLS, &["-fPIE", "-pie", "-fno-plt"], 0),
        (CALLS, &["-fno-pie", "-no-pie"], 0),
    ] {
        std::fs::write(&source, [PROGRAM, rest].concat()).unwrap();
        let mut compiler = Command::new("gcc");
        compiler.args(["-O2", "-o"]).arg(&program).arg(&source).args(options);
        assert!(compiler.status().unwrap().success());
        let module = Module::read(&program).unwrap();
        let build = build_table(&module, &RecipeOptions::default());
        let table = Table::new(&build.bytes).unwrap();
        let names = procedures(&program, false);
        for (name, expected) in [("goes_on", expected), ("more", 0)] {
            let at = names.iter().find(|(is, _)| is == name).unwrap().1;
            assert_eq!(bits(&table, at), expected, "{name} {options:?}: {rest}");
        }
    }
}

#[test]
fn calls_that_may_catch() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("catches");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/nasty/catches.cpp");
    let mut compiler = Command::new("g++");
    compiler.args(["-O2", "-static-libgcc", "-o"]).arg(&program).arg(source);
    assert!(compiler.status().unwrap().success());
    let module = Module::read(&program).unwrap();
    let build = build_table(&module, &RecipeOptions::default());
    let table = Table::new(&build.bytes).unwrap();
    assert_eq!(table.check(), Ok(()));
    assert!(table.header().knows_pinned);
    let landings = module.file().landing_pads();
    let (mut catching, mut cleaning) = (0, 0);
    for landing in &landings.pads {
        let expected = if landing.catches { Packed::PINS_CALLEE } else { 0 };
        for at in [landing.calls.start, LinkAddr(landing.calls.end.0 - 1)] {
            assert_eq!(bits(&table, at) & Packed::PINS_CALLEE, expected, "{landing:x?}");
        }
        *(if landing.catches { &mut catching } else { &mut cleaning }) += 1;
    }
    assert!(catching > 3 && cleaning > 3, "{catching} {cleaning}");
    let names = procedures(&program, false);
    for name in ["_Unwind_RaiseException", "_Unwind_Resume", "uw_init_context_1", "_Unwind_ForcedUnwind"] {
        let at = names.iter().find(|(is, _)| is == name).unwrap_or_else(|| panic!("{name} is not in the program")).1;
        assert_eq!(bits(&table, at), Packed::PINNED, "{name}");
    }
    assert_eq!(bits(&table, names.iter().find(|(name, _)| name == "main").unwrap().1), 0);
    // Without exception tables, or with broken ones, nothing is known.
    let without = build_table(&module, &RecipeOptions { call_frames: false, ..RecipeOptions::default() });
    assert!(!Table::new(&without.bytes).unwrap().header().knows_pinned);
    let image = module.image();
    let section = image.section(".gcc_except_table").unwrap();
    let at = image.bytes().windows(section.data.len()).position(|bytes| bytes == &*section.data).unwrap();
    let mut bytes = image.bytes().to_vec();
    // The encoding of call sites of the first table.
    bytes[at + 2] = 0x55;
    bytes[at + 3] = 0x55;
    let broken = build_table(&Image::from_bytes(bytes, &program).unwrap().into(), &RecipeOptions::default());
    assert!(!Table::new(&broken.bytes).unwrap().header().knows_pinned);
}

#[test]
fn ordinary_programs_pin_nothing() {
    for path in ["/bin/true", "/bin/cat"] {
        let module = Module::read(Path::new(path)).unwrap();
        let build = build_table(&module, &RecipeOptions::default());
        let table = Table::new(&build.bytes).unwrap();
        assert!(table.header().knows_pinned);
        table.for_each_row(|start, id| {
            assert!(id.is_none_or(|_| bits(&table, start) == 0), "{path} {start:?}");
        });
    }
}

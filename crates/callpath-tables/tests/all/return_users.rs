//! Procedures that look where they were called from: those of the C library, and those of a small library whose source says
//! which do.

use std::path::{Path, PathBuf};
use std::process::Command;

use callpath_tables::calls_in_copies::own_unwinder;
use callpath_tables::module::Module;
use callpath_tables::return_users::{Asking, ReturnUsers};

const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#define PLAIN __attribute__((noinline, noclone))
PLAIN void *looks(void) { return __builtin_return_address(0); }
PLAIN void *asks(const char *name) { return dlsym(RTLD_NEXT, name); }
PLAIN void *calls(const char *name) { void *found = dlsym(RTLD_NEXT, name); return found ? found : (void *)&stdout; }
PLAIN int adds(int a, int b) { char text[64]; return snprintf(text, sizeof text, "%d", a) + b; }
#ifdef TAKEN
void *(*pointer)(void) = looks;
#endif
"#;

fn library(directory: &Path, option: &str) -> PathBuf {
    let (source, library) = (directory.join("looks.c"), directory.join(format!("looks{option}.so")));
    std::fs::write(&source, SOURCE).unwrap();
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-shared", "-fPIC", option]).arg(&source).arg("-o").arg(&library);
    assert!(gcc.status().unwrap().success());
    library
}

fn read(paths: &[PathBuf]) -> Vec<Module> {
    paths.iter().map(|path| Module::read(path).unwrap()).collect()
}

#[test]
fn those_that_look_are_found() {
    let directory = tempfile::tempdir().unwrap();
    let system = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"].map(PathBuf::from);
    for (option, is_taken) in [("-UTAKEN", false), ("-DTAKEN", true)] {
        let mut paths = system.to_vec();
        paths.push(library(directory.path(), option));
        let modules = read(&paths);
        let modules: Vec<&Module> = modules.iter().collect();
        let users = ReturnUsers::of(&modules, Asking::AtHome);
        for name in [
            "dlopen",
            "dlsym",
            "dlvsym",
            "dlmopen",
            "dl_iterate_phdr",
            "_setjmp",
            "getcontext",
            "looks",
            "no such procedure",
        ] {
            assert!(users.named_may_look(name), "{name}");
        }
        // It jumps to dlsym, which then sees its caller. The other one calls it.
        assert!(users.named_may_look("asks") && !users.named_may_look("calls"));
        for name in ["adds", "qsort", "malloc", "free", "snprintf", "fwrite", "getenv", "pthread_create", "exit"] {
            assert!(!users.named_may_look(name), "{name}");
        }
        // Those that ask for their caller's module alone can do so in copies; what jumps to them has no other reason.
        let users = ReturnUsers::of(&modules, Asking::InCopies);
        for name in ["dlopen", "dlsym", "dlvsym", "dlmopen", "dl_iterate_phdr", "asks", "calls"] {
            assert!(!users.named_may_look(name), "{name}");
        }
        assert!(users.named_may_look("_setjmp") && users.named_may_look("looks"));
        assert_eq!(users.unknown_may_look(), is_taken, "{:x?}", users.reached_by_pointers);
        // Which implementation it is, the library's own code chooses.
        assert_eq!(users.named_may_look("memcpy"), is_taken);
        assert_eq!(users.reached_by_pointers.iter().filter(|(module, _)| *module == 2).count(), usize::from(is_taken));
    }
}

/// Asks for the list of modules, and looks for the segment of call frame information in it, or not.
const LISTS: &str = r#"
#define _GNU_SOURCE
#include <link.h>
static int look(struct dl_phdr_info *info, size_t size, void *found) {
    for (int i = 0; i < info->dlpi_phnum; i++)
        switch (info->dlpi_phdr[i].p_type) {
        SEGMENT
            *(unsigned long *)found += info->dlpi_phdr[i].p_vaddr + size;
        }
    return 0;
}
unsigned long lists(void) {
    unsigned long found = 0;
    dl_iterate_phdr(look, &found);
    return found;
}
"#;

#[test]
fn who_lists_modules_for_another_reason_is_no_unwinder() {
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("lists.c");
    std::fs::write(&source, LISTS).unwrap();
    let cases = [
        ("case PT_LOAD:", None),
        ("case PT_GNU_EH_FRAME:", Some(0)),
        ("case PT_GNU_EH_FRAME: case PT_GNU_STACK: case PT_GNU_RELRO:", Some(0)),
        ("case PT_GNU_EH_FRAME: *(unsigned long *)found += i; break; case PT_GNU_STACK: case PT_GNU_RELRO:", Some(0)),
    ];
    for (number, (segment, expected)) in cases.into_iter().enumerate() {
        let library = directory.path().join(format!("{number}.so"));
        let mut gcc = Command::new("gcc");
        gcc.args(["-O2", "-shared", "-fPIC"]).arg(format!("-DSEGMENT={segment}")).arg(&source).arg("-o").arg(&library);
        assert!(gcc.status().unwrap().success());
        assert_eq!(own_unwinder(&[&Module::read(&library).unwrap()]), expected, "{segment}");
    }
}

/// Has the compiler's unwinder in itself.
const UNWINDS: &str = r#"
#include <unwind.h>
#define PLAIN __attribute__((noinline, noclone))
static _Unwind_Reason_Code counts(struct _Unwind_Context *context, void *count) { ++*(int *)count; return _URC_NO_REASON; }
PLAIN int traces(void) { int count = 0; _Unwind_Backtrace(counts, &count); return count; }
PLAIN void *finds(void *at) { return _Unwind_FindEnclosingFunction(at); }
PLAIN void *looks(void) { return finds(__builtin_return_address(0)); }
_Unwind_Reason_Code (*volatile pointer)(_Unwind_Trace_Fn, void *) = _Unwind_Backtrace;
#ifdef TAKEN
void *(*volatile looking)(void) = looks;
#endif
int main(void) { return traces() > 100 && looks(); }
"#;

#[test]
fn a_linked_unwinder_is_told_of_copies() {
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("unwinds.c");
    std::fs::write(&source, UNWINDS).unwrap();
    let system = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"].map(PathBuf::from);
    for (option, is_taken) in [("-UTAKEN", false), ("-DTAKEN", true)] {
        let program = directory.path().join(format!("unwinds{option}"));
        let mut gcc = Command::new("gcc");
        // The unwinder is without a name.
        gcc.args(["-O2", "-s", "-static-libgcc", option]).arg(&source).arg("-o").arg(&program);
        assert!(gcc.status().unwrap().success());
        let mut paths = system.to_vec();
        paths.push(program);
        let modules = read(&paths);
        let modules: Vec<&Module> = modules.iter().collect();
        assert_eq!(own_unwinder(&modules), None);
        let users = ReturnUsers::of(&modules, Asking::InCopies);
        assert_eq!(users.unknown_may_look(), is_taken, "{:x?}", users.reached_by_pointers);
    }
}

//! `cargo xtask audit-collect`: what the preloaded object needs, offers and contains.
//! Knows nothing of its sources: it reads the linked object that the build script left.
//!
//! A handler may not allocate, lock, resolve a symbol or panic. What the object does not contain, it cannot do.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, ensure};
use object::elf;
use object::read::elf::{Dyn, ElfFile64, FileHeader, ProgramHeader, Sym};

use crate::arguments::Arguments;
use crate::build;

/// What other objects may bind to: the interposed functions and nothing else.
const EXPORTS: &[&str] = &[
    "__poll_chk",
    "__ppoll_chk",
    "aio_suspend",
    "clock_nanosleep",
    "dlclose",
    "epoll_pwait",
    "epoll_pwait2",
    "epoll_wait",
    "execl",
    "execle",
    "execlp",
    "execv",
    "execve",
    "execveat",
    "execvp",
    "execvpe",
    "fexecve",
    "msgrcv",
    "msgsnd",
    "nanosleep",
    "pause",
    "poll",
    "popen",
    "posix_spawn",
    "posix_spawnp",
    "ppoll",
    "prctl",
    "pselect",
    "pthread_create",
    "pthread_sigmask",
    "select",
    "sem_clockwait",
    "sem_timedwait",
    "semop",
    "semtimedop",
    "sigaction",
    "sigaltstack",
    "sigblock",
    "signal",
    "sigprocmask",
    "signalfd",
    "sigsetmask",
    "sigsuspend",
    "sigtimedwait",
    "sigwait",
    "sigwaitinfo",
    "sleep",
    "system",
    "thrd_sleep",
    "usleep",
];

/// What it may bind to: the program's own C library, looked up once, and what the compiler emits calls of.
const IMPORTS: &[&str] = &["bcmp", "dlsym", "memcmp", "memcpy", "memmove", "memset", "strlen"];

/// `cargo xtask audit-collect`
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    arguments.only(&[])?;
    let built = build::release()?;
    check(&built.preload)?;
    println!("ok: {}", built.preload.display());
    Ok(ExitCode::SUCCESS)
}

/// Fails with everything about the object that is not allowed.
pub fn check(path: &Path) -> anyhow::Result<()> {
    let bytes = std::fs::read(path).with_context(|| format!("failed to read {}", path.display()))?;
    let wrong = complaints(&bytes).with_context(|| format!("failed to read the ELF file {}", path.display()))?;
    ensure!(wrong.is_empty(), "{}:\n  {}", path.display(), wrong.join("\n  "));
    Ok(())
}

fn complaints(bytes: &[u8]) -> anyhow::Result<Vec<String>> {
    let mut wrong = Vec::new();
    let file = ElfFile64::<object::Endianness>::parse(bytes)?;
    let endian = file.endian();

    let dynamic_symbols = file.elf_dynamic_symbol_table();
    let (mut exports, mut imports) = (Vec::new(), Vec::new());
    for symbol in dynamic_symbols.iter().skip(1) {
        let name = String::from_utf8_lossy(symbol.name(endian, dynamic_symbols.strings())?).into_owned();
        if symbol.is_undefined(endian) { imports.push(name) } else { exports.push(name) }
    }
    exports.sort();
    imports.sort();
    println!("exports: {}\nimports: {}", exports.join(" "), imports.join(" "));
    let beyond = |found: &[String], allowed: &[&str]| -> Vec<String> {
        found.iter().filter(|name| !allowed.contains(&name.as_str())).cloned().collect()
    };
    for name in beyond(&exports, EXPORTS) {
        wrong.push(format!("exports {name}, which xtask/src/audit.rs does not list"));
    }
    for name in EXPORTS.iter().filter(|name| !exports.iter().any(|export| export == *name)) {
        wrong.push(format!("does not export {name}, which xtask/src/audit.rs lists"));
    }
    for name in beyond(&imports, IMPORTS) {
        wrong.push(format!("needs {name}, which may not be called from a handler"));
    }

    let symbols = file.elf_symbol_table();
    for symbol in symbols.iter() {
        let name = String::from_utf8_lossy(symbol.name(endian, symbols.strings())?).into_owned();
        let machinery = ["panicking", "rust_begin_unwind", "__tls_get_addr", "rust_eh_personality", "alloc5alloc"];
        if machinery.iter().any(|part| name.contains(part)) {
            wrong.push(format!("contains {name}: something in it can panic or allocate"));
        }
    }
    if symbols.is_empty() {
        wrong.push("is stripped, so that nobody can see whether panic machinery is in it".into());
    }

    let (mut now, mut first) = (false, false);
    let header = file.elf_header();
    for segment in header.program_headers(endian, bytes)? {
        let flags = segment.p_flags(endian);
        if segment.p_type(endian) == elf::PT_LOAD && flags.contains(elf::PF_W) && flags.contains(elf::PF_X) {
            wrong.push(format!("has a writable and executable segment at {:#x}", segment.p_vaddr(endian)));
        }
        if segment.p_type(endian) == elf::PT_GNU_STACK && flags.contains(elf::PF_X) {
            wrong.push("asks for an executable stack".into());
        }
        for entry in segment.dynamic(endian, bytes)?.into_iter().flatten() {
            let (tag, value) = (entry.d_tag(endian), entry.d_val(endian));
            match tag {
                elf::DT_NEEDED => wrong.push("needs another library (DT_NEEDED)".into()),
                elf::DT_TEXTREL => wrong.push("has text relocations".into()),
                elf::DT_FLAGS => {
                    let flags = elf::DynamicFlags(value);
                    now |= flags.contains(elf::DF_BIND_NOW);
                    if flags.contains(elf::DF_TEXTREL) {
                        wrong.push("has text relocations".into());
                    }
                }
                elf::DT_FLAGS_1 => {
                    let flags = elf::DynamicFlags1(value);
                    now |= flags.contains(elf::DF_1_NOW);
                    first |= flags.contains(elf::DF_1_INITFIRST);
                }
                _ => {}
            }
        }
    }
    if !now {
        wrong.push("is not bound at once (-z now): a handler could end up in the dynamic loader".into());
    }
    if !first {
        wrong.push("is not initialized first (-z initfirst): constructors before it would go unmeasured".into());
    }
    Ok(wrong)
}

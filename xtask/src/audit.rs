//! `cargo xtask audit-collect`: what the objects that run inside of programs need, offer and contain: the one that is
//! preloaded, and the one that is injected.
//! It reads the linked object that the build script left, not sources.
//!
//! A handler may not allocate, lock, resolve a symbol or panic. What the object does not contain, it cannot do. It is
//! loaded into programs of any C library from glibc 2.31 on: what that lacks, it may not need.

pub mod glibc;
mod symbols;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, ensure};
use object::elf;
use object::read::elf::{Dyn, ElfFile64, FileHeader, ProgramHeader, Sym};
use symbols::Needed;

use crate::arguments::Arguments;
use crate::build;

/// What other objects may bind to: the interposed functions and nothing else.
const EXPORTS: &[&str] = &[
    "__asan_default_options",
    "__poll_chk",
    "__ppoll_chk",
    "__sigaction",
    "__sysv_signal",
    "aio_suspend",
    "bsd_signal",
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
    "getrlimit",
    "getrlimit64",
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
    "prlimit",
    "prlimit64",
    "pselect",
    "pthread_create",
    "pthread_kill",
    "pthread_setname_np",
    "pthread_sigmask",
    "raise",
    "select",
    "sem_clockwait",
    "sem_timedwait",
    "semop",
    "semtimedop",
    "setrlimit",
    "setrlimit64",
    "sigaction",
    "sigaltstack",
    "sigblock",
    "sighold",
    "sigignore",
    "siginterrupt",
    "signal",
    "signalfd",
    "sigprocmask",
    "sigrelse",
    "sigset",
    "sigsetmask",
    "sigsuspend",
    "sigtimedwait",
    "sigwait",
    "sigwaitinfo",
    "sleep",
    "ssignal",
    "syscall",
    "system",
    "sysv_signal",
    "tgkill",
    "thrd_sleep",
    "usleep",
];

/// What it may bind to, and whether a program must start where it is lacking: how definitions behind the interposed
/// functions are found. `_r_debug` is in the loader since GLIBC_2.2.5; `dlsym` moved from libdl to libc.so.6 with
/// GLIBC_2.34. `__tsan_init` is ThreadSanitizer's, and shows that it is there.
const IMPORTS: &[(&str, bool)] = &[("_r_debug", true), ("dlsym", true), ("__tsan_init", true)];

/// The oldest release of glibc that it must run with.
const OLDEST_GLIBC: (u32, u32) = (2, 31);
/// Versions that a symbol may be asked for by: none. Each would be looked for in the
/// library that had it when the object was linked.
const VERSIONS: &[&str] = &[];

/// What an object may need and offer.
struct Rules {
    exports: &'static [&'static str],
    imports: &'static [(&'static str, bool)],
    /// Thread-local storage that it may take of the loader's reserve, bytes.
    largest_tls_bytes: u64,
    /// The program's loader maps and binds it.
    is_loaded: bool,
}

const PRELOADED: Rules = Rules { exports: EXPORTS, imports: IMPORTS, largest_tls_bytes: 64, is_loaded: true };

/// Nothing binds it: it can need nothing.
const INJECTED: Rules = Rules { exports: &["callpath_join"], imports: &[], largest_tls_bytes: 0, is_loaded: false };

/// `cargo xtask audit-collect [--object FILE]`
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    arguments.only(&["object"])?;
    let objects = match arguments.text("object") {
        Some(path) => vec![path.into()],
        None => {
            let built = build::release()?;
            vec![built.preload, built.inject]
        }
    };
    for object in objects {
        check(&object)?;
        println!("ok: {}", object.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// Fails with everything about the object that is not allowed.
pub fn check(path: &Path) -> anyhow::Result<()> {
    let bytes = std::fs::read(path).with_context(|| format!("failed to read {}", path.display()))?;
    let is_injected = path.file_name().is_some_and(|name| name.to_string_lossy().contains("inject"));
    let rules = if is_injected { &INJECTED } else { &PRELOADED };
    let wrong = complaints(&bytes, rules).with_context(|| format!("failed to read the ELF file {}", path.display()))?;
    ensure!(wrong.is_empty(), "{}:\n  {}", path.display(), wrong.join("\n  "));
    Ok(())
}

fn complaints(bytes: &[u8], rules: &Rules) -> anyhow::Result<Vec<String>> {
    let mut wrong = Vec::new();
    let file = ElfFile64::<object::Endianness>::parse(bytes)?;
    let endian = file.endian();

    let (exports, needed) = symbols::dynamic(&file, bytes)?;
    println!("{} functions exported, {} allowed", exports.len(), rules.exports.len());
    println!(
        "{} symbols needed: {}",
        needed.len(),
        needed.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    );
    let highest = needed.iter().filter_map(Needed::glibc).max();
    println!(
        "highest version needed: {}",
        highest.map_or("none, so any glibc that has these names".into(), |(major, minor)| format!(
            "GLIBC_{major}.{minor}"
        ))
    );
    if rules.is_loaded {
        println!("{} definitions looked up when it is loaded", symbols::looked_up(&file, bytes)?.len());
    }
    for name in exports.iter().filter(|name| !rules.exports.contains(&name.as_str())) {
        wrong.push(format!("exports {name}, which xtask/src/audit.rs does not list"));
    }
    for name in rules.exports.iter().filter(|name| !exports.iter().any(|export| export == *name)) {
        wrong.push(format!("does not export {name}, which xtask/src/audit.rs lists"));
    }
    for symbol in &needed {
        match rules.imports.iter().find(|(name, _)| *name == symbol.name) {
            None => wrong.push(format!("needs {symbol}, which may not be called from a handler")),
            Some((_, true)) if !symbol.may_be_missing => {
                wrong.push(format!("needs {symbol}, which glibc {OLDEST_GLIBC:?} may lack: it must be weak"));
            }
            Some(_) => {}
        }
        if let Some(version) = &symbol.version {
            if symbol.glibc().is_some_and(|glibc| glibc > OLDEST_GLIBC) {
                wrong.push(format!("needs {symbol}, which is newer than glibc {OLDEST_GLIBC:?}"));
            }
            if !VERSIONS.contains(&version.as_str()) {
                wrong.push(format!("needs {symbol}: it may ask for no version that xtask/src/audit.rs does not list"));
            }
        }
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
        wrong.push("is stripped, which hides whether panic machinery is in it".into());
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
        if segment.p_type(endian) == elf::PT_TLS {
            println!("thread-local storage: {} bytes, at a fixed offset", segment.p_memsz(endian));
            if segment.p_memsz(endian) > rules.largest_tls_bytes {
                let most = rules.largest_tls_bytes;
                wrong.push(format!("takes more than {most} bytes of thread-local storage"));
            }
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
    if rules.is_loaded && !now {
        wrong.push("is not bound at once (-z now): a handler could end up in the dynamic loader".into());
    }
    if rules.is_loaded && !first {
        wrong.push("is not initialized first (-z initfirst): constructors before it would go unmeasured".into());
    }
    Ok(wrong)
}

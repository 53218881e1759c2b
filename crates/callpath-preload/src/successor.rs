//! The program that is about to be executed: whether it can be measured, by a look at its file.
//!
//! A file that cannot be read is taken for a program that can be measured: the system call then returns the error.

use callpath_collect::syscall::call4;
use callpath_format::shared::unmeasured::{NAME_LEN, Reason};
use core::ffi::{CStr, c_char, c_int};

use crate::environment::{self, PATH_LEN, Words};
use crate::file::{File, joined};
use crate::libc::syscall_number;
use crate::session;

/// How the caller names the program.
#[derive(Clone, Copy)]
pub enum Named {
    /// By path, relative to a directory.
    Path(c_int, *const c_char),
    /// As a shell does: without a slash it is looked for in PATH.
    InPath(*const c_char),
    /// By an open descriptor.
    Open(c_int),
}

impl Named {
    /// As `execveat(2)` is given it.
    pub fn at(directory: c_int, path: *const c_char, flags: c_int) -> Named {
        const AT_EMPTY_PATH: c_int = 0x1000;
        let by_path = Named::Path(directory, path);
        if flags & AT_EMPTY_PATH != 0 && by_path.name().is_empty() { Named::Open(directory) } else { by_path }
    }

    fn bytes(self) -> &'static [u8] {
        match self {
            Named::Open(_) => b"",
            // SAFETY: the caller's own string, which lives as long as the call.
            Named::Path(_, path) | Named::InPath(path) if !path.is_null() => unsafe { CStr::from_ptr(path) }.to_bytes(),
            _ => b"",
        }
    }

    /// The end of its path, as far as it fits.
    pub fn name(self) -> &'static [u8] {
        let name = self.bytes().rsplit(|b| *b == b'/').next().unwrap_or(b"");
        name.get(..NAME_LEN).unwrap_or(name)
    }
}

/// Why the program that would run under this name and with this environment cannot be measured. `None`: it can.
pub fn obstacle(named: Named, environment: Words) -> Option<Reason> {
    let (Some(object), Some(session)) =
        (environment::object(environment), environment::variable(environment, environment::SESSION))
    else {
        return Some(Reason::NoEnvironment);
    };
    obstacle_of_file(named).or_else(|| is_out_of_reach(object, session).then_some(Reason::OutOfReach))
}

/// Whether a program that is started now could not open our object or the recorder's memory.
pub fn is_out_of_reach(object: &[u8], session: &[u8]) -> bool {
    const ENFILE: isize = -23;
    const EMFILE: isize = -24;
    match File::open(File::HERE, object, File::READ) {
        Ok(file) => drop(file),
        // Here we lack descriptors, the program may not.
        Err(ENFILE | EMFILE) => return false,
        Err(_) => return true,
    }
    !File::can_be_opened_by_user(File::HERE, object, File::READ) || !session::can_open(session)
}

fn obstacle_of_file(named: Named) -> Option<Reason> {
    /// The longest chain of interpreters, as in the kernel.
    const SCRIPTS: u32 = 5;
    let mut path = [0u8; PATH_LEN];
    let mut file = match named {
        Named::Open(descriptor) => File::borrowed(descriptor),
        Named::Path(directory, _) => File::open(directory, named.bytes(), File::READ).ok()?,
        Named::InPath(_) if named.bytes().contains(&b'/') => File::open(File::HERE, named.bytes(), File::READ).ok()?,
        Named::InPath(_) => in_path(named.bytes(), &mut path)?,
    };
    for _ in 0..SCRIPTS {
        let mut head = [0u8; HEAD_LEN];
        let head = file.read(0, &mut head)?;
        let Some(line) = head.strip_prefix(b"#!") else { return obstacle_of_elf(&file, head) };
        let line = line.split(|b| *b == b'\n').next()?.trim_ascii();
        let interpreter = line.split(|b| matches!(b, b' ' | b'\t')).next()?;
        file = File::open(File::HERE, interpreter, File::READ).ok()?;
    }
    None
}

/// As `execvp` looks for it.
fn in_path(name: &[u8], path: &mut [u8; PATH_LEN]) -> Option<File> {
    let directories = environment::variable(environment::own(), c"PATH").unwrap_or(b"/bin:/usr/bin");
    directories.split(|b| *b == b':').find_map(|directory| {
        let slash: &[u8] = if directory.is_empty() { b"" } else { b"/" };
        let path = joined(&[directory, slash, name], path)?;
        File::open(File::HERE, path, File::READ).ok().filter(|file| file.status().is_some_and(|s| s.is_program()))
    })
}

/// How much is read at first, bytes; it mostly includes the program headers.
const HEAD_LEN: usize = 1024;
const HEADER_LEN: usize = 56;

fn obstacle_of_elf(file: &File, head: &[u8]) -> Option<Reason> {
    const CLASS_64: u8 = 2;
    const X86_64: u16 = 62;
    const PT_INTERP: u32 = 3;
    /// More program headers the kernel does not take either (it takes 64 KiB of them).
    const MOST_HEADERS: u64 = 1170;
    if !head.starts_with(b"\x7fELF") {
        return None;
    }
    if head.get(4) != Some(&CLASS_64) || u16_at(head, 18)? != X86_64 {
        return Some(Reason::OtherMachine);
    }
    let (offset, len, count) = (u64_at(head, 32)?, u16_at(head, 54)?, u16_at(head, 56)?);
    if usize::from(len) != HEADER_LEN {
        return None;
    }
    for index in 0..u64::from(count).min(MOST_HEADERS) {
        let at = offset.checked_add(index * HEADER_LEN as u64)?;
        let mut header = [0u8; HEADER_LEN];
        let header = match usize::try_from(at).ok().and_then(|at| head.get(at..at.checked_add(HEADER_LEN)?)) {
            Some(header) => header,
            None => file.read(at, &mut header)?,
        };
        if u32_at(header, 0)? == PT_INTERP {
            let mut loader = [0u8; 256];
            let loader = file.read(u64_at(header, 8)?, &mut loader)?;
            let loader = loader.split(|b| *b == 0).next()?;
            let is_musl = loader.rsplit(|b| *b == b'/').next().is_some_and(|name| name.starts_with(b"ld-musl"));
            let privileged = file.status().is_some_and(|s| s.gains()) || file.gains_capabilities();
            return match (privileged && may_gain(), is_musl) {
                (true, _) => Some(Reason::Privileged),
                (_, true) => Some(Reason::OtherLibrary),
                _ => None,
            };
        }
    }
    Some(Reason::Static)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.try_into().ok().map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes)
}

/// Whether this process may gain privileges at all.
fn may_gain() -> bool {
    const PR_GET_NO_NEW_PRIVS: usize = 39;
    // SAFETY: the call writes no memory.
    unsafe { call4(syscall_number::PRCTL, [PR_GET_NO_NEW_PRIVS, 0, 0, 0]) != 1 }
}

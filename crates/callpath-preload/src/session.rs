//! The session that the environment names: `CALLPATH_SESSION=PID:ARENA_FD:PUBLISHED_FD:NONCE`.

use callpath_collect::syscall::{call4, call6};
use callpath_format::shared::load_map::Published;
use callpath_format::shared::{Arena, CHUNK_LEN_BYTES, Session};
use core::ffi::c_char;

use crate::digits::number;
use crate::environment;
use crate::file::{File, joined};
use crate::libc::syscall_number;
use crate::recorder;

/// Finds the session and maps both memories. `None` if any check fails.
pub fn find(environment: *const *const c_char) -> Option<(Arena<'static>, Published<'static>)> {
    let value = environment::variable(environment, environment::SESSION)?;
    let mut fields = value.split(|b| *b == b':');
    let (pid, arena, published) = (fields.next()?, fields.next()?, fields.next()?);
    let nonce = number(fields.next()?)?;
    let arena = open_of_recorder(pid, arena, File::READ_AND_WRITE)?;
    let published = open_of_recorder(pid, published, File::READ)?;
    let head = map(&arena, CHUNK_LEN_BYTES, PROT_READ)?;
    // SAFETY: a whole chunk is mapped here; nothing that is given of it is used after it is unmapped.
    let session = unsafe { Arena::new(head, CHUNK_LEN_BYTES) }.at_offset::<Session>(0).map(Session::head);
    // SAFETY: what was mapped above; nothing refers to it any more.
    unsafe { call4(syscall_number::MUNMAP, [head as usize, CHUNK_LEN_BYTES, 0, 0]) };
    let session = session.filter(|session| session.magic == Session::MAGIC && session.nonce == nonce)?;
    let (arena_len, published_len) = (session.arena_len_bytes as usize, session.published_len_bytes as usize);
    recorder::remember(number(pid)? as u32);
    let arena = map(&arena, arena_len, PROT_READ | PROT_WRITE)?;
    let Some(published) = map(&published, published_len, PROT_READ) else {
        // SAFETY: no other code knows this mapping.
        unsafe { call4(syscall_number::MUNMAP, [arena as usize, arena_len, 0, 0]) };
        return None;
    };
    // SAFETY: both stay mapped for ever; the recorder backs with memory what it hands out and publishes.
    unsafe { Some((Arena::new(arena, arena_len), Published::new(published, published_len))) }
}

/// Whether a program that is started now could open the memories that `CALLPATH_SESSION` names.
pub fn can_open(session: &[u8]) -> bool {
    let mut fields = session.split(|b| *b == b':');
    let (Some(pid), Some(arena), Some(published)) = (fields.next(), fields.next(), fields.next()) else { return false };
    [(arena, File::READ_AND_WRITE), (published, File::READ)].into_iter().all(|(descriptor, access)| {
        let mut path = [0u8; 64];
        path_of_recorder(pid, descriptor, &mut path).is_some_and(|path| {
            File::open(File::HERE, path, access).is_ok() && File::can_be_opened_by_user(File::HERE, path, access)
        })
    })
}

/// One of the recorder's descriptors, opened again.
fn open_of_recorder(pid: &[u8], descriptor: &[u8], access: usize) -> Option<File> {
    let mut path = [0u8; 64];
    File::open(File::HERE, path_of_recorder(pid, descriptor, &mut path)?, access).ok()
}

fn path_of_recorder<'b>(pid: &[u8], descriptor: &[u8], place: &'b mut [u8]) -> Option<&'b [u8]> {
    joined(&[b"/proc/", pid, b"/fd/", descriptor], place)
}

const PROT_READ: usize = 1;
const PROT_WRITE: usize = 2;

fn map(file: &File, len: usize, protection: usize) -> Option<*mut u8> {
    const MAP_SHARED: usize = 1;
    const MAP_NORESERVE: usize = 0x4000;
    const MADV_DONTDUMP: usize = 16;
    let arguments = [0, len, protection, MAP_SHARED | MAP_NORESERVE, file.descriptor(), 0];
    // SAFETY: a new mapping at a place of the kernel's choice.
    let at = unsafe { call6(syscall_number::MMAP, arguments) };
    let at = usize::try_from(at).ok()?;
    // SAFETY: changes only what a core dump holds.
    unsafe { call4(syscall_number::MADVISE, [at, len, MADV_DONTDUMP, 0]) };
    Some(at as *mut u8)
}

//! A file, opened and read by direct system calls, which leave errno and the C library's state alone.

use callpath_collect::syscall::call4;
use core::ffi::c_int;

use crate::environment::PATH_LEN;
use crate::libc::syscall_number;

/// The parts one after the other. `None`: no room.
pub fn joined<'b>(parts: &[&[u8]], place: &'b mut [u8]) -> Option<&'b [u8]> {
    let mut len = 0;
    for part in parts {
        place.get_mut(len..len + part.len())?.copy_from_slice(part);
        len += part.len();
    }
    place.get(..len)
}

/// A path with a zero byte at its end, or the error of one that is too long.
fn ended(path: &[u8]) -> Result<[u8; PATH_LEN], isize> {
    const ENAMETOOLONG: isize = -36;
    let mut with_end = [0u8; PATH_LEN];
    match with_end.get_mut(..path.len()) {
        Some(place) if path.len() < PATH_LEN => place.copy_from_slice(path),
        _ => return Err(ENAMETOOLONG),
    }
    Ok(with_end)
}

fn effective_user() -> u32 {
    // SAFETY: the call writes no memory.
    unsafe { call4(syscall_number::GETEUID, [0, 0, 0, 0]) as u32 }
}

/// The kernel's `struct stat`.
#[repr(C)]
pub struct Status {
    device: u64,
    inode: u64,
    links: u64,
    mode: u32,
    user: u32,
    group: u32,
    rest: [u32; 27],
}

const _: () = assert!(size_of::<Status>() == 144);

impl Status {
    /// Whether it is a regular file with an execute permission.
    pub fn is_program(&self) -> bool {
        self.mode & 0o170000 == 0o100000 && self.mode & 0o111 != 0
    }

    /// Whether it is executed as another user or group than this process's.
    pub fn gains(&self) -> bool {
        // SAFETY: the call writes no memory.
        let group = unsafe { call4(syscall_number::GETEGID, [0, 0, 0, 0]) as u32 };
        (self.mode & 0o4000 != 0 && self.user != effective_user())
            || (self.mode & 0o2010 == 0o2010 && self.group != group)
    }
}

/// An open file.
pub struct File {
    descriptor: c_int,
    /// It is the program's own descriptor.
    borrowed: bool,
}

impl File {
    /// The current directory, for a path that is relative to a directory.
    pub const HERE: c_int = -100;
    pub const READ: usize = 0;
    pub const READ_AND_WRITE: usize = 2;

    /// The program's own.
    pub fn borrowed(descriptor: c_int) -> File {
        File { descriptor, borrowed: true }
    }

    /// The error is the negated number.
    pub fn open(directory: c_int, path: &[u8], access: usize) -> Result<File, isize> {
        const O_NONBLOCK: usize = 0o4000;
        const O_CLOEXEC: usize = 0o2000000;
        let with_end = ended(path)?;
        let flags = access | O_CLOEXEC | O_NONBLOCK;
        // SAFETY: opens a file by a path that ends with a zero byte.
        let result =
            unsafe { call4(syscall_number::OPENAT, [directory as usize, with_end.as_ptr() as usize, flags, 0]) };
        if result < 0 { Err(result) } else { Ok(File { descriptor: result as c_int, borrowed: false }) }
    }

    /// Whether this user could open the file without capabilities. A process that gives up being root
    /// (setpriv) may keep them until it executes a program.
    pub fn can_be_opened_by_user(directory: c_int, path: &[u8], access: usize) -> bool {
        const R_OK: usize = 4;
        const W_OK: usize = 2;
        let mode = if access == File::READ { R_OK } else { R_OK | W_OK };
        let Ok(with_end) = ended(path) else { return false };
        // SAFETY: looks at a path that ends with a zero byte.
        unsafe { call4(syscall_number::FACCESSAT, [directory as usize, with_end.as_ptr() as usize, mode, 0]) == 0 }
    }

    /// As much as there is.
    pub fn read<'b>(&self, offset: u64, buffer: &'b mut [u8]) -> Option<&'b [u8]> {
        let (descriptor, len) = (self.descriptor as usize, buffer.len());
        // SAFETY: the kernel writes at most so much into the buffer.
        let result =
            unsafe { call4(syscall_number::PREAD64, [descriptor, buffer.as_mut_ptr() as usize, len, offset as usize]) };
        buffer.get(..usize::try_from(result).ok()?)
    }

    /// Its number.
    pub fn descriptor(&self) -> usize {
        self.descriptor as usize
    }

    pub fn status(&self) -> Option<Status> {
        let mut status = core::mem::MaybeUninit::<Status>::uninit();
        // SAFETY: the kernel writes a `struct stat`, or returns an error.
        unsafe {
            let result = call4(syscall_number::FSTAT, [self.descriptor as usize, status.as_mut_ptr() as usize, 0, 0]);
            (result == 0).then(|| status.assume_init())
        }
    }

    /// Whether capabilities are written on it that this user does not have.
    pub fn gains_capabilities(&self) -> bool {
        let name = c"security.capability".as_ptr() as usize;
        // SAFETY: asks for the length only.
        effective_user() != 0 && unsafe { call4(syscall_number::FGETXATTR, [self.descriptor as usize, name, 0, 0]) > 0 }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if !self.borrowed {
            // SAFETY: closes a descriptor that no other code knows.
            unsafe { call4(syscall_number::CLOSE, [self.descriptor as usize, 0, 0, 0]) };
        }
    }
}

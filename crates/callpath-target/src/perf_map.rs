//! The file in which a process says what its generated code is called: `/tmp/perf-PID.map`, opened with care.
//!
//! Anybody can write to `/tmp`, so the file must be a regular one of the process's own user, is never reached through a
//! link, and must be younger than the process: files of earlier processes with the same number stay.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime};

use crate::pid::Pid;

/// How far behind the clock a file's time may be: the kernel takes it from its last tick.
const COARSE: Duration = Duration::from_millis(20);

/// Where a process's file would be. It can be looked at after the process's end.
#[derive(Debug)]
pub struct PerfMapFile {
    /// The process's own `/tmp`.
    directory: OwnedFd,
    name: CString,
    users: [u32; 2],
    not_before: SystemTime,
}

impl PerfMapFile {
    /// For a process that runs since `since` at the latest; nothing if it has ended, or has no `/tmp`.
    pub fn of(pid: Pid, since: SystemTime) -> Option<PerfMapFile> {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::split_whitespace);
        // The innermost PID name space comes last: that is where the process looks at itself.
        let own_number: u32 = field("NSpid:")?.last()?.parse().ok()?;
        let mut users = field("Uid:")?.map_while(|user| user.parse().ok());
        let root = CString::new(format!("/proc/{pid}/root")).ok()?;
        // SAFETY: a valid path; the result is looked at.
        let root = owned(unsafe { libc::open(root.as_ptr(), DIRECTORY) })?;
        Some(PerfMapFile {
            directory: open_within(&root)?,
            name: CString::new(format!("perf-{own_number}.map")).ok()?,
            users: [users.next()?, users.next()?],
            not_before: since.checked_sub(COARSE)?,
        })
    }

    /// The file as it is now, if there is one that can be believed.
    pub fn open(&self) -> Option<File> {
        let flags = libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;
        // SAFETY: a valid directory and name; the result is looked at.
        let file = File::from(owned(unsafe { libc::openat(self.directory.as_raw_fd(), self.name.as_ptr(), flags) })?);
        let metadata = file.metadata().ok()?;
        let is_own = metadata.is_file() && self.users.contains(&metadata.uid());
        (is_own && metadata.modified().ok()? >= self.not_before).then_some(file)
    }
}

const DIRECTORY: i32 = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;

/// `tmp` below a root, whose links mean what they mean to those whose root it is.
fn open_within(root: &OwnedFd) -> Option<OwnedFd> {
    const RESOLVE_NO_MAGICLINKS: u64 = 0x02;
    const RESOLVE_IN_ROOT: u64 = 0x10;
    // `struct open_how`: flags, mode, resolve.
    let how = [DIRECTORY as u64, 0, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS];
    let (name, len_bytes) = (c"tmp", size_of_val(&how));
    // SAFETY: a valid name, and a record of the length given.
    let descriptor =
        unsafe { libc::syscall(libc::SYS_openat2, root.as_raw_fd(), name.as_ptr(), how.as_ptr(), len_bytes) };
    owned(descriptor as RawFd)
}

fn owned(descriptor: RawFd) -> Option<OwnedFd> {
    // SAFETY: a new descriptor that no other code owns.
    (descriptor >= 0).then(|| unsafe { OwnedFd::from_raw_fd(descriptor) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    struct TemporaryMap {
        path: String,
        file: PerfMapFile,
    }

    impl Drop for TemporaryMap {
        fn drop(&mut self) {
            drop(fs::remove_file(&self.path));
        }
    }

    fn temporary_map(name: &str) -> TemporaryMap {
        let mut file = PerfMapFile::of(Pid(std::process::id()), SystemTime::now()).expect("this process lives");
        let name = format!("{}-{name}", file.name.to_str().unwrap());
        let path = format!("/tmp/{name}");
        drop(fs::remove_file(&path));
        file.name = CString::new(name).unwrap();
        TemporaryMap { path, file }
    }

    #[test]
    fn a_file_of_ones_own_is_opened() {
        let map = temporary_map("own");
        assert!(map.file.open().is_none(), "there is none yet");
        fs::write(&map.path, "10 20 name\n").unwrap();
        assert!(map.file.open().is_some());
    }

    #[test]
    fn links_and_what_is_no_file_are_left_alone() {
        let map = temporary_map("link");
        let there = format!("{}.there", map.path);
        fs::write(&there, "10 20 name\n").unwrap();
        std::os::unix::fs::symlink(&there, &map.path).unwrap();
        assert!(map.file.open().is_none());
        fs::remove_file(&map.path).unwrap();
        fs::remove_file(&there).unwrap();
        let name = CString::new(map.path.clone()).unwrap();
        // SAFETY: a valid path.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        assert!(map.file.open().is_none());
    }

    #[test]
    fn what_an_earlier_process_of_the_same_number_left_is_not_believed() {
        let map = temporary_map("old");
        fs::write(&map.path, "10 20 name\n").unwrap();
        let file = fs::File::options().write(true).open(&map.path).unwrap();
        file.set_modified(map.file.not_before - Duration::from_secs(1)).unwrap();
        assert!(map.file.open().is_none());
    }

    #[test]
    fn another_users_file_is_not_believed() {
        let mut map = temporary_map("foreign");
        fs::write(&map.path, "10 20 name\n").unwrap();
        map.file.users = map.file.users.map(|user| user.wrapping_add(1));
        assert!(map.file.open().is_none());
    }
}

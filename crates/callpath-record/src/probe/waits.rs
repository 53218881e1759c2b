//! The C library's functions that wait, by name: hidden probes of them measure `wait-time` and `io-time`. Nothing else
//! lists them.

use std::path::Path;
use std::sync::Arc;

use callpath_format::address::LinkAddr;
use callpath_image::code_symbols::CodeSymbols;
use callpath_image::elf::Image;
use callpath_tables::copies::jumped_to;
use callpath_tables::module::Module;
use callpath_tables::probes::{HiddenProbe, Purpose};

/// They wait for other threads and processes, for signals, or for some time to pass.
const FOR_OTHERS: [&str; 51] = [
    "pthread_mutex_lock",
    "pthread_mutex_timedlock",
    "pthread_mutex_clocklock",
    "pthread_rwlock_rdlock",
    "pthread_rwlock_timedrdlock",
    "pthread_rwlock_clockrdlock",
    "pthread_rwlock_wrlock",
    "pthread_rwlock_timedwrlock",
    "pthread_rwlock_clockwrlock",
    "pthread_cond_wait",
    "pthread_cond_timedwait",
    "pthread_cond_clockwait",
    "pthread_barrier_wait",
    "pthread_spin_lock",
    "pthread_join",
    "pthread_timedjoin_np",
    "pthread_clockjoin_np",
    "sem_wait",
    "sem_timedwait",
    "sem_clockwait",
    "mtx_lock",
    "mtx_timedlock",
    "cnd_wait",
    "cnd_timedwait",
    "thrd_join",
    "thrd_sleep",
    "nanosleep",
    "clock_nanosleep",
    "usleep",
    "sleep",
    "pause",
    "sigsuspend",
    "sigwait",
    "sigwaitinfo",
    "sigtimedwait",
    "wait",
    "waitpid",
    "waitid",
    "wait3",
    "wait4",
    "semop",
    "semtimedop",
    "mq_receive",
    "mq_timedreceive",
    "mq_send",
    "mq_timedsend",
    // Locks of files: others hold them. Most other commands of fcntl return at once.
    "fcntl",
    "fcntl64",
    "lockf",
    "lockf64",
    "flock",
];

/// They read, write, or wait until that can be done.
const FOR_IO: [&str; 63] = [
    "read",
    "pread",
    "pread64",
    "readv",
    "preadv",
    "preadv64",
    "preadv2",
    "preadv64v2",
    "write",
    "pwrite",
    "pwrite64",
    "writev",
    "pwritev",
    "pwritev64",
    "pwritev2",
    "pwritev64v2",
    "__read_chk",
    "__pread_chk",
    "__pread64_chk",
    "recv",
    "recvfrom",
    "recvmsg",
    "recvmmsg",
    "__recv_chk",
    "__recvfrom_chk",
    "send",
    "sendto",
    "sendmsg",
    "sendmmsg",
    "accept",
    "accept4",
    "connect",
    "sendfile",
    "sendfile64",
    "splice",
    "copy_file_range",
    "fsync",
    "fdatasync",
    "syncfs",
    "msync",
    "msgsnd",
    "msgrcv",
    "poll",
    "__poll_chk",
    "ppoll",
    "__ppoll_chk",
    "select",
    "pselect",
    "epoll_wait",
    "epoll_pwait",
    "epoll_pwait2",
    "aio_suspend",
    "aio_suspend64",
    // A FIFO waits for its other end; a file on a slow disk or in a network for its directory.
    "open",
    "open64",
    "__open_2",
    "__open64_2",
    "openat",
    "openat64",
    "__openat_2",
    "__openat64_2",
    "creat",
    "creat64",
];

/// Of a module what hidden probes are put into, by ascending entry: of the C library those functions, and what they end in
/// by a jump.
pub(super) fn waiting_functions(image: &Arc<Image>, path: &Path) -> Vec<HiddenProbe> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // What glibc 2.34 has in one library was in three before.
    let libraries = ["libc.so", "libc-2", "libpthread.so", "libpthread-2", "librt.so", "librt-2"];
    if !libraries.iter().any(|begin| name.starts_with(begin)) {
        return Vec::new();
    }
    let symbols = CodeSymbols::of(image, None);
    let named = symbols.all().iter().filter(|symbol| symbol.is_exported && !symbol.chooses);
    let mut found: Vec<HiddenProbe> = named
        .filter_map(|symbol| {
            let purpose = match &*symbol.name {
                name if FOR_OTHERS.contains(&name) => Purpose::WaitsForOthers,
                name if FOR_IO.contains(&name) => Purpose::WaitsForIo,
                _ => return None,
            };
            Some(HiddenProbe { entry: symbol.start, purpose })
        })
        .collect();
    found.sort_unstable();
    found.dedup_by_key(|function| function.entry);
    // What waits may be in a part of its own, which returns to the caller.
    let entries: Vec<LinkAddr> = found.iter().map(|function| function.entry).collect();
    for (from, entry) in jumped_to(&Module::new(Arc::clone(image)), &entries) {
        let before = found.iter().find(|function| function.entry == from);
        let purpose = before.map_or(Purpose::WaitsForOthers, |before| before.purpose);
        found.push(HiddenProbe { entry, purpose });
    }
    found.sort_unstable();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_the_c_library_that_wait() {
        let path = Path::new("/lib/x86_64-linux-gnu/libc.so.6");
        if !path.is_file() {
            return;
        }
        let image = Arc::new(Image::read(path).expect("it is an ELF file"));
        let found = waiting_functions(&image, path);
        let symbols = CodeSymbols::of(&image, None);
        let purpose_of = |name: &str| {
            let symbol = symbols.all().iter().find(|symbol| symbol.is_exported && *symbol.name == *name)?;
            found.iter().find(|function| function.entry == symbol.start).map(|function| function.purpose)
        };
        for name in ["fcntl", "lockf", "flock", "mq_timedreceive", "mq_send", "sem_wait"] {
            assert_eq!(purpose_of(name), Some(Purpose::WaitsForOthers), "{name}");
        }
        for name in ["open", "openat", "aio_suspend", "epoll_pwait2", "read"] {
            assert_eq!(purpose_of(name), Some(Purpose::WaitsForIo), "{name}");
        }
        assert_eq!(purpose_of("qsort"), None);
    }
}

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
const FOR_OTHERS: [&str; 42] = [
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
];

/// They read, write, or wait until that can be done.
const FOR_IO: [&str; 50] = [
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
];

/// Of a module what hidden probes are put into, by ascending entry: of the C library those functions, and what they end in
/// by a jump.
pub(super) fn waiting_functions(image: &Arc<Image>, path: &Path) -> Vec<HiddenProbe> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if !["libc.so", "libc-2", "libpthread.so", "libpthread-2"].iter().any(|begin| name.starts_with(begin)) {
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

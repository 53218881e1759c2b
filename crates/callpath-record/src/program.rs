//! The program that was typed: the object that is preloaded into it, its start, its end.
//! No measuring here.

use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::AcqRel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use callpath_target::{Before, Ended, Launch, Launched, Pid, TargetError};

use crate::error::RecordError;
use crate::settings::RecordOptions;
use crate::threads;

/// The preload object on disk. It stays there: a core file of the program names it.
pub(crate) struct Preload {
    pub(crate) path: PathBuf,
}

impl Preload {
    /// In the cache, or among the temporary files where nothing can be put into the cache or others could replace it.
    pub(crate) fn in_cache(options: &RecordOptions) -> Result<Preload, RecordError> {
        if let Some(cache) = options.cache.as_deref().filter(|cache| make_own(cache))
            && let Ok(preload) = Preload::inside(cache, options.preload)
        {
            return Ok(preload);
        }
        Preload::inside(&own_temporary()?, options.preload)
    }

    fn inside(directory: &Path, object: &[u8]) -> Result<Preload, RecordError> {
        let hash = content_hash(object);
        let path = directory.join(format!("callpath-preload-{hash:016x}.so"));
        if std::fs::read(&path).is_ok_and(|bytes| bytes == object) && is_own(&path) {
            return Ok(Preload { path });
        }
        let temporary = directory.join(format!("callpath-preload-{hash:016x}.{}.new", std::process::id()));
        let write = || -> std::io::Result<()> {
            let mut options = std::fs::OpenOptions::new();
            options.write(true).create_new(true).mode(0o755).custom_flags(libc::O_NOFOLLOW);
            std::io::Write::write_all(&mut options.open(&temporary)?, object)?;
            std::fs::rename(&temporary, &path)
        };
        match write() {
            Ok(()) => Ok(Preload { path }),
            Err(source) => {
                drop(std::fs::remove_file(&temporary));
                Err(RecordError::Preload { path, source })
            }
        }
    }
}

/// Creates a directory if it does not exist, and checks that no other user can replace our object there.
fn make_own(directory: &Path) -> bool {
    drop(std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory));
    // SAFETY: returns a number.
    let user = unsafe { libc::geteuid() };
    std::fs::metadata(directory).is_ok_and(|m| m.is_dir() && m.uid() == user && m.mode() & 0o022 == 0)
}

/// A directory of the user's own among the temporary files, where there is no cache that can be trusted.
fn own_temporary() -> Result<PathBuf, RecordError> {
    // SAFETY: returns a number.
    let user = unsafe { libc::geteuid() };
    let temporary = std::env::temp_dir();
    let names = [format!("callpath-{user}"), format!("callpath-{user}-{}", std::process::id())];
    for directory in names.map(|name| temporary.join(name)) {
        // Another user may have made it first, or a link to somewhere.
        if make_own(&directory) && std::fs::symlink_metadata(&directory).is_ok_and(|m| m.is_dir()) {
            return Ok(directory);
        }
    }
    let source = std::io::Error::other("no directory of this user's own can be made there");
    Err(RecordError::Preload { path: temporary, source })
}

/// A name for one build of the object: FNV-1a, 64 bits. The content is compared, too.
fn content_hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// Whether no other user could have written a file.
fn is_own(path: &Path) -> bool {
    // SAFETY: returns a number.
    let user = unsafe { libc::geteuid() };
    std::fs::symlink_metadata(path).is_ok_and(|m| m.is_file() && m.uid() == user && m.mode() & 0o022 == 0)
}

/// The doorbell as threads of our own ring it.
pub(crate) struct Doorbell(*const AtomicU32);
// SAFETY: an atomic in memory that outlives the threads' use of it (`Waiter` joins on drop;
// a thread that it has left rings no more; workers do not ring after `WorkerPool` is dropped).
unsafe impl Send for Doorbell {}
// SAFETY: as above.
unsafe impl Sync for Doorbell {}

impl Doorbell {
    pub(crate) fn new(word: &AtomicU32) -> Doorbell {
        Doorbell(word)
    }

    /// Wakes the recorder.
    pub(crate) fn ring(&self) {
        // SAFETY: see above.
        let word = unsafe { &*self.0 };
        word.fetch_add(1, AcqRel);
        // SAFETY: wakes; does not touch memory.
        unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, 1) };
    }
}

/// Waits for the program: in a thread, or, if none can be had, in the caller.
pub(crate) struct Waiter {
    result: Arc<Mutex<Waited>>,
    by: By,
}

/// What the thread has found, and whether somebody wants to know.
#[derive(Default)]
struct Waited {
    ended: Option<Result<Ended, TargetError>>,
    /// Nobody does any more: the doorbell may be gone.
    is_left: bool,
}

enum By {
    Thread(Option<JoinHandle<()>>),
    /// The thread that has started it.
    Asking(Launched),
}

impl Waiter {
    /// Starts the program in the thread that waits for it. The program comes first: a
    /// thread that took the last place is given up for it.
    pub(crate) fn start(launch: &Launch, doorbell: Doorbell) -> Result<(Waiter, Pid), TargetError> {
        Waiter::start_after(launch, doorbell, None)
    }

    /// The same, when `before` has returned, which the calling thread runs.
    pub(crate) fn start_after(
        launch: &Launch,
        doorbell: Doorbell,
        mut before: Option<Before<'_>>,
    ) -> Result<(Waiter, Pid), TargetError> {
        let result = Arc::new(Mutex::new(Waited::default()));
        let ours = Arc::clone(&result);
        let (started, start) = std::sync::mpsc::channel();
        let (there, is_there) = std::sync::mpsc::channel();
        let (go, may_go) = std::sync::mpsc::channel();
        let is_held = before.is_some();
        let in_thread = launch.clone();
        let thread = threads::start(move || {
            let doorbell = doorbell;
            let mut held = |pid: Pid| {
                there.send(pid).ok();
                may_go.recv().unwrap_or(Ok(()))
            };
            let launched = match in_thread.start_after(if is_held { Some(&mut held) } else { None }) {
                Ok(launched) => launched,
                // The receiver is gone only if the recorder itself has ended.
                Err(error) => return drop(started.send(Err(error))),
            };
            drop(started.send(Ok(launched.pid())));
            let ended = launched.wait();
            // The receiver of the result may unmap the doorbell.
            let mut waited = ours.lock().unwrap_or_else(PoisonError::into_inner);
            waited.ended = Some(ended);
            if !waited.is_left {
                doorbell.ring();
            }
        });
        if let Some(thread) = thread {
            let broken = || io::Error::other("its thread has ended");
            let broken = || TargetError::Launch { program: launch.program.clone(), source: broken() };
            if let (Some(before), Ok(pid)) = (before.as_mut(), if is_held { is_there.recv() } else { Ok(Pid(0)) }) {
                drop(go.send(before(pid)));
            }
            match start.recv().unwrap_or_else(|_| Err(broken())) {
                Ok(pid) => return Ok((Waiter { result, by: By::Thread(Some(thread)) }, pid)),
                // By the kernel's documentation, a process that could not be created may succeed soon.
                Err(TargetError::Launch { source, .. }) if source.kind() == io::ErrorKind::WouldBlock => {
                    drop(thread.join());
                }
                Err(error) => return Err(error),
            }
        }
        let launched = launch.start_after(before)?;
        let pid = launched.pid();
        Ok((Waiter { result, by: By::Asking(launched) }, pid))
    }

    /// How it has ended, if it has; only the first call after the end returns it.
    pub(crate) fn result(&self) -> Option<Result<Ended, TargetError>> {
        match &self.by {
            By::Thread(_) => self.result.lock().unwrap_or_else(PoisonError::into_inner).ended.take(),
            By::Asking(launched) => launched.has_ended().transpose(),
        }
    }

    /// Waits no longer: the program runs on alone.
    pub(crate) fn leave(&mut self) {
        if let By::Thread(thread) = &mut self.by {
            self.result.lock().unwrap_or_else(PoisonError::into_inner).is_left = true;
            *thread = None;
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        if let By::Thread(thread) = &mut self.by
            && let Some(thread) = thread.take()
        {
            // It has rung, or its program is being waited for: it must not outlive the doorbell.
            drop(thread.join());
        }
    }
}

pub(crate) fn kill(pid: Pid) {
    // SAFETY: sends a signal to our child.
    unsafe { libc::kill(pid.0 as i32, libc::SIGKILL) };
}

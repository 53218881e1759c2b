//! The program that was typed: the object that is preloaded into it, its start, its end.
//! Knows nothing of measuring.

use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::AcqRel;

use callpath_target::{Ended, Launch, Pid, TargetError};

use crate::error::RecordError;
use crate::settings::RecordOptions;

/// The preload object on disk. It stays there: a core file of the program names it.
pub(crate) struct Preload {
    pub(crate) path: PathBuf,
}

impl Preload {
    pub(crate) fn in_cache(options: &RecordOptions) -> Result<Preload, RecordError> {
        let directory = match &options.cache {
            Some(cache) => cache.clone(),
            None => std::env::temp_dir(),
        };
        let hash = content_hash(options.preload);
        let path = directory.join(format!("callpath-preload-{hash:016x}.so"));
        let failed = |source| RecordError::Preload { path: path.clone(), source };
        if std::fs::read(&path).is_ok_and(|bytes| bytes == options.preload) && is_own(&path) {
            return Ok(Preload { path });
        }
        let write = || -> std::io::Result<()> {
            std::fs::create_dir_all(&directory)?;
            let temporary = directory.join(format!("callpath-preload-{hash:016x}.{}", std::process::id()));
            let mut file = std::fs::OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o755)
                .custom_flags(libc::O_NOFOLLOW)
                .open(&temporary)?;
            std::io::Write::write_all(&mut file, options.preload)?;
            std::fs::rename(&temporary, &path)
        };
        write().map_err(failed)?;
        Ok(Preload { path })
    }
}

/// A name for one build of the object: FNV-1a, 64 bits. The content is compared, too.
fn content_hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// Whether nobody else could have written a file.
fn is_own(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    // SAFETY: returns a number.
    let user = unsafe { libc::geteuid() };
    std::fs::symlink_metadata(path).is_ok_and(|m| m.is_file() && m.uid() == user && m.mode() & 0o022 == 0)
}

/// The doorbell as the waiting thread rings it.
pub(crate) struct Doorbell(*const AtomicU32);
// SAFETY: an atomic in memory that outlives the waiting thread's use of it (`Waiter` joins on drop).
unsafe impl Send for Doorbell {}

impl Doorbell {
    pub(crate) fn new(word: &AtomicU32) -> Doorbell {
        Doorbell(word)
    }
}

/// A thread that waits for the program.
pub(crate) struct Waiter {
    result: Arc<std::sync::Mutex<Option<Result<Ended, TargetError>>>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Waiter {
    /// Starts the program in the thread that waits for it.
    pub(crate) fn start(launch: Launch, doorbell: Doorbell) -> Result<(Waiter, Pid), TargetError> {
        let result = Arc::new(std::sync::Mutex::new(None));
        let ours = Arc::clone(&result);
        let (started, start) = std::sync::mpsc::channel();
        let program = launch.program.clone();
        let thread = std::thread::spawn(move || {
            let doorbell = doorbell;
            let launched = match launch.start() {
                Ok(launched) => launched,
                // Nobody listens any more only if the recorder itself has ended.
                Err(error) => return drop(started.send(Err(error))),
            };
            drop(started.send(Ok(launched.pid())));
            let ended = launched.wait();
            if let Ok(mut slot) = ours.lock() {
                *slot = Some(ended);
            }
            // SAFETY: see `Doorbell`.
            let word = unsafe { &*doorbell.0 };
            word.fetch_add(1, AcqRel);
            // SAFETY: wakes; does not touch memory.
            unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, 1) };
        });
        let broken = || TargetError::Launch { program, source: std::io::Error::other("its thread has ended") };
        let pid = start.recv().unwrap_or_else(|_| Err(broken()))?;
        Ok((Waiter { result, thread: Some(thread) }, pid))
    }

    pub(crate) fn result(&self) -> Option<Result<Ended, TargetError>> {
        self.result.lock().ok()?.take()
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            // It has rung, or its program is being waited for: it must not outlive the doorbell.
            drop(thread.join());
        }
    }
}

pub(crate) fn kill(pid: Pid) {
    // SAFETY: sends a signal to our child.
    unsafe { libc::kill(pid.0 as i32, libc::SIGKILL) };
}

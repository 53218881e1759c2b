//! The parts of a recording that exist before the program starts: both memories, the table builders,
//! and the variables by which the program finds them.

use std::ffi::OsString;
use std::path::Path;

use callpath_format::shared::{CHUNK_LEN_BYTES, Settings};
use callpath_measurement::plain;

use crate::arena::ArenaAllocator;
use crate::error::RecordError;
use crate::kernel::{Kernel, NO_KERNEL_NAMES};
use crate::modules::Modules;
use crate::program::Doorbell;
use crate::publish::Publisher;
use crate::refused;
use crate::settings::RecordOptions;
use crate::time_base::{Beginning, ticks_per_ms};

/// The windows that processes map, bytes; less where address space is limited.
const ARENA_BYTES: u64 = 256 << 20;
const PUBLISHED_BYTES: u64 = 512 << 20;
const LEAST_WINDOW_BYTES: u64 = 16 << 20;
/// How many raw samples of a process may wait, a chunk each: this part of the window, within bounds.
const RAW_SHARE: usize = 16;
const LEAST_RAW: usize = 32;
const MOST_RAW: usize = 256;

/// A recording that can begin.
pub(crate) struct Prepared {
    // The first to go: its threads ring the doorbell, which is in the arena.
    pub(super) modules: Modules,
    pub(super) allocator: ArenaAllocator,
    pub(super) publisher: Publisher,
    nonce: u64,
    pub(super) began: Beginning,
    /// The kernel's code, if samples have frames there. Read before anything is sampled.
    pub(super) kernel: Option<Kernel>,
    pub(crate) notes: Vec<String>,
}

impl Prepared {
    pub(crate) fn new(options: &RecordOptions) -> Result<Prepared, RecordError> {
        let nonce = std::collections::hash_map::RandomState::new();
        let nonce = std::hash::BuildHasher::hash_one(&nonce, std::process::id());
        let (arena_len, published_len, unlimited) = windows()?;
        let (metrics, programs) = options.metric_settings();
        let mut publisher = Publisher::create(published_len, metrics, &programs)?;
        let mut settings = options.shared(ticks_per_ms());
        if unlimited.space {
            settings.flags |= Settings::SPACE_ADDED;
        }
        if unlimited.space && unlimited.data && settings.sentinel != Settings::NEVER {
            settings.flags |= Settings::AHEAD;
        }
        settings.refused_calls = refused::own().0;
        settings.raw_limit = (arena_len / CHUNK_LEN_BYTES / RAW_SHARE).clamp(LEAST_RAW, MOST_RAW) as u64;
        let allocator = ArenaAllocator::create(arena_len, published_len, nonce, settings)?;
        let mut modules = Modules::new(options.cache.clone(), Doorbell::new(&allocator.session().doorbell));
        let mut notes: Vec<String> = modules.cache_trouble().map(plain).into_iter().collect();
        if !modules.publish_told(&options.told, &mut publisher) {
            notes.push(
                "the map is too large to be asked while the program runs: all stacks are walked whole".to_owned(),
            );
        }
        let kernel = options.kernel.then(Kernel::read);
        if kernel.as_ref().is_some_and(|kernel| !kernel.has_names()) {
            notes.push(NO_KERNEL_NAMES.to_owned());
        }
        Ok(Prepared { modules, allocator, publisher, nonce, kernel, began: Beginning::now(), notes })
    }

    /// By how much the program's limit of address space is raised, so that our windows do not count against it.
    pub(super) fn added_space(&self) -> u64 {
        self.allocator.head().added_space_bytes()
    }

    /// The variables by which the program finds the preloaded object and the memories.
    pub(super) fn environment(&self, preload: &Path) -> Vec<(OsString, OsString)> {
        let mut objects = preload.as_os_str().to_owned();
        if let Some(before) = std::env::var_os("LD_PRELOAD").filter(|v| !v.is_empty()) {
            objects.push(":");
            objects.push(before);
        }
        let (arena, published) = (self.allocator.descriptor(), self.publisher.descriptor());
        let session = format!("{}:{arena}:{published}:{}", std::process::id(), self.nonce);
        vec![("LD_PRELOAD".into(), objects), ("CALLPATH_SESSION".into(), session.into())]
    }

    pub(crate) fn doorbell(&self) -> Doorbell {
        Doorbell::new(&self.allocator.session().doorbell)
    }
}

/// How long the windows are that the measured processes shall map: less where address space is limited and we may not
/// raise the limit, and no longer than a file may be.
fn windows() -> Result<(usize, usize, Unlimited), RecordError> {
    let limit = |resource| {
        // SAFETY: a valid place.
        unsafe {
            let mut limit: libc::rlimit = std::mem::zeroed();
            if libc::getrlimit(resource, &mut limit) == 0 { limit.rlim_cur } else { libc::RLIM_INFINITY }
        }
    };
    let (space, file) = (limit(libc::RLIMIT_AS), limit(libc::RLIMIT_FSIZE));
    if file < LEAST_WINDOW_BYTES {
        return Err(RecordError::ShortFiles { limit: file, least: LEAST_WINDOW_BYTES });
    }
    let window = |bytes: u64| {
        let allowed = if space == libc::RLIM_INFINITY { bytes } else { (space / 16).clamp(LEAST_WINDOW_BYTES, bytes) };
        allowed.min(file) as usize & !((1 << 20) - 1)
    };
    let is_unlimited = |limit| limit == libc::RLIM_INFINITY;
    let unlimited = Unlimited { space: is_unlimited(space), data: is_unlimited(limit(libc::RLIMIT_DATA)) };
    Ok((window(ARENA_BYTES), window(PUBLISHED_BYTES), unlimited))
}

/// Resources that are unlimited for the recorder: limits that the program sets
/// itself are raised by the length of our mappings.
struct Unlimited {
    /// Address space.
    space: bool,
    /// Private memory.
    data: bool,
}

//! Counters of paths in a hash table (`callpath_format::shared::hashed`), read out of the memory that they are in. Trusts nothing that it reads.

use std::sync::atomic::Ordering::Relaxed;

use callpath_format::shared::hashed::{HashedHead, HashedKey, HashedPath};
use callpath_measurement::MeasurementError;
use callpath_target::{SharedMemory, TargetError};
use rustc_hash::{FxHashMap, FxHashSet};

use super::pages::read_written;

/// The counters of a program and its forks.
pub(crate) struct Hashed {
    pub(super) memory: SharedMemory,
}

/// By number: paths, and how often each was executed.
pub(super) type Executions = FxHashMap<u64, u64>;

impl Hashed {
    pub(super) fn create() -> Result<Hashed, TargetError> {
        Ok(Hashed { memory: SharedMemory::create(c"callpath-hashed", HashedHead::len_bytes())? })
    }

    fn head(&self) -> &HashedHead {
        // SAFETY: the memory begins with it, and is as long; atomics are valid for any bytes.
        unsafe { &*self.memory.base().cast::<HashedHead>() }
    }

    /// Hands over what was executed, and how often.
    pub(super) fn read(&self, mut each: impl FnMut(HashedKey, u64)) -> Result<(), MeasurementError> {
        const ENTRY_WORDS: usize = size_of::<HashedPath>() / size_of::<u64>();
        let table = HashedHead::LEN_BYTES as u64..HashedHead::len_bytes() as u64;
        read_written(&self.memory, table, size_of::<HashedPath>() as u64, |_, words| {
            for [key, executions] in words.as_chunks::<ENTRY_WORDS>().0 {
                if let Some(key) = HashedKey::from_word(*key).filter(|_| *executions > 0) {
                    each(key, *executions);
                }
            }
        })
    }

    /// By procedure: what was executed in these lanes.
    pub(super) fn in_lanes(&self, lanes: &FxHashSet<u32>) -> Result<FxHashMap<u32, Executions>, MeasurementError> {
        let mut found: FxHashMap<u32, Executions> = FxHashMap::default();
        self.read(|key, executions| {
            if let HashedKey::OfLane { lane, procedure, path } = key
                && lanes.contains(&lane)
            {
                let sum = found.entry(procedure.into()).or_default().entry(path.into()).or_default();
                *sum = sum.wrapping_add(executions);
            }
        })?;
        Ok(found)
    }

    /// Paths that had no room, once.
    pub(super) fn take_lost(&self) -> u64 {
        self.head().lost.swap(0, Relaxed)
    }
}

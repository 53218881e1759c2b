//! One process's view of the measurement: its mappings and its slot.

use callpath_format::shared::load_map::Published;
use callpath_format::shared::{
    Arena, ChunkIndex, Columns, Metrics, PROCESS_SLOTS, ProcessSlot, Session, Settings, SlotState,
};
use core::ops::Deref;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::sentinel::stubs::Stubs;
use crate::syscall;

/// The mappings of a measured process, and which slot is its own.
#[derive(Clone, Copy)]
pub struct Process<'m> {
    /// The arena.
    pub arena: Arena<'m>,
    /// The published memory.
    pub published: Published<'m>,
    /// The measurement.
    pub session: Joined<'m>,
    /// The process's slot.
    pub slot: &'m ProcessSlot,
    /// The slot's bases ([`Columns::bases`]).
    pub bases: &'m [AtomicU64],
    /// Its index.
    pub slot_index: u32,
    /// The stubs that mark return addresses, if the process uses them.
    pub stubs: Option<Stubs>,
}

/// The session, with a copy of its settings.
#[derive(Clone, Copy)]
pub struct Joined<'m> {
    shared: &'m Session,
    /// The nonce.
    pub nonce: u64,
    /// The settings.
    pub settings: Settings,
    /// The layout of the metrics' columns.
    pub columns: Columns,
    /// The settings of each metric.
    pub metrics: Metrics<'m>,
    /// The first metric of probes.
    pub first_of_probes: usize,
    /// The metric that holds the numbers of contexts, if the program asks for them.
    pub context_column: Option<usize>,
    /// By how much limits of address space are raised, bytes.
    pub added_space_bytes: u64,
    /// What is mapped ahead for the sentinel, bytes.
    pub ahead_len_bytes: u64,
}

impl<'m> Joined<'m> {
    /// `None`: its settings of metrics are inconsistent.
    fn new(shared: &'m Session, published: &Published<'m>) -> Option<Joined<'m>> {
        let head = shared.head();
        let columns = head.settings.columns()?;
        let metrics = published.metrics(columns)?;
        Some(Joined {
            shared,
            nonce: head.nonce,
            settings: head.settings,
            columns,
            metrics,
            first_of_probes: metrics.iter().position(|metric| Settings::is_of_probes(metric.meter)).unwrap_or(0),
            context_column: metrics.iter().position(|metric| metric.meter == Settings::PROBED_CONTEXT),
            added_space_bytes: head.added_space_bytes(),
            ahead_len_bytes: head.ahead_len_bytes(),
        })
    }
}

impl Deref for Joined<'_> {
    type Target = Session;

    fn deref(&self) -> &Session {
        self.shared
    }
}

impl<'m> Process<'m> {
    /// Takes a free slot. `None`: all are taken (counted), or the mapping is not an arena's.
    pub fn claim(arena: Arena<'m>, published: Published<'m>, stubs: Option<Stubs>) -> Option<Process<'m>> {
        let session = Joined::new(arena.at_offset(0)?, &published)?;
        for index in 0..PROCESS_SLOTS {
            let slot: &ProcessSlot = arena.at_offset(ProcessSlot::offset_bytes(index)?)?;
            if slot.state.load(Ordering::Relaxed) == SlotState::FREE
                && slot
                    .state
                    .compare_exchange(SlotState::FREE, SlotState::CLAIMED, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
            {
                return Process::in_slot(arena, published, index).map(|process| Process { stubs, ..process });
            }
        }
        session.lost_processes.fetch_add(1, Ordering::Relaxed);
        None
    }

    /// In a slot that it has taken already; without stubs. `None`: there is no such slot, or the mapping is not an
    /// arena's.
    pub fn in_slot(arena: Arena<'m>, published: Published<'m>, index: usize) -> Option<Process<'m>> {
        let session = Joined::new(arena.at_offset(0)?, &published)?;
        let slot: &ProcessSlot = arena.at_offset(ProcessSlot::offset_bytes(index)?)?;
        let bases = session.columns.bases(&arena, index)?;
        Some(Process { arena, published, session, slot, bases, slot_index: index as u32, stubs: None })
    }

    /// Calls the recorder.
    pub fn ring(&self) {
        self.session.doorbell.fetch_add(1, Ordering::Release);
        syscall::futex_wake(&self.session.doorbell);
    }

    /// Takes a free chunk, and rings when few are left. `None`: there is none.
    pub fn take_chunk(&self) -> Option<ChunkIndex> {
        let chunk = self.session.take_chunk();
        let left = self.session.free_chunks();
        if chunk.is_none() || (left <= self.session.low_water.load(Ordering::Relaxed) && left.is_multiple_of(8)) {
            self.ring();
        }
        chunk.filter(|c| c.0 < self.arena.chunk_count())
    }
}

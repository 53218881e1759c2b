//! A thread's life: its record is made in a chunk, its clocks are set when it begins, and what
//! no sample has had is attributed when it ends.

use callpath_format::frame::{FrameKey, Gap};
use callpath_format::shared::thread::layout;
use callpath_format::shared::{ArenaRef, CHUNK_LEN_BYTES, ChunkHeader, Settings, ThreadRecord};
use core::iter;
use core::sync::atomic::Ordering::{Relaxed, Release};

use crate::clock;
use crate::gap;
use crate::process::Process;
use crate::sample::InSample;
use crate::thread::Thread;
use crate::tree::Tree;
use crate::weight::Weight;

impl<'m> Thread<'m> {
    /// A record for a thread that is about to run, or for the calling one, pushed to the process's list.
    ///
    /// `stack`: lowest address and one past the highest, 0, 0 where not known. `tid` may be 0 until the thread runs.
    /// `None`: no chunk is left.
    pub fn create(process: &Process<'m>, tid: u32, stack: [u64; 2], start: [u64; 2]) -> Option<Thread<'m>> {
        let chunk = process.take_chunk()?;
        let base = chunk.0 as usize * CHUNK_LEN_BYTES;
        let header: &ChunkHeader = process.arena.at_offset(base)?;
        let record: &ThreadRecord = process.arena.at_offset(base + layout::RECORD)?;
        let columns = process.session.columns.of_thread(&process.arena, chunk)?;
        let nodes_start = process.session.columns.nodes_start() as u32;
        let reference = ArenaRef::from_offset(base + layout::RECORD);
        header.kind.store(ChunkHeader::KIND_THREAD, Relaxed);
        header.next.store(0, Relaxed);
        header.owner.store(reference.0, Relaxed);
        header.start.store(nodes_start, Relaxed);
        header.end.store(nodes_start, Relaxed);
        header.top.store(CHUNK_LEN_BYTES as u32, Relaxed);
        record.slot.store(process.slot_index, Relaxed);
        record.chunk.store(chunk.0, Relaxed);
        for (to, from) in record.stack.iter().zip(stack) {
            to.store(from, Relaxed);
        }
        record.stack_base.store(0, Relaxed);
        record.start_routine.store(start[0], Relaxed);
        record.start_argument.store(start[1], Relaxed);
        record.tid.store(tid, Relaxed);
        let thread = Thread { record, columns, chunk };
        let mut tree = Tree::new(process, thread)?;
        tree.first_segment()?;
        let full = tree.add(ArenaRef::NONE, FrameKey(0), 0)?;
        let partial = tree.add(ArenaRef::NONE, FrameKey(0), 0)?;
        record.full_root.store(full.0, Relaxed);
        record.partial_root.store(partial.0, Relaxed);
        record.last_node.store(full.0, Relaxed);
        for (column, base) in columns.iter().zip(process.bases) {
            column.last_node.store(full.0, Relaxed);
            // The thread's events will be copies of the first thread's as they are now.
            column.period.store(base.load(Relaxed), Relaxed);
        }
        record.state.store(ThreadRecord::LIVE, Release);
        let mut head = process.slot.threads.load(Relaxed);
        loop {
            record.next.store(head, Relaxed);
            match process.slot.threads.compare_exchange_weak(head, reference.0, Release, Relaxed) {
                Ok(_) => return Some(thread),
                Err(now) => head = now,
            }
        }
    }

    /// Sets the clocks of a thread that begins to run now: its earlier use belongs to no sample.
    pub fn start_clocks(&self, process: &Process<'_>) {
        self.start_clocks_at(process, 0);
    }

    /// The same for the process's first thread, which calls this when our own start in the process is over. What an
    /// earlier image of the program has accounted for is left out; what was used since is no sample's.
    ///
    /// `joined_cpu_ns`: the thread's CPU time when our start began, if it could be read. `is_fork`: the process is a
    /// fork's child, so what it used before was its program's, and is left to its first sample.
    pub fn start_first_clocks(&self, process: &Process<'m>, joined_cpu_ns: Option<u64>, is_fork: bool) {
        for ((column, base), metric) in self.columns.iter().zip(process.bases).zip(process.session.metrics.iter()) {
            if Settings::is_of_usage(metric.meter) {
                column.count.store(base.load(Relaxed), Relaxed);
            }
        }
        self.start_clocks_at(process, process.slot.inherited_cpu_ns.load(Relaxed));
        gap::leave_start(process, *self, joined_cpu_ns, is_fork);
    }

    fn start_clocks_at(&self, process: &Process<'_>, cpu_ns: u64) {
        let [cpu, wall, kernel] = &self.record.clocks;
        cpu.store(cpu_ns, Relaxed);
        kernel.store(0, Relaxed);
        self.record.seen_cpu_ns.store(cpu_ns, Relaxed);
        self.record.last_end.store(clock::ticks(), Relaxed);
        if process.session.settings.uses(Settings::WALL_TIME) {
            wall.store(clock::monotonic_ns(), Relaxed);
        }
    }

    /// Whether the calling thread has run for longer than a period without a sample.
    pub fn is_due(&self, process: &Process<'m>) -> bool {
        let settings = &process.session.settings;
        let [cpu, _, kernel] = &self.record.clocks;
        settings.uses(Settings::CPU_TIME)
            && clock::thread_cpu_ns().is_some_and(|now_ns| {
                now_ns.saturating_sub(cpu.load(Relaxed) + kernel.load(Relaxed)) >= settings.period_ns
            })
    }

    /// Records that no sample could come between the last one and now. For the thread itself.
    pub fn leave_gap(&self, process: &Process<'m>) {
        if let Some(_in_sample) = InSample::begin(self.record) {
            gap::leave(process, *self, clock::ticks(), None);
        }
    }

    /// Attributes what no sample has had yet: a clock's rest, which is less than a period, to the node of its last
    /// sample; kernel time that no tick of the kernel has shown, which may be much, to a gap; and what has happened since
    /// a counter's last sample, to the root. For the thread itself, when it ends. `no_sample_could_come`: nor could one
    /// come just before.
    pub fn flush(&self, process: &Process<'m>, no_sample_could_come: bool) {
        let Some(_in_sample) = InSample::begin(self.record) else { return };
        if no_sample_could_come {
            gap::leave(process, *self, clock::ticks(), None);
        }
        let rest = Weight::of_all(process, *self);
        if let Some(mut tree) = Tree::new(process, *self) {
            let mut lost = false;
            let unseen_ns = gap::unseen_in_kernel_ns(process, &rest);
            for (number, (column, metric)) in self.columns.iter().zip(process.session.metrics.iter()).enumerate() {
                let value = column.value.load(Relaxed);
                if value == 0 {
                    continue;
                }
                let is_clock = matches!(metric.meter, Settings::CPU_TIME | Settings::WALL_TIME);
                let values = |value| iter::repeat_n(0, number).chain(iter::once(value));
                let value = if metric.meter == Settings::CPU_TIME && unseen_ns > 0 {
                    let root = ArenaRef(self.record.full_root.load(Relaxed));
                    let gap = tree.child(root, FrameKey::gap(Gap::InKernel));
                    lost |= !gap.is_some_and(|gap| tree.count(gap, 0, values(unseen_ns)));
                    value.saturating_sub(unseen_ns)
                } else {
                    value
                };
                let last_node = match ArenaRef(column.last_node.load(Relaxed)) {
                    ArenaRef::NONE => &self.record.last_node,
                    _ => &column.last_node,
                };
                let node = if is_clock { last_node } else { &self.record.full_root };
                lost |= !tree.count(ArenaRef(node.load(Relaxed)), 0, values(value));
            }
            if !lost {
                rest.mark_attributed(None);
            }
        }
    }
}

//! Processes that come: whether they are measured, and letting them begin.

use std::sync::atomic::Ordering::{Relaxed, Release};

use callpath_format::shared::Source;
use callpath_target::{Maps, Pid, ProcessHandle, SampledFrom};

use crate::arena::wake;
use crate::process::{self, Process};
use crate::sources::Sources;
use crate::suitable::GO_WITHOUT_C;

use super::{Recorder, note_once};

/// Tracers that hand on the signals of what they trace and do not stop it for them.
const PASSES_SIGNALS_ON: [&str; 1] = ["strace"];

impl Recorder<'_> {
    /// A new process: what is mapped in it.
    pub(super) fn receive(&mut self, slot: usize) {
        // What it has executed is known before it is looked at.
        self.serve_outside();
        let pid = Pid(self.shared.allocator.slot(slot).pid.load(Relaxed));
        // The number is the process's own. In another PID name space it is
        // another process's here, which must be left alone.
        let maps = Maps::read(pid).unwrap_or_default();
        if !self.shared.allocator.is_mapped_in(&maps) {
            self.refuse(
                slot,
                Some(
                    "a process was not measured: it is in another PID name space, hides its memory map, or had ended before \
                     it was looked at",
                ),
            );
            return;
        }
        // Before it is taken for what a process of this number has executed.
        if process::is_emulated(&self.shared.allocator, slot, &maps) {
            if self.processes.iter().any(|process| process.pid() == pid && process.is_from_outside()) {
                // The emulator itself is sampled.
                return self.refuse(slot, None);
            }
            let emulator = ProcessHandle::open(pid).executable().unwrap_or_default();
            let emulator = emulator.file_name().unwrap_or_default().to_string_lossy().into_owned();
            self.refuse(
                slot,
                Some(&format!("a process was not measured: it runs in an emulator ({emulator}), which samples would interrupt in its place")),
            );
            return;
        }
        let started_ns = self.shared.began.elapsed().as_nanos() as u64;
        let mut process = Process::new(&self.shared, slot, self.sequence, started_ns);
        self.sequence += 1;
        let pid = process.pid();
        let origin = self.outside.as_mut().and_then(|outside| outside.origins.remove(&pid.0));
        // Events that tell of it already are inherited by what it starts.
        let mut has_events = origin.is_some();
        if let Some(origin) = origin {
            self.shared.allocator.slot(slot).inherited_cpu_ns.fetch_max(origin.before_ns, Relaxed);
        }
        // A slot of the same process: it has executed another program since, perhaps before it was let in.
        let same = |before: &Process| before.pid() == pid;
        let known = self.processes.iter().position(same).map(|at| self.processes.swap_remove(at));
        let before = known.or_else(|| {
            self.held.iter().position(|held| same(&held.process)).map(|at| self.held.swap_remove(at).process)
        });
        if let Some(mut before) = before {
            if before.is_from_outside() {
                has_events = true;
                match before.give_up(&mut self.shared, slot) {
                    Ok(sequence) => {
                        process.sequence = sequence;
                        self.sequence -= 1;
                    }
                    Err(before) => {
                        let sampled_ns = before.sampled_ns(&self.shared);
                        self.shared.allocator.slot(slot).inherited_cpu_ns.fetch_max(sampled_ns, Relaxed);
                        self.take_leave(*before);
                    }
                }
            } else {
                before.hand_on(&self.shared, slot);
                self.take_leave(before);
            }
        }
        if let Some(tracer) = process.handle.tracer().filter(|tracer| !PASSES_SIGNALS_ON.contains(&tracer.as_str())) {
            self.sequence -= 1;
            self.refuse(
                slot,
                Some(&format!(
                    "a process was not measured: {tracer} traces it, and would take each sample for a breakpoint"
                )),
            );
            return;
        }
        // The load map first: a sample without one could only be kept raw.
        process.publish_maps(&mut self.shared, &maps);
        if process.is_go_without_c(&self.shared) {
            self.sequence -= 1;
            let name = process.program_name();
            // It waits for the answer.
            let is_sampled = has_events || self.sample_started(pid.0, SampledFrom::Now) == Some(true);
            let note = (!is_sampled).then(|| format!("{name} was not measured: {GO_WITHOUT_C}"));
            return self.refuse(slot, note.as_deref());
        }
        let is_starter = !has_events && process.executes_unseen(&self.shared);
        if is_starter && self.sample_started(pid.0, SampledFrom::EachExec) == Some(false) {
            let name = process.program_name();
            self.note(&format!(
                "of the programs that {name} starts, static ones are not measured: it starts them without the C library, and here none \
                 can be sampled from outside (`callpath doctor` says why)"
            ));
        }
        self.hold(process);
    }

    /// Lets a process begin.
    pub(super) fn admit(&mut self, mut process: Process) {
        let bases = self.shared.allocator.bases(process.slot);
        let (sources, notes) = Sources::open(process.pid(), bases, self.options);
        notes.iter().for_each(|note| note_once(&mut self.notes, note));
        process.admit(&self.shared, sources);
        self.processes.push(process);
    }

    pub(super) fn refuse(&mut self, slot: usize, note: Option<&str>) {
        let at = self.shared.allocator.slot(slot);
        at.source.store(Source::Refused as u32, Release);
        wake(&at.source);
        note.into_iter().for_each(|note| note_once(&mut self.notes, note));
    }
}

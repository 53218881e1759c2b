//! Samples of a whole machine that were lost, and may have been anyone's. The clock of a process tells how much of its time is in no sample. What is in
//! none and has no process, since that has ended or executed another program meanwhile, stands in a row of its own.

use callpath_target::{Pid, ProcessHandle};
use rustc_hash::FxHashMap;

use super::outside::TOO_MANY_PROCESSES;
use super::{Lost, Recorder};
use crate::process::{Origin, Process};
use crate::rings::Outside;
use crate::time_base::own_cpu_ns;

impl Recorder<'_> {
    /// Where all was sampled, and records were lost: enters the processes all of whose samples were.
    pub(super) fn find_lost(&mut self, (outside, places): (&mut Outside, &mut FxHashMap<u32, usize>)) {
        /// Less than that no sample need have hit.
        const LEAST_PERIODS: u64 = 4;
        let (samples, period_ns) = (outside.lost, self.shared.allocator.settings().period_ns);
        if samples == 0 {
            return;
        }
        // First: slots may be few.
        let begun = (self.sequence, self.shared.began.elapsed().as_nanos() as u64);
        let origin = (Origin::of_lost(), outside.sampler.samples().user_only);
        if let Some(nobody) = Process::from_outside(&mut self.shared, Pid(0), begun, origin) {
            self.sequence += 1;
            // Where switches are recorded, most records are of these.
            let is_of_periods = !outside.sampler.samples().switches;
            let own_ns = own_cpu_ns().saturating_sub(outside.own_begun_ns);
            let own_ns = if outside.own == 0 && !outside.clocks_tell() { 0 } else { own_ns };
            let own_lost_ns = own_ns.saturating_sub(outside.own.saturating_mul(period_ns));
            let most_ns = samples.saturating_mul(period_ns).saturating_sub(own_lost_ns);
            let most_ns = if is_of_periods { most_ns } else { 0 };
            self.lost = Some(Lost { nobody: Box::new(nobody), samples, most_ns });
        } else {
            self.note(TOO_MANY_PROCESSES);
            self.note(&format!("{samples} lost samples are missing from the report"));
        }
        if !outside.clocks_tell() {
            return;
        }
        let worked = |(pid, begun_ns): (&u32, &u64)| {
            let now_ns = ProcessHandle::open(Pid(*pid)).cpu_ns()?;
            Some((now_ns.checked_sub(*begun_ns)?, *pid)).filter(|(ns, _)| *ns >= LEAST_PERIODS * period_ns)
        };
        let mut unmet: Vec<(u64, u32)> = outside.clocks.iter().filter_map(worked).collect();
        unmet.sort_unstable_by(|one, two| two.cmp(one));
        for (_, pid) in unmet {
            if let Some(index) = self.place_of(Pid(pid), (places, outside)) {
                self.processes[index].look_at_clock();
            }
        }
    }

    /// Writes what was lost, once all processes are written.
    pub(super) fn write_lost(&mut self) {
        let Some(Lost { mut nobody, samples, most_ns }) = self.lost.take() else { return };
        nobody.has_lost(&self.shared, samples, (None, None));
        nobody.has_lost_time(&self.shared, most_ns.saturating_sub(self.shared.credited_ns));
        self.take_leave(*nobody);
    }
}

//! Copies of what lies beyond the records of a sampler's events.

use std::os::fd::AsRawFd;

use super::StackSampler;
use crate::deep_copies::DeepCopies;

impl StackSampler {
    /// Has what lies beyond records copied from now on: at the samples of the events that there are, and of those that are opened. If the kernel
    /// refuses, it is not.
    pub fn begin_deep(&mut self, mut deep: DeepCopies) {
        deep.samples_come_every(self.samples.period_ns);
        let is_of_clock = |number: &u64| self.opened_on.get(number).is_some_and(|event| !event.of_switches);
        let events = self.threads.values().flat_map(|of| of.numbers.iter().zip(&of.events));
        let mut events = events.filter(|(number, _)| is_of_clock(number)).map(|(_, event)| event.as_raw_fd());
        if events.all(|event| deep.attach(event).is_ok()) {
            self.without_deep = self.inherited.keys().copied().collect();
            self.deep = Some(deep);
            self.fit_deep();
        }
    }

    /// Whether a thread's samples lack copies beyond records until its events are replaced.
    pub fn lacks_deep(&self, tid: u32) -> bool {
        self.without_deep.contains(&tid)
    }

    /// Has deep copies begin where the shortest records end: there may be events of several lengths.
    pub fn fit_deep(&mut self) {
        if let Some(deep) = &mut self.deep {
            let of_clock = self.opened_on.values().filter(|event| !event.of_switches);
            let shortest = of_clock.map(|event| event.stack_bytes).fold(self.samples.stack_bytes, u32::min);
            deep.begin_at(shortest as usize);
        }
    }
}

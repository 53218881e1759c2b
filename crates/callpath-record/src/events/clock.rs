//! The clocks that samples are taken by.

use callpath_format::shared::Settings;
use callpath_schema::{Metric, MetricId};

/// A clock that samples are taken by and weighed with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Clock {
    /// Time on a CPU, user and kernel.
    CpuTime,
    /// Time that passes.
    WallTime,
}

impl Clock {
    /// All of them.
    pub const ALL: [Clock; 2] = [Clock::CpuTime, Clock::WallTime];

    pub(crate) fn metric(self) -> Metric {
        Metric::of(match self {
            Clock::CpuTime => MetricId::CPU_TIME,
            Clock::WallTime => MetricId::WALL_TIME,
        })
    }

    /// Its name on the command line.
    pub fn name(self) -> String {
        self.metric().name
    }

    /// The clock with a name, callpath's or perf's.
    pub(crate) fn of_name(name: &str) -> Option<Clock> {
        match name {
            "cpu-clock" | "task-clock" => Some(Clock::CpuTime),
            _ => Clock::ALL.into_iter().find(|clock| clock.name() == name),
        }
    }

    pub(crate) fn code(self) -> u32 {
        match self {
            Clock::CpuTime => Settings::CPU_TIME,
            Clock::WallTime => Settings::WALL_TIME,
        }
    }
}

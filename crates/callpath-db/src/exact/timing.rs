//! What paths take, by executions of them that were measured.

use callpath_schema::{Metric, MetricId, PathMetric, TimesAccount};

/// What was measured, and how.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExactTiming {
    /// The metric's name.
    pub name: String,
    /// Its unit.
    pub unit: String,
    /// How it was measured.
    pub account: TimesAccount,
}

impl ExactTiming {
    /// Of what a measurement says.
    pub fn of(metric: &PathMetric) -> ExactTiming {
        ExactTiming { name: metric.name.clone(), unit: Metric::of_paths(&metric.name).unit, account: metric.account }
    }

    /// Whether it is the time that passes, which has overlaps and interruptions in it.
    pub fn is_wall_time(&self) -> bool {
        self.name == Metric::of(MetricId::TIMED).name
    }
}

/// Paths of which nothing was measured: they have no estimate.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Unmeasured {
    /// How many were executed.
    pub paths: u64,
    /// How often.
    pub executions: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MeasuredTime;
    use crate::exact::testing::numbered;
    use crate::exact::{ExactBlock, ExactCall, ExactProcedure};

    #[test]
    fn each_call_makes_the_clock_less_sure() {
        let call = ExactCall { name: None, place: None };
        let blocks =
            [0, 2].map(|calls| ExactBlock { calls: vec![call.clone(); calls], ..ExactBlock::default() }).to_vec();
        let mut work =
            ExactProcedure { blocks, paths: numbered(&[(&[0], 10), (&[0, 1], 10)]), ..ExactProcedure::default() };
        let all = MeasuredTime { measured: 10, weight: 10, time_ns: 500, spread: [0; 3] };
        work.paths[0].times[0] = all;
        work.paths[1].times[1] = all;
        // A quarter of 20 ns for each stretch, in each of ten executions.
        let account = TimesAccount { lost: 0, clock_ns: 20 };
        let of = |path: usize| work.interval_ns(&work.paths[path], (path, account));
        assert_eq!((of(0), of(1)), (Some(50.0), Some(150.0)));
        // One alone, which stands for others, too.
        work.paths[0].times[0] =
            MeasuredTime { measured: 1, weight: 65, time_ns: 650, spread: [4_160, 41_600, 416_000] };
        assert_eq!(work.interval_ns(&work.paths[0], (0, account)), None);
    }
}

//! What paths take, by executions of them that were measured.

use callpath_schema::TimesAccount;

/// How it was measured.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ExactTiming(pub TimesAccount);

impl ExactTiming {
    /// What is measured.
    pub const METRIC: &str = "wall-time";
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
        work.paths[0].time = all;
        work.paths[1].time = all;
        // A quarter of 20 ns for each stretch, in each of ten executions.
        let timing = ExactTiming(TimesAccount { lost: 0, clock_ns: 20 });
        let of = |path: usize| work.interval_ns(&work.paths[path], timing);
        assert_eq!((of(0), of(1)), (Some(50.0), Some(150.0)));
        // One alone, which stands for others, too.
        work.paths[0].time = MeasuredTime { measured: 1, weight: 65, time_ns: 650, spread: [4_160, 41_600, 416_000] };
        assert_eq!(work.interval_ns(&work.paths[0], timing), None);
    }
}

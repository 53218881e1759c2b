//! What a part of all executions of something took, and what all of them took, by that: time, or events of a kind.

/// Times of executions that were chosen by chance. One that was chosen with the probability 1/w has the weight w: it stands for w executions.
///
/// Sums are kept, so that those of several threads, processes and runs can be added.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct MeasuredTime {
    /// How many executions were measured.
    pub measured: u64,
    /// The sum of their weights.
    pub weight: u64,
    /// The sum of w * t, where t is what an execution took, nanoseconds, or as many events. So it is below.
    pub time_ns: u64,
    /// The sums of w * (w - 1), w * (w - 1) * t and w * (w - 1) * t * t, in nanoseconds where t is. All are 0 if every execution was measured.
    pub spread: [u128; 3],
}

/// Times of a path: of executions of usual length, and of those that took longer than some ten microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PathTime {
    /// Of usual length.
    pub usual: MeasuredTime,
    /// Longer ones.
    pub long: MeasuredTime,
}

impl PathTime {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: PathTime) -> PathTime {
        PathTime { usual: self.usual.plus(other.usual), long: self.long.plus(other.long) }
    }

    /// What executions took that were not interrupted. A path is a few instructions. If it takes so long often, it is its own time (it fills memory by one
    /// instruction, say); if seldom, an interrupt or another thread came in between.
    pub fn uninterrupted(self) -> MeasuredTime {
        if self.interruptions() > 0 { self.usual } else { self.usual.plus(self.long) }
    }

    /// How many executions were interrupted.
    pub fn interruptions(self) -> u64 {
        /// One of so many is seldom.
        const SELDOM: u64 = 32;
        if self.long.measured <= self.usual.measured / SELDOM { self.long.measured } else { 0 }
    }
}

/// So many metrics are measured of paths at once, at most.
pub const PATH_METRICS: usize = 2;

/// A metric that was measured of paths.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct PathMetric {
    /// Its name; its unit is that of [`Metric::of_paths`](crate::Metric::of_paths).
    pub name: String,
    /// How it was measured.
    pub account: TimesAccount,
}

/// How times were measured.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TimesAccount {
    /// Executions that were measured and whose times found no room.
    pub lost: u64,
    /// What was taken off each stretch, from one reading to the next: what reading takes, nanoseconds, or as many events.
    pub clock_ns: u64,
}

impl TimesAccount {
    /// Of several processes.
    #[must_use]
    pub fn plus(self, other: TimesAccount) -> TimesAccount {
        TimesAccount { lost: self.lost.saturating_add(other.lost), clock_ns: self.clock_ns.max(other.clock_ns) }
    }

    /// How far an execution's time may be wrong, because what is taken off is not the same everywhere: processors fetch and predict code one way
    /// here and another way there. Nanoseconds. `stretches`: how many it is the sum of.
    pub fn clock_error_ns(self, stretches: u64) -> f64 {
        /// As measured: programs with known times came out up to so much of it longer or shorter.
        const PART: f64 = 0.25;
        self.clock_ns as f64 * PART * stretches as f64
    }
}

impl MeasuredTime {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: MeasuredTime) -> MeasuredTime {
        let mut spread = self.spread;
        spread.iter_mut().zip(other.spread).for_each(|(sum, more)| *sum = sum.saturating_add(more));
        MeasuredTime {
            measured: self.measured.saturating_add(other.measured),
            weight: self.weight.saturating_add(other.weight),
            time_ns: self.time_ns.saturating_add(other.time_ns),
            spread,
        }
    }

    /// What one execution takes on average, nanoseconds. `None`: none was measured.
    pub fn mean_ns(&self) -> Option<f64> {
        (self.weight > 0).then(|| self.time_ns as f64 / self.weight as f64)
    }

    /// What so many executions took in all, of which these were measured: a ratio estimate (Cochran 1977, chapter 6), nanoseconds.
    /// `None`: none was measured.
    pub fn total_ns(&self, executions: u64) -> Option<f64> {
        Some(self.mean_ns()? * executions as f64)
    }

    /// How far [`MeasuredTime::total_ns`] may be from the truth either way, in 95 of 100 runs, nanoseconds. 0 if all executions were measured. `None`:
    /// fewer than two were measured, so that nothing is known of it.
    pub fn interval_ns(&self, executions: u64) -> Option<f64> {
        /// The standard normal distribution's quantile of 97.5%.
        const DEVIATIONS: f64 = 1.96;
        let mean = self.mean_ns()?;
        let [weights, times, squares] = self.spread.map(|sum| sum as f64);
        if weights > 0.0 && self.measured < 2 {
            return None;
        }
        // Of executions that are chosen each by itself: the sum of (1 - p) / p² * (t - mean)², p = 1 / w.
        let variance = (squares - 2.0 * mean * times + mean * mean * weights).max(0.0);
        Some(DEVIATIONS * variance.sqrt() * executions as f64 / self.weight as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(executions: &[(u64, u64)]) -> MeasuredTime {
        let one = |&(weight, time): &(u64, u64)| {
            let (w, t) = (u128::from(weight), u128::from(time));
            let pairs = w * (w - 1);
            MeasuredTime { measured: 1, weight, time_ns: weight * time, spread: [pairs, pairs * t, pairs * t * t] }
        };
        executions.iter().map(one).fold(MeasuredTime::default(), MeasuredTime::plus)
    }

    #[test]
    fn what_was_measured_whole_is_exact() {
        let all = of(&[(1, 10), (1, 30)]);
        assert_eq!((all.mean_ns(), all.total_ns(2), all.interval_ns(2)), (Some(20.0), Some(40.0), Some(0.0)));
        let none = MeasuredTime::default();
        assert_eq!((none.mean_ns(), none.total_ns(9), none.interval_ns(9)), (None, None, None));
    }

    #[test]
    fn one_alone_says_nothing_of_how_much_they_differ() {
        let one = of(&[(64, 100)]);
        assert_eq!((one.total_ns(128), one.interval_ns(128)), (Some(12_800.0), None));
        // All the same.
        let equal = of(&[(64, 100), (64, 100), (1, 100)]);
        assert_eq!((equal.total_ns(1000), equal.interval_ns(1000)), (Some(100_000.0), Some(0.0)));
    }

    /// Executions of 10 and of 1,000 ns, chosen as the program's are: more seldom, the more there were.
    #[test]
    fn intervals_hold_what_was_so() {
        let mut held = 0;
        for seed in 0..200 {
            let mut random = fastrand::Rng::with_seed(seed);
            let (mut truth, mut chosen) = (0u64, Vec::new());
            for number in 0..20_000u64 {
                let time = if random.u32(..10) == 0 { 1_000 } else { 10 };
                truth += time;
                let weight = if number < 64 { 1 } else { 1 << (number / 4_000) };
                if random.u64(..weight) == 0 {
                    chosen.push((weight, time));
                }
            }
            let measured = of(&chosen);
            let (total, interval) = (measured.total_ns(20_000).unwrap(), measured.interval_ns(20_000).unwrap());
            held += usize::from((total - truth as f64).abs() <= interval);
        }
        assert!((180..=198).contains(&held), "{held} of 200");
    }
}

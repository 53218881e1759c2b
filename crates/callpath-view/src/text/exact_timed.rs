//! What was measured of paths as text: beside each, what one execution takes; below all, what the numbers are.

use std::io::{self, Write};

use callpath_db::exact::{ExactPath, ExactProcedure, ExactTiming, Unmeasured};

use super::exact::ExactText;
use super::quantity::{count, percent, thousands, value};

/// `takes 14.2 ns each (95%: 13.9 to 14.5), by 1,234 of them`. `None`: nothing was measured of it.
pub(super) fn each(timing: &ExactTiming, procedure: &ExactProcedure, path: &ExactPath) -> Option<String> {
    let mean = path.time.mean_ns()?;
    let executions = path.executions as f64;
    let within = match procedure.interval_ns(path, *timing) {
        Some(interval) => {
            let [least, most] = [mean - interval / executions, mean + interval / executions].map(|ns| ns.max(0.0));
            format!(" (95%: {} to {})", nanoseconds(least), nanoseconds(most))
        }
        None => " (one alone)".to_owned(),
    };
    let of = match path.time.measured {
        all if all >= path.executions => "all of them".to_owned(),
        some => format!("{} of them", thousands(some)),
    };
    Some(format!("takes {}{within}, by {of}", nanoseconds(mean)))
}

/// A time that may be less than a nanosecond.
fn nanoseconds(ns: f64) -> String {
    if ns < 1_000.0 { format!("{ns:.1} ns") } else { value(ns.round() as u64, "ns") }
}

/// How much was measured, and what the numbers are.
pub(super) fn timed(text: ExactText<'_>, out: &mut dyn Write) -> io::Result<()> {
    let total = text.counts.cost();
    let paths = || text.counts.procedures.iter().flat_map(|procedure| &procedure.paths);
    let measured = paths().fold(0u64, |sum, path| sum.saturating_add(path.time.measured));
    let mut said = format!(
        "{}: {} on paths, by {} that were measured, chosen by chance. It is what a path takes by itself, from where all before is done until all of it is: \
         what a processor does at the same time before and behind is not taken off, so that sums may be more than the time that passed. What \
         callees take is theirs.",
        ExactTiming::METRIC,
        value(total.timed_ns, "ns"),
        count(measured, "execution", "executions"),
    );
    let interruptions = paths().fold(0u64, |sum, path| sum.saturating_add(path.interruptions));
    if interruptions > 0 {
        said += &format!(
            " {} left out: what seldom takes more than some 10 us did, so that something came in between.",
            match interruptions {
                1 => "One more is".to_owned(),
                more => format!("{} more are", thousands(more)),
            }
        );
    }
    let Unmeasured { paths, executions } = text.counts.unmeasured();
    if paths > 0 {
        said += &format!(
            " Nothing was measured of {} with {} of the executions: they have no time here.",
            count(paths, "path", "paths"),
            percent(executions, total.executions)
        );
    }
    if let Some(lost @ 1..) = text.timing().map(|timing| timing.0.lost) {
        said += &format!(" {} found no room.", count(lost, "time", "times"));
    }
    writeln!(out)?;
    text.wrapped(&said, 0, out)
}

#[cfg(test)]
mod tests {
    use callpath_db::{MeasuredTime, PathCategory, TimesAccount};

    use super::*;

    #[test]
    fn times_in_words() {
        let path = |executions, time| ExactPath {
            number: 1,
            category: PathCategory::EntryExit,
            blocks: vec![0],
            executions,
            contexts: Vec::new(),
            sampled: 0,
            time,
            interruptions: 0,
        };
        let of = |executions, measured, weight, time_ns, spread| {
            let timing = ExactTiming(TimesAccount { lost: 0, clock_ns: 20 });
            each(
                &timing,
                &ExactProcedure::default(),
                &path(executions, MeasuredTime { measured, weight, time_ns, spread }),
            )
        };
        assert_eq!(of(7, 0, 0, 0, [0; 3]), None);
        assert_eq!(of(2, 2, 2, 5, [0; 3]).unwrap(), "takes 2.5 ns (95%: 0.0 ns to 7.5 ns), by all of them");
        assert_eq!(
            of(900, 1, 65, 130, [65 * 64, 65 * 64 * 2, 65 * 64 * 4]).unwrap(),
            "takes 2.0 ns (one alone), by 1 of them"
        );
        // Of 10 and 30 ns, each with a weight of 65: the deviation is 10 ns, of two together 10 / sqrt(2).
        let pairs = 65 * 64;
        let said = of(1_000, 2, 130, 65 * 40, [2 * pairs, pairs * 40, pairs * 1_000]).unwrap();
        assert_eq!(said, "takes 20.0 ns (95%: 1.2 ns to 38.8 ns), by 2 of them");
        assert_eq!(of(1, 1, 1, 1_500_000, [0; 3]).unwrap(), "takes 1.50 ms (95%: 1.50 ms to 1.50 ms), by all of them");
    }
}

//! What was measured of paths as text: beside each, what one execution takes; below all, what the numbers are.

use std::io::{self, Write};

use callpath_db::exact::{ExactPath, ExactProcedure, ExactTiming, Unmeasured};

use super::exact::ExactText;
use super::printable::printable;
use super::quantity::{count, percent, thousands, value};

/// `takes 14.2 ns each (95%: 13.9 to 14.5), by 1,234 of them`, of one metric by its number. `None`: nothing was measured of it.
pub(super) fn each(
    (number, timing): (usize, &ExactTiming),
    procedure: &ExactProcedure,
    path: &ExactPath,
) -> Option<String> {
    let time = path.times.get(number)?;
    let mean = time.mean_ns()?;
    let executions = path.executions as f64;
    let within = match procedure.interval_ns(path, (number, timing.account)) {
        Some(interval) => {
            let [least, most] = [mean - interval / executions, mean + interval / executions].map(|ns| ns.max(0.0));
            format!(" (95%: {} to {})", amount(least, timing), amount(most, timing))
        }
        None => " (one alone)".to_owned(),
    };
    let of = match time.measured {
        all if all >= path.executions => "all of them".to_owned(),
        some => format!("{} of them", thousands(some)),
    };
    let what = match (timing.is_wall_time(), timing.unit.as_str()) {
        (true, _) => String::new(),
        (false, "ns") => format!(" of {}", printable(&timing.name)),
        (false, _) => format!(" {}", printable(&timing.name)),
    };
    Some(format!("takes {}{what}{within}, by {of}", amount(mean, timing)))
}

/// A time that may be less than a nanosecond, or a part of an event.
fn amount(amount: f64, timing: &ExactTiming) -> String {
    match timing.unit.as_str() {
        "ns" if amount < 1_000.0 => format!("{amount:.1} ns"),
        _ if amount < 1_000.0 => format!("{amount:.2}"),
        unit => value(amount.round() as u64, unit),
    }
}

/// How much was measured, and what the numbers are: a paragraph for each metric.
pub(super) fn timed(text: ExactText<'_>, out: &mut dyn Write) -> io::Result<()> {
    for (number, timing) in text.timings().iter().enumerate() {
        writeln!(out)?;
        text.wrapped(&printable(&said(text, (number, timing))), 0, out)?;
    }
    Ok(())
}

fn said(text: ExactText<'_>, (number, timing): (usize, &ExactTiming)) -> String {
    let total = text.counts.cost();
    let paths = || text.counts.procedures.iter().flat_map(|procedure| &procedure.paths);
    let sum = |of: &dyn Fn(&ExactPath) -> u64| paths().map(of).fold(0, u64::saturating_add);
    let measured = sum(&|path| path.times.get(number).map_or(0, |time| time.measured));
    let mut said = format!(
        "{}: {} on paths, by {} that were measured, chosen by chance.",
        timing.name,
        value(total.timed.get(number).copied().unwrap_or(0), &timing.unit),
        count(measured, "execution", "executions"),
    );
    said += match timing.is_wall_time() {
        true => {
            " It is what a path takes by itself, from where all before is done until all of it is: what a processor does at the same time before and \
             behind is not taken off, so that sums may be more than the time that passed. What callees take is theirs."
        }
        false => " What callees take is theirs.",
    };
    let interruptions = sum(&|path| path.interruptions.get(number).copied().unwrap_or(0));
    if interruptions > 0 {
        said += &format!(
            " {} left out: what seldom takes more than some 10 us did, so that something came in between.",
            match interruptions {
                1 => "One more is".to_owned(),
                more => format!("{} more are", thousands(more)),
            }
        );
    }
    let Unmeasured { paths, executions } = text.counts.unmeasured(number);
    if paths > 0 {
        said += &format!(
            " Nothing was measured of {} with {} of the executions: they have no {} here.",
            count(paths, "path", "paths"),
            percent(executions, total.executions),
            if timing.unit == "ns" { "time" } else { "number" }
        );
    }
    if let lost @ 1.. = timing.account.lost {
        said += &match timing.unit.as_str() {
            "ns" => format!(" {} found no room.", count(lost, "time", "times")),
            _ => format!(" {} found no room, or could not be read.", count(lost, "number", "numbers")),
        };
    }
    said
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
            times: [time; 2],
            interruptions: [0; 2],
        };
        let timing = |name: &str, unit: &str| ExactTiming {
            name: name.to_owned(),
            unit: unit.to_owned(),
            account: TimesAccount { lost: 0, clock_ns: 20 },
        };
        let of = |executions, measured, weight, time_ns, spread| {
            each(
                (0, &timing("wall-time", "ns")),
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
        let all = path(2, MeasuredTime { measured: 2, weight: 2, time_ns: 5_001, spread: [0; 3] });
        let of = |timing: &ExactTiming| each((1, timing), &ExactProcedure::default(), &all).unwrap();
        let cpu = of(&timing("cpu-time", "ns"));
        assert_eq!(cpu, "takes 2.50 us of cpu-time (95%: 2.50 us to 2.51 us), by all of them");
        let faults = ExactTiming { account: TimesAccount::default(), ..timing("page-faults", "count") };
        assert_eq!(of(&faults), "takes 2,501 page-faults (95%: 2,501 to 2,501), by all of them");
    }
}

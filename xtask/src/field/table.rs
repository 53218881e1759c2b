//! The figures of the field as text for a terminal and as Markdown for docs/results.md, and which of them fall short.

use std::fmt::Write;

use super::{Measured, Recorded};
use crate::measure::Usage;
use crate::suite::recorders::{Recorder, Stacks};

/// What each program is to reach.
mod aims {
    /// Recorded over bare, CPU and wall, by the minima.
    pub const OVER_BARE: f64 = 1.1;
    /// The first recording's wall time over bare; of a program that is over in a
    /// moment, a few tables are as long as itself.
    pub const FIRST_OVER_BARE: f64 = 1.3;
    pub const FIRST_MORE_SECONDS: f64 = 0.5;
    /// Of all samples taken.
    pub const WHOLE: f64 = 0.95;
    /// Of all samples taken.
    pub const DROPPED: f64 = 0.01;
    /// How far CPU time may be from the kernel's account, as a part of it.
    pub const CPU_OFF: f64 = 0.02;
    pub const REPORT_SECONDS: f64 = 2.0;
    pub const LONGEST_HANDLER_NS: u64 = 5_000_000;
    /// That 99 of 100 handlers stay below.
    pub const P99_HANDLER_NS: u64 = 1 << 20;
}

/// One program, as soon as it is done.
pub fn print_one(program: &Measured) {
    println!(
        "{}: bare {:.2} s of CPU, {:.2} s; {}",
        program.name,
        least(&program.bare, cpu),
        least(&program.bare, wall),
        program.agreement.cell()
    );
    for recorded in &program.recorded {
        let stacks = &recorded.stacks;
        println!(
            "  {:<10} CPU {:.3}  wall {:.3}  samples {}  whole {}  CPU of the kernel's {}",
            recorded.recorder.name(),
            over(program, recorded, cpu),
            over(program, recorded, wall),
            stacks.taken,
            share(stacks.whole, stacks.taken),
            over_kernel(stacks),
        );
    }
    short(program).iter().for_each(|sentence| println!("  {sentence}"));
    println!();
}

/// The whole table, with what is needed to read it.
pub fn markdown(
    programs: &[Measured],
    skipped: &[(&'static str, String)],
    rounds: usize,
    rate: usize,
) -> anyhow::Result<String> {
    let mut text = crate::suite::heading(&format!("{rounds} pairs, {rate} samples a second of CPU"))?;
    text.push_str(
        "\n\n| program | bare CPU s | samples | whole % | partial % | dropped % | CPU, of the kernel's | CPU, over bare | wall, over bare \
         | first recording, over bare | report s, cold | warm | longest handler us | 99% below us | output, status |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for program in programs {
        let Some(recorded) = program.recorded.first() else { continue };
        let stacks = &recorded.stacks;
        writeln!(
            text,
            "| {} | {:.2} | {} | {} | {} | {} | {} | {:.3} | {:.3} | {:.2} | {:.2} | {:.2} | {} | {} | {} |",
            program.name,
            least(&program.bare, cpu),
            stacks.taken,
            share(stacks.whole, stacks.taken),
            share(stacks.partial, stacks.taken),
            dropped(stacks),
            over_kernel(stacks),
            over(program, recorded, cpu),
            over(program, recorded, wall),
            first_over(program),
            stacks.report_seconds,
            stacks.second_report_seconds,
            micros(stacks.longest_handler_ns),
            micros(ninety_nine(&stacks.handlers).unwrap_or(0)),
            program.agreement.cell(),
        )?;
    }
    peers(&mut text, programs)?;
    list(&mut text, "Skipped", skipped.iter().map(|(name, why)| format!("{name}: {why}")))?;
    let findings = programs.iter().filter_map(|program| {
        let short = short(program);
        (!short.is_empty()).then(|| format!("{}: {}", program.name, short.join("; ")))
    });
    list(&mut text, "Short of the aims", findings)?;
    Ok(text)
}

fn list(text: &mut String, title: &str, items: impl Iterator<Item = String>) -> std::fmt::Result {
    let items: Vec<String> = items.collect();
    if items.is_empty() {
        return Ok(());
    }
    writeln!(text, "\n{title}:\n")?;
    items.iter().try_for_each(|item| writeln!(text, "- {item}"))
}

/// callpath beside the others.
fn peers(text: &mut String, programs: &[Measured]) -> std::fmt::Result {
    let Some(first) = programs.first().filter(|program| program.recorded.len() > 1) else { return Ok(()) };
    let names: Vec<&str> = first.recorded.iter().map(|recorded| recorded.recorder.name()).collect();
    writeln!(
        text,
        "\nCPU and wall over bare, and the share of stacks that reach the base of their thread:\n\n| program | {} |\n|---|{}",
        names.join(" | "),
        "---|".repeat(names.len())
    )?;
    for program in programs {
        let cell = |recorded: &Recorded| {
            let reach = share(recorded.stacks.whole, recorded.stacks.taken);
            format!("{:.3}, {:.3}, {reach}%", over(program, recorded, cpu), over(program, recorded, wall))
        };
        let cells: Vec<String> = program.recorded.iter().map(cell).collect();
        writeln!(text, "| {} | {} |", program.name, cells.join(" | "))?;
    }
    Ok(())
}

/// Where a program is short of the aims, a phrase each.
fn short(program: &Measured) -> Vec<String> {
    let mut short = program.agreement.sentences();
    let Some(recorded) = program.recorded.iter().find(|recorded| recorded.recorder == Recorder::Callpath) else {
        return short;
    };
    for (what, figure) in [("CPU", over(program, recorded, cpu)), ("wall", over(program, recorded, wall))] {
        if figure > aims::OVER_BARE {
            short.push(format!("{what} {figure:.3} of bare"));
        }
    }
    let more_seconds = wall(&program.first) - least(&program.bare, wall);
    if first_over(program) > aims::FIRST_OVER_BARE && more_seconds > aims::FIRST_MORE_SECONDS {
        short.push(format!("first recording {:.2} of bare", first_over(program)));
    }
    short.extend(short_stacks(&recorded.stacks));
    short
}

fn short_stacks(stacks: &Stacks) -> Vec<String> {
    let mut short = vec![];
    if stacks.taken == 0 {
        return vec!["no samples".into()];
    }
    let part = |count: u64| count as f64 / stacks.taken as f64;
    if part(stacks.whole) < aims::WHOLE {
        short.push(format!("{}% whole", share(stacks.whole, stacks.taken)));
    }
    let reasons = stacks.dropped.iter().filter(|(_, count)| part(*count) > aims::DROPPED);
    short.extend(reasons.map(|(reason, count)| format!("{}% dropped: {reason}", share(*count, stacks.taken))));
    if let Some(ratio) = stacks.cpu_over_kernel.filter(|ratio| (ratio - 1.0).abs() > aims::CPU_OFF) {
        short.push(format!("CPU {ratio:.3} of the kernel's"));
    }
    if stacks.report_seconds > aims::REPORT_SECONDS {
        short.push(format!("cold report {:.1} s", stacks.report_seconds));
    }
    if stacks.longest_handler_ns > aims::LONGEST_HANDLER_NS {
        short.push(format!("longest handler {:.1} ms", stacks.longest_handler_ns as f64 / 1e6));
    }
    if let Some(bound) = ninety_nine(&stacks.handlers).filter(|bound| *bound > aims::P99_HANDLER_NS) {
        short.push(format!("handlers: 99% below {:.1} ms only", bound as f64 / 1e6));
    }
    short
}

fn cpu(usage: &Usage) -> f64 {
    usage.cpu.as_secs_f64()
}

fn wall(usage: &Usage) -> f64 {
    usage.wall.as_secs_f64()
}

/// The minimum: what else the machine does only adds.
fn least(usage: &[Usage], figure: fn(&Usage) -> f64) -> f64 {
    usage.iter().map(figure).fold(f64::NAN, f64::min)
}

fn over(program: &Measured, recorded: &Recorded, figure: fn(&Usage) -> f64) -> f64 {
    least(&recorded.usage, figure) / least(&program.bare, figure)
}

fn first_over(program: &Measured) -> f64 {
    wall(&program.first) / least(&program.bare, wall)
}

fn share(count: u64, of: u64) -> String {
    match of {
        0 => "-".into(),
        of => format!("{:.2}", 100.0 * count as f64 / of as f64),
    }
}

fn dropped(stacks: &Stacks) -> String {
    let one = |(reason, count): &(String, u64)| format!("{} {reason}", share(*count, stacks.taken));
    let parts: Vec<String> = stacks.dropped.iter().map(one).collect();
    if parts.is_empty() { "0".into() } else { parts.join(", ") }
}

fn over_kernel(stacks: &Stacks) -> String {
    stacks.cpu_over_kernel.map_or_else(|| "-".into(), |ratio| format!("{ratio:.3}"))
}

fn micros(ns: u64) -> String {
    match ns {
        0 => "-".into(),
        ns => format!("{:.0}", ns as f64 / 1e3),
    }
}

/// The bound in nanoseconds that 99 of 100 handlers stay below, of a histogram
/// whose entry i counts those below 2^(i+1) ns.
fn ninety_nine(histogram: &[u64]) -> Option<u64> {
    let all: u64 = histogram.iter().sum();
    let mut below = 0;
    histogram.iter().enumerate().find_map(|(entry, count)| {
        below += count;
        (all > 0 && 100 * below >= 99 * all).then(|| 2u64 << entry)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ninety_nine_of_a_hundred() {
        assert_eq!(ninety_nine(&[]), None);
        assert_eq!(ninety_nine(&[0, 0]), None);
        assert_eq!(ninety_nine(&[0, 99, 0, 1]), Some(4));
        assert_eq!(ninety_nine(&[0, 98, 0, 2]), Some(16));
    }

    fn stacks() -> Stacks {
        Stacks { taken: 1000, whole: 1000, cpu_over_kernel: Some(1.0), handlers: vec![1000], ..Stacks::default() }
    }

    #[test]
    fn what_reaches_the_aims_is_not_named() {
        assert_eq!(short_stacks(&stacks()), Vec::<String>::new());
    }

    #[test]
    fn each_figure_that_is_short_is_named() {
        let stacks = Stacks {
            whole: 900,
            partial: 80,
            dropped: vec![("throttled".into(), 20), ("late".into(), 1)],
            cpu_over_kernel: Some(0.88),
            report_seconds: 85.0,
            longest_handler_ns: 24_000_000,
            handlers: [vec![0; 21], vec![1000]].concat(),
            ..stacks()
        };
        assert_eq!(
            short_stacks(&stacks),
            [
                "90.00% whole",
                "2.00% dropped: throttled",
                "CPU 0.880 of the kernel's",
                "cold report 85.0 s",
                "longest handler 24.0 ms",
                "handlers: 99% below 4.2 ms only"
            ]
        );
        assert_eq!(short_stacks(&Stacks::default()), ["no samples"]);
    }
}

//! Below the paths of a program as text: what samples say of them, on how few of them a procedure's cost is, and tables of what is hot.

use std::io::{self, Write};

use callpath_db::exact::{
    ExactClass, ExactCost, ExactGroup, ExactProcedure, ExactRanking, ExactSampling, ExactSummary,
};

use super::exact::ExactText;
use super::paint::Ink;
use super::printable::{cut_end, printable};
use super::quantity::{count, percent, ratio, thousands, value};

/// Of this share of what a procedure's paths cost, the fewest paths are told.
const MOST_OF_COST: f64 = 0.8;
/// Of so many procedures.
const FEW_PATHS_OF: usize = 10;
/// Columns of what was sampled in tables.
const SAMPLED_COLUMNS: usize = 12;

/// What was sampled, where it is, and that what paths have of it is an estimate.
pub(super) fn sampled(text: ExactText<'_>, sampling: &ExactSampling, out: &mut dyn Write) -> io::Result<()> {
    let amount = |sampled: u64| value(sampled, &sampling.metric.unit);
    let mut said = format!(
        "{}: {} in all, {} of it on paths, from {}. A sample tells the block, not the path: what a block costs is divided among the paths \
         through it by their executions, as if it were equally dear on each.",
        sampling.metric.name,
        amount(sampling.total),
        amount(text.counts.cost().sampled),
        count(sampling.samples, "sample", "samples"),
    );
    if let undivided @ 1.. = undivided(text) {
        said += &format!(" {} in these procedures is on no path that ended.", amount(undivided));
    }
    writeln!(out)?;
    text.wrapped(&printable(&said), 0, out)
}

/// What was sampled in procedures that were counted, and is on none of their paths.
fn undivided(text: ExactText<'_>) -> u64 {
    text.counts.procedures.iter().map(ExactProcedure::sampled_undivided).fold(0, u64::saturating_add)
}

/// On how few of its paths most of a procedure's cost is: of hot procedures with several paths, the costliest first.
pub(super) fn few_paths(text: ExactText<'_>, sampling: &ExactSampling, out: &mut dyn Write) -> io::Result<()> {
    let least = text.hot_share * sampling.total as f64;
    let is_told = |procedure: &&ExactProcedure| procedure.paths.len() > 1 && procedure.sampled() as f64 >= least;
    let mut told: Vec<&ExactProcedure> = text.shown().filter(is_told).collect();
    told.sort_by_key(|procedure| std::cmp::Reverse(procedure.sampled()));
    let lines = told.iter().filter_map(|procedure| Some((*procedure, procedure.few_paths(MOST_OF_COST)?)));
    for (number, (procedure, few)) in lines.take(FEW_PATHS_OF).enumerate() {
        if number == 0 {
            writeln!(out)?;
        }
        let whole = procedure.sampled();
        let what = if sampling.metric.unit == "ns" { String::new() } else { format!(" {}", sampling.metric.name) };
        let words = format!(
            "{}: {} of the {}{what} here is on {} of {} ({} executed)",
            procedure.name,
            percent(few.sampled, whole),
            value(whole, &sampling.metric.unit),
            thousands(few.paths),
            count(procedure.possible, "path", "paths"),
            if procedure.paths.len() as u64 == procedure.possible {
                "all".to_owned()
            } else {
                thousands(procedure.paths.len() as u64)
            }
        );
        text.wrapped(&printable(&words), 0, out)?;
    }
    Ok(())
}

/// Tables 4 and 5 of Ammons, Ball and Larus 1997.
pub(super) fn summary(text: ExactText<'_>, out: &mut dyn Write) -> io::Result<()> {
    let summary = ExactSummary::new(text.counts, text.ranking, text.hot_share);
    let hot = format!("{}%", (summary.hot_share * 1e6).round() / 1e4);
    let said = match (summary.ranking, text.sampling()) {
        (ExactRanking::Sampled, Some(sampling)) => format!(
            "Hot: {hot} of all {} or more. Dense: at least {} {} for each instruction, as much as all paths together; sparse: hot because of \
             many instructions",
            sampling.metric.name,
            ratio(summary.average()),
            if sampling.metric.unit == "ns" { "ns" } else { &sampling.metric.name },
        ),
        (ExactRanking::Timed(number), _) => {
            let timing = text.counts.timings.get(number);
            let name = timing.map_or("", |timing| &timing.name);
            let unit = timing.filter(|timing| timing.unit == "ns").map_or(name, |timing| &timing.unit);
            format!(
                "Hot: {hot} of all {name} or more. Dense: at least {} {unit} for each instruction, as much as all paths together; sparse: hot \
                 because of many instructions",
                ratio(summary.average()),
            )
        }
        _ => format!(
            "Hot: {hot} of all instructions or more. Dense: at least {:.1} instructions each time, as many as the average path; sparse: \
             hot because executed often",
            summary.average()
        ),
    };
    writeln!(out)?;
    text.wrapped(&printable(&said), 0, out)?;
    let table = Table { text, total: summary.total };
    let elsewhere = ("elsewhere", text.counts.sampled_elsewhere());
    let on_no_path = ("on no path", undivided(text));
    table.write("paths", (&summary.paths, &[on_no_path, elsewhere]), out)?;
    table.write("procedures", (&summary.procedures, &[elsewhere]), out)?;
    if let Some(through) = summary.paths_through_hot_block {
        writeln!(out, "\nA block on a hot path is on {through:.1} executed paths on average.")?;
    }
    Ok(())
}

/// Dense, sparse and cold ones; and by name what was sampled besides.
type Groups<'g> = (&'g [ExactGroup; 3], &'g [(&'g str, u64)]);

/// A table of what is hot.
#[derive(Clone, Copy)]
struct Table<'a> {
    text: ExactText<'a>,
    total: ExactCost,
}

impl Table<'_> {
    /// A row for each group, and one for each that was sampled and belongs to none of them.
    fn write(self, of: &str, (groups, besides): Groups<'_>, out: &mut dyn Write) -> io::Result<()> {
        let is_of_procedures = of == "procedures";
        let extra = if is_of_procedures { "  paths each" } else { "" };
        let name = self.text.sampling().map(|sampling| sampling.metric.name.as_str());
        let sampled = self.sampled(name.map(|name| cut_end(&printable(name), SAMPLED_COLUMNS)));
        let timed = self.timed(|number| self.text.counts.timings[number].name.clone());
        let line = format!("{:<12}{of:>12}{extra}{timed}{sampled}  {:>12}  {:>10}", "", "instructions", "executions");
        writeln!(out, "\n{}", self.text.ink(Ink::Bold, &line))?;
        for (class, group) in [ExactClass::Dense, ExactClass::Sparse, ExactClass::Cold].into_iter().zip(groups) {
            let label = match class {
                ExactClass::Cold => class.word().to_owned(),
                _ => format!("hot, {}", class.word()),
            };
            let each = match group.members {
                _ if !is_of_procedures => String::new(),
                0 => format!("  {:>10}", "-"),
                members => format!("  {:>10.1}", group.paths as f64 / members as f64),
            };
            writeln!(
                out,
                "{label:<12}{:>12}{each}{}{}  {:>12}  {:>10}",
                thousands(group.members),
                self.timed(|number| percent(group.cost.timed[number], self.total.timed[number])),
                self.share(group.cost.sampled),
                percent(group.cost.instructions, self.total.instructions),
                percent(group.cost.executions, self.total.executions)
            )?;
        }
        for (label, sampled) in besides.iter().filter(|(_, sampled)| *sampled > 0 && name.is_some()) {
            let each = if is_of_procedures { " ".repeat(extra.len()) } else { String::new() };
            writeln!(out, "{label:<12}{:>12}{each}{}{}", "", self.timed(|_| String::new()), self.share(*sampled))?;
        }
        Ok(())
    }

    /// A cell for each metric that was measured, by its number.
    fn timed(self, cell: impl Fn(usize) -> String) -> String {
        let cell = |number| format!("  {:>SAMPLED_COLUMNS$}", cut_end(&cell(number), SAMPLED_COLUMNS));
        (0..self.text.timings().len()).map(cell).collect()
    }

    fn share(self, sampled: u64) -> String {
        self.sampled(self.text.sampling().map(|sampling| percent(sampled, sampling.total)))
    }

    /// A cell of what was sampled, if anything was.
    fn sampled(self, cell: Option<String>) -> String {
        cell.map_or(String::new(), |cell| format!("  {cell:>SAMPLED_COLUMNS$}"))
    }
}

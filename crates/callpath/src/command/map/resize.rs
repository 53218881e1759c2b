//! `callpath map resize`: which frames to make larger, so that more call paths have an identifier of their own.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::anyhow;
use callpath_analyze::infer::MapCalls;
use callpath_infer::{Budget, Cloning, Degrees, Paddings, PathMap, PlannedPadding, Precision};
use callpath_view::text::shell_word;

use super::show::called;
use crate::command::path_map;
use crate::command::profile::analysis_options;
use crate::outcome::Outcome;
use crate::{output, surroundings};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The map
    #[arg(value_name = "MAP", value_hint = clap::ValueHint::FilePath)]
    map: PathBuf,
    /// The plan to write, for `record --unwind=infer --plan PLAN`; one that is there is replaced
    #[arg(short, long, value_name = "PLAN", value_hint = clap::ValueHint::FilePath)]
    output: PathBuf,
    /// How long to search, seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    budget: u64,
    /// By how much the highest stack that the map knows may grow, percent [default: 10; 40 where more than 10% of the call paths
    /// cannot be told apart with that]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    growth: Option<u32>,
    /// How many clones of procedures there may be: further copies, to which only some calls lead
    #[arg(
        long,
        value_name = "N",
        default_value_t = 2000,
        default_value_if("every", clap::builder::ArgPredicate::IsPresent, "0")
    )]
    clones: u16,
    /// Make every frame that can be larger by so many bytes, a multiple of 16, instead of searching: to test how a program takes it
    #[arg(long, value_name = "BYTES", value_parser = every, conflicts_with_all = ["budget", "growth"])]
    every: Option<u32>,
    /// Say only what went wrong
    #[arg(short, long)]
    quiet: bool,
}

fn every(typed: &str) -> Result<u32, String> {
    let bytes = typed
        .parse()
        .ok()
        .filter(|bytes| *bytes > 0 && bytes % Paddings::UNIT_BYTES == 0 && *bytes <= PlannedPadding::MOST_BYTES);
    bytes.ok_or_else(|| "must be a multiple of 16, up to 4096".to_owned())
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let map = path_map::read(&arguments.map)?;
    let mut budget = Budget { time: Duration::from_secs(arguments.budget), ..Budget::default() };
    if let Some(percent) = arguments.growth {
        budget.growth = 1.0 + f64::from(percent) / 100.0;
        budget.most_growth = budget.growth;
    }
    // What could not run as a copy to be counted cannot with a larger frame.
    let may_pad = |procedure: u32| map.uncounted().binary_search(&procedure).is_err();
    let resize = |cloning: Option<Cloning<'_>>| match arguments.every {
        None => map.resize(may_pad, budget, cloning),
        Some(bytes) => map.pad_all(may_pad, bytes, cloning),
    };
    let (resized, notes) = match arguments.clones {
        0 => (resize(None), Vec::new()),
        most => {
            let (calls, notes) = MapCalls::of(&map, &analysis_options());
            let cloning = Cloning {
                leads: &|caller, callee| calls.leads(caller, callee),
                is_sure: &|caller, callee| calls.is_sure(caller, callee),
                may_differ: &|procedure| may_pad(procedure) && calls.may_differ(procedure),
                most,
            };
            (resize(Some(cloning)), notes)
        }
    };
    let plan = map.plan(&resized.paddings);
    plan.write(&arguments.output).map_err(|error| anyhow!("failed to {error}"))?;
    if !arguments.quiet {
        let file = shell_word(&arguments.output.to_string_lossy());
        let (before, after) = (precise(&map), precise(&map.resized(&resized.paddings)));
        let (low, high) = resized.highest;
        output::say(format_args!(
            "wrote {file}: {} frames larger, {} clones; call paths with an identifier of their own {before} -> {after}; the highest stack \
             grows from {low} to {high} bytes",
            plan.paddings.len(),
            plan.clones.len()
        ));
        if arguments.every.is_none()
            && let Some(most) = most(&map, budget)
        {
            output::say(format_args!(
                "with stacks that grow by at most {:.0}%, larger frames alone can give at most {most} of the call paths one (--growth)",
                100.0 * (budget.growth - 1.0)
            ));
        }
        if !resized.of_recursive.is_empty() {
            const NAMED: usize = 5;
            let named = resized.of_recursive.iter().take(NAMED);
            let named: Vec<String> =
                named.map(|(procedure, bytes)| format!("{} {bytes}", called(&map, *procedure))).collect();
            let more = resized.of_recursive.len() - named.len();
            let more = if more == 0 { String::new() } else { format!(" and {more} more") };
            output::say(format_args!(
                "recursive procedures take their padding again at each level; recursion deeper than the map's takes more \
                 stack than that; additional bytes for each further level: {}{more}",
                named.join(", ")
            ));
        }
        if resized.is_cut {
            output::say(format_args!(
                "the search was cut short after {} s; a longer one may tell more paths apart (--budget)",
                arguments.budget
            ));
        }
        notes.iter().for_each(|note| output::say(format_args!("{note}")));
        let typed = surroundings::typed_command();
        output::say(format_args!("use it with: {typed} record --unwind=infer --plan {file} -- PROGRAM"));
    }
    Ok(0)
}

/// The share of paths that could have an identifier of their own at most, if that is not all.
fn most(map: &PathMap, budget: Budget) -> Option<String> {
    let (most, all) = (map.most_precise(budget), map.precision().paths.values().sum::<u64>());
    (most < all).then(|| format!("{:.1}%", 100.0 * most as f64 / all as f64))
}

/// The share of paths, and of what was seen of them.
fn precise(map: &PathMap) -> String {
    let precision = map.precision();
    let share = |degrees: &Degrees| Precision::share(degrees).map(|share| format!("{:.1}%", 100.0 * share));
    let seen = share(&precision.calls).map(|calls| (calls, "calls"));
    let seen = seen.or_else(|| share(&precision.samples).map(|samples| (samples, "samples")));
    let seen = seen.map_or(String::new(), |(share, of)| format!(" ({share} of {of})"));
    format!("{}{seen}", share(&precision.paths).unwrap_or_else(|| "none".to_owned()))
}

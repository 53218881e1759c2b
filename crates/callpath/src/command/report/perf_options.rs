//! Options of `perf report` and `perf script` that people type from habit.

use crate::command::perf_options::Answer::{self, Instead, NotNeeded};
use crate::command::perf_options::Takes::{MaybeValue, Nothing, Value};
use crate::command::perf_options::{LikePerf, Row};

/// `callpath report`.
#[derive(Debug)]
pub(super) struct Report;

impl LikePerf for Report {
    const ROWS: &'static [Row] = ROWS;
}

const TEXT: Answer = NotNeeded("a report is text, or JSON with --json");
const TOTALS: Answer = NotNeeded("costs with and without callees are always shown, as total and self");
const INPUT: Answer = Instead("name the measurement alone: callpath report DIRECTORY");
const ORDER: Answer = Instead(
    "choose a view: --view context (by call path), --view callers (who calls it), --view flat (by code); \
     to order rows by another metric: --order-by METRIC",
);
const COLUMNS: Answer = Instead("to choose metrics: --columns METRIC,...");
const SYMBOLS: Answer = Instead("to see one procedure: --procedure NAME; paths through it: --focus NAME");

const ROWS: &[Row] = &[
    ("--stdio", Nothing, TEXT),
    ("--stdio2", Nothing, TEXT),
    ("--tui", Nothing, TEXT),
    ("--gtk", Nothing, TEXT),
    ("-f, --force", Nothing, NotNeeded("a measurement may be anybody's")),
    ("-n, --show-nr-samples", Nothing, NotNeeded("processes and threads are listed with their samples")),
    ("--children", Nothing, TOTALS),
    ("--no-children", Nothing, TOTALS),
    ("-g, --call-graph", MaybeValue, NotNeeded("call paths are always shown")),
    ("-G, --inverted", Nothing, Instead("to see who calls a procedure: --view callers")),
    ("-i, --input", Value, INPUT),
    ("-s, --sort", Value, ORDER),
    ("-F, --fields", Value, COLUMNS),
    ("-S, --symbols", Value, SYMBOLS),
    ("-p, --parent", Value, SYMBOLS),
    ("-d, --dsos", Value, Instead("to see what each module costs: --view flat")),
    ("-c, --comms", Value, Instead("to see one process or thread: --process NAME, --thread NAME")),
    ("--percent-limit", Value, Instead("to hide what costs less than a share: --threshold PERCENT")),
    ("--max-stack", Value, Instead("to show fewer levels: --depth LEVELS")),
];

#[cfg(test)]
mod tests {
    use clap::{Args, FromArgMatches};

    use super::*;
    use crate::command::perf_options::PerfOptions;

    #[test]
    fn perf_s_words_are_answered() {
        let command = || PerfOptions::<Report>::augment_args(clap::Command::new("report"));
        command().debug_assert();
        let parsed = |words: &[&str]| {
            let matches = command().try_get_matches_from([&["report"], words].concat()).expect("options");
            PerfOptions::<Report>::from_arg_matches(&matches).expect("options")
        };
        let PerfOptions { words, refusal, .. } = parsed(&["--stdio", "-n", "--no-children", "-g"]);
        assert_eq!((words.len(), refusal), (4, None));
        let refused = parsed(&["-i", "perf.data", "--stdio"]).refusal.expect("a refusal");
        assert!(refused.starts_with("-i, --input: ") && refused.contains("callpath report DIRECTORY"), "{refused}");
    }
}

//! Options of `perf record` and `perf stat` that people type from habit.

use crate::command::perf_options::Answer::{self, Instead, NotNeeded};
use crate::command::perf_options::Takes::{MaybeValue, Nothing, Value};
use crate::command::perf_options::{LikePerf, Row};

/// `callpath record`.
#[derive(Debug)]
pub(super) struct Record;

impl LikePerf for Record {
    const ROWS: &'static [Row] = ROWS;
}

const WHOLE: Answer = NotNeeded("call paths are always recorded, and whole");
const MODULES: Answer = NotNeeded("modules are always identified");
const BUFFERS: Answer = NotNeeded("there are no buffers or trace files to tune");
const THREADS: Answer = NotNeeded("threads are always kept apart; `callpath report --per-thread` shows each");
const PERIODS: Answer = NotNeeded("the weight of each sample is always known");
const CLOCK: Answer = NotNeeded("samples are attributed, also in generated code, without a clock of yours");
const WAITS: Answer = Instead("to see where threads wait: -e off-cpu");
const ONE_PROGRAM: Answer = Instead("callpath records one program and its children; write: callpath record PROGRAM");
const MODES: Answer = Instead("choose the mode with the event: -e page-faults:u (user), -e page-faults:k (kernel)");
const ADDRESSES: Answer = Instead("a sample keeps its call path, no addresses of data and no registers");
const TIMES: Answer = Instead("samples of one call path are added up, so they have no time stamps");
const BRANCHES: Answer = Instead("branch records are not read; call paths are whole without them");
const ONE_PIECE: Answer =
    Instead("a measurement is one directory; it grows with the number of call paths, not with time");

const ROWS: &[Row] = &[
    ("-g", Nothing, WHOLE),
    ("--call-graph", Value, WHOLE),
    ("--user-callchains", Nothing, WHOLE),
    ("-B, --no-buildid", Nothing, MODULES),
    ("-N, --no-buildid-cache", Nothing, MODULES),
    ("--buildid-all", Nothing, MODULES),
    ("--buildid-mmap", Nothing, MODULES),
    ("--mmap-pages", Value, BUFFERS),
    ("--mmap-flush", Value, BUFFERS),
    ("--no-buffering", Nothing, BUFFERS),
    ("--aio", MaybeValue, BUFFERS),
    ("--affinity", Value, BUFFERS),
    ("--threads", MaybeValue, BUFFERS),
    ("-z, --compression-level", MaybeValue, BUFFERS),
    ("-s, --stat", Nothing, THREADS),
    ("--per-thread", Nothing, THREADS),
    ("-P, --period", Nothing, PERIODS),
    ("-k, --clockid", Value, CLOCK),
    ("-v, --verbose", Nothing, NotNeeded("`callpath report --quality` shows the details of a recording")),
    ("-u, --uid", Value, ONE_PROGRAM),
    (
        "-C, --cpu",
        Value,
        Instead("threads are recorded on every processor; to choose some: callpath record -- taskset -c CPUS PROGRAM"),
    ),
    (
        "-t, --tid",
        Value,
        Instead("all threads of a process are recorded: -p PID; to see one: callpath report --thread NAME"),
    ),
    ("-D, --delay", Value, Instead("recording begins with the program")),
    (
        "-i, --no-inherit",
        Nothing,
        Instead(
            "children are recorded, but with -p PID --no-children; to see one process: callpath report --process NAME",
        ),
    ),
    ("--all-user", Nothing, MODES),
    ("--all-kernel", Nothing, MODES),
    ("--kernel-callchains", Nothing, Instead("the kernel's call paths are there with: callpath record --kernel")),
    ("-d, --data", Nothing, ADDRESSES),
    ("--phys-data", Nothing, ADDRESSES),
    ("-W, --weight", Nothing, ADDRESSES),
    ("-I, --intr-regs", MaybeValue, ADDRESSES),
    ("--user-regs", MaybeValue, ADDRESSES),
    ("-R, --raw-samples", Nothing, ADDRESSES),
    ("-T, --timestamp", Nothing, TIMES),
    ("-b, --branch-any", Nothing, BRANCHES),
    ("-j, --branch-filter", Value, BRANCHES),
    ("-S, --snapshot", MaybeValue, ONE_PIECE),
    ("--switch-output", MaybeValue, ONE_PIECE),
    ("--overwrite", Nothing, ONE_PIECE),
    ("--max-size", Value, ONE_PIECE),
    ("--off-cpu", Nothing, WAITS),
    ("--switch-events", Nothing, WAITS),
    (
        "--filter",
        Value,
        Instead("events are not filtered; to see a part: callpath report --process NAME or --thread NAME"),
    ),
    (
        "-r, --repeat",
        Value,
        Instead("one run is recorded, with the priority that it has; for several, call callpath record in a loop"),
    ),
];

#[cfg(test)]
mod tests {
    use clap::{Args, FromArgMatches};

    use super::*;
    use crate::command::perf_options::PerfOptions;

    fn parsed(words: &[&str]) -> PerfOptions<Record> {
        let command = PerfOptions::<Record>::augment_args(clap::Command::new("record"));
        let matches = command.try_get_matches_from([&["record"], words].concat()).unwrap();
        PerfOptions::from_arg_matches(&matches).unwrap()
    }

    #[test]
    fn names_are_unique() {
        PerfOptions::<Record>::augment_args(clap::Command::new("record")).debug_assert();
    }

    #[test]
    fn what_changes_nothing_is_accepted_with_a_word() {
        for (words, spelled) in [
            (&["-g"][..], "-g"),
            (&["--call-graph", "dwarf,16384"], "--call-graph"),
            (&["--call-graph=fp"], "--call-graph"),
            (&["-s"], "-s, --stat"),
            (&["-vv"], "-v, --verbose"),
            (&["-N"], "-N, --no-buildid-cache"),
            (&["-B"], "-B, --no-buildid"),
            (&["--no-buildid"], "-B, --no-buildid"),
            (&["--mmap-pages", "512"], "--mmap-pages"),
            (&["-z"], "-z, --compression-level"),
            (&["--compression-level=3"], "-z, --compression-level"),
            (&["-k", "mono"], "-k, --clockid"),
            (&["--per-thread"], "--per-thread"),
            (&["--user-callchains"], "--user-callchains"),
        ] {
            let PerfOptions { words: said, refusal, .. } = parsed(words);
            assert_eq!((said.len(), &refusal), (1, &None), "{words:?}");
            assert!(said[0].starts_with(&format!("{spelled} is not needed: ")), "{words:?}: {said:?}");
        }
        assert_eq!(parsed(&["-gsv"]).words.len(), 3);
    }

    #[test]
    fn what_would_give_another_recording_is_refused() {
        for (words, start, remedy) in [
            (&["-t17"][..], "-t, --tid: ", "-p PID"),
            (&["-C", "0-3"], "-C, --cpu: ", "taskset"),
            (&["-D", "-1"], "-D, --delay: ", "begins with the program"),
            (&["--all-user"], "--all-user: ", ":u"),
            (&["-gu", "me"], "-u, --uid: ", "callpath record PROGRAM"),
        ] {
            let refusal = parsed(words).refusal.expect("a refusal");
            assert!(refusal.starts_with(start) && refusal.contains(remedy), "{words:?}: {refusal}");
        }
    }

    #[test]
    fn nothing_typed_is_nothing_said() {
        let PerfOptions { words, refusal, .. } = parsed(&[]);
        assert_eq!((words.len(), refusal), (0, None));
    }
}

//! The project's chores: `cargo xtask CMD`.
//! It builds, runs and measures callpath as any user could.

#![allow(unreachable_pub, reason = "in a binary, `pub` says: for other modules")]

mod archive;
mod arguments;
mod audit;
mod bench;
mod build;
mod circles;
mod company;
mod descendants;
mod engines;
mod exam;
mod exports;
mod field;
mod fuzz_targets;
mod install;
mod layers;
mod licences;
mod lint;
mod measure;
mod oracle;
mod oracle_counts;
mod paths;
mod relocate;
mod report;
mod rooms;
mod soak;
mod statistics;
mod suite;
mod test;

use std::process::ExitCode;

use arguments::Arguments;

const USAGE: &str = "\
cargo xtask CMD

  test            install what the tests use, then check and test everything
                    [--quick] install nothing: lints, the tests of the crates and some end-to-end tests, for the daily round
                    [--long] the tests that take minutes each, which are left out otherwise
  company         the tests with Java, Node and Go, which it installs
  lint            formatting, clippy, dependency directions, licences, source files, paths in the documents
  oracle          the walk against the true path at every instruction of a program; --help says more
  oracle-counts   exact counts against what a program executes, one instruction at a time; --help says more
  exam            the same over many programs, compilers and levels, with call frame information and without; --help
  relocate        a program whose procedures all run as copies, while the code they came from traps; --help
  audit-collect   what the preloaded object needs and offers [--object FILE]
  glibc           a recording with other releases of glibc, from Debian's archive [--suites bullseye,trixie] [--callpath FILE]
  suite           real programs bare and under callpath, in turn
                    [--programs a,b] [--against perf|outside|samply|sentinel] [--runs N] [--rate HZ] [--quick] [--markdown FILE] [--list]
  field           some sixty programs and runtimes that the suite does not hold, installed, bare and under callpath
                    [--programs a,b] [--against perf] [--runs N] [--rate HZ] [--markdown FILE] [--list]
  soak            programs drawn at random, bare and recorded at 10 kHz: the same comes out, every sample is accounted for
                    [--minutes N] [--seed N] [--rate HZ] [--programs a,b]
  exports         what `callpath export` writes, read back by the tools whose formats they are, which it installs
                    [--measurement DIR]
  engines         the SQL that callpath ships, over exported tables, on DuckDB and on Spark with two workers, which it installs: the
                    numbers of `callpath merge`; then what docs/engines.md shows [--engines duckdb,spark,docs]
  bench-sample    CPU per sample over that of a recorder of pc and sp alone [--runs N] [--rate HZ]
  bench-depth     CPU per sample at stack depths of 10 to 100,000, two threads 1,500 deep over 15 [--runs N] [--svg FILE]
  bench-attach    how soon `record -p` samples a process of 200 libraries and 500 threads [--runs N]
  bench-start     `record true` over `true`, tables cached and not [--runs N]
  bench-time      cpu-time over the kernel's account of dd, xz and a read loop, as root and as nobody [--runs N]
  bench-make      `make -j2` of a project from Debian's archive, recorded over bare, and the count of processes [--runs N]
  bench-gprof     Debian's sources built with gprof's instrumentation and without, the latter under callpath: CPU over bare,
                    and how far the procedures' shares are from perf's [--runs N] [--programs a,b] [--list]
  bench-exact     what it costs real programs to be counted exactly [--kinds KIND,...] [--programs NAME,...] [--runs N]
  bench-infer     what samples without a walk cost, and how often maps tell their call paths [--programs NAME,...] [--runs N];
                    of five pairs of inputs for training and test, with ambiguity curves [--five-pairs]
  bench-infer-code  how far maps of code alone tell call paths, and what they add to training [--programs NAME,...]
  bench-infer-cost  the same over a recorder that keeps the pc alone, with bounds and a t test [--programs NAME,...]
                    [--pairs N | --setups N: random environments and stack offsets]
  bench-intervals how often the intervals of measured times of paths hold what was so [--runs N]
  bench-probe     what a hit of a probe costs, and how long a program stands still for one [--runs N] [--attaches N]
  bench-ranks     1,000 ranks, short processes with a launcher's variables, in one measurement: time, bytes, report [--ranks N]
  bench-report    `report` of the C++ compiler, our cache empty and filled [--runs N]
  bench-runtimes  whole call paths of Java, Node, .NET, numba, LuaJIT and PHP's JIT: callpath, perf, samply (which it installs), as far as
                    they are there [--programs a,b] [--milliseconds N] [--python FILE] [--dotnet FILE] [--no-install]
  bench-views     a database of 10 million contexts: length, and time to open it and print the top of each view [--contexts N] [--runs N]
  bench-size      a measurement's length against the time that it took [--outside]
  bench-growth    the recorder's CPU beside a million contexts that grow by a hundred a second [--runs N] [--seconds N]
  diff-trust      false alarms of `callpath compare` on equal runs, and whether it finds a procedure that is 5% or 20% slower
                    [--pairs N] [--runs N] [--amount N]

suite, field, soak, exports, engines, diff-trust and bench-* measure a release build, or another one: [--callpath FILE]
";

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let command = words.next().unwrap_or_default();
    if command == "oracle" {
        return oracle::run(std::env::args_os().skip(2)).unwrap_or_else(failure);
    }
    if command == "oracle-counts" {
        return oracle_counts::run(words).unwrap_or_else(failure);
    }
    if command == "relocate" {
        return relocate::run(std::env::args_os().skip(2)).unwrap_or_else(failure);
    }
    if command == "exam" {
        return exam::run(std::env::args_os().skip(2)).unwrap_or_else(failure);
    }
    match Arguments::parse(words).and_then(|arguments| run(&command, arguments)) {
        Ok(code) => code,
        Err(error) => failure(error),
    }
}

#[allow(clippy::needless_pass_by_value, reason = "it ends the program")]
fn failure(error: anyhow::Error) -> ExitCode {
    eprintln!("xtask: {error:#}");
    ExitCode::FAILURE
}

fn run(command: &str, arguments: Arguments) -> anyhow::Result<ExitCode> {
    match command {
        "test" => test::run(&arguments),
        "company" => company::run(&arguments),
        "lint" => lint::run(&arguments),
        "audit-collect" => audit::run(&arguments),
        "glibc" => audit::glibc::run(&arguments),
        "suite" => suite::run(&arguments),
        "field" => field::run(&arguments),
        "soak" => soak::run(&arguments),
        "exports" => exports::run(&arguments),
        "engines" => engines::run(&arguments),
        "bench-sample" => bench::sample::run(&arguments),
        "bench-depth" => bench::depth::run(&arguments),
        "bench-attach" => bench::attach::run(&arguments),
        "bench-start" => bench::start::run(&arguments),
        "bench-time" => bench::time::run(&arguments),
        "bench-make" => bench::make::run(&arguments),
        "bench-gprof" => bench::gprof::run(&arguments),
        "bench-probe" => bench::probe::run(&arguments),
        "bench-exact" => bench::exact::run(&arguments),
        "bench-infer" => bench::infer::run(&arguments),
        "bench-infer-code" => bench::infer_code::run(&arguments),
        "bench-infer-cost" => bench::infer_cost::run(&arguments),
        "bench-intervals" => bench::intervals::run(&arguments),
        "bench-ranks" => bench::ranks::run(&arguments),
        "bench-report" => bench::report::run(&arguments),
        "bench-runtimes" => bench::runtimes::run(&arguments),
        "bench-views" => bench::views::run(&arguments),
        "bench-size" => bench::size::run(&arguments),
        "diff-trust" => bench::diff::run(&arguments),
        "bench-growth" => bench::growth::run(&arguments),
        "" | "help" | "--help" | "-h" => {
            print!("{USAGE}");
            Ok(ExitCode::SUCCESS)
        }
        other => anyhow::bail!("unknown command `{other}`\n\n{USAGE}"),
    }
}

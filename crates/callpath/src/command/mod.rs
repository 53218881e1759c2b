//! The subcommands.

mod annotate;
mod code;
mod compare;
mod completions;
mod ctl;
mod debug;
mod demo;
mod diff;
mod doctor;
mod export;
mod install;
mod list;
mod map;
mod merge;
mod number;
mod path_map;
mod perf_options;
mod probe;
mod procedure_name;
mod profile;
mod program_files;
mod query;
mod record;
mod recursion;
mod report;
mod selection;
mod structure;
mod work;

use clap::Subcommand;
pub(crate) use diff::FAILED as DIFF_FAILED;
pub(crate) use record::FAILED as RECORD_FAILED;

use crate::outcome::Outcome;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Run a program and record its call paths
    Record(record::Arguments),
    /// Count the calls of chosen functions by call path, in a running process or a program that is started
    Probe(probe::Arguments),
    /// Change a probe that is under way: more functions, fewer, other metrics; or end it
    Ctl(ctl::Arguments),
    /// Learn, show and ask maps of call paths, for samples that walk no stack (record --unwind=infer)
    #[command(subcommand)]
    Map(map::Command),
    /// List the events that can be sampled
    List(list::Arguments),
    /// Show what a recording measured
    Report(Box<report::Arguments>),
    /// Show a procedure's source, by line with what each costs
    Annotate(annotate::Arguments),
    /// Add up measurements in one file, a database
    Merge(merge::Arguments),
    /// Show what changed between two sides of runs, and whether it is more than noise
    Diff(diff::Arguments),
    /// Record two commands in turn, several times, and show what changed
    Compare(compare::Arguments),
    /// Write a measurement in another tool's format: flame graph, pprof, Firefox Profiler, speedscope, callgrind, Parquet
    Export(export::Arguments),
    /// Ask measurements a question in SQL, with DuckDB
    Query(query::Arguments),
    /// Check what this machine allows and what a program needs
    Doctor(doctor::Arguments),
    /// Show the procedures, loops and inlined calls of a program or library
    Structure(structure::Arguments),
    /// Record callpath while it analyses the system's largest libraries, and show the report
    Demo(demo::Arguments),
    /// Install shell completions (bash, zsh, fish) and man pages
    Install(install::Arguments),
    /// Print the completions of a shell
    Completions(completions::Arguments),
    /// Look inside: recipes, unwinding, the preloaded object
    #[command(subcommand)]
    Debug(debug::Command),
}

impl Command {
    /// `whole`: gives the definition of the whole command line.
    pub(crate) fn run(self, whole: fn() -> clap::Command) -> Outcome {
        match self {
            Command::Record(arguments) => record::run(&arguments),
            Command::Probe(arguments) => probe::run(&arguments),
            Command::Ctl(arguments) => ctl::run(&arguments),
            Command::Map(command) => map::run(&command),
            Command::List(arguments) => list::run(&arguments),
            Command::Report(arguments) => report::run(&arguments),
            Command::Annotate(arguments) => annotate::run(&arguments),
            Command::Merge(arguments) => merge::run(&arguments),
            Command::Diff(arguments) => diff::run(&arguments),
            Command::Compare(arguments) => compare::run(&arguments),
            Command::Export(arguments) => export::run(&arguments),
            Command::Query(arguments) => query::run(&arguments),
            Command::Doctor(arguments) => doctor::run(&arguments),
            Command::Structure(arguments) => structure::run(&arguments),
            Command::Demo(arguments) => demo::run(&arguments),
            Command::Install(arguments) => install::run(&arguments, whole()),
            Command::Completions(arguments) => completions::run(&arguments, &whole()),
            Command::Debug(command) => debug::run(command),
        }
    }
}

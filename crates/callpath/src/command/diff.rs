//! `callpath diff`: two sides of measurements in, what changed out.

use std::io::Write;
use std::path::PathBuf;

use callpath_db::Profile;
use callpath_db::diff::{Diff, DiffOptions, Expectation};
use callpath_view::diff_json;
use callpath_view::export::write_diff;
use callpath_view::text::{DiffTextOptions, diff};

use super::export::NewFile;
use super::profile::load_sampled;
use super::report::ViewArgument;
use crate::outcome::{Failure, Outcome};
use crate::screen::ScreenOptions;
use crate::{output, surroundings};

/// Something is slower than allowed.
const SLOWER: u8 = 1;
/// No answer.
pub(crate) const FAILED: u8 = 2;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// A measurement or database; one that holds several runs counts as that many
    #[arg(value_name = "A", required_unless_present_all = ["several_a", "several_b"])]
    a: Option<PathBuf>,
    /// Another
    #[arg(value_name = "B", requires = "a", required_unless_present_all = ["several_a", "several_b"])]
    b: Option<PathBuf>,
    /// The runs of one side
    #[arg(id = "several_a", long = "a", value_name = "A", num_args = 1.., conflicts_with = "a", requires = "several_b")]
    several_a: Vec<PathBuf>,
    /// The runs of the other
    #[arg(id = "several_b", long = "b", value_name = "B", num_args = 1.., conflicts_with = "a", requires = "several_a")]
    several_b: Vec<PathBuf>,
    /// Run number i of A ran beside run number i of B: test the differences of these pairs
    #[arg(long)]
    paired: bool,
    #[command(flatten)]
    shown: Shown,
}

/// What is compared, and how it is shown.
#[derive(clap::Args)]
pub(super) struct Shown {
    /// What a procedure or module of A is called in B; may be repeated
    #[arg(long, value_name = "OLD=NEW", value_parser = rename)]
    rename: Vec<(String, String)>,
    /// Compare by this metric [default: the first]
    #[arg(long, value_name = "NAME")]
    metric: Option<String>,
    /// Exit with status 1 if the total or a procedure of 1% or more is slower by more than this, beyond noise
    #[arg(long, value_name = "PERCENT", value_parser = percentage)]
    fail_above: Option<f64>,
    /// Compare with what scaling should give, a process (or thread) on average: strong:N, if N times as many share A's work,
    /// or weak, if each has as much work as before
    #[arg(long, value_name = "strong:N|weak", value_parser = expectation)]
    expect: Option<Expectation>,
    /// Of what is reported, the share that may be false, on average
    #[arg(long, value_name = "PERCENT", value_parser = percentage, default_value = "1%")]
    false_discoveries: f64,
    /// One view in full, in place of procedures and call paths; with --json beside them
    #[arg(long, value_name = "VIEW")]
    view: Option<ViewArgument>,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
    /// Also write a differential flame graph, one SVG, to this new file
    #[arg(long, value_name = "FILE")]
    flamegraph: Option<PathBuf>,
    /// Procedures that are listed at most
    #[arg(long, value_name = "COUNT", default_value_t = 20)]
    top: usize,
    #[command(flatten)]
    screen: ScreenOptions,
}

fn rename(typed: &str) -> Result<(String, String), &'static str> {
    let names = typed.split_once('=').filter(|(old, new)| !old.is_empty() && !new.is_empty());
    names.map(|(old, new)| (old.to_owned(), new.to_owned())).ok_or("must be OLD=NEW")
}

/// As a share.
fn percentage(typed: &str) -> Result<f64, &'static str> {
    let number = typed.strip_suffix('%').unwrap_or(typed).parse::<f64>().ok();
    number
        .filter(|percent| (0.0..=1000.0).contains(percent))
        .map(|percent| percent / 100.0)
        .ok_or("must be a percentage, 0 or more")
}

fn expectation(typed: &str) -> Result<Expectation, &'static str> {
    if typed == "weak" {
        return Ok(Expectation::Weak);
    }
    let times = typed.strip_prefix("strong:").and_then(|times| times.parse::<f64>().ok());
    times.filter(|times| *times > 0.0 && times.is_finite()).map(Expectation::Strong).ok_or("must be strong:N or weak")
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let profiles = |one: &Option<PathBuf>, several: &[PathBuf]| -> anyhow::Result<Vec<Profile>> {
        one.iter().chain(several).map(|path| load_sampled(Some(path), "compared")).collect()
    };
    let answer = || {
        // Before measurements are read, which may take long.
        let picture = arguments.shown.new_picture()?;
        let a = profiles(&arguments.a, &arguments.several_a)?;
        let b = profiles(&arguments.b, &arguments.several_b)?;
        arguments.shown.show(&Sides { a, b, paired: arguments.paired }, picture)
    };
    answer().map_err(failed)
}

/// An error: status 1 says that something is slower.
pub(super) fn failed(error: anyhow::Error) -> Failure {
    Failure { error, status: FAILED }
}

/// What is compared.
pub(super) struct Sides {
    pub(super) a: Vec<Profile>,
    pub(super) b: Vec<Profile>,
    /// Run number i of A ran beside run number i of B.
    pub(super) paired: bool,
}

impl Shown {
    /// The file for a flame graph, if one is wanted.
    pub(super) fn new_picture(&self) -> anyhow::Result<Option<NewFile<'_>>> {
        self.flamegraph.as_deref().map(NewFile::create).transpose()
    }

    /// Compares, and prints the difference. Gives the exit status.
    pub(super) fn show(&self, sides: &Sides, picture: Option<NewFile<'_>>) -> anyhow::Result<u8> {
        let view = self.view.map(ViewArgument::kind);
        let options = DiffOptions {
            metric: self.metric.clone(),
            renames: self.rename.clone(),
            paired: sides.paired,
            false_discovery_rate: self.false_discoveries,
            expectation: self.expect.unwrap_or(Expectation::Same),
            fail_above: self.fail_above,
            view,
        };
        let found = Diff::of(&sides.a, &sides.b, &options)?;
        if let Some(file) = picture {
            file.fill(|out| Ok(write_diff(&found, out)?))?;
        }
        if self.json {
            let mut out = output::stdout();
            diff_json::write(&found, &mut out)?;
            out.flush()?;
        } else {
            let mut out = self.screen.open();
            let (width, color, top) = (surroundings::width(), self.screen.color(), self.top);
            let options = DiffTextOptions { width, color, top, view };
            diff(&found, options, &mut out)?;
            out.end()?;
        }
        let is_slower = found.total_is_regression || found.procedures.iter().any(|procedure| procedure.is_regression);
        Ok(if is_slower { SLOWER } else { 0 })
    }
}

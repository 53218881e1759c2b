//! `callpath export`: a measurement or a database in, a file for another tool out, or tables for an engine.

pub(super) mod tables;

use std::fs::{self, File};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

use callpath_view::export::{ExportOptions, Format, write};
use clap::ValueEnum;
use clap::builder::PossibleValue;

use super::profile::{load_sampled, shown};
use super::selection::Selection;
use crate::outcome::Outcome;
use crate::output;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Measurement directory or database [default: the newest *.callpath in the current directory]
    measurement: Option<PathBuf>,
    /// The format
    #[arg(long, value_name = "FORMAT")]
    format: FormatArgument,
    /// The file to write, a new one [default: standard output]; of parquet a new directory
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The metric to show [default: the first; pprof has all that add up]
    #[arg(long, value_name = "NAME")]
    metric: Option<String>,
    #[command(flatten)]
    selection: Selection,
}

#[derive(Clone, Copy)]
enum FormatArgument {
    /// A file for another tool.
    Of(Format),
    /// Tables for engines.
    Parquet,
}

impl ValueEnum for FormatArgument {
    fn value_variants<'a>() -> &'a [Self] {
        const ALL: [FormatArgument; Format::ALL.len() + 1] = {
            let mut all = [FormatArgument::Parquet; Format::ALL.len() + 1];
            let mut next = 0;
            while next < Format::ALL.len() {
                all[next] = FormatArgument::Of(Format::ALL[next]);
                next += 1;
            }
            all
        };
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let (word, help) = match self {
            FormatArgument::Of(format) => {
                let help = match format {
                    Format::Folded => "A line for each call path, for flamegraph.pl and its kin",
                    Format::Flamegraph => "A flame graph, one SVG to zoom and search in a browser",
                    Format::Pprof => "For pprof, gzipped",
                    Format::Firefox => "For profiler.firefox.com",
                    Format::Speedscope => "For speedscope.app",
                    Format::Callgrind => "For KCachegrind and callgrind_annotate",
                };
                (format.word(), help)
            }
            FormatArgument::Parquet => {
                ("parquet", "A directory of tables for DuckDB, Spark, pandas and polars (docs/engines.md)")
            }
        };
        Some(PossibleValue::new(word).help(help))
    }
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    match arguments.format {
        FormatArgument::Of(format) => write_file(arguments, format),
        FormatArgument::Parquet => tables::run(arguments),
    }
}

fn write_file(arguments: &Arguments, format: Format) -> Outcome {
    if format.is_binary() && arguments.output.is_none() && io::stdout().is_terminal() {
        let word = format.word();
        return Err(anyhow::anyhow!("{word} is not text: name a file with -o, or send standard output to one").into());
    }
    // Before a profile is read, which may take long.
    let file = arguments.output.as_deref().map(NewFile::create).transpose()?;
    let profile = load_sampled(arguments.measurement.as_deref(), "exported")?;
    let options = ExportOptions { query: arguments.selection.query(), metric: arguments.metric.clone() };
    match file {
        None => {
            let mut out = output::stdout();
            write(&profile, format, &options, &mut out).map_err(shown)?;
            out.flush()?;
        }
        Some(file) => file.fill(|out| write(&profile, format, &options, out).map_err(shown))?,
    }
    Ok(0)
}

/// A file that was not there before, and goes away if it is not written to its end.
pub(super) struct NewFile<'a> {
    path: &'a Path,
    file: Option<File>,
}

impl<'a> NewFile<'a> {
    pub(super) fn create(path: &'a Path) -> anyhow::Result<Self> {
        match File::create_new(path) {
            Ok(file) => Ok(NewFile { path, file: Some(file) }),
            Err(error) => Err(failed(path, &error)),
        }
    }

    pub(super) fn fill(mut self, write: impl FnOnce(&mut dyn Write) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let mut out = BufWriter::new(Named { file, path: self.path });
        write(&mut out)?;
        out.flush()?;
        drop(out);
        self.file = None;
        Ok(())
    }
}

impl Drop for NewFile<'_> {
    fn drop(&mut self) {
        if self.file.is_some()
            && let Err(error) = fs::remove_file(self.path)
        {
            output::say(failed(self.path, &error));
        }
    }
}

fn failed(path: &Path, error: &io::Error) -> anyhow::Error {
    anyhow::anyhow!("failed to write {}: {error}", path.display())
}

/// A file whose errors name it.
struct Named<'a> {
    file: &'a File,
    path: &'a Path,
}

impl Write for Named<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes).map_err(|error| io::Error::new(error.kind(), failed(self.path, &error).to_string()))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

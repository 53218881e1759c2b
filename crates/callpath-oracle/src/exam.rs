//! An exam: a program is run, or a pair of files is read, and the walk's answers are scored.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use callpath_tables::recipes::RecipeOptions;
use callpath_tables::snapshot;
use callpath_tables::table_cache::TableCache;

use crate::OracleError;
use crate::modules::{Images, VDSO};
use crate::report::Report;
use crate::run::{Options, Ran, Recorder, run};
use crate::score::{Asked, Scored, Tally};
use crate::truth::Paths;

/// The pair of files that an exam can be kept in.
#[derive(Clone, Debug)]
pub struct Files {
    /// The CPSNAP01 stream; with the ending `.zst` it is compressed by the `zstd` command.
    pub stream: PathBuf,
    /// The true paths.
    pub truth: PathBuf,
}

/// What came of it.
#[derive(Debug)]
pub struct Result {
    /// How the run went, if a program was run.
    pub ran: Option<Ran>,
    /// The figures.
    pub report: Report,
    /// What the walk had to say of the modules.
    pub remarks: Vec<String>,
}

/// How the walk's answers are found and shown.
#[derive(Clone, Copy, Debug, Default)]
pub struct Exam {
    /// What the walk's tables are built from.
    pub recipes: RecipeOptions,
    /// How many failures of each kind are described.
    pub shown: usize,
}

impl Exam {
    /// Runs a program and scores every snapshot. `keep`: where stream and truths are to be stored.
    pub fn of_program(
        &self,
        command: Command,
        options: &Options,
        keep: Option<&Files>,
    ) -> std::result::Result<Result, OracleError> {
        let mut options = options.clone();
        let mut truth: Option<Box<dyn Write>> = None;
        let mut stream_file = None;
        if let Some(files) = keep {
            let (stream, truths) = files.create(&mut options)?;
            truth = Some(truths);
            stream_file = Some(stream);
        }
        let (reader, writer) =
            io::pipe().map_err(|source| OracleError::Write { what: "the stream of snapshots".into(), source })?;
        let recipes = self.recipes;
        thread::scope(|scope| {
            let answers = scope.spawn(move || answer(reader, &recipes));
            let mut ran = None;
            let recorded = (|| {
                let output = BufWriter::with_capacity(1 << 18, Tee { first: writer, second: stream_file.as_mut() });
                let mut recorder = Recorder::new(output, truth)?;
                ran = Some(run(command, &options, &mut recorder)?);
                recorder.finish()
            })();
            let answered = answers.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            let (asked, truths) = recorded?;
            let (found, remarks) = answered?;
            if let (Some(stream_file), Some(files)) = (stream_file, keep) {
                stream_file.finish().map_err(writing(&files.stream))?;
            }
            Ok(Result { ran, report: self.report(asked.scores(&found, &truths)), remarks })
        })
    }

    /// Scores a stream that was stored.
    pub fn of_files(&self, files: &Files) -> std::result::Result<Result, OracleError> {
        let (asked, truths) = files.read()?;
        let (found, remarks) = answer(files.open()?, &self.recipes)?;
        Ok(Result { ran: None, report: self.report(asked.scores(&found, &truths)), remarks })
    }

    fn report<'a>(&self, scored: impl Iterator<Item = Scored<'a>>) -> Report {
        Report::new(scored, Images::with_vdso(callpath_target::own_vdso()), self.shown)
    }
}

/// Runs a program and stores stream and truths; nothing is scored.
pub fn record(command: Command, options: &Options, files: &Files) -> std::result::Result<Ran, OracleError> {
    let mut options = options.clone();
    let (mut stream_file, truth) = files.create(&mut options)?;
    let mut recorder = Recorder::new(BufWriter::with_capacity(1 << 18, &mut stream_file), Some(truth))?;
    let ran = run(command, &options, &mut recorder)?;
    recorder.finish()?;
    stream_file.finish().map_err(writing(&files.stream))?;
    Ok(ran)
}

/// Counts a stored stream's scores and no more. `modules`: other files to read in place of the stream's modules.
pub fn tally(
    files: &Files,
    recipes: &RecipeOptions,
    modules: Option<&(dyn Fn(PathBuf) -> PathBuf + Sync)>,
) -> std::result::Result<Tally, OracleError> {
    let (asked, truths) = files.read()?;
    let stream = files.open()?;
    let (found, _) = match modules {
        None => answer(stream, recipes)?,
        Some(modules) => {
            let (reader, writer) = io::pipe().map_err(writing(&files.stream))?;
            thread::scope(|scope| {
                let renamed = scope.spawn(|| {
                    crate::stream::rename(BufReader::new(stream), BufWriter::with_capacity(1 << 18, writer), modules)
                });
                let answered = answer(reader, recipes);
                let renamed = renamed.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                renamed.map_err(reading(&files.stream))?;
                answered
            })?
        }
    };
    let mut tally = Tally::default();
    asked.scores(&found, &truths).for_each(|scored| tally.add(scored.score));
    Ok(tally)
}

impl Files {
    /// Begins both; the vdso is kept beside them, as `vdso.so`.
    fn create(&self, options: &mut Options) -> std::result::Result<(StreamFile, Box<dyn Write>), OracleError> {
        if let Some(vdso) = callpath_target::own_vdso() {
            let path = std::path::absolute(self.stream.with_file_name("vdso.so")).map_err(writing(&self.stream))?;
            // Streams in the same directory share it: it is never half written.
            let unfinished = path.with_file_name(format!("vdso-{}.so", std::process::id()));
            std::fs::write(&unfinished, vdso).map_err(writing(&unfinished))?;
            std::fs::rename(&unfinished, &path).map_err(writing(&path))?;
            options.vdso_path = path;
        }
        let truth = BufWriter::new(File::create(&self.truth).map_err(writing(&self.truth))?);
        Ok((StreamFile::create(&self.stream).map_err(writing(&self.stream))?, Box::new(truth)))
    }

    /// What is asked, and what is true.
    fn read(&self) -> std::result::Result<(Asked, Paths), OracleError> {
        let mut asked = Asked::default();
        let stream = BufReader::with_capacity(1 << 18, self.open()?);
        crate::stream::read(stream, |event| asked.event(event)).map_err(reading(&self.stream))?;
        let truth = File::open(&self.truth).map_err(reading(&self.truth))?;
        let truths = Paths::read(BufReader::new(truth)).map_err(reading(&self.truth))?;
        Ok((asked, truths))
    }

    fn open(&self) -> std::result::Result<Box<dyn Read + Send>, OracleError> {
        open(&self.stream).map_err(reading(&self.stream))
    }
}

fn writing(path: &Path) -> impl FnOnce(io::Error) -> OracleError {
    let what = path.display().to_string();
    move |source| OracleError::Write { what, source }
}

fn reading(path: &Path) -> impl FnOnce(io::Error) -> OracleError {
    let path = path.to_owned();
    move |source| OracleError::Read { path, source }
}

/// What the ordinary walk answers.
fn answer(stream: impl Read, recipes: &RecipeOptions) -> std::result::Result<(Paths, Vec<String>), OracleError> {
    let mut lines = Vec::new();
    let mut stream = stream;
    let (answered, result) = snapshot::answer(&mut stream, &mut lines, &TableCache::open(None), recipes);
    // A writer at the other end must not wait for us.
    match io::copy(&mut stream, &mut io::sink()) {
        Ok(_) | Err(_) => {}
    }
    result?;
    let found = Paths::read(&*lines).map_err(|source| OracleError::Read { path: PathBuf::from(VDSO), source })?;
    Ok((found, answered.remarks))
}

/// A file, or one that is compressed.
fn open(path: &Path) -> io::Result<Box<dyn Read + Send>> {
    if path.extension().is_some_and(|extension| extension == "zst") {
        let mut zstd =
            Command::new("zstd").args(["-d", "--long=27", "-q", "-c"]).arg(path).stdout(Stdio::piped()).spawn()?;
        let output = zstd.stdout.take().ok_or_else(|| io::Error::other("zstd has no output"))?;
        return Ok(Box::new(output));
    }
    Ok(Box::new(File::open(path)?))
}

/// A stream's file.
enum StreamFile {
    Plain(File),
    Compressed(Child),
}

impl StreamFile {
    fn create(path: &Path) -> io::Result<StreamFile> {
        if path.extension().is_some_and(|extension| extension == "zst") {
            let mut zstd = Command::new("zstd");
            zstd.args(["-3", "--long=27", "-q", "-f", "-o"]).arg(path).stdin(Stdio::piped());
            return zstd.spawn().map(StreamFile::Compressed);
        }
        File::create(path).map(StreamFile::Plain)
    }

    fn finish(self) -> io::Result<()> {
        let StreamFile::Compressed(mut zstd) = self else { return Ok(()) };
        drop(zstd.stdin.take());
        let status = zstd.wait()?;
        if status.success() { Ok(()) } else { Err(io::Error::other(format!("zstd: {status}"))) }
    }
}

impl Write for StreamFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            StreamFile::Plain(file) => file.write(bytes),
            StreamFile::Compressed(zstd) => match &mut zstd.stdin {
                Some(stdin) => stdin.write(bytes),
                None => Ok(bytes.len()),
            },
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The same bytes to two places.
struct Tee<'a, W> {
    first: W,
    second: Option<&'a mut StreamFile>,
}

impl<W: Write> Write for Tee<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.first.write_all(bytes)?;
        if let Some(second) = &mut self.second {
            second.write_all(bytes)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.first.flush()
    }
}

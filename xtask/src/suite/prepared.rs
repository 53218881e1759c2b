//! A program that is ready to run: its words, its environment, what it reads.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context;

use crate::measure::{self, Usage};

/// What to run, in the directory of the inputs.
#[derive(Debug)]
pub struct Prepared {
    pub program: PathBuf,
    pub arguments: Vec<String>,
    pub environment: Vec<(&'static str, String)>,
    pub stdin: Stdin,
}

impl Prepared {
    /// The command without a recorder.
    pub fn bare(&self, directory: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).current_dir(directory);
        command
    }
}

/// What comes in.
#[derive(Debug)]
pub enum Stdin {
    Nothing,
    File(PathBuf),
    Dialogue(Dialogue),
}

/// For a program that gives up when more input is there: the end comes after the answer.
#[derive(Debug)]
pub struct Dialogue {
    /// Written first.
    pub begin: String,
    /// How the line begins that is waited for.
    pub answer: &'static str,
    /// Written then.
    pub end: &'static str,
}

impl Dialogue {
    /// Runs a command through the dialogue.
    pub fn run(&self, command: &mut Command) -> anyhow::Result<Usage> {
        let (input, mut to_program) = std::io::pipe()?;
        let (from_program, output) = std::io::pipe()?;
        command.stdin(input).stdout(output);
        to_program.write_all(self.begin.as_bytes())?;
        let (answer, end) = (self.answer, self.end);
        let talk = std::thread::spawn(move || -> std::io::Result<()> {
            let mut to_program = Some(to_program);
            for line in BufReader::new(from_program).split(b'\n') {
                let line = line?;
                if line.starts_with(answer.as_bytes())
                    && let Some(mut writer) = to_program.take()
                {
                    writer.write_all(end.as_bytes())?;
                }
            }
            Ok(())
        });
        let usage = measure::run(command)?;
        // The command holds the other ends of the pipes.
        command.stdin(Stdio::null()).stdout(Stdio::null());
        talk.join().map_err(|_| anyhow::anyhow!("the dialogue's thread panicked"))??;
        Ok(usage)
    }
}

/// Where Debian puts programs: what a user has put before them is another program.
pub const PROGRAM_DIRECTORIES: [&str; 4] = ["/usr/bin", "/usr/sbin", "/usr/games", "/bin"];

/// A program of Debian's with arguments.
pub fn installed(program: &str, arguments: &[&str]) -> anyhow::Result<Prepared> {
    let found = PROGRAM_DIRECTORIES.iter().map(|place| Path::new(place).join(program)).find(|path| path.exists());
    Ok(Prepared {
        program: found.with_context(|| format!("{program} is not installed"))?,
        arguments: arguments.iter().map(|argument| (*argument).to_owned()).collect(),
        environment: vec![],
        stdin: Stdin::Nothing,
    })
}

/// Writes an input.
pub fn write(directory: &Path, name: &str, contents: impl AsRef<[u8]>) -> anyhow::Result<PathBuf> {
    let path = directory.join(name);
    std::fs::write(&path, contents).with_context(|| format!("failed to write {}", path.display()))?;
    Ok(path)
}

//! `cargo xtask oracle`: the walk against the true call path at every instruction of a program.

use std::ffi::OsString;
use std::fs::File;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, bail, ensure};
use callpath_oracle::exam::{Exam, Files};
use callpath_oracle::run::Options;
use callpath_tables::recipes::RecipeOptions;
use callpath_target::find_program;

/// What `cargo xtask oracle --help` says.
const USAGE: &str = "\
cargo xtask oracle [OPTION]... PROGRAM [ARGUMENT]...
cargo xtask oracle --check FILE.cpsnap FILE.txt [--no-cfi] [--show N]

Runs a program one instruction at a time, and compares the walk with the true call path at each distinct instruction.
The exit status is 1 if a path is wrong. The program's environment is PATH, HOME and LC_ALL=C: stacks stay short.

  --no-cfi          hide call frame information and local symbols from callpath
  --every-step      run every instruction on its own, also those that were seen before (20 to 1,000 times slower)
  --max-steps N     end after N stops (instructions, with --every-step)
  --skip N          take no snapshots at the first N stops
  --visits N        up to N snapshots of an instruction, where stacks are of different depths (default 1)
  --threads         follow all threads, not just the first (implies --every-step); children are never followed
  --module TEXT     take snapshots of modules only whose path contains TEXT
  --env NAME=VALUE  add to the program's environment
  --stdout FILE     keep what the program prints
  --show N          describe the first N wrong and partial paths (default 5)
  --dump FILE       keep the stream of snapshots (compressed if FILE ends in .zst); needs --truth
  --truth FILE      keep the true paths
";

/// `cargo xtask oracle`
pub fn run(mut words: impl Iterator<Item = OsString>) -> anyhow::Result<ExitCode> {
    let mut options = Options::default();
    let mut recipes = RecipeOptions::default();
    let (mut dump, mut truth, mut check, mut stdout, mut program) = (None, None, None, None, None);
    let mut environment = Vec::new();
    let mut shown = 5;
    while let Some(word) = words.next() {
        let name = word.to_string_lossy().into_owned();
        let mut value = || words.next().with_context(|| format!("{name} needs a value"));
        match &*name {
            "--no-cfi" => recipes.call_frames = false,
            "--every-step" => options.every_step = true,
            "--threads" => options.threads = true,
            "--max-steps" => options.max_steps = number(&value()?)?,
            "--skip" => options.skip = number(&value()?)?,
            "--visits" => options.visits = number(&value()?)? as u32,
            "--show" => shown = number(&value()?)? as usize,
            "--module" => options.module = Some(value()?.to_string_lossy().into_owned()),
            "--stdout" => stdout = Some(value()?),
            "--dump" => dump = Some(value()?),
            "--truth" => truth = Some(value()?),
            "--check" => check = Some((value()?, value()?)),
            "--env" => {
                let text = value()?.to_string_lossy().into_owned();
                let (name, value) = text.split_once('=').context("--env takes NAME=VALUE")?;
                environment.push((name.to_owned(), value.to_owned()));
            }
            "--help" | "-h" => {
                print!("{USAGE}");
                return Ok(ExitCode::SUCCESS);
            }
            _ if name.starts_with("--") && name != "--" => bail!("{name} is not an option of this command\n\n{USAGE}"),
            _ => {
                program = if name == "--" { words.next() } else { Some(word) };
                break;
            }
        }
    }
    let exam = Exam { recipes, shown };
    let result = if let Some((stream, truth)) = check {
        ensure!(program.is_none(), "--check reads files: it runs no program");
        exam.of_files(&Files { stream: stream.into(), truth: truth.into() })
    } else {
        let program = program.with_context(|| format!("which program?\n\n{USAGE}"))?;
        let mut command = Command::new(find_program(&program)?);
        command.args(words).env_clear().env("LC_ALL", "C");
        for name in ["PATH", "HOME"] {
            command.envs(std::env::var_os(name).map(|value| (name, value)));
        }
        command.envs(environment);
        command.stdout(match stdout {
            Some(file) => Stdio::from(File::create(&file).with_context(|| format!("failed to write {file:?}"))?),
            None => Stdio::null(),
        });
        let keep = match (dump, truth) {
            (Some(stream), Some(truth)) => Some(Files { stream: stream.into(), truth: truth.into() }),
            (None, None) => None,
            _ => bail!("--dump and --truth go together"),
        };
        exam.of_program(command, &options, keep.as_ref())
    };
    let result = result.map_err(|error| anyhow::anyhow!("failed to {error}"))?;
    for remark in &result.remarks {
        eprintln!("callpath: {remark}");
    }
    print!("{}", result.report);
    if let Some(ran) = &result.ran {
        print!("{ran}");
    }
    Ok(ExitCode::from(u8::from(result.report.all.wrong > 0)))
}

fn number(word: &std::ffi::OsStr) -> anyhow::Result<u64> {
    let text = word.to_string_lossy().replace(['_', ','], "");
    text.parse().with_context(|| format!("`{text}` is no number"))
}

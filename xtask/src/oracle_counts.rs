//! `cargo xtask oracle-counts`: exact counts against what a run executes, one instruction at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, bail, ensure};
use callpath_oracle::counts::{Activity, Executed, Procedure, Run, run as run_stepped};
use callpath_target::find_program;
use serde_json::Value;

use crate::build;

/// What `cargo xtask oracle-counts --help` says.
const USAGE: &str = "\
cargo xtask oracle-counts [OPTION]... PROGRAM [ARGUMENT]...

Runs a program one instruction at a time, and compares what it executes with what callpath counts of it: each path
(`record --exact=paths`), and the calls of each chain of procedures (`record --exact=calls`). The exit status is 1 if any
number differs. The program must do the same in each run, in one thread. Its environment is PATH, HOME and LC_ALL=C.
callpath adds variables and an object to be preloaded: a program that looks through its environment does something else,
and so does one whose work depends on where its memory lies (grep: LD_PRELOAD=libm.so.6 changes it, too).

  --module NAME     the file name of a module whose procedures are compared; may be repeated (default: the program)
  --env NAME=VALUE  add to the program's environment
  --max-steps N     give up after N instructions (default 100,000,000)
  --show N          describe the first N differences (default 10)
  --callpath FILE   the command to be examined (default: a release build)
";

/// What words ask for.
struct Asked {
    program: PathBuf,
    arguments: Vec<String>,
    modules: Vec<String>,
    environment: Vec<(String, String)>,
    most: u64,
    shown: usize,
    callpath: Option<PathBuf>,
}

/// `cargo xtask oracle-counts`
pub fn run(words: impl Iterator<Item = String>) -> anyhow::Result<ExitCode> {
    let Some(asked) = Asked::parse(words)? else {
        print!("{USAGE}");
        return Ok(ExitCode::SUCCESS);
    };
    let callpath = match &asked.callpath {
        Some(callpath) => callpath.clone(),
        None => build::release()?.callpath,
    };
    let compared = asked.compare(&callpath)?;
    print!("{}", compared.report);
    Ok(ExitCode::from(u8::from(!compared.is_equal)))
}

/// Small programs, each compared with a command that was built. What they do must not depend on where memory lies, as grep's work does.
pub fn check(callpath: &Path) -> anyhow::Result<()> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let directory = tempfile::tempdir().context("failed to make a directory")?;
    let text = directory.path().join("text").to_string_lossy().into_owned();
    // A step takes some 30 us.
    std::fs::write(&text, "She sells sea shells by the sea shore; the shells she sells are sea shells.\n".repeat(8))?;
    let ways = directory.path().join("ways").to_string_lossy().into_owned();
    let source = own.join("../tests/nasty/ways.c");
    let status = Command::new("gcc")
        .args(["-O2", "-DROUNDS=2000", "-o", &ways])
        .arg(&source)
        .status()
        .context("failed to run gcc")?;
    ensure!(status.success(), "gcc could not compile {}", source.display());
    for words in [vec!["gzip", "-9", "-c", &*text], vec![&*ways]] {
        let asked = Asked::parse(words.iter().map(|word| (*word).to_owned()))?.context("a program was named")?;
        let compared = asked.compare(callpath)?;
        print!("{}", compared.report);
        ensure!(compared.is_equal, "counts of {words:?} are not what it executes");
    }
    Ok(())
}

/// What came out.
struct Compared {
    report: String,
    is_equal: bool,
}

impl Asked {
    fn parse(mut words: impl Iterator<Item = String>) -> anyhow::Result<Option<Asked>> {
        let (mut modules, mut environment, mut most, mut shown, mut callpath) =
            (Vec::new(), Vec::new(), 100_000_000, 10, None);
        let program = loop {
            let word = words.next().with_context(|| format!("which program?\n\n{USAGE}"))?;
            let mut value = || words.next().with_context(|| format!("{word} needs a value"));
            match &*word {
                "--help" | "-h" => return Ok(None),
                "--module" => modules.push(value()?),
                "--env" => {
                    let text = value()?;
                    let (name, value) = text.split_once('=').context("--env takes NAME=VALUE")?;
                    environment.push((name.to_owned(), value.to_owned()));
                }
                "--max-steps" => {
                    most = value()?.replace(['_', ','], "").parse().context("--max-steps takes a number")?
                }
                "--show" => shown = value()?.parse().context("--show takes a number")?,
                "--callpath" => callpath = Some(PathBuf::from(value()?)),
                "--" => break words.next().with_context(|| format!("which program?\n\n{USAGE}"))?,
                _ if word.starts_with('-') => bail!("{word} is not an option of this command\n\n{USAGE}"),
                _ => break word,
            }
        };
        let program = std::fs::canonicalize(find_program(program.as_ref())?)?;
        if modules.is_empty() {
            modules.push(program.file_name().unwrap_or_default().to_string_lossy().into_owned());
        }
        let arguments = words.collect();
        Ok(Some(Asked { program, arguments, modules, environment, most, shown, callpath }))
    }

    /// A command in the program's environment, with addresses that are the same in each run.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("setarch");
        command.arg("-R").arg(program).env_clear().env("LC_ALL", "C");
        for name in ["PATH", "HOME"] {
            command.envs(std::env::var_os(name).map(|value| (name, value)));
        }
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    /// A report, as JSON, of a run that is counted.
    fn counted(&self, callpath: &Path, kind: &str, view: &[&str]) -> anyhow::Result<Value> {
        let directory = tempfile::tempdir().context("failed to make a directory")?;
        let measurement = directory.path().join("m");
        let mut record = self.command(callpath);
        record.args(["record", "-q", "-F", "0", "--exact", kind, "-o"]).arg(&measurement).arg("--");
        let status = record.arg(&self.program).args(&self.arguments).status().context("failed to run callpath")?;
        ensure!(measurement.exists(), "callpath record left no measurement ({status})");
        let report = Command::new(callpath).arg("report").arg(&measurement).arg("--json").args(view).output()?;
        ensure!(report.status.success(), "callpath report: {}", String::from_utf8_lossy(&report.stderr));
        serde_json::from_slice(&report.stdout).context("failed to read what callpath report printed")
    }

    fn compare(&self, callpath: &Path) -> anyhow::Result<Compared> {
        let paths = Counted::of(&self.counted(callpath, "paths", &["--view", "paths"])?, &self.modules)?;
        ensure!(!paths.procedures.is_empty(), "nothing of {} was counted", self.modules.join(", "));
        let tree = self.counted(callpath, "calls", &[])?;
        let mut command = Command::new(&self.program);
        let like = self.command(&self.program);
        command.args(&self.arguments).env_clear().stdin(Stdio::null()).stdout(Stdio::null());
        command.envs(like.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let run =
            run_stepped(command, &paths.procedures, self.most).map_err(|error| anyhow::anyhow!("failed to {error}"))?;
        let run = run.with_context(|| format!("{:?} went on after {} instructions", self.program, self.most))?;
        let mut differences = paths.differences(&run.procedures);
        let (chains, of_chains) = paths.chains(&tree, &run)?;
        let different = differences.len();
        differences.extend(of_chains);
        let executions: u64 = run.procedures.iter().flat_map(|activity| activity.paths.values()).sum();
        let activations: u64 = run.procedures.iter().map(|activity| activity.activations).sum();
        let distinct: usize = run.procedures.iter().map(|activity| activity.paths.len()).sum();
        let mut report = format!(
            "{} in {}: {} instructions in all, exit status {}\n\
             {} procedures, {activations} activations in {chains} chains, {executions} executions of {distinct} paths, \
             {different} numbers of paths and {} of chains differ\n",
            self.program.file_name().unwrap_or_default().to_string_lossy(),
            self.modules.join(", "),
            run.instructions,
            run.status,
            paths.procedures.len(),
            differences.len() - different,
        );
        for difference in differences.iter().take(self.shown) {
            report += &format!("  {difference}\n");
        }
        Ok(Compared { report, is_equal: differences.is_empty() })
    }
}

/// What callpath has counted of paths.
#[derive(Default)]
struct Counted {
    procedures: Vec<Procedure>,
    /// By the procedures' order.
    names: Vec<String>,
    paths: Vec<BTreeMap<Executed, u64>>,
    /// Activations, if they are told, and those that were cut short.
    activations: Vec<[Option<u64>; 2]>,
    /// By module and entry.
    numbers: BTreeMap<(String, u64), u32>,
}

impl Counted {
    /// Of a report of paths, those of modules with these file names.
    fn of(report: &Value, modules: &[String]) -> anyhow::Result<Counted> {
        let mut counted = Counted::default();
        let nodes = report["nodes"].as_array().context("the report has no nodes")?;
        let mut numbers: BTreeMap<usize, usize> = BTreeMap::new();
        let executions = metric(report, "executions")?;
        for (index, node) in nodes.iter().enumerate() {
            let module = node["module"].as_str().unwrap_or_default();
            if node["kind"] == "procedure" && modules.iter().any(|wanted| wanted == module) {
                let entry = address(&node["address"])?;
                let number = counted.procedures.len();
                numbers.insert(index, number);
                counted.numbers.insert((module.to_owned(), entry), number as u32);
                counted.procedures.push(Procedure { module: module.to_owned(), entry, ..Procedure::default() });
                counted.names.push(node["name"].as_str().unwrap_or_default().to_owned());
                counted.paths.push(BTreeMap::new());
                counted.activations.push([node["entries"].as_u64(), node["cut_short"].as_u64()]);
            }
        }
        for node in nodes.iter().filter(|node| node["kind"] == "path") {
            let parent = node["parent"].as_u64().context("a path has no parent")?;
            let Some(number) = numbers.get(&(parent as usize)).copied() else { continue };
            let blocks = node["blocks"].as_array().context("a path has no blocks")?;
            let blocks = blocks.iter().map(address).collect::<anyhow::Result<Vec<u64>>>()?;
            let category = node["category"].as_str().unwrap_or_default();
            counted.procedures[number].add(&blocks);
            let path =
                Executed { blocks, from_entry: category.starts_with("entry-"), to_exit: category.ends_with("-exit") };
            let executions = node["self"][executions].as_u64().context("a path has no executions")?;
            *counted.paths[number].entry(path).or_default() += executions;
        }
        Ok(counted)
    }

    /// Where counts differ from what procedures did.
    fn differences(&self, done: &[Activity]) -> Vec<String> {
        let mut differences = Vec::new();
        for (number, activity) in done.iter().enumerate() {
            let (name, counted) = (&self.names[number], &self.paths[number]);
            let all: BTreeSet<&Executed> = counted.keys().chain(activity.paths.keys()).collect();
            for path in all {
                let both = [counted.get(path), activity.paths.get(path)].map(|found| found.copied().unwrap_or(0));
                if both[0] != both[1] {
                    differences.push(format!(
                        "{name}: {} was counted {}, executed {} times",
                        words(path),
                        both[0],
                        both[1]
                    ));
                }
            }
            let [activations, cut_short] = self.activations[number];
            let of = [(activations, activity.activations, "activations"), (cut_short, activity.cut_short, "cut short")];
            for (counted, done, what) in of {
                if let Some(counted) = counted.filter(|counted| *counted != done) {
                    differences.push(format!("{name}: {what}: {counted} were counted, {done} happened"));
                }
            }
        }
        differences
    }

    /// How many chains of these procedures were called, and where a tree of counted calls differs from what a run did.
    fn chains(&self, tree: &Value, run: &Run) -> anyhow::Result<(usize, Vec<String>)> {
        let nodes = tree["nodes"].as_array().context("the report has no nodes")?;
        let calls = metric(tree, "calls")?;
        let mut chains: Vec<Vec<u32>> = Vec::with_capacity(nodes.len());
        let mut counted: BTreeMap<Vec<u32>, u64> = BTreeMap::new();
        for node in nodes {
            let parent = node["parent"].as_u64().and_then(|parent| chains.get(parent as usize));
            let mut chain = parent.cloned().unwrap_or_default();
            let module = node["module"].as_str().unwrap_or_default().to_owned();
            // Frames of unknown code have no address.
            if node["kind"] == "procedure"
                && let Ok(entry) = address(&node["address"])
                && let Some(number) = self.numbers.get(&(module, entry))
            {
                chain.push(*number);
                let calls = node["exclusive"][calls].as_u64().context("a procedure has no calls")?;
                *counted.entry(chain.clone()).or_default() += calls;
            }
            chains.push(chain);
        }
        counted.retain(|_, calls| *calls > 0);
        let all: BTreeSet<&Vec<u32>> = counted.keys().chain(run.chains.keys()).collect();
        let mut differences = Vec::new();
        for chain in &all {
            let both = [counted.get(*chain), run.chains.get(*chain)].map(|found| found.copied().unwrap_or(0));
            if both[0] != both[1] {
                let names: Vec<&str> = chain.iter().map(|number| self.names[*number as usize].as_str()).collect();
                differences.push(format!("{}: {} calls were counted, {} made", names.join(" > "), both[0], both[1]));
            }
        }
        Ok((all.len(), differences))
    }
}

/// The place of a metric's values.
fn metric(report: &Value, name: &str) -> anyhow::Result<usize> {
    let metrics = report["metrics"].as_array().context("the report has no metrics")?;
    metrics.iter().position(|metric| metric["name"] == name).with_context(|| format!("the report has no metric {name}"))
}

fn address(value: &Value) -> anyhow::Result<u64> {
    let text = value.as_str().and_then(|text| text.strip_prefix("0x")).context("there is no address")?;
    Ok(u64::from_str_radix(text, 16)?)
}

fn words(path: &Executed) -> String {
    let blocks: Vec<String> = path.blocks.iter().map(|block| format!("{block:#x}")).collect();
    let from = if path.from_entry { "entry" } else { "head" };
    let to = if path.to_exit { "exit" } else { "back" };
    format!("{from}-{to} {}", blocks.join(" -> "))
}

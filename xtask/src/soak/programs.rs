//! What a soak draws from: the programs of tests/nasty with their modes, one that a seed drives, and the suite's.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};

use super::draw::Draw;
use super::workspace::{Workspace, open_to_all};
use crate::suite::{self, prepared::Stdin};
use crate::{build, install};

/// What to run.
#[derive(Clone, Debug)]
pub struct Subject {
    /// The line of the table that it belongs to.
    pub name: &'static str,
    pub program: PathBuf,
    pub arguments: Vec<String>,
    pub environment: Vec<(&'static str, String)>,
    /// Where it must run; a fresh directory if it does not care.
    pub directory: Option<PathBuf>,
    /// Whether its output depends on nothing but its arguments.
    pub says_the_same: bool,
    pub kind: Kind,
}

/// How it is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Bare first, then recorded: the same must come out.
    Same,
    /// For a time, recorded only.
    Lasting(Duration),
}

/// Source of tests/nasty, how it is compiled, and the arguments that it is called with; `BURN` is that program, `A` and
/// `B` are the two libraries.
const NASTY: &[(&str, &[&str], &[&str])] = &[
    (
        "burn.c",
        &[],
        &["60 return", "60 exit", "60 _exit", "60 quick_exit", "60 abort", "60 kill", "60 term", "60 segv"],
    ),
    ("threads.c", &[], &["short", "many", "exits", "cancel", "detached", "live"]),
    ("stacks.c", &[], &["alternate", "overflow", "coroutine", "jumps", "vdso", "closes"]),
    ("storm.c", &[], &["2000"]),
    ("traps.c", &[], &["handler", "masks", "pending", "default", "prof"]),
    (
        "processes.c",
        &[],
        &[
            "fork BURN 40",
            "fork-exec BURN 40",
            "vfork-exec BURN 40",
            "spawn BURN 40",
            "system BURN 40",
            "failed-exec BURN 40",
            "exec BURN 40",
            "clears BURN 40",
        ],
    ),
    ("reload.c", &["-ldl"], &["A B 6"]),
    ("deep.c", &[], &["2 1500 40", "1 20000 40"]),
    ("jit.c", &["-Wl,-z,execstack"], &["frames", "rewritten", "appended", "pointer", "trampolines", "jumps"]),
    ("reads.c", &[], &["20000"]),
];

/// Everything that can be drawn, compiled and prepared; `only`: names with commas between them.
pub fn all(workspace: &Workspace, only: Option<&str>) -> anyhow::Result<Vec<Subject>> {
    let wanted = |name: &str| only.is_none_or(|only| only.split(',').any(|word| word == name));
    let sources = build::root().join("tests/nasty");
    let library = |name: &str, options: &[&str]| {
        let options = [&["-shared", "-fPIC"], options].concat();
        compile(&sources.join("plug.c"), &workspace.programs().join(name), &options)
    };
    library("liba.so", &["-DNAME=a_work", "-DPADDING=0"])?;
    library("libb.so", &["-DNAME=b_work", "-DPADDING=1"])?;
    compile(&sources.join("soak.c"), &workspace.programs().join("soak"), &["-pthread", "-ldl"])?;
    let mut all = vec![];
    if wanted("soak") {
        all.push(soak(workspace, 0, 0));
    }
    for (source, options, modes) in NASTY {
        let name = source.trim_end_matches(".c");
        let program = workspace.programs().join(name);
        compile(&sources.join(source), &program, &[&["-pthread"], *options].concat())?;
        if !wanted(name) {
            continue;
        }
        for mode in *modes {
            let arguments = mode.split(' ').map(|word| match word {
                "BURN" => workspace.programs().join("burn").display().to_string(),
                "A" => workspace.programs().join("liba.so").display().to_string(),
                "B" => workspace.programs().join("libb.so").display().to_string(),
                word => word.to_owned(),
            });
            all.push(Subject {
                name,
                program: program.clone(),
                arguments: arguments.collect(),
                environment: vec![],
                directory: None,
                says_the_same: true,
                kind: Kind::Same,
            });
        }
    }
    all.extend(of_the_suite(workspace, &wanted)?);
    ensure!(!all.is_empty(), "no program is called so: {}", only.unwrap_or_default());
    Ok(all)
}

/// The suite's programs whose packages are there; what they say differs from run to run for some.
fn of_the_suite(workspace: &Workspace, wanted: &dyn Fn(&str) -> bool) -> anyhow::Result<Vec<Subject>> {
    let mut found = vec![];
    for program in suite::PROGRAMS.iter().filter(|program| wanted(program.name)) {
        if !install::missing(program.packages)?.is_empty() {
            println!("{}: not drawn: {} lacks", program.name, program.packages.join(" "));
            continue;
        }
        let directory = workspace.root.join("suite").join(program.name);
        std::fs::create_dir_all(&directory)?;
        let prepared = (program.prepare)(&directory, 1)?;
        if !matches!(prepared.stdin, Stdin::Nothing) {
            println!("{}: not drawn: it is spoken to", program.name);
            continue;
        }
        open_to_all(&directory)?;
        let run = || -> anyhow::Result<Vec<u8>> {
            let mut command = prepared.bare(&directory);
            command.envs(prepared.environment.iter().cloned());
            Ok(command.stdin(std::process::Stdio::null()).output()?.stdout)
        };
        found.push(Subject {
            name: program.name,
            program: prepared.program.clone(),
            arguments: prepared.arguments.clone(),
            environment: prepared.environment.clone(),
            says_the_same: run()? == run()?,
            directory: Some(directory),
            kind: Kind::Same,
        });
    }
    Ok(found)
}

/// One of them, half of the time the one that a seed drives.
pub fn drawn(workspace: &Workspace, all: &[Subject], draw: &mut Draw) -> Subject {
    let at = if draw.below(2) == 0 { 0 } else { draw.below(all.len()) };
    match &all[at] {
        subject if subject.name == "soak" => soak(workspace, draw.below(1 << 30), 1 + draw.below(14)),
        subject => subject.clone(),
    }
}

fn soak(workspace: &Workspace, seed: usize, steps: usize) -> Subject {
    let library = |name: &str| workspace.programs().join(name).display().to_string();
    Subject {
        name: "soak",
        program: workspace.programs().join("soak"),
        arguments: vec![seed.to_string(), steps.to_string(), library("liba.so"), library("libb.so")],
        environment: vec![],
        directory: None,
        says_the_same: true,
        kind: Kind::Same,
    }
}

/// The one that lasts.
pub fn long(workspace: &Workspace, seed: usize, seconds: u64) -> Subject {
    let mut long = soak(workspace, seed, 0);
    long.arguments.push(seconds.to_string());
    Subject { name: "soak, long", kind: Kind::Lasting(Duration::from_secs(seconds)), ..long }
}

fn compile(source: &Path, output: &Path, options: &[&str]) -> anyhow::Result<()> {
    let mut gcc = Command::new("gcc");
    gcc.args(["-O1", "-g", "-w", "-o"]).arg(output).arg(source).args(options);
    ensure!(gcc.status().context("failed to run gcc")?.success(), "gcc cannot compile {}", source.display());
    Ok(())
}

//! `cargo xtask bench-infer-code`: how far maps of code alone tell the suite's programs' call paths, and what they add to a map that has next to
//! no training.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context, ensure};
use serde_json::Value;

use super::infer::{WALKS_HEAD, share, walks};
use crate::arguments::Arguments;
use crate::{build, suite};

/// `cargo xtask bench-infer-code [--programs NAME,...]`. Each program is recorded with the suite's input of size 5; its training is
/// [`LITTLE`].
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    arguments.only(&["programs", "callpath"])?;
    let bench = Bench { callpath: build::command(arguments)?, place: suite::work_directory()? };
    let [mut maps, mut checks, mut walks_of] = [const { Vec::new() }; 3];
    for program in suite::chosen(arguments.text("programs"))? {
        match bench.measured(program) {
            Ok((map, rows)) => {
                maps.push(format!("| {} | {map} |", program.name));
                checks.extend(rows.iter().map(|(row, _)| format!("| {} | {row} |", program.name)));
                // A map of code alone has seen nothing.
                let seen = [&rows[0], &rows[2]];
                walks_of.extend(seen.map(|(_, row)| format!("| {} | {row} |", program.name)));
            }
            Err(error) => println!("{}: SKIPPED: {error:#}", program.name),
        }
    }
    println!("\nMaps of code (callpath map static)\n");
    println!(
        "| program | made in, s | map, KB | procedures | calls by name | through pointers | to procedures | all samples asked, s |\n|---|---|---|---|---|---|---|---|"
    );
    maps.iter().for_each(|row| println!("{row}"));
    println!(
        "\nWhat they answer for samples whose path a walk knows: percent of distinct paths, in brackets of samples\n"
    );
    println!(
        "| program | map | precise | static | likely | ambiguous | more than 64 | missing | too long | precise, wrong | static, wrong | likely, wrong | ambiguous, wrong |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|---|");
    checks.iter().for_each(|row| println!("{row}"));
    println!("{WALKS_HEAD}");
    walks_of.iter().for_each(|row| println!("{row}"));
    std::fs::remove_dir_all(&bench.place)?;
    Ok(ExitCode::SUCCESS)
}

/// Next to no training: of programs that are not named, `--version`.
const LITTLE: [(&str, &[&str]); 7] = [
    ("bzip2", &["-kc", "/etc/passwd"]),
    ("openssl", &["version"]),
    ("perl", &["-e", "print 1"]),
    ("python3", &["-c", "print(1)"]),
    ("sqlite3", &[":memory:", "select 1"]),
    ("xz", &["-kc", "/etc/passwd"]),
    ("zstd", &["-qc", "/etc/passwd"]),
];

struct Bench {
    callpath: PathBuf,
    place: PathBuf,
}

impl Bench {
    fn measured(&self, program: &suite::Program) -> anyhow::Result<(String, [(String, String); 3])> {
        let inputs = self.place.join(program.name);
        suite::remove_output(&inputs)?;
        std::fs::create_dir_all(&inputs)?;
        let prepared = (program.prepare)(&inputs, 5)?;
        let [little, code, both] = ["little.map", "code.map", "both.map"].map(|name| self.place.join(name));
        let mut train = Command::new(&self.callpath);
        let words =
            LITTLE.iter().find(|(name, _)| *name == program.name).map_or(&["--version"][..], |(_, words)| words);
        train.args(["map", "train", "--quiet", "-o"]).arg(&little).arg("--").arg(&prepared.program).args(words);
        self.done(train, &little)?;
        let mut read = Command::new(&self.callpath);
        read.args(["map", "static", "--quiet", "-o"]).arg(&code).arg(&prepared.program);
        let began = Instant::now();
        self.done(read, &code)?;
        let made_s = began.elapsed().as_secs_f64();
        let mut read = Command::new(&self.callpath);
        read.args(["map", "static", "--quiet", "--from"]).arg(&little).arg("-o").arg(&both).arg(&prepared.program);
        self.done(read, &both)?;
        let output = self.place.join("out.callpath");
        suite::remove_output(&output)?;
        let mut record = Command::new(&self.callpath);
        record.args(["record", "--quiet", "--unwind=both", "-o"]).arg(&output).arg("--");
        record.arg(&prepared.program).args(&prepared.arguments).current_dir(&inputs);
        suite::run_once(&prepared, record)?;
        let check = |name: &str, map: &Path| {
            let checked = self.json(&["map", "check", "--json"], &[map, &output])?;
            let cell = |verdict: &str| {
                format!("{} ({})", share(&checked["paths"], verdict), share(&checked["samples"], verdict))
            };
            let right = ["precise", "static", "likely", "ambiguous", "many", "missing", "undetermined"];
            let wrong = ["wrong", "static_wrong", "unlikely", "incorrect"];
            let cells: Vec<String> = right.into_iter().chain(wrong).map(cell).collect();
            anyhow::Ok((format!("{name} | {}", cells.join(" | ")), format!("{name} | {}", walks(&checked))))
        };
        let began = Instant::now();
        let of_code = check("code", &code)?;
        let asked_s = began.elapsed().as_secs_f64();
        let checks = [check("little training", &little)?, of_code, check("both", &both)?];
        let shown = self.json(&["map", "show", "--json"], &[&code])?;
        let number = |name: &str| shown["code"][name].as_u64().unwrap_or(0);
        let row = format!(
            "{made_s:.1} | {} | {} | {} | {} | {} | {asked_s:.1}",
            std::fs::metadata(&code)?.len() / 1024,
            shown["procedures"],
            number("calls"),
            number("pointer_calls"),
            number("pointed"),
        );
        Ok((row, checks))
    }

    fn done(&self, mut command: Command, map: &Path) -> anyhow::Result<()> {
        let output = command.stdout(Stdio::null()).output()?;
        ensure!(map.exists(), "no map was written: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    fn json(&self, words: &[&str], places: &[&Path]) -> anyhow::Result<Value> {
        let output = Command::new(&self.callpath).args(words).args(places).output()?;
        serde_json::from_slice(&output.stdout).with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

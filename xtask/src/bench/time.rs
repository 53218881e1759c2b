//! `cargo xtask bench-time`: cpu-time of a recording against the kernel's
//! account of the same run, as each kind of user.
//!
//! The account is wait4's, taken between the recorder and the program: it holds what the program cost from
//! fork to exit, our part inside it included.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, ensure};

use super::{compile, quietly};
use crate::arguments::Arguments;
use crate::build;
use crate::statistics::{Spread, spread};
use crate::suite;

const NOBODY: &str = "65534";

/// A program that every user may run.
struct Case {
    name: &'static str,
    words: Vec<String>,
}

/// Prints a line for each program.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    arguments.only(&["runs", "callpath"])?;
    let rounds = arguments.number("runs", 10)?;
    let directory = suite::work_directory()?;
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(&directory, open)?;
    let callpath = directory.join("callpath");
    std::fs::copy(build::command(arguments)?, &callpath).context("failed to copy callpath")?;
    let nasty = build::root().join("tests/nasty");
    compile(&nasty.join("rusage.c"), &directory.join("rusage"))?;
    compile(&nasty.join("reads.c"), &directory.join("reads"))?;

    // SAFETY: geteuid cannot fail.
    let is_root = unsafe { libc::geteuid() } == 0;
    let users: &[&str] = if is_root { &["root", "nobody"] } else { &["this user"] };
    println!("{}, {rounds} rounds, cpu-time over the kernel's account, median (quartiles)\n", suite::machine()?);
    println!("| program | {} |\n|---|{}", users.join(" | "), "---|".repeat(users.len()));
    for case in cases(&directory)? {
        let mut cells = Vec::new();
        for user in users {
            let setup =
                UserSetup { callpath: &callpath, directory: directory.join(user), is_nobody: *user == "nobody" };
            cells.push(format!("{:.4}", setup.ratios(&case, rounds)?));
        }
        println!("| {} | {} |", case.name, cells.join(" | "));
    }
    std::fs::remove_dir_all(&directory)?;
    Ok(ExitCode::SUCCESS)
}

fn cases(directory: &Path) -> anyhow::Result<Vec<Case>> {
    let text = directory.join("text");
    let words: String = (0..1_500_000u32).map(|i| format!("{} ", i.wrapping_mul(2_654_435_761) >> 18)).collect();
    std::fs::write(&text, words)?;
    let text = text.to_str().context("the temp directory's name is not UTF-8")?;
    let reads = directory.join("reads").display().to_string();
    let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
    Ok(vec![
        Case {
            name: "`dd if=/dev/zero of=/dev/null bs=64k`",
            words: words(&["dd", "if=/dev/zero", "of=/dev/null", "bs=64k", "count=1000000", "status=none"]),
        },
        Case { name: "`xz -6`", words: words(&["xz", "-6", "-T1", "-k", "-c", text]) },
        Case { name: "read loop (`tests/nasty/reads.c`)", words: words(&[&reads, "3000000"]) },
    ])
}

/// Where one user records.
struct UserSetup<'a> {
    callpath: &'a Path,
    directory: PathBuf,
    is_nobody: bool,
}

impl UserSetup<'_> {
    fn ratios(&self, case: &Case, rounds: usize) -> anyhow::Result<Spread> {
        std::fs::create_dir_all(&self.directory)?;
        if self.is_nobody {
            std::os::unix::fs::chown(&self.directory, NOBODY.parse().ok(), NOBODY.parse().ok())?;
        }
        let output = self.directory.join("out.callpath");
        let cost = self.directory.join("cost");
        let mut ratios = Vec::new();
        for _ in 0..rounds {
            suite::remove_output(&output)?;
            let mut record = self.command();
            record.args(["record", "-o"]).arg(&output).arg("--");
            record.arg(self.directory.with_file_name("rusage")).arg(&cost).args(&case.words);
            quietly(record.current_dir(&self.directory))?;
            let rusage = std::fs::read_to_string(&cost).context("rusage left no figures")?;
            let micros = rusage.split_whitespace().map(str::parse::<u64>).sum::<Result<u64, _>>()?;
            ratios.push(self.cpu_time_ns(case, &output)? as f64 / (micros as f64 * 1e3));
        }
        Ok(spread(&ratios))
    }

    fn command(&self) -> Command {
        let mut command = if self.is_nobody {
            let mut setpriv = Command::new("setpriv");
            setpriv.args([&format!("--reuid={NOBODY}"), &format!("--regid={NOBODY}"), "--clear-groups"]);
            setpriv.args(["--inh-caps=-all", "--bounding-set=-all"]).arg(self.callpath);
            setpriv
        } else {
            Command::new(self.callpath)
        };
        command.env("CALLPATH_CACHE_DIR", self.directory.join("cache")).env("HOME", &self.directory);
        command
    }

    /// What was measured of the program, without what started it.
    fn cpu_time_ns(&self, case: &Case, output: &Path) -> anyhow::Result<u64> {
        let name = Path::new(&case.words[0]).file_name().and_then(|name| name.to_str()).context("no name")?;
        let said = self.command().args(["report", "--json", "--process", name]).arg(output).output()?;
        ensure!(said.status.success(), "callpath report ended with {}", said.status);
        let view: serde_json::Value = serde_json::from_slice(&said.stdout).context("failed to read the JSON")?;
        view["nodes"][0]["inclusive"][0].as_u64().context("the JSON has no cpu-time")
    }
}

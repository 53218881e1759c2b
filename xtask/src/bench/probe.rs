//! `cargo xtask bench-probe`: what a hit of a probe costs, and how long a program stands still while probes are set.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use crate::arguments::Arguments;
use crate::build;

/// Calls in a run.
const ROUNDS: &str = "20000000";

/// `cargo xtask bench-probe [--runs N] [--attaches N]`
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    arguments.only(&["runs", "attaches", "callpath"])?;
    let runs = arguments.number("runs", 5)?;
    let attaches = arguments.number("attaches", 100)?;
    let callpath = build::command(arguments)?;
    let place = crate::suite::work_directory()?;
    let program = place.join("hits");
    super::compile(&build::root().join("xtask/src/bench/hits.c"), &program)?;
    println!("a hit over the bare call, ns (median of {runs} pairs, least to most)\n");
    println!(
        "| frames on the stack | calls | calls and wall-time | calls with context | asking for it |\n|---|---|---|---|---|"
    );
    for depth in ["0", "20", "50"] {
        let mut costs = [Vec::new(), Vec::new(), Vec::new(), Vec::new()];
        const CONTEXT: &[&str] = &["-m", "context"];
        let cases = [
            ("leaf", &[][..], false),
            ("leaf", &["-m", "wall-time"], false),
            ("leaf", CONTEXT, false),
            ("asking", CONTEXT, true),
        ];
        for _ in 0..runs {
            for ((function, metrics, asks), costs) in cases.into_iter().zip(&mut costs) {
                let bare = per_call(Command::new(&program), depth, asks)?;
                let mut probed = Command::new(&callpath);
                probed.args(["probe", "--quiet", "-f", function]).args(metrics).arg("-o");
                probed.arg(fresh(&place)?).arg("--").arg(&program);
                costs.push(per_call(probed, depth, asks)? - bare);
            }
        }
        let [calls, timed, numbered, asked] = costs.map(spread);
        println!("| {depth} | {calls} | {timed} | {numbered} | {asked} |");
    }
    stops(&callpath, &program, (&place, attaches))?;
    std::fs::remove_dir_all(&place)?;
    Ok(ExitCode::SUCCESS)
}

/// A directory's name that is free.
fn fresh(place: &Path) -> anyhow::Result<std::path::PathBuf> {
    let directory = place.join("out.callpath");
    crate::suite::remove_output(&directory)?;
    Ok(directory)
}

/// What the program says of a call, ns; of `asking`, of one by which it asks for its context.
fn per_call(mut command: Command, depth: &str, asks: bool) -> anyhow::Result<f64> {
    command.args([ROUNDS, depth]).args(asks.then_some("ask"));
    let output = command.stderr(Stdio::inherit()).output().context("failed to run it")?;
    ensure!(output.status.success(), "{command:?} ended with {}", output.status);
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim().parse().with_context(|| format!("{text:?} is no time"))
}

/// Median, least and most.
fn spread(mut values: Vec<f64>) -> String {
    values.sort_by(f64::total_cmp);
    let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
    format!("{:.1} ({:.1} to {:.1})", at(values.len() / 2), at(0), at(values.len().saturating_sub(1)))
}

/// How long a program of eight busy threads stands still.
fn stops(callpath: &Path, program: &Path, (place, attaches): (&Path, usize)) -> anyhow::Result<()> {
    let mut busy = Command::new(program).args(["0", "3600"]).spawn()?;
    let (mut longest, mut kernels) = (Vec::new(), Vec::new());
    for _ in 0..attaches {
        let mut three = [0.0; 3];
        for one in &mut three {
            *one = stop_by_the_kernel(&busy)?;
            std::thread::sleep(BETWEEN_STOPS);
        }
        kernels.push(three.into_iter().fold(0.0, f64::max));
        let mut probe = Command::new(callpath);
        probe
            .args(["probe", "-f", "leaf", "--duration", "0.05", "-p", &busy.id().to_string(), "-o"])
            .arg(fresh(place)?);
        let output = probe.output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let milliseconds =
            said.split(" ms at most").next().and_then(|text| text.rsplit(' ').next()?.parse::<f64>().ok());
        longest.push(milliseconds.with_context(|| format!("callpath says nothing of its stops: {said}"))?);
    }
    busy.kill()?;
    busy.wait()?;
    println!(
        "\nhow long a program of eight busy threads stands still, ms: the longest stop of each of {attaches} probes, set and taken out; and \
         the longest of three times until SIGSTOP has stopped them all, before each probe\n"
    );
    println!("| | median | p99 | most |\n|---|--:|--:|--:|");
    for (name, mut times) in [("probes", longest), ("SIGSTOP", kernels)] {
        times.sort_by(f64::total_cmp);
        // By the nearest rank: of 100, the 99th is p99.
        let at = |share: f64| times.get(((times.len() as f64 * share).ceil() as usize).saturating_sub(1)).copied();
        let [median, p99, most] = [0.5, 0.99, 1.0].map(|share| at(share).unwrap_or_default());
        println!("| {name} | {median:.1} | {p99:.1} | {most:.1} |");
    }
    Ok(())
}

/// Between two stops that the kernel makes.
const BETWEEN_STOPS: Duration = Duration::from_millis(20);

/// The time from SIGSTOP until all threads of a child have stopped, ms: what any stop of them takes on this machine at this moment.
/// It goes on after that.
fn stop_by_the_kernel(child: &std::process::Child) -> anyhow::Result<f64> {
    let pid = child.id() as libc::pid_t;
    let began = Instant::now();
    // SAFETY: a child of this process, which has not been waited for.
    ensure!(unsafe { libc::kill(pid, libc::SIGSTOP) } == 0, "SIGSTOP: {}", std::io::Error::last_os_error());
    let mut status = 0;
    // SAFETY: as above; a valid place. The kernel reports the stop when the last thread has stopped.
    let waited = unsafe { libc::waitpid(pid, &raw mut status, libc::WUNTRACED) };
    let took = began.elapsed();
    // SAFETY: as above.
    unsafe { libc::kill(pid, libc::SIGCONT) };
    ensure!(waited == pid && libc::WIFSTOPPED(status), "it has not stopped: {status:#x}");
    Ok(took.as_secs_f64() * 1e3)
}

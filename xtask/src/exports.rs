//! `cargo xtask exports`: what `callpath export` writes, read back by the tools whose formats they are.
//!
//! It installs them: protobuf from PyPI; speedscope, the Firefox Profiler's command line and its Node from npm; valgrind and
//! Chromium from Debian. Each has to find the total that `callpath report --json` says.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, ensure};
use serde_json::Value;

use crate::arguments::Arguments;
use crate::install::{self, said};
use crate::{build, suite};

const PACKAGES: [&str; 7] = ["chromium", "valgrind", "g++", "nodejs", "npm", "python3", "python3-venv"];
const PYTHON: [&str; 1] = ["protobuf"];
/// Profiler-cli needs Node 24.
const NODE: [&str; 3] = ["speedscope@1.25.0", "@firefox-devtools/profiler-cli@0.10.0", "node@24"];

/// Where everything is.
struct Bench {
    callpath: PathBuf,
    directory: PathBuf,
    measurement: PathBuf,
    /// Nanoseconds.
    total: u64,
}

/// Prints a line for each format; fails if a reader cannot be installed, or finds another total.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    arguments.only(&["callpath", "measurement"])?;
    let missing = install::packages_or_commands(&PACKAGES)?;
    ensure!(missing.is_empty(), "cannot do without {}", missing.join(", "));
    let directory = suite::work_directory()?;
    install_readers(&directory)?;
    let callpath = build::command(arguments)?;
    let measurement = match arguments.text("measurement") {
        Some(path) => PathBuf::from(path),
        None => record(&callpath, &directory)?,
    };
    let report = said(Command::new(&callpath).args(["report", "--json"]).arg(&measurement))?;
    let report: Value = serde_json::from_str(&report)?;
    ensure!(report["metrics"][0]["unit"] == "ns", "the first metric has to be a time");
    let total = report["nodes"][0]["inclusive"][0].as_u64().context("a report without a total")?;
    let bench = Bench { callpath, directory, measurement, total };
    println!("{}\n\ntotal: {total} ns\n\n| format | read by | bytes | total |\n|---|---|---|---|", suite::machine()?);
    for (format, reader, read) in READERS {
        let file = bench.export(format)?;
        let found = read(&bench, &file).with_context(|| format!("{format}, read by {reader}"))?;
        println!("| {format} | {reader} | {} | {found} |", fs::metadata(&file)?.len());
    }
    fs::remove_dir_all(&bench.directory)?;
    Ok(ExitCode::SUCCESS)
}

type Reader = fn(&Bench, &Path) -> anyhow::Result<String>;

const READERS: [(&str, &str, Reader); 6] = [
    ("folded", "awk", folded),
    ("flamegraph", "Chromium", flamegraph),
    ("pprof", "Google's protobuf", pprof),
    ("firefox", "Firefox Profiler's profiler-cli", firefox),
    ("speedscope", "speedscope in Chromium", speedscope),
    ("callgrind", "callgrind_annotate", callgrind),
];

fn install_readers(directory: &Path) -> anyhow::Result<()> {
    install::python(&directory.join("python"), &PYTHON)?;
    said(Command::new("npm").args(["install", "--silent", "--prefix"]).arg(directory).args(NODE))?;
    Ok(())
}

/// A measurement of a program with threads, loops, inlined calls and recursion.
pub fn record(callpath: &Path, directory: &Path) -> anyhow::Result<PathBuf> {
    let (program, measurement) = (directory.join("program"), directory.join("program.callpath"));
    let source = build::root().join("xtask/src/exports/program.cpp");
    said(Command::new("g++").args(["-O2", "-g", "-pthread", "-o"]).arg(&program).arg(source))?;
    said(Command::new(callpath).args(["record", "-o"]).arg(&measurement).arg(&program))?;
    Ok(measurement)
}

impl Bench {
    fn export(&self, format: &str) -> anyhow::Result<PathBuf> {
        let extension = match format {
            "flamegraph" => "svg",
            "firefox" | "speedscope" => "json",
            other => other,
        };
        let file = self.directory.join(format!("{format}.{extension}"));
        let mut command = Command::new(&self.callpath);
        said(command.args(["export", "--format", format, "-o"]).arg(&file).arg(&self.measurement))?;
        Ok(file)
    }

    /// Fails unless a reader's total is the profile's.
    fn is_total(&self, found: u64) -> anyhow::Result<String> {
        ensure!(found == self.total, "{found} ns instead of {}", self.total);
        Ok(format!("{found} ns"))
    }

    /// The document of a page, once its scripts have run.
    fn page(&self, address: &str) -> anyhow::Result<String> {
        let mut chromium = Command::new("chromium");
        chromium.args(["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=20000", "--dump-dom"]);
        said(chromium.arg(format!("--user-data-dir={}", self.directory.join("chromium").display())).arg(address))
    }
}

fn folded(bench: &Bench, file: &Path) -> anyhow::Result<String> {
    let sum = said(Command::new("awk").arg("{ sum += $NF } END { printf \"%d\", sum }").arg(file))?;
    bench.is_total(sum.parse()?)
}

/// The script has to run: what it finds by a search for everything is the whole.
fn flamegraph(bench: &Bench, file: &Path) -> anyhow::Result<String> {
    const SEARCH: &str = "<script><![CDATA[window.prompt = () => \".\";\
                          document.getElementById(\"search\").dispatchEvent(new MouseEvent(\"click\"));]]></script></svg>";
    let svg = fs::read_to_string(file)?;
    let outside = svg.matches("http").count() - svg.matches("http://www.w3.org/2000/svg").count();
    ensure!(outside == 0, "it refers to something outside");
    let searched = bench.directory.join("searched.svg");
    fs::write(&searched, svg.replace("</svg>", SEARCH))?;
    let page = bench.page(&format!("file://{}", searched.display()))?;
    let total = page.split("data-total=\"").nth(1).and_then(|rest| rest.split('"').next()).context("no picture")?;
    let found = page.split("id=\"found\"").nth(1).and_then(|rest| rest.split(['>', '<']).nth(1));
    ensure!(found.is_some_and(|found| found.ends_with(" s, 100.00%")), "its search finds {found:?}");
    bench.is_total(total.parse()?)
}

fn pprof(bench: &Bench, file: &Path) -> anyhow::Result<String> {
    let script = build::root().join("xtask/src/exports/read_pprof.py");
    let said = said(Command::new(bench.directory.join("python/bin/python")).arg(script).arg(file))?;
    let words: Vec<&str> = said.split_whitespace().collect();
    let [samples, total, inlined] = words[..] else { anyhow::bail!("it says {said:?}") };
    Ok(format!("{}; {samples} samples, {inlined} locations of several lines", bench.is_total(total.parse()?)?))
}

fn firefox(bench: &Bench, file: &Path) -> anyhow::Result<String> {
    let cli = |words: &[&str]| {
        let mut command = Command::new(bench.directory.join("node_modules/.bin/node"));
        // Where it keeps its sessions.
        command.env("HOME", &bench.directory);
        said(command.arg(bench.directory.join("node_modules/.bin/profiler-cli")).args(words))
    };
    let path = file.to_str().context("a path that is no text")?;
    cli(&["load", path])?;
    let read = || -> anyhow::Result<(f64, usize, bool)> {
        let profile: Value = serde_json::from_slice(&fs::read(file)?)?;
        let threads = profile["threads"].as_array().context("no threads")?.len();
        let (mut total, mut has_inlined) = (0.0, false);
        for thread in 0..threads {
            cli(&["thread", "select", &format!("t-{thread}")])?;
            let tree: Value = serde_json::from_str(&cli(&["thread", "samples-top-down", "--json", "--include-idle"])?)?;
            let root = &tree["regularCallTree"];
            total += root["totalSamples"].as_f64().context("a tree without a total")?;
            has_inlined |= root["hasInlinedFrames"] == true;
        }
        Ok((total, threads, has_inlined))
    };
    let found = read();
    cli(&["stop", "--all"])?;
    let (milliseconds, threads, has_inlined) = found?;
    ensure!(has_inlined, "it finds no inlined frames");
    Ok(format!("{}; {threads} threads, inlined frames", bench.is_total((milliseconds * 1e6).round() as u64)?))
}

/// It shows five digits of each profile's weight; the events' sum is exact by `crates/callpath-view/tests/all/exports.rs`.
fn speedscope(bench: &Bench, file: &Path) -> anyhow::Result<String> {
    let root = bench.directory.join("node_modules/speedscope/dist/release");
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    let profile: Value = serde_json::from_slice(&fs::read(file)?)?;
    let profiles = profile["profiles"].as_array().context("no profiles")?;
    let exact: u64 = profiles.iter().filter_map(|profile| profile["endValue"].as_u64()).sum();
    let file = file.to_path_buf();
    // Until this program ends.
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            if let Err(error) = serve(stream, &root, &file) {
                eprintln!("xtask: {error:#}");
            }
        }
    });
    let address = format!("http://127.0.0.1:{port}");
    let page = bench.page(&format!("{address}/index.html#profileURL={address}/profile&view=sandwich"))?;
    // The list of profiles says each one's weight.
    let mut shown = 0.0;
    for profile in profiles {
        let name = profile["name"].as_str().context("a profile without a name")?;
        let behind = page.split(name).find_map(|behind| weight_ns(&behind.chars().take(400).collect::<String>()));
        shown += behind.with_context(|| format!("it does not show {name}"))?;
    }
    let off = (shown - bench.total as f64).abs() / bench.total as f64;
    ensure!(off < 1e-4, "it shows {shown} ns instead of {}", bench.total);
    Ok(format!("{}; {} profiles, shown to five digits", bench.is_total(exact)?, profiles.len()))
}

/// The first text of `html` that is a weight of speedscope's: `474.60ms`.
fn weight_ns(html: &str) -> Option<f64> {
    let units = [("ns", 1.0), ("µs", 1e3), ("ms", 1e6), ("s", 1e9)];
    html.split(['<', '>'])
        .find_map(|text| units.iter().find_map(|(unit, ns)| Some(text.strip_suffix(unit)?.parse::<f64>().ok()? * ns)))
}

/// Answers one request: for the profile, or for a file of speedscope's.
fn serve(mut stream: TcpStream, root: &Path, profile: &Path) -> anyhow::Result<()> {
    let mut request = [0; 8192];
    let len = stream.read(&mut request)?;
    let request = String::from_utf8_lossy(&request[..len]).into_owned();
    let wanted =
        request.split(' ').nth(1).unwrap_or_default().trim_start_matches('/').split('?').next().unwrap_or_default();
    let path = if wanted == "profile" { profile.to_path_buf() } else { root.join(wanted.replace("..", "")) };
    let kind = match path.extension().and_then(|extension| extension.to_str()) {
        Some("html") => "text/html",
        Some("js") => "text/javascript",
        Some("css") => "text/css",
        _ => "application/octet-stream",
    };
    let (status, body) = fs::read(&path).map_or(("404 Not Found", Vec::new()), |body| ("200 OK", body));
    let len = body.len();
    write!(stream, "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len}\r\nConnection: close\r\n\r\n")?;
    stream.write_all(&body)?;
    Ok(())
}

fn callgrind(bench: &Bench, file: &Path) -> anyhow::Result<String> {
    let page = said(Command::new("callgrind_annotate").arg("--auto=no").arg(file))?;
    let line = page.lines().find(|line| line.contains("PROGRAM TOTALS")).context("it shows no totals")?;
    let total: String = line.chars().take_while(|c| *c != '(').filter(char::is_ascii_digit).collect();
    bench.is_total(total.parse()?)
}

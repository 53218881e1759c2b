//! One command run to its end under the eyes of a watch: how it ended, what it said, how much memory the recorder took,
//! which processes it left behind.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;

use super::workspace::Workspace;
use crate::descendants;

/// A run that takes longer hangs; they take a second or so.
const PATIENCE: Duration = Duration::from_secs(120);

/// What a run did.
#[derive(Debug)]
pub struct Watched {
    /// As a shell says it.
    pub status: i32,
    /// It was killed because it did not end.
    pub hung: bool,
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error.
    pub stderr: String,
    /// The largest resident set of the process itself, bytes.
    pub peak_bytes: u64,
    /// What the recorder took in the middle of its time and at its end.
    pub middle: Memory,
    pub end: Memory,
    /// Names of processes that were still there when it had ended.
    pub left: Vec<String>,
}

/// What a recorder takes, bytes.
#[derive(Clone, Copy, Default, Debug)]
pub struct Memory {
    /// Its own, not shared.
    pub own: u64,
    /// What is behind the arena.
    pub arena: u64,
    /// What is behind all that is published.
    pub published: u64,
}

/// Runs a command that was asked to last so long, its output into files.
pub fn watch(command: &mut Command, workspace: &Workspace, asked: Duration) -> anyhow::Result<Watched> {
    let (out, err) = (workspace.root.join("stdout"), workspace.root.join("stderr"));
    command.stdin(Stdio::null()).stdout(File::create(&out)?).stderr(File::create(&err)?);
    let began = Instant::now();
    let mut child = command.spawn().with_context(|| format!("failed to start {command:?}"))?;
    let pid = child.id();
    let mut watched = Watched {
        status: 0,
        hung: false,
        stdout: vec![],
        stderr: String::new(),
        peak_bytes: 0,
        middle: Memory::default(),
        end: Memory::default(),
        left: vec![],
    };
    let mut looks = Vec::new();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        looks.extend(watched.look(pid));
        if began.elapsed() > asked + PATIENCE && !watched.hung {
            watched.hung = true;
            child.kill()?;
        }
        std::thread::sleep(Duration::from_millis(if began.elapsed().as_millis() < 500 { 3 } else { 20 }));
    };
    watched.middle = looks.get(looks.len() / 2).copied().unwrap_or_default();
    watched.end = looks.last().copied().unwrap_or_default();
    watched.status = status_of(status);
    watched.left = descendants::end_those_left()?;
    watched.stdout = std::fs::read(&out)?;
    watched.stderr = String::from_utf8_lossy(&std::fs::read(&err)?).into_owned();
    Ok(watched)
}

impl Watched {
    /// Its memory now, if it can be read.
    fn look(&mut self, pid: u32) -> Option<Memory> {
        // Until it has executed the command its memory is ours.
        if std::fs::read_link(format!("/proc/{pid}/exe")).ok()? == std::fs::read_link("/proc/self/exe").ok()? {
            return None;
        }
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let kilobytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse::<u64>().ok()
        };
        self.peak_bytes = self.peak_bytes.max(kilobytes("VmHWM:")? * 1024);
        let mut memory = Memory { own: kilobytes("RssAnon:")? * 1024, ..Memory::default() };
        for entry in std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten() {
            let Ok(name) = std::fs::read_link(entry.path()) else { continue };
            let name = name.to_string_lossy();
            let Some(name) = name.strip_prefix("/memfd:callpath-") else { continue };
            let Ok(backed) = std::fs::metadata(entry.path()).map(|m| m.blocks() * 512) else { continue };
            *if name.starts_with("arena") { &mut memory.arena } else { &mut memory.published } = backed;
        }
        Some(memory)
    }
}

fn status_of(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

//! Chains of inlined calls as other people's tools see them, and where ours differ.
#![allow(dead_code)] // Each user needs some of it.

use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use callpath_format::address::LinkAddr;
use callpath_image::elf::Image;
use callpath_image::scopes::{Scopes, UnitId, UnitScopes};

/// A name and "file:line"; 0 where there is no line.
pub(crate) type Frame = (String, String);

/// Units, read when first asked for.
pub(crate) struct Read {
    pub(crate) scopes: Scopes,
    units: HashMap<UnitId, UnitScopes>,
}

impl Read {
    pub(crate) fn new(image: Arc<Image>, supplement: Option<Arc<Image>>, program: Option<&Path>) -> Read {
        Read { scopes: Scopes::new(image, supplement, program), units: HashMap::new() }
    }

    pub(crate) fn unit_at(&mut self, addr: u64) -> Option<&UnitScopes> {
        let id = self.scopes.unit_at(LinkAddr(addr))?;
        Some(self.units.entry(id).or_insert_with(|| self.scopes.read(id).expect("a sound unit")))
    }

    /// Ours in the tools' words. Empty where nothing is known.
    pub(crate) fn chain(&mut self, addr: u64) -> Vec<Frame> {
        let Some(unit) = self.unit_at(addr) else { return Vec::new() };
        let text = |frame: callpath_image::scopes::Frame<'_>| {
            let place = format!("{}:{}", frame.file.unwrap_or("??"), frame.line);
            (frame.name.unwrap_or("??").to_string(), place)
        };
        unit.chain(LinkAddr(addr)).map(text).collect()
    }

    pub(crate) fn diagnostics(&self) -> Vec<String> {
        let units = self.units.values().flat_map(|unit| unit.diagnostics());
        self.scopes.diagnostics().iter().chain(units).map(ToString::to_string).collect()
    }
}

/// Which tool is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tool {
    Addr2line,
    Symbolizer,
}

/// Asks a tool for the chains at `addrs` of `file`.
pub(crate) fn ask(tool: Tool, file: &Path, addrs: &[u64]) -> Vec<Vec<Frame>> {
    let file = file.to_str().expect("a path in UTF-8");
    let (program, args): (&str, Vec<&str>) = match tool {
        Tool::Addr2line => ("addr2line", vec!["-a", "-i", "-f", "-e", file]),
        Tool::Symbolizer => ("llvm-symbolizer", vec!["--no-demangle", "--inlines", "-f=linkage", "--obj", file]),
    };
    let mut child = Command::new(program)
        .args(args)
        .env("LC_ALL", "C")
        .env("DEBUGINFOD_URLS", "")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("cannot run {program}: {error}"));
    let mut stdin = child.stdin.take().expect("a pipe");
    let input: String = addrs.iter().map(|addr| format!("{addr:#x}\n")).collect();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().expect("its output");
    writer.join().expect("a thread").expect("all addresses taken");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut lines = text.lines().peekable();
    let mut chains = Vec::new();
    for _ in addrs {
        let mut chain = Vec::new();
        if tool == Tool::Addr2line {
            lines.next();
        }
        while let Some(name) = lines.next() {
            if name.is_empty() {
                break;
            }
            let place = lines.next().unwrap_or("??:0");
            // "file:12:3" of one, "file:12 (discriminator 3)" of the other, and "file:?" for line 0.
            let place = match tool {
                Tool::Symbolizer => place.rsplit_once(':').map_or(place, |(place, _)| place),
                Tool::Addr2line => place.split(" (discriminator").next().unwrap_or(place),
            };
            chain.push((name.to_string(), place.strip_suffix(":?").map_or(place.to_string(), |p| format!("{p}:0"))));
            if tool == Tool::Addr2line && lines.peek().is_some_and(|next| next.starts_with("0x")) {
                break;
            }
        }
        chains.push(chain);
    }
    chains
}

/// The names of symbols, by address and by name: the tools prefer them for the outermost frame.
pub(crate) struct Symbols {
    by_addr: BTreeMap<u64, Vec<String>>,
}

impl Symbols {
    pub(crate) fn read(file: &Path) -> Symbols {
        let output = Command::new("nm").args(["--defined-only"]).arg(file).output().expect("nm runs");
        let mut by_addr: BTreeMap<u64, Vec<String>> = BTreeMap::new();
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let mut fields = line.split(' ');
            let (Some(addr), Some(kind), Some(name)) = (fields.next(), fields.next(), fields.next()) else { continue };
            if let Ok(addr) = u64::from_str_radix(addr, 16)
                && "tTwWiuV".contains(kind)
            {
                let name = name.split('@').next().unwrap_or(name);
                by_addr.entry(addr).or_default().push(name.to_string());
            }
        }
        Symbols { by_addr }
    }

    /// A symbol at or before `addr`, among those of the nearest address, has that name.
    fn has(&self, addr: u64, name: &str) -> bool {
        let mut before = self.by_addr.range(..=addr).rev();
        before.next().is_some_and(|(_, names)| names.iter().any(|known| known == name))
    }
}

/// What a tool says of an address.
pub(crate) struct Said<'a> {
    pub(crate) tool: Tool,
    pub(crate) addr: u64,
    pub(crate) chain: &'a [Frame],
}

/// How ours differs from what a tool says; `None` if it does not.
///
/// addr2line takes the symbol at the address for the name of an innermost frame whose procedure has no linker's name,
/// inlined or not.
pub(crate) fn difference(ours: &[Frame], said: &Said<'_>, symbols: &Symbols) -> Option<&'static str> {
    let Said { tool, addr, chain: theirs } = *said;
    // Of code without DWARF the tools know the symbol and the file that a symbol names, without a line.
    if ours.is_empty() && matches!(theirs, [(_, place)] if place.ends_with(":0")) {
        return None;
    }
    if ours.len() != theirs.len() {
        return Some("depth");
    }
    for (depth, (ours_frame, theirs_frame)) in ours.iter().zip(theirs).enumerate() {
        if ours_frame.1 != theirs_frame.1 && tidy(&ours_frame.1) != tidy(&theirs_frame.1) {
            let line = |place: &str| place.rsplit(':').next().map(str::to_string);
            return Some(if line(&ours_frame.1) == line(&theirs_frame.1) { "file" } else { "line" });
        }
        let may_be_symbol = depth + 1 == ours.len() || tool == Tool::Addr2line && depth == 0;
        let their_name = theirs_frame.0.split('@').next().unwrap_or_default();
        if ours_frame.0 != their_name && !(may_be_symbol && symbols.has(addr, their_name)) {
            return Some("name");
        }
    }
    None
}

/// Without what the tools write twice: DWARF 5 names the compilation directory in the line table, too.
fn tidy(place: &str) -> String {
    let halves = place.match_indices('/').map(|(at, _)| place.split_at(at + 1));
    let twice = halves.filter(|(dir, _)| !dir.starts_with('/')).find(|(dir, rest)| rest.starts_with(dir));
    twice.map_or(place, |(_, rest)| rest).to_string()
}

/// Random addresses of the code that `file` describes.
pub(crate) fn random_addrs(ranges: &[std::ops::Range<LinkAddr>], count: usize, seed: u64) -> Vec<u64> {
    let total: u64 = ranges.iter().map(|range| range.end.0 - range.start.0).sum();
    let mut random = fastrand::Rng::with_seed(seed);
    let mut addrs = Vec::with_capacity(count);
    while addrs.len() < count && total > 0 {
        let mut at = random.u64(..total);
        for range in ranges {
            let len = range.end.0 - range.start.0;
            if at < len {
                addrs.push(range.start.0 + at);
                break;
            }
            at -= len;
        }
    }
    addrs
}

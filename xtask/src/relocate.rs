//! `cargo xtask relocate`: a program whose procedures all run as copies, while the code they came from traps.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, bail, ensure};
use callpath_format::address::{LinkAddr, RunAddr};
use callpath_oracle::modules::{Images, Module as Loaded, VDSO};
use callpath_tables::copies::{Copies, copy_all};
use callpath_tables::module::Module;
use callpath_target::{Maps, StepOptions, Stepped, Stepper, find_program};

/// What `cargo xtask relocate --help` says.
const USAGE: &str = "\
cargo xtask relocate [OPTION]... PROGRAM [ARGUMENT]...

Runs a program whose procedures, and those of its libraries, all run as copies. What the copies leave of the original
code traps. The program's output goes where it always does; what was copied, and why the rest was not, to standard error.
The exit status is the program's. Libraries that are loaded later, children after exec, the loader and the vdso stay as
they are.

  --module TEXT     copy only modules whose path contains TEXT
  --half N/M        copy only procedure number N, N+M, N+2M, ...: to find one that is copied wrongly
  --range N-M       copy only procedures number N to M of all modules
  --keep            leave the original code as it is, but for the jumps
  --list            print each procedure that is refused
";

/// What is copied.
#[derive(Default)]
struct Options {
    module: Option<String>,
    part: Option<(usize, usize)>,
    range: Option<(usize, usize)>,
    keep: bool,
    list: bool,
}

impl Options {
    fn takes(&self, number: usize) -> bool {
        self.part.is_none_or(|(nth, of)| number % of == nth)
            && self.range.is_none_or(|(from, to)| (from..to).contains(&number))
    }
}

/// `cargo xtask relocate`
pub fn run(mut words: impl Iterator<Item = OsString>) -> anyhow::Result<ExitCode> {
    let mut options = Options::default();
    let program = loop {
        let Some(word) = words.next() else { bail!("a program is missing\n\n{USAGE}") };
        let name = word.to_string_lossy().into_owned();
        let mut value = || words.next().map(|value| value.to_string_lossy().into_owned()).context("a value is missing");
        let two = |text: String, separator| -> anyhow::Result<(usize, usize)> {
            let (a, b) = text.split_once(separator).with_context(|| format!("{name} takes two numbers"))?;
            Ok((a.parse()?, b.parse()?))
        };
        match &*name {
            "--help" => {
                print!("{USAGE}");
                return Ok(ExitCode::SUCCESS);
            }
            "--module" => options.module = Some(value()?),
            "--half" => options.part = Some(two(value()?, '/')?),
            "--range" => options.range = Some(two(value()?, '-')?),
            "--keep" => options.keep = true,
            "--list" => options.list = true,
            name if name.starts_with("--") => bail!("`{name}` is not an option\n\n{USAGE}"),
            _ => break word,
        }
    };
    let mut command = Command::new(find_program(&program)?);
    command.args(words);
    let mut stepper = Stepper::start(command, StepOptions::default())?;
    to_entry(&mut stepper)?;
    let mut images = Images::default();
    let loaded = images.modules(&Maps::read(stepper.pid())?, Path::new(VDSO));
    let mut report = Report::new(&options);
    let mut placed = Vec::new();
    for module in loaded.modules.iter().filter(|module| is_copied(module, &options)) {
        let Some(image) = images.get(&module.path) else { continue };
        let copies = relocate(&mut stepper, module, &Module::new(image), &mut report)?;
        placed.push((module.clone(), copies));
    }
    report.print();
    run_to_end(&mut stepper, &placed)
}

fn is_copied(module: &Loaded, options: &Options) -> bool {
    let path = module.path.to_string_lossy();
    let name = module.path.file_name().unwrap_or_default().to_string_lossy();
    !name.starts_with("ld-linux") && path != VDSO && options.module.as_ref().is_none_or(|text| path.contains(text))
}

/// Runs a program that has just started up to its entry point: its libraries are there and initialised, and nothing of
/// them is active.
fn to_entry(stepper: &mut Stepper) -> anyhow::Result<()> {
    const AT_ENTRY: u64 = 9;
    const BREAKPOINT: [u8; 1] = [0xcc];
    let pid = stepper.pid();
    let vector = std::fs::read(format!("/proc/{pid}/auxv"))?;
    let words: Vec<u64> =
        vector.chunks_exact(8).filter_map(|word| word.try_into().ok().map(u64::from_le_bytes)).collect();
    let entry = words.chunks_exact(2).find(|pair| pair[0] == AT_ENTRY).context("failed to find the entry point")?[1];
    let mut old = [0];
    ensure!(stepper.read(entry, &mut old) == 1, "failed to read the entry point");
    stepper.write(entry, &BREAKPOINT)?;
    let mut signal = 0;
    loop {
        stepper.go_on(pid, signal)?;
        match stepper.wait(Some(pid))?.1 {
            Stepped::Trap | Stepped::Signal(libc::SIGTRAP) => break,
            Stepped::Signal(other) => signal = other,
            Stepped::Ended(status) => bail!("the program ended with status {status} before its entry point"),
            _ => signal = 0,
        }
    }
    stepper.write(entry, &old)?;
    let mut registers = stepper.registers(pid)?;
    registers.rip = entry;
    stepper.set_registers(pid, &registers)?;
    Ok(())
}

/// Puts the copies of a module's procedures into the program.
fn relocate(
    stepper: &mut Stepper,
    loaded: &Loaded,
    module: &Module,
    report: &mut Report<'_>,
) -> anyhow::Result<Copies> {
    /// `int3`
    const TRAP: u8 = 0xcc;
    let pid = stepper.pid();
    let code: u64 = loaded.mappings.iter().filter(|m| m.executable).map(|mapping| mapping.end - mapping.start).sum();
    // Short jumps grow, and copies are aligned.
    let room = code * 2 + (1 << 20);
    let place = Maps::read(pid)?.free_near(loaded.start()..loaded.end(), room);
    let place = place.with_context(|| format!("no room near {}", loaded.path.display()))?;
    let begun = std::time::Instant::now();
    let mut copies = copy_all(module, RunAddr(place).to_link(loaded.bias));
    report.planning += begun.elapsed();
    let run = |address: LinkAddr| address.0.wrapping_add(loaded.bias);
    let len = run(copies.end) - place;
    ensure!(len <= room, "the copies of {} take {len} bytes, more than {room}", loaded.path.display());
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    let protection = libc::PROT_READ | libc::PROT_EXEC;
    let arguments = [place, len.next_multiple_of(4096), protection as u64, flags as u64, u64::MAX, 0];
    let mapped = stepper.system_call(pid, libc::SYS_mmap, arguments)?;
    ensure!(mapped as u64 == place, "failed to map {len} bytes at {place:#x}: {mapped}");
    report.add(loaded, &mut copies);
    for copy in &copies.copies {
        stepper.write(run(copy.at), &copy.code)?;
        for patch in &copy.patches {
            let mut there = vec![0; patch.old.len()];
            stepper.read(run(patch.at), &mut there);
            ensure!(there == patch.old, "the code at {:#x} of {} is not the file's", patch.at.0, loaded.path.display());
            stepper.write(run(patch.at), &patch.new)?;
        }
        for unused in copy.unused.iter().filter(|_| !report.options.keep) {
            stepper.write(run(unused.start), &vec![TRAP; (unused.end.0 - unused.start.0) as usize])?;
        }
    }
    Ok(copies)
}

/// What was copied.
struct Report<'o> {
    options: &'o Options,
    /// Procedures seen so far, of all modules.
    seen: usize,
    copied: usize,
    copied_bytes: u64,
    refused_bytes: u64,
    code_bytes: u64,
    patches: usize,
    detours: usize,
    at_home: u64,
    refused: BTreeMap<&'static str, usize>,
    /// Shorter than a jump.
    short: usize,
    planning: std::time::Duration,
}

impl<'o> Report<'o> {
    fn new(options: &'o Options) -> Report<'o> {
        Report {
            options,
            seen: 0,
            copied: 0,
            copied_bytes: 0,
            refused_bytes: 0,
            code_bytes: 0,
            patches: 0,
            detours: 0,
            at_home: 0,
            refused: BTreeMap::new(),
            short: 0,
            planning: std::time::Duration::ZERO,
        }
    }

    /// Counts a module's copies, and removes those that were not asked for.
    fn add(&mut self, loaded: &Loaded, copies: &mut Copies) {
        /// Shorter procedures have no room for a jump.
        const SHORTEST_BYTES: u64 = 5;
        for (entry, len, refusal) in &copies.refused {
            if *len < SHORTEST_BYTES {
                self.short += 1;
                continue;
            }
            *self.refused.entry(refusal.reason.text()).or_default() += 1;
            self.refused_bytes += len;
            if self.options.list {
                eprintln!("{}+{:#x}: {refusal}", loaded.path.display(), entry.0);
            }
        }
        let len_bytes = std::mem::take(&mut copies.len_bytes);
        let mut lengths = len_bytes.iter();
        copies.copies.retain(|copy| {
            let len = lengths.next().copied().unwrap_or(0);
            self.seen += 1;
            if !self.options.takes(self.seen - 1) {
                return false;
            }
            if self.options.range.is_some_and(|(from, to)| to - from < 4) {
                eprintln!("number {}: {}+{:#x}", self.seen - 1, loaded.path.display(), copy.entry.0);
            }
            self.copied += 1;
            self.copied_bytes += len;
            self.code_bytes += copy.code.len() as u64;
            self.patches += copy.patches.len();
            self.detours += copy.detours.len();
            self.at_home += u64::from(copy.at_home);
            true
        });
    }

    fn print(&self) {
        let refused: usize = self.refused.values().sum();
        let percent = |part: u64, of: u64| 100.0 * part as f64 / of.max(1) as f64;
        eprintln!(
            "relocate: {} procedures copied, {} numbered, {refused} refused ({:.2}%; {:.2}% of the code), {} below 5 bytes; planned in {:.2} s",
            self.copied,
            self.seen,
            percent(refused as u64, (refused + self.copied) as u64),
            percent(self.refused_bytes, self.refused_bytes + self.copied_bytes),
            self.short,
            self.planning.as_secs_f64()
        );
        eprintln!(
            "relocate: code {} -> {} bytes; {} springboards, {} of two jumps; {} instructions run at home besides calls",
            self.copied_bytes, self.code_bytes, self.patches, self.detours, self.at_home
        );
        for (reason, count) in &self.refused {
            eprintln!("relocate: refused {count}: {reason}");
        }
    }
}

/// Lets the program run to its end. Says where it stood when a trap was hit.
fn run_to_end(stepper: &mut Stepper, placed: &[(Loaded, Copies)]) -> anyhow::Result<ExitCode> {
    let pid = stepper.pid();
    let mut signal = 0;
    loop {
        stepper.go_on(pid, signal)?;
        signal = match stepper.wait(Some(pid))?.1 {
            Stepped::Ended(status) => return Ok(ExitCode::from(status as u8)),
            Stepped::Exec => {
                stepper.reopen_memory()?;
                0
            }
            Stepped::Trap | Stepped::Signal(libc::SIGTRAP) => {
                describe(stepper, placed)?;
                libc::SIGTRAP
            }
            Stepped::Signal(other) => {
                if matches!(other, libc::SIGSEGV | libc::SIGILL | libc::SIGBUS | libc::SIGABRT) {
                    describe(stepper, placed)?;
                }
                other
            }
            _ => 0,
        };
    }
}

/// Where the program stands, as places at home.
fn describe(stepper: &Stepper, placed: &[(Loaded, Copies)]) -> anyhow::Result<()> {
    let registers = stepper.registers(stepper.pid())?;
    let mut line = format!("relocate: signal at {:#x}", registers.rip);
    for (loaded, copies) in placed {
        let at = RunAddr(registers.rip).to_link(loaded.bias);
        let copy = copies.copies.iter().find(|copy| (copy.at.0..copy.at.0 + copy.code.len() as u64).contains(&at.0));
        if let Some(copy) = copy {
            let offset = (at.0 - copy.at.0) as u32;
            let after = copy.origins.partition_point(|origin| origin.0 <= offset);
            let origin = after.checked_sub(1).and_then(|index| copy.origins.get(index));
            line += &format!(
                ", the copy of {}+{:#x}, from {:#x}",
                loaded.path.display(),
                copy.entry.0,
                origin.map_or(0, |origin| origin.1.0)
            );
        } else if (loaded.start()..loaded.end()).contains(&registers.rip) {
            line += &format!(", {}+{:#x}", loaded.path.display(), at.0);
        }
    }
    eprintln!("{line}");
    Ok(())
}

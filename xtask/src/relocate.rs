//! `cargo xtask relocate`: a program whose procedures all run as copies, while the code they came from traps.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, bail, ensure};
use callpath_format::address::{LinkAddr, RunAddr};
use callpath_oracle::modules::{Images, Module as Loaded, VDSO};
use callpath_tables::copies::{Copies, copy_all};
use callpath_tables::module::Module;
use callpath_target::{Maps, SharedMemory, StepOptions, Stepped, Stepper, find_program};
use callpath_x86::rewrite::{Cell, Operation, Place, Plan};

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
  --overwrite       before each block, overwrite all registers and flags that are not live
  --counts FILE     count how often each block runs, and write the counts: address and module, a line each. What two
                    threads count at the same time may be lost
  --list            print each procedure that is refused
";

/// The length of a counter.
const WORD_BYTES: u64 = 8;

/// What is copied.
#[derive(Default)]
struct Options {
    module: Option<String>,
    part: Option<(usize, usize)>,
    range: Option<(usize, usize)>,
    keep: bool,
    list: bool,
    overwrite: bool,
    counts: Option<String>,
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
            "--overwrite" => options.overwrite = true,
            "--counts" => options.counts = Some(value()?),
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
        placed.push(relocate(&mut stepper, module, &Module::new(image), &mut report)?);
    }
    report.print();
    let status = run_to_end(&mut stepper, &placed)?;
    if let Some(path) = &options.counts {
        write_counts(Path::new(path), &placed).with_context(|| format!("failed to write {path}"))?;
    }
    Ok(status)
}

/// A module with its copies.
struct Placed {
    loaded: Loaded,
    copies: Copies,
    /// What its blocks count in, and the address of each.
    counters: Option<(SharedMemory, Vec<LinkAddr>)>,
}

/// The counts of all blocks that ran.
fn write_counts(path: &Path, placed: &[Placed]) -> std::io::Result<()> {
    let mut out = std::io::BufWriter::new(std::fs::File::create(path)?);
    for Placed { loaded, counters, .. } in placed {
        let Some((memory, blocks)) = counters else { continue };
        let mut bytes = vec![0; (blocks.len() + 1) * WORD_BYTES as usize];
        std::fs::File::open(format!("/proc/self/fd/{}", memory.descriptor()))?.read_exact(&mut bytes)?;
        for (block, count) in blocks.iter().zip(bytes.chunks_exact(WORD_BYTES as usize).skip(1)) {
            let count = count.try_into().map_or(0, u64::from_le_bytes);
            if count > 0 {
                writeln!(out, "{count} {:#x} {}", block.0, loaded.path.display())?;
            }
        }
    }
    out.flush()
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
) -> anyhow::Result<Placed> {
    /// `int3`
    const TRAP: u8 = 0xcc;
    let pid = stepper.pid();
    let code: u64 = loaded.mappings.iter().filter(|m| m.executable).map(|mapping| mapping.end - mapping.start).sum();
    // Short jumps grow, copies are aligned, and there is what is inserted.
    let room = code * if report.options.overwrite { 40 } else { 6 } + (1 << 20);
    // More counters than there can be blocks.
    let counters_len = if report.options.counts.is_some() { (code + 1) * WORD_BYTES } else { 0 };
    let place = Maps::read(pid)?.free_near(loaded.start()..loaded.end(), room + counters_len);
    let place = place.with_context(|| format!("no room near {}", loaded.path.display()))?;
    let mut blocks = Vec::new();
    let begun = std::time::Instant::now();
    let link = |address: u64| RunAddr(address).to_link(loaded.bias);
    let mut copies = copy_all(module, link(place), |graph| {
        let mut plan = Plan::default();
        for block in &graph.blocks {
            let at = Place::Before(block.code.start);
            if report.options.overwrite {
                plan.insert(at, Operation::OverwriteDead);
            }
            if report.options.counts.is_some() {
                // The first word is where values wait.
                let cell = place + room + (blocks.len() as u64 + 1) * WORD_BYTES;
                plan.insert(at, Operation::Add(Cell::Shared(link(cell)), 1));
                blocks.push(block.code.start);
            }
        }
        plan.spill = report.options.counts.is_some().then(|| Cell::Shared(link(place + room)));
        plan
    });
    report.planning += begun.elapsed();
    let run = |address: LinkAddr| address.0.wrapping_add(loaded.bias);
    let len = run(copies.end) - place;
    ensure!(len <= room, "the copies of {} take {len} bytes, more than {room}", loaded.path.display());
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    let protection = libc::PROT_READ | libc::PROT_EXEC;
    let arguments = [place, len.next_multiple_of(4096), protection as u64, flags as u64, u64::MAX, 0];
    let mapped = stepper.system_call(pid, libc::SYS_mmap, arguments)?;
    ensure!(mapped as u64 == place, "failed to map {len} bytes at {place:#x}: {mapped}");
    let counters = match report.options.counts {
        Some(_) => Some((map_counters(stepper, place + room, counters_len)?, blocks)),
        None => None,
    };
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
    Ok(Placed { loaded: loaded.clone(), copies, counters })
}

/// Maps memory that we share with the program, at an address of its.
fn map_counters(stepper: &mut Stepper, at: u64, len: u64) -> anyhow::Result<SharedMemory> {
    let pid = stepper.pid();
    let memory = SharedMemory::create(c"callpath-counters", len as usize)?;
    let path = format!("/proc/{}/fd/{}\0", std::process::id(), memory.descriptor());
    // Below the red zone of a thread that has not begun.
    let below = stepper.registers(pid)?.rsp - 4096;
    stepper.write(below, path.as_bytes())?;
    let opened = stepper.system_call(pid, libc::SYS_openat, [libc::AT_FDCWD as u64, below, libc::O_RDWR as u64, 0, 0, 0])?;
    ensure!(opened >= 0, "the program failed to open {path}: {opened}");
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE);
    let arguments = [at, len, protection as u64, flags as u64, opened as u64, 0];
    let mapped = stepper.system_call(pid, libc::SYS_mmap, arguments)?;
    stepper.system_call(pid, libc::SYS_close, [opened as u64, 0, 0, 0, 0, 0])?;
    ensure!(mapped as u64 == at, "failed to map {len} bytes at {at:#x}: {mapped}");
    Ok(memory)
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
fn run_to_end(stepper: &mut Stepper, placed: &[Placed]) -> anyhow::Result<ExitCode> {
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
fn describe(stepper: &Stepper, placed: &[Placed]) -> anyhow::Result<()> {
    let registers = stepper.registers(stepper.pid())?;
    let mut line = format!("relocate: signal at {:#x}", registers.rip);
    for Placed { loaded, copies, .. } in placed {
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

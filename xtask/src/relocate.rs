//! `cargo xtask relocate`: a program whose procedures all run as copies, while the code they came from traps.

mod pairs;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, bail, ensure};
use callpath_oracle::relocation::{Calls, Count, Options, Relocation, Stands};
use callpath_target::find_program;

/// What `cargo xtask relocate --help` says.
const USAGE: &str = "\
cargo xtask relocate [OPTION]... PROGRAM [ARGUMENT]...

Runs a program whose procedures, and those of its libraries, all run as copies. What the copies leave of the original
code traps. The program's output goes where it always does; what was copied, and why the rest was not, to standard error.
The exit status is the program's. The loader, the vdso, libraries that are loaded later and programs that it executes stay
as they are.

  --module TEXT     copy only modules whose path contains TEXT
  --range N-M       copy only procedures number N up to M, counted over all modules: to find one that is copied wrongly
  --keep            leave the original code as it is, but for the jumps
  --calls WHERE     `home` (the default): the copies' calls are made in the original code; `copy`: in the copies, where
                    unwinders can be told and the callee does not look where it was called from
  --overwrite       before each block, overwrite all registers and flags that are not live
  --entries         count how often each procedure is entered
  --counts FILE     count how often each block runs, and write count, address and module, a line each. What two threads
                    count at the same time may be lost
  --steps N         run N instructions one by one, and print how many of them were in copies
  --list            print each procedure that is refused
  --pairs N         run it N times bare and N times as copies, in turn and without its output, and print the ratio of
                    the user times
  --suite NAMES     with --pairs, instead of a program: these programs of the suite (`cargo xtask suite --list`), or
                    `all`; prints a table
";

/// Shorter procedures have no room for a jump.
const SHORTEST_BYTES: u64 = 5;

/// `cargo xtask relocate`
pub fn run(mut words: impl Iterator<Item = OsString>) -> anyhow::Result<ExitCode> {
    let mut options = Options::default();
    let (mut counts, mut steps, mut list, mut pairs, mut suite) = (None, 0, false, 0, None);
    let program = loop {
        let Some(word) = words.next() else { break None };
        let name = word.to_string_lossy().into_owned();
        let mut value = || {
            let value = words.next().with_context(|| format!("{name} needs a value"))?;
            Ok::<_, anyhow::Error>(value.to_string_lossy().into_owned())
        };
        match &*name {
            "--help" => {
                print!("{USAGE}");
                return Ok(ExitCode::SUCCESS);
            }
            "--module" => options.module = Some(value()?),
            "--range" => {
                let text = value()?;
                let (from, to) = text.split_once('-').context("--range takes two numbers, N-M")?;
                options.procedures = Some(from.parse()?..to.parse()?);
            }
            "--keep" => options.keep = true,
            "--calls" => {
                options.calls = match &*value()? {
                    "home" => Calls::Home,
                    "copy" => Calls::Copy,
                    other => bail!("--calls takes home or copy, not {other}"),
                }
            }
            "--overwrite" => options.overwrite = true,
            "--enlarge" => options.enlarge = true,
            "--clones" => options.clones = true,
            "--entries" => options.entries = true,
            "--counts" => counts = Some(value()?),
            "--steps" => steps = value()?.parse().context("--steps takes a number")?,
            "--list" => list = true,
            "--pairs" => pairs = value()?.parse().context("--pairs takes a number")?,
            "--suite" => suite = Some(value()?),
            name if name.starts_with("--") => bail!("`{name}` is not an option\n\n{USAGE}"),
            _ => break Some(word),
        }
    };
    options.count = counts.is_some();
    let program = match (program, suite) {
        (None, Some(names)) => {
            ensure!(pairs > 0, "--suite needs --pairs N");
            return pairs::of_suite(Some(&*names).filter(|names| *names != "all"), &options, pairs);
        }
        (Some(program), None) => find_program(&program)?,
        (Some(_), Some(_)) => bail!("--suite takes the place of a program\n\n{USAGE}"),
        (None, None) => bail!("a program is missing\n\n{USAGE}"),
    };
    let arguments: Vec<OsString> = words.collect();
    let command = || {
        let mut command = Command::new(&program);
        command.args(&arguments);
        command
    };
    if pairs > 0 {
        return pairs::of_program(&command, &options, pairs);
    }
    let mut relocation = Relocation::start(command(), &options)?;
    print_copies(&relocation, list);
    if steps > 0 {
        print_steps(&mut relocation, steps)?;
    }
    let status = relocation.run_to_end(|trouble| eprintln!("relocate: {trouble}"))?;
    if let Some(path) = &counts {
        write_counts(Path::new(path), &relocation.counts()?).with_context(|| format!("failed to write {path}"))?;
    }
    Ok(ExitCode::from(status as u8))
}

/// What was copied, and why the rest was not.
fn print_copies(relocation: &Relocation, list: bool) {
    let mut reasons: BTreeMap<&'static str, usize> = BTreeMap::new();
    let (mut refused_bytes, mut short) = (0, 0);
    for module in &relocation.modules {
        for refused in &module.copies.refused {
            if refused.len_bytes < SHORTEST_BYTES {
                short += 1;
                continue;
            }
            *reasons.entry(refused.refusal.reason.text()).or_default() += 1;
            refused_bytes += refused.len_bytes;
            if list {
                eprintln!("{}+{:#x}: {}", module.loaded.path.display(), refused.entry.0, refused.refusal);
            }
        }
    }
    let made = || relocation.modules.iter().flat_map(|module| &module.copies.made);
    let (copied, refused) = (made().count(), reasons.values().sum::<usize>());
    let from: u64 = made().map(|made| made.len_bytes).sum();
    let to: usize = made().map(|made| made.copy.code.len()).sum();
    let percent = |part: u64, of: u64| 100.0 * part as f64 / of.max(1) as f64;
    eprintln!(
        "relocate: {copied} procedures copied, {refused} refused ({:.2}%; {:.2}% of the code), {short} below {SHORTEST_BYTES} bytes \
         refused; planned in {:.2} s",
        percent(refused as u64, (refused + copied) as u64),
        percent(refused_bytes, refused_bytes + from),
        relocation.planning.as_secs_f64()
    );
    eprintln!(
        "relocate: {from} bytes of code, copies {to}; {} springboards, {} of two jumps; {} instructions stay \
         besides calls; {} calls are made in copies, {} from copies for want of room",
        made().flat_map(|made| &made.copy.patches).filter(|patch| patch.is_springboard()).count(),
        made().map(|made| made.copy.detours.len()).sum::<usize>(),
        made().map(|made| u64::from(made.copy.at_home)).sum::<u64>(),
        made().map(|made| made.copy.returns.len()).sum::<usize>(),
        made().map(|made| made.copy.from_copy.len()).sum::<usize>()
    );
    for (module, at) in &relocation.looking {
        let module = module.display();
        eprintln!(
            "relocate: calls through pointers stay: one may be of {module}+{:#x}, which looks where it was called from",
            at.0
        );
    }
    for (reason, count) in &reasons {
        eprintln!("relocate: refused {count}: {reason}");
    }
}

/// Runs so many instructions one by one, and prints where they were.
fn print_steps(relocation: &mut Relocation, steps: u64) -> anyhow::Result<()> {
    let (mut run, mut copies, mut springboards) = (0u64, 0u64, 0u64);
    while run < steps {
        let Some(at) = relocation.step()? else { break };
        run += 1;
        match relocation.stands(at) {
            Stands::Copy(_) => copies += 1,
            Stands::Springboard => springboards += 1,
            Stands::Home => {}
        }
    }
    let home = run - copies - springboards;
    let percent = |part: u64| 100.0 * part as f64 / run.max(1) as f64;
    eprintln!(
        "relocate: of {run} instructions {:.2}% in copies, {:.2}% springboards, {:.2}% original code (calls, the loader, stubs)",
        percent(copies),
        percent(springboards),
        percent(home)
    );
    Ok(())
}

/// A line for each block that ran.
fn write_counts(path: &Path, counts: &[Count]) -> std::io::Result<()> {
    let mut out = std::io::BufWriter::new(std::fs::File::create(path)?);
    for Count { module, block, count } in counts {
        writeln!(out, "{count} {:#x} {}", block.0, module.display())?;
    }
    out.flush()
}

//! What the analysis calls dead may be changed: programs are run instruction by instruction, registers and flags that
//! are not live where a block begins are overwritten, and the program must not notice.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use callpath_format::address::RunAddr;
use callpath_oracle::modules::{Images, Modules, VDSO};
use callpath_tables::graphs::with_flow;
use callpath_tables::module::Module;
use callpath_target::{Maps, StepOptions, Stepped, Stepper};
use callpath_x86::graph::{ProcedureGraph, merged};
use callpath_x86::liveness::{Convention, LiveSet, Liveness};

/// How much is run.
#[derive(Clone, Copy)]
struct Extent {
    /// Instructions to run, at most.
    steps: u64,
    /// How often each block is disturbed.
    visits: u32,
}

const RSP: usize = 4;

/// Where each block of a file begins, and what is live there.
fn blocks(images: &mut Images, path: &Path) -> HashMap<u64, LiveSet> {
    let Some(image) = images.get(path) else { return HashMap::new() };
    with_flow(&Module::new(image), |flow, _| {
        let graphs: Vec<ProcedureGraph> = merged((0..flow.len()).map(|procedure| flow.graph(procedure)).collect());
        let liveness = Liveness::new(flow, &graphs, Convention::SystemV);
        let mut found = HashMap::new();
        for (number, graph) in graphs.iter().enumerate() {
            for (block, code) in (0u32..).zip(&graph.blocks) {
                let live = liveness.at_block(number, block);
                // Blocks that overlap are entered by different ways.
                found.entry(code.code.start.0).and_modify(|all: &mut LiveSet| *all = all.with(live)).or_insert(live);
            }
        }
        found
    })
}

/// Numbers that look random, always the same ones.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state ^ *state >> 29
}

/// Overwrites what is dead. How many registers that were, flags counted as one.
fn disturb(registers: &mut libc::user_regs_struct, live: LiveSet, random: &mut u64) -> u32 {
    /// Overflow, sign, zero, auxiliary carry, parity, carry.
    const ARITHMETIC: u64 = 0x8d5;
    let mut disturbed = 0;
    let r = registers;
    let all = [
        &mut r.rax, &mut r.rcx, &mut r.rdx, &mut r.rbx, &mut r.rsp, &mut r.rbp, &mut r.rsi, &mut r.rdi, &mut r.r8,
        &mut r.r9, &mut r.r10, &mut r.r11, &mut r.r12, &mut r.r13, &mut r.r14, &mut r.r15,
    ];
    for (number, register) in all.into_iter().enumerate() {
        if live.general() >> number & 1 == 0 && number != RSP {
            *register = next(random);
            disturbed += 1;
        }
    }
    if !live.has_flags() {
        r.eflags ^= next(random) & ARITHMETIC;
        disturbed += 1;
    }
    disturbed
}

/// How a disturbed run went.
struct Disturbed {
    blocks: usize,
    times: usize,
    registers: u64,
    /// None if it was not run to its end.
    status: Option<i32>,
    last: String,
}

/// The blocks of the files that were met.
#[derive(Default)]
struct Known {
    images: Images,
    blocks: HashMap<PathBuf, HashMap<u64, LiveSet>>,
}

/// Disturbs it at most so often.
fn run_disturbed(command: Command, known: &mut Known, extent: Extent, most: usize) -> Disturbed {
    let Known { images, blocks: known } = known;
    let mut visits: HashMap<u64, u32> = HashMap::new();
    let mut random = 1;
    let mut stepper = Stepper::start(command, StepOptions::default()).expect("the program starts");
    let pid = stepper.pid();
    let mut modules = Modules::default();
    let mut run = Disturbed { blocks: 0, times: 0, registers: 0, status: None, last: String::new() };
    for _ in 0..extent.steps {
        let mut registers = stepper.registers(pid).expect("it stands still");
        let at = RunAddr(registers.rip);
        // A file that was mapped since: it has no code before it is run.
        let found = modules.code_at(at).or_else(|| {
            modules = images.modules(&Maps::read(pid).expect("its maps"), Path::new(VDSO));
            modules.code_at(at)
        });
        if let Some((index, addr)) = found
            && modules.modules[index].path != Path::new(VDSO)
        {
            let path = modules.modules[index].path.clone();
            let blocks = known.entry(path).or_insert_with_key(|path| blocks(images, path));
            if let Some(&live) = blocks.get(&addr.0) {
                let visits = visits.entry(registers.rip).or_default();
                *visits += 1;
                run.blocks += usize::from(*visits == 1);
                if *visits <= extent.visits && run.times < most {
                    run.times += 1;
                    run.registers += u64::from(disturb(&mut registers, live, &mut random));
                    stepper.set_registers(pid, &registers).expect("they are written");
                    run.last = format!("{}+{:#x} ({live:?})", modules.modules[index].path.display(), addr.0);
                }
            }
        }
        stepper.step(pid, 0).expect("it continues");
        match stepper.wait(Some(pid)).expect("it stops").1 {
            Stepped::Ended(status) => {
                run.status = Some(status);
                return run;
            }
            Stepped::Signal(signal) => {
                run.status = Some(128 + signal);
                return run;
            }
            _ => {}
        }
    }
    // It is killed with the stepper.
    run
}

/// Runs it bare and disturbed: its output must be the same, as far as it comes. If it is not,
/// names the block that was disturbed wrongly.
fn check(arguments: &[&str], extent: Extent, known: &mut Known) -> Disturbed {
    let directory = tempfile::tempdir().unwrap();
    let output = |name: &str| directory.path().join(name);
    let command = |name: &str| {
        let mut command = Command::new(arguments[0]);
        command.args(&arguments[1..]).env_clear().env("LC_ALL", "C").stdin(Stdio::null()).stderr(Stdio::null());
        command.stdout(File::create(output(name)).unwrap());
        command
    };
    let bare = command("bare").status().unwrap().code();
    let mut run = |most: usize| {
        let run = run_disturbed(command("disturbed"), known, extent, most);
        let read = |name: &str| std::fs::read(output(name)).unwrap();
        let is_same = match run.status {
            Some(_) => run.status == bare && read("disturbed") == read("bare"),
            None => read("bare").starts_with(&read("disturbed")),
        };
        (run, is_same)
    };
    let (all, is_same) = run(usize::MAX);
    if !is_same {
        let (mut right, mut wrong) = (0, all.times);
        while right + 1 < wrong {
            let middle = right.midpoint(wrong);
            if run(middle).1 { right = middle } else { wrong = middle }
        }
        panic!("{arguments:?} continues differently after its block at {}", run(wrong).0.last);
    }
    println!("{arguments:?}: {} blocks, {} registers, status {:?}", all.blocks, all.registers, all.status);
    all
}

fn check_all(programs: &[&[&str]], extent: Extent) {
    let mut known = Known::default();
    for arguments in programs.iter().filter(|arguments| Path::new(arguments[0]).exists()) {
        let run = check(arguments, extent, &mut known);
        // The loader and the C library alone have hundreds.
        let Disturbed { blocks, registers, .. } = run;
        assert!(blocks > 300 && registers > blocks as u64, "{blocks} blocks, {registers} registers");
    }
}

#[test]
fn dead_registers_and_flags_may_be_changed() {
    let programs: [&[&str]; 2] = [&["/bin/ls", "-la", "/usr"], &["/bin/gzip", "-9", "-c", "/etc/passwd"]];
    check_all(&programs, Extent { steps: 200_000, visits: 5 });
}

/// `cargo test --release -p callpath-oracle --test liveness -- --ignored --nocapture`
#[test]
#[ignore = "takes minutes: `cargo xtask test --long`"]
fn of_more_programs() {
    let programs: [&[&str]; 8] = [
        &["/bin/true"],
        &["/bin/ls", "-la", "/usr"],
        &["/usr/bin/sort", "-r", "/etc/passwd"],
        &["/bin/gzip", "-9", "-c", "/etc/passwd"],
        &["/usr/bin/awk", "BEGIN { for (i = 0; i < 300; i++) s = s \" \" i * 1.5; print s }"],
        &["/usr/bin/perl", "-e", "print join(',', map { $_ * 3 } grep { $_ % 7 } 1 .. 99), \"\\n\""],
        &["/usr/bin/openssl", "dgst", "-sha256", "/etc/passwd"],
        &["/usr/bin/git", "--version"],
    ];
    check_all(&programs, Extent { steps: 3_000_000, visits: 20 });
}

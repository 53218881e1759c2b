//! Programs whose procedures all run as copies behave as they do bare, while the code that they came from traps; also
//! when all registers and flags that are not live are overwritten before each block; and blocks count how often they
//! run.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use callpath_format::address::{LinkAddr, RunAddr};
use callpath_format::frame::CloneNumber;
use callpath_oracle::relocation::{Calls, Options, Passes, Relocated, Relocation, Stands};
use callpath_target::{Edits, StepOptions, Stepped, Stepper, Write};
use callpath_x86::rewrite::Place;

#[path = "relocation/unwinding.rs"]
mod unwinding;

fn compile(compiler: &str, source: &str, options: &[&str], into: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(source);
    let program = into.join(format!("{}{}", source.file_stem().unwrap().display(), options.concat()));
    let status = Command::new(compiler).args(options).arg(&source).arg("-o").arg(&program).status().unwrap();
    assert!(status.success());
    program
}

fn command(arguments: &[&str], output: &Path) -> Command {
    let mut command = Command::new(arguments[0]);
    command.args(&arguments[1..]).env_clear().env("LC_ALL", "C").env("PATH", "/usr/bin:/bin");
    command.stdin(Stdio::null()).stdout(File::create(output).unwrap());
    command
}

/// Runs it bare and as copies: the output and the exit status must be the same.
fn check(arguments: &[&str], options: &Options) -> Relocation {
    let directory = tempfile::tempdir().unwrap();
    let output = |name: &str| directory.path().join(name);
    let bare = command(arguments, &output("bare")).status().unwrap();
    let mut relocation = Relocation::start(command(arguments, &output("copies")), options).unwrap();
    let mut troubles = Vec::new();
    let status = relocation.run_to_end(|trouble| troubles.push(trouble)).unwrap();
    assert_eq!(troubles, Vec::<String>::new(), "{arguments:?} {options:?}");
    assert_eq!(Some(status), bare.code(), "{arguments:?} {options:?}");
    let read = |name: &str| String::from_utf8_lossy(&std::fs::read(output(name)).unwrap()).into_owned();
    assert_eq!(read("copies"), read("bare"), "{arguments:?} {options:?}");
    relocation
}

/// With calls at home and in copies, what is left of the original code as traps, and with dead registers overwritten.
fn check_all(arguments: &[&str]) {
    let plain = check(arguments, &Options::default());
    // The C library is among them.
    let made: usize = plain.modules.iter().map(|module| module.copies.made.len()).sum();
    let refused =
        plain.modules.iter().flat_map(|module| &module.copies.refused).filter(|refused| refused.len_bytes >= 5);
    let refused = refused.count();
    assert!(made > 1000 && refused * 100 < made * 3, "{arguments:?}: {made} copies, {refused} refused");
    for calls in [Calls::Home, Calls::Copy] {
        check(arguments, &Options { overwrite: true, calls, ..Options::default() });
    }
    let enlarged = Options { calls: Calls::Copy, enlarge: true, overwrite: true, ..Options::default() };
    check(arguments, &enlarged);
    check_clones(arguments);
    let in_copies = check(arguments, &Options { calls: Calls::Copy, ..Options::default() });
    assert!(calls_in_copies(&in_copies) > 3000 && calls_in_copies(&plain) == 0, "{arguments:?}");
}

/// With clones that most calls lead to, and larger frames.
fn check_clones(arguments: &[&str]) {
    let cloned = Options { calls: Calls::Copy, enlarge: true, overwrite: true, clones: true, ..Options::default() };
    let relocation = check(arguments, &cloned);
    assert!(relocation.clones > 1000, "{arguments:?}: {} clones", relocation.clones);
    // Many of them have frames of another size than the procedure's own copy.
    let differing = relocation.modules.iter().map(|module| {
        let made = &module.copies.made;
        let (own, clones): (Vec<_>, Vec<_>) = made.iter().partition(|made| made.clone == CloneNumber::NONE);
        let own: HashMap<_, _> = own.iter().map(|made| (made.copy.entry, made.copy.enlarged_at_home)).collect();
        clones.iter().filter(|made| own.get(&made.copy.entry) != Some(&made.copy.enlarged_at_home)).count()
    });
    let differing: usize = differing.sum();
    assert!(differing > 500, "{arguments:?}: {differing} clones have frames of another size");
}

fn calls_in_copies(relocation: &Relocation) -> usize {
    let made = relocation.modules.iter().flat_map(|module| &module.copies.made);
    made.map(|made| made.copy.returns.len()).sum()
}

#[test]
fn frames_are_left_as_ever() {
    let directory = tempfile::tempdir().unwrap();
    for options in [&["-O2", "-pthread"][..], &["-O0", "-pthread"], &["-O2", "-pthread", "-static-libgcc", "-no-pie"]] {
        let program = compile("g++", "relocation/leaves.cpp", options, directory.path());
        check_all(&[program.to_str().unwrap()]);
    }
}

/// Exceptions, ends of threads and panics pass frames of copies that called in copies: they clean up, land, and are thrown
/// again as ever. Wrong call frame information or a wrong table shows in what the program prints, or ends it.
#[test]
fn what_unwinds_passes_calls_in_copies() {
    let directory = tempfile::tempdir().unwrap();
    let gcc: [&[&str]; 3] = [
        &["-O2", "-pthread", "-std=c++14", "-w"],
        &["-O0", "-pthread", "-std=c++17", "-w"],
        &["-Os", "-pthread", "-std=c++14", "-w", "-static-libgcc", "-no-pie", "-fno-omit-frame-pointer"],
    ];
    for options in gcc {
        let program = compile("g++", "relocation/unwinds.cpp", options, directory.path());
        for (calls, overwrite) in [(Calls::Home, false), (Calls::Copy, false), (Calls::Home, true), (Calls::Copy, true)]
        {
            let options = &Options { calls, overwrite, ..Options::default() };
            let relocation = check(&[program.to_str().unwrap()], options);
            assert_eq!(calls_in_copies(&relocation) > 3000, calls == Calls::Copy, "{options:?}");
        }
        let options = &Options { calls: Calls::Copy, enlarge: true, ..Options::default() };
        let relocation = check(&[program.to_str().unwrap()], options);
        let copies = relocation.modules.iter().flat_map(|module| &module.copies.made);
        assert!(copies.filter(|made| made.copy.enlarged_at_home > 0).count() > 3000, "{options:?}");
        check_clones(&[program.to_str().unwrap()]);
    }
    let program = compile("g++", "relocation/cancels.cpp", gcc[0], directory.path());
    for overwrite in [false, true] {
        check(&[program.to_str().unwrap()], &Options { calls: Calls::Copy, overwrite, ..Options::default() });
    }
    let program = compile("rustc", "relocation/panics.rs", &["-O"], directory.path());
    check_all(&[program.to_str().unwrap()]);
}

/// backtrace() and an unwinder's own walk give as many frames as bare, the same ones: where a frame is in a copy, it is
/// behind the copy of the call that the bare one is behind. Also from a signal handler.
#[test]
fn a_walk_finds_the_same_frames_in_copies() {
    let directory = tempfile::tempdir().unwrap();
    let program = compile("g++", "relocation/unwinds.cpp", &["-O2", "-pthread", "-std=c++14", "-w"], directory.path());
    let arguments = [program.to_str().unwrap(), "and frames"];
    let frames = |name: &str| -> Vec<u64> {
        let text = std::fs::read_to_string(directory.path().join(name)).unwrap();
        let frames = text.lines().filter_map(|line| line.strip_prefix("frame 0x"));
        frames.map(|frame| u64::from_str_radix(frame, 16).unwrap()).collect()
    };
    // Both without randomised addresses.
    let mut bare = Stepper::start(command(&arguments, &directory.path().join("bare")), StepOptions::default()).unwrap();
    let pid = bare.pid();
    bare.run_to_entry().unwrap();
    let mut signal = 0;
    loop {
        bare.go_on(pid, signal).unwrap();
        signal = match bare.wait(Some(pid)).unwrap().1 {
            Stepped::Ended(_) => break,
            Stepped::Signal(signal) => signal,
            _ => 0,
        };
    }
    let options = Options { calls: Calls::Copy, ..Options::default() };
    let mut copies = Relocation::start(command(&arguments, &directory.path().join("copies")), &options).unwrap();
    copies.run_to_end(|trouble| panic!("{trouble}")).unwrap();
    let (expected, found) = (frames("bare"), frames("copies"));
    assert_eq!(found.len(), expected.len());
    assert!(expected.len() > 20, "{expected:x?}");
    let mut in_copies = 0;
    for (found, expected) in found.iter().zip(&expected) {
        match copies.stands(RunAddr(found - 1)) {
            Stands::Copy(call) => {
                in_copies += 1;
                assert!(
                    (call.0 + 1..call.0 + 9).contains(expected),
                    "{found:x}: behind {:x}, not {expected:x}",
                    call.0
                );
            }
            _ => assert_eq!(found, expected),
        }
    }
    assert!(in_copies > 15, "{in_copies} of {}", found.len());
}

#[test]
fn programs_of_the_system_do_their_work() {
    let programs: [&[&str]; 5] = [
        &["/bin/ls", "-la", "/usr"],
        &["/usr/bin/sort", "-r", "/etc/passwd"],
        &["/bin/gzip", "-9", "-c", "/etc/services"],
        &["/bin/bash", "-c", "for i in 1 2 3; do x=$x$i; done; echo $x `echo sub`; (exit 3); echo $?"],
        &["/usr/bin/perl", "-e", "print join(',', map { $_ * 3 } grep { $_ % 7 } 1 .. 99), eval { die 5 }, $@"],
    ];
    for arguments in programs.iter().filter(|arguments| Path::new(arguments[0]).exists()) {
        check_all(arguments);
    }
}

/// The truth comes from a bare run, one instruction at a time.
#[test]
fn blocks_count_what_single_steps_count() {
    let directory = tempfile::tempdir().unwrap();
    let program = compile("gcc", "relocation/steps.c", &["-O2"], directory.path());
    let arguments = [program.to_str().unwrap()];
    let options = Options { count: true, module: Some(arguments[0].to_owned()), ..Options::default() };
    let relocation = check(&arguments, &options);
    let counts = relocation.counts().unwrap();
    let bias = relocation.modules[0].loaded.bias;

    let mut stepper =
        Stepper::start(command(&arguments, &directory.path().join("steps")), StepOptions::default()).unwrap();
    let pid = stepper.pid();
    // Neither counts what its libraries' constructors do.
    let mut at = stepper.run_to_entry().unwrap().0;
    let mut steps: HashMap<u64, u64> = HashMap::new();
    loop {
        *steps.entry(at).or_default() += 1;
        stepper.step(pid, 0).unwrap();
        if let Stepped::Ended(_) = stepper.wait(Some(pid)).unwrap().1 {
            break;
        }
        at = stepper.registers(pid).unwrap().rip;
    }
    assert!(counts.len() > 30, "{counts:?}");
    for count in &counts {
        let address = count.block.0 + bias;
        assert_eq!(steps.get(&address), Some(&count.count), "the block at {:#x}", count.block.0);
    }
    // No block was left out that ran.
    let blocks: Vec<u64> = counts.iter().map(|count| count.block.0 + bias).collect();
    let made = &relocation.modules[0].copies.made;
    let entries = made.iter().map(|made| made.copy.entry.0 + bias).filter(|entry| steps.contains_key(entry));
    for entry in entries {
        assert!(blocks.contains(&entry), "the procedure at {entry:#x} ran and was not counted");
    }
}

/// A step from one instruction to another, of a bare run.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Step {
    from: u64,
    to: u64,
    pushes: bool,
}

/// How often each step was taken in a bare run, one instruction at a time.
fn steps_of(arguments: &[&str]) -> HashMap<Step, u64> {
    let mut stepper = Stepper::start(command(arguments, Path::new("/dev/null")), StepOptions::default()).unwrap();
    let pid = stepper.pid();
    let (mut from, mut rsp) = (0, 0);
    stepper.run_to_entry().unwrap();
    let mut steps: HashMap<Step, u64> = HashMap::new();
    loop {
        let registers = stepper.registers(pid).unwrap();
        let pushes = registers.rsp.wrapping_add(8) == rsp;
        *steps.entry(Step { from, to: registers.rip, pushes }).or_default() += 1;
        (from, rsp) = (registers.rip, registers.rsp);
        stepper.step(pid, 0).unwrap();
        if let Stepped::Ended(_) = stepper.wait(Some(pid)).unwrap().1 {
            return steps;
        }
    }
}

/// The truth comes from a bare run, one instruction at a time.
#[test]
fn procedures_are_left_as_often_as_they_are_entered() {
    let directory = tempfile::tempdir().unwrap();
    for (source, least) in [("relocation/exits.c", 12), ("relocation/steps.c", 5)] {
        let program = compile("gcc", source, &["-O2"], directory.path());
        let arguments = [program.to_str().unwrap()];
        let options = Options { passes: true, module: Some(arguments[0].to_owned()), ..Options::default() };
        let relocation = check(&arguments, &options);
        let passes = relocation.passes().unwrap();
        let bias = relocation.modules[0].loaded.bias;
        let steps = steps_of(&arguments);
        let own = own_procedures(&program);
        let at = |address: LinkAddr| address.0 + bias;
        let came = |to: LinkAddr, is_way: &dyn Fn(&Step) -> bool| -> u64 {
            steps.iter().filter(|(step, _)| step.to == at(to) && is_way(step)).map(|(_, count)| count).sum()
        };
        let (mut entered, mut left): (HashMap<LinkAddr, u64>, HashMap<LinkAddr, u64>) = Default::default();
        let mut edges = 0;
        // What the linker adds has no bounds, and the program's beginning does not return.
        for Passes { procedure, place, count, .. } in passes.iter().filter(|passes| own.contains(&passes.procedure.0)) {
            let code = at(*procedure)..at(*procedure) + len_of(&relocation, *procedure);
            let expected = match *place {
                Place::Entry => came(*procedure, &|step| step.pushes || !code.contains(&step.from)),
                Place::Before(exit) => came(exit, &|_| true),
                Place::Edge(_, to) => came(to, &|step| code.contains(&step.from)),
                Place::AfterCall(_) | Place::Arrival(_) => unreachable!(),
            };
            assert_eq!(*count, expected, "{place:x?} of {procedure:x?}");
            let side = if *place == Place::Entry { &mut entered } else { &mut left };
            *side.entry(*procedure).or_default() += count;
            edges += usize::from(matches!(place, Place::Edge(..)));
        }
        assert_eq!(entered, left);
        assert!(entered.len() >= least, "{entered:x?}");
        assert!(edges >= 2 || source != "relocation/exits.c", "{passes:x?}");
    }
}

/// Also those that begin with a call, which leaves no room: exceptions and backtrace() pass it as ever. The truth comes
/// from a bare run, one instruction at a time.
#[test]
fn procedures_that_begin_with_calls_count_their_entries() {
    let directory = tempfile::tempdir().unwrap();
    for options in [&["-O2"][..], &["-O2", "-no-pie"], &["-O0", "-fno-plt"]] {
        let program = compile("g++", "relocation/wrappers.cpp", options, directory.path());
        let program = program.to_str().unwrap();
        let of_program = Options { entries: true, module: Some(program.to_owned()), ..Options::default() };
        for counted in [Options { module: None, ..of_program.clone() }, Options { passes: true, ..of_program.clone() }]
        {
            check(&[program], &counted);
        }
        let arguments = [program, "throws nothing"];
        let relocation = check(&arguments, &of_program);
        let Relocated { copies, loaded, .. } = &relocation.modules[0];
        let counts: HashMap<u64, u64> =
            relocation.passes().unwrap().iter().map(|passes| (passes.procedure.0, passes.count)).collect();
        let steps = steps_of(&arguments);
        let own = own_procedures(Path::new(program));
        let refused: Vec<u64> = copies.refused.iter().map(|refused| refused.entry.0).collect();
        assert!(!own.iter().any(|entry| refused.contains(entry)), "{:?}", copies.refused);
        for made in copies.made.iter().filter(|made| own.contains(&made.copy.entry.0)) {
            let entry = made.copy.entry.0;
            let code = entry + loaded.bias..entry + loaded.bias + made.len_bytes;
            let is_entry = |step: &Step| step.to == code.start && (step.pushes || !code.contains(&step.from));
            let expected: u64 = steps.iter().filter(|(step, _)| is_entry(step)).map(|(_, count)| count).sum();
            assert_eq!(counts.get(&entry).copied().unwrap_or(0), expected, "{options:?} {entry:#x}");
        }
        // Those of the program that are in assembly, but that one which jumps.
        let from_copy = copies.made.iter().filter(|made| !made.copy.from_copy.is_empty());
        let from_copy: Vec<u64> = from_copy.map(|made| made.copy.entry.0).collect();
        let counted = from_copy.iter().filter(|entry| counts.contains_key(entry)).count();
        assert!(from_copy.len() >= 6 && counted >= 5, "{from_copy:x?} {counts:x?}");
    }
}

/// The addresses of a program's procedures, by nm, but those that the linker adds.
fn own_procedures(program: &Path) -> Vec<u64> {
    let output = Command::new("nm").arg(program).output().unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    let symbols = lines.lines().filter_map(|line| line.split_once(" t ").or_else(|| line.split_once(" T ")));
    let of_linker = |name: &str| name.starts_with('_') || name == "frame_dummy" || name.ends_with("_tm_clones");
    symbols.filter(|(_, name)| !of_linker(name)).map(|(at, _)| u64::from_str_radix(at, 16).unwrap()).collect()
}

/// The length of a procedure that is in one part, bytes.
fn len_of(relocation: &Relocation, procedure: LinkAddr) -> u64 {
    let made = relocation.modules[0].copies.made.iter().find(|made| made.copy.entry == procedure);
    made.map_or(0, |made| made.len_bytes)
}

/// Landing pads of calls that have pushed arguments.
#[test]
fn landing_pads_that_arguments_are_popped_for() {
    let directory = tempfile::tempdir().unwrap();
    for options in [&["-O2"][..], &["-O1", "-fno-omit-frame-pointer"], &["-Os"], &["-O0"]] {
        let source = "../../../tests/nasty/pushes.cpp";
        let program = compile("g++", source, options, directory.path());
        let options = Options { calls: Calls::Copy, enlarge: true, overwrite: true, ..Options::default() };
        let relocation = check(&[program.to_str().unwrap()], &options);
        let own = relocation.modules.iter().find(|module| module.loaded.path == program).unwrap();
        let enlarged = own.copies.made.iter().filter(|made| made.copy.enlarged_at_home > 0).count();
        assert!(enlarged >= 6, "{enlarged} of {}", own.copies.made.len());
    }
}

/// What is called through a table that the loader has filled for good is called in its copy, not by the jump at its entry.
#[test]
fn calls_through_closed_tables_arrive_in_copies() {
    let directory = tempfile::tempdir().unwrap();
    let program = compile("gcc", "relocation/stubs.c", &["-O2", "-Wl,-z,relro,-z,now"], directory.path());
    let options = Options { calls: Calls::Copy, ..Options::default() };
    let command = command(&[program.to_str().unwrap()], Path::new("/dev/null"));
    let mut relocation = Relocation::start(command, &options).unwrap();
    let own = relocation.modules.iter().find(|module| module.loaded.path == program).unwrap();
    let calls = own.copies.made.iter().flat_map(|made| &made.copy.through_slots);
    let calls: Vec<RunAddr> = calls.map(|at| RunAddr(at.0.wrapping_add(own.loaded.bias))).collect();
    let (mut arrived, mut passed) = (0, 0);
    let mut is_call = false;
    while let Some(at) = relocation.step().unwrap() {
        let stands = relocation.stands(at);
        if is_call {
            arrived += u32::from(matches!(stands, Stands::Copy(_)));
            passed += u32::from(stands == Stands::Springboard);
        }
        is_call = matches!(stands, Stands::Copy(origin) if calls.contains(&origin));
    }
    assert!(arrived >= 20 && passed == 0, "{options:?}: {arrived} in copies, {passed} at home");
}

/// A routine called everywhere overwrites flags and what is below rsp; the program does not notice.
#[test]
fn routines_that_are_called_change_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let program = compile("gcc", "relocation/exits.c", &["-O2"], directory.path());
    let options = Options { routine: true, ..Options::default() };
    let programs: [&[&str]; 3] =
        [&[program.to_str().unwrap()], &["/usr/bin/sha256sum", "/etc/services"], &["/bin/ls", "-la", "/usr"]];
    for arguments in programs {
        let relocation = check(arguments, &options);
        let copies = relocation.modules.iter().map(|module| &module.copies);
        let (made, refused) = copies.fold((0, 0), |(m, r), copies| (m + copies.made.len(), r + copies.refused.len()));
        assert!(made > refused * 4, "{arguments:?}: {made} copies, {refused} refused");
        let counts = relocation.counts().unwrap();
        assert!(counts.iter().map(|count| count.count).sum::<u64>() > 1000, "{counts:?}");
    }
    // rsp is lower only inside of the copies.
    let relocation = check(programs[0], &Options { module: Some(programs[0][0].to_owned()), ..options });
    let lowered = relocation.modules[0].copies.made.iter().flat_map(|made| &made.copy.lowered);
    assert!(lowered.clone().any(|lowered| lowered.1 == 128) && lowered.clone().any(|lowered| lowered.1 == 136));
}

/// The kernel's random bytes, of which the stack's guard is made, are the same in both.
fn same_chance(stepper: &Stepper) {
    const AT_RANDOM: u64 = 25;
    let vector = std::fs::read(format!("/proc/{}/auxv", stepper.pid())).unwrap();
    let (words, _) = vector.as_chunks::<8>();
    let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let at = words.chunks_exact(2).find(|pair| pair[0] == AT_RANDOM).unwrap()[1];
    stepper.write(at, b"not chance at all").unwrap();
}

/// The general-purpose registers, and the flags.
const REGISTERS: usize = 17;

/// Runs a program bare and as copies, one instruction at a time: before each instruction all registers are the same. So
/// whatever finds callers from registers and stack, finds in copies what it finds at home, at every instruction. How many
/// instructions that were, in copies and in all.
///
/// What an instruction reads of a copy's own jump table is another distance, and so are the flags of its sum with the table's address.
fn check_in_step(arguments: &[&str], options: &Options, most: u64) -> [u64; 2] {
    let start = || Stepper::start(command(arguments, Path::new("/dev/null")), StepOptions::default()).unwrap();
    let (mut bare, copies) = (start(), start());
    same_chance(&bare);
    same_chance(&copies);
    bare.run_to_entry().unwrap();
    let mut copies = Relocation::of(copies, options).unwrap();
    let pid = bare.pid();
    // What is mapped later is mapped at the same addresses.
    bare.apply(pid, &Edits { memory: copies.memory().collect(), writes: Vec::new() }).unwrap();
    let mut instructions = [0; 2];
    let mut before: Option<RunAddr> = None;
    let (mut of_table, mut last) = ([false; REGISTERS], [0; REGISTERS]);
    for step in 0..most {
        let expected = bare.registers(pid).unwrap();
        let mut registers = copies.registers().unwrap();
        // Jumps between home and copy are nobody's instructions.
        let stands = loop {
            let stands = copies.stands(RunAddr(registers.rip));
            match stands {
                Stands::Copy(origin) if origin.0 == expected.rip && !is_made_at_home(&bare, &copies, origin) => {
                    break stands;
                }
                Stands::Home if registers.rip == expected.rip => break stands,
                _ => assert!(copies.step().unwrap().is_some(), "{arguments:?} ended at step {step}"),
            }
            registers = copies.registers().unwrap();
            assert_eq!(registers.rsp, expected.rsp, "{arguments:?} at {:#x}, step {step}", expected.rip);
        };
        let [in_copies, all] = &mut instructions;
        *in_copies += u64::from(matches!(stands, Stands::Copy(_)));
        *all += 1;
        let values = |r: &libc::user_regs_struct| {
            [
                r.rax, r.rcx, r.rdx, r.rbx, r.rsp, r.rbp, r.rsi, r.rdi, r.r8, r.r9, r.r10, r.r11, r.r12, r.r13, r.r14,
                r.r15, r.eflags,
            ]
        };
        // A system call gives the number of the process: to both the same.
        if registers.rax == u64::from(copies.pid().0) && expected.rax == u64::from(pid.0) {
            registers.rax = expected.rax;
            copies.set_registers(&registers).unwrap();
        }
        // A system call leaves the address behind it in rcx; return addresses may be in copies.
        let at_home = |value: u64| match copies.stands(RunAddr(value)) {
            Stands::Copy(origin) => origin.0,
            _ => value,
        };
        let found = values(&registers).map(at_home);
        let has_read = before.is_some_and(|at| reads_table(&copies, at));
        let wanted = values(&expected);
        let may_differ: [bool; REGISTERS] = std::array::from_fn(|register| {
            let is_flags = register == REGISTERS - 1;
            let is_as_before = of_table[register] && wanted[register] == last[register];
            is_as_before || if is_flags { of_table.contains(&true) } else { has_read }
        });
        of_table = std::array::from_fn(|register| found[register] != wanted[register]);
        let is_explained = of_table.iter().zip(may_differ).all(|(&differs, may)| !differs || may);
        let count = of_table.iter().filter(|&&differs| differs).count();
        assert!(
            is_explained && count <= 2,
            "{arguments:?} at {:#x}, step {step}: {found:x?} instead of {wanted:x?}",
            expected.rip
        );
        last = wanted;
        before = Some(RunAddr(expected.rip));
        let mut ended = false;
        for _ in 0..=skipped_behind(&bare, (&copies, stands), RunAddr(expected.rip)) {
            bare.step(pid, 0).unwrap();
            ended = matches!(bare.wait(Some(pid)).unwrap().1, Stepped::Ended(_));
        }
        let also = copies.step().unwrap().is_none();
        assert_eq!(ended, also, "{arguments:?} at step {step}");
        if ended {
            break;
        }
    }
    instructions
}

/// Whether an instruction reads another table in its copy.
fn reads_table(copies: &Relocation, at: RunAddr) -> bool {
    let is_in = |module: &Relocated| {
        let at = at.to_link(module.loaded.bias);
        module.copies.made.iter().any(|made| made.copy.table_reads.contains(&at))
    };
    copies.modules.iter().any(is_in)
}

/// How many instructions of a stub of the linkage table follow a call or jump at home and are skipped in the copy, which reads the stub's word itself.
fn skipped_behind(stepper: &Stepper, (copies, stands): (&Relocation, Stands), at: RunAddr) -> usize {
    let is_in = |module: &Relocated| {
        let at = at.to_link(module.loaded.bias);
        module.copies.made.iter().any(|made| made.copy.through_slots.binary_search(&at).is_ok())
    };
    if !matches!(stands, Stands::Copy(_)) || !copies.modules.iter().any(is_in) {
        return 0;
    }
    let listed = |at: u64| {
        let mut bytes = [0; 32];
        let len = stepper.read(at, &mut bytes);
        callpath_x86::listing::listing(&bytes[..len], LinkAddr(at))
    };
    let text = listed(at.0).swap_remove(0).text;
    let (_, stub) = text.rsplit_once("0x").unwrap_or_else(|| panic!("{text} calls no stub"));
    let stub = listed(u64::from_str_radix(stub, 16).unwrap());
    1 + stub.iter().position(|line| line.text.contains("jmp")).expect("a stub jumps")
}

/// Whether a call is made at home.
fn is_made_at_home(stepper: &Stepper, copies: &Relocation, at: RunAddr) -> bool {
    let mut bytes = [0; 16];
    let len = stepper.read(at.0, &mut bytes);
    let listed = callpath_x86::listing::listing(&bytes[..len], LinkAddr(at.0));
    let is_in = |module: &Relocated| {
        let end = RunAddr(listed.get(1).map_or(0, |next| next.address.0)).to_link(module.loaded.bias);
        module.copies.made.iter().any(|made| made.copy.returns.iter().any(|back| back.1 == end))
    };
    listed[0].text.starts_with("call") && !copies.modules.iter().any(is_in)
}

#[test]
fn every_instruction_finds_the_same_registers() {
    let directory = tempfile::tempdir().unwrap();
    let program = compile("gcc", "relocation/steps.c", &["-O2"], directory.path());
    let programs: [(&[&str], u64); 3] = [
        (&[program.to_str().unwrap()], 100_000),
        (&["/usr/bin/sha256sum", "/etc/services"], 40_000),
        (&["/usr/bin/tac", "/etc/services"], 40_000),
    ];
    for (arguments, most) in programs {
        for calls in [Calls::Home, Calls::Copy] {
            let [in_copies, all] = check_in_step(arguments, &Options { calls, ..Options::default() }, most);
            println!("{arguments:?} {calls:?}: {in_copies} of {all}");
            assert!(in_copies * 2 > all, "{arguments:?} {calls:?}: {in_copies} of {all}");
        }
    }
}

/// In copies, springboards and inserted code, with calls of a routine everywhere, and without.
#[test]
fn every_instruction_is_unwound() {
    let directory = tempfile::tempdir().unwrap();
    let steps = compile("gcc", "relocation/steps.c", &["-O2"], directory.path());
    check_unwinding(&[(&[steps.to_str().unwrap()], 25_000)]);
}

#[test]
#[ignore = "takes minutes: `cargo xtask test --long`"]
fn every_instruction_of_more_programs_is_unwound() {
    let directory = tempfile::tempdir().unwrap();
    let steps = compile("gcc", "relocation/steps.c", &["-O2"], directory.path());
    let wrappers = compile("g++", "relocation/wrappers.cpp", &["-O2"], directory.path());
    check_unwinding(&[
        (&[steps.to_str().unwrap()], 25_000),
        (&[wrappers.to_str().unwrap(), "throws nothing"], 25_000),
        (&["/usr/bin/sha256sum", "/etc/services"], 25_000),
        (&["/usr/bin/tac", "/etc/services"], 25_000),
    ]);
}

/// `programs`: the words of each, and how many instructions.
fn check_unwinding(programs: &[(&[&str], u64)]) {
    for &(arguments, most) in programs {
        let start = || {
            let stepper = Stepper::start(command(arguments, Path::new("/dev/null")), StepOptions::default()).unwrap();
            same_chance(&stepper);
            stepper
        };
        let looked = unwinding::check(start, &Options::default(), most);
        assert!(looked.copies > 3_000 && looked.springboards > 100 && looked.ours == 0, "{arguments:?}: {looked:?}");
        let looked = unwinding::check(start, &Options { calls: Calls::Copy, ..Options::default() }, most);
        assert!(looked.copies > 3_000 && looked.ours == 0, "{arguments:?}: {looked:?}");
        let enlarged = Options { calls: Calls::Copy, enlarge: true, ..Options::default() };
        let looked = unwinding::check(start, &enlarged, most);
        assert!(looked.copies > 3_000 && looked.ours == 0, "{arguments:?}: {looked:?}");
        let cloned = Options { calls: Calls::Copy, enlarge: true, clones: true, ..Options::default() };
        let looked = unwinding::check(start, &cloned, most);
        assert!(looked.copies > 3_000 && looked.ours == 0, "{arguments:?}: {looked:?}");
        assert!(looked.clones > 1_000, "{arguments:?}: {looked:?}");
        let looked = unwinding::check(start, &Options { routine: true, ..Options::default() }, most);
        assert!(
            looked.copies > 500 && looked.springboards > 20 && looked.ours > looked.copies,
            "{arguments:?}: {looked:?}"
        );
    }
}

#[test]
fn what_was_changed_is_put_back_unless_it_was_changed_again() {
    let mut stepper = Stepper::start(command(&["/bin/true"], Path::new("/dev/null")), StepOptions::default()).unwrap();
    let pid = stepper.pid();
    let entry = stepper.run_to_entry().unwrap();
    let bytes = |stepper: &Stepper| {
        let mut bytes = [0; 4];
        assert_eq!(stepper.read(entry.0, &mut bytes), 4);
        bytes
    };
    let before = bytes(&stepper);
    let write = Write { at: entry, old: Some(before.to_vec()), new: vec![0x90; 4] };
    let edits = Edits { memory: Vec::new(), writes: vec![write] };
    stepper.apply(pid, &edits).unwrap();
    assert_eq!(bytes(&stepper), [0x90; 4]);
    // A second time other bytes are there.
    assert!(stepper.apply(pid, &edits).is_err());
    stepper.write(entry.0, &[0xcc]).unwrap();
    assert!(stepper.undo(&edits).is_err());
    assert_eq!(bytes(&stepper), [0xcc, 0x90, 0x90, 0x90]);
    stepper.write(entry.0, &[0x90]).unwrap();
    stepper.undo(&edits).unwrap();
    assert_eq!(bytes(&stepper), before);
}

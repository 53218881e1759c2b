//! Code and memory of a running program, changed.

use std::ops::Range;
use std::time::Duration;

use callpath_format::address::RunAddr;
use callpath_target::{
    Edits, Halted, LoadedObject, Maps, NewMemory, SharedMapping, SharedMemory, Stopped, TargetError, Write,
};

use crate::program::{Program, compile, other_user};

const FREESTANDING: &[&str] = &["-O1", "-nostdlib", "-shared", "-fPIC", "-fvisibility=hidden", "-ffreestanding"];

pub(crate) fn object() -> Vec<u8> {
    let place = tempfile::tempdir().unwrap();
    std::fs::read(compile("routine.c", FREESTANDING, place.path())).unwrap()
}

/// Memory of the process for a stack: the address past its end.
pub(crate) fn stack(halted: &Stopped) -> RunAddr {
    const BYTES: u64 = 64 * 1024;
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as u64;
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
    let at = halted.system_call(libc::SYS_mmap, [0, BYTES, protection, flags, u64::MAX, 0]).unwrap();
    assert!(at > 0, "{at}");
    RunAddr(at as u64 + BYTES)
}

fn call_routines(halted: &Halted, object: &LoadedObject) {
    let top = stack(halted);
    let call = |name, arguments| {
        halted.call(object.symbol(name).unwrap(), arguments, top)?;
        let mut result = [0; 8];
        assert_eq!(halted.read(object.symbol("result").unwrap(), &mut result)?, 8);
        Ok::<u64, TargetError>(u64::from_le_bytes(result))
    };
    assert_eq!(call("add", [1, 2, 3, 4, 5, 6]).unwrap(), 654_321);
    assert_eq!(call("use", [0; 6]).unwrap(), 41);
    assert_eq!(call("use", [1, 0, 0, 0, 0, 0]).unwrap(), 42);
    assert_eq!(call("own_pid", [0; 6]).unwrap(), u64::from(halted.pid().0));
    let fault = call("fault", [0; 6]).unwrap_err();
    assert!(matches!(fault, TargetError::Routine { .. }), "{fault}");
    assert!(fault.to_string().contains("signal 11"), "{fault}");
    assert_eq!(call("use", [0; 6]).unwrap(), 43);
    assert_eq!(object.symbol("counter"), None);
}

#[test]
fn routines_run_on_a_thread_that_sleeps() {
    let program = Program::start("waits.c", &["nanosleep"]);
    program.await_state('S');
    let halted = program.halt();
    let loaded = halted.load(&object(), None).unwrap();
    call_routines(&halted, &loaded);
    halted.release().unwrap();
    program.ends_rightly();
}

/// What the kernel answers to `membarrier` for the synchronisation of code.
fn synchronised(halted: &Halted) -> i64 {
    const SYNC_CORE: u64 = 1 << 5;
    halted.system_call(libc::SYS_membarrier, [SYNC_CORE, 0, 0, 0, 0, 0]).unwrap()
}

#[test]
fn a_process_is_registered_for_changes_while_it_runs() {
    let program = Program::start("busy.c", &[]);
    let halted = program.halt();
    assert_eq!(synchronised(&halted), -i64::from(libc::EPERM));
    halted.release().unwrap();
    for _ in 0..20 {
        Halted::prepare(program.pid(), Duration::from_secs(10)).unwrap();
    }
    let halted = program.halt();
    assert_eq!(synchronised(&halted), 0);
    halted.release().unwrap();
    program.ends_rightly();
}

#[test]
fn a_process_can_be_halted_as_soon_as_it_was_released() {
    let program = Program::start("busy.c", &[]);
    for _ in 0..200 {
        program.halt().release().unwrap();
        drop(program.halt());
    }
    program.ends_rightly();
}

#[test]
fn routines_run_on_a_thread_that_computes() {
    let program = Program::start("computes.c", &[]);
    let halted = program.halt();
    let loaded = halted.load(&object(), None).unwrap();
    call_routines(&halted, &loaded);
    halted.release().unwrap();
    // The second time, at a place of ours.
    let halted = program.halt();
    halted.unload(&loaded).unwrap();
    let again = halted.load(&object(), Some(loaded.base())).unwrap();
    assert_eq!(again, loaded);
    call_routines(&halted, &again);
    assert!(halted.load(&object(), Some(loaded.base())).is_err(), "there is memory already");
    let maps = Maps::read(program.pid()).unwrap();
    let inside = |entry: &&callpath_target::MapEntry| {
        entry.start >= loaded.base() && entry.end.0 <= loaded.base().0 + loaded.len_bytes()
    };
    assert!(maps.entries.iter().filter(inside).any(|entry| entry.executable));
    let text = std::fs::read_to_string(format!("/proc/{}/maps", program.pid())).unwrap();
    assert!(!text.contains("rwx"), "{text}");
    halted.release().unwrap();
    program.ends_rightly();
}

#[test]
fn a_routine_that_does_not_return_is_given_up() {
    let program = Program::start("computes.c", &[]);
    let halted = program.halt();
    let loaded = halted.load(&object(), None).unwrap();
    let top = stack(&halted);
    assert!(halted.call(loaded.symbol("forever").unwrap(), [0; 6], top).is_err());
    call_routines(&halted, &loaded);
    halted.release().unwrap();
    program.ends_rightly();
}

#[test]
fn memory_of_ours_is_shared_with_it() {
    // Another user cannot open what is ours.
    let program = Program::start_as("computes.c", &[], other_user());
    let descriptors = || std::fs::read_dir(format!("/proc/{}/fd", program.pid())).unwrap().count();
    let before = descriptors();
    let memory = SharedMemory::create(c"callpath-test", 8192).unwrap();
    memory.back(0, 8192).unwrap();
    // SAFETY: backed just now, and ours alone so far.
    unsafe { memory.base().add(4096).cast::<u64>().write_volatile(0x1122_3344) };
    let halted = program.halt();
    let mapping = |writable| SharedMapping { memory: &memory, at: None, writable };
    let [read_only, writable] = halted.map_shared([mapping(false), mapping(true)]).unwrap();
    let mut there = [0; 8];
    assert_eq!(halted.read(RunAddr(read_only.0 + 4096), &mut there).unwrap(), 8);
    assert_eq!(u64::from_le_bytes(there), 0x1122_3344);
    halted.write(writable, &7_u64.to_le_bytes()).unwrap();
    // SAFETY: as above; no thread of the program knows of it.
    assert_eq!(unsafe { memory.base().cast::<u64>().read_volatile() }, 7);
    assert_eq!(descriptors(), before, "a descriptor was left there");
    halted.release().unwrap();
    program.ends_rightly();
}

/// `jmp` from one address to another.
fn jump(from: u64, to: u64) -> Vec<u8> {
    let distance = i32::try_from(to.wrapping_sub(from + 5) as i64).unwrap();
    [&[0xe9][..], &distance.to_le_bytes()].concat()
}

/// Halts a program until none of its threads is to go on in the bytes when a handler returns: such a one cannot be made to
/// step out of them. How many were moved out.
fn halted_outside(
    program: &Program,
    bytes: &[Range<RunAddr>],
    to: impl Fn(RunAddr) -> Option<RunAddr> + Sync,
) -> (Halted, usize) {
    for _ in 0..1000 {
        let halted = program.halt();
        match halted.move_out(bytes, &to) {
            Ok(moved) => return (halted, moved),
            Err(TargetError::InTheWay { .. }) => _ = halted.release().unwrap(),
            Err(error) => panic!("{error}"),
        }
    }
    panic!("a handler always returns there");
}

#[test]
fn a_hot_procedure_is_patched_and_put_back() {
    let program = Program::start("busy.c", &[]);
    let hot = program.addresses[0];
    let maps = Maps::read(program.pid()).unwrap();
    let copy = RunAddr(maps.free_near(hot.0..hot.0 + 64, 4096).unwrap());
    // pause; mov %rdi, %rax, as the original.
    let old = vec![0xf3, 0x90, 0x48, 0x89, 0xf8];
    let mut code = old.clone();
    code.extend(jump(copy.0 + 5, hot.0 + 5));
    let at_entry = Write { at: hot, old: Some(old), new: jump(hot.0, copy.0) };
    let mut edits = Edits {
        memory: vec![NewMemory::Code { at: copy, len_bytes: 4096 }],
        writes: vec![Write { at: copy, old: None, new: code }, at_entry],
    };
    let changing = [hot..RunAddr(hot.0 + 5)];
    let in_copy = |at: RunAddr| Some(RunAddr(at.0 - hot.0 + copy.0));
    let mut moved = 0;
    for round in 0..400 {
        // In turn: by the map, and step by step.
        let (halted, out) = match round % 2 {
            0 => halted_outside(&program, &changing, in_copy),
            _ => halted_outside(&program, &changing, |_| None),
        };
        moved += out;
        halted.apply(&edits).unwrap();
        halted.release().unwrap();
        edits.memory.clear();
        std::thread::sleep(Duration::from_millis(2));
        let (halted, out) = halted_outside(&program, &changing, |_| None);
        moved += out;
        halted.undo(&edits).unwrap();
        // Again: the bytes are no longer ours.
        assert!(matches!(halted.undo(&edits), Err(TargetError::OtherBytes { .. })));
        halted.release().unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    println!("{moved} threads moved");
    assert!(moved > 0, "no thread stood inside the bytes");
    program.ends_rightly();
}

/// The process itself writes what is in two pages: callpath, if it were killed in between, would leave one half.
#[test]
fn a_procedure_at_the_end_of_a_page_is_patched_and_put_back() {
    let program = Program::start("hot.c", &["at_end_of_page"]);
    let hot = program.addresses[0];
    assert_eq!(hot.0 % 4096, 4094);
    let copy = RunAddr(Maps::read(program.pid()).unwrap().free_near(hot.0..hot.0 + 64, 4096).unwrap());
    let old = vec![0xf3, 0x90, 0x48, 0x89, 0xf8];
    let code = [old.clone(), jump(copy.0 + 5, hot.0 + 5)].concat();
    let at_entry = Write { at: hot, old: Some(old), new: jump(hot.0, copy.0) };
    let mut edits = Edits {
        memory: vec![NewMemory::Code { at: copy, len_bytes: 4096 }],
        writes: vec![Write { at: copy, old: None, new: code }, at_entry],
    };
    let written_by_it = || {
        let text = std::fs::read_to_string(format!("/proc/{}/io", program.pid())).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("wchar: ")).unwrap();
        line.parse::<u64>().unwrap()
    };
    let descriptors = || std::fs::read_dir(format!("/proc/{}/fd", program.pid())).unwrap().count();
    let before = (written_by_it(), descriptors());
    for _ in 0..20 {
        let (halted, _) = halted_outside(&program, &[hot..RunAddr(hot.0 + 5)], |_| None);
        halted.apply(&edits).unwrap();
        halted.release().unwrap();
        edits.memory.clear();
        std::thread::sleep(Duration::from_millis(2));
        let (halted, _) = halted_outside(&program, &[hot..RunAddr(hot.0 + 5)], |_| None);
        halted.undo(&edits).unwrap();
        halted.release().unwrap();
    }
    assert_eq!((written_by_it() - before.0, descriptors()), (20 * 2 * 5, before.1));
    program.ends_rightly();
}

/// Of a program that spins until its signal handlers are told to return (`spins` of circumstances.c): where it says that a handler runs, and is
/// told to let it return.
const IN_HANDLER: u64 = 4;
const GO_ON: u64 = 8;
const IN_SECOND: u64 = 12;
const RETURNS_BY: u64 = 16;
/// How long the code is that it spins in.
const LEN: u64 = 10;

/// The program, when the signal has come.
fn halted_in(program: &Program, handler: u64) -> Halted {
    loop {
        let halted = program.halt();
        let mut flag = [0; 4];
        assert_eq!(halted.read(RunAddr(program.addresses[1].0 + handler), &mut flag).unwrap(), flag.len());
        if flag != [0; 4] {
            break halted;
        }
    }
}

#[test]
fn code_stays_where_a_stack_cannot_be_read() {
    let program = Program::start("circumstances.c", &["spins_cut"]);
    let (spin, flags) = (program.addresses[0], program.addresses[1]);
    // It may not have begun yet.
    std::thread::sleep(Duration::from_millis(20));
    program.signal(libc::SIGUSR1);
    let halted = halted_in(&program, IN_HANDLER);
    let error = halted.move_out(&[spin..RunAddr(spin.0 + LEN)], |_| None).unwrap_err();
    assert!(matches!(error, TargetError::Stack { .. }), "{error}");
    halted.write(RunAddr(flags.0 + GO_ON), &1_u32.to_le_bytes()).unwrap();
    halted.release().unwrap();
    std::thread::sleep(Duration::from_millis(20));
    program.ends_rightly();
}

#[test]
fn what_a_handler_returns_to_is_moved() {
    // Inside of the handler; or it has returned, and the thread stands before one of the two instructions that return to
    // what was interrupted: `mov $15, %rax` and `syscall`.
    let behind = [None, Some(0), Some(7)];
    let of_one = ["spins_here", "spins_elsewhere"].into_iter().flat_map(|name| behind.map(|at| (name, at, false)));
    // There another signal has come, whose handler has a stack of its own.
    let of_two = [0, 7].map(|at| ("spins_here", Some(at), true));
    // Its frame is below what the kernel lists as the stack.
    let deep = ("spins_deep", None, false);
    for (name, behind, has_second) in of_one.chain(of_two).chain([deep]) {
        let program = Program::start("circumstances.c", &[name]);
        let (spin, flags) = (program.addresses[0], program.addresses[1]);
        // It may not have begun yet.
        std::thread::sleep(Duration::from_millis(20));
        program.signal(libc::SIGUSR1);
        let read = |halted: &Halted, at: u64, len: usize| {
            let mut bytes = vec![0; len];
            assert_eq!(halted.read(RunAddr(at), &mut bytes).unwrap(), len);
            bytes
        };
        let mut halted = halted_in(&program, IN_HANDLER);
        let code = read(&halted, spin.0, LEN as usize);
        assert_eq!(code.last(), Some(&0xc3), "{code:x?}");
        let maps = Maps::read(program.pid()).unwrap();
        let copy = RunAddr(maps.free_near(spin.0..spin.0 + LEN, 4096).unwrap());
        let edits = Edits {
            memory: vec![NewMemory::Code { at: copy, len_bytes: 4096 }],
            writes: vec![
                Write { at: copy, old: None, new: code.clone() },
                // Traps: nothing may be executed there any more.
                Write { at: spin, old: Some(code), new: vec![0xcc; LEN as usize] },
            ],
        };
        let changing = [spin..RunAddr(spin.0 + LEN)];
        let error = halted.move_out(&changing, |_| None).unwrap_err();
        assert!(matches!(error, TargetError::InTheWay { .. }), "{error}");
        assert!(error.to_string().contains("handler"), "{error}");
        if let Some(behind) = behind {
            let word = |at| u64::from_le_bytes(read(&halted, at, 8).try_into().unwrap());
            let returns_by = word(flags.0 + RETURNS_BY);
            let rip = word(returns_by);
            assert_eq!(read(&halted, rip, 9), [0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05]);
            let old = halted.registers(program.pid()).unwrap();
            let (rip, rsp, rax, orig_rax) = (rip + behind, returns_by + 8, 15, u64::MAX);
            halted.set_registers(program.pid(), &libc::user_regs_struct { rip, rsp, rax, orig_rax, ..old }).unwrap();
        }
        if has_second {
            program.signal(libc::SIGUSR2);
            halted.release().unwrap();
            halted = halted_in(&program, IN_SECOND);
        }
        let moved = halted.move_out(&changing, |at| Some(RunAddr(at.0 - spin.0 + copy.0))).unwrap();
        assert_eq!(moved, 1, "{name}, {behind:?} bytes behind its end, another signal: {has_second}");
        halted.apply(&edits).unwrap();
        halted.write(RunAddr(flags.0 + GO_ON), &1_u32.to_le_bytes()).unwrap();
        halted.release().unwrap();
        std::thread::sleep(Duration::from_millis(20));
        program.ends_rightly();
    }
}

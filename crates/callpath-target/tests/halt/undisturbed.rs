//! A program that is halted and released behaves as one that is not.

use std::time::{Duration, Instant};

use callpath_format::address::RunAddr;
use callpath_target::{Edits, Maps, NewMemory, Pid, Write};

use crate::changes::{object, stack};
use crate::program::{Program, first_thread};

fn check(rounds: u32) {
    let program = Program::start("busy.c", &[]);
    for round in 0..rounds {
        let halted = program.halt();
        // 8 counters, 15 that wait, and the main thread.
        assert!(halted.threads().unwrap().len() >= 24);
        if round % 2 == 0 {
            let pid = halted.system_call(libc::SYS_getpid, [0; 6]).unwrap();
            assert_eq!(pid, i64::from(program.pid().0));
        }
        if round % 16 == 0 {
            // Signals arrive and time passes.
            std::thread::sleep(Duration::from_millis(8));
        }
        halted.release().unwrap();
        std::thread::sleep(Duration::from_micros(u64::from(round % 7) * 1500));
    }
    program.ends_rightly();
}

#[test]
fn halted_two_hundred_times() {
    check(200);
}

/// How long other threads than the first have been on a processor, ns.
fn ran(pid: Pid) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().map(|task| task.unwrap().path());
    let others = tasks.filter(|task| !task.ends_with(pid.0.to_string()));
    let times = others.filter_map(|task| {
        std::fs::read_to_string(task.join("schedstat")).ok()?.split(' ').next()?.parse::<u64>().ok()
    });
    times.sum()
}

#[test]
fn its_first_thread_works_while_others_run() {
    let program = Program::start("busy.c", &[]);
    let at_most = Duration::from_secs(10);
    let stopped = first_thread(program.pid()).unwrap();
    assert!(!stopped.is_whole());
    assert_eq!(stopped.threads().unwrap(), [program.pid()]);
    let (loaded, top) = (stopped.load(&object(), None).unwrap(), stack(&stopped));
    let near =
        RunAddr(Maps::read(program.pid()).unwrap().free_near(loaded.base().0..loaded.base().0 + 4096, 4096).unwrap());
    let before = ran(program.pid());
    let until = Instant::now() + at_most;
    while ran(program.pid()) == before {
        assert!(Instant::now() < until, "they stand still");
    }
    stopped.release().unwrap();
    for round in 0..200 {
        let stopped = first_thread(program.pid()).unwrap();
        let pid = stopped.system_call(libc::SYS_getpid, [0; 6]).unwrap();
        assert_eq!(pid, i64::from(program.pid().0));
        stopped.call(loaded.symbol("add").unwrap(), [1, 2, 3, 4, 5, 6], top).unwrap();
        let mut result = [0; 8];
        assert_eq!(stopped.read(loaded.symbol("result").unwrap(), &mut result).unwrap(), 8);
        assert_eq!(u64::from_le_bytes(result), 654_321);
        if round == 0 {
            let code = vec![0xc3; 16];
            let memory = vec![NewMemory::Code { at: near, len_bytes: 4096 }];
            stopped.add(&Edits { memory, writes: vec![Write { at: near, old: None, new: code.clone() }] }).unwrap();
            let mut there = vec![0; code.len()];
            assert_eq!(stopped.read(near, &mut there).unwrap(), code.len());
            assert_eq!(there, code);
        }
        stopped.release().unwrap();
    }
    program.ends_rightly();
}

#[test]
#[ignore = "takes a minute: `cargo xtask test --long`"]
fn halted_a_thousand_times() {
    check(1000);
}

/// Whoever stops a program hurries as long as it stands still, and no longer.
#[test]
fn who_stops_a_program_is_afterwards_as_before() {
    // SAFETY: all calls take numbers, and are for the calling thread.
    let state = || unsafe {
        let nice = libc::getpriority(libc::PRIO_PROCESS, libc::gettid() as libc::id_t);
        (nice, libc::sched_getscheduler(0), libc::prctl(libc::PR_GET_TIMERSLACK, 0, 0, 0, 0))
    };
    let program = Program::start("hot.c", &[]);
    let before = state();
    let halted = program.halt();
    assert_ne!(state(), before);
    let started = std::thread::spawn(move || state().0).join().unwrap();
    assert_eq!(started, before.0, "what it starts does not hurry");
    halted.release().unwrap();
    assert_eq!(state(), before);
    drop(program.halt());
    assert_eq!(state(), before);
    program.ends_rightly();
}

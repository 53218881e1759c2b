//! Processes that are stopped already, odd, or not to be had; and callpath killed.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use callpath_format::address::RunAddr;
use callpath_target::{Halted, Pid, Stopped, TargetError};

use crate::changes::{object, stack};
use crate::program::{Program, first_thread, other_user};

fn odd(name: &str) -> Program {
    Program::start("circumstances.c", &[name])
}

fn refused(pid: Pid) -> String {
    Halted::halt(pid, Duration::from_secs(5)).unwrap_err().to_string()
}

#[test]
fn a_stopped_program_stays_stopped() {
    let program = Program::start("waits.c", &["nanosleep"]);
    program.await_state('S');
    program.signal(libc::SIGSTOP);
    program.await_state('T');
    let halted = program.halt();
    assert_eq!(halted.system_call(libc::SYS_getpid, [0; 6]).unwrap(), i64::from(program.pid().0));
    halted.release().unwrap();
    program.await_state('T');
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(program.state(), 'T');
    program.signal(libc::SIGCONT);
    program.ends_rightly();
}

#[test]
fn a_program_stopped_and_continued_while_halted() {
    let program = Program::start("busy.c", &["stopped"]);
    for round in 0..20 {
        let halted = program.halt();
        program.signal(libc::SIGSTOP);
        if round % 2 == 0 {
            assert_eq!(halted.system_call(libc::SYS_getpid, [0; 6]).unwrap(), i64::from(program.pid().0));
        }
        if round % 3 == 0 {
            program.signal(libc::SIGCONT);
            halted.release().unwrap();
            std::thread::sleep(Duration::from_millis(10));
            assert_ne!(program.state(), 'T', "round {round}");
        } else {
            halted.release().unwrap();
            program.await_state('T');
            program.signal(libc::SIGCONT);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    program.ends_rightly();
}

#[test]
fn a_process_that_shares_the_memory_stands_still_too() {
    let program = odd("shares");
    let halted = program.halt();
    assert_eq!(halted.threads().unwrap().len(), 2);
    let count = || {
        let mut bytes = [0; 8];
        assert_eq!(halted.read(program.addresses[0], &mut bytes).unwrap(), 8);
        u64::from_le_bytes(bytes)
    };
    let before = count();
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(count(), before);
    halted.release().unwrap();
    std::thread::sleep(Duration::from_millis(50));
    let halted = program.halt();
    let mut bytes = [0; 8];
    halted.read(program.addresses[0], &mut bytes).unwrap();
    assert!(u64::from_le_bytes(bytes) > before, "it runs on");
    drop(halted);
    program.ends_rightly();
}

#[test]
fn the_first_thread_may_have_ended() {
    let program = odd("without_first");
    program.await_state('Z');
    let halted = program.halt();
    assert_eq!(halted.threads().unwrap().len(), 1);
    assert_eq!(halted.system_call(libc::SYS_getpid, [0; 6]).unwrap(), i64::from(program.pid().0));
    halted.release().unwrap();
    program.ends_rightly();
}

#[test]
fn no_system_call_where_a_filter_might_kill() {
    let program = odd("filtered");
    let halted = program.halt();
    let error = halted.system_call(libc::SYS_getpid, [0; 6]).unwrap_err();
    assert!(matches!(error, TargetError::Seccomp { .. }), "{error}");
    halted.release().unwrap();
    program.ends_rightly();
}

#[test]
fn a_child_by_vfork_is_waited_for() {
    let program = odd("vforks");
    program.await_state('D');
    let started = Instant::now();
    let error = Halted::halt(program.pid(), Duration::from_millis(100)).unwrap_err();
    assert!(matches!(error, TargetError::DoesNotStop { .. }), "{error}");
    assert!(error.to_string().contains("vfork"), "{error}");
    // The child needs 700 ms.
    assert!(started.elapsed() < Duration::from_millis(600));
    let halted = program.halt();
    assert_eq!(halted.threads().unwrap(), [program.pid()]);
    halted.release().unwrap();
    program.ends_rightly();
}

#[test]
fn calls_are_interrupted_by_signals_and_by_nothing_else() {
    for name in ["waits_for_signals", "waits_interruptibly"] {
        let program = odd(name);
        for round in 0..200 {
            let halted = program.halt();
            if round % 2 == 0 {
                halted.system_call(libc::SYS_getpid, [0; 6]).unwrap();
            }
            halted.release().unwrap();
            std::thread::sleep(Duration::from_micros(round % 7 * 400));
        }
        program.ends_rightly();
    }
}

#[test]
fn a_signal_that_comes_while_halted_interrupts_its_call() {
    for with_calls in [false, true] {
        let program = odd("waits_once");
        program.await_state('S');
        // Nothing, one that is ignored, one that has a handler.
        for signal in [0, libc::SIGWINCH, libc::SIGUSR1] {
            let halted = program.halt();
            program.signal(signal);
            if with_calls {
                halted.system_call(libc::SYS_getpid, [0; 6]).unwrap();
            }
            halted.release().unwrap();
            program.await_state('S');
        }
        program.ends_rightly();
    }
}

#[test]
fn a_second_tracer_is_named() {
    let program = Program::start("computes.c", &[]);
    let halted = program.halt();
    let own = std::fs::read_to_string("/proc/self/comm").unwrap();
    let error = Halted::halt(program.pid(), Duration::from_secs(5)).unwrap_err();
    assert!(matches!(error, TargetError::AlreadyTraced { .. }), "{error}");
    assert!(error.to_string().contains(own.trim()), "{error}");
    halted.release().unwrap();
    program.halt().release().unwrap();
    program.ends_rightly();
}

#[test]
fn processes_that_are_none_or_another() {
    let gone = {
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        Pid(child.id())
    };
    assert!(refused(gone).contains("no such process"));
    assert!(refused(Pid(std::process::id())).contains("callpath itself"));
    // Ended, and not waited for.
    let mut zombie = Command::new("true").spawn().unwrap();
    while !std::fs::read_to_string(format!("/proc/{}/stat", zombie.id())).unwrap().contains(") Z ") {
        std::thread::yield_now();
    }
    assert!(refused(Pid(zombie.id())).contains("no such process"));
    zombie.wait().unwrap();
}

#[test]
fn a_program_killed_while_halted() {
    let mut program = Program::start("busy.c", &[]);
    let halted = program.halt();
    program.signal(libc::SIGKILL);
    assert!(halted.system_call(libc::SYS_getpid, [0; 6]).is_err());
    assert!(halted.read(program.addresses[0], &mut [0; 8]).unwrap() <= 8);
    // There is nothing left to be let go.
    halted.release().unwrap();
    use std::os::unix::process::ExitStatusExt;
    assert_eq!(program.child.wait().unwrap().signal(), Some(libc::SIGKILL));
}

/// Names a process to be halted, for a copy of this test that is to be killed.
const TO_HALT: &str = "CALLPATH_TEST_TO_HALT";

#[test]
#[ignore = "started by the test below"]
fn halts_and_waits_to_be_killed() {
    let Ok(pid) = std::env::var(TO_HALT) else { return };
    let (pid, at_most) = (Pid(pid.parse().unwrap()), Duration::from_secs(10));
    let work = std::env::var(WORK).unwrap_or_default();
    if let Some(at) = work.strip_prefix(MOVES) {
        return moves_out(pid, RunAddr(at.parse().unwrap()));
    }
    let halted = match work.strip_prefix(FIRST) {
        Some(_) => first_thread(pid),
        None => Halted::halt(pid, at_most).map(Stopped::from),
    };
    let halted = match halted {
        Ok(halted) => halted,
        Err(error) => return println!("\n{error}"),
    };
    halted.system_call(libc::SYS_getpid, [0; 6]).unwrap();
    println!("\nhalted");
    let work: Box<dyn Fn()> = match work.strip_prefix(FIRST).unwrap_or(&work) {
        "calls" => Box::new(|| assert!(halted.system_call(libc::SYS_sched_yield, [0; 6]).is_ok())),
        "borrows" => Box::new(|| {
            halted.system_call(libc::SYS_getpid, [0; 6]).unwrap();
            halted.registers(halted.pid()).unwrap();
        }),
        "routines" => {
            let loaded = halted.load(&object(), None).unwrap();
            let (work, top) = (loaded.symbol("work").unwrap(), stack(&halted));
            Box::new(move || halted.call(work, [100_000, 0, 0, 0, 0, 0], top).unwrap())
        }
        _ => Box::new(|| std::thread::sleep(Duration::from_secs(60))),
    };
    let until = Instant::now() + Duration::from_secs(60);
    while Instant::now() < until {
        work();
    }
}

/// Halts a process again and again, and takes its threads out of the first bytes of a procedure.
fn moves_out(pid: Pid, at: RunAddr) {
    println!("\nhalted");
    let until = Instant::now() + Duration::from_secs(60);
    while Instant::now() < until {
        let halted = Halted::halt(pid, Duration::from_secs(10)).unwrap();
        match halted.move_out(&[at..RunAddr(at.0 + 5)], |_| None) {
            Ok(_) | Err(TargetError::InTheWay { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        halted.release().unwrap();
    }
}

/// Of what is done with the bytes at an address.
const MOVES: &str = "moves ";

/// Of what is done on the first thread alone.
const FIRST: &str = "first ";

/// What that copy is at when it is killed.
const WORK: &str = "CALLPATH_TEST_WORK";

/// A copy of this test that halts a process.
fn halting(program: &Program, work: &str, user: Option<u32>) -> (Child, BufReader<ChildStdout>) {
    use std::os::unix::process::CommandExt;
    let mut tracer = Command::new(std::env::current_exe().unwrap());
    tracer.args(["--exact", "circumstances::halts_and_waits_to_be_killed", "--ignored", "--nocapture"]);
    tracer.env(TO_HALT, program.pid().to_string()).env(WORK, work).stdout(Stdio::piped());
    user.map(|user| tracer.uid(user));
    let mut tracer = tracer.spawn().unwrap();
    let output = BufReader::new(tracer.stdout.take().unwrap());
    (tracer, output)
}

#[test]
fn another_users_process() {
    // Only root can become another user.
    let Some(user) = other_user() else { return };
    let program = Program::start("computes.c", &[]);
    let (mut tracer, mut output) = halting(&program, "", Some(user));
    let mut text = String::new();
    output.read_to_string(&mut text).unwrap();
    assert!(text.contains("it belongs to another user (0, callpath runs as 65534)"), "{text}");
    assert!(text.contains("CAP_SYS_PTRACE"), "{text}");
    tracer.wait().unwrap();
    program.ends_rightly();
}

/// Has a tracer killed some times, in the middle of its work.
fn killed(program: &Program, work: &str) {
    for wait_us in (0..5000).step_by(1000) {
        let (mut tracer, mut output) = halting(program, work, None);
        let mut line = String::new();
        while !line.ends_with("\nhalted\n") {
            assert!(output.read_line(&mut line).unwrap() > 0, "{work}: {line}");
        }
        std::thread::sleep(Duration::from_micros(wait_us));
        tracer.kill().unwrap();
        tracer.wait().unwrap();
        output.read_to_string(&mut line).unwrap();
        let until = Instant::now() + Duration::from_secs(10);
        while program.state() == 't' {
            assert!(Instant::now() < until);
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_program_runs_on_when_its_tracer_is_killed() {
    const ALL: [&str; 6] = ["", "calls", "borrows", "routines", "first calls", "first routines"];
    // The first thread of the second one never waits.
    for (source, works) in [("busy.c", &ALL[..]), ("computes.c", &ALL[..4])] {
        let program = Program::start(source, &[]);
        works.iter().for_each(|work| killed(&program, work));
        program.ends_rightly();
    }
}

/// The first thread of a program in Go is on a stack of Go's.
#[test]
fn a_program_on_stacks_of_its_own_runs_on_when_its_tracer_is_killed() {
    let Some(program) = Program::start_go("computes.go") else {
        println!("skipped: there is no Go compiler");
        return;
    };
    for _ in 0..3 {
        ["", "calls", "borrows", "routines"].iter().for_each(|work| killed(&program, work));
    }
    program.ends_rightly();
}

#[test]
fn a_program_whose_first_thread_has_ended_runs_on_when_its_tracer_is_killed() {
    let program = odd("without_first");
    program.await_state('Z');
    ["", "calls", "routines"].iter().for_each(|work| killed(&program, work));
    program.ends_rightly();
}

/// A thread that is being taken out of bytes that change is left as it is; it holds no signals back.
#[test]
fn a_thread_that_is_taken_out_runs_on_when_its_tracer_is_killed() {
    let program = Program::start("hot.c", &[]);
    let work = format!("{MOVES}{}", program.addresses[0].0);
    for _ in 0..10 {
        killed(&program, &work);
    }
    program.ends_rightly();
}

/// A thread that waited for something waits on.
#[test]
fn a_program_that_sleeps_does_so_when_its_tracer_is_killed() {
    let program = Program::start("waits.c", &["nanosleep"]);
    for work in ["calls", "routines", "first calls"] {
        program.await_state('S');
        killed(&program, work);
    }
    program.ends_rightly();
}

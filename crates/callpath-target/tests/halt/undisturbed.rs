//! A program that is halted and released behaves as one that is not.

use std::time::Duration;

use crate::program::Program;

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

#[test]
#[ignore = "takes a minute"]
fn halted_a_thousand_times() {
    check(1000);
}

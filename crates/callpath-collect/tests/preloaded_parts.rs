//! The preloaded object's parts that need no process: digits, entries of an environment, times, filters. The object
//! itself is built without tests, so its files are read in here.
#![allow(missing_docs, unreachable_pub)]

#[path = "../../callpath-preload/src/digits.rs"]
mod digits;
#[path = "../../callpath-preload/src/entries.rs"]
mod entries;
#[path = "../../callpath-preload/src/filter.rs"]
mod filter;
#[path = "../../callpath-preload/src/time.rs"]
mod time;

use std::ffi::CStr;

use entries::{OBJECTS, PATH_LEN, SESSION, object_of, others, value_of};
use filter::Filter;
use time::{Time, left_ms};

#[test]
fn digits_are_a_number_that_fits_or_none() {
    for (text, number) in [
        ("0", Some(0)),
        ("007", Some(7)),
        ("18446744073709551615", Some(u64::MAX)),
        ("18446744073709551616", None),
        ("", None),
        ("-1", None),
        ("1 ", None),
        ("1:", None),
    ] {
        assert_eq!(digits::number(text.as_bytes()), number, "{text:?}");
    }
    for number in [0, 7, 10, 4_194_304, u32::MAX] {
        let mut place = [0; 10];
        assert_eq!(digits::decimal(number, &mut place), number.to_string().as_bytes());
    }
}

#[test]
fn an_entry_is_ours_by_its_whole_name() {
    let value = |entry: &'static CStr| value_of(entry, SESSION);
    assert_eq!(value(c"CALLPATH_SESSION=7:8"), Some(&b"7:8"[..]));
    assert_eq!(value(c"CALLPATH_SESSION="), Some(&b""[..]));
    for other in [c"CALLPATH_SESSION", c"CALLPATH_SESSIONS=1", c"CALLPATH_SESS=1", c" CALLPATH_SESSION=1", c""] {
        assert_eq!(value(other), None);
    }
}

#[test]
fn our_object_is_taken_out_of_those_that_are_preloaded() {
    let cases: [(&str, Option<&str>, &str); 7] = [
        ("/c/callpath-preload-1.so", Some("/c/callpath-preload-1.so"), ""),
        ("/l/a.so:/c/callpath-preload-1.so", Some("/c/callpath-preload-1.so"), "/l/a.so"),
        ("/c/callpath-preload-1.so a.so b.so", Some("/c/callpath-preload-1.so"), "a.so:b.so"),
        ("callpath-preload-x", Some("callpath-preload-x"), ""),
        // A directory of that name, and nothing between separators.
        ("/callpath-preload-1/a.so::", None, "/callpath-preload-1/a.so"),
        ("mycallpath-preload-1.so", None, "mycallpath-preload-1.so"),
        ("", None, ""),
    ];
    for (paths, ours, left) in cases {
        assert_eq!(object_of(paths.as_bytes()), ours.map(str::as_bytes), "{paths}");
        let mut entry = [0xff; PATH_LEN];
        let count = others(paths.as_bytes(), &mut entry).expect("there is room");
        assert_eq!(count, left.split(':').filter(|path| !path.is_empty()).count(), "{paths}");
        if count > 0 {
            let entry = CStr::from_bytes_until_nul(&entry).expect("it ends");
            assert_eq!(value_of(entry, OBJECTS), Some(left.as_bytes()), "{paths}");
        }
    }
    // `LD_PRELOAD=`, the path, a zero.
    let mut entry = [0; PATH_LEN];
    assert_eq!(others(&[b'a'; PATH_LEN - 12], &mut entry), Some(1));
    assert_eq!(others(&[b'a'; PATH_LEN - 11], &mut entry), None);
}

#[test]
fn what_is_left_of_a_time() {
    let time = |seconds, nanoseconds| Time { seconds, nanoseconds };
    assert_eq!(time(2, 500).without(0), time(2, 500));
    assert_eq!(time(2, 500).without(501), time(1, 999_999_999));
    assert_eq!(time(2, 500).without(3_000_000_000), time(0, 0));
    // No times: the real function says so.
    for odd in [time(-1, 0), time(0, 1_000_000_000), time(0, -1), time(i64::MAX, 0)] {
        assert_eq!(odd.without(1), odd);
    }
    assert_eq!(
        (left_ms(10, 0), left_ms(10, 3_000_000), left_ms(10, 3_999_999), left_ms(10, 20_000_000)),
        (10, 7, 7, 0)
    );
    assert_eq!((left_ms(-1, 5_000_000), left_ms(0, 5_000_000), left_ms(1, u64::MAX)), (-1, 0, 0));
}

/// An instruction of the classic packet filter machine.
type Instruction = libc::sock_filter;

const fn instruction(code: u16, jt: u8, jf: u8, k: u32) -> Instruction {
    Instruction { code, jt, jf, k }
}

/// A call that there is not, which the filters are about.
const NUMBER: u32 = 1000;
const ALLOW: u32 = 0x7fff_0000;
const REFUSE: u32 = 0x0005_0000 | libc::EPERM as u32;

/// What the kernel does with the call under this filter: whether it lets it pass. `None`: it does not take the filter.
fn kernel_allows(filter: &[Instruction], arguments: [u64; 6]) -> Option<bool> {
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: the child makes system calls only, and ends.
    unsafe {
        let child = libc::fork();
        assert!(child >= 0);
        if child == 0 {
            let taken = libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program, 0, 0) == 0;
            let [a, b, c, d, e, f] = arguments;
            let status = match taken {
                false => 2,
                true if libc::syscall(NUMBER.into(), a, b, c, d, e, f) == 0 => 3,
                true => i32::from(*libc::__errno_location() == libc::ENOSYS),
            };
            libc::_exit(status);
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        assert!(libc::WIFEXITED(status), "a filter that kills: {status:#x}");
        match libc::WEXITSTATUS(status) {
            0 => Some(false),
            1 => Some(true),
            2 => None,
            other => panic!("an answer that there is not: {other}"),
        }
    }
}

/// Random filters, run by the kernel and by us. What is left out: a division by X, which may kill, shifts by X, which
/// the processor decides, and the place of the call.
#[test]
fn a_filter_answers_as_the_kernel_says() {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut below = |end: u32| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % u64::from(end)) as u32
    };
    let (mut taken, mut allowed) = (0, 0);
    for _ in 0..1500 {
        // Other calls pass; four words of memory are there from the beginning.
        let mut filter =
            vec![instruction(0x20, 0, 0, 0), instruction(0x15, 1, 0, NUMBER), instruction(0x06, 0, 0, ALLOW)];
        (0..4).for_each(|word| filter.push(instruction(0x02, 0, 0, word)));
        let (len, mut number) = (4 + below(20), 0);
        for left in (0..len).rev() {
            // Often the same value again: equality is a separate case.
            number = [number, below(5), below(0x100), below(u32::MAX)][below(4) as usize];
            let operation = [0x00, 0x10, 0x20, 0x40, 0x50, 0xa0][below(6) as usize];
            let jump = [0x10, 0x20, 0x30, 0x40][below(4) as usize];
            let (jt, jf) = (below(left + 1) as u8, below(left + 1) as u8);
            filter.push(match below(14) {
                0 | 1 => instruction(0x20, 0, 0, [0, 4, 16, 20, 24, 28, 56, 60][below(8) as usize]),
                2 => instruction(0x00, 0, 0, number),
                3 => instruction(0x01, 0, 0, number),
                4 => instruction([0x02, 0x03, 0x60, 0x61][below(4) as usize], 0, 0, below(4)),
                5 => instruction(0x07, 0, 0, 0),
                6 => instruction(0x87, 0, 0, 0),
                7 => instruction(0x04 | operation, 0, 0, number),
                8 => instruction(0x0c | operation, 0, 0, 0),
                9 => instruction([0x64, 0x74][below(2) as usize], 0, 0, below(32)),
                10 => instruction([0x34, 0x84][below(2) as usize], 0, 0, 1 + below(50)),
                11 => instruction(0x05, 0, 0, jt.into()),
                12 => instruction(0x05 | jump, jt, jf, number),
                _ => instruction([0x0d | jump, 0x80, 0x81][below(3) as usize], jt, jf, 0),
            });
        }
        filter.extend([
            instruction(0x45, 0, 1, 1 << below(12)),
            instruction(0x06, 0, 0, ALLOW),
            instruction(0x06, 0, 0, REFUSE),
        ]);
        // Jumps are for conditions only.
        for instruction in filter.iter_mut().filter(|instruction| instruction.code & 7 != 5) {
            (instruction.jt, instruction.jf) = (0, 0);
        }
        let arguments = std::array::from_fn(|_| u64::from(below(1 << 31)) << 32 | u64::from(below(1 << 31)));
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
        let ours = Filter::at((&raw const program) as usize, |_| true).expect("it can be read");
        let Some(is_allowed) = kernel_allows(&filter, arguments) else { continue };
        let text: Vec<_> = filter.iter().map(|i| (i.code, i.jt, i.jf, i.k)).collect();
        assert_eq!(ours.allows(NUMBER, 0, arguments), is_allowed, "{text:x?} {arguments:x?}");
        assert!(ours.allows(1, 0, arguments));
        taken += 1;
        allowed += u32::from(is_allowed);
    }
    assert!(taken > 1200 && allowed > 50 && taken - allowed > 50, "{taken} were taken, {allowed} have let it pass");
}

#[test]
fn what_cannot_be_read_is_no_filter() {
    let one = [instruction(0x06, 0, 0, ALLOW)];
    let program = |len| libc::sock_fprog { len, filter: one.as_ptr().cast_mut() };
    let at = |program: &libc::sock_fprog, is_readable: &dyn Fn(usize) -> bool| {
        Filter::at(std::ptr::from_ref(program) as usize, is_readable).is_some()
    };
    assert!(at(&program(1), &|_| true));
    assert!(!at(&program(0), &|_| true));
    assert!(!at(&program(4097), &|_| true));
    let code = one.as_ptr() as usize;
    assert!(!at(&program(1), &|at| !(code..code + 8).contains(&at)));
    assert!(Filter::at(0, |_| true).is_none());
    // It runs off its end.
    let endless = [instruction(0x00, 0, 0, 1)];
    let program = libc::sock_fprog { len: 1, filter: endless.as_ptr().cast_mut() };
    assert!(!Filter::at((&raw const program) as usize, |_| true).expect("it can be read").allows(1, 0, [0; 6]));
}

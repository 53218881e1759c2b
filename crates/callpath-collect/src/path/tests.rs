//! Paths of stacks that were laid out by hand, against what was laid out.

extern crate std;

use callpath_format::address::LinkAddr;
use callpath_format::frame::{FrameKey, ModuleIndex};
use callpath_format::recipe::Packed;
use callpath_format::register::Reg;
use callpath_format::shared::told::{Callers, CodeRange, Contents, ToldCall, ToldPath};
use callpath_format::shared::{ArenaRef, Settings};
use core::sync::atomic::Ordering::Relaxed;
use std::vec::Vec;

use super::{Path, of};
use crate::clock;
use crate::process::Process;
use crate::sample::{InSample, Interrupted, Sample, Trigger};
use crate::stack::Stack;
use crate::testing::{CODE, Chance, measured, measured_and_told, metrics, path_of};
use crate::thread::Thread;

const ROWS: u64 = 64;
/// Rows whose frames end a path: the first has no caller, the second is unknown.
const OUTERMOST: u64 = 0;
const UNKNOWN: u64 = 1;

fn recipes() -> Vec<Packed> {
    let recipe = |head, disp| Packed { disp, add: 0, head, slots: [0; 6] };
    let framed = recipe(Packed::REGISTER | (Reg::RSP.index() as u16) << 3, 16);
    let mut recipes = std::vec![recipe(Packed::OUTERMOST, 0), recipe(Packed::UNKNOWN, 0)];
    recipes.resize(ROWS as usize, framed);
    recipes
}

fn key(row: u64, is_interrupted: bool) -> u64 {
    let link = 16 * row + if is_interrupted { 4 } else { 7 };
    FrameKey::in_module(ModuleIndex(0), LinkAddr(link)).0
}

/// A stack of frames in these rows, the innermost first, each of one word: where it was
/// interrupted, and the keys of its path, the outermost first.
fn laid_out(thread: Thread<'_>, rows: &[u64]) -> (Interrupted, Vec<u64>, &'static mut [u64]) {
    let mut words = std::vec![0xdead_beef; 64];
    let begin = words.len();
    for row in &rows[1..] {
        words.extend([0x1234, CODE + 16 * row + 8]);
    }
    words.extend([0x1234; 8]);
    let words = words.leak();
    let range = words.as_ptr_range();
    let rsp = range.start as u64 + 8 * begin as u64;
    thread.record.stack[0].store(range.start as u64, Relaxed);
    thread.record.stack[1].store(range.end as u64, Relaxed);
    let mut registers = [0; 16];
    registers[Reg::RSP.index()] = rsp;
    let mut keys: Vec<u64> = rows.iter().enumerate().map(|(n, row)| key(*row, n == 0)).collect();
    keys.reverse();
    (Interrupted { registers, pc: CODE + 16 * rows[0] + 4 }, keys, &mut words[begin..])
}

/// The path that a sample finds: whether it is full, and its keys.
fn sampled(process: &Process<'_>, thread: Thread<'_>, interrupted: &Interrupted) -> (bool, Vec<u64>) {
    let in_sample = &InSample::begin(thread.record).expect("no other sample is under way");
    let begin_ticks = clock::ticks();
    let sample = Sample { in_sample, process, thread, trigger: Trigger::Timer, interrupted, begin_ticks };
    let mut stack = Stack::new(&sample);
    let mut path = of(&sample, &mut stack, true, false);
    if let Path::NoTable(generated) = path {
        // As for a sample that cannot be kept raw.
        assert_eq!(generated, None);
        path = of(&sample, &mut stack, true, true);
    }
    let (is_full, node) = match path {
        Path::Full(node) => (true, node),
        Path::Partial(node) => (false, node),
        Path::NoTable(_) | Path::Deep | Path::NoMemory => panic!("there are memory and tables"),
    };
    thread.record.taken.fetch_add(1, Relaxed);
    let (is_there, keys) = path_of(process, thread.record, node);
    assert_eq!(is_there, is_full, "a path hangs below the other root");
    (is_full, keys)
}

fn settings(recursion: u32) -> Settings {
    // As many ticks in a millisecond that no sample of a test comes to its end of time.
    Settings { recursion, ticks_per_ms: 1 << 40, ..Settings::default() }
}

#[test]
fn a_path_is_the_frames_of_the_stack_the_outermost_first() {
    let (process, thread) = measured(settings(Settings::WHOLE), &metrics(&[Settings::CPU_TIME]), 60, &recipes());
    let mut chance = Chance(1);
    for len in [1, 2, 3, 100, 1023] {
        let mut rows: Vec<u64> = (1..len).map(|_| 2 + chance.below(ROWS - 2)).collect();
        for (end, is_full) in [(OUTERMOST, true), (UNKNOWN, false)] {
            rows.push(end);
            let (interrupted, keys, _) = laid_out(thread, &rows);
            assert_eq!(sampled(&process, thread, &interrupted), (is_full, keys), "{len} frames");
            rows.pop();
        }
    }
    // A return address that leads nowhere is the last frame of a partial path.
    let (interrupted, keys, words) = laid_out(thread, &[5, 6, OUTERMOST]);
    words[3] = 0x10;
    let (is_full, found) = sampled(&process, thread, &interrupted);
    assert_eq!((is_full, &found[1..]), (false, &keys[1..]));
    assert_eq!(FrameKey(found[0]).module(), ModuleIndex::NONE);
}

#[test]
fn of_a_suffix_the_innermost_frames_are_kept_below_what_is_left_out() {
    let (process, thread) = measured(settings(3), &metrics(&[Settings::CPU_TIME]), 60, &recipes());
    for (rows, is_cut) in [(&[9, 8, OUTERMOST][..], false), (&[9, 8, 7, OUTERMOST], true), (&[2, 2, 2, 2, 2, 0], true)]
    {
        let (interrupted, keys, _) = laid_out(thread, rows);
        let mut expected = if is_cut { std::vec![FrameKey::LEFT_OUT.0] } else { Vec::new() };
        expected.extend(&keys[keys.len() - 3..]);
        assert_eq!(sampled(&process, thread, &interrupted), (true, expected));
    }
}

#[test]
fn recursion_goes_back_to_the_frame_that_is_active() {
    let (process, thread) = measured(settings(Settings::COLLAPSED), &metrics(&[Settings::CPU_TIME]), 60, &recipes());
    // The innermost frame was interrupted elsewhere than where it calls from: another key.
    let (interrupted, _, _) = laid_out(thread, &[4, 5, 4, 5, 4, 6, 4, 5, 2, OUTERMOST]);
    let expected = std::vec![key(OUTERMOST, false), key(2, false), key(5, false), key(4, true)];
    assert_eq!(sampled(&process, thread, &interrupted), (true, expected));
}

/// More frames than one walk keeps: the path is that of the innermost ones first, and whole after some samples.
/// Whatever changes on the stack meanwhile, a full path is the stack's.
#[test]
fn a_deep_path_is_whole_after_some_samples_and_never_a_wrong_one() {
    let (process, thread) = measured(settings(Settings::WHOLE), &metrics(&[Settings::CPU_TIME]), 900, &recipes());
    let mut chance = Chance(2);
    let mut rows: Vec<u64> = (1..40_000).map(|_| 2 + chance.below(ROWS - 2)).collect();
    rows.push(OUTERMOST);
    let (interrupted, mut keys, words) = laid_out(thread, &rows);
    let (mut full, mut partial) = (0, 0);
    for sample in 0..300 {
        let (is_full, found) = sampled(&process, thread, &interrupted);
        if is_full {
            assert!(found == keys, "sample {sample} has another stack's path");
            full += 1;
        } else {
            assert_eq!(found[0], FrameKey::LEFT_OUT.0);
            assert!(found[1..] == keys[keys.len() - 1024..], "sample {sample} has other innermost frames");
            partial += 1;
        }
        if sample % 15 == 14 {
            // Another frame somewhere, that of the outermost one's callee the last time.
            let at = if sample > 250 { 39_997 } else { chance.below(39_990) as usize };
            let row = 2 + chance.below(ROWS - 2);
            words[2 * at + 1] = CODE + 16 * row + 8;
            let outwards = keys.len() - 2 - at;
            keys[outwards] = key(row, false);
        }
    }
    assert!(partial > 0 && full > 150, "{full} full, {partial} partial");
    // Nodes are shared by paths that begin alike.
    let nodes = thread.record.nodes.load(Relaxed);
    assert!(nodes < 40_000 * 20, "{nodes}");
    assert_ne!(ArenaRef(thread.record.full_root.load(Relaxed)), ArenaRef::NONE);
}

/// Wherever a deep stack has changed, and however slow the machine is, each sample leaves less to do for the next ones.
#[test]
fn a_deep_path_is_whole_again_after_any_change() {
    const FRAMES: usize = 60_000;
    let mut rows = std::vec![2; FRAMES];
    rows[FRAMES - 1] = OUTERMOST;
    // Time never ends a sample; it ends each one as soon as the clock is looked at, after 40,000 steps of 31 for a frame.
    for (ticks_per_ms, most_samples) in [(1 << 40, 16), (1, 60)] {
        let settings = Settings { recursion: Settings::WHOLE, ticks_per_ms, ..Settings::default() };
        let (process, thread) = measured(settings, &metrics(&[Settings::CPU_TIME]), 900, &recipes());
        let (interrupted, mut keys, words) = laid_out(thread, &rows);
        for (nth, changed) in (1_000..FRAMES - 1).step_by(1_400).enumerate() {
            let row = 3 + nth as u64 % (ROWS - 3);
            words[2 * changed + 1] = CODE + 16 * row + 8;
            keys[FRAMES - 2 - changed] = key(row, false);
            let whole = (0..most_samples).find_map(|_| {
                let (is_full, found) = sampled(&process, thread, &interrupted);
                is_full.then_some(found)
            });
            assert!(whole.is_some(), "not after {most_samples} samples: frame {changed}, {ticks_per_ms} ticks/ms");
            assert!(whole.is_none_or(|found| found == keys), "another path");
        }
    }
}

/// Each row is a procedure of its number, whose calls are 16 bytes high.
#[test]
fn a_walk_ends_where_a_map_tells_the_rest() {
    let ranges: Vec<CodeRange> = (0..ROWS)
        .map(|row| CodeRange { start: LinkAddr(16 * row), end: LinkAddr(16 * row + 16), procedure: row as u32 })
        .collect();
    let call = |row: u64| ToldCall { at: LinkAddr(16 * row + 7), procedure: row as u32, height: 16 };
    let calls: Vec<ToldCall> = (0..ROWS).filter(|row| *row != 40).map(call).collect();
    let path = |callers: &[u32], procedure: u32, root: u32| ToldPath {
        procedure,
        root,
        height: 16 * callers.len() as i64,
        callers: callers.iter().fold(Callers::default(), |callers, caller| callers.and(*caller)),
    };
    let paths = [
        path(&[7, 8, 0], 6, ToldPath::MAIN),
        path(&[40, 8, 0], 9, ToldPath::MAIN),
        path(&[7, 0], 10, 7),
        path(&[7], 12, 7),
        // What five frames of one stack would have if they were called otherwise, and one that is right.
        path(&[8, 8, 8, 8, 8, 8, 0], 20, ToldPath::MAIN),
        path(&[8, 8, 8, 8, 8, 0], 21, ToldPath::MAIN),
        path(&[8, 8, 8, 8, 0], 22, ToldPath::MAIN),
        path(&[8, 8, 8, 0], 23, ToldPath::MAIN),
        path(&[25, 26, 0], 24, ToldPath::MAIN),
    ];
    let settings = Settings { flags: Settings::TOLD, ..settings(Settings::WHOLE) };
    let told = Contents { ranges: &ranges, calls: &calls, paths: &paths };
    let (process, thread) = measured_and_told(settings, &metrics(&[Settings::CPU_TIME]), (60, &recipes()), told);
    let sample = |rows: &[u64], start: u64| {
        let (interrupted, keys, _) = laid_out(thread, rows);
        let rsp = interrupted.registers[Reg::RSP.index()];
        thread.record.stack_base.store(rsp + 16 * rows.len() as u64, Relaxed);
        thread.record.start_routine.store(start, Relaxed);
        (sampled(&process, thread, &interrupted), keys)
    };
    let up_to = |height: i64, keys: &[u64]| (false, [&[FrameKey::height(Some(height)).0], keys].concat());
    // At the frame that was interrupted, and farther outwards.
    let (found, keys) = sample(&[6, 7, 8, OUTERMOST], 0);
    assert_eq!(found, up_to(48, &keys[3..]));
    let (found, keys) = sample(&[3, 4, 6, 7, 8, OUTERMOST], 0);
    assert_eq!(found, up_to(48, &keys[3..]));
    // Another caller, however far outwards; a call of which nothing is known; another stack's path.
    for rows in [[6, 8, 8, OUTERMOST], [6, 7, 7, OUTERMOST], [9, 40, 8, OUTERMOST]] {
        let (found, keys) = sample(&rows, 0);
        assert_eq!(found, (true, keys), "{rows:?}");
    }
    let (found, keys) = sample(&[6, 7, 8, OUTERMOST], CODE + 16 * 7);
    assert_eq!(found, (true, keys));
    // On a thread's, with what lies above where it began; not if it is not known where that was.
    let (found, keys) = sample(&[5, 10, 7, OUTERMOST], CODE + 16 * 7);
    assert_eq!(found, up_to(32, &keys[2..]));
    thread.record.stack_base.store(0, Relaxed);
    let (interrupted, keys, _) = laid_out(thread, &[5, 10, 7, OUTERMOST]);
    assert_eq!(sampled(&process, thread, &interrupted), (true, keys));
    // Return addresses are not compared for ever: up to the third time, the walk goes on, and ends where they are right.
    let (found, keys) = sample(&[21, 22, 23, 24, 25, 26, OUTERMOST], 0);
    assert_eq!(found, up_to(48, &keys[3..]));
    let (found, keys) = sample(&[20, 21, 22, 23, 24, 25, 26, OUTERMOST], 0);
    assert_eq!(found, (true, keys));
    // A walk that ends before is partial, as any other.
    let (found, keys) = sample(&[11, UNKNOWN], 0);
    assert_eq!(found, (false, keys));
}

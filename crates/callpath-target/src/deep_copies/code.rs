//! The programs that copy a stack while the kernel takes a sample. The first finds out what to copy. The second copies a few pages after the
//! other, and after some rounds goes on with itself: the kernel checks a program before it loads it by following each round of a loop, and
//! does that only once for all of these.

use std::os::fd::RawFd;

use super::PAGE_BYTES;
use crate::bpf::Instruction as I;
use crate::perf_event::StackSamples;

/// Pages of the stack in a record of the ring.
pub(super) const PAGES_IN_RECORD: i32 = 4;
/// What a record begins with: thread, stack pointer, time of the first record and of this one, the first page's address, and what of
/// [`MOST_EFFORT`] the stack has taken so far; then for each page 0 if it was there.
pub(super) const HEAD_WORDS: usize = FIRST_RESULT + PAGES_IN_RECORD as usize;
const FIRST_RESULT: usize = 6;

/// A sample may take so much effort: 8 for a record. Where none of its pages is there, it is left out, for an effort of 1 if it is known where the
/// stack ends, else of 8: what lies there may be no stack, and it takes a quarter of a microsecond to see that a page is missing. Up to 1 MB of a
/// stack is copied, or up to 8 MB that are missing.
pub(super) const MOST_EFFORT: i32 = 512;
pub(super) const EFFORT_OF_RECORD: i32 = 8;
/// How long a record is in the ring, with what the kernel adds, bytes.
pub(super) const RECORD_BYTES: u64 = 8 + 8 * HEAD_WORDS as u64 + PAGES_IN_RECORD as u64 * PAGE_BYTES;

/// In the table of threads, the end of a stack has so many bits. Above it is how far below the end stack pointers lie that are of this stack, in
/// units of so many bits; 0: it is not known where the stack ends.
pub(super) const ADDRESS_BITS: u32 = 48;
pub(super) const UNIT_BITS: u32 = 16;

/// The second program goes so many rounds. The kernel lets programs go on with the next one 32 times.
const ROUNDS: i32 = MOST_EFFORT / 32;

/// In the table of threads, numbers that no thread has. From where on stacks are copied, bytes above the stack pointer, if all pages below are
/// in memory; and up to how many bytes above it the stacks of threads are copied that are not in the table.
pub(super) const BEGIN: u32 = u32::MAX;
pub(super) const NEW: u32 = u32::MAX - 1;

/// What the programs share, by descriptor.
#[derive(Clone, Copy)]
pub(super) struct Tables {
    /// Where the stacks of threads end that are to be copied.
    pub(super) wanted: RawFd,
    pub(super) ring: RawFd,
    /// So many [`STATE_WORDS`] for each processor.
    pub(super) state: RawFd,
    /// The second program.
    pub(super) next: RawFd,
}

/// What the first program hands on to the second one: thread, stack pointer, time, where copies end, where they go on, what of
/// [`MOST_EFFORT`] they have taken, and the effort where no page is there.
pub(super) const STATE_WORDS: u32 = 7;
const STATE_TID: i16 = 0;
const STATE_RSP: i16 = 8;
const STATE_TIME: i16 = 16;
const STATE_END: i16 = 24;
const STATE_AT: i16 = 32;
const STATE_EFFORT: i16 = 40;
const STATE_MISSING: i16 = 48;

// Numbers of helpers (include/uapi/linux/bpf.h).
const MAP_LOOKUP: i32 = 1;
const KTIME: i32 = 5;
const TAIL_CALL: i32 = 12;
const PID_AND_TID: i32 = 14;
const READ_USER: i32 = 112;
const RESERVE: i32 = 131;
const SUBMIT: i32 = 132;
const CURRENT_TASK: i32 = 158;
const REGISTERS_OF: i32 = 175;

const PAGE: i32 = PAGE_BYTES as i32;
/// A jump whose length is filled in by [`finished`].
const TO_THE_END: i16 = i16::MAX;

// In a program's frame: the thread, its stack pointer, and the time.
const TID: i16 = -8;
const RSP: i16 = -16;
const TIME: i16 = -24;
/// A key, or what is read to see whether it is there.
const KEY: i16 = -32;
/// What the kernel has handed to the program.
const CONTEXT: i16 = -40;
/// Where the state lies, and how many rounds the second program has gone.
const STATE: i16 = -48;
const ROUND: i16 = -56;
/// The effort where no page is there.
const MISSING: i16 = -64;

/// What the second program has in its frame of that, too.
const HANDED_ON: [(i16, i16); 4] = [(STATE_TID, TID), (STATE_RSP, RSP), (STATE_TIME, TIME), (STATE_MISSING, MISSING)];

/// The first program.
pub(super) fn of_sample(tables: Tables) -> Vec<I> {
    /// In `struct pt_regs`.
    const AT_RSP: i16 = 152;
    let mut all = vec![I::store_64(10, CONTEXT, 1), I::call(CURRENT_TASK), I::copy(1, 0), I::call(REGISTERS_OF)];
    all.extend([I::load_64(8, 0, AT_RSP), I::store_64(10, RSP, 8)]);
    all.extend([I::call(PID_AND_TID), I::copy_low(0, 0), I::store_64(10, TID, 0)]);
    // Where copies end is in r7: of a thread that is in the table, and of another.
    all.extend(look_up(tables.wanted, TID));
    let mut new = number(tables.wanted, NEW, 7);
    new.extend([I::go_if_equal(7, 0, TO_THE_END), I::add_register(7, 8)]);
    new.extend([I::set(1, EFFORT_OF_RECORD), I::store_64(10, MISSING, 1)]);
    const ABOVE: i32 = 64 - ADDRESS_BITS as i32;
    let mut known = vec![I::load_64(7, 0, 0), I::copy(1, 7), I::shift_right(1, ADDRESS_BITS as i32)];
    known.extend([I::shift_left(7, ABOVE), I::shift_right(7, ABOVE)]);
    known.extend([I::set(2, EFFORT_OF_RECORD), I::go_if_equal(1, 0, 5), I::set(2, 1)]);
    // Of another stack, nothing is copied.
    known.extend([I::shift_left(1, UNIT_BITS as i32), I::add_register(1, 8)]);
    known.extend([I::go_if_at_least_register(1, 7, 1), I::go(TO_THE_END), I::store_64(10, MISSING, 2)]);
    known.push(I::go(new.len() as i16));
    all.push(I::go_if_equal(0, 0, known.len() as i16));
    all.extend(known);
    all.extend(new);
    // Where the record ends, and with it what is read here, is in r9; r8 goes there from page to page, as long as they are in memory.
    all.extend(number(tables.wanted, BEGIN, 9));
    all.extend([I::add_register(9, 8), I::and(9, -PAGE), I::and(8, -PAGE), I::set(6, 0)]);
    const MOST_IN_RECORD: i32 = StackSamples::MOST_BYTES as i32 / PAGE + 1;
    let mut page = Vec::from(is_there(0));
    page.extend([I::go_if_equal(0, 0, 1), I::go(3), I::add(8, PAGE), I::add(6, 1)]);
    let (tests, round) = (3, page.len() as i16);
    all.extend([I::go_if_at_least_register(8, 7, TO_THE_END), I::go_if_at_least_register(8, 9, round + 2)]);
    all.push(I::go_if_at_least(6, MOST_IN_RECORD, round + 1));
    all.extend(page);
    all.push(I::go(-(round + tests + 1)));
    all.extend([I::call(KTIME), I::store_64(10, TIME, 0), I::set(6, 0)]);
    all.extend(number_at(tables.state, 0));
    all.extend([I::go_if_equal(0, 0, TO_THE_END), I::store_64(0, STATE_EFFORT, 6), I::store_64(0, STATE_END, 7)]);
    all.push(I::store_64(0, STATE_AT, 8));
    for (of_state, of_frame) in HANDED_ON {
        all.extend([I::load_64(1, 10, of_frame), I::store_64(0, of_state, 1)]);
    }
    all.extend(go_on(tables));
    finished(all)
}

/// The second program.
pub(super) fn of_pages(tables: Tables) -> Vec<I> {
    let mut all = vec![I::store_64(10, CONTEXT, 1)];
    all.extend(number_at(tables.state, 0));
    all.extend([I::go_if_equal(0, 0, TO_THE_END), I::store_64(10, STATE, 0), I::load_64(6, 0, STATE_EFFORT)]);
    all.extend([I::load_64(7, 0, STATE_END), I::load_64(8, 0, STATE_AT)]);
    for (of_state, of_frame) in HANDED_ON {
        all.extend([I::load_64(1, 0, of_state), I::store_64(10, of_frame, 1)]);
    }
    all.extend([I::set(1, 0), I::store_64(10, ROUND, 1)]);
    let begin = all.len();
    let mut round = record_of_pages(tables.ring);
    round.push(I::add(8, PAGES_IN_RECORD * PAGE));
    round.extend([I::load_64(1, 10, ROUND), I::add(1, 1), I::store_64(10, ROUND, 1)]);
    all.extend([I::go_if_at_least_register(8, 7, TO_THE_END), I::go_if_at_least(6, MOST_EFFORT, TO_THE_END)]);
    all.extend([I::load_64(1, 10, ROUND), I::go_if_at_least(1, ROUNDS, round.len() as i16 + 1)]);
    all.extend(round);
    all.push(I::go(-((all.len() - begin + 1) as i16)));
    all.extend([I::load_64(0, 10, STATE), I::store_64(0, STATE_EFFORT, 6), I::store_64(0, STATE_AT, 8)]);
    all.extend(go_on(tables));
    finished(all)
}

/// Copies the pages from r8 on into a record of the ring, unless none of them is in memory: there may be many that a large frame has not used. The
/// last record is there all the same: it tells how long all this has taken. Counts effort in r6.
fn record_of_pages(ring: RawFd) -> Vec<I> {
    // Nobody waits for this ring.
    const NO_WAKEUP: i32 = 1;
    const HEAD_BYTES: i32 = 8 * HEAD_WORDS as i32;
    let mut record = Vec::from(I::map(1, ring));
    record.extend([I::set(2, HEAD_BYTES + PAGES_IN_RECORD * PAGE), I::set(3, 0), I::call(RESERVE)]);
    let reserved = record.len();
    record.extend([I::go(0), I::copy(9, 0)]);
    record.extend([I::load_64(1, 10, TID), I::store_64(9, 0, 1), I::load_64(1, 10, RSP), I::store_64(9, 8, 1)]);
    record.extend([I::load_64(1, 10, TIME), I::store_64(9, 16, 1), I::call(KTIME), I::store_64(9, 24, 0)]);
    record.extend([I::store_64(9, 32, 8), I::store_64(9, 40, 6)]);
    for page in 0..PAGES_IN_RECORD {
        record.extend([I::copy(1, 9), I::add(1, HEAD_BYTES + page * PAGE), I::set(2, PAGE)]);
        record.extend([I::copy(3, 8), I::add(3, page * PAGE), I::call(READ_USER)]);
        // Without a branch, which would take the kernel's check time.
        record.push(I::store_64(9, 8 * (FIRST_RESULT as i16 + page as i16), 0));
    }
    record.extend([I::copy(1, 9), I::set(2, NO_WAKEUP), I::call(SUBMIT)]);
    // Without room in the ring, nothing is copied.
    record[reserved] = I::go_if_equal(0, 0, (record.len() - reserved - 1) as i16);
    record.extend([I::add(6, EFFORT_OF_RECORD), I::go(2)]);
    // r9 stays negative if none of the pages is in memory.
    let mut all = vec![I::set(9, -1)];
    for page in 0..PAGES_IN_RECORD {
        all.extend(is_there(page));
        all.push(I::and_register(9, 0));
    }
    let mut is_last = vec![I::copy(1, 8), I::add(1, PAGES_IN_RECORD * PAGE), I::go_if_at_least_register(1, 7, 4)];
    is_last.extend([I::load_64(1, 10, MISSING), I::add_register(1, 6)]);
    is_last.extend([I::go_if_at_least(1, MOST_EFFORT, 1), I::go(record.len() as i16)]);
    all.push(I::go_if_equal(9, 0, is_last.len() as i16));
    all.extend(is_last);
    all.extend(record);
    all.extend([I::load_64(1, 10, MISSING), I::add_register(6, 1)]);
    all
}

/// Whether a page is in memory, so many behind the one at r8: r0 is 0 then, and negative otherwise.
fn is_there(page: i32) -> [I; 6] {
    const WORD: i32 = size_of::<u64>() as i32;
    let (to, from) = ([I::copy(1, 10), I::add(1, KEY.into())], [I::copy(3, 8), I::add(3, page * PAGE)]);
    [to[0], to[1], I::set(2, WORD), from[0], from[1], I::call(READ_USER)]
}

/// Where the entry of a table lies whose key is in the frame: r0, 0 if there is none.
fn look_up(table: RawFd, key: i16) -> Vec<I> {
    let mut code = Vec::from(I::map(1, table));
    code.extend([I::copy(2, 10), I::add(2, key.into()), I::call(MAP_LOOKUP)]);
    code
}

/// The same of an entry with this key.
fn number_at(table: RawFd, key: u32) -> Vec<I> {
    let mut code = vec![I::set(1, key.cast_signed()), I::store_64(10, KEY, 1)];
    code.extend(look_up(table, KEY));
    code
}

/// The number in that entry, in a register, or the end if there is none.
fn number(table: RawFd, key: u32, to: u8) -> Vec<I> {
    let mut code = number_at(table, key);
    code.extend([I::go_if_equal(0, 0, TO_THE_END), I::load_64(to, 0, 0)]);
    code
}

/// Goes on with the second program.
fn go_on(tables: Tables) -> Vec<I> {
    let mut code = vec![I::load_64(1, 10, CONTEXT)];
    code.extend(I::map(2, tables.next));
    code.extend([I::set(3, 0), I::call(TAIL_CALL)]);
    code
}

/// A program with its end. The sample's record is written, too.
fn finished(mut all: Vec<I>) -> Vec<I> {
    let behind = all.len();
    let jumps = all.iter_mut().enumerate().filter(|(_, code)| code.offset == TO_THE_END);
    jumps.for_each(|(at, code)| code.offset = (behind - at - 1) as i16);
    all.extend([I::set(0, 1), I::EXIT]);
    all
}

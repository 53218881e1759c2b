//! Programs that the kernel runs itself (bpf(2)), as far as callpath needs them: maps, loading, and the ring that such a program
//! writes into. Root may load them.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

const PAGE_BYTES: usize = 4096;

/// An instruction (include/uapi/linux/bpf.h, `struct bpf_insn`): operation, registers, offset, immediate value.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Instruction {
    operation: u8,
    /// The destination in the low half, the source in the high one.
    registers: u8,
    /// Of a jump: how many instructions it skips.
    pub(crate) offset: i16,
    immediate: i32,
}

/// Instructions by name, as the kernel's assembler has them. `r10` is the frame's pointer.
impl Instruction {
    const fn new(operation: u8, (to, from): (u8, u8), offset: i16, immediate: i32) -> Instruction {
        Instruction { operation, registers: from << 4 | to, offset, immediate }
    }

    /// `to = from`
    pub(crate) const fn copy(to: u8, from: u8) -> Instruction {
        Instruction::new(0xbf, (to, from), 0, 0)
    }

    /// `to = from`, the low 32 bits.
    pub(crate) const fn copy_low(to: u8, from: u8) -> Instruction {
        Instruction::new(0xbc, (to, from), 0, 0)
    }

    /// `to = number`
    pub(crate) const fn set(to: u8, number: i32) -> Instruction {
        Instruction::new(0xb7, (to, 0), 0, number)
    }

    /// `to += number`
    pub(crate) const fn add(to: u8, number: i32) -> Instruction {
        Instruction::new(0x07, (to, 0), 0, number)
    }

    /// `to <<= bits`
    pub(crate) const fn shift_left(to: u8, bits: i32) -> Instruction {
        Instruction::new(0x67, (to, 0), 0, bits)
    }

    /// `to >>= bits`, unsigned.
    pub(crate) const fn shift_right(to: u8, bits: i32) -> Instruction {
        Instruction::new(0x77, (to, 0), 0, bits)
    }

    /// `to += from`
    pub(crate) const fn add_register(to: u8, from: u8) -> Instruction {
        Instruction::new(0x0f, (to, from), 0, 0)
    }

    /// `to &= number`
    pub(crate) const fn and(to: u8, number: i32) -> Instruction {
        Instruction::new(0x57, (to, 0), 0, number)
    }

    /// `to &= from`
    pub(crate) const fn and_register(to: u8, from: u8) -> Instruction {
        Instruction::new(0x5f, (to, from), 0, 0)
    }

    /// `to = *(u64 *)(from + offset)`
    pub(crate) const fn load_64(to: u8, from: u8, offset: i16) -> Instruction {
        Instruction::new(0x79, (to, from), offset, 0)
    }

    /// `*(u64 *)(to + offset) = from`
    pub(crate) const fn store_64(to: u8, offset: i16, from: u8) -> Instruction {
        Instruction::new(0x7b, (to, from), offset, 0)
    }

    /// `to` = a map's address; takes two instructions.
    pub(crate) const fn map(to: u8, map: RawFd) -> [Instruction; 2] {
        const IS_MAP: u8 = 1;
        [Instruction::new(0x18, (to, IS_MAP), 0, map), Instruction::new(0, (0, 0), 0, 0)]
    }

    /// Calls a helper of the kernel, by its number.
    pub(crate) const fn call(helper: i32) -> Instruction {
        Instruction::new(0x85, (0, 0), 0, helper)
    }

    /// Jumps forward or back by this many instructions.
    pub(crate) const fn go(by: i16) -> Instruction {
        Instruction::new(0x05, (0, 0), by, 0)
    }

    /// Jumps if `register == number`.
    pub(crate) const fn go_if_equal(register: u8, number: i32, by: i16) -> Instruction {
        Instruction::new(0x15, (register, 0), by, number)
    }

    /// Jumps if `register >= number`, unsigned.
    pub(crate) const fn go_if_at_least(register: u8, number: i32, by: i16) -> Instruction {
        Instruction::new(0x35, (register, 0), by, number)
    }

    /// Jumps if `register >= other`, unsigned.
    pub(crate) const fn go_if_at_least_register(register: u8, other: u8, by: i16) -> Instruction {
        Instruction::new(0x3d, (register, other), by, 0)
    }

    /// Ends the program.
    pub(crate) const EXIT: Instruction = Instruction::new(0x95, (0, 0), 0, 0);
}

/// bpf(2). `attributes`: what the command takes.
fn bpf<T>(command: libc::c_int, attributes: &T) -> io::Result<libc::c_long> {
    // SAFETY: the kernel reads as many bytes as are said.
    match unsafe { libc::syscall(libc::SYS_bpf, command, attributes, size_of::<T>()) } {
        failed if failed < 0 => Err(io::Error::last_os_error()),
        done => Ok(done),
    }
}

fn descriptor(opened: libc::c_long) -> OwnedFd {
    // SAFETY: a new descriptor that no other code owns.
    unsafe { OwnedFd::from_raw_fd(opened as RawFd) }
}

/// Loads a program that samples may run.
///
/// # Errors
/// The kernel does not allow it, or does not know one of the helpers.
pub(crate) fn load_for_samples(code: &[Instruction], licence: &CStr) -> io::Result<OwnedFd> {
    const PROG_LOAD: libc::c_int = 5;
    const OF_PERF_EVENTS: u32 = 7;
    #[repr(C)]
    struct Attributes {
        kind: u32,
        count: u32,
        code: u64,
        licence: u64,
        log: [u64; 2],
        version_and_flags: u64,
    }
    let attributes = Attributes {
        kind: OF_PERF_EVENTS,
        count: code.len() as u32,
        code: code.as_ptr() as u64,
        licence: licence.as_ptr() as u64,
        log: [0; 2],
        version_and_flags: 0,
    };
    bpf(PROG_LOAD, &attributes).map(descriptor)
}

/// Runs a program at each sample of an event, and of the events that threads inherit from it, before the sample is written.
pub(crate) fn run_at_samples(event: RawFd, program: RawFd) -> io::Result<()> {
    /// `_IOW('$', 8, __u32)`
    const SET_BPF: libc::c_ulong = 0x4004_2408;
    // SAFETY: the argument is a descriptor's number.
    match unsafe { libc::ioctl(event, SET_BPF as _, program) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[repr(C)]
struct MapAttributes {
    kind: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries: u32,
    flags: u32,
}

impl MapAttributes {
    fn create(self) -> io::Result<OwnedFd> {
        bpf(0, &self).map(descriptor)
    }
}

/// Sets an entry of a map, whose values are as large as this one; `None` removes it.
fn set<V>(map: &OwnedFd, key: u32, value: Option<V>) -> io::Result<()> {
    const UPDATE: libc::c_int = 2;
    const DELETE: libc::c_int = 3;
    #[repr(C)]
    struct Attributes {
        map: u64,
        key: u64,
        value: u64,
        flags: u64,
    }
    let attributes = Attributes {
        map: map.as_raw_fd() as u64,
        key: &raw const key as u64,
        value: value.as_ref().map_or(0, |value| std::ptr::from_ref(value) as u64),
        flags: 0,
    };
    bpf(if value.is_some() { UPDATE } else { DELETE }, &attributes).map(drop)
}

/// What a program goes on with: another program. The table that holds it forgets it when this is dropped.
#[derive(Debug)]
pub(crate) struct NextProgram(OwnedFd);

impl NextProgram {
    /// None yet.
    pub(crate) fn new() -> io::Result<NextProgram> {
        const PROGRAMS: u32 = 3;
        MapAttributes { kind: PROGRAMS, key_bytes: 4, value_bytes: 4, entries: 1, flags: 0 }.create().map(NextProgram)
    }

    pub(crate) fn set(&self, program: &OwnedFd) -> io::Result<()> {
        set(&self.0, 0, Some(program.as_raw_fd()))
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// A few words for each processor, which the programs there share.
#[derive(Debug)]
pub(crate) struct Words(OwnedFd);

impl Words {
    pub(crate) fn new(words: u32) -> io::Result<Words> {
        const ARRAY_BY_PROCESSOR: u32 = 6;
        let kind = ARRAY_BY_PROCESSOR;
        MapAttributes { kind, key_bytes: 4, value_bytes: 8 * words, entries: 1, flags: 0 }.create().map(Words)
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// A table of numbers by number, which programs read.
#[derive(Debug)]
pub(crate) struct Numbers(OwnedFd);

impl Numbers {
    /// An empty one with room for so many.
    pub(crate) fn new(entries: u32) -> io::Result<Numbers> {
        const HASH: u32 = 1;
        MapAttributes { kind: HASH, key_bytes: 4, value_bytes: 8, entries, flags: 0 }.create().map(Numbers)
    }

    /// `None` removes the key.
    pub(crate) fn set(&self, key: u32, value: Option<u64>) -> io::Result<()> {
        set(&self.0, key, value)
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// A ring that programs on all processors write records into, and this process reads.
#[derive(Debug)]
pub(crate) struct RecordRing {
    descriptor: OwnedFd,
    /// A page with how far it was read.
    read_up_to: *mut u8,
    /// A page with how far it was written; then the data, twice, so that no record is cut.
    written: *mut u8,
    data_bytes: usize,
}

// SAFETY: the mappings are this value's own, and are accessed by atomics alone.
unsafe impl Send for RecordRing {}
// SAFETY: as above.
unsafe impl Sync for RecordRing {}

impl RecordRing {
    /// `data_bytes`: a power of two, and whole pages.
    pub(crate) fn new(data_bytes: usize) -> io::Result<RecordRing> {
        const RING: u32 = 27;
        let attributes =
            MapAttributes { kind: RING, key_bytes: 0, value_bytes: 0, entries: data_bytes as u32, flags: 0 };
        let descriptor = attributes.create()?;
        let map = |len: usize, access: libc::c_int, offset: usize| {
            let (null, fd) = (std::ptr::null_mut(), descriptor.as_raw_fd());
            // SAFETY: a new mapping at no fixed address.
            let place = unsafe { libc::mmap(null, len, access, libc::MAP_SHARED, fd, offset as libc::off_t) };
            if place == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(place.cast::<u8>()) }
        };
        let read_up_to = map(PAGE_BYTES, libc::PROT_READ | libc::PROT_WRITE, 0)?;
        match map(PAGE_BYTES + 2 * data_bytes, libc::PROT_READ, PAGE_BYTES) {
            Ok(written) => Ok(RecordRing { descriptor, read_up_to, written, data_bytes }),
            Err(error) => {
                // SAFETY: our own mapping.
                unsafe { libc::munmap(read_up_to.cast(), PAGE_BYTES) };
                Err(error)
            }
        }
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }

    /// Passes each finished record from a position on to `each`, and returns the position behind them. Positions count bytes since the ring was
    /// made. The records stay in the ring until they are given back.
    pub(crate) fn read(&self, from: u64, mut each: impl FnMut(Span)) -> u64 {
        const IS_BUSY: u32 = 1 << 31;
        const IS_DISCARDED: u32 = 1 << 30;
        const HEADER_BYTES: usize = 8;
        let mut at = from;
        // What is written meanwhile may be more than can be read.
        let end = self.written_up_to();
        while at < end {
            let offset = at as usize & (self.data_bytes - 1);
            // SAFETY: inside the data, at a multiple of eight bytes.
            let header = unsafe { &*self.written.add(PAGE_BYTES + offset).cast::<AtomicU32>() }.load(Acquire);
            if header & IS_BUSY != 0 {
                break;
            }
            let len = (header & !(IS_BUSY | IS_DISCARDED)) as usize;
            if len > self.data_bytes {
                // Not what the kernel writes.
                break;
            }
            if header & IS_DISCARDED == 0 {
                each(Span { at, offset: offset + HEADER_BYTES, words: len / 8 });
            }
            at += (HEADER_BYTES + len).next_multiple_of(8) as u64;
        }
        at
    }

    /// Up to where programs have taken room, a position.
    pub(crate) fn written_up_to(&self) -> u64 {
        // SAFETY: the beginning of our own mapping.
        unsafe { &*self.written.cast::<AtomicU64>() }.load(Acquire)
    }

    /// How much it holds, bytes.
    pub(crate) fn len_bytes(&self) -> usize {
        self.data_bytes
    }

    /// What lies in a record that was read; something else once it was given back.
    pub(crate) fn words(&self, span: Span) -> &[AtomicU64] {
        // SAFETY: a span of this ring begins in its data and is no longer than that, and the data is mapped twice, one after the other; all
        // accesses are atomic.
        unsafe { std::slice::from_raw_parts(self.written.add(PAGE_BYTES + span.offset).cast(), span.words) }
    }

    /// The space of the records up to a position can be written again.
    pub(crate) fn give_back(&self, up_to: u64) {
        // SAFETY: the beginning of our own mapping.
        unsafe { &*self.read_up_to.cast::<AtomicU64>() }.store(up_to, Release);
    }
}

/// Where a record lies, or a part of it, in the [`RecordRing`] that it was read from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    /// The record's position.
    pub(crate) at: u64,
    offset: usize,
    words: usize,
}

impl Span {
    /// So many words of it, from this one on. `None`: it has fewer.
    pub(crate) fn part(self, from: usize, words: usize) -> Option<Span> {
        let is_in = self.words.checked_sub(from).is_some_and(|left| left >= words);
        is_in.then(|| Span { offset: self.offset + 8 * from, words, ..self })
    }
}

impl Drop for RecordRing {
    fn drop(&mut self) {
        // SAFETY: our own mappings, which nothing borrows any more.
        unsafe {
            libc::munmap(self.read_up_to.cast(), PAGE_BYTES);
            libc::munmap(self.written.cast(), PAGE_BYTES + 2 * self.data_bytes);
        }
    }
}

//! One record of a ring (include/uapi/linux/perf_event.h, `enum perf_event_type`), as our events ask for it.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use callpath_format::address::RunAddr;

use crate::maps::{FileId, MapEntry, without_deletion};

/// What our events write of each sample.
pub(crate) struct Fields;

impl Fields {
    const TID: u64 = 1 << 1;
    const TIME: u64 = 1 << 2;
    const CALLCHAIN: u64 = 1 << 5;
    const REGS_USER: u64 = 1 << 12;
    const STACK_USER: u64 = 1 << 13;
    const IDENTIFIER: u64 = 1 << 16;
    const ALWAYS: u64 = Fields::IDENTIFIER | Fields::TID | Fields::TIME | Fields::REGS_USER | Fields::STACK_USER;
    /// ax, bx, cx, dx, si, di, bp, sp, ip, r8 to r15 (arch/x86/include/uapi/asm/perf_regs.h).
    pub(crate) const REGISTERS: u64 = 0x1ff | 0xff << 16;
    /// Where each of them goes: in DWARF order, rip last.
    const PLACES: [usize; 17] = [0, 3, 2, 1, 4, 5, 6, 7, 16, 8, 9, 10, 11, 12, 13, 14, 15];
    /// `kernel`: with what the kernel has called.
    pub(crate) fn sample_type(kernel: bool) -> u64 {
        Fields::ALWAYS | if kernel { Fields::CALLCHAIN } else { 0 }
    }

    /// Behind every record that is no sample: pid and tid, time, identifier.
    const TRAILER_WORDS: usize = 3;
}

/// Where a record lies.
#[derive(Clone, Copy, Debug)]
pub struct RingRecord<'r> {
    ring: &'r [AtomicU64],
    begin: usize,
    len: usize,
}

/// A record.
#[derive(Debug)]
pub struct Record<'r> {
    /// The process and the thread that it is about.
    pub pid: u32,
    /// See `pid`.
    pub tid: u32,
    /// The number of the event that has written it, or of the one that it was inherited from.
    pub event: u64,
    /// What has happened.
    pub what: What<'r>,
}

/// What a record says.
#[derive(Debug)]
pub enum What<'r> {
    /// A sample of the thread.
    Sample {
        /// Registers in DWARF order, then rip. `None`: it has none in user mode, or those of another word length.
        registers: Option<[u64; 17]>,
        /// What lies above its stack pointer.
        stack: StackCopy<'r>,
        /// If it hit in the kernel, and this is asked for: where, then the return addresses of what the kernel has called, the innermost
        /// first.
        kernel: Vec<u64>,
    },
    /// The process has mapped code.
    Mapped(MapEntry),
    /// The thread has a name now; `is_exec`: it has executed another program.
    Named {
        /// The name.
        name: String,
        /// See above.
        is_exec: bool,
    },
    /// The thread has begun.
    Began {
        /// The process that it was begun by.
        by: u32,
    },
    /// The thread has ended.
    Ended,
    /// So many records of the event were lost, samples mostly: there was no room.
    Lost(u64),
    /// The thread has left its processor.
    Leaves,
    /// It goes on, on some processor.
    GoesOn,
    /// The kernel takes no samples for a while, since there were too many.
    Throttled,
    /// Nothing that is of use here.
    Other,
}

/// A copy of a stack, in at most two pieces: the ring's end may lie between them.
#[derive(Clone, Copy, Debug, Default)]
pub struct StackCopy<'r> {
    /// Its words, from the stack pointer up.
    pub pieces: [&'r [AtomicU64]; 2],
}

impl StackCopy<'_> {
    /// How long it is, bytes.
    pub fn len_bytes(&self) -> usize {
        8 * self.pieces.iter().map(|piece| piece.len()).sum::<usize>()
    }
}

/// A thread or a process has begun (include/uapi/linux/perf_event.h).
const FORK: u32 = 7;

impl<'r> RingRecord<'r> {
    pub(super) fn new(ring: &'r [AtomicU64], begin: usize, len: usize) -> RingRecord<'r> {
        RingRecord { ring, begin, len }
    }

    fn word(&self, index: usize) -> Option<u64> {
        if index >= self.len {
            return None;
        }
        self.ring.get((self.begin + index) % self.ring.len()).map(|word| word.load(Relaxed))
    }

    fn pair(&self, index: usize) -> Option<(u32, u32)> {
        self.word(index).map(|word| (word as u32, (word >> 32) as u32))
    }

    /// The bytes of words up to the first zero.
    fn text(&self, from: usize, to: usize) -> Vec<u8> {
        let words = (from..to).map_while(|index| self.word(index));
        words.flat_map(u64::to_le_bytes).take_while(|byte| *byte != 0).collect()
    }

    fn copy(&self, from: usize, len: usize) -> Option<StackCopy<'r>> {
        if from.checked_add(len)? > self.len {
            return None;
        }
        let at = (self.begin + from) % self.ring.len();
        let first = len.min(self.ring.len() - at);
        Some(StackCopy { pieces: [self.ring.get(at..at + first)?, self.ring.get(..len - first)?] })
    }

    fn kind(&self) -> (u32, u16) {
        let head = self.word(0).unwrap_or(0);
        (head as u32, (head >> 32) as u16)
    }

    /// Whether a thread of a process that was there before has begun.
    pub(super) fn tells_of_thread(&self) -> bool {
        self.kind().0 == FORK && self.pair(1).is_some_and(|(pid, parent)| pid == parent)
    }

    /// When it was written, by the monotonic clock, nanoseconds.
    pub fn time_ns(&self) -> Option<u64> {
        const SAMPLE: u32 = 9;
        let at = if self.kind().0 == SAMPLE { 3 } else { self.len.checked_sub(2)? };
        self.word(at)
    }

    /// What it says. `with_kernel`: its events say what the kernel has called ([`StackSamples::kernel`]). `None`: it is cut.
    ///
    /// [`StackSamples::kernel`]: crate::StackSamples::kernel
    pub fn read(&self, with_kernel: bool) -> Option<Record<'r>> {
        const MMAP2: u32 = 10;
        const LOST: u32 = 2;
        const COMM: u32 = 3;
        const EXIT: u32 = 4;
        const THROTTLE: u32 = 5;
        const SAMPLE: u32 = 9;
        const COMM_EXEC: u16 = 1 << 13;
        const SWITCH: u32 = 14;
        // Of an event of all threads; who comes or went besides is not asked for.
        const SWITCH_CPU_WIDE: u32 = 15;
        const SWITCH_OUT: u16 = 1 << 13;
        let (kind, flags) = self.kind();
        if kind == SAMPLE {
            return self.sample(with_kernel);
        }
        let body_end = self.len.checked_sub(Fields::TRAILER_WORDS).filter(|end| *end >= 1)?;
        let (pid, tid) = self.pair(body_end)?;
        let event = self.word(self.len - 1)?;
        let (what, (pid, tid)) = match kind {
            MMAP2 => (What::Mapped(self.mapping(body_end)?), self.pair(1)?),
            COMM => {
                let name = String::from_utf8_lossy(&self.text(2, body_end)).into_owned();
                (What::Named { name, is_exec: flags & COMM_EXEC != 0 }, self.pair(1)?)
            }
            FORK | EXIT => {
                let (pid, by) = self.pair(1)?;
                let (tid, _) = self.pair(2)?;
                (if kind == FORK { What::Began { by } } else { What::Ended }, (pid, tid))
            }
            LOST => return Some(Record { pid, tid, event: self.word(1)?, what: What::Lost(self.word(2)?) }),
            THROTTLE => (What::Throttled, (pid, tid)),
            SWITCH | SWITCH_CPU_WIDE if flags & SWITCH_OUT == 0 => (What::GoesOn, (pid, tid)),
            SWITCH | SWITCH_CPU_WIDE => (What::Leaves, (pid, tid)),
            _ => (What::Other, (pid, tid)),
        };
        Some(Record { pid, tid, event, what })
    }

    fn sample(&self, with_kernel: bool) -> Option<Record<'r>> {
        const ABI_64: u64 = 2;
        const ABI_NONE: u64 = 0;
        /// What is no address, but says whose the next ones are.
        const FIRST_MARK: u64 = -4095_i64 as u64;
        let (event, (pid, tid)) = (self.word(1)?, self.pair(2)?);
        let mut at = 4_usize;
        let mut kernel = Vec::new();
        if with_kernel {
            let end = (at + 1).checked_add(usize::try_from(self.word(at)?).ok()?).filter(|end| *end < self.len)?;
            kernel.extend((at + 1..end).filter_map(|at| self.word(at)).filter(|addr| *addr < FIRST_MARK));
            at = end;
        }
        let abi = self.word(at)?;
        at += 1;
        let mut registers = [0; 17];
        if abi != ABI_NONE {
            for place in Fields::PLACES {
                registers[place] = self.word(at)?;
                at += 1;
            }
        }
        let copied = self.word(at)? as usize / 8;
        let mut stack = StackCopy::default();
        if copied != 0 {
            // Behind the copy: how much of it there is.
            let valid = self.word((at + 1).checked_add(copied)?)? as usize / 8;
            stack = self.copy(at + 1, valid.min(copied))?;
        }
        let registers = (abi == ABI_64).then_some(registers);
        Some(Record { pid, tid, event, what: What::Sample { registers, stack, kernel } })
    }

    fn mapping(&self, body_end: usize) -> Option<MapEntry> {
        const PROT_READ: u32 = 1;
        const PROT_EXEC: u32 = 4;
        let (start, len, file_offset) = (self.word(2)?, self.word(3)?, self.word(4)?);
        let (device, inode) = (self.pair(5)?, self.word(6)?);
        let (protection, _) = self.pair(8)?;
        let mut path = self.text(9, body_end);
        // As /proc/PID/maps names them.
        if path == b"//anon" {
            path.clear();
        }
        let kept = without_deletion(&path).map(<[u8]>::len);
        let deleted = kept.is_some();
        path.truncate(kept.unwrap_or(path.len()));
        Some(MapEntry {
            start: RunAddr(start),
            end: RunAddr(start.checked_add(len)?),
            executable: protection & PROT_EXEC != 0,
            readable: protection & PROT_READ != 0,
            file_offset,
            file: (inode != 0).then_some(FileId { device, inode }),
            path: PathBuf::from(OsString::from_vec(path)),
            deleted,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Records;
    use super::*;

    /// A record as the kernel lays it out.
    fn record(kind: u32, flags: u16, body: &[u64]) -> Vec<u64> {
        let len = 8 * (1 + body.len()) as u64;
        [u64::from(kind) | u64::from(flags) << 32 | len << 48].into_iter().chain(body.iter().copied()).collect()
    }

    fn sample(stack: &[u64], valid: usize) -> Vec<u64> {
        let mut body = vec![77, 5 | 6 << 32, 1000, 2];
        body.extend(100..117);
        body.push(8 * stack.len() as u64);
        body.extend(stack);
        body.push(8 * valid as u64);
        record(9, 2, &body)
    }

    fn ring_of(words: &[u64], len: usize, begin: usize) -> Vec<AtomicU64> {
        let mut ring = vec![0; len];
        words.iter().enumerate().for_each(|(index, word)| ring[(begin + index) % len] = *word);
        ring.into_iter().map(AtomicU64::new).collect()
    }

    #[test]
    fn a_sample_that_lies_over_the_rings_end() {
        let words = sample(&[10, 11, 12, 13, 14, 15], 4);
        for begin in 0..64 {
            let ring = ring_of(&words, 64, begin);
            let (at, end) = (8 * begin as u64, 8 * (begin + words.len()) as u64);
            let mut records = Records::within(&ring, at, end);
            let found = records.next().expect("a record");
            assert_eq!((found.time_ns(), records.position()), (Some(1000), end));
            let Some(Record {
                pid: 5,
                tid: 6,
                event: 77,
                what: What::Sample { registers: Some(registers), stack, .. },
            }) = found.read(false)
            else {
                panic!("{found:?}");
            };
            // rdx is the kernel's fourth and DWARF's second; rip stands last here.
            assert_eq!(
                (registers[0], registers[1], registers[3], registers[16], registers[15]),
                (100, 103, 101, 108, 116)
            );
            let copied: Vec<u64> = stack.pieces.into_iter().flatten().map(|word| word.load(Relaxed)).collect();
            assert_eq!(copied, [10, 11, 12, 13]);
            assert!(records.next().is_none());
        }
    }

    #[test]
    fn what_the_kernel_has_called_stands_before_the_registers() {
        const KERNEL: u64 = -128_i64 as u64;
        let chain = [KERNEL, 0xffff_ffff_8100_1234, 0xffff_ffff_8100_00ba];
        let mut words = sample(&[10, 11], 2);
        words.splice(4..4, [chain.len() as u64].into_iter().chain(chain));
        words[0] = words[0] & 0xffff_ffff_ffff | (8 * words.len() as u64) << 48;
        let ring = ring_of(&words, 64, 40);
        let mut records = Records::within(&ring, 8 * 40, 8 * (40 + words.len() as u64));
        let Some(Record { what: What::Sample { registers: Some(registers), stack, kernel }, .. }) =
            records.next().expect("a record").read(true)
        else {
            panic!("it is a sample");
        };
        assert_eq!((registers[0], stack.len_bytes(), &kernel[..]), (100, 16, &chain[1..]));
        // A chain that is longer than the record.
        words[4] = 1 << 40;
        let ring = ring_of(&words, 64, 0);
        let mut records = Records::within(&ring, 0, 8 * words.len() as u64);
        assert!(records.next().expect("a record").read(true).is_none());
    }

    #[test]
    fn what_has_happened_beside_samples() {
        let trailer = [5 | 6 << 32, 2000, 77];
        let name = u64::from_le_bytes(*b"worker\0\0");
        let path = [u64::from_le_bytes(*b"/usr/lib"), u64::from_le_bytes(*b"/a.so\0\0\0")];
        let mapped = [7 | 8 << 32, 0x1000, 0x2000, 0x3000, 1 | 2 << 32, 99, 0, 5 | 2 << 32, path[0], path[1]];
        let words: Vec<u64> = [
            record(3, 1 << 13, &[&[7 | 8 << 32, name][..], &trailer].concat()),
            record(7, 0, &[&[7 | 5 << 32, 8 | 6 << 32, 1][..], &trailer].concat()),
            record(4, 0, &[&[7 | 5 << 32, 8 | 6 << 32, 1][..], &trailer].concat()),
            record(2, 0, &[&[77, 3][..], &trailer].concat()),
            record(10, 2, &[&mapped[..], &trailer].concat()),
            record(99, 0, &trailer),
            record(14, 0, &trailer),
            record(14, 1 << 13, &trailer),
            record(15, 0, &[&[9 | 9 << 32][..], &trailer].concat()),
            record(15, 1 << 13, &[&[9 | 9 << 32][..], &trailer].concat()),
        ]
        .concat();
        let ring = ring_of(&words, 128, 0);
        let records: Vec<RingRecord<'_>> = Records::within(&ring, 0, 8 * words.len() as u64).collect();
        assert!(records.iter().all(|record| record.time_ns() == Some(2000)));
        let read: Vec<Record<'_>> = records.iter().map(|record| record.read(false).expect("whole")).collect();
        let whose: Vec<(u32, u32)> = read.iter().map(|record| (record.pid, record.tid)).collect();
        assert!(read.iter().all(|record| record.event == 77));
        assert_eq!(whose, [(7, 8), (7, 8), (7, 8), (5, 6), (7, 8), (5, 6), (5, 6), (5, 6), (5, 6), (5, 6)]);
        assert!(matches!(read[6].what, What::GoesOn) && matches!(read[7].what, What::Leaves));
        assert!(matches!(read[8].what, What::GoesOn) && matches!(read[9].what, What::Leaves));
        assert!(matches!(&read[0].what, What::Named { name, is_exec: true } if name == "worker"));
        assert!(matches!(read[1].what, What::Began { by: 5 }) && matches!(read[2].what, What::Ended));
        assert!(matches!(read[3].what, What::Lost(3)) && matches!(read[5].what, What::Other));
        let What::Mapped(entry) = &read[4].what else { panic!("{:?}", read[4]) };
        assert_eq!((entry.start, entry.end, entry.file_offset), (RunAddr(0x1000), RunAddr(0x3000), 0x3000));
        assert_eq!((entry.executable, entry.file), (true, Some(FileId { device: (1, 2), inode: 99 })));
        assert_eq!(entry.path, PathBuf::from("/usr/lib/a.so"));
    }

    #[test]
    fn any_words_are_read_without_harm() {
        let mut seed = 1u64;
        let mut next = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            seed >> 11
        };
        for round in 0..20_000 {
            let kinds = [9, 10, 3, 7, 2, 4];
            let words: Vec<u64> = (0..64)
                .map(|index| match index % 7 {
                    0 => kinds[next() as usize % 6] | (next() % 24 * 8) << 48,
                    _ if round % 2 == 0 => next() % 9,
                    _ => next(),
                })
                .collect();
            let ring = ring_of(&words, 64, 0);
            for record in Records::within(&ring, 8 * (next() % 64), next() % 1024) {
                let (_, read) = (record.time_ns(), record.read(round % 3 == 0));
                if let Some(Record { what: What::Sample { stack, .. }, .. }) = read {
                    assert!(stack.len_bytes() <= 8 * 64);
                }
            }
        }
    }
}

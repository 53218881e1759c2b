//! A seccomp filter, asked what it would answer: the classic packet filter machine over a system call's record
//! (seccomp(2), linux/filter.h, linux/seccomp.h). It answers for any call, and does not know which ones callpath makes.

/// A filter in the program's memory.
pub struct Filter {
    instructions: *const [u8; 8],
    len: usize,
}

/// The most instructions that the kernel takes (BPF_MAXINSNS).
const MOST: usize = 4096;

const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;
const SECCOMP_RET_ALLOW: u32 = 0x7fff_0000;
const SECCOMP_RET_LOG: u32 = 0x7ffc_0000;
const SECCOMP_RET_ACTION: u32 = 0xffff_0000;

impl Filter {
    /// The `struct sock_fprog` at `at`. `is_readable`: whether eight bytes are. `None`: it cannot be one.
    pub fn at(at: usize, is_readable: impl Fn(usize) -> bool) -> Option<Filter> {
        const PAGE: usize = 4096;
        if at == 0 || !is_readable(at) || !is_readable(at.checked_add(8)?) {
            return None;
        }
        // SAFETY: sixteen bytes that can be read; nothing is assumed of where they lie.
        let [len, instructions] = unsafe { core::ptr::read_unaligned(at as *const [u64; 2]) };
        let (len, instructions) = (usize::from(len as u16), instructions as usize);
        let last = instructions.checked_add(len * 8)?.checked_sub(8)?;
        let mut pages = (instructions..=last).step_by(PAGE).chain([last]);
        let can_be_read = len > 0 && len <= MOST && pages.all(is_readable);
        can_be_read.then_some(Filter { instructions: instructions as *const [u8; 8], len })
    }

    /// Whether it allows the call with this number and these arguments from this instruction address.
    pub fn allows(&self, number: u32, pc: u64, arguments: [u64; 6]) -> bool {
        let answer = self.run(number, pc, arguments).unwrap_or(0) & SECCOMP_RET_ACTION;
        answer == SECCOMP_RET_ALLOW || answer == SECCOMP_RET_LOG
    }

    fn instruction(&self, index: usize) -> Option<(u16, u8, u8, u32)> {
        if index >= self.len {
            return None;
        }
        // SAFETY: one of `len` instructions that can be read; nothing is assumed of where they lie.
        let [a, b, jump_true, jump_false, c, d, e, f] =
            unsafe { core::ptr::read_unaligned(self.instructions.wrapping_add(index)) };
        Some((u16::from_le_bytes([a, b]), jump_true, jump_false, u32::from_le_bytes([c, d, e, f])))
    }

    /// The filter's result. `None`: the kernel would not have accepted the filter.
    fn run(&self, number: u32, pc: u64, arguments: [u64; 6]) -> Option<u32> {
        let load = |at: u32| -> Option<u32> {
            let half = |word: u64, at: u32| if at & 4 == 0 { word as u32 } else { (word >> 32) as u32 };
            match at {
                _ if !at.is_multiple_of(4) => None,
                0 => Some(number),
                4 => Some(AUDIT_ARCH_X86_64),
                8 | 12 => Some(half(pc, at)),
                _ => arguments.get((at as usize - 16) / 8).map(|argument| half(*argument, at)),
            }
        };
        let (mut a, mut x, mut memory) = (0u32, 0u32, [0u32; 16]);
        let mut at = 0usize;
        // It jumps forward only.
        for _ in 0..MOST {
            let (code, jump_true, jump_false, k) = self.instruction(at)?;
            at += 1;
            let operand = if code & SOURCE == 0 { k } else { x };
            match code & CLASS {
                LD | LDX => {
                    let value = match code & MODE {
                        ABSOLUTE if code & CLASS == LD => load(k)?,
                        IMMEDIATE => k,
                        FROM_MEMORY => *memory.get(k as usize)?,
                        LENGTH => RECORD_LEN,
                        _ => return None,
                    };
                    *(if code & CLASS == LD { &mut a } else { &mut x }) = value;
                }
                ST => *memory.get_mut(k as usize)? = a,
                STX => *memory.get_mut(k as usize)? = x,
                ALU => {
                    a = match code & OPERATION {
                        0x00 => a.wrapping_add(operand),
                        0x10 => a.wrapping_sub(operand),
                        0x20 => a.wrapping_mul(operand),
                        0x30 => a.checked_div(operand)?,
                        0x40 => a | operand,
                        0x50 => a & operand,
                        0x60 => a.checked_shl(operand).unwrap_or(0),
                        0x70 => a.checked_shr(operand).unwrap_or(0),
                        0x80 => a.wrapping_neg(),
                        0xa0 => a ^ operand,
                        _ => return None,
                    }
                }
                JMP => {
                    let holds = match code & OPERATION {
                        0x00 => {
                            at = at.checked_add(k as usize)?;
                            continue;
                        }
                        0x10 => a == operand,
                        0x20 => a > operand,
                        0x30 => a >= operand,
                        0x40 => a & operand != 0,
                        _ => return None,
                    };
                    at += usize::from(if holds { jump_true } else { jump_false });
                }
                RET => return Some(if code & RETURNED_A != 0 { a } else { k }),
                // MISC: TAX and TXA.
                _ if code & 0x80 == 0 => x = a,
                _ => a = x,
            }
        }
        None
    }
}

/// Classes, and fields of an instruction's code.
const CLASS: u16 = 7;
const LD: u16 = 0;
const LDX: u16 = 1;
const ST: u16 = 2;
const STX: u16 = 3;
const ALU: u16 = 4;
const JMP: u16 = 5;
const RET: u16 = 6;
const MODE: u16 = 0xe0;
const IMMEDIATE: u16 = 0;
const ABSOLUTE: u16 = 0x20;
const FROM_MEMORY: u16 = 0x60;
const LENGTH: u16 = 0x80;
const OPERATION: u16 = 0xf0;
const SOURCE: u16 = 8;
const RETURNED_A: u16 = 0x10;
/// `struct seccomp_data`, bytes.
const RECORD_LEN: u32 = 64;

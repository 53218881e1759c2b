//! What a frame is inside the measured program: a module of its load map and a place in it (DESIGN D5).

use crate::address::{LinkAddr, RunAddr};

/// A module's index in its process's load map. An index is never given to another module of the same process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ModuleIndex(pub u16);

impl ModuleIndex {
    /// Code that belongs to no module: a key holds the run-time address then.
    pub const NONE: ModuleIndex = ModuleIndex(u16::MAX);
}

/// One frame in a tree: 16 bits of module index, 48 bits of address to look up ([`crate::address::CodePoint::lookup`]).
///
/// The key of a return address is that of its call's last byte, so it never equals the key of a sampled instruction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(transparent)]
pub struct FrameKey(pub u64);

/// What a frame's key denotes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameKind {
    /// Code of a module of the load map: of a file, or of memory that holds generated code.
    Code {
        /// The module.
        module: ModuleIndex,
        /// Link-time address in it; in generated code, the run-time address.
        addr: LinkAddr,
    },
    /// Code of no module.
    Outside(RunAddr),
    /// The outer frames of a path of which only the innermost were kept.
    LeftOut,
    /// Time in which no sample was taken.
    Gap(Gap),
    /// Our own code, which a copy of a probed procedure has called.
    Probe,
    /// Calls between the frames around it that are not determined: a path was inferred, and several paths are possible.
    Undetermined,
    /// How high the stack is at the frame that this hangs on: from the fixed place of the thread's stack down to the frame's CFA, bytes; in a
    /// clone of a procedure, with its number ([`CloneNumber::height`]). `None`: the thread was on a stack of which no such place is known, or
    /// the CFA is not.
    Height(Option<i64>),
    /// A kind that this version of callpath does not know.
    Other {
        /// The kind's number.
        tag: u8,
        /// The number within the kind.
        value: u64,
    },
}

/// A clone of a procedure: a further copy of it, which some calls alone lead to. It has the procedure's frame keys.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct CloneNumber(pub u16);

impl CloneNumber {
    /// What is no clone.
    pub const NONE: CloneNumber = CloneNumber(0);
    const SHIFT: u32 = 40;

    /// A height with the number above it: no stack is that high. Heights in clones are multiples of eight, not negative, and below 128 MB; `None`:
    /// this one is not.
    #[inline]
    pub const fn height(self, height: i64) -> Option<i64> {
        let is_one = height >= 0 && height < 1 << 27 && height % 8 == 0;
        if self.0 == 0 || is_one { Some((self.0 as i64) << CloneNumber::SHIFT | height) } else { None }
    }

    /// The clone that a height is in, and the height alone.
    #[inline]
    pub const fn of_height(height: i64) -> (CloneNumber, i64) {
        let number = height >> CloneNumber::SHIFT;
        if number > 0 && number <= u16::MAX as i64 {
            (CloneNumber(number as u16), height & ((1 << CloneNumber::SHIFT) - 1))
        } else {
            (CloneNumber::NONE, height)
        }
    }
}

/// Why no sample was taken of a thread that ran or waited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Gap {
    /// The thread had blocked SIGTRAP by a direct system call, which callpath does not see.
    TrapBlocked = 0,
    /// It ended without another sample, more than a period after the last one.
    AfterLastSample = 1,
    /// Samples came, but there was no room to keep them.
    NoRoom = 2,
    /// It had not begun: what the process used before its first sample could be taken, in the kernel (exec) and in the
    /// loader, up to the first constructor.
    Start = 3,
    /// Our own object joined the measurement.
    OwnStart = 4,
    /// It ended before its first sample.
    NeverSampled = 5,
    /// It was in the kernel, where this user may not take samples; or it is the kernel's own. From inside: the kernel counts
    /// this as its own, but no tick showed where.
    InKernel = 6,
}

impl Gap {
    /// All reasons.
    pub const ALL: [Gap; 7] = [
        Gap::TrapBlocked,
        Gap::AfterLastSample,
        Gap::NoRoom,
        Gap::Start,
        Gap::OwnStart,
        Gap::NeverSampled,
        Gap::InKernel,
    ];

    /// Its name in reports and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Gap::TrapBlocked => "not sampled (SIGTRAP blocked)",
            Gap::AfterLastSample => "not sampled (after the last sample)",
            Gap::NoRoom => "not sampled (no room for the sample)",
            Gap::Start => "not sampled (start of the process: exec, loader)",
            Gap::OwnStart => "not sampled (start of callpath in the process)",
            Gap::NeverSampled => "not sampled (ended before the first sample)",
            Gap::InKernel => "kernel time (no call path)",
        }
    }
}

impl FrameKey {
    const ADDRESS_BITS: u32 = 48;
    const ADDRESS_MASK: u64 = (1 << Self::ADDRESS_BITS) - 1;

    /// The frame in place of the outer ones if only a path's innermost frames were kept.
    pub const LEFT_OUT: FrameKey = Self::tagged(Self::TAG_LEFT_OUT, 0);

    /// The frames of our own code that a copy of a probed procedure has called: all of them are one.
    pub const PROBE: FrameKey = Self::tagged(Self::TAG_PROBE, 0);

    /// The frame in place of calls that are not determined ([`FrameKind::Undetermined`]).
    pub const UNDETERMINED: FrameKey = Self::tagged(Self::TAG_UNDETERMINED, 0);

    /// The frame of time in which no sample was taken, beside the paths of the thread's samples.
    #[inline]
    pub const fn gap(gap: Gap) -> FrameKey {
        Self::tagged(Self::TAG_GAP, gap as u64)
    }

    // Outside every module the highest bit of an address is the kernel's: no frame of a program has it
    // but those of the vsyscall page, at 2^64 - 10 MiB. With it, seven bits are the kind, up to 63, and
    // the lowest 40 the number within the kind. 3 is reserved for a path of Ball and Larus within the
    // caller's procedure, 5 for an MPI rank. A height is its low 40 bits, with a sign; one in a clone has the clone's number
    // in 16 bits, and an eighth of itself in 24.
    const TAG_LEFT_OUT: u64 = 1;
    const TAG_GAP: u64 = 2;
    const TAG_PROBE: u64 = 4;
    const TAG_HEIGHT: u64 = 6;
    const TAG_UNDETERMINED: u64 = 7;
    const TAG_HEIGHT_IN_CLONE: u64 = 8;
    const CLONE_SHIFT: u32 = 24;
    const UNKNOWN_HEIGHT: u64 = 1 << (Self::TAG_SHIFT - 1);
    const FIRST_ADDRESS_TAG: u64 = 64;
    const TAG_SHIFT: u32 = 40;
    const TAGGED: u64 = 1 << (Self::ADDRESS_BITS - 1);

    const fn tagged(tag: u64, value: u64) -> FrameKey {
        Self::outside(RunAddr(Self::TAGGED | tag << Self::TAG_SHIFT | value))
    }

    /// The frame that says how high the stack is at the one that it hangs on ([`FrameKind::Height`]).
    #[inline]
    pub const fn height(height: Option<i64>) -> FrameKey {
        let limit = Self::UNKNOWN_HEIGHT as i64;
        if let Some(height) = height
            && let (clone @ CloneNumber(1..), in_it) = CloneNumber::of_height(height)
            && clone.height(in_it).is_some()
        {
            let eighths = in_it as u64 / 8;
            return Self::tagged(Self::TAG_HEIGHT_IN_CLONE, (clone.0 as u64) << Self::CLONE_SHIFT | eighths);
        }
        let value = match height {
            Some(height) if -limit < height && height < limit => height as u64 & ((1 << Self::TAG_SHIFT) - 1),
            _ => Self::UNKNOWN_HEIGHT,
        };
        Self::tagged(Self::TAG_HEIGHT, value)
    }

    /// What the key denotes.
    pub fn kind(self) -> FrameKind {
        let (module, addr) = (self.module(), self.address());
        if module != ModuleIndex::NONE {
            return FrameKind::Code { module, addr: LinkAddr(addr) };
        }
        let tag = (addr & !Self::TAGGED) >> Self::TAG_SHIFT;
        if addr & Self::TAGGED == 0 || tag >= Self::FIRST_ADDRESS_TAG {
            return FrameKind::Outside(RunAddr(addr));
        }
        let value = addr & ((1 << Self::TAG_SHIFT) - 1);
        match tag {
            Self::TAG_LEFT_OUT => FrameKind::LeftOut,
            Self::TAG_PROBE if value == 0 => FrameKind::Probe,
            Self::TAG_UNDETERMINED if value == 0 => FrameKind::Undetermined,
            Self::TAG_HEIGHT => {
                let sign = u64::BITS - Self::TAG_SHIFT;
                FrameKind::Height((value != Self::UNKNOWN_HEIGHT).then_some((value << sign) as i64 >> sign))
            }
            Self::TAG_HEIGHT_IN_CLONE => {
                let (clone, in_it) = (value >> Self::CLONE_SHIFT, 8 * (value & ((1 << Self::CLONE_SHIFT) - 1)));
                FrameKind::Height(CloneNumber(clone as u16).height(in_it as i64))
            }
            Self::TAG_GAP => match Gap::ALL.into_iter().find(|gap| *gap as u64 == value) {
                Some(gap) => FrameKind::Gap(gap),
                None => FrameKind::Other { tag: tag as u8, value },
            },
            _ => FrameKind::Other { tag: tag as u8, value },
        }
    }

    /// The key of a place in a module; link-time addresses keep their low 48 bits.
    #[inline]
    pub const fn in_module(module: ModuleIndex, addr: LinkAddr) -> FrameKey {
        FrameKey((module.0 as u64) << Self::ADDRESS_BITS | addr.0 & Self::ADDRESS_MASK)
    }

    /// The key of code outside every module.
    #[inline]
    pub const fn outside(addr: RunAddr) -> FrameKey {
        Self::in_module(ModuleIndex::NONE, LinkAddr(addr.0))
    }

    /// The module, [`ModuleIndex::NONE`] for code outside every module.
    #[inline]
    pub const fn module(self) -> ModuleIndex {
        ModuleIndex((self.0 >> Self::ADDRESS_BITS) as u16)
    }

    /// The link-time address, or the run-time address outside every module.
    #[inline]
    pub const fn address(self) -> u64 {
        self.0 & Self::ADDRESS_MASK
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_says_what_it_is() {
        let code = FrameKey::in_module(ModuleIndex(3), LinkAddr(0x8200_0000_0000));
        assert_eq!(code.kind(), FrameKind::Code { module: ModuleIndex(3), addr: LinkAddr(0x8200_0000_0000) });
        let heap = RunAddr(0x7fff_ffff_f000);
        assert_eq!(FrameKey::outside(heap).kind(), FrameKind::Outside(heap));
        let vsyscall = FrameKey::outside(RunAddr(0xffff_ffff_ff60_0400));
        assert_eq!(vsyscall.kind(), FrameKind::Outside(RunAddr(0xffff_ff60_0400)));
        assert_eq!(FrameKey::LEFT_OUT.kind(), FrameKind::LeftOut);
        assert_eq!(FrameKey::PROBE.kind(), FrameKind::Probe);
        assert_eq!(FrameKey::UNDETERMINED.kind(), FrameKind::Undetermined);
        for height in [0, 8, -8, 1 << 20, (1 << 39) - 1, 1 - (1 << 39)] {
            assert_eq!(FrameKey::height(Some(height)).kind(), FrameKind::Height(Some(height)));
        }
        for (clone, height) in [(1, 0), (1, 8), (77, 1 << 20), (u16::MAX, (1 << 27) - 8)] {
            let in_clone = CloneNumber(clone).height(height);
            assert_eq!(FrameKey::height(in_clone).kind(), FrameKind::Height(in_clone));
            assert_eq!(in_clone.map(CloneNumber::of_height), Some((CloneNumber(clone), height)));
        }
        assert_eq!([-8, 4, 1 << 27].map(|height| CloneNumber(3).height(height)), [None; 3]);
        assert_eq!([-8, 4, 1 << 27].map(|height| CloneNumber::NONE.height(height)), [Some(-8), Some(4), Some(1 << 27)]);
        assert_eq!(
            [-8, 4, 1 << 39].map(CloneNumber::of_height),
            [-8, 4, 1 << 39].map(|height| (CloneNumber::NONE, height))
        );
        for height in [None, Some(1 << 39), Some(-(1 << 39)), Some(i64::MAX), Some(i64::MIN)] {
            assert_eq!(FrameKey::height(height).kind(), FrameKind::Height(None));
        }
        for gap in Gap::ALL {
            assert_eq!(FrameKey::gap(gap).kind(), FrameKind::Gap(gap));
        }
        assert_eq!(FrameKey::tagged(2, 99).kind(), FrameKind::Other { tag: 2, value: 99 });
        assert_eq!(FrameKey::tagged(5, 7).kind(), FrameKind::Other { tag: 5, value: 7 });
    }
}

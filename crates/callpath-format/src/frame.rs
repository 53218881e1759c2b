//! What a frame is inside the measured program: a module of its load map and a place in it (DESIGN D5).
//! Knows nothing of names.

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
/// A return address stands as the last byte of its call, so it never equals the key of a sampled instruction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(transparent)]
pub struct FrameKey(pub u64);

/// Why no sample was taken of a thread that ran or waited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Gap {
    /// The thread had blocked SIGTRAP where callpath does not see it, by a system call of its own.
    TrapBlocked = 0,
    /// It ended without another sample, more than a period after the last one.
    AfterLastSample = 1,
    /// Samples came, but there was no room to keep them.
    NoRoom = 2,
}

impl Gap {
    /// Each of them.
    pub const ALL: [Gap; 3] = [Gap::TrapBlocked, Gap::AfterLastSample, Gap::NoRoom];

    /// What reports and JSON call it.
    pub const fn name(self) -> &'static str {
        match self {
            Gap::TrapBlocked => "not sampled (SIGTRAP blocked)",
            Gap::AfterLastSample => "not sampled (after the last sample)",
            Gap::NoRoom => "not sampled (no room for the sample)",
        }
    }
}

impl FrameKey {
    const ADDRESS_BITS: u32 = 48;
    const ADDRESS_MASK: u64 = (1 << Self::ADDRESS_BITS) - 1;

    /// What stands for the outer frames of a path of which only the innermost were kept. Its address is the kernel's: no
    /// frame of a program has it.
    pub const LEFT_OUT: FrameKey = Self::outside(RunAddr(Self::ADDRESS_MASK - 1));

    /// What stands for time in which no sample was taken, beside the paths of the thread's samples. The addresses are the
    /// kernel's, too.
    #[inline]
    pub const fn gap(gap: Gap) -> FrameKey {
        Self::outside(RunAddr(Self::FIRST_GAP + gap as u64))
    }

    const FIRST_GAP: u64 = Self::ADDRESS_MASK - 255;

    /// Which gap it stands for, if any.
    #[inline]
    pub fn as_gap(self) -> Option<Gap> {
        Gap::ALL.into_iter().find(|gap| FrameKey::gap(*gap) == self)
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

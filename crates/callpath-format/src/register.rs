//! The registers of x86-64 in DWARF order, and the file of them that a walk carries from frame to frame.

/// A general-purpose register by its DWARF number (System V x86-64 psABI, figure 3.36).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[repr(transparent)]
pub struct Reg(u8);

impl Reg {
    /// Number of general-purpose registers; the return address column, 16, is not one of them.
    pub const COUNT: usize = 16;
    /// DWARF's number of the return address column.
    pub const RETURN_ADDRESS_COLUMN: u16 = 16;
    #[allow(missing_docs)]
    pub const RAX: Reg = Reg(0);
    #[allow(missing_docs)]
    pub const RDX: Reg = Reg(1);
    #[allow(missing_docs)]
    pub const RCX: Reg = Reg(2);
    #[allow(missing_docs)]
    pub const RBX: Reg = Reg(3);
    #[allow(missing_docs)]
    pub const RSI: Reg = Reg(4);
    #[allow(missing_docs)]
    pub const RDI: Reg = Reg(5);
    #[allow(missing_docs)]
    pub const RBP: Reg = Reg(6);
    #[allow(missing_docs)]
    pub const RSP: Reg = Reg(7);
    #[allow(missing_docs)]
    pub const R10: Reg = Reg(10);
    #[allow(missing_docs)]
    pub const R12: Reg = Reg(12);
    #[allow(missing_docs)]
    pub const R13: Reg = Reg(13);
    #[allow(missing_docs)]
    pub const R14: Reg = Reg(14);
    #[allow(missing_docs)]
    pub const R15: Reg = Reg(15);

    /// The registers that a procedure must give back unchanged, in the order of [`crate::recipe::Packed::slots`].
    pub const CALLEE_SAVED: [Reg; 6] = [Reg::RBX, Reg::RBP, Reg::R12, Reg::R13, Reg::R14, Reg::R15];

    /// The register with a DWARF number; `None` above 15.
    pub const fn from_dwarf(number: u16) -> Option<Reg> {
        if number < 16 { Some(Reg(number as u8)) } else { None }
    }

    /// The register of the low four bits of `bits`.
    pub const fn from_low_bits(bits: u16) -> Reg {
        Reg((bits & 15) as u8)
    }

    /// 0 to 15.
    pub const fn index(self) -> usize {
        (self.0 & 15) as usize
    }
}

/// Register values of one frame, and which of them are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Registers {
    values: [u64; 16],
    known: u32,
    reserved: u32,
}

impl Registers {
    /// A frame without known registers.
    pub const UNKNOWN: Registers = Registers { values: [0; 16], known: 0, reserved: 0 };

    /// Every register known, in DWARF order: an interrupted thread.
    pub const fn all(values: [u64; 16]) -> Registers {
        Registers { values, known: 0xffff, reserved: 0 }
    }

    /// The value, if it is known.
    #[inline]
    pub fn get(&self, reg: Reg) -> Option<u64> {
        if self.known >> reg.index() & 1 != 0 { Some(self.values[reg.index()]) } else { None }
    }

    /// Makes the value known.
    #[inline]
    pub fn set(&mut self, reg: Reg, value: u64) {
        self.values[reg.index()] = value;
        self.known |= 1 << reg.index();
    }

    /// Makes the value unknown.
    #[inline]
    pub fn forget(&mut self, reg: Reg) {
        self.known &= !(1 << reg.index());
    }
}

//! Unwind recipes: how to find the caller's frame from a frame in one interval of code.
//! CFI and machine-code analysis write the same ones.
//!
//! A recipe is a set of equations over the frame's registers (Tallent et al. 2009, section 2; here also for every
//! register that an outer frame's recipe may need):
//!
//! ```text
//! CFA        = reg + disp   |  *(reg + disp) + add   |  expression
//! return pc  = *(CFA - 8)   |  any `Rule`
//! caller rsp = CFA          |  any `Rule`
//! caller reg = reg          |  *(CFA - 8 * slot)     |  any `Rule`
//! ```

use crate::register::Reg;

/// A DWARF expression kept in a table's expression pool: bytes `start .. start + len`.
///
/// A rule's expression begins with the CFA on its stack, a CFA's with an empty one. `DW_OP_breg16` is the frame's pc.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Expression {
    /// Offset in the pool, bytes.
    pub start: u32,
    /// Length, bytes; at most [`Expression::MAX_LEN_BYTES`].
    pub len: u16,
}

impl Expression {
    /// The longest expression that a table holds, bytes.
    pub const MAX_LEN_BYTES: usize = 256;
}

/// How to compute the canonical frame address: the address just above the return address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Cfa {
    /// Unknown code: a walk that reaches it is partial.
    Unknown,
    /// This frame has no caller: `_start`, a thread's or coroutine's first frame. A walk that reaches it is full.
    Outermost,
    /// `CFA = reg + disp`
    Register {
        /// The base.
        reg: Reg,
        /// Bytes.
        disp: i32,
    },
    /// `CFA = *(reg + disp) + add`
    Deref {
        /// The base.
        reg: Reg,
        /// Bytes.
        disp: i32,
        /// Bytes.
        add: i32,
    },
    /// `CFA = expression`
    Expression(Expression),
}

/// How to compute one of the caller's registers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Rule {
    /// Still in the register.
    Same,
    /// Gone.
    Lost,
    /// `*(CFA + disp)`
    AtCfa(i32),
    /// `CFA + disp`
    CfaPlus(i32),
    /// `*(reg + disp)`
    AtRegister(Reg, i32),
    /// `reg + disp`
    RegisterPlus(Reg, i32),
    /// `*(expression)`
    AtExpression(Expression),
    /// `expression`
    ExpressionValue(Expression),
}

/// A recipe in its open form: analysers write it, and a table unpacks to it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Recipe {
    /// The frame's CFA.
    pub cfa: Cfa,
    /// The return address.
    pub return_address: Rule,
    /// Every general-purpose register by DWARF number. Registers that calls clobber are restored only if the
    /// frame is a signal's, whatever their rules are.
    pub registers: [Rule; Reg::COUNT],
    /// The caller was interrupted, not calling: its pc is exact and all its registers may be restored.
    pub signal_frame: bool,
    /// The code may run on another stack than its caller, which need not lie above it.
    pub switches_stack: bool,
    /// If the caller cannot be found, the frame is the outermost one of its stack.
    pub begins_stack: bool,
}

impl Recipe {
    /// `CFA = Unknown`.
    pub const UNKNOWN: Recipe = Recipe::with_cfa(Cfa::Unknown);
    /// `CFA = Outermost`.
    pub const OUTERMOST: Recipe = Recipe::with_cfa(Cfa::Outermost);

    /// `return pc = *(CFA - 8)`, `rsp = CFA`, all other registers unchanged: the frame of a leaf.
    pub const fn with_cfa(cfa: Cfa) -> Recipe {
        let mut registers = [Rule::Same; Reg::COUNT];
        registers[Reg::RSP.index()] = Rule::CfaPlus(0);
        Recipe {
            cfa,
            return_address: Rule::AtCfa(-8),
            registers,
            signal_frame: false,
            switches_stack: false,
            begins_stack: false,
        }
    }
}

/// A recipe as a table holds it, 16 bytes. The rarest recipes do not fit.
///
/// ```text
/// head  bits 0..2  kind: 0 unknown, 1 outermost, 2 register, 3 deref, 4 wide
///       bits 3..6  base register
///       bit 12     no call frame information of the program's says so (`INFERRED`)
///       bit 13     the frame may end in a jump to any code (`TAIL_CALLS_ANY`)
///       bit 14     the frame that it calls is pinned (`PINS_CALLEE`)
///       bit 15     the frame is pinned: its return address must stay (`PINNED`)
/// kind 2: CFA = reg + disp          kind 3: CFA = *(reg + disp) + add
/// kind 4: the recipe is at word `disp` of the table's wide pool (see `crate::table`)
/// slots   rbx rbp r12 r13 r14 r15: 0 = same, 1 = lost, n = *(CFA - 8n)
/// return pc = *(CFA - 8), rsp = CFA
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(C)]
pub struct Packed {
    /// Bytes, or a word index.
    pub disp: i32,
    /// Bytes.
    pub add: i32,
    /// Kind and base register.
    pub head: u16,
    /// Where the callee-saved registers are, in the order of [`Reg::CALLEE_SAVED`].
    pub slots: [u8; 6],
}

impl Packed {
    /// Size in a table, bytes.
    pub const LEN_BYTES: usize = 16;
    #[allow(missing_docs)]
    pub const UNKNOWN: u16 = 0;
    #[allow(missing_docs)]
    pub const OUTERMOST: u16 = 1;
    #[allow(missing_docs)]
    pub const REGISTER: u16 = 2;
    #[allow(missing_docs)]
    pub const DEREF: u16 = 3;
    #[allow(missing_docs)]
    pub const WIDE: u16 = 4;
    /// Bit of `head`: the frame is pinned: its code reads its return address,
    /// which must not be changed. Walks ignore this bit.
    pub const PINNED: u16 = 1 << 15;
    /// Bit of `head`: the frame that this one calls is pinned, since
    /// exceptions may be caught here. Walks ignore this bit.
    pub const PINS_CALLEE: u16 = 1 << 14;
    /// Bit of `head`: the frame's code may jump to procedures of other modules, or by a pointer, and the target may
    /// read the return address. Walks ignore this bit.
    pub const TAIL_CALLS_ANY: u16 = 1 << 13;
    /// Bit of `head`: the recipe does not come from the program's call frame information. A return address of zero,
    /// even at the very top of a stack, then does not prove that the frame has no caller.
    pub const INFERRED: u16 = 1 << 12;
    /// `slots`: the register is unchanged.
    pub const SLOT_SAME: u8 = 0;
    /// `slots`: the register is lost. (`*(CFA - 8)` is the return address, so no register is ever saved there.)
    pub const SLOT_LOST: u8 = 1;

    /// Bits 0..2 of `head`.
    #[inline]
    pub fn kind(&self) -> u16 {
        self.head & 7
    }

    /// Bits 3..6 of `head`.
    #[inline]
    pub fn base(&self) -> Reg {
        Reg::from_low_bits(self.head >> 3)
    }

    /// The packed form; `None`: the recipe is wide.
    pub fn pack(recipe: &Recipe) -> Option<Packed> {
        let (kind, base, disp, add) = match recipe.cfa {
            Cfa::Unknown => return Some(Packed { disp: 0, add: 0, head: Self::UNKNOWN, slots: [0; 6] }),
            Cfa::Outermost => return Some(Packed { disp: 0, add: 0, head: Self::OUTERMOST, slots: [0; 6] }),
            Cfa::Register { reg, disp } => (Self::REGISTER, reg, disp, 0),
            Cfa::Deref { reg, disp, add } => (Self::DEREF, reg, disp, add),
            Cfa::Expression(_) => return None,
        };
        if recipe.signal_frame
            || recipe.switches_stack
            || recipe.begins_stack
            || recipe.return_address != Rule::AtCfa(-8)
            || recipe.registers[Reg::RSP.index()] != Rule::CfaPlus(0)
        {
            return None;
        }
        let mut slots = [Self::SLOT_SAME; 6];
        for (slot, reg) in slots.iter_mut().zip(Reg::CALLEE_SAVED) {
            *slot = match recipe.registers[reg.index()] {
                Rule::Same => Self::SLOT_SAME,
                Rule::Lost => Self::SLOT_LOST,
                Rule::AtCfa(disp) if disp % 8 == 0 && (-8 * 255..=-16).contains(&disp) => (disp / -8) as u8,
                _ => return None,
            };
        }
        Some(Packed { disp, add, head: kind | (base.index() as u16) << 3, slots })
    }

    /// The open form; `None`: the recipe is wide.
    pub fn unpack(&self) -> Option<Recipe> {
        let cfa = match self.kind() {
            Self::UNKNOWN => return Some(Recipe::UNKNOWN),
            Self::OUTERMOST => return Some(Recipe::OUTERMOST),
            Self::REGISTER => Cfa::Register { reg: self.base(), disp: self.disp },
            Self::DEREF => Cfa::Deref { reg: self.base(), disp: self.disp, add: self.add },
            _ => return None,
        };
        let mut recipe = Recipe::with_cfa(cfa);
        for (slot, reg) in self.slots.iter().zip(Reg::CALLEE_SAVED) {
            recipe.registers[reg.index()] = match *slot {
                Self::SLOT_SAME => Rule::Same,
                Self::SLOT_LOST => Rule::Lost,
                n => Rule::AtCfa(-8 * i32::from(n)),
            };
        }
        Some(recipe)
    }

    /// Its bytes in a table, little-endian.
    pub fn to_bytes(&self) -> [u8; 16] {
        let mut b = [0; 16];
        b[0..4].copy_from_slice(&self.disp.to_le_bytes());
        b[4..8].copy_from_slice(&self.add.to_le_bytes());
        b[8..10].copy_from_slice(&self.head.to_le_bytes());
        b[10..16].copy_from_slice(&self.slots);
        b
    }

    /// The recipe from its bytes in a table.
    #[inline]
    pub fn from_bytes(b: &[u8; 16]) -> Packed {
        Packed {
            disp: i32::from_le_bytes([b[0], b[1], b[2], b[3]]),
            add: i32::from_le_bytes([b[4], b[5], b[6], b[7]]),
            head: u16::from_le_bytes([b[8], b[9]]),
            slots: [b[10], b[11], b[12], b[13], b[14], b[15]],
        }
    }
}

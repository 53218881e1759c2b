//! Short recipes: an id that encodes the whole recipe, so that a look-up need not load another cache line.
//!
//! ```text
//! bit 15          1; else the id is an index
//! bit 14          rbp was pushed first (clang), or between r12 and rbx (gcc)
//! bits 8 to 13    which of rbx, rbp, r12, r13, r14, r15 were pushed; the others are unchanged
//! bits 0 to 7     n
//! CFA = rsp + 8n, return pc = *(CFA - 8), what was pushed first = *(CFA - 16), then *(CFA - 24), and so on
//! ```
//!
//! gcc pushes r15, r14, r13, r12, rbp, rbx, in this order; clang rbp, r15, r14, r13, r12, rbx.

use crate::recipe::Packed;
use crate::register::Reg;

use super::RecipeId;

/// Set in the ids that are recipes.
pub(super) const SHORT: u16 = 1 << 15;
const HEAD: u16 = Packed::REGISTER | (Reg::RSP.index() as u16) << 3;
/// As indices in [`Reg::CALLEE_SAVED`].
const GCC: [usize; 6] = [5, 4, 3, 2, 1, 0];
const CLANG: [usize; 6] = [1, 5, 4, 3, 2, 0];

/// The slots for bits 8 to 14.
static SLOTS: [[u8; 6]; 128] = {
    let mut all = [[Packed::SLOT_SAME; 6]; 128];
    let mut pushed = 0;
    while pushed < all.len() {
        let order = if pushed < 64 { GCC } else { CLANG };
        let (mut next, mut index) = (2, 0);
        while index < order.len() {
            if pushed >> order[index] & 1 != 0 {
                all[pushed][order[index]] = next;
                next += 1;
            }
            index += 1;
        }
        pushed += 1;
    }
    all
};

impl RecipeId {
    /// The id that is this recipe, if there is one.
    pub fn short(packed: &Packed) -> Option<RecipeId> {
        let Packed { disp, add: 0, head: HEAD, slots } = *packed else { return None };
        let n = u8::try_from(disp / 8).ok().filter(|_| disp % 8 == 0)?;
        let saved = (0..).zip(slots).filter(|(_, slot)| *slot != Packed::SLOT_SAME);
        let pushed = saved.fold(0, |bits: usize, (index, _)| bits | 1 << index);
        let pushed = [pushed, pushed | 64].into_iter().find(|&pushed| SLOTS[pushed] == slots)?;
        Some(RecipeId(SHORT | (pushed as u16) << 8 | u16::from(n)))
    }

    /// Whether the id is a recipe.
    #[inline]
    pub fn is_short(self) -> bool {
        self.0 & SHORT != 0
    }

    /// The recipe that a short id is.
    #[inline]
    pub(super) fn unpack(self) -> Packed {
        let slots = SLOTS[usize::from(self.0 >> 8 & 127)];
        Packed { disp: i32::from(self.0 as u8) * 8, add: 0, head: HEAD, slots }
    }
}

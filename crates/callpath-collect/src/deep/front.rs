//! A walk that can be stopped at any frame: its state, and the words that each step depended on.

use callpath_format::address::{CodePoint, RunAddr};
use callpath_format::recipe::Packed;
use callpath_format::register::{Reg, Registers};
use callpath_format::shared::thread::Deep;
use callpath_format::shared::tree::KnownKind;
use callpath_unwind::{Cursor, Memory};
use core::sync::atomic::Ordering::Relaxed;

use super::known::Fact;
use crate::frame::Frame;
use crate::stack::Stack;

/// A frame whose caller comes next.
#[derive(Clone, Copy)]
struct Callee {
    recipe: Packed,
    head: u16,
    base: Option<u64>,
}

/// A walk that can be stopped at any frame: its state, and the words that its next step depends on.
#[derive(Clone, Copy)]
pub(crate) struct Front {
    point: CodePoint,
    pub(super) rsp: u64,
    pub(super) rbp: Option<u64>,
    /// Where rbp was saved by a frame inwards, 0: nowhere.
    rbp_at: u64,
    callee: Option<Callee>,
}

impl Front {
    pub(crate) const NOWHERE: Front =
        Front { point: CodePoint::Exact(RunAddr(0)), rsp: 0, rbp: None, rbp_at: 0, callee: None };

    /// Reaches a frame. Gives the words that the step depended on beyond the frame's own word, and that word.
    #[inline]
    pub(crate) fn step(&mut self, frame: Frame<'_>, stack: &mut Stack) -> Step {
        let Frame { cursor, located, .. } = frame;
        let rsp = cursor.registers.get(Reg::RSP).unwrap_or(0);
        let (mut by, mut and) = (None, None);
        let slot = rsp.wrapping_sub(8);
        let mut fact = Fact { at: slot, word: cursor.point.pc().0, key: located.key.0, kind: KnownKind::FRAME };
        match self.callee {
            None => fact.at = 0,
            Some(callee) => {
                match (callee.recipe.kind(), callee.recipe.base(), callee.base) {
                    (Packed::REGISTER, Reg::RSP, _) => {}
                    (Packed::REGISTER, Reg::RBP, Some(rbp)) if self.rbp_at.is_multiple_of(8) => {
                        by = Some(Fact::word(self.rbp_at, rbp))
                    }
                    (Packed::DEREF, base, Some(value))
                        if base == Reg::RSP || base == Reg::RBP && self.rbp_at.is_multiple_of(8) =>
                    {
                        let at = value.wrapping_add(callee.recipe.disp as u64);
                        let word = stack.read_u64(at).filter(|_| at.is_multiple_of(8));
                        by = word.map(|word| Fact::word(at, word)).or(Some(Fact::SEAL));
                        if base == Reg::RBP {
                            and = Some(Fact::word(self.rbp_at, value));
                        }
                    }
                    _ => by = Some(Fact::SEAL),
                }
                // A signal's frame, or a return address that is kept elsewhere.
                let is_there =
                    matches!(cursor.point, CodePoint::Return(_)) && stack.true_word(slot) == Some(cursor.point.pc().0);
                if !is_there {
                    by = Some(Fact::SEAL);
                    fact.at = 0;
                }
                if stack.slot_of_callee(callee.head, frame) != 0 {
                    fact.kind |= KnownKind::MARKABLE;
                }
                match callee.recipe.kind() {
                    // Reg::CALLEE_SAVED: rbx, rbp, ...
                    Packed::REGISTER | Packed::DEREF => match callee.recipe.slots[1] {
                        Packed::SLOT_SAME => {}
                        Packed::SLOT_LOST => self.rbp_at = 0,
                        n => self.rbp_at = rsp.wrapping_sub(8 * u64::from(n)),
                    },
                    _ => self.rbp_at = 0,
                }
            }
        }
        self.point = cursor.point;
        self.rsp = rsp;
        self.rbp = cursor.registers.get(Reg::RBP);
        self.callee = Some(Callee {
            recipe: located.recipe,
            head: frame.head(),
            base: cursor.registers.get(located.recipe.base()),
        });
        [by, and, Some(fact)]
    }

    pub(super) fn save(&self, state: &Deep) {
        let [point, exact, rsp, rbp, has_rbp, rbp_at] = &state.front;
        point.store(self.point.pc().0, Relaxed);
        exact.store(u64::from(matches!(self.point, CodePoint::Exact(_))), Relaxed);
        rsp.store(self.rsp, Relaxed);
        rbp.store(self.rbp.unwrap_or(0), Relaxed);
        has_rbp.store(u64::from(self.rbp.is_some()), Relaxed);
        rbp_at.store(self.rbp_at, Relaxed);
    }

    /// As it was saved, but for rbp: what is in its place now.
    pub(super) fn load(state: &Deep, joined: &Front, stack: &mut Stack) -> Front {
        let [point, exact, rsp, _, has_rbp, rbp_at] = &state.front;
        let pc = RunAddr(point.load(Relaxed));
        let rbp_at = rbp_at.load(Relaxed);
        let rbp = match has_rbp.load(Relaxed) {
            0 => None,
            _ if rbp_at < joined.rsp => joined.rbp,
            _ => stack.read_u64(rbp_at),
        };
        Front {
            point: if exact.load(Relaxed) != 0 { CodePoint::Exact(pc) } else { CodePoint::Return(pc) },
            rsp: rsp.load(Relaxed),
            rbp,
            rbp_at,
            callee: None,
        }
    }

    pub(super) fn cursor(&self) -> Cursor {
        let mut registers = Registers::UNKNOWN;
        registers.set(Reg::RSP, self.rsp);
        if let Some(rbp) = self.rbp {
            registers.set(Reg::RBP, rbp);
        }
        Cursor { point: self.point, registers }
    }
}

/// The words that a step depended on; last, the frame that it reached.
pub(crate) type Step = [Option<Fact>; 3];

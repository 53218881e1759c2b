//! The abstract frame: what is known of registers and stack slots between two instructions. `effect` has what
//! instructions do to it, `recipe` the recipe for it.
//!
//! Tallent et al. 2009, section 2.2, follow the return address, sp and fp in a linear scan. Here every register, and
//! every slot with a value that a recipe may need, is followed along control flow.

use crate::value::{Base, Packed, RETURN_ADDRESS, StackAddress, Value};

/// Registers in the processor's order.
pub(crate) const RAX: usize = 0;
pub(crate) const RSP: usize = 4;
pub(crate) const RBP: usize = 5;
/// Registers that a procedure preserves.
pub(crate) const CALLEE_SAVED: [usize; 6] = [3, 5, 12, 13, 14, 15];
/// Registers that a call may change.
pub(crate) const CALL_CLOBBERED: [usize; 9] = [0, 1, 2, 6, 7, 8, 9, 10, 11];

/// The most slots that are followed; later ones are not.
const MAX_SLOTS: usize = 24;

/// Eight bytes on the stack whose value is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Slot {
    pub(crate) base: Base,
    pub(crate) offset: i32,
    pub(crate) packed: Packed,
}

const NO_SLOT: Slot = Slot { base: Base::CFA, offset: 0, packed: Packed::UNKNOWN };

impl Slot {
    fn new(base: Base, offset: i32, value: Value) -> Slot {
        Slot { base, offset, packed: Packed::new(value) }
    }

    pub(crate) fn value(&self) -> Value {
        self.packed.value()
    }
}

/// A slot located by an index, whose value is preserved: `*(base + offset + scale * index)`. Hand-written code keeps
/// the caller's stack pointer behind an array on the stack, with the array's length in a register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct IndexedSlot {
    pub(crate) base: Base,
    /// Bytes.
    pub(crate) offset: i32,
    /// The register of the index, in the processor's order.
    pub(crate) index: u8,
    pub(crate) scale: u8,
    /// It holds CFA plus this many bytes.
    pub(crate) from_cfa: i32,
}

/// An abstract frame.
pub(crate) struct State {
    /// [`Packed`], so that all are compared at once.
    registers: [u128; 16],
    slots: [Slot; MAX_SLOTS],
    slot_count: u8,
    pub(crate) indexed: Option<IndexedSlot>,
    /// This code has no caller.
    pub(crate) is_outermost: bool,
    /// A system call was made since the last call: this may be a new thread.
    pub(crate) after_system_call: bool,
    /// The analysis began here without knowledge: the contents of the stack then have names.
    is_symbolic: bool,
    /// The caller's frame may have changed since this was last cleared.
    pub(crate) is_changed: bool,
    /// rsp was loaded from memory with unknown content: that base is this value.
    pub(crate) pivot: Option<(Base, Value)>,
    /// The last constant in a comparison: perhaps a jump table's length less one.
    pub(crate) bound: Option<u32>,
}

impl Clone for State {
    fn clone(&self) -> State {
        State { ..*self }
    }

    /// Does not copy slots that are not in use.
    fn clone_from(&mut self, from: &State) {
        let used = usize::from(from.slot_count);
        if let (Some(to), Some(from)) = (self.slots.get_mut(..used), from.slots.get(..used)) {
            to.copy_from_slice(from);
        }
        self.registers = from.registers;
        self.slot_count = from.slot_count;
        self.indexed = from.indexed;
        self.is_outermost = from.is_outermost;
        self.after_system_call = from.after_system_call;
        self.is_symbolic = from.is_symbolic;
        self.is_changed = from.is_changed;
        self.pivot = from.pivot;
        self.bound = from.bound;
    }
}

impl State {
    /// The state at a procedure's first instruction.
    pub(crate) fn at_entry() -> State {
        let mut state = State::unknown();
        for register in CALLEE_SAVED {
            state.registers[register] = Packed::new(Value::Caller(register as u8)).0;
        }
        state.registers[RSP] = Packed::new(Value::cfa(-8)).0;
        state.push_slot(Slot::new(Base::CFA, -8, Value::Caller(RETURN_ADDRESS)));
        state
    }

    /// The state without any knowledge.
    pub(crate) fn unknown() -> State {
        State {
            registers: [Packed::UNKNOWN.0; 16],
            slots: [NO_SLOT; MAX_SLOTS],
            slot_count: 0,
            indexed: None,
            is_outermost: false,
            after_system_call: false,
            is_symbolic: false,
            is_changed: true,
            pivot: None,
            bound: None,
        }
    }

    /// The state in which nothing is known, but every value has a name: [`Base::of_register`], [`Value::Content`].
    pub(crate) fn symbolic() -> State {
        let mut state = State { is_symbolic: true, ..State::unknown() };
        for register in CALLEE_SAVED.into_iter().chain([RSP, RAX]) {
            let value = Value::Stack { base: Base::of_register(register), offset: 0 };
            state.registers[register] = Packed::new(value).0;
        }
        state
    }

    #[inline]
    pub(crate) fn get(&self, register: usize) -> Value {
        self.packed(register).value()
    }

    /// A register's value, packed.
    #[inline]
    pub(crate) fn packed(&self, register: usize) -> Packed {
        self.registers.get(register).copied().map_or(Packed::UNKNOWN, Packed)
    }

    pub(crate) fn slots(&self) -> &[Slot] {
        self.slots.get(..usize::from(self.slot_count)).unwrap_or(&[])
    }

    /// Whether the caller's frame is as at entry: a jump from here is a tail call.
    pub(crate) fn is_like_entry(&self) -> bool {
        let is_callers = |&register: &usize| self.packed(register) == Packed::new(Value::Caller(register as u8));
        self.packed(RSP) == Packed::new(Value::cfa(-8))
            && CALLEE_SAVED.iter().all(is_callers)
            && self.load(StackAddress::cfa(-8)) == Value::Caller(RETURN_ADDRESS)
    }

    /// Whether the stack and the caller's frame pointer are as at entry, whatever other registers hold.
    pub(crate) fn has_stack_of_entry(&self) -> bool {
        self.packed(RSP) == Packed::new(Value::cfa(-8))
            && self.packed(RBP) == Packed::new(Value::Caller(RBP as u8))
            && self.load(StackAddress::cfa(-8)) == Value::Caller(RETURN_ADDRESS)
    }

    /// Sets a register. A value of rsp that is not an address on the stack gets a new base, named `at`.
    pub(crate) fn set(&mut self, register: usize, mut value: Value, at: u32) {
        if register == RSP && value.base().is_none() {
            let base = Base::defined_at(at);
            self.forget_base(base);
            self.pivot = if matches!(value, Value::Content { .. }) { Some((base, value)) } else { None };
            value = Value::Stack { base, offset: 0 };
        }
        if self.indexed.is_some_and(|slot| usize::from(slot.index) == register) {
            self.forget_indexed();
        }
        let Some(old) = self.registers.get_mut(register) else { return };
        let value = Packed::new(value);
        if *old != value.0 {
            self.is_changed |= Packed(*old).matters() | value.matters();
            *old = value.0;
        }
    }

    /// An otherwise unknown address on the stack, computed at `at`.
    pub(crate) fn fresh(&mut self, at: u32) -> Value {
        let base = Base::defined_at(at);
        self.forget_base(base);
        Value::Stack { base, offset: 0 }
    }

    /// The value of a slot of eight bytes.
    pub(crate) fn load(&self, from: StackAddress) -> Value {
        let StackAddress { base, offset } = from;
        let slot = self.slots().iter().find(|slot| slot.base == base && slot.offset == offset);
        match slot {
            Some(slot) => slot.value(),
            None if self.is_symbolic && base.register().is_some() => Value::Content { base, offset, plus: 0 },
            None => Value::Unknown,
        }
    }

    /// Writes `len` bytes; `value` is that of eight bytes.
    pub(crate) fn store(&mut self, to: StackAddress, len: i32, value: Value) {
        self.overwrite(to, len, true);
        let StackAddress { base, offset } = to;
        let slot = Slot::new(base, offset, value);
        if len == 8 && slot.packed.matters() {
            self.push_slot(slot);
        } else if self.is_symbolic {
            self.push_slot(Slot::new(base, offset & !7, Value::Unknown));
        }
    }

    /// Writes `len` bytes through a pointer. In a correct program these are not saved registers: where they seem to be,
    /// the pointer was followed along a path that control never takes.
    pub(crate) fn store_through_pointer(&mut self, to: StackAddress, len: i32) {
        self.overwrite(to, len, false);
    }

    fn overwrite(&mut self, to: StackAddress, len: i32, saved_too: bool) {
        let StackAddress { base, offset } = to;
        let end = offset.saturating_add(len);
        self.retain_slots(|slot| {
            let is_hit = slot.base == base && slot.offset < end && slot.offset.saturating_add(8) > offset;
            !is_hit || (!saved_too && slot.packed.caller().is_some())
        });
    }

    /// Writes eight bytes to an indexed slot.
    pub(crate) fn store_indexed(&mut self, slot: IndexedSlot) {
        self.indexed = Some(slot);
        self.is_changed = true;
    }

    /// The value of eight bytes at an indexed address.
    pub(crate) fn load_indexed(&self, from: StackAddress, index: usize, scale: u8) -> Value {
        let StackAddress { base, offset } = from;
        let is_it = |slot: &IndexedSlot| {
            (slot.base, slot.offset, usize::from(slot.index), slot.scale) == (base, offset, index, scale)
        };
        self.indexed.filter(is_it).map_or(Value::Unknown, |slot| Value::cfa(slot.from_cfa))
    }

    fn forget_indexed(&mut self) {
        self.indexed = None;
        self.is_changed = true;
    }

    /// Whether a caller-saved register holds an address on the stack.
    pub(crate) fn holds_frame_in_clobbered(&self) -> bool {
        CALL_CLOBBERED.iter().any(|&register| self.packed(register).base().is_some())
    }

    /// Applies a call that returns.
    pub(crate) fn call(&mut self) {
        for register in CALL_CLOBBERED {
            self.is_changed |= self.packed(register).matters();
            self.registers[register] = Packed::UNKNOWN.0;
        }
        if let Value::Stack { base, offset: top } = self.get(RSP) {
            self.retain_slots(|slot| slot.base != base || slot.offset >= top);
        }
        if self.indexed.is_some_and(|slot| CALL_CLOBBERED.contains(&usize::from(slot.index))) {
            self.forget_indexed();
        }
        self.after_system_call = false;
    }

    /// Keeps what both states know where control flow joins at `at`. Returns whether this state knows less than before.
    pub(crate) fn merge(&mut self, other: &State, at: u32) -> bool {
        let mut less = if self.registers[RSP] == other.registers[RSP] {
            self.keep_common(other)
        } else {
            self.rebase_to(Base::merged_at(at), other)
        };
        if self.is_outermost && !other.is_outermost {
            self.is_outermost = false;
            less = true;
        }
        self.after_system_call &= other.after_system_call;
        if self.pivot != other.pivot {
            self.pivot = None;
        }
        if self.bound != other.bound {
            self.bound = None;
        }
        self.is_changed = true;
        less
    }

    /// The stack pointers agree: keeps what both know.
    fn keep_common(&mut self, other: &State) -> bool {
        let mut less = self.indexed.is_some() && self.indexed != other.indexed;
        if less {
            self.indexed = None;
        }
        if self.is_symbolic {
            less |= self.doubt_slots_unlike(other);
        } else if self.slots() != other.slots() {
            self.retain_slots(|slot| {
                let common = other.slots().contains(slot);
                less |= !common;
                common
            });
        }
        // They are mostly equal.
        if self.registers == other.registers {
            return less;
        }
        for (mine, others) in self.registers.iter_mut().zip(&other.registers) {
            if mine != others && *mine != Packed::UNKNOWN.0 {
                *mine = Packed::UNKNOWN.0;
                less = true;
            }
        }
        less
    }

    /// Slots that were written on one path only become unknown: they no longer hold what they held at the start.
    fn doubt_slots_unlike(&mut self, other: &State) -> bool {
        let mut less = false;
        for slot in self.slots.iter_mut().take(usize::from(self.slot_count)) {
            if slot.packed != Packed::UNKNOWN && !other.slots().contains(slot) {
                slot.packed = Packed::UNKNOWN;
                less = true;
            }
        }
        for its in other.slots() {
            if !self.slots().iter().any(|slot| slot.base == its.base && slot.offset == its.offset) {
                self.push_slot(Slot { packed: Packed::UNKNOWN, ..*its });
                less = true;
            }
        }
        less
    }

    /// The stack pointers differ: what both know relative to them stays known, relative to a new base, `merged`. What
    /// the other knows relative to `merged` is from control's last arrival here.
    fn rebase_to(&mut self, merged: Base, other: &State) -> bool {
        let (Some((my_base, my_top)), Some((its_base, its_top))) = (self.top(), other.top()) else {
            let less = self.registers != [Packed::UNKNOWN.0; 16];
            *self = State::unknown();
            return less;
        };
        let common = |a: Value, b: Value| match (a, b) {
            _ if a == b && a.base() != Some(merged) => a,
            (Value::Stack { base: x, offset: from }, Value::Stack { base: y, offset: to })
                if x == my_base && y == its_base && from.wrapping_sub(my_top) == to.wrapping_sub(its_top) =>
            {
                Value::Stack { base: merged, offset: from.wrapping_sub(my_top) }
            }
            _ => Value::Unknown,
        };
        let mut next = State { slot_count: 0, indexed: None, ..self.clone() };
        for (value, (&a, &b)) in next.registers.iter_mut().zip(self.registers.iter().zip(&other.registers)) {
            *value = Packed::new(common(Packed(a).value(), Packed(b).value())).0;
        }
        for mine in self.slots() {
            let place = |slot: &Slot| Value::Stack { base: slot.base, offset: slot.offset };
            for its in other.slots() {
                if let Value::Stack { base, offset } = common(place(mine), place(its))
                    && let slot = Slot::new(base, offset, common(mine.value(), its.value()))
                    && slot.packed.matters()
                {
                    next.push_slot(slot);
                }
            }
        }
        next.indexed = self.indexed.zip(other.indexed).and_then(|(mine, its)| {
            let place = |slot: IndexedSlot| Value::Stack { base: slot.base, offset: slot.offset };
            let same = |slot: IndexedSlot| (slot.index, slot.scale, slot.from_cfa);
            match common(place(mine), place(its)) {
                Value::Stack { base, offset } if same(mine) == same(its) => Some(IndexedSlot { base, offset, ..mine }),
                _ => None,
            }
        });
        next.registers[RSP] = Packed::new(Value::Stack { base: merged, offset: 0 }).0;
        let less = next.registers != self.registers || next.slots() != self.slots() || next.indexed != self.indexed;
        *self = next;
        less
    }

    fn top(&self) -> Option<(Base, i32)> {
        match self.get(RSP) {
            Value::Stack { base, offset } => Some((base, offset)),
            _ => None,
        }
    }

    /// The address named by `base` is computed anew: what is known of the old one is lost.
    fn forget_base(&mut self, base: Base) {
        for value in &mut self.registers {
            if Packed(*value).base() == Some(base) {
                *value = Packed::UNKNOWN.0;
            }
        }
        self.retain_slots(|slot| slot.base != base && slot.packed.base() != Some(base));
        self.indexed = self.indexed.filter(|slot| slot.base != base);
        self.is_changed = true;
    }

    fn retain_slots(&mut self, mut keep: impl FnMut(&Slot) -> bool) {
        let mut kept = 0;
        for index in 0..usize::from(self.slot_count) {
            let Some(slot) = self.slots.get(index).copied() else { break };
            if keep(&slot) {
                self.slots[kept] = slot;
                kept += 1;
            }
        }
        if kept < usize::from(self.slot_count) {
            self.slot_count = kept as u8;
            self.is_changed = true;
        }
    }

    fn push_slot(&mut self, slot: Slot) {
        if let Some(free) = self.slots.get_mut(usize::from(self.slot_count)) {
            *free = slot;
            self.slot_count += 1;
            self.is_changed = true;
        } else {
            self.is_symbolic = false;
        }
    }
}

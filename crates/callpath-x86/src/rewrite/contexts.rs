//! How a copy finds the context that it is entered in, and counts there (`callpath_format::shared::activation`).
//!
//! ```text
//! entry:    the return address; is it in a copy?
//!           the mark there: how far up the caller's word is, which site
//!           the caller's node; the slot of the site; its first node: is it this procedure's?
//! found:    add 1 to the context's count
//! counted:  keep the node in a word of the frame, or note it in the table of activations, if there are calls
//!
//! others:   look it up in the table of callees; go on at `found` if it is there
//! apart:    push what the procedure is; call the routine, which counts; pop the node; go on at `counted`
//! ```
//!
//! A copy that calls one procedure knows its own node and the site: it leaves the callee's node in a register and calls its copy at
//! `handed`. The node is that of a second slot of the site, which none but that procedure has a node in, so that nothing is compared:
//!
//! ```text
//! handed:   is there a node? go on at `found`
//! ```
//!
//! A call through a pointer, or a word that the loader may still change, does so if it finds the node of what the pointer leads to:
//!
//! ```text
//! call:     the first node of the site; is its procedure's entry what the pointer is? call it there
//!
//! others:   look the pointer up in the table of pointers; call it there
//! plain:    the call as it was
//! ```
//!
//! By a word of ours, or a pointer, the node comes in r11. Where callers of the module hand it over in another register, such calls enter apart,
//! at a piece that moves it there.

use callpath_format::address::LinkAddr;
use callpath_format::shared::activation::{
    CallMark, CalleeTable, ContextNode, CopiesWords, Entered, EnteredWithNode, PointerTable,
};
use callpath_format::shared::known_return::{ActivationTable, KnownReturn};
use std::mem::offset_of;

use super::assembler::{Assembler, Target};
use super::calls::Pointer;
use super::frame::Height;
use super::plan::{Cell, Contexts, Plan};
use super::spot::{RAX, SCRATCH, Spot};
use crate::encode::{self, Register, Word};
use crate::encoding;
use crate::liveness::LiveSet;

const RSP: Register = 4;
const WORD_BYTES: i32 = 8;
/// Holds the node that a caller hands over where it calls through a pointer or the linkage table. The ABI has no use for it at calls.
pub(super) const HANDED: Register = 11;
/// Sites with higher numbers do not hand over nodes, since that takes a second slot.
pub(super) const MOST_HANDING: u16 = u16::MAX / 4;
/// Conditions as processors number them.
const IS_EQUAL: u8 = 4;
const IS_OTHER: u8 = 5;
const IS_BELOW: u8 = 2;
const IS_NOT_BELOW: u8 = 3;

/// What stands behind a call that a copy makes at site number `site`: `before` is how the CFA is found before it. `word`: which one of
/// the activation holds its node. `None`: where that is cannot be told.
pub(super) fn mark(word: u32, before: Option<Height>, site: u16) -> Option<[u8; CallMark::LEN_BYTES]> {
    let before = before.filter(|before| before.register == RSP)?;
    let words = words(before.distance_of(word))?;
    Some(CallMark { words, site }.to_word().to_le_bytes())
}

/// A call of a copy that counts contexts, and marks no calls: its node is noted in a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnmarkedCall {
    /// The link-time address that it returns to, at home or in the copy.
    pub returns_to: LinkAddr,
    /// How far above rsp, as it is before the call, or above rbp, the copy's own return address is, in words of eight bytes.
    pub words: u16,
    /// Above rbp.
    pub is_above_rbp: bool,
    /// The number of the call site, from 1 on.
    pub site: u16,
}

impl UnmarkedCall {
    /// `None`: where the return address is cannot be told.
    pub(super) fn new(returns_to: LinkAddr, before: Option<Height>, site: u16) -> Option<UnmarkedCall> {
        const MOST_WORDS: u16 = (1 << KnownReturn::RBP_BIT) - 1;
        let before = before?;
        let words = words(before.distance_of(0)).filter(|words| *words <= MOST_WORDS)?;
        Some(UnmarkedCall { returns_to, words, is_above_rbp: before.register != RSP, site })
    }
}

/// The register that callers within the module hand over its node to a procedure in, by what is live where that one is entered. `None`: there is
/// none, or none beside it that is free, or flags are live.
pub(super) fn handed_in(live: LiveSet) -> Option<Register> {
    let is_free = |register: &Register| live.general() >> register & 1 == 0;
    let mut free = std::iter::once(HANDED).chain(SCRATCH.into_iter().filter(|it| *it != HANDED)).filter(is_free);
    let register = free.next().filter(|_| !live.has_flags())?;
    free.next().map(|_| register)
}

/// Where the node of a callee is found, before a call of the caller's copy: as for [`mark`], and the number of its slot.
#[derive(Clone, Copy)]
pub(super) struct Site {
    pub(super) word: u32,
    pub(super) before: Option<Height>,
    pub(super) slot: u16,
}

/// Hands over the node of the callee, before the call. `false`: nothing is written.
pub(super) fn hand_over(out: &mut Assembler, site: Site, register: Register) -> bool {
    let Some(before) = site.before.filter(|before| before.register == RSP) else { return false };
    out.bytes(&encode::load(register, Word::OfFrame(RSP, before.distance_of(site.word))).bytes);
    out.bytes(&encode::load_beside(register, register, ContextNode::slot_at(site.slot) as i32));
    true
}

/// A call through a pointer, which may enter its callee with the node.
pub(super) struct Dispatch {
    pub(super) contexts: Contexts,
    pub(super) site: Site,
    pub(super) pointer: Pointer,
    /// Where a register's value may wait.
    pub(super) spill: Option<Cell>,
}

impl Dispatch {
    const AT_ENTRY: i8 = offset_of!(ContextNode, entry) as i8;
    const AT_ENTERED: i8 = offset_of!(ContextNode, entered_with_node) as i8;

    /// Calls by way of the first node of the call site, if what the pointer leads to has that. `apart`: where else it is looked for.
    /// `false`: nothing is written.
    pub(super) fn by_first(&self, out: &mut Assembler, apart: usize) -> bool {
        let Some(spill) = self.spill_word().filter(|_| hand_over(out, self.site, HANDED)) else { return false };
        out.bytes(&encode::test(HANDED));
        branch(out, IS_EQUAL, apart);
        // The slot may have another node at once: a signal's handler comes in between.
        match self.pointer.register() {
            Some(register) => {
                out.bytes(&encode::compare_with(HANDED, Dispatch::AT_ENTRY, register));
                branch(out, IS_OTHER, apart);
            }
            None => {
                out.bytes(&encode::store(HANDED, spill).bytes);
                out.bytes(&encode::load_from(HANDED, HANDED, Dispatch::AT_ENTRY));
                self.pointer.compare(out, HANDED);
                branch(out, IS_OTHER, apart);
                out.bytes(&encode::load(HANDED, spill).bytes);
            }
        }
        out.bytes(&encode::call_through(HANDED, Dispatch::AT_ENTERED));
        true
    }

    fn spill_word(&self) -> Option<Word> {
        let before = self.site.before.filter(|before| before.register == RSP)?;
        Some(Word::OfFrame(RSP, before.distance_of(self.spill?.offset_in_activation()?)))
    }

    /// Calls by way of the table of pointers, if the node is there. `None`: nothing is written.
    pub(super) fn by_table(&self, out: &mut Assembler) -> Option<Missing> {
        const AT_SLOT: i8 = offset_of!(ContextNode, slot) as i8;
        // Where rax waits would have to be told.
        let mut others = SCRATCH.into_iter().filter(|it| ![RAX, HANDED].contains(it) && !self.pointer.uses(*it));
        let (other, spill) = (others.next()?, self.spill_word()?);
        let word = Word::OfFrame(RSP, self.site.before?.distance_of(self.site.word));
        let slot = ContextNode::slot_at(self.site.slot) as i32;
        let missing = out.label();
        out.bytes(&encode::store(other, spill).bytes);
        self.pointer.load(out, other);
        out.bytes(&encode::load(HANDED, word).bytes);
        out.bytes(&encode::address_in_table(HANDED, HANDED, None, slot));
        out.bytes(&encode::add_register_without_flags(HANDED, other));
        out.bytes(&encode::and_32(HANDED, PointerTable::MASK));
        out.opcode_to(&encode::add_beside_code(HANDED), callees(self.contexts));
        out.bytes(&encode::load_beside(HANDED, HANDED, PointerTable::AT as i32));
        out.bytes(&encode::test(HANDED));
        branch(out, IS_EQUAL, missing);
        out.bytes(&encode::compare_with(HANDED, Dispatch::AT_ENTRY, other));
        branch(out, IS_OTHER, missing);
        out.bytes(&encode::load(other, word).bytes);
        out.bytes(&encode::address_in_table(other, other, None, slot));
        out.bytes(&encode::compare_with(HANDED, AT_SLOT, other));
        branch(out, IS_OTHER, missing);
        out.bytes(&encode::load(other, spill).bytes);
        out.bytes(&encode::call_through(HANDED, Dispatch::AT_ENTERED));
        Some(Missing { label: missing, restores: encode::load(other, spill).bytes })
    }
}

/// Where the table of pointers has no node for a call, and what is to be executed there first.
pub(super) struct Missing {
    pub(super) label: usize,
    pub(super) restores: Vec<u8>,
}

/// A distance in words.
fn words(distance: i32) -> Option<u16> {
    u16::try_from(distance / WORD_BYTES).ok().filter(|_| distance % WORD_BYTES == 0)
}

/// What is written apart from the rest: the way of a context that is not found.
pub(super) struct NotFound {
    contexts: Contexts,
    /// Where it begins, and where it leads; the same of the way by the table of callees.
    labels: [usize; 4],
    /// Where nodes are handed over: where it begins there, and where it begins if the frame is not larger yet.
    handed: Option<[usize; 2]>,
    /// What is taken where a call through a pointer enters with the node, if that is to lie elsewhere.
    dispatched: Option<Used>,
    /// By how many bytes the frame is larger.
    enlarged_by: u32,
    /// Holds the address of the slot where there is one; takes the node's address.
    registers: [Register; 2],
    /// How many words of the frame lie below the return address.
    words: u16,
    /// By how many bytes rsp is lower than the program has it.
    lowered: u32,
}

/// The registers that inserted code uses, and which of them have values that are read later: those wait on the stack, as do flags
/// that are.
struct Used {
    registers: [Register; 2],
    waiting: Vec<Register>,
    flags: bool,
}

impl Used {
    fn choose(plan: &Plan, spot: Spot) -> Used {
        let is_live =
            |register: &Register| spot.live.general() >> register & 1 != 0 || Some(*register) == plan.register();
        let free = SCRATCH.into_iter().filter(|register| !is_live(register));
        // Where rax waits would have to be told.
        let live = SCRATCH.into_iter().filter(|register| is_live(register) && *register != RAX);
        let mut all = free.chain(live);
        let registers = [(); 2].map(|()| all.next().unwrap_or(RAX));
        Used { registers, waiting: registers.into_iter().filter(is_live).collect(), flags: spot.live.has_flags() }
    }

    /// The same with the node where callers hand it over. `None`: that register, or another one, is not free.
    fn handed(plan: &Plan, spot: Spot, register: Option<Register>) -> Option<Used> {
        let handed = register?;
        let is_free =
            |register: &Register| spot.live.general() >> register & 1 == 0 && Some(*register) != plan.register();
        let slot = SCRATCH.into_iter().find(|register| *register != handed && is_free(register))?;
        let is_simple = is_free(&handed) && !spot.live.has_flags();
        is_simple.then(|| Used { registers: [slot, handed], waiting: Vec::new(), flags: false })
    }

    /// By how many bytes rsp is lower for the flags, and for registers.
    fn parts(&self) -> [i32; 2] {
        let flags = if self.flags { WORD_BYTES } else { 0 };
        [flags, if self.waiting.is_empty() { 0 } else { 2 * WORD_BYTES }]
    }

    /// By how many bytes rsp is lower while they wait.
    fn lowered(&self) -> i32 {
        self.parts().iter().sum()
    }

    fn take(&self, out: &mut Assembler) {
        let [flags, registers] = self.parts();
        if self.flags {
            out.bytes(&encode::PUSH_FLAGS);
            out.set_lowered(flags as u32);
        }
        if registers > 0 {
            out.bytes(&encode::move_rsp(-registers as i8));
            out.set_lowered((flags + registers) as u32);
        }
        for (register, place) in self.waiting.iter().zip([0, WORD_BYTES]) {
            out.bytes(&encode::store(*register, Word::OfFrame(RSP, place)).bytes);
        }
    }

    fn give_back(&self, out: &mut Assembler) {
        let [flags, registers] = self.parts();
        for (register, place) in self.waiting.iter().zip([0, WORD_BYTES]) {
            out.bytes(&encode::load(*register, Word::OfFrame(RSP, place)).bytes);
        }
        if registers > 0 {
            out.bytes(&encode::move_rsp(registers as i8));
            out.set_lowered(flags as u32);
        }
        if self.flags {
            out.bytes(&encode::POP_FLAGS);
            out.set_lowered(0);
        }
    }
}

/// Writes what an entry counts with, and makes the frame larger. Where callers enter that hand over the node, in `register`, if they may; and
/// what is written apart.
pub(super) fn write(
    out: &mut Assembler,
    plan: &Plan,
    (contexts, register): (Contexts, Option<Register>),
    spot: Spot,
) -> (Option<u32>, NotFound) {
    const AT_SLOTS: i32 = ContextNode::slot_at(0) as i32;
    const AT_PROCEDURE: i8 = offset_of!(ContextNode, procedure) as i8;
    const AT_VALUES: i8 = offset_of!(ContextNode, values) as i8;
    const AT_KEPT: i8 = offset_of!(ContextNode, kept) as i8;
    let handed = Used::handed(plan, spot, register);
    let is_handed = handed.is_some();
    let used = handed.unwrap_or_else(|| Used::choose(plan, spot));
    let ([slot, node], lowered) = (used.registers, used.lowered());
    let enlarged_by = plan.enlarged_by();
    // How far rsp lies below the return address: at first, and where a node has been found.
    let below = enlarged_by as i32 + lowered;
    let below_at_first = if is_handed { 0 } else { below };
    if !is_handed {
        enlarge(out, enlarged_by);
    }
    used.take(out);
    let [apart, known, found, counted] = [(); 4].map(|()| out.label());
    let handed = is_handed.then(|| [(); 2].map(|()| out.label()));
    let unknown = handed.map_or(apart, |[_, before]| before);
    out.bytes(&encode::load(node, Word::OfFrame(RSP, below_at_first)).bytes);
    // Only there it is known that the address can be read.
    for number in [0, 1] {
        let [start, len] = [0, 1].map(|word| Target::Fixed(contexts.words.0 + 8 * (2 * number + word)));
        out.bytes(&encode::copy(slot, node));
        out.opcode_to(&encode::subtract_beside_code(slot), start);
        out.opcode_to(&encode::compare_beside_code(slot), len);
        match number {
            0 => branch(out, IS_BELOW, known),
            _ => branch(out, IS_NOT_BELOW, unknown),
        }
    }
    out.set_label(known);
    out.bytes(&encode::load_from(slot, node, 0));
    out.bytes(&encode::compare(slot, CallMark::OPCODE));
    branch(out, IS_OTHER, unknown);
    out.bytes(&encode::copy(node, slot));
    out.bytes(&encode::shift_right(node, 48));
    out.bytes(&encode::shift_right(slot, 32));
    out.bytes(&encode::lowest_16(slot, slot));
    out.bytes(&encode::load_from_table(slot, RSP, slot, below_at_first + WORD_BYTES));
    out.bytes(&encode::address_in_table(slot, slot, Some(node), AT_SLOTS));
    out.bytes(&encode::load_from(node, slot, 0));
    out.bytes(&encode::test(node));
    branch(out, IS_EQUAL, unknown);
    out.bytes(&encode::compare_word(node, AT_PROCEDURE, contexts.number));
    let others = out.label();
    branch(out, IS_OTHER, others);
    out.set_label(found);
    let entered_with_node = is_handed.then(|| out.offset());
    if let Some([without, _]) = handed {
        // A node that was found has its frame made larger here, too.
        enlarge(out, enlarged_by);
        out.bytes(&encode::test(node));
        branch(out, IS_EQUAL, without);
    }
    out.bytes(&encode::load_from(slot, node, AT_VALUES));
    out.bytes(&encode::count_in_table(slot, None, 0));
    let word = plan.context_word().and_then(Cell::offset_in_activation);
    if contexts.has_back_edges && (word.is_some() || plan.notes_activations()) {
        out.bytes(&encode::load_from(node, node, AT_KEPT));
    }
    out.set_label(counted);
    if let Some(word) = word {
        out.bytes(&encode::store(node, Word::OfFrame(RSP, word as i32 + lowered)).bytes);
    } else if plan.notes_activations() {
        out.bytes(&encode::address_in_table(slot, RSP, None, below));
        out.bytes(&encode::shift_right(slot, ActivationTable::TAG_SHIFT));
        out.bytes(&encode::shift_left(slot, ActivationTable::NODE_BITS));
        out.bytes(&encode::or(slot, node));
        out.bytes(&encode::address_in_table(node, RSP, None, below));
        out.bytes(&encode::shift_right(node, ActivationTable::PLACE_SHIFT));
        out.bytes(&encode::lowest_16(node, node));
        out.bytes(&encode::times_8(node));
        out.opcode_to(&encode::add_beside_code(node), callees(contexts));
        out.bytes(&encode::store_to(node, ActivationTable::AT as i32, slot));
    }
    used.give_back(out);
    let dispatched = (node != HANDED || !is_handed).then_some(used);
    let (words, lowered) = ((below / WORD_BYTES) as u16, lowered as u32);
    let (labels, registers) = ([apart, counted, others, found], [slot, node]);
    (entered_with_node, NotFound { contexts, labels, handed, dispatched, enlarged_by, registers, words, lowered })
}

/// Makes the frame larger, as it is from there on.
pub(super) fn enlarge(out: &mut Assembler, bytes: u32) {
    if bytes > 0 {
        out.bytes(&encode::move_rsp_far(-(bytes as i32)));
        out.set_enlarged(bytes);
    }
}

/// Where the address of the table of callees is.
fn callees(contexts: Contexts) -> Target {
    Target::Fixed(contexts.words.0 + CopiesWords::CALLEES_AT as u64)
}

fn branch(out: &mut Assembler, condition: u8, label: usize) {
    out.opcode_to(&encoding::branch(condition), Target::Label(label));
}

impl NotFound {
    /// Writes it. `sites`: how many calls of the copy are marked. Where calls through pointers and the linkage table enter with the node; there may
    /// be none where other callers hand it over, too.
    pub(super) fn write(self, out: &mut Assembler, sites: u16) -> Target {
        const AT_SLOT: i8 = offset_of!(ContextNode, slot) as i8;
        const AT_PROCEDURE: i8 = offset_of!(ContextNode, procedure) as i8;
        let NotFound { contexts, labels: [apart, counted, others, found], registers: [slot, node], .. } = self;
        let NotFound { handed, enlarged_by, lowered, .. } = self;
        // By the ABI, a caller through a pointer has no use for the register, whatever others keep there.
        let entered = match &self.dispatched {
            Some(used) if handed.is_some() || !contexts.may_go => {
                let entered = out.label();
                out.set_label(entered);
                if enlarged_by > 0 {
                    out.set_enlarged(0);
                }
                if handed.is_none() {
                    enlarge(out, enlarged_by);
                    used.take(out);
                }
                out.bytes(&encode::copy(node, HANDED));
                out.jump(Target::Label(found));
                entered
            }
            _ => found,
        };
        out.set_lowered(lowered);
        let unknown = handed.map_or(apart, |[_, before]| before);
        if handed.is_some() && enlarged_by > 0 {
            out.set_enlarged(0);
        }
        out.set_label(others);
        out.bytes(&encode::copy(node, slot));
        out.bytes(&encode::shift_right(node, 3));
        out.bytes(&encode::add_without_flags(node, CalleeTable::spread(contexts.number)));
        out.bytes(&encode::lowest_16(node, node));
        out.bytes(&encode::times_8(node));
        out.opcode_to(&encode::add_beside_code(node), callees(contexts));
        out.bytes(&encode::load_from(node, node, 0));
        out.bytes(&encode::test(node));
        branch(out, IS_EQUAL, unknown);
        out.bytes(&encode::compare_with(node, AT_SLOT, slot));
        branch(out, IS_OTHER, unknown);
        out.bytes(&encode::compare_word(node, AT_PROCEDURE, contexts.number));
        branch(out, IS_EQUAL, found);
        if let Some([_, before]) = handed {
            out.set_label(before);
            enlarge(out, enlarged_by);
        }
        out.set_label(apart);
        self.ask(out, (sites, entered), (false, counted));
        if let Some([without, _]) = handed {
            out.set_label(without);
            self.ask(out, (sites, entered), (true, counted));
        }
        out.set_lowered(0);
        Target::Label(entered)
    }

    /// Writes the call of the routine, which counts, and goes on at `then`. `entered`: where calls through pointers enter with the node.
    fn ask(&self, out: &mut Assembler, (sites, entered): (u16, usize), (is_handed, then): (bool, usize)) {
        let NotFound { contexts, registers: [_, node], words, lowered, .. } = *self;
        out.push_word(contexts.entry);
        out.set_lowered(lowered + WORD_BYTES as u32);
        out.push_word(Entered { procedure: contexts.number, sites, words, is_handed }.to_word());
        out.set_lowered(lowered + 2 * WORD_BYTES as u32);
        out.opcode_to(&encode::CALL, Target::Fixed(contexts.routine.0));
        out.bytes(&EnteredWithNode::OPCODE.to_le_bytes());
        match contexts.may_go {
            true => out.bytes(&[0; EnteredWithNode::LEN_BYTES / 2]),
            false => out.opcode_to(&[], Target::Label(entered)),
        }
        out.bytes(&encode::pop(node));
        out.set_lowered(lowered + WORD_BYTES as u32);
        out.bytes(&encode::move_rsp(WORD_BYTES as i8));
        out.set_lowered(lowered);
        out.jump(Target::Label(then));
    }
}

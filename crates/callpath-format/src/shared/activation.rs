//! Exact calling contexts (Ammons, Ball and Larus 1997, section 4): what the copies of a program's procedures and our object in
//! the program share. All of it is private memory of the program; the counts lie in its calling context tree.
//!
//! Each copy that makes calls keeps the address of its [`ContextNode`] in a word of its frame. Behind each of its calls stands a
//! [`CallMark`], an instruction that does nothing; it tells the callee where that word is, and which call site this is. So a callee
//! finds its caller's node by its return address, whatever happened in between: a `longjmp`, an exception, a signal or a change
//! of stacks leaves nothing to repair. A return address without a mark is one of code that is not counted, or of a procedure
//! whose frame cannot have such a word ([`super::known_return`]).

use core::sync::atomic::{AtomicU32, AtomicU64};

/// What copies read, in each module: words of eight bytes, all zeroes at first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CopiesWords {
    /// Where copies are that return addresses may be in: of two parts of memory, which can be read from begin to end, the run-time
    /// address and the length in bytes. Any other return address may be anything, and is not followed.
    pub regions: [[u64; 2]; 2],
    /// The address of the table of callees ([`CalleeTable`]), and right behind it those of activations ([`super::known_return::ActivationTable`]) and of pointers
    /// ([`PointerTable`]).
    pub callees: u64,
    /// The address of the table of returns ([`super::known_return::KnownReturn`]); 0: there is none.
    pub returns: u64,
    /// By how many bits the hash of a return address is shifted there.
    pub returns_shift: u64,
    /// Where the words of contexts begin ([`super::flows`]); 0: paths are not counted in contexts.
    pub flows: u64,
    /// The address of a table of numbers of 32 bits: by the procedure's number, how many counters a context of it has.
    pub counters: u64,
}

impl CopiesWords {
    /// How many words it is.
    pub const COUNT: usize = 9;
    /// Where [`CopiesWords::callees`] is, bytes.
    pub const CALLEES_AT: usize = 4 * size_of::<u64>();
    /// Where [`CopiesWords::returns`] is, bytes.
    pub const RETURNS_AT: usize = 5 * size_of::<u64>();
    /// Where [`CopiesWords::returns_shift`] is, bytes.
    pub const RETURNS_SHIFT_AT: usize = 6 * size_of::<u64>();
    /// Where [`CopiesWords::flows`] is, bytes.
    pub const FLOWS_AT: usize = 7 * size_of::<u64>();

    /// In their order.
    pub const fn to_words(self) -> [u64; CopiesWords::COUNT] {
        let [[first, first_len], [second, second_len]] = self.regions;
        let CopiesWords { callees, returns, returns_shift, flows, counters, .. } = self;
        [first, first_len, second, second_len, callees, returns, returns_shift, flows, counters]
    }
}

/// A table of the process's, of addresses of nodes: one that is not the first one of its call site may be found there. Whose it is
/// tells the node itself.
pub struct CalleeTable;

impl CalleeTable {
    /// How many there are: all numbers of 16 bits.
    pub const COUNT: usize = 1 << 16;

    /// What is added for a procedure to the eighth of its slot's address; the lowest 16 bits of that are its place.
    pub const fn spread(procedure: u32) -> i32 {
        (procedure.wrapping_mul(0x9e37_79b1) >> 8) as i32
    }

    /// The place of the node of a procedure that a slot leads to.
    pub const fn place(slot: u64, procedure: u32) -> usize {
        ((slot >> 3).wrapping_add(CalleeTable::spread(procedure) as u64) & (CalleeTable::COUNT as u64 - 1)) as usize
    }
}

/// A table of the process's, of addresses of nodes, by call sites and what is called there through a pointer. Whose a node is tells the node
/// itself. It stands behind the other tables.
pub struct PointerTable;

impl PointerTable {
    /// How many there are.
    pub const COUNT: usize = 1 << 16;
    /// Where it begins, bytes behind the table of callees.
    pub const AT: usize =
        CalleeTable::COUNT * size_of::<u64>() + super::known_return::ActivationTable::COUNT * size_of::<u64>();
    /// The bits of the sum of a slot's address and the callee's that are the place, bytes.
    pub const MASK: u32 = (PointerTable::COUNT * size_of::<u64>() - size_of::<u64>()) as u32;

    /// The place of the node of the procedure at this address that a slot leads to.
    pub const fn place(slot: u64, entry: u64) -> usize {
        (slot.wrapping_add(entry) & PointerTable::MASK as u64) as usize / size_of::<u64>()
    }
}

/// What stands behind a call, eight bytes: `nop dword ptr [rax + 8 * register + displacement]`, as no compiler writes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallMark {
    /// How far above rsp, as it is before the call, the caller's word lies, in words of eight bytes.
    pub words: u16,
    /// The number of the call site in the caller, from 1 on.
    pub site: u16,
}

impl CallMark {
    /// The first four bytes, as a little-endian number.
    pub const OPCODE: u32 = u32::from_le_bytes([0x0f, 0x1f, 0x84, 0xc8]);
    /// The length, bytes.
    pub const LEN_BYTES: usize = 8;

    /// The mark as a little-endian number, which is its bytes: the opcode, the distance, the site.
    pub const fn to_word(self) -> u64 {
        CallMark::OPCODE as u64 | (self.words as u64) << 32 | (self.site as u64) << 48
    }

    /// The mark that these bytes are.
    pub const fn from_word(word: u64) -> Option<CallMark> {
        let (words, site) = ((word >> 32) as u16, (word >> 48) as u16);
        if word as u32 == CallMark::OPCODE && site > 0 { Some(CallMark { words, site }) } else { None }
    }
}

/// A context of a thread: a procedure below the contexts that it is called from. Its call sites' slots lie behind it: for each
/// site, the address of the first of its callees' nodes. A site that hands its callee that one's node has a second slot, the next one:
/// only the procedure that is called there has its node in it, and only if it is entered by that call.
#[repr(C)]
pub struct ContextNode {
    /// The address of the values that probes have of the context; the first one counts its activations.
    pub values: AtomicU64,
    /// The procedure's number.
    pub procedure: AtomicU32,
    /// The node of the calling context tree (`ArenaRef`), whose key is the procedure's first instruction; 0: it is not known here, as
    /// in a fork's child, where these nodes are all zeroes.
    pub context: AtomicU32,
    /// The run-time address of the procedure's first instruction, by which a call through a pointer finds that it leads there; 0: no such call may enter
    /// with the node.
    pub entry: AtomicU64,
    /// The run-time address where such calls enter with the node.
    pub entered_with_node: AtomicU64,
    /// The address of the next node of the same call site; 0: there is none.
    pub next: AtomicU64,
    /// The address of the slot that leads to it, or of the list that it is in.
    pub slot: AtomicU64,
    /// The number of the first of its counters of paths ([`super::flows`]); 0: they are those of the shared piece.
    pub flow: AtomicU64,
    /// The address of the node of the nearest counted procedure that called it; 0: there is none, or it is not known.
    pub caller: AtomicU64,
    /// The address of the node that an activation keeps which is found here: its own, or, with
    /// [`super::Settings::BACK_EDGES`], that of the procedure's outermost activation.
    pub kept: AtomicU64,
}

impl ContextNode {
    /// The length without slots, bytes.
    pub const LEN_BYTES: usize = size_of::<ContextNode>();
    /// The most slots: a node of which nothing is known has as many.
    pub const MOST_SLOTS: usize = u16::MAX as usize;
    /// Where the slot of a call site lies, counted from the node, bytes.
    pub const fn slot_at(site: u16) -> usize {
        ContextNode::LEN_BYTES - size_of::<u64>() + site as usize * size_of::<u64>()
    }
}

/// Where a thread's nodes are.
#[repr(C)]
pub struct NodeMemory {
    /// The address of the first piece of memory ([`PieceHead`]); 0: there is none yet.
    pub first: u64,
    /// That of the piece in which nodes are made; 0: none is.
    pub piece: u64,
    /// Where the next node is made in it, bytes.
    pub used: u64,
    /// The number of the first word of the piece with counters of paths; 0: there is none.
    pub flows: u64,
    /// The number of words of it that are used.
    pub flows_used: u64,
    /// Nodes of procedures whose callers are not counted, in lists ([`ContextNode::next`]) by a hash of [`ContextNode::values`].
    pub by_values: [AtomicU64; NodeMemory::LISTS],
}

impl NodeMemory {
    /// How many lists there are; a power of two.
    pub const LISTS: usize = 1024;
}

/// What a piece of memory with nodes begins with. It is aligned to its length.
#[repr(C)]
pub struct PieceHead {
    /// The address of the thread's next piece; 0: there is none.
    pub next: u64,
    /// The address of the thread's [`super::probe::Area`]; 0 in a fork's child, where all of the piece is zeroes.
    pub owner: u64,
}

impl PieceHead {
    /// The length of a piece, bytes; a power of two.
    pub const PIECE_BYTES: usize = 256 << 10;

    /// The address of the head of the piece that a node lies in.
    pub const fn of(node: u64) -> u64 {
        node & !(PieceHead::PIECE_BYTES as u64 - 1)
    }
}

/// What stands behind a copy's call of the routine that looks its context up, eight bytes: an instruction that does nothing; it tells where
/// calls through pointers enter that have found the node.
pub struct EnteredWithNode;

impl EnteredWithNode {
    /// The first four bytes, as a little-endian number: `nop dword ptr [rax + rax + displacement]`.
    pub const OPCODE: u32 = u32::from_le_bytes([0x0f, 0x1f, 0x84, 0x00]);
    /// The length, bytes. The displacement, the last four bytes, counts from its end; 0: no such call may enter.
    pub const LEN_BYTES: usize = 8;
}

/// What a copy pushes, in one word, before it calls the routine that looks its context up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entered {
    /// The procedure's number.
    pub procedure: u32,
    /// How many call sites it has.
    pub sites: u16,
    /// How many words of its frame lie below its return address by then.
    pub words: u16,
    /// The caller was to hand it its node, by the second slot of the call site.
    pub is_handed: bool,
}

impl Entered {
    /// Of the half-word with the words: [`Entered::is_handed`].
    pub const HANDED_BIT: u32 = 15;

    /// As one word.
    pub const fn to_word(self) -> u64 {
        let words = self.words & !(1 << Entered::HANDED_BIT) | (self.is_handed as u16) << Entered::HANDED_BIT;
        self.procedure as u64 | (self.sites as u64) << 32 | (words as u64) << 48
    }

    /// From one word.
    pub const fn from_word(word: u64) -> Entered {
        let words = (word >> 48) as u16;
        let is_handed = words >> Entered::HANDED_BIT != 0;
        let words = words & !(1 << Entered::HANDED_BIT);
        Entered { procedure: word as u32, sites: (word >> 32) as u16, words, is_handed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_words() {
        let mark = CallMark { words: 7, site: 0x1234 };
        assert_eq!(mark.to_word().to_le_bytes(), [0x0f, 0x1f, 0x84, 0xc8, 7, 0, 0x34, 0x12]);
        assert_eq!(CallMark::from_word(mark.to_word()), Some(mark));
        // What compilers put behind calls that do not return.
        assert_eq!(CallMark::from_word(u64::from_le_bytes([0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0])), None);
        assert_eq!(CallMark::from_word(CallMark { words: 7, site: 0 }.to_word()), None);
        for is_handed in [false, true] {
            let entered = Entered { procedure: 0xdead_beef, sites: 3, words: 4, is_handed };
            assert_eq!(Entered::from_word(entered.to_word()), entered);
        }
        let far = CalleeTable::place(0x7fff_1234_5678, u32::MAX);
        assert!(far < CalleeTable::COUNT);
        assert_eq!([ContextNode::slot_at(1), ContextNode::slot_at(3)], [72, 88]);
    }
}

//! Exact calling contexts: what copies ask for that do not find the context which they are entered in
//! (`callpath_format::shared::activation`). From then on they find it by themselves.
//!
//! A fork's child finds all nodes empty: frames that it has from its parent lead to nodes of which nothing is known, and what they
//! call is found by walks, in the child's own tree.

use callpath_collect::Process;
use callpath_collect::probe::{Context, Told, context_below, has_back_edges, keeps_whole_paths};
use callpath_collect::syscall::{map_private, unmap};
use callpath_format::shared::ArenaRef;
use callpath_format::shared::activation::{
    CallMark, CalleeTable, ContextNode, CopiesWords, Entered, EnteredWithNode, NodeMemory, PieceHead, PointerTable,
};
use callpath_format::shared::flows::{FlowCounters, FlowRecord, FlowsHead};
use callpath_format::shared::gauge::Gauge;
use callpath_format::shared::known_return::{ActivationTable, KnownReturn};
use callpath_format::shared::probe::{Area, Slot};
use core::cell::Cell;
use core::sync::atomic::Ordering::{Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU64};

use crate::gauges::Values;
use crate::hit::{Call, Saved, dropped, known, walked, with_all_code};
use crate::undisturbed::Undisturbed;
use crate::{areas, join};

/// The registers, and above them what the copy has pushed.
#[repr(C)]
pub struct Descent {
    saved: Saved,
    /// The procedure's first instruction.
    entry: u64,
}

/// The address of a node of which nothing is known, with as many slots as there may be; all of it is zeroes, and stays so.
static NOWHERE: AtomicU64 = AtomicU64::new(0);

/// So much of the program's address space nodes may take, bytes.
const NODES_AT_MOST: u64 = 4 << 30;
const PAGE_BYTES: usize = 4096;
static PIECES: AtomicU64 = AtomicU64::new(0);

/// Stacks move from thread to thread: nodes that a thread leaves behind may still be in use.
static STACKS_MOVE: AtomicBool = AtomicBool::new(false);

/// What copies read, too; the recorder writes it. For `routines.rs`, too.
pub static COPIES: [AtomicU64; CopiesWords::COUNT] = [const { AtomicU64::new(0) }; CopiesWords::COUNT];
/// The address of the table of callees, behind which those of activations and of pointers are; for `routines.rs`, too.
pub static CALLEES: AtomicU64 = AtomicU64::new(0);
const TABLES_BYTES: usize = PointerTable::AT + PointerTable::COUNT * size_of::<u64>();

/// The address of the words that say where copies are.
pub fn copies() -> u64 {
    COPIES.as_ptr() as u64
}

/// The address of the table of callees.
pub fn callees() -> u64 {
    CALLEES.load(Relaxed)
}

/// Whether an address is in a copy, where it can be read.
fn is_in_copy(address: u64) -> bool {
    let [first_start, first_len, second_start, second_len, ..] = &COPIES;
    let parts = [(first_start, first_len), (second_start, second_len)];
    parts.iter().any(|(start, len)| address.wrapping_sub(start.load(Relaxed)) < len.load(Relaxed))
}

/// Maps what all threads need. `false`: there is no memory.
pub fn begin() -> bool {
    // Behind a head like that of a piece, which says that it is of no thread.
    let len_bytes = size_of::<PieceHead>() + ContextNode::LEN_BYTES + ContextNode::MOST_SLOTS * size_of::<u64>();
    let nowhere = map_aligned(len_bytes.next_multiple_of(PAGE_BYTES));
    let callees = areas::map_wiped(TABLES_BYTES);
    NOWHERE.store(nowhere.map_or(0, |at| at + size_of::<PieceHead>()) as u64, Relaxed);
    CALLEES.store(callees.unwrap_or(0) as u64, Relaxed);
    nowhere.is_some() && callees.is_some()
}

/// A thread's nodes are another thread's from now on: none of them is there.
pub fn forget(nodes: &mut NodeMemory) {
    if nodes.piece != 0 {
        // It leads to nodes that are none any more.
        areas::empty(CALLEES.load(Relaxed) as usize, TABLES_BYTES);
    }
    if STACKS_MOVE.load(Relaxed) {
        nodes.first = 0;
    }
    (nodes.piece, nodes.flows) = (0, 0);
    for list in &nodes.by_values {
        list.store(0, Relaxed);
    }
}

/// `callpath_descend` of what is not known by the words that tell the context: counts the activation in its context, and leaves the context's node where the copy takes it from.
pub unsafe extern "C" fn descended(descent: &mut Descent) {
    let entered = Entered::from_word(descent.saved.second);
    let rsp = core::ptr::from_ref(&descent.entry) as u64 + 8 * (1 + u64::from(entered.words));
    let call = Call { saved: &descent.saved, entry: descent.entry, rsp };
    // SAFETY: a copy has called the routine, and that stands there.
    let enters = unsafe { enters(call.entry, descent.saved.goes_on_at()) };
    let node = again(call, entered).or_else(|| {
        let _undisturbed = Undisturbed::begin();
        descend(call, (entered, enters))
    });
    descent.saved.second = node.unwrap_or(NOWHERE.load(Relaxed));
}

/// Where a procedure is entered: its first instruction, and where calls through pointers enter its copy that have found the node; zeroes if
/// none may.
#[derive(Clone, Copy)]
struct Enters {
    entry: u64,
    with_node: u64,
}

/// Where a procedure with its first instruction at `entry` is entered. `returns_to`: where the routine that its copy has called returns.
///
/// # Safety
/// [`EnteredWithNode`] stands there.
unsafe fn enters(entry: u64, returns_to: u64) -> Enters {
    let behind = returns_to + EnteredWithNode::LEN_BYTES as u64;
    // SAFETY: the caller's.
    match unsafe { (behind as *const i32).sub(1).read_unaligned() } {
        0 => Enters { entry: 0, with_node: 0 },
        distance => Enters { entry, with_node: behind.wrapping_add_signed(distance.into()) },
    }
}

/// Where there is a node already. It only reads: a handler that comes in between does no harm.
fn again(call: Call<'_>, entered: Entered) -> Option<u64> {
    let (_, _, area) = areas::known()?;
    if let Some(caller) = Caller::of(area, (call, entered)) {
        return caller.callees().count(entered.procedure);
    }
    let [.., node] = known(area, call)?;
    Some(Node::at(node)?.count())
}

/// `None`: there is no memory for a node, or no context; that is counted as dropped.
fn descend(call: Call<'_>, (entered, enters): (Entered, Enters)) -> Option<u64> {
    let Some((process, thread, area)) = areas::own() else { return dropped() };
    let caller = Caller::of(area, (call, entered));
    let callees = caller.as_ref().map(Caller::callees);
    if let Some(node) = callees.as_ref().and_then(|callees| callees.count(entered.procedure)) {
        return Some(node);
    }
    if let (Some(caller), Some(callees)) = (&caller, callees) {
        if let Some(active) = active(process, Some(caller.node), entered.procedure) {
            return Some(active.refer_from(area, &callees));
        }
        if let Some(context) = caller.context().filter(|_| keeps_whole_paths(process)) {
            join::await_chunks(process);
            let context = context_below(process, thread, (context, call.returns_to()), &call.at_entry())?;
            return New { area, entered, enters, context, caller: Some(caller.node) }.add(&callees);
        }
    }
    let told = Cell::new(None);
    // SAFETY: the calling thread's own; no handler comes in between.
    let place = unsafe { (*area).known.get_mut(call.number()) }?;
    let walk = |as_it_is| {
        told.set(None);
        walked((process, thread), place, (call, as_it_is), |at, returns_to| {
            let (at, node) = node_of_caller(at, returns_to)?;
            if has_back_edges(process) {
                told.set(made_by(area, node));
            }
            // The stack farther out may be as deep as recursion is.
            Some(Told { at, below: told.get().and_then(Node::tree_node) })
        })
    };
    let context = with_all_code(process, walk)?;
    if let Some(caller) = caller {
        return New { area, entered, enters, context, caller: Some(caller.node) }.add(&caller.callees());
    }
    let node = match active(process, told.get(), entered.procedure) {
        Some(active) => active.count(),
        None => {
            New { area, entered, enters, context, caller: told.get() }.add(&List::below_gap(area, context.values)?)?
        }
    };
    // SAFETY: as above.
    unsafe { (*area).known.get_mut(call.number()) }?.node = node;
    Some(node)
}

/// Where recursion is a back edge: the node of a procedure's activation, if it is active in that of a caller.
fn active(process: &Process<'_>, caller: Option<Node>, procedure: u32) -> Option<Node> {
    let caller = caller.filter(|_| has_back_edges(process));
    let active = core::iter::successors(caller, |node| Node::at(node.caller.load(Relaxed)));
    // A fork's child knows nothing of its parent's.
    let mut active = active.take_while(|node| node.tree_node().is_some());
    active.find(|node| node.procedure.load(Relaxed) == procedure)
}

/// A context that has no node yet.
struct New {
    area: *mut Area,
    entered: Entered,
    enters: Enters,
    context: Context,
    /// The node of the nearest counted procedure that called it.
    caller: Option<Node>,
}

impl New {
    /// Counts the activation and gives the context a node, whose address this is. No handler comes in between.
    fn add(self, list: &List) -> Option<u64> {
        let New { area, entered, enters, context, caller } = self;
        if let Some(node) = list.count(entered.procedure) {
            return Some(node);
        }
        count(context.values);
        let node = allocate(area, entered.sites)?;
        node.values.store(context.values, Relaxed);
        node.procedure.store(entered.procedure, Relaxed);
        node.context.store(context.node.0, Relaxed);
        node.entry.store(enters.entry, Relaxed);
        node.entered_with_node.store(enters.with_node, Relaxed);
        node.flow.store(counters(area, entered.procedure, context.node), Relaxed);
        node.caller.store(caller.map_or(0, address), Relaxed);
        node.kept.store(address(node), Relaxed);
        list.add(node);
        Some(address(node))
    }
}

fn count(values: u64) {
    // SAFETY: of a node of the tree, or 0.
    unsafe { Values::at(values) }.add(Gauge::CALLS_COLUMN, 1);
}

/// A node: it stays mapped, and its words are atomic.
type Node = &'static ContextNode;

/// What nodes do here.
trait Counts: Sized {
    /// That at an address. `None`: 0.
    fn at(at: u64) -> Option<Self>;
    /// Counts an activation that was found by it, which keeps the node at this address.
    fn count(self) -> u64;
    /// Counts an activation of the same procedure, which is called while this one's is active: from now on it is found in
    /// the list, by a node that refers to this one.
    fn refer_from(self, area: *mut Area, list: &List) -> u64;
    /// The node of the calling context tree, if it is known.
    fn tree_node(self) -> Option<ArenaRef>;
}

impl Counts for Node {
    fn at(at: u64) -> Option<Node> {
        // SAFETY: where an address of a node is, it stays mapped.
        unsafe { (at as *const ContextNode).as_ref() }
    }

    fn count(self) -> u64 {
        count(self.values.load(Relaxed));
        self.kept.load(Relaxed)
    }

    fn refer_from(self, area: *mut Area, list: &List) -> u64 {
        let kept = self.count();
        // Without memory it is looked for again the next time.
        if let Some(node) = allocate(area, 0) {
            node.values.store(self.values.load(Relaxed), Relaxed);
            node.procedure.store(self.procedure.load(Relaxed), Relaxed);
            node.entry.store(self.entry.load(Relaxed), Relaxed);
            node.entered_with_node.store(self.entered_with_node.load(Relaxed), Relaxed);
            node.kept.store(kept, Relaxed);
            list.add(node);
        }
        kept
    }

    fn tree_node(self) -> Option<ArenaRef> {
        ArenaRef(self.context.load(Relaxed)).some()
    }
}

fn address(node: &ContextNode) -> u64 {
    core::ptr::from_ref(node) as u64
}

/// The mark at a return address, if there is one.
fn mark_at(returns_to: u64) -> Option<CallMark> {
    // SAFETY: memory with copies can be read.
    is_in_copy(returns_to)
        .then(|| CallMark::from_word(unsafe { (returns_to as *const u64).read_unaligned() }))
        .flatten()
}

/// Where the caller's word is that holds its node, by where the return address is that the mark stands at.
fn word_of(mark: CallMark, return_address_at: u64) -> u64 {
    return_address_at + size_of::<u64>() as u64 * (1 + u64::from(mark.words))
}

/// What tells the caller's context, by where the return address to it is, and that: where a word of its frame is, and the
/// address of a node there.
fn node_of_caller(return_address_at: u64, returns_to: u64) -> Option<(u64, u64)> {
    let at = word_of(mark_at(returns_to)?, return_address_at);
    // SAFETY: as in `Caller::of`.
    let node = unsafe { (at as *const u64).read() };
    (node != 0 && node != NOWHERE.load(Relaxed)).then_some((at, node))
}

/// The node at this address, if it is one that the thread has made.
fn made_by(area: *mut Area, node: u64) -> Option<Node> {
    // SAFETY: the area is the calling thread's own, and stays mapped.
    let first = unsafe { (*area).nodes.first };
    // SAFETY: a piece begins with its head.
    let next = |piece: &u64| Some(unsafe { (*(*piece as *const PieceHead)).next }).filter(|next| *next != 0);
    let mut pieces = core::iter::successors(Some(first).filter(|first| *first != 0), next);
    let is_made = node.is_multiple_of(size_of::<u64>() as u64) && pieces.any(|piece| piece == PieceHead::of(node));
    Node::at(node).filter(|_| is_made)
}

/// Whether a node is the thread's own, or, in a fork's child, one of which nothing is known.
fn is_own(node: Node, area: *mut Area) -> bool {
    // SAFETY: each piece of memory with nodes begins with its head; in a fork's child it is zeroes.
    let owner = unsafe { (*(PieceHead::of(address(node)) as *const PieceHead)).owner };
    owner == 0 || owner == area as u64
}

/// The node of the caller and the call site, where no mark is but the return address is known.
fn noted(call: Call<'_>) -> Option<(u64, u16)> {
    let [.., returns, shift, _, _] = &COPIES;
    let (table, shift) = (returns.load(Relaxed) as *const [u64; 2], shift.load(Relaxed));
    if table.is_null() {
        return None;
    }
    let (returns_to, from) = (call.returns_to(), KnownReturn::place(call.returns_to(), shift));
    // SAFETY: the recorder has written the table, which ends with a zero behind any place.
    let entries = (from..).map(|place| unsafe { table.add(place).read() }).take_while(|entry| entry[0] != 0);
    let known = KnownReturn::from_word({ entries }.find(|entry| entry[0] == returns_to)?[1]);
    let base = if known.is_above_rbp { call.saved.rbp() } else { call.rsp + size_of::<u64>() as u64 };
    let at = base.wrapping_add(size_of::<u64>() as u64 * u64::from(known.words));
    let activations = CALLEES.load(Relaxed) + ActivationTable::AT as u64;
    // SAFETY: within the table, which stays mapped.
    let word = unsafe { &*(activations as *const AtomicU64).add(ActivationTable::place(at)) }.load(Relaxed);
    let node = ActivationTable::node(word, at)?;
    // SAFETY: addresses in the table are of nodes, which stay mapped.
    let procedure = unsafe { (*(node as *const ContextNode)).procedure.load(Relaxed) };
    (procedure == known.procedure).then_some((node, known.site))
}

/// Who has called, by the mark behind the call.
struct Caller {
    node: Node,
    slot: &'static AtomicU64,
}

impl Caller {
    /// Of a procedure that has just been entered. `None`: it is not counted, or has no node of the calling thread's own.
    fn of(area: *mut Area, (call, entered): (Call<'_>, Entered)) -> Option<Caller> {
        let (node, site) = match mark_at(call.returns_to()) {
            // SAFETY: where a mark is, the copy that it stands in keeps a node's address there, which stays mapped.
            Some(mark) => (unsafe { (word_of(mark, call.rsp) as *const u64).read() }, mark.site),
            None => noted(call)?,
        };
        let node = Node::at(node).filter(|_| node != NOWHERE.load(Relaxed))?;
        if !is_own(node, area) {
            STACKS_MOVE.store(true, Relaxed);
            return None;
        }
        let slot = address(node) + ContextNode::slot_at(site.saturating_add(entered.is_handed.into())) as u64;
        // SAFETY: a node has a slot for each call site of its procedure.
        Some(Caller { node, slot: unsafe { &*(slot as *const AtomicU64) } })
    }

    fn callees(&self) -> List {
        List { first: self.slot, values: None }
    }

    /// Its context, if it is known.
    fn context(&self) -> Option<ArenaRef> {
        self.node.tree_node()
    }
}

/// Nodes of one call site, or of procedures whose callers are not counted.
struct List {
    first: &'static AtomicU64,
    /// Only those with these values are meant: there may be others.
    values: Option<u64>,
}

impl List {
    /// Of procedures whose callers are not counted, and whose contexts have these values.
    fn below_gap(area: *mut Area, values: u64) -> Option<List> {
        // SAFETY: the area is the calling thread's own, and stays mapped; a list is atomic.
        let lists = unsafe { &(*area).nodes.by_values };
        let mixed = ((values / size_of::<u64>() as u64) as u32).wrapping_mul(Slot::SPREAD);
        let number = mixed >> (u32::BITS - NodeMemory::LISTS.trailing_zeros());
        Some(List { first: lists.get(number as usize)?, values: Some(values) })
    }

    /// Counts an activation of a procedure where its node is in the list, whose address this is.
    fn count(&self, procedure: u32) -> Option<u64> {
        let first = Node::at(self.first.load(Relaxed));
        let mut nodes = core::iter::successors(first, |last| Node::at(last.next.load(Relaxed)));
        let node = nodes.find(|node| {
            node.procedure.load(Relaxed) == procedure
                && self.values.is_none_or(|values| node.values.load(Relaxed) == values)
        })?;
        self.remember(node);
        Some(node.count())
    }

    /// Lets copies find a node of a call site that is not the first one.
    fn remember(&self, node: &ContextNode) {
        let slot = core::ptr::from_ref(self.first) as u64;
        let place = CalleeTable::place(slot, node.procedure.load(Relaxed));
        // SAFETY: within the table, which stays mapped.
        unsafe { &*(CALLEES.load(Relaxed) as *const AtomicU64).add(place) }.store(address(node), Relaxed);
        let entry = node.entry.load(Relaxed);
        if entry == 0 {
            return;
        }
        let place = PointerTable::place(slot, entry);
        let pointers = CALLEES.load(Relaxed) + PointerTable::AT as u64;
        // SAFETY: as above.
        unsafe { &*(pointers as *const AtomicU64).add(place) }.store(address(node), Release);
    }

    /// Adds a node. No handler comes in between.
    fn add(&self, node: &ContextNode) {
        node.slot.store(core::ptr::from_ref(self.first) as u64, Relaxed);
        node.next.store(self.first.load(Relaxed), Relaxed);
        self.first.store(address(node), Release);
    }
}

/// A new node of the calling thread, all of it zeroes. `None`: there is no memory.
fn allocate(area: *mut Area, sites: u16) -> Option<&'static ContextNode> {
    // SAFETY: the area is the calling thread's own, and stays mapped; no handler comes in between.
    let nodes = unsafe { &mut (*area).nodes };
    let len_bytes = ContextNode::LEN_BYTES + usize::from(sites) * size_of::<u64>();
    if nodes.piece == 0 || nodes.used as usize + len_bytes > PieceHead::PIECE_BYTES {
        if size_of::<PieceHead>() + len_bytes > PieceHead::PIECE_BYTES {
            return None;
        }
        next_piece(nodes, area as u64)?;
    }
    let at = (nodes.piece + nodes.used) as *mut u8;
    nodes.used += len_bytes as u64;
    // SAFETY: within the piece, which is the thread's own; it may hold what a thread before it has left.
    unsafe {
        at.write_bytes(0, len_bytes);
        Some(&*at.cast::<ContextNode>())
    }
}

/// The number of the first of the counters of paths of a new context; 0: there are none, or no room. No handler comes in between.
fn counters(area: *mut Area, procedure: u32, context: ArenaRef) -> u64 {
    let [.., flows, counters] = &COPIES;
    let (words, counters) = (flows.load(Relaxed) as *mut u64, counters.load(Relaxed) as *const u32);
    if words.is_null() || counters.is_null() {
        return 0;
    }
    // SAFETY: the recorder has written the table, with a number for each procedure.
    let counters = FlowCounters::from_word(unsafe { counters.add(procedure as usize).read() });
    let len = counters.record_words() as u64;
    // SAFETY: the area is the calling thread's own, and stays mapped.
    let (nodes, record) = unsafe { (&mut (*area).nodes, (*area).record) };
    if counters.count == 0 || FlowRecord::FIRST_AT as u64 + len > FlowsHead::PIECE_WORDS as u64 {
        return 0;
    }
    if nodes.flows == 0 || nodes.flows_used + len > FlowsHead::PIECE_WORDS as u64 {
        // SAFETY: the head lies before the words.
        let head = unsafe { &*words.cast::<u8>().sub(FlowsHead::LEN_BYTES).cast::<FlowsHead>() };
        let Some(piece) = head.take_piece() else { return 0 };
        // SAFETY: the piece is there, and the calling thread's own.
        unsafe { (*words.add(piece as usize).cast::<AtomicU64>()).store(record, Relaxed) };
        (nodes.flows, nodes.flows_used) = (piece, FlowRecord::FIRST_AT as u64);
    }
    let at = nodes.flows + nodes.flows_used;
    nodes.flows_used += len;
    let [first, second] = FlowRecord { counters, procedure, context: context.0 }.to_words();
    // SAFETY: within the piece. The program may be killed in between: what has no first word is no record.
    unsafe {
        let at = words.add(at as usize).cast::<AtomicU64>();
        (*at.add(1)).store(second, Relaxed);
        (*at).store(first, Release);
    }
    at + counters.first_at() as u64
}

/// Goes on to the next piece of memory, a new one if need be.
fn next_piece(nodes: &mut NodeMemory, owner: u64) -> Option<()> {
    let next = match nodes.piece {
        0 => &mut nodes.first,
        // SAFETY: a piece begins with its head.
        piece => unsafe { &mut (*(piece as *mut PieceHead)).next },
    };
    if *next == 0 {
        let mapped = PIECES.fetch_add(1, Relaxed) * PieceHead::PIECE_BYTES as u64;
        if mapped >= NODES_AT_MOST {
            return None;
        }
        *next = map_aligned(PieceHead::PIECE_BYTES)? as u64;
        // SAFETY: it was just mapped.
        unsafe { (*next as *mut PieceHead).write(PieceHead { next: 0, owner }) };
    }
    (nodes.piece, nodes.used) = (*next, size_of::<PieceHead>() as u64);
    Some(())
}

/// Memory, a multiple of the length of a page, aligned to the length of a piece.
fn map_aligned(len_bytes: usize) -> Option<usize> {
    let around = len_bytes + PieceHead::PIECE_BYTES;
    let at = map_private(around)?;
    let aligned = at.next_multiple_of(PieceHead::PIECE_BYTES);
    unmap(at, aligned - at);
    unmap(aligned + len_bytes, at + around - (aligned + len_bytes));
    areas::wiped(aligned, len_bytes)
}

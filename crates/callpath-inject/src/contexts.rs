//! Exact calling contexts: what copies ask for that do not find the context which they are entered in
//! (`callpath_format::shared::activation`). From then on they find it by themselves.
//!
//! A fork's child finds all nodes empty: frames that it has from its parent lead to nodes of which nothing is known, and what they
//! call is found by walks, in the child's own tree.

use callpath_collect::probe::{context_at, context_below};
use callpath_format::shared::ArenaRef;
use callpath_format::shared::activation::{CallMark, ContextNode, Entered, NodeMemory};
use callpath_format::shared::gauge::Gauge;
use callpath_format::shared::probe::Area;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use crate::gauges::Values;
use crate::hit::{Saved, at_entry, dropped};
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

/// So much of the program's memory nodes may take, bytes.
const NODES_AT_MOST: u64 = 1 << 30;
static PIECES: AtomicU64 = AtomicU64::new(0);

/// Maps what all threads need. `false`: there is no memory.
pub fn begin() -> bool {
    let len_bytes = ContextNode::LEN_BYTES + ContextNode::MOST_SLOTS * size_of::<u64>();
    let nowhere = areas::map_wiped(len_bytes);
    NOWHERE.store(nowhere.unwrap_or(0) as u64, Relaxed);
    nowhere.is_some()
}

/// `callpath_descend`: counts the activation in its context, and leaves the context's node where the copy takes it from.
pub unsafe extern "C" fn descended(descent: &mut Descent) {
    let _undisturbed = Undisturbed::begin();
    descent.saved.second = descend(descent).unwrap_or(NOWHERE.load(Relaxed));
}

/// `None`: there is no memory for a node, or no context; that is counted as dropped.
fn descend(descent: &Descent) -> Option<u64> {
    let entered = Entered::from_word(descent.saved.second);
    let Some((process, thread, area)) = areas::own() else { return dropped() };
    let rsp = core::ptr::from_ref(&descent.entry) as u64 + 8 * (1 + u64::from(entered.words));
    // SAFETY: the procedure's return address, above what the copy has added to its frame.
    let returns_to = unsafe { (rsp as *const u64).read() };
    let caller = Caller::of(rsp, returns_to);
    if let Some(known) = caller.as_ref().and_then(|caller| caller.callee(entered.procedure)) {
        count(known.values.load(Relaxed));
        return Some(address(known));
    }
    join::await_chunks(process);
    let at_entry = &at_entry(&descent.saved, rsp, descent.entry);
    let context = match caller.as_ref().and_then(Caller::context) {
        Some(context) => context_below(process, thread, (context, returns_to), at_entry)?,
        None => context_at(process, thread, at_entry)?,
    };
    count(context.values);
    // SAFETY: the calling thread's own; no handler comes in between.
    let nodes = unsafe { &mut (*area).nodes };
    let list: &AtomicU64 = match &caller {
        Some(caller) => caller.slot,
        None => {
            let list = nodes.by_context.get(context.node.0 as usize % NodeMemory::LISTS)?;
            let is_it = |node: &&ContextNode| {
                node.context.load(Relaxed) == context.node.0 && node.procedure.load(Relaxed) == entered.procedure
            };
            if let Some(known) = listed(list).find(is_it) {
                return Some(address(known));
            }
            list
        }
    };
    let list = core::ptr::from_ref(list);
    let node = allocate(nodes, entered.sites)?;
    node.values.store(context.values, Relaxed);
    node.procedure.store(entered.procedure, Relaxed);
    node.context.store(context.node.0, Relaxed);
    // SAFETY: a slot of a node, or a list of the thread's area: both stay.
    let list = unsafe { &*list };
    node.next.store(list.load(Relaxed), Relaxed);
    list.store(address(node), Relaxed);
    Some(address(node))
}

fn count(values: u64) {
    // SAFETY: of a node of the tree, or 0.
    unsafe { Values::at(values) }.add(Gauge::CALLS_COLUMN, 1);
}

fn address(node: &ContextNode) -> u64 {
    core::ptr::from_ref(node) as u64
}

/// Who has called, by the mark behind the call.
struct Caller {
    node: &'static ContextNode,
    slot: &'static AtomicU64,
}

impl Caller {
    /// Of a procedure with this rsp at its entry. `None`: it is not counted, or has no node.
    fn of(rsp: u64, returns_to: u64) -> Option<Caller> {
        const LEAST_ADDRESS: u64 = 1 << 16;
        if returns_to < LEAST_ADDRESS {
            return None;
        }
        // SAFETY: code that is returned to; the copy has read it, too.
        let mark = CallMark::from_word(unsafe { (returns_to as *const u64).read_unaligned() })?;
        // SAFETY: where a mark is, the copy that it stands in keeps a node's address there, which stays mapped.
        let node = unsafe { ((rsp + 8 * (1 + u64::from(mark.words))) as *const u64).read() };
        if node == 0 || node == NOWHERE.load(Relaxed) {
            return None;
        }
        let slot = node + ContextNode::slot_at(mark.site) as u64;
        // SAFETY: a node has a slot for each call site of its procedure.
        Some(unsafe { Caller { node: &*(node as *const ContextNode), slot: &*(slot as *const AtomicU64) } })
    }

    /// Its context, if it is known.
    fn context(&self) -> Option<ArenaRef> {
        ArenaRef(self.node.context.load(Relaxed)).some()
    }

    fn callee(&self, procedure: u32) -> Option<&'static ContextNode> {
        listed(self.slot).find(|node| node.procedure.load(Relaxed) == procedure)
    }
}

/// The nodes of a list.
fn listed(list: &AtomicU64) -> impl Iterator<Item = &'static ContextNode> {
    // SAFETY: lists hold addresses of nodes, which stay mapped.
    let node = |at: u64| unsafe { (at as *const ContextNode).as_ref() };
    core::iter::successors(node(list.load(Relaxed)), move |last| node(last.next.load(Relaxed)))
}

/// A new node, all of it zeroes. `None`: there is no memory.
fn allocate(nodes: &mut NodeMemory, sites: u16) -> Option<&'static ContextNode> {
    let len_bytes = ContextNode::LEN_BYTES + usize::from(sites) * size_of::<u64>();
    if nodes.first == 0 || nodes.used as usize + len_bytes > NodeMemory::PIECE_LEN_BYTES {
        next_piece(nodes, len_bytes)?;
    }
    let at = (nodes.piece + nodes.used) as *mut u8;
    nodes.used += len_bytes as u64;
    // SAFETY: within the piece, which is the thread's own; it may hold what a thread before it has left.
    unsafe {
        at.write_bytes(0, len_bytes);
        Some(&*at.cast::<ContextNode>())
    }
}

/// Goes on to the next piece of memory, a new one if need be.
fn next_piece(nodes: &mut NodeMemory, len_bytes: usize) -> Option<()> {
    const BEGIN: u64 = size_of::<u64>() as u64;
    if BEGIN as usize + len_bytes > NodeMemory::PIECE_LEN_BYTES {
        return None;
    }
    // SAFETY: a piece begins with the address of the next one.
    let known = if nodes.piece == 0 { nodes.first } else { unsafe { (nodes.piece as *const u64).read() } };
    let next = match known {
        0 => {
            let mapped = PIECES.fetch_add(1, Relaxed) * NodeMemory::PIECE_LEN_BYTES as u64;
            if mapped >= NODES_AT_MOST {
                return None;
            }
            areas::map_wiped(NodeMemory::PIECE_LEN_BYTES)? as u64
        }
        known => known,
    };
    if nodes.first == 0 {
        nodes.first = next;
    } else if known == 0 {
        // SAFETY: as above.
        unsafe { (nodes.piece as *mut u64).write(next) };
    }
    (nodes.piece, nodes.used) = (next, BEGIN);
    Some(())
}

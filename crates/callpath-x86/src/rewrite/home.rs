//! The original body of a procedure that runs as a copy: what stays, where springboards go, and what is free.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use callpath_format::address::LinkAddr;

use super::Rewritten;
use super::body::{Body, Step};
use super::calls;
use super::copy::Copy;
use super::entrances::Entrances;
use super::frame::{Frame, Height};
use super::padding::{Room, rooms};
use super::patch::{DirectBranch, Patch};
use super::plan::{Place, Plan};
use super::refusal::{Reason, Refusal};
use crate::encoding;
use crate::graph::ModuleFlow;
use crate::instruction::motion::Motion;
use crate::instruction::{Control, Operation};

/// The length of a jump that reaches 2 GB, bytes.
const JUMP_BYTES: u64 = encoding::JUMP_BYTES as u64;
/// The length of one that reaches 127 bytes.
const SHORT_JUMP_BYTES: u64 = encoding::SHORT_JUMP_BYTES as u64;

/// What is decided about the original body.
#[derive(Clone, Default)]
pub(super) struct Layout {
    /// The body's bytes and padding, by address: disjoint.
    rooms: Vec<Room>,
    /// Calls that the copy makes with the return address at home: they need not stay.
    from_copy: BTreeSet<u64>,
    /// Calls that the copy makes like the original does.
    in_copy: BTreeSet<u64>,
    /// Calls without which there would be room.
    in_the_way: BTreeSet<u64>,
    /// Instructions that stay, by address, with their ends.
    kept: BTreeMap<u64, u64>,
    /// Springboards by address, with their lengths.
    springboards: BTreeMap<u64, u64>,
    /// Springboards behind an `endbr64` lead to the copy of that.
    behind_endbr64: BTreeMap<u64, u64>,
    /// Springboards of two bytes: where the five bytes lie that they lead to.
    detours: BTreeMap<u64, u64>,
    /// Springboards of two bytes that have no five bytes to lead to yet.
    short: Vec<u64>,
    /// Instructions that cannot run at home: something is inserted before them.
    must_leave: BTreeSet<u64>,
    /// Where a springboard leads to what is inserted on one way there: no other may pass it.
    arrivals: BTreeSet<u64>,
    /// By how many bytes the copy's frame is larger.
    enlarged_by: u32,
    /// A register of the copy holds a word of the activation.
    has_register: bool,
    at_home: u32,
}

impl Layout {
    pub(super) fn new(
        (flow, entrances): (&ModuleFlow<'_>, &Entrances),
        body: &Body<'_, '_>,
        plan: &Plan,
        frame: &Frame,
    ) -> Result<Layout, Refusal> {
        let (must_leave, arrivals) = (must_leave(body, plan), arrivals(body, plan));
        for &at in &arrivals.after_calls {
            // Which way control came, home cannot tell.
            if !entrances.sure_within(at, at + 1).is_empty() {
                return Err(Refusal { at: LinkAddr(at), reason: Reason::SharedEdge });
            }
        }
        let rooms = rooms(flow, entrances, body);
        let is_in_copy = |step: &&Step<'_>| plan.is_in_copy(LinkAddr(step.at)) && calls::can_be_copied(step);
        let in_copy = body.in_order().filter(is_in_copy).map(|step| step.at).collect();
        let empty = Layout {
            rooms,
            in_copy,
            must_leave,
            arrivals: arrivals.all,
            enlarged_by: plan.enlarged_by(),
            has_register: plan.register().is_some(),
            ..Layout::default()
        };
        let mut from_copy = BTreeSet::new();
        loop {
            let mut layout = Layout { from_copy, ..empty.clone() };
            let wanted = layout.keep(body, entrances, frame)?;
            layout.place(body, wanted, plan.bias().is_some())?;
            from_copy = layout.from_copy.union(&layout.in_the_way).copied().collect();
            if layout.in_the_way.is_empty() {
                layout.check_enlarged(body)?;
                return Ok(layout);
            }
        }
    }

    /// A procedure with a larger frame has nothing at home but springboards.
    fn check_enlarged(&self, body: &Body<'_, '_>) -> Result<(), Refusal> {
        let is_mark =
            |at: u64| body.step_at(at).is_some_and(|step| step.instruction.operation() == Operation::EndBranch);
        let stays = self.kept.keys().find(|&&at| self.enlarged_by > 0 && !is_mark(at));
        let stays = stays.or(self.from_copy.first().filter(|_| self.enlarged_by > 0));
        stays.map_or(Ok(()), |&at| Err(Refusal { at: LinkAddr(at), reason: Reason::RunsAtHome }))
    }

    /// Notes what stays. Returns what is entered.
    fn keep(&mut self, body: &Body<'_, '_>, entrances: &Entrances, frame: &Frame) -> Result<BTreeSet<u64>, Refusal> {
        let mut wanted = BTreeSet::from([body.entry().0]);
        for step in body.in_order().filter(|step| step.motion == Motion::Call) {
            if self.is_at_home(step.at) {
                self.kept.insert(step.at, step.end());
            }
            // Into a larger frame nothing comes back but what was called from the copy.
            if body.comes_back(step) && self.enlarged_by == 0 {
                wanted.insert(step.end());
            }
        }
        // Bytes of blocks that are not instructions.
        for unread in body.unread() {
            self.kept.insert(unread.start, unread.end);
        }
        for range in body.ranges() {
            wanted.extend(entrances.sure_within(range.start, range.end));
            let likely = entrances.likely_within(range.start, range.end).iter();
            wanted.extend(likely.filter(|&&at| body.step_at(at).is_some()));
        }
        if self.enlarged_by > 0 || self.has_register {
            // Who comes from elsewhere has a frame of the old size, or anything in the register.
            let own: BTreeSet<u64> = body.through_home().map(|to| to.0).collect();
            // Nobody comes home behind calls that the copy makes, which do not return either.
            let blocks = &body.graph.blocks;
            let dead = body.behind_dead_calls().filter_map(|(root, _)| Some(blocks.get(root as usize)?.code.start.0));
            let dead = dead.filter(|&at| entrances.likely_within(at, at + 1).is_empty());
            dead.for_each(|at| _ = wanted.remove(&at));
            // Where the procedure has a frame of its own, only itself may lead; and all its jumps are known. So a word that seems to is none.
            let is_number = |at: u64| {
                let is_inside = frame.before(LinkAddr(at)).is_some_and(|height| height != Height::AT_ENTRY);
                is_inside && !own.contains(&at) && entrances.is_by_chance(at)
            };
            wanted.retain(|&at| !is_number(at));
            let is_other = |&&at: &&u64| at != body.entry().0 && !own.contains(&at);
            if let Some(&at) = wanted.iter().find(is_other) {
                return Err(Refusal { at: LinkAddr(at), reason: Reason::EnteredInside });
            }
        }
        Ok(wanted)
    }

    /// Finds a place for the springboard of each address that is entered. Where there is none because of a call that
    /// the copy may make itself, notes that call.
    fn place(&mut self, body: &Body<'_, '_>, mut wanted: BTreeSet<u64>, may_call: bool) -> Result<(), Refusal> {
        loop {
            while let Some(at) = wanted.pop_first() {
                let placed = self.place_one(body, at, &mut wanted);
                placed.or_else(|refusal| self.blame_call(body, refusal, may_call))?;
            }
            for at in std::mem::take(&mut self.short) {
                match self.free_near(at + SHORT_JUMP_BYTES) {
                    Some(detour) => {
                        self.springboards.insert(detour, JUMP_BYTES);
                        self.detours.insert(at, detour);
                    }
                    None => {
                        self.springboards.remove(&at);
                        let placed = self.run_at_home(body, at, &mut wanted);
                        placed.or_else(|refusal| self.blame_call(body, refusal, may_call))?;
                    }
                }
            }
            if wanted.is_empty() {
                return Ok(());
            }
        }
    }

    /// Notes the call that takes the room at a place that is refused.
    fn blame_call(&mut self, body: &Body<'_, '_>, refusal: Refusal, may_call: bool) -> Result<(), Refusal> {
        let Refusal { at: LinkAddr(at), reason } = refusal;
        let limit = self.limit(at);
        let call = body.step_at(limit).filter(|call| limit - at < JUMP_BYTES && calls::can_be_made(call));
        let is_new = self.kept.contains_key(&limit) && !self.from_copy.contains(&limit);
        if reason != Reason::NoRoom || !may_call || !is_new || call.is_none() {
            return Err(refusal);
        }
        self.in_the_way.insert(limit);
        Ok(())
    }

    fn place_one(&mut self, body: &Body<'_, '_>, at: u64, wanted: &mut BTreeSet<u64>) -> Result<(), Refusal> {
        let Some(step) = body.step_at(at) else {
            // An address of data among the code, or behind a call that does not return: it stays as it is.
            let is_inside = body.is_inside_step(at);
            return if is_inside { Err(Refusal { at: LinkAddr(at), reason: Reason::EnteredInside }) } else { Ok(()) };
        };
        if self.kept.contains_key(&at) && step.motion == Motion::Call && self.must_leave.contains(&at) {
            // It would be made at home without what is inserted before it.
            return Err(Refusal { at: LinkAddr(at), reason: Reason::NoRoom });
        }
        if self.kept.contains_key(&at) || self.springboards.contains_key(&at) {
            return Ok(());
        }
        if self.taken_at(at).is_some() {
            return Err(Refusal { at: LinkAddr(at), reason: Reason::NoRoom });
        }
        if step.instruction.operation() == Operation::EndBranch {
            // What an indirect call or jump has to arrive at.
            self.kept.insert(at, step.end());
            self.behind_endbr64.insert(step.end(), at);
            if self.must_leave.contains(&at) {
                self.must_leave.insert(step.end());
                if wanted.contains(&step.end()) {
                    return Err(Refusal { at: LinkAddr(at), reason: Reason::SharedEdge });
                }
                // Nor may what stays at home lead there: it would pass what is inserted at the entry.
                self.arrivals.insert(step.end());
            }
            wanted.insert(step.end());
            return Ok(());
        }
        let room = self.limit(at).min(wanted.first().copied().unwrap_or(u64::MAX)) - at;
        if room >= JUMP_BYTES {
            self.springboards.insert(at, JUMP_BYTES);
        } else if room >= SHORT_JUMP_BYTES && !self.is_straight_to_call(body, at) {
            self.springboards.insert(at, SHORT_JUMP_BYTES);
            self.short.push(at);
        } else {
            self.run_at_home(body, at, wanted)?;
        }
        Ok(())
    }

    /// Leaves an instruction where it is. Where it leads to is entered from home, too.
    fn run_at_home(&mut self, body: &Body<'_, '_>, at: u64, wanted: &mut BTreeSet<u64>) -> Result<(), Refusal> {
        let no_room = Refusal { at: LinkAddr(at), reason: Reason::NoRoom };
        let step = body.step_at(at).ok_or(no_room)?;
        if step.end() > self.limit(at) || self.must_leave.contains(&at) {
            return Err(no_room);
        }
        let next = [step.jump_target(), step.continues().then_some(step.end())];
        if next.into_iter().flatten().any(|next| self.arrivals.contains(&next)) {
            return Err(no_room);
        }
        self.kept.insert(at, step.end());
        self.at_home += 1;
        if step.continues() {
            wanted.insert(step.end());
        }
        wanted.extend(step.jump_target().filter(|&target| body.step_at(target).is_some()));
        Ok(())
    }

    /// The first byte behind `at` that is not free.
    fn limit(&self, at: u64) -> u64 {
        let room = self.rooms.partition_point(|room| room.all.start <= at).checked_sub(1);
        let end = room.and_then(|index| self.rooms.get(index)).map_or(at, |room| room.all.end.max(at));
        let kept = self.kept.range(at..).next().map_or(u64::MAX, |(&kept, _)| kept);
        let springboard = self.springboards.range(at..).next().map_or(u64::MAX, |(&at, _)| at);
        end.min(kept).min(springboard)
    }

    /// Five free bytes that a short jump, which ends at `from`, reaches.
    fn free_near(&self, from: u64) -> Option<u64> {
        let reach = from.saturating_sub(128)..from + 128;
        let first = self.rooms.partition_point(|room| room.all.end <= reach.start);
        let rooms = self.rooms.get(first..)?.iter().map(|room| &room.all);
        for range in rooms.take_while(|range| range.start < reach.end) {
            let mut at = range.start.max(reach.start);
            while at < range.end.min(reach.end) {
                if let Some(end) = self.taken_at(at) {
                    at = end;
                    continue;
                }
                let limit = self.limit(at);
                if limit - at >= JUMP_BYTES {
                    return Some(at);
                }
                at = limit.max(at + 1);
            }
        }
        None
    }

    /// If a byte is taken: the end of what takes it.
    fn taken_at(&self, at: u64) -> Option<u64> {
        let kept = self.kept.range(..=at).next_back().map(|(_, &end)| end);
        let springboard = self.springboards.range(..=at).next_back().map(|(&start, &len)| start + len);
        kept.into_iter().chain(springboard).filter(|&end| end > at).max()
    }

    /// Whether only instructions that do not jump lie between an address and a call at home, and none of them has to
    /// leave.
    fn is_straight_to_call(&self, body: &Body<'_, '_>, mut address: u64) -> bool {
        while let Some(step) = body.step_at(address) {
            if self.must_leave.contains(&address) {
                return false;
            }
            match step.motion {
                Motion::Call => return self.is_at_home(address),
                Motion::Verbatim | Motion::BesideCode(_) if step.instruction.control() == Control::Next => {
                    address = step.end();
                }
                _ => return false,
            }
        }
        false
    }

    /// Whether a call is made at home.
    fn is_at_home(&self, call: u64) -> bool {
        !self.from_copy.contains(&call) && !self.in_copy.contains(&call)
    }

    /// The calls that the copy makes with the return address at home.
    pub(super) fn calls_from_copy(&self) -> &BTreeSet<u64> {
        &self.from_copy
    }

    /// The calls that the copy makes like the original does.
    pub(super) fn calls_in_copy(&self) -> &BTreeSet<u64> {
        &self.in_copy
    }

    /// What is to be written at home.
    pub(super) fn finish(self, body: &Body<'_, '_>, copy: Copy) -> Result<Rewritten, Refusal> {
        let mut patches = Vec::new();
        let mut detours = Vec::new();
        let origins: BTreeMap<u64, u64> = self.detours.iter().map(|(&at, &detour)| (detour, at)).collect();
        for (&at, &len) in &self.springboards {
            let new = match self.detours.get(&at) {
                Some(&detour) => encoding::short_jump(at, detour).to_vec(),
                None => {
                    let origin = origins.get(&at).copied().unwrap_or(at);
                    if origin != at {
                        detours.push((LinkAddr(at), LinkAddr(origin)));
                    }
                    let leads_to = self.behind_endbr64.get(&origin).copied().unwrap_or(origin);
                    let to = copy.of(leads_to).ok_or(Refusal { at: LinkAddr(leads_to), reason: Reason::NoCode })?;
                    let jump = encoding::jump(at, to);
                    jump.ok_or(Refusal { at: LinkAddr(at), reason: Reason::TooFar })?.to_vec()
                }
            };
            let old = body.bytes(at, len).ok_or(Refusal { at: LinkAddr(at), reason: Reason::NoCode })?.to_vec();
            patches.push(Patch { at: LinkAddr(at), old, new });
        }
        let (unused, entry, at_home) = (self.unused(), body.entry(), self.at_home);
        let from_copy = self.from_copy.iter().copied().map(LinkAddr).collect();
        let is_direct = |step: &&Step<'_>| {
            let is_direct = step.motion == Motion::Call && step.instruction.control() == Control::Call;
            is_direct && self.kept.contains_key(&step.at)
        };
        let calls = body.in_order().filter(is_direct);
        let direct = |call: &Step<'_>| {
            let (end, target) = (LinkAddr(call.end()), LinkAddr(call.target()));
            DirectBranch { end, target, is_call: true, hands_node: false }
        };
        let direct_calls = calls.map(direct).collect();
        let entered_at = copy.of(entry.0).map_or(entry, LinkAddr);
        let table_reads = ascending(copy.table_reads.iter().map(|read| read.at));
        let through_slots = ascending(copy.through_slots.iter().copied());
        let word_calls = copy.word_calls.iter().map(|(end, word)| {
            let (end, target) = (LinkAddr(copy.at.0.wrapping_add((*end).into())), LinkAddr(*word));
            DirectBranch { end, target, is_call: true, hands_node: false }
        });
        let word_calls = word_calls.collect();
        let Copy { at, code, origins, lowered, enlarged, rax, out_of_order, words_at, .. } = copy;
        let at_offset = |offset: u32| LinkAddr(copy.at.0.wrapping_add(offset.into()));
        let [entered_with_node, entered_by_linkage] =
            [0, 1].map(|way| copy.entered_with_node.map(|offsets| at_offset(offsets[way])));
        let Copy { returns, unmarked, direct_jumps, .. } = copy;
        Ok(Rewritten {
            is_timed: false,
            entry,
            at,
            code,
            patches,
            unused,
            origins,
            lowered,
            enlarged,
            enlarged_at_home: self.enlarged_by,
            rax,
            out_of_order,
            words_at,
            returns,
            unmarked,
            table_reads,
            through_slots,
            detours,
            entered_at,
            entered_with_node,
            entered_by_linkage,
            direct_calls,
            direct_jumps,
            word_calls,
            at_home,
            from_copy,
        })
    }

    /// Code that nothing executes any more; padding is not among it.
    fn unused(&self) -> Vec<Range<LinkAddr>> {
        let mut unused = Vec::new();
        for Room { code, .. } in &self.rooms {
            let (mut at, end) = (code.start, code.end);
            while at < end {
                match self.taken_at(at) {
                    Some(taken) => at = taken,
                    None => {
                        let limit = self.limit(at).min(end);
                        unused.push(LinkAddr(at)..LinkAddr(limit));
                        at = limit;
                    }
                }
            }
        }
        unused
    }
}

/// The instructions that must not run at home: something is inserted before or behind them.
fn must_leave(body: &Body<'_, '_>, plan: &Plan) -> BTreeSet<u64> {
    let mut found = BTreeSet::new();
    for place in plan.places() {
        found.insert(match place {
            Place::Entry => body.entry().0,
            Place::Before(at) => at.0,
            Place::Edge(_, to) => to.0,
            Place::AfterCall(call) => body.step_at(call.0).map_or(call.0, Step::end),
            Place::Arrival(to) => to.0,
        });
        // A call may be made at home: its edge passes it.
        if let Place::Edge(from, _) = place {
            let last = body.block_steps(from).last().filter(|last| last.motion != Motion::Call);
            found.extend(last.map(|last| last.at));
        }
    }
    found
}

/// Where springboards lead to what is inserted on one way to an address.
struct Arrivals {
    all: BTreeSet<u64>,
    /// Those behind calls.
    after_calls: Vec<u64>,
}

fn arrivals(body: &Body<'_, '_>, plan: &Plan) -> Arrivals {
    let after_call = |place| match place {
        Place::AfterCall(call) => body.step_at(call.0).map(Step::end),
        _ => None,
    };
    let after_calls: Vec<u64> = plan.places().filter_map(after_call).collect();
    let other = plan.places().filter_map(|place| match place {
        Place::Entry => Some(body.entry().0),
        Place::Edge(_, to) | Place::Arrival(to) => Some(to.0),
        Place::Before(_) | Place::AfterCall(_) => None,
    });
    Arrivals { all: other.chain(after_calls.iter().copied()).collect(), after_calls }
}

/// Each address once.
fn ascending(addresses: impl Iterator<Item = u64>) -> Vec<LinkAddr> {
    let once: BTreeSet<LinkAddr> = addresses.map(LinkAddr).collect();
    once.into_iter().collect()
}

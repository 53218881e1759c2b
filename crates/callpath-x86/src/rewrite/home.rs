//! The original body of a procedure that runs as a copy: what stays, where springboards go, and what is free.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use callpath_format::address::LinkAddr;

use super::body::{Body, Step};
use super::copy::Copy;
use super::entrances::Entrances;
use super::plan::{Place, Plan};
use super::refusal::{Reason, Refusal};
use super::{DirectBranch, Patch, Rewritten};
use crate::encoding;
use crate::graph::ModuleFlow;
use crate::instruction::motion::Motion;
use crate::instruction::{Control, Operation};

/// The length of a jump that reaches 2 GB, bytes.
const JUMP_BYTES: u64 = encoding::JUMP_BYTES as u64;
/// The length of one that reaches 127 bytes.
const SHORT_JUMP_BYTES: u64 = encoding::SHORT_JUMP_BYTES as u64;

/// What is decided about the original body.
#[derive(Default)]
pub(super) struct Layout {
    /// The body's bytes, and padding between and behind, by address: disjoint.
    ranges: Vec<Range<u64>>,
    /// Of those, how many bytes of padding each has at its end.
    padding: Vec<u64>,
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
    at_home: u32,
}

impl Layout {
    pub(super) fn new(
        flow: &ModuleFlow<'_>,
        entrances: &Entrances,
        body: &Body<'_, '_>,
        plan: &Plan,
    ) -> Result<Layout, Refusal> {
        let (ranges, padding) = with_padding(flow, entrances, body);
        let (must_leave, arrivals) = (must_leave(body, plan), arrivals(body, plan));
        for &at in &arrivals.after_calls {
            // Which way control came, home cannot tell.
            if !entrances.sure_within(at, at + 1).is_empty() {
                return Err(Refusal { at: LinkAddr(at), reason: Reason::SharedEdge });
            }
        }
        let mut layout = Layout { ranges, padding, must_leave, arrivals: arrivals.all, ..Layout::default() };
        let mut wanted = BTreeSet::from([body.entry().0]);
        for step in body.in_order().filter(|step| step.motion == Motion::Call) {
            layout.kept.insert(step.at, step.end());
            if body.comes_back(step) {
                wanted.insert(step.end());
            }
        }
        // Bytes of blocks that are not instructions.
        for unread in body.unread() {
            layout.kept.insert(unread.start, unread.end);
        }
        for range in body.ranges() {
            wanted.extend(entrances.sure_within(range.start, range.end));
            let likely = entrances.likely_within(range.start, range.end).iter();
            wanted.extend(likely.filter(|&&at| body.step_at(at).is_some()));
        }
        layout.place(body, wanted)?;
        Ok(layout)
    }

    /// Finds a place for the springboard of each address that is entered.
    fn place(&mut self, body: &Body<'_, '_>, mut wanted: BTreeSet<u64>) -> Result<(), Refusal> {
        loop {
            while let Some(at) = wanted.pop_first() {
                self.place_one(body, at, &mut wanted)?;
            }
            for at in std::mem::take(&mut self.short) {
                match self.free_near(at + SHORT_JUMP_BYTES) {
                    Some(detour) => {
                        self.springboards.insert(detour, JUMP_BYTES);
                        self.detours.insert(at, detour);
                    }
                    None => {
                        self.springboards.remove(&at);
                        self.run_at_home(body, at, &mut wanted)?;
                    }
                }
            }
            if wanted.is_empty() {
                return Ok(());
            }
        }
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
            }
            wanted.insert(step.end());
            return Ok(());
        }
        let room = self.limit(at).min(wanted.first().copied().unwrap_or(u64::MAX)) - at;
        if room >= JUMP_BYTES {
            self.springboards.insert(at, JUMP_BYTES);
        } else if room >= SHORT_JUMP_BYTES && !body.is_straight_to_call(at, &self.must_leave) {
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
        let range = self.ranges.partition_point(|range| range.start <= at).checked_sub(1);
        let end = range.and_then(|index| self.ranges.get(index)).map_or(at, |range| range.end.max(at));
        let kept = self.kept.range(at..).next().map_or(u64::MAX, |(&kept, _)| kept);
        let springboard = self.springboards.range(at..).next().map_or(u64::MAX, |(&at, _)| at);
        end.min(kept).min(springboard)
    }

    /// Five free bytes that a short jump, which ends at `from`, reaches.
    fn free_near(&self, from: u64) -> Option<u64> {
        let reach = from.saturating_sub(128)..from + 128;
        let first = self.ranges.partition_point(|range| range.end <= reach.start);
        for range in self.ranges.get(first..)?.iter().take_while(|range| range.start < reach.end) {
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
        let direct = |step: &&Step<'_>| step.motion == Motion::Call && step.instruction.control() == Control::Call;
        let calls = body.in_order().filter(direct);
        let direct_calls =
            calls.map(|call| DirectBranch { end: LinkAddr(call.end()), target: LinkAddr(call.target()) }).collect();
        let entered_at = copy.of(entry.0).map_or(entry, LinkAddr);
        let Copy { at, code, origins, lowered, direct_jumps, .. } = copy;
        Ok(Rewritten {
            entry,
            at,
            code,
            patches,
            unused,
            origins,
            lowered,
            detours,
            entered_at,
            direct_calls,
            direct_jumps,
            at_home,
        })
    }

    /// Code that nothing executes any more; padding is not among it.
    fn unused(&self) -> Vec<Range<LinkAddr>> {
        let mut unused = Vec::new();
        for (range, padding) in self.ranges.iter().zip(&self.padding) {
            let (mut at, end) = (range.start, range.end - padding);
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
        });
        // Calls are always made at home: their edges pass it.
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
        Place::Edge(_, to) => Some(to.0),
        Place::Before(_) | Place::AfterCall(_) => None,
    });
    Arrivals { all: other.chain(after_calls.iter().copied()).collect(), after_calls }
}

/// The body's bytes, each range with the padding behind it, and the lengths of that padding.
fn with_padding(flow: &ModuleFlow<'_>, entrances: &Entrances, body: &Body<'_, '_>) -> (Vec<Range<u64>>, Vec<u64>) {
    /// More is of no use: the padding between procedures is shorter.
    const MOST: u64 = 15;
    let mut ranges = body.ranges();
    let mut padding = vec![0; ranges.len()];
    for index in 0..ranges.len() {
        let end = ranges[index].end;
        // Else control may arrive there in a way that the graph does not know.
        let is_left = body.step_before(end).is_some_and(|last| last.end() == end && last.never_continues());
        let Some(from) = flow.code.code_map.position(end).filter(|_| is_left) else { continue };
        let next = ranges.get(index + 1).map_or(u64::MAX, |next| next.start);
        let entered = [entrances.sure_within(end, end + MOST), entrances.likely_within(end, end + MOST)];
        let entrance = entered.into_iter().flatten().copied().min().unwrap_or(u64::MAX);
        let fragment = flow.fragment_from(LinkAddr(end)).map_or(u64::MAX, |start| start.0);
        let most = (end + MOST).min(next).min(entrance).min(fragment) - end;
        let to = (from + most as u32).min(flow.code.code_map.part(from).map_or(from, |part| part.end()));
        padding[index] = u64::from(flow.code.padding_end(from, to) - from);
        ranges[index].end += padding[index];
    }
    (ranges, padding)
}

//! Activation record resizing: which procedures' frames to pad, and by how much, so that more call paths have an identifier of their own
//! (Mytkowicz, Coughlin and Diwan 2009, section 5.1).
//!
//! A procedure's padding lies below its return address: its own CFA stays, and all that it calls is higher by it. So the heights under any
//! paddings follow from the map:
//!
//! ```text
//! height'(node) = height(node) + sum of the paddings of the procedures above it
//! ```
//!
//! Which paddings tell most apart is searched in `anneal`, with clones in `with_clones`.

use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;

use crate::anneal::Annealing;
use crate::clones::{Clones, Cloning};
use crate::frames::{Frames, recursive};
use crate::map::PathMap;
use crate::with_clones::{HOT, WithClones};

/// What a search may cost.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// How long it may take.
    pub time: Duration,
    /// By how much the highest stack of the map may grow, as a factor.
    pub growth: f64,
    /// By how much it may where that is too little, with clones: as long as more than [`Budget::ENOUGH`] of the paths share an identifier.
    pub most_growth: f64,
    /// The largest padding, bytes.
    pub most_bytes: u32,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget { time: Duration::from_secs(120), growth: 1.1, most_growth: 1.4, most_bytes: 512 }
    }
}

impl Budget {
    /// The share of paths with an identifier of their own for which no stack needs to grow more.
    pub const ENOUGH: f64 = 0.9;

    /// How high a stack may be, where the highest without paddings is this high.
    pub(crate) fn most_high(&self, highest: i64) -> i64 {
        (highest as f64 * self.growth) as i64
    }
}

/// Paddings and clones of procedures.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Paddings {
    /// Index of the procedure in the map, and bytes: a multiple of [`Paddings::UNIT_BYTES`]; ascending.
    pub of_procedures: Vec<(u32, u32)>,
    /// Clones, with the sizes of their frames.
    pub clones: Clones,
}

impl Paddings {
    /// The stack stays aligned.
    pub const UNIT_BYTES: u32 = 16;

    /// Of so many bytes by procedure, and clones.
    pub(crate) fn of(bytes: &[u32], clones: Clones) -> Paddings {
        let of_procedures = (0u32..).zip(bytes.iter().copied()).filter(|(_, bytes)| *bytes > 0).collect();
        Paddings { of_procedures, clones }
    }

    pub(crate) fn by_procedure(&self, count: usize) -> Vec<u32> {
        let mut bytes = vec![0; count];
        for &(procedure, padding) in &self.of_procedures {
            if let Some(bytes) = bytes.get_mut(procedure as usize) {
                *bytes = padding;
            }
        }
        bytes
    }
}

/// What a search has found.
#[derive(Clone, PartialEq, Debug)]
pub struct Resized {
    /// The paddings.
    pub paddings: Paddings,
    /// How high the highest stack of the map is, before and with the paddings, bytes.
    pub highest: (i64, i64),
    /// Of the paddings, those of procedures that were met below themselves: each further level of their recursion takes as many bytes more than
    /// without, whatever `highest` says.
    pub of_recursive: Vec<(u32, u32)>,
    /// Whether the time was up before the search was over.
    pub is_cut: bool,
}

impl PathMap {
    /// The map of the program whose frames are padded, with the clones.
    #[must_use]
    pub fn resized(&self, paddings: &Paddings) -> PathMap {
        let bytes = paddings.by_procedure(self.procedures.len());
        let mut map = self.padded(&bytes);
        for call in &mut map.calls {
            let padding = bytes.get(call.caller as usize).copied().unwrap_or(0);
            call.height = call.height.saturating_add(padding.into());
        }
        map.calls.sort_unstable();
        for call in &mut map.code.pointer_calls {
            let padding = bytes.get(call.caller as usize).copied().unwrap_or(0);
            call.height = call.height.saturating_add(padding.into());
        }
        map.code.pointer_calls.sort_unstable();
        map.clone_procedures(&paddings.clones, &bytes);
        map.finish();
        map
    }

    /// The map with the heights of frames that are larger by so much. Nothing else of it is changed.
    fn padded(&self, bytes: &[u32]) -> PathMap {
        let shifts = shifts(self, &Frames::of_procedures(self), bytes);
        let mut map = self.clone();
        for (node, height, _) in &mut map.heights {
            let shift = shifts.get(*node as usize).copied().unwrap_or(0);
            *height = height.saturating_add(shift);
        }
        map
    }

    /// The same padding for all procedures that may be padded, and clones, if there may be any, in which paths end.
    pub fn pad_all(&self, may_pad: impl Fn(u32) -> bool, bytes: u32, cloning: Option<Cloning<'_>>) -> Resized {
        let of = |procedure| if may_pad(procedure) { bytes } else { 0 };
        let all: Vec<u32> = (0..self.procedures.len() as u32).map(of).collect();
        match cloning {
            None => self.found(Paddings::of(&all, Clones::default()), (&Frames::of_procedures(self), &all), false),
            Some(cloning) => WithClones::of_places(self, all, cloning),
        }
    }

    /// Searches for paddings and, if there may be any, for clones. `may_pad`: by procedure, whether its frame can be padded.
    pub fn resize(&self, may_pad: impl Fn(u32) -> bool, budget: Budget, cloning: Option<Cloning<'_>>) -> Resized {
        let began = Instant::now();
        let frames = Frames::of_procedures(self);
        let Some(cloning) = cloning else {
            let (bytes, is_cut) = Annealing::new((self, &frames), &may_pad, budget).search(began, HOT);
            return self.found(Paddings::of(&bytes, Clones::default()), (&frames, &bytes), is_cut);
        };
        WithClones::search(self, (may_pad, cloning), budget)
    }

    /// What a search has found: `bytes` by frame.
    pub(crate) fn found(&self, paddings: Paddings, (frames, bytes): (&Frames, &[u32]), is_cut: bool) -> Resized {
        let highest = (highest(self, frames, &[]), highest(self, frames, bytes));
        let is_recursive = recursive(self, &Frames::of_procedures(self));
        let is_one = |(procedure, _): &&(u32, u32)| is_recursive.get(*procedure as usize).is_some_and(|is_one| *is_one);
        let mut largest: FxHashMap<u32, u32> = paddings.of_procedures.iter().copied().collect();
        for clone in &paddings.clones.procedures {
            let Some(procedure) = clone.procedure.filter(|_| clone.bytes > 0) else { continue };
            let bytes = largest.entry(procedure).or_default();
            *bytes = clone.bytes.max(*bytes);
        }
        let mut of_recursive: Vec<(u32, u32)> = largest.iter().map(|(procedure, bytes)| (*procedure, *bytes)).collect();
        of_recursive.retain(|one| is_one(&one));
        of_recursive.sort_unstable();
        Resized { paddings, highest, of_recursive, is_cut }
    }

    /// How many paths could have an identifier of their own at most, whatever the paddings (or wrapped calls, section 5.2): heights change
    /// by multiples of [`Paddings::UNIT_BYTES`], up to the highest that a stack may have, and two paths to a procedure need two of them.
    pub fn most_precise(&self, budget: Budget) -> u64 {
        let unit = i64::from(Paddings::UNIT_BYTES);
        let most = budget.most_high(highest(self, &Frames::of_procedures(self), &[]));
        // By stack, procedure and remainder: the lowest and the highest height, and how many paths have one.
        let mut crowds: FxHashMap<(u32, u32, i64), (i64, i64, u64)> = FxHashMap::default();
        for &(node, height, _) in &self.heights {
            let Some(of) = self.nodes.get(node as usize) else { continue };
            let of_none = (height, height, 0);
            let crowd = crowds.entry((of.root, of.procedure, height.rem_euclid(unit))).or_insert(of_none);
            *crowd = (crowd.0.min(height), crowd.1.max(height), crowd.2 + 1);
        }
        let alone = |&(low, high, paths): &(i64, i64, u64)| {
            let heights = most.max(high).abs_diff(low) / u64::from(Paddings::UNIT_BYTES) + 1;
            // If there are more paths than heights, some share one.
            if paths <= heights { paths } else { heights - 1 }
        };
        crowds.values().map(alone).sum()
    }
}

/// By node, the sum of the paddings above it.
fn shifts(map: &PathMap, frames: &Frames, bytes: &[u32]) -> Vec<i64> {
    let mut shifts: Vec<i64> = Vec::with_capacity(map.nodes.len());
    for node in &map.nodes {
        let above = node.parent.and_then(|parent| {
            let frame = *frames.of_nodes.get(parent as usize)?;
            let padding = bytes.get(frame as usize).copied().unwrap_or(0);
            Some(shifts.get(parent as usize)?.saturating_add(padding.into()))
        });
        shifts.push(above.unwrap_or(0));
    }
    shifts
}

/// The highest of the map's heights.
fn highest(map: &PathMap, frames: &Frames, bytes: &[u32]) -> i64 {
    let shifts = shifts(map, frames, bytes);
    let heights = map
        .heights
        .iter()
        .map(|(node, height, _)| height.saturating_add(shifts.get(*node as usize).copied().unwrap_or(0)));
    heights.max().unwrap_or(0)
}

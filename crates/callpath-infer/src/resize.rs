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
//! The paper draws pairs of paths at random. Here the search is greedy: of the identifiers that most is seen of, and that several paths have, it finds
//! out in which procedures these differ, and pads the one that most depends on by the size that tells most paths apart.

use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;

use crate::map::PathMap;

/// What a search may cost.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// How long it may take.
    pub time: Duration,
    /// By how much the highest stack of the map may grow, as a factor.
    pub growth: f64,
    /// The largest padding, bytes.
    pub most_bytes: u32,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget { time: Duration::from_secs(60), growth: 1.1, most_bytes: 512 }
    }
}

/// Paddings of procedures.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Paddings {
    /// Index of the procedure in the map, and bytes: a multiple of [`Paddings::UNIT_BYTES`]; ascending.
    pub of_procedures: Vec<(u32, u32)>,
}

impl Paddings {
    /// The stack stays aligned.
    pub const UNIT_BYTES: u32 = 16;

    fn by_procedure(&self, count: usize) -> Vec<u32> {
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
    /// Whether the time was up before nothing better was found.
    pub is_cut: bool,
}

impl PathMap {
    /// The map of the program whose frames are padded.
    #[must_use]
    pub fn resized(&self, paddings: &Paddings) -> PathMap {
        let bytes = paddings.by_procedure(self.procedures.len());
        let shifts = shifts(self, &bytes);
        let mut map = self.clone();
        for (node, height, _) in &mut map.heights {
            let shift = shifts.get(*node as usize).copied().unwrap_or(0);
            *height = height.saturating_add(shift);
        }
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
        map.finish();
        map
    }

    /// The same padding for all procedures that may be padded.
    pub fn pad_all(&self, may_pad: impl Fn(u32) -> bool, bytes: u32) -> Resized {
        let procedures = (0..self.procedures.len() as u32).filter(|procedure| may_pad(*procedure));
        let paddings = Paddings { of_procedures: procedures.map(|procedure| (procedure, bytes)).collect() };
        let search = Search::new(self, Budget::default());
        let highest = (search.highest, search.highest(&paddings.by_procedure(self.procedures.len())));
        Resized { paddings, highest, is_cut: false }
    }

    /// Searches for paddings. `may_pad`: by procedure, whether its frame can be padded.
    pub fn resize(&self, may_pad: impl Fn(u32) -> bool, budget: Budget) -> Resized {
        let began = Instant::now();
        let mut search = Search::new(self, budget);
        let mut is_cut = false;
        let mut best = search.value();
        'rounds: loop {
            let before = best;
            for procedure in search.candidates().into_iter().filter(|procedure| may_pad(*procedure)) {
                if began.elapsed() > budget.time {
                    is_cut = true;
                    break 'rounds;
                }
                let now = search.bytes[procedure as usize];
                let mut found = (best, now);
                for bytes in search.sizes() {
                    search.bytes[procedure as usize] = bytes;
                    let value = search.value();
                    if value > found.0 + LEAST_GAIN {
                        found = (value, bytes);
                    }
                }
                search.bytes[procedure as usize] = found.1;
                best = found.0;
            }
            if best <= before + LEAST_GAIN {
                break;
            }
        }
        let bytes = std::mem::take(&mut search.bytes);
        let of_procedures = (0u32..).zip(bytes.iter().copied()).filter(|(_, bytes)| *bytes > 0).collect();
        let highest = (search.highest(&vec![0; bytes.len()]), search.highest(&bytes));
        Resized { paddings: Paddings { of_procedures }, highest, is_cut }
    }
}

/// A change that tells less apart is none.
const LEAST_GAIN: f64 = 1e-7;
/// Identifiers that a round looks at, and procedures that it pads, at most.
const LOOKED_AT: usize = 3000;
const PADDED_AT_ONCE: usize = 100;

/// By node, the sum of the paddings above it.
fn shifts(map: &PathMap, bytes: &[u32]) -> Vec<i64> {
    let mut shifts: Vec<i64> = Vec::with_capacity(map.nodes.len());
    for node in &map.nodes {
        let above = node.parent.and_then(|parent| {
            let of = map.nodes.get(parent as usize)?;
            let padding = bytes.get(of.procedure as usize).copied().unwrap_or(0);
            Some(shifts.get(parent as usize)?.saturating_add(padding.into()))
        });
        shifts.push(above.unwrap_or(0));
    }
    shifts
}

struct Search<'m> {
    map: &'m PathMap,
    budget: Budget,
    /// By procedure.
    bytes: Vec<u32>,
    /// What each of the map's heights is worth: half of all is shared by distinct paths, half by what was seen of them.
    worth: Vec<f64>,
    highest: i64,
    /// How many heights an identifier has, by a hash of it; kept for its memory.
    met: FxHashMap<(u32, u32, i64), (u32, u32)>,
}

impl<'m> Search<'m> {
    fn new(map: &'m PathMap, budget: Budget) -> Search<'m> {
        let seen = |weight: &crate::Weight| weight.calls.saturating_add(weight.samples) as f64;
        let all = map.heights.iter().map(|(_, _, weight)| seen(weight)).sum::<f64>().max(1.0);
        let count = map.heights.len().max(1) as f64;
        let worth = map.heights.iter().map(|(_, _, weight)| 0.5 / count + 0.5 * seen(weight) / all).collect();
        let bytes = vec![0; map.procedures.len()];
        let mut search = Search { map, budget, bytes, worth, highest: 0, met: FxHashMap::default() };
        search.highest = search.highest(&search.bytes);
        search
    }

    fn highest(&self, bytes: &[u32]) -> i64 {
        let shifts = shifts(self.map, bytes);
        let heights = self.map.heights.iter().map(|(node, height, _)| height.saturating_add(shifts[*node as usize]));
        heights.max().unwrap_or(0)
    }

    fn sizes(&self) -> impl Iterator<Item = u32> + use<> {
        const UNITS: [u32; 12] = [0, 1, 2, 3, 4, 5, 6, 8, 11, 16, 23, 32];
        let most = self.budget.most_bytes;
        UNITS.into_iter().map(|units| units * Paddings::UNIT_BYTES).filter(move |bytes| *bytes <= most)
    }

    /// What precise paths are worth with the present paddings; nothing if the stack grows too much.
    fn value(&mut self) -> f64 {
        let shifts = shifts(self.map, &self.bytes);
        self.met.clear();
        let (mut value, mut highest) = (0.0, 0);
        for (at, (node, height, _)) in (0u32..).zip(&self.map.heights) {
            let Some(of) = self.map.nodes.get(*node as usize) else { continue };
            let height = height.saturating_add(shifts[*node as usize]);
            highest = highest.max(height);
            let met = self.met.entry((of.root, of.procedure, height)).or_insert((0, at));
            met.0 += 1;
            match met.0 {
                1 => value += self.worth[at as usize],
                2 => value -= self.worth[met.1 as usize],
                _ => {}
            }
        }
        let most = self.highest as f64 * self.budget.growth;
        if highest as f64 > most { f64::NEG_INFINITY } else { value }
    }

    /// Procedures that paths with one identifier differ in, the one first that most depends on.
    fn candidates(&self) -> Vec<u32> {
        let shifts = shifts(self.map, &self.bytes);
        let mut groups: FxHashMap<(u32, u32, i64), Vec<u32>> = FxHashMap::default();
        for (at, (node, height, _)) in (0u32..).zip(&self.map.heights) {
            if let Some(of) = self.map.nodes.get(*node as usize) {
                let height = height.saturating_add(shifts[*node as usize]);
                groups.entry((of.root, of.procedure, height)).or_default().push(at);
            }
        }
        let worth = |group: &[u32]| group.iter().map(|at| self.worth[*at as usize]).sum::<f64>();
        let mut shared: Vec<(f64, _, Vec<u32>)> = groups
            .into_iter()
            .filter(|(_, group)| group.len() > 1)
            .map(|(identifier, group)| (worth(&group), identifier, group))
            .collect();
        shared.sort_by(|one, two| two.0.total_cmp(&one.0).then(one.1.cmp(&two.1)));
        let mut credit: FxHashMap<u32, f64> = FxHashMap::default();
        for (worth, _, group) in shared.into_iter().take(LOOKED_AT) {
            let node = |at: u32| self.map.heights[at as usize].0;
            let Some((first, others)) = group.split_first() else { continue };
            for other in others {
                let mut difference: FxHashMap<u32, i64> = FxHashMap::default();
                for (path, sign) in [(node(*first), 1), (node(*other), -1)] {
                    for of in self.map.path(path).skip(1).filter_map(|node| self.map.nodes.get(node as usize)) {
                        *difference.entry(of.procedure).or_default() += sign;
                    }
                }
                for (procedure, _) in difference.into_iter().filter(|(_, count)| *count != 0) {
                    *credit.entry(procedure).or_default() += worth / others.len() as f64;
                }
            }
        }
        let mut credit: Vec<(u32, f64)> = credit.into_iter().collect();
        credit.sort_by(|one, two| two.1.total_cmp(&one.1).then(one.0.cmp(&two.0)));
        credit.into_iter().take(PADDED_AT_ONCE).map(|(procedure, _)| procedure).collect()
    }
}

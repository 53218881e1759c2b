//! The search for paddings: simulated annealing.
//!
//! A move picks two paths that share an identifier, and a procedure that occurs more often on one than on the other; now and then a
//! procedure that is padded already. It changes that procedure's padding, which shifts everything the procedure calls. The size is drawn
//! at random from a few (Gibbs sampling): sizes that tell more paths apart are likelier, increasingly so as the search goes on. A greedy
//! search would let the first procedures use up the stack that may be used.
//!
//! Most of the work is to see what a size would do to all the heights below a procedure. Where these are many, sizes are compared by a sample of
//! them, and the one that is chosen is then accepted or taken back by what it does to all.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;
use std::time::Instant;

use rustc_hash::FxHashMap;

use crate::frames::{Below, Frames, recursive};
use crate::map::{PathMap, Weight};
use crate::resize::{Budget, Paddings};

/// What a padded procedure costs, as a number of paths: it must tell more apart. Half of that if the padding is as small as can be.
const LEAST_PATHS: f64 = 0.5;
/// Each level of recursion takes its procedure's padding again: such a padding costs so many times as much.
const RECURSIVE_TIMES: f64 = 2.0;
/// Moves for each height of the map.
const MOVES: usize = 48;
/// Sizes that are tried in a move.
const SIZES_AT_ONCE: usize = 4;
/// How many heights a move is judged by, at least, if there are so many; what is kept is judged by all.
const SAMPLED: usize = 1024;

/// 2 to the power of 53
const RANDOMS: f64 = (1u64 << 53) as f64;

/// What several heights of a procedure are that are equal.
#[derive(Clone, Copy, Default)]
struct Met {
    count: u32,
    /// All their indices, combined by exclusive or: of a single one, its index.
    which: u32,
}

/// Has the heights of a procedure that are close together close together in a table.
#[derive(Default)]
struct Neighbours(u64);

impl Hasher for Neighbours {
    fn write_u64(&mut self, key: u64) {
        let group = (key >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let height = (key & 0xffff_ffff) / 8;
        // What distinguishes entries that stand together is in the uppermost bits.
        self.0 = (group >> 32).wrapping_add(height) ^ key.wrapping_mul(0xd6e8_feb8_6659_fd93) >> 57 << 57;
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(self.0 << 8 | u64::from(*byte)));
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Paddings that are tried.
pub(crate) struct Annealing<'m> {
    map: &'m PathMap,
    frames: &'m Frames,
    budget: Budget,
    /// By frame.
    bytes: Vec<u32>,
    /// By frame, whether it was met below itself.
    is_recursive: Vec<bool>,
    /// The nodes of all heights, those of a procedure together. Its other lists are in the same order.
    nodes: Vec<u32>,
    /// By height: half of all worth is spread evenly over the paths, half by how often each was seen.
    worth: Vec<f64>,
    /// The sums of the worths up to each.
    worth_up_to: Vec<f64>,
    /// What a distinct path alone is worth.
    of_path: f64,
    /// By height: its procedure on its stack, as a number in the high half, and how much higher it is than the lowest, with the paddings.
    keys: Vec<u64>,
    met: HashMap<u64, Met, BuildHasherDefault<Neighbours>>,
    below: Below,
    /// The worth of all that is alone with its identifier, less the cost of the paddings.
    value: f64,
    /// The height that no stack exceeds.
    most: i64,
    /// What heights in [`Annealing::keys`] count from.
    lowest: i64,
    random: u64,
}

/// Of the heights below a procedure, those that a move is judged by: ranges of [`Below::heights`] that have all of a called procedure, and what
/// each stands for.
struct Sample {
    parts: Vec<(Range<usize>, f64)>,
    is_whole: bool,
}

impl<'m> Annealing<'m> {
    /// `may_pad`: of a frame. Nothing is padded yet.
    pub(crate) fn new(
        (map, frames): (&'m PathMap, &'m Frames),
        may_pad: impl Fn(u32) -> bool,
        budget: Budget,
    ) -> Annealing<'m> {
        let seen = |weight: &Weight| weight.calls.saturating_add(weight.samples) as f64;
        let group =
            |node: u32| map.nodes.get(node as usize).map_or((0, 0), |of| (of.root, frames.places[node as usize]));
        let mut heights: Vec<((u32, u32), i64, u32, Weight)> =
            map.heights.iter().map(|(node, height, weight)| (group(*node), *height, *node, *weight)).collect();
        heights.sort_unstable();
        let all = heights.iter().map(|(.., weight)| seen(weight)).sum::<f64>().max(1.0);
        let of_path = 0.5 / heights.len().max(1) as f64;
        let worth: Vec<f64> = heights.iter().map(|(.., weight)| of_path + 0.5 * seen(weight) / all).collect();
        let sums = worth.iter().scan(0.0, |sum, worth| {
            *sum += worth;
            Some(*sum)
        });
        let of_groups = heights.chunk_by(|one, two| one.0 == two.0).zip(0u64..);
        let lowest = heights.iter().map(|(_, height, ..)| *height).min().unwrap_or(0);
        // Heights differ by less than 4 GiB, as stacks do.
        let keys = of_groups.flat_map(|(group, number)| {
            group.iter().map(move |(_, height, ..)| number << 32 | u64::from(height.wrapping_sub(lowest) as u32))
        });
        let nodes: Vec<u32> = heights.iter().map(|(_, _, node, _)| *node).collect();
        let highest = heights.iter().map(|(_, height, ..)| *height).max().unwrap_or(0);
        let mut annealing = Annealing {
            map,
            frames,
            budget,
            bytes: vec![0; frames.count],
            is_recursive: recursive(map, frames),
            worth_up_to: sums.collect(),
            worth,
            of_path,
            keys: keys.collect(),
            most: budget.most_high(highest),
            lowest,
            met: HashMap::default(),
            below: Below::of((map, frames), &nodes, may_pad),
            nodes,
            value: 0.0,
            random: 0x9e37_79b9_7f4a_7c15,
        };
        let added: f64 = (0..annealing.keys.len() as u32).map(|at| annealing.add(at)).sum();
        annealing.value = added;
        annealing
    }

    /// Has paddings to begin with, by frame.
    pub(crate) fn padded_by(mut self, bytes: &[u32]) -> Annealing<'m> {
        for (frame, bytes) in (0u32..).zip(bytes).filter(|(_, bytes)| **bytes > 0) {
            self.pad(frame, *bytes);
        }
        self
    }

    /// The paddings of the frames that are worth it, and whether the time was up before the search was over. The time also decides how fast
    /// it cools: on another machine, other paddings may be found. `hot`: how many paths a move may cost at the beginning.
    pub(crate) fn search(mut self, began: Instant, hot: f64) -> (Vec<u32>, bool) {
        const LEAST_MOVES: usize = 4096;
        let all = self.keys.len().saturating_mul(MOVES).max(LEAST_MOVES);
        let (mut moves, mut is_cut) = (0, false);
        let mut best = (self.value, self.bytes.clone());
        while moves < all {
            let of_time = began.elapsed().as_secs_f64() / self.budget.time.as_secs_f64().max(f64::MIN_POSITIVE);
            is_cut = of_time >= 1.0;
            if is_cut {
                break;
            }
            let left = 1.0 - of_time.max(moves as f64 / all as f64);
            self.try_one(self.of_path * hot * left * left);
            moves += 1;
            if self.value > best.0 {
                best = (self.value, self.bytes.clone());
            }
        }
        (best.1, is_cut)
    }

    /// From 0 to less than [`RANDOMS`].
    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random >> 11
    }

    /// From 0 to less than 1.
    fn part(&mut self) -> f64 {
        self.random() as f64 / RANDOMS
    }

    /// A height that others share: half of them by what they are worth, half whichever. `None`: drawn in vain.
    fn draw(&mut self) -> Option<u32> {
        const DRAWS: u32 = 100;
        let all = self.worth_up_to.last().copied()?;
        (0..DRAWS).find_map(|draw| {
            let part = self.part();
            let at = match draw % 2 {
                0 => self.worth_up_to.partition_point(|up_to| *up_to < part * all),
                _ => (part * self.keys.len() as f64) as usize,
            };
            let key = self.keys.get(at)?;
            self.met.get(key).is_some_and(|met| met.count > 1).then_some(at as u32)
        })
    }

    /// Another height that is the same.
    fn other(&mut self, at: u32) -> Option<u32> {
        let (key, place) = (self.keys[at as usize], at as usize);
        let is_near = |other: &&u64| **other >> 32 == key >> 32;
        let from = place - self.keys[..place].iter().rev().take_while(is_near).count();
        let group = (from as u32..).zip(self.keys[from..].iter().take_while(is_near));
        let same: Vec<u32> =
            group.filter(|(other, own)| **own == key && *other != at).map(|(other, _)| other).collect();
        let drawn = self.random() as usize % same.len().max(1);
        same.get(drawn).copied()
    }

    /// A procedure that one of two paths with the same identifier goes through more often than the other: drawn, more often the fewer heights are below it.
    fn differing(&mut self) -> Option<u32> {
        let map = self.map;
        let at = self.draw()?;
        let other = self.other(at)?;
        let mut difference: FxHashMap<u32, i64> = FxHashMap::default();
        for (at, sign) in [(at, 1), (other, -1)] {
            for node in map.path(self.nodes[at as usize]).skip(1) {
                *difference.entry(self.frames.of(node)).or_default() += sign;
            }
        }
        difference.retain(|procedure, times| *times != 0 && !self.below.range(*procedure).is_empty());
        let mut differing: Vec<u32> = difference.into_keys().collect();
        differing.sort_unstable();
        let part = self.part();
        let below = &self.below;
        let weight = |procedure: u32| (below.range(procedure).len() as f64).powf(-0.25);
        let all: f64 = differing.iter().map(|procedure| weight(*procedure)).sum();
        let mut left = part * all;
        differing.into_iter().find(|procedure| {
            left -= weight(*procedure);
            left < 0.0
        })
    }

    /// One that is padded, which need not be.
    fn padded(&mut self) -> Option<u32> {
        let padded: Vec<u32> = (0u32..).zip(&self.bytes).filter(|(_, bytes)| **bytes > 0).map(|(at, _)| at).collect();
        let drawn = self.random() as usize % padded.len().max(1);
        padded.get(drawn).copied()
    }

    /// Draws a procedure and sizes; pads it by one of these, or leaves it.
    fn try_one(&mut self, temperature: f64) {
        const OF_PADDED: u64 = 8;
        let differing = if self.random().is_multiple_of(OF_PADDED) { None } else { self.differing() };
        let Some(procedure) = differing.or_else(|| self.padded()) else { return };
        let before = self.bytes[procedure as usize];
        let mut sizes = [before; SIZES_AT_ONCE + 1];
        for size in &mut sizes[1..] {
            *size = self.size();
        }
        let largest = self.largest(procedure);
        let sample = self.sample(procedure);
        let mut gains = [0.0; SIZES_AT_ONCE + 1];
        let mut most = f64::NEG_INFINITY;
        let estimates = self.estimates(procedure, &sizes, &sample);
        for ((size, gain), estimate) in sizes.into_iter().zip(&mut gains).zip(estimates) {
            *gain = if size <= largest.max(before) { estimate } else { f64::NEG_INFINITY };
            most = most.max(*gain);
        }
        let chances = gains.map(|gain| ((gain - most) / temperature).exp());
        let mut left = self.part() * chances.iter().sum::<f64>();
        let chosen = chances.iter().position(|chance| {
            left -= chance;
            left < 0.0
        });
        let chosen = chosen.and_then(|chosen| sizes.get(chosen)).copied().unwrap_or(before);
        if chosen == before {
            return;
        }
        let value = self.value;
        self.pad(procedure, chosen);
        let is_kept = sample.is_whole || self.part() < ((self.value - value) / temperature).exp();
        if !is_kept {
            self.pad(procedure, before);
            self.value = value;
        }
    }

    fn size(&mut self) -> u32 {
        const UNITS: [u32; 20] = [0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 5, 6, 7, 8, 10, 12, 14, 18, 24, 32];
        let units = UNITS[(self.random() % UNITS.len() as u64) as usize];
        (units * Paddings::UNIT_BYTES).min(self.budget.most_bytes / Paddings::UNIT_BYTES * Paddings::UNIT_BYTES)
    }

    /// The largest padding with which no stack grows too much, bytes.
    fn largest(&self, procedure: u32) -> u32 {
        let most = self.most.saturating_sub(self.lowest);
        let height = |at: u32| i64::from(self.keys[at as usize] as u32);
        let room = |&(at, times): &(u32, u32)| most.saturating_sub(height(at)) / i64::from(times.max(1));
        let room = self.below.of_procedure(procedure).iter().map(room).min().unwrap_or(0);
        u32::try_from(i64::from(self.bytes[procedure as usize]).saturating_add(room)).unwrap_or(0)
    }

    /// What a move is judged by. Paths of different procedures cannot be confused, so that what a padding gains is a sum over the procedures below.
    fn sample(&mut self, procedure: u32) -> Sample {
        let range = self.below.range(procedure);
        if range.len() <= SAMPLED {
            return Sample { parts: vec![(range, 1.0)], is_whole: true };
        }
        let (mut parts, mut draws, mut len): (Vec<(Range<usize>, f64)>, f64, usize) = (Vec::new(), 0.0, 0);
        while len < SAMPLED {
            let drawn = range.start + self.random() as usize % range.len();
            let group = |height: &(u32, u32)| self.keys[height.0 as usize] >> 32;
            let (heights, own) = (&self.below.heights[range.clone()], group(&self.below.heights[drawn]));
            let first = range.start + heights.partition_point(|height| group(height) < own);
            let end = range.start + heights.partition_point(|height| group(height) <= own);
            len += end - first;
            draws += 1.0;
            match parts.iter_mut().find(|(part, _)| part.start == first) {
                Some((_, times)) => *times += 1.0,
                None => parts.push((first..end, 1.0)),
            }
        }
        // Drawn in proportion to how many they are (Hansen and Hurwitz 1943).
        for (part, times) in &mut parts {
            *times *= range.len() as f64 / (draws * part.len() as f64);
        }
        Sample { parts, is_whole: false }
    }

    /// What the paddings of a procedure would be worth, as far as the sample tells; all more or less by the same.
    fn estimates(&mut self, procedure: u32, sizes: &[u32], sample: &Sample) -> Vec<f64> {
        let value = self.value;
        for at in sample.parts.iter().flat_map(|(part, _)| part.clone()) {
            self.remove(self.below.heights[at].0);
        }
        let before = i64::from(self.bytes[procedure as usize]);
        let mut keys: Vec<(u64, u32)> = Vec::new();
        let mut estimates = Vec::with_capacity(sizes.len());
        for size in sizes {
            let by = i64::from(*size) - before;
            let mut estimate = -self.cost(procedure, *size);
            for (part, weight) in &sample.parts {
                let key =
                    |&(at, times): &(u32, u32)| (self.keys[at as usize].wrapping_add_signed(by * i64::from(times)), at);
                keys.clear();
                keys.extend(self.below.heights[part.clone()].iter().map(key));
                keys.sort_unstable();
                let gained = keys.chunk_by(|one, two| one.0 == two.0).map(|same| self.gained(same));
                estimate += weight * gained.sum::<f64>();
            }
            estimates.push(estimate);
        }
        for at in sample.parts.iter().flat_map(|(part, _)| part.clone()) {
            self.add(self.below.heights[at].0);
        }
        self.value = value;
        estimates
    }

    /// What heights that are the same would add, if put into the table.
    fn gained(&self, same: &[(u64, u32)]) -> f64 {
        let Some(&(key, at)) = same.first() else { return 0.0 };
        match self.met.get(&key) {
            Some(met) if met.count == 1 => -self.worth[met.which as usize],
            Some(_) => 0.0,
            None if same.len() == 1 => self.worth[at as usize],
            None => 0.0,
        }
    }

    fn add(&mut self, at: u32) -> f64 {
        let key = self.keys[at as usize];
        let met = self.met.entry(key).or_default();
        let gained = match met.count {
            0 => self.worth[at as usize],
            1 => -self.worth[met.which as usize],
            _ => 0.0,
        };
        *met = Met { count: met.count + 1, which: met.which ^ at };
        gained
    }

    fn remove(&mut self, at: u32) -> f64 {
        let key = self.keys[at as usize];
        let Some(met) = self.met.get_mut(&key) else { return 0.0 };
        *met = Met { count: met.count - 1, which: met.which ^ at };
        match met.count {
            0 => {
                self.met.remove(&key);
                -self.worth[at as usize]
            }
            1 => self.worth[met.which as usize],
            _ => 0.0,
        }
    }

    /// Takes what is below a procedure out of the table.
    fn take_out(&mut self, procedure: u32) {
        for at in self.below.range(procedure) {
            self.value += self.remove(self.below.heights[at].0);
        }
        self.value += self.cost(procedure, self.bytes[procedure as usize]);
    }

    /// Puts it back with the procedure padded so.
    fn put(&mut self, procedure: u32, bytes: u32) {
        self.shift(procedure, bytes);
        for at in self.below.range(procedure) {
            self.value += self.add(self.below.heights[at].0);
        }
        self.value -= self.cost(procedure, bytes);
    }

    fn pad(&mut self, procedure: u32, bytes: u32) {
        self.take_out(procedure);
        self.put(procedure, bytes);
    }

    fn cost(&self, procedure: u32, bytes: u32) -> f64 {
        const HALF_BYTES: f64 = 1024.0;
        let times = if self.is_recursive[procedure as usize] { RECURSIVE_TIMES } else { 1.0 };
        if bytes > 0 { times * self.of_path * LEAST_PATHS * (0.5 + f64::from(bytes) / HALF_BYTES) } else { 0.0 }
    }

    fn shift(&mut self, procedure: u32, bytes: u32) {
        let before = std::mem::replace(&mut self.bytes[procedure as usize], bytes);
        let by = i64::from(bytes) - i64::from(before);
        for at in self.below.range(procedure).filter(|_| by != 0) {
            let (height, times) = self.below.heights[at];
            let key = &mut self.keys[height as usize];
            *key = key.wrapping_add_signed(by * i64::from(times));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Annealing, SAMPLED};
    use crate::frames::Frames;
    use crate::{Budget, MapBuilder, MapModule, MapProcedure, PathMap, Root, Weight};

    const CALLERS: u32 = 4;
    const CALLEES: u64 = 1500;

    /// A program in which each of some procedures calls all of many others, all at the same height: procedure 0 is `main`, then come the callers.
    fn crowded() -> PathMap {
        let mut builder = MapBuilder::default();
        let module = builder.module(MapModule { path: "/usr/bin/crowded".into(), identity: vec![1, 7] }).unwrap();
        let procedure = |builder: &mut MapBuilder, start: u64| {
            builder.procedure(MapProcedure { module, start, name: format!("f{start}") })
        };
        let main = procedure(&mut builder, 0);
        let callers: Vec<u32> = (1..=CALLERS.into()).map(|start| procedure(&mut builder, start)).collect();
        let callees: Vec<u32> = (0..CALLEES).map(|start| procedure(&mut builder, 1000 + start)).collect();
        let root = builder.root(Root::Main);
        let of_main = builder.node(None, main, root);
        builder.met(of_main, 16, Weight { calls: 1, samples: 0 });
        for caller in callers {
            let node = builder.node(Some(of_main), caller, root);
            builder.met(node, 48, Weight { calls: 1, samples: 0 });
            for callee in &callees {
                let called = builder.node(Some(node), *callee, root);
                builder.met(called, 1600, Weight { calls: 1, samples: 0 });
            }
        }
        builder.finish()
    }

    #[test]
    fn a_sample_tells_what_a_padding_gains() {
        let map = crowded();
        let frames = Frames::of_procedures(&map);
        let mut annealing = Annealing::new((&map, &frames), |_| true, Budget::default());
        annealing.pad(1, 32);
        let (sample, sizes) = (annealing.sample(2), [0, 16, 32, 48]);
        let sampled: usize = sample.parts.iter().map(|(part, _)| part.len()).sum();
        assert!(!sample.is_whole && sampled < CALLEES as usize && CALLEES as usize > SAMPLED, "{sampled}");
        let (value, met) = (annealing.value, annealing.met.len());
        let estimates = annealing.estimates(2, &sizes, &sample);
        assert_eq!((annealing.value, annealing.met.len()), (value, met), "the table is as it was");
        // Callees are all alike, so that the estimate is exact.
        for (size, estimate) in sizes.into_iter().zip(&estimates) {
            annealing.pad(2, size);
            let gained = annealing.value - value;
            assert!((estimate - estimates[0] - gained).abs() < 1e-9, "{size}: {estimates:?} {gained}");
        }
        assert!(estimates[1] > estimates[0] && estimates[2] < estimates[1], "{estimates:?}");
    }

    #[test]
    fn no_padding_is_larger_than_stacks_may_grow() {
        let map = crowded();
        let frames = Frames::of_procedures(&map);
        let mut annealing = Annealing::new((&map, &frames), |_| true, Budget::default());
        assert_eq!(annealing.largest(1), 160);
        annealing.pad(1, 48);
        assert_eq!(annealing.largest(1), 160);
        annealing.pad(0, 112);
        assert_eq!((annealing.largest(1), annealing.largest(2)), (48, 48));
    }

    #[test]
    fn all_is_told_apart_that_samples_were_judged_by() {
        let map = crowded();
        let budget = Budget { time: Duration::from_secs(3), ..Budget::default() };
        let resized = map.resize(|procedure| (1..=CALLERS).contains(&procedure), budget, None);
        let precision = map.resized(&resized.paddings).precision();
        assert_eq!(precision.paths, [(1, 1 + u64::from(CALLERS) * (1 + CALLEES))].into(), "{resized:?}");
    }
}

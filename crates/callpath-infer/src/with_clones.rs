//! Activation record resizing with clones: paddings of procedures first, then in turns clones for the paths that still share an identifier and
//! paddings of all frames, those of clones on their own; last, clones for paths that end in them.

use std::time::Instant;

use callpath_format::frame::CloneNumber;

use crate::anneal::Annealing;
use crate::clones::{By, Chosen, Cloning};
use crate::frames::Frames;
use crate::map::PathMap;
use crate::precision::Precision;
use crate::resize::{Budget, Paddings, Resized};

/// The part of its time that a search takes for paddings of procedures, before there are clones.
const OF_PROCEDURES: f64 = 0.4;
/// How many paths a move may cost when a search begins, and when one goes on: much is told apart then.
pub(crate) const HOT: f64 = 10.0;
const WARM: f64 = 1.0;
/// So many times it chooses clones, and searches for the sizes of all frames.
const ROUNDS: u32 = 3;

/// A search that clones procedures, too.
pub(crate) struct WithClones<'m> {
    map: &'m PathMap,
    chosen: Chosen<'m>,
    /// The paddings of procedures.
    bytes: Vec<u32>,
    /// As [`Budget::growth`].
    growth: f64,
    /// How many paths a move may cost when it goes on.
    hot: f64,
    is_cut: bool,
}

impl<'m> WithClones<'m> {
    /// Searches. `may_pad`: by procedure, whether its frame can be padded.
    pub(crate) fn search(
        map: &'m PathMap,
        (may_pad, cloning): (impl Fn(u32) -> bool, Cloning<'m>),
        budget: Budget,
    ) -> Resized {
        let began = Instant::now();
        let frames = Frames::of_procedures(map);
        let first = Budget { time: budget.time.mul_f64(OF_PROCEDURES), ..budget };
        let (bytes, is_cut) = Annealing::new((map, &frames), &may_pad, first).search(Instant::now(), HOT);
        let mut search =
            WithClones { map, chosen: Chosen::new(map, cloning), bytes, growth: budget.growth, hot: WARM, is_cut };
        for round in 0..ROUNDS {
            let is_raised = round > 0 && search.growth < budget.most_growth && search.share() < Budget::ENOUGH;
            if is_raised {
                // With so much more stack, it begins anew.
                (search.growth, search.hot) = (budget.most_growth, HOT);
            }
            let before = search.chosen.len();
            search.choose(By::PlaceOrHeight);
            if search.chosen.len() == before && !is_raised && round > 0 {
                break;
            }
            let time = budget.time.saturating_sub(began.elapsed()) / (ROUNDS - round);
            search.resize(&may_pad, Budget { time, growth: search.growth, ..budget });
        }
        search.finish()
    }

    /// Clones in which paths end, without a search. `bytes`: the paddings of procedures.
    pub(crate) fn of_places(map: &'m PathMap, bytes: Vec<u32>, cloning: Cloning<'m>) -> Resized {
        let chosen = Chosen::new(map, cloning);
        WithClones { map, chosen, bytes, growth: 1.0, hot: WARM, is_cut: false }.finish()
    }

    /// Adds clones for the paths that end in them.
    fn finish(mut self) -> Resized {
        self.choose(By::Place);
        let (frames, bytes) = (self.frames(), self.all_bytes());
        self.map.found(self.paddings(), (&frames, &bytes), self.is_cut)
    }

    fn paddings(&self) -> Paddings {
        Paddings::of(&self.bytes, self.chosen.clones())
    }

    /// The share of paths with an identifier of their own.
    fn share(&self) -> f64 {
        Precision::share(&self.map.resized(&self.paddings()).precision().paths).unwrap_or(1.0)
    }

    /// Chooses clones for the paths that still share an identifier.
    fn choose(&mut self, by: By) {
        self.chosen.add(&self.map.resized(&self.paddings()), by, &self.bytes);
    }

    /// Searches for the sizes of all frames.
    fn resize(&mut self, may_pad: &impl Fn(u32) -> bool, budget: Budget) {
        let (frames, procedures) = (self.frames(), self.procedures());
        let may_pad_frame = |frame: u32| procedures.get(frame as usize).is_some_and(|of| may_pad(*of));
        let annealing = Annealing::new((self.map, &frames), may_pad_frame, budget).padded_by(&self.all_bytes());
        let (all, is_cut) = annealing.search(Instant::now(), std::mem::replace(&mut self.hot, WARM));
        self.is_cut |= is_cut;
        let (bytes, of_clones) = all.split_at(self.bytes.len().min(all.len()));
        self.bytes = bytes.to_vec();
        let of = procedures.get(self.bytes.len()..).unwrap_or(&[]);
        let of_clones: Vec<u32> = of_clones
            .iter()
            .zip(of)
            .map(|(own, of)| {
                let of_procedure = bytes.get(*of as usize).copied().unwrap_or(0);
                if self.chosen.may_differ(*of) { *own } else { of_procedure }
            })
            .collect();
        self.chosen.set_bytes(&of_clones);
    }

    /// The frames of the map's procedures and, behind them, of the clones.
    fn frames(&self) -> Frames {
        let count = self.bytes.len() as u32;
        let mut frames = Frames::of_procedures(self.map);
        frames.count += self.chosen.len();
        for (at, place) in self.chosen.places().into_iter().enumerate().filter(|(_, place)| *place != CloneNumber::NONE)
        {
            let own = count + u32::from(place.0) - 1;
            frames.places[at] = own;
            if self.chosen.may_differ(frames.of_nodes[at]) {
                frames.of_nodes[at] = own;
            }
        }
        frames
    }

    /// By frame, its procedure.
    fn procedures(&self) -> Vec<u32> {
        let clones = self.chosen.clones().procedures;
        (0..self.bytes.len() as u32).chain(clones.iter().filter_map(|clone| clone.procedure)).collect()
    }

    /// By frame, by how much it is larger.
    fn all_bytes(&self) -> Vec<u32> {
        let clones = self.chosen.clones().procedures;
        self.bytes.iter().copied().chain(clones.iter().map(|clone| clone.bytes)).collect()
    }
}

//! How a program's copies are laid out: what is taken of addresses and numbers, so that copies of libraries that come later can be added.

use callpath_format::address::RunAddr;
use callpath_format::shared::activation::CopiesWords;
use callpath_format::shared::flows::FlowCounters;
use callpath_format::shared::known_return::KnownReturn;
use callpath_format::shared::probe::Routines;
use callpath_tables::paths::{FIRST_WORD, Inside};
use callpath_tables::return_users::ReturnUsers;
use callpath_tables::unwinders::{KnownCode, Told};
use callpath_target::Edits;

use super::ExactTimes;
use super::regions::Regions;
use super::returns::Returns;
use crate::probe::Loaded;

/// The layout of a program's copies.
pub(super) struct Layout {
    /// How far above the thread pointer a thread's word is.
    pub(super) lane_word: i64,
    /// What is counted inside of procedures.
    pub(super) inside: Inside,
    /// The routines of our object. `None`: nothing is counted.
    pub(super) routines: Option<Routines>,
    /// Activations are counted in their contexts.
    pub(super) has_contexts: bool,
    /// If times of paths are measured.
    pub(super) times: Option<ExactTimes>,
    pub(super) next: Next,
    /// The words of a lane.
    pub(super) most_words: u32,
    pub(super) regions: Regions,
    /// Where each module's words are that say where copies are, and the region that its copies are in.
    pub(super) heads: Vec<Head>,
    pub(super) known: Vec<KnownCode>,
    /// Who looks at return addresses.
    pub(super) users: ReturnUsers,
    /// Where the table of modules is, for those who ask which one called them.
    pub(super) homes: RunAddr,
    /// What was there at the beginning.
    pub(super) first: Vec<Loaded>,
    /// What has come later, in any process of the program.
    pub(super) later: Vec<Later>,
    pub(super) tables: Option<Tables>,
}

/// The first numbers that nobody has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Next {
    pub(super) word: u32,
    pub(super) procedure: u32,
    pub(super) timed: u32,
    pub(super) hashed: u32,
}

/// Where a module's words are that its copies read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Head {
    pub(super) at: RunAddr,
    pub(super) region: Option<usize>,
}

/// A library that has come while the program ran.
pub(super) struct Later {
    pub(super) loaded: Loaded,
    /// What was changed for it, if it has copies.
    pub(super) edits: Option<Edits<'static>>,
    pub(super) head: Option<Head>,
}

/// What copies and unwinders read, in memory of each process of the program.
pub(super) struct Tables {
    pub(super) told: Told,
    pub(super) of_contexts: Option<OfContexts>,
    /// Every write since the program started. A fork has those that were made before it.
    pub(super) written: Vec<(RunAddr, Vec<u8>)>,
}

/// The tables of contexts.
pub(super) struct OfContexts {
    pub(super) returns: Returns,
    pub(super) returns_at: u64,
    /// Where there are counters of paths, 0 if not; and where the table of their numbers is, and how many there may be.
    pub(super) flows: u64,
    pub(super) counters_at: u64,
    pub(super) most_counters: u32,
}

impl Layout {
    /// Of a program without any.
    pub(super) fn new(regions: Regions, users: ReturnUsers, homes: RunAddr) -> Layout {
        Layout {
            lane_word: 0,
            inside: Inside::Nothing,
            routines: None,
            has_contexts: false,
            times: None,
            next: Next { word: FIRST_WORD, procedure: 0, timed: 0, hashed: 0 },
            most_words: u32::MAX,
            regions,
            heads: Vec::new(),
            known: Vec::new(),
            users,
            homes,
            first: Vec::new(),
            later: Vec::new(),
            tables: None,
        }
    }

    /// Whether paths are counted.
    pub(super) fn has_paths(&self) -> bool {
        self.inside == Inside::Paths
    }

    /// The words that copies read, of a module with this region. `None`: there are no contexts.
    pub(super) fn words(&self, region: Option<usize>) -> Option<Vec<u8>> {
        let Routines { callees, .. } = self.routines?;
        let OfContexts { returns, returns_at, flows, counters_at, .. } = self.tables.as_ref()?.of_contexts.as_ref()?;
        let words = CopiesWords {
            regions: self.regions.known_in(region),
            callees,
            returns: *returns_at,
            returns_shift: returns.shift(),
            flows: *flows,
            counters: *counters_at,
        };
        Some(words.to_words().map(u64::to_le_bytes).concat())
    }

    /// Where our object reads the same words.
    pub(super) fn own_head(&self) -> Option<Head> {
        let routines = self.routines.filter(|_| self.has_contexts)?;
        Some(Head { at: RunAddr(routines.copies), region: None })
    }
}

impl Tables {
    /// Adds what copies of one more library need. `false`: there is no room.
    pub(super) fn add(
        &mut self,
        known: &KnownCode,
        returns: &[(u64, KnownReturn)],
        (first_procedure, counters): (u32, &[FlowCounters]),
    ) -> bool {
        let Tables { told, of_contexts, written } = self;
        if let Some(of_contexts) = of_contexts {
            let end = u64::from(first_procedure) + counters.len() as u64;
            if of_contexts.flows != 0 && end > u64::from(of_contexts.most_counters) {
                return false;
            }
            if !of_contexts.returns.has_room_for(returns.len()) {
                return false;
            }
        }
        let Some(words) = told.add(known) else { return false };
        written.extend(words.into_iter().map(|(at, word)| (at, word.to_le_bytes().to_vec())));
        if let Some(of_contexts) = of_contexts {
            for (place, entry) in of_contexts.returns.add(returns) {
                let at = RunAddr(of_contexts.returns_at + place as u64 * size_of::<[u64; 2]>() as u64);
                written.push((at, entry.map(u64::to_le_bytes).concat()));
            }
            if of_contexts.flows != 0 && !counters.is_empty() {
                let at = of_contexts.counters_at + u64::from(first_procedure) * size_of::<u32>() as u64;
                written.push((
                    RunAddr(at),
                    counters.iter().flat_map(|counters| counters.to_word().to_le_bytes()).collect(),
                ));
            }
        }
        true
    }
}

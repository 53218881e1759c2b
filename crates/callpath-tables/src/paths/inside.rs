//! What is inserted into a procedure so that it counts its paths or edges, and how often that is executed.

use callpath_format::address::LinkAddr;
use callpath_x86::graph::{ModuleFlow, ProcedureGraph};
use callpath_x86::paths::{EdgeCounts, EdgePlan, Numbering, PathOperation, Placed, Site, Ways, weights};

use crate::guide::ModuleGuide;

/// What the words of a procedure count.
pub enum CountedInside {
    /// Each path has a word, by its number, or a place in a hash table.
    Paths(Numbering),
    /// Some edges have one each.
    Edges {
        /// Which ones.
        plan: EdgePlan,
        /// Control may leave a call more often than it comes there.
        may_return_twice: bool,
    },
}

/// What decides where increments and counters stand. What is counted does not depend on it.
#[derive(Clone, Copy, Debug)]
pub enum Placing<'g> {
    /// The depth of loops.
    ByDepth,
    /// What an earlier measurement tells of the module, if anything; else the depth of loops. It is kept what that alone would take.
    Guided(Option<&'g ModuleGuide>),
}

/// How often increments, or counters of edges, were executed, and how often they would have been if they had been placed by loop depth.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Executed {
    /// As they were placed.
    pub guided: u64,
    /// By loop depth.
    pub by_depth: u64,
}

impl Executed {
    /// Adds what was executed so many times.
    pub fn add(&mut self, more: Executed, times: u64) {
        self.guided = self.guided.saturating_add(more.guided.saturating_mul(times));
        self.by_depth = self.by_depth.saturating_add(more.by_depth.saturating_mul(times));
    }
}

/// What is placed by a guide, if it tells of the procedure, and what would be without.
pub(super) enum Compared {
    Paths { guided: Option<Placed>, by_depth: Placed },
    Edges { by_depth: EdgePlan },
}

/// How many paths a procedure has at most: graphs of others are cut.
#[derive(Clone, Copy)]
pub(super) struct MostPaths {
    /// Where each has a word.
    pub(super) with_words: u64,
    /// Where there are more: in a hash table, if there may be one.
    pub(super) hashed: Option<u64>,
    /// So many of those have words.
    pub(super) low: u64,
}

/// What is inserted, and what it counts.
pub(super) struct Planned {
    /// Paths with lower numbers have words, or edges.
    pub(super) words: u64,
    /// Others have places in a hash table.
    pub(super) is_hashed: bool,
    pub(super) counts: CountedInside,
    pub(super) compared: Option<Compared>,
    pub(super) operations: Vec<(Site, PathOperation)>,
    /// Blocks that lead to themselves, by their starts: the number of the path from there to there.
    pub(super) turned: Vec<(LinkAddr, u64)>,
}

/// The most blocks of a procedure that have words for several turns.
const MOST_TURNED: usize = 32;

impl Planned {
    /// Of the edges of a procedure.
    pub(super) fn edges(
        of: (&ModuleFlow<'_>, &ProcedureGraph),
        ways: &Ways,
        placing: Placing<'_>,
        may_return_twice: bool,
    ) -> Planned {
        let guess = weights(of.1, ways);
        let by_depth = EdgePlan::new(ways, &guess);
        let guided = match placing {
            Placing::Guided(Some(guide)) => guide.weights(of, (ways, &guess), |way| by_depth.is_back(way)),
            _ => None,
        };
        let plan = guided.map_or_else(|| by_depth.clone(), |weights| EdgePlan::new(ways, &weights));
        // As of paths whose numbers are known without a register.
        let counters = (0i64..).zip(plan.counters());
        let operations: Vec<(Site, PathOperation)> =
            counters.map(|(number, site)| (site, PathOperation::CountNumber(number))).collect();
        Planned {
            words: operations.len() as u64,
            is_hashed: false,
            counts: CountedInside::Edges { plan, may_return_twice },
            compared: matches!(placing, Placing::Guided(_)).then_some(Compared::Edges { by_depth }),
            operations,
            turned: Vec::new(),
        }
    }

    /// Of the paths through a procedure. Their numbers do not depend on where increments are.
    pub(super) fn paths(
        of: (&ModuleFlow<'_>, &ProcedureGraph),
        ways: &Ways,
        placing: Placing<'_>,
        most: MostPaths,
    ) -> Planned {
        let guess = weights(of.1, ways);
        let with_words = Numbering::with_limit(ways, &guess, most.with_words);
        let hashed = most.hashed.filter(|_| with_words.cuts() > 0);
        let (numbering, is_hashed) = match hashed {
            Some(hashed) => (Numbering::with_low_numbers(ways, &guess, hashed, most.low), true),
            None => (with_words, false),
        };
        let by_depth = numbering.place_in_tree(ways, &guess, &guess);
        let guided = match placing {
            Placing::Guided(Some(guide)) => guide.weights(of, (ways, &guess), |way| numbering.is_cut(way)),
            _ => None,
        };
        let guided = guided.map(|weights| numbering.place_in_tree(ways, &weights, &guess));
        let operations = guided.as_ref().unwrap_or(&by_depth).operations(&numbering, ways);
        let turned =
            turned(&operations, of.1, |number| numbering.decode(ways, number).map(|path| path.addresses(ways)));
        Planned {
            turned,
            words: if is_hashed { most.low.min(numbering.paths()) } else { numbering.paths() },
            is_hashed,
            counts: CountedInside::Paths(numbering),
            compared: matches!(placing, Placing::Guided(_)).then_some(Compared::Paths { guided, by_depth }),
            operations,
        }
    }
}

/// The blocks that lead to themselves by a way whose operations say which path that is, from the second time on. `path`: where the blocks of one begin,
/// by its number.
fn turned(
    operations: &[(Site, PathOperation)],
    graph: &ProcedureGraph,
    path: impl Fn(u64) -> Option<Vec<LinkAddr>>,
) -> Vec<(LinkAddr, u64)> {
    let found = operations.chunk_by(|one, other| one.0 == other.0).filter_map(|of_site| {
        let &[(Site::Edge(from, to), PathOperation::Count(from_register)), (_, PathOperation::Set(register))] = of_site
        else {
            return None;
        };
        let number = u64::from(register.wrapping_add(from_register) as u32);
        let code = &graph.blocks.get(graph.block_at(from)? as usize)?.code;
        let is_inside = |&(site, _): &(Site, PathOperation)| matches!(site, Site::Before(at) if code.contains(&at));
        let is_it = from == to && path(number)? == [from] && !operations.iter().any(is_inside);
        is_it.then_some((from, number))
    });
    found.take(MOST_TURNED).collect()
}

impl Compared {
    /// Of one execution of a path.
    pub(super) fn of_path(&self, counts: &CountedInside, number: u64) -> Option<Executed> {
        let (CountedInside::Paths(numbering), Compared::Paths { guided, by_depth }) = (counts, self) else {
            return None;
        };
        let without = by_depth.increments_along(numbering, number);
        let guided = guided.as_ref().map_or(without, |guided| guided.increments_along(numbering, number));
        Some(Executed { guided, by_depth: without })
    }

    /// Of counters of edges, which have counted what `found` says.
    pub(super) fn of_edges(&self, counts: &CountedInside, ways: &Ways, found: &EdgeCounts) -> Option<Executed> {
        let (CountedInside::Edges { plan, .. }, Compared::Edges { by_depth }) = (counts, self) else { return None };
        let executed = |plan: &EdgePlan| plan.executed(ways, found);
        Some(Executed { guided: executed(plan), by_depth: executed(by_depth) })
    }
}

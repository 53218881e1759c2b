//! All that a map tells of an identifier: what was seen, and what the code has where nothing was.

use callpath_format::frame::CloneNumber;

use crate::map::{Answer, Identifier, PathMap};
use crate::search::{CodePath, CodePaths, Search, Searched};

/// How sure a map is of an identifier's path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Certainty {
    /// One was seen.
    Precise,
    /// One was seen, or none; the code has that one, as the only one or the nearest one that continues what was seen, and has others.
    Likely,
    /// None was seen, and the code has no more than one, however contexts that were seen may have been entered.
    Static,
    /// There are several: so many, [`u64::MAX`] if more than 2^32.
    Ambiguous(u64),
    /// There is none that the map knows.
    Missing,
    /// Nothing is known: a search would take too long.
    Undetermined,
}

impl Certainty {
    /// As it is shown.
    pub fn name(self) -> &'static str {
        match self {
            Certainty::Precise => "precise",
            Certainty::Likely => "likely",
            Certainty::Static => "static",
            Certainty::Ambiguous(_) => "ambiguous",
            Certainty::Missing => "missing",
            Certainty::Undetermined => "undetermined",
        }
    }
}

/// The paths of an identifier.
#[derive(Clone, Debug)]
pub struct Told<'m> {
    map: &'m PathMap,
    /// How sure they are.
    pub certainty: Certainty,
    paths: Paths<'m>,
}

#[derive(Clone, Debug)]
enum Paths<'m> {
    /// Of the contexts that were seen: their nodes.
    Seen(&'m [u32]),
    /// Of these contexts' callees.
    Below(Vec<u32>),
    /// As the code has them.
    Code(Vec<CodePath>),
}

impl<'m> Told<'m> {
    /// The callers of each path, or of the first ones: procedures, the outermost first, without the one that was asked for.
    pub fn callers(&self) -> Vec<Vec<u32>> {
        match &self.paths {
            Paths::Seen(nodes) => nodes.iter().map(|node| self.above(*node)).collect(),
            Paths::Below(callers) => callers.iter().map(|node| self.down_to(*node)).collect(),
            Paths::Code(paths) => {
                let callers = |path: &CodePath| {
                    let Some((_, calls)) = path.calls.split_last() else {
                        return path.from.map_or_else(Vec::new, |node| self.above(node));
                    };
                    let mut callers = path.from.map_or_else(Vec::new, |node| self.down_to(node));
                    callers.extend(calls);
                    callers
                };
                paths.iter().map(callers).collect()
            }
        }
    }

    /// Whether runs have taken the paths; else the code alone has them, in whole or in their last calls.
    pub fn is_seen(&self) -> bool {
        matches!(self.paths, Paths::Seen(_))
    }

    /// Whether no run was in the procedure there: the code alone has the paths.
    pub fn is_new(&self) -> bool {
        matches!(self.paths, Paths::Code(_))
    }

    /// Whether all paths are among [`Told::callers`].
    pub fn is_whole(&self) -> bool {
        match (&self.paths, self.certainty) {
            (Paths::Code(paths), Certainty::Ambiguous(count)) => paths.len() as u64 == count,
            _ => true,
        }
    }

    /// The outermost callers that all paths have in common, the outermost first.
    pub fn common(&self) -> Vec<u32> {
        if !self.is_whole() {
            return Vec::new();
        }
        let all = self.callers();
        let Some((first, others)) = all.split_first() else { return Vec::new() };
        let same = |other: &Vec<u32>| first.iter().zip(other).take_while(|(one, two)| one == two).count();
        let len = others.iter().map(same).fold(first.len(), usize::min);
        first[..len].to_vec()
    }

    /// The procedures from the outermost one down to a node's.
    fn down_to(&self, node: u32) -> Vec<u32> {
        let nodes = self.map.path(node).filter_map(|node| self.map.nodes().get(node as usize));
        let mut procedures: Vec<u32> = nodes.map(|node| node.procedure).collect();
        procedures.reverse();
        procedures
    }

    fn above(&self, node: u32) -> Vec<u32> {
        let mut procedures = self.down_to(node);
        procedures.pop();
        procedures
    }
}

impl<'m> Search<'m> {
    /// What the map tells of an identifier.
    pub fn tell(&mut self, identifier: Identifier) -> Told<'m> {
        let map = self.map();
        let told = |certainty, paths| Told { map, certainty, paths };
        let answer = map.answer(identifier);
        let seen = map.seen_paths(identifier);
        match answer {
            Answer::Precise(_) => return told(Certainty::Precise, Paths::Seen(seen)),
            Answer::Likely(_) => return told(Certainty::Likely, Paths::Seen(seen)),
            Answer::Ambiguous(paths) => return told(Certainty::Ambiguous(paths.len() as u64), Paths::Seen(paths)),
            Answer::ByCode(_) | Answer::Missing => {}
        }
        // Where some calls were seen, and not all of them could be, a search would tell those alone that were.
        // In a clone, only what may call it has called.
        let is_in_clone = CloneNumber::of_height(identifier.height).0 != CloneNumber::NONE;
        let searched = if seen.is_empty() && !is_in_clone { self.find(identifier) } else { Searched::Nothing };
        match (searched, answer) {
            (Searched::Found(CodePaths { count: 1, paths, is_only, .. }), _) => {
                told(if is_only { Certainty::Static } else { Certainty::Likely }, Paths::Code(paths))
            }
            (Searched::Found(CodePaths { nearest: Some(nearest), .. }), _) => {
                told(Certainty::Likely, Paths::Code(vec![nearest]))
            }
            (Searched::Found(CodePaths { count, paths, .. }), _) => {
                told(Certainty::Ambiguous(count), Paths::Code(paths))
            }
            (_, Answer::ByCode(callers)) => {
                let certainty = match callers.len() as u64 {
                    1 => Certainty::Likely,
                    several => Certainty::Ambiguous(several),
                };
                told(certainty, Paths::Below(callers))
            }
            (Searched::TooMuch, _) => told(Certainty::Undetermined, Paths::Seen(&[])),
            (Searched::Nothing, _) => told(Certainty::Missing, Paths::Seen(&[])),
        }
    }
}

//! What the compiler split or moved, put together again, as the source has it.
//!
//! Tallent et al. 2009, section 3.4: a line stands once in the source. Never across procedure contexts: from a scope,
//! only loops directly in it, and loops in those, are looked at.

use rustc_hash::{FxHashMap, FxHashSet};

use super::code_ranges::{CodeRange, Source};
use super::scope_tree::{Key, Node, ScopeTree};
use super::{SourceLocation, steps};

/// Applies both rules until nothing changes. `is_inferred`: of inlined code it is not known where it was called.
pub(super) fn normalise(tree: &mut ScopeTree, source: &Source, is_inferred: bool) {
    // Both are about what is in loops: most procedures have none.
    if !tree.nodes.iter().any(|node| node.key.is_loop()) {
        return;
    }
    // Each round joins loops or moves lines inwards. The bound is for cases that were not foreseen.
    for _ in 0..64 {
        let joined = fuse(tree, source);
        let moved = sink(tree, source, is_inferred);
        if !joined && !moved {
            return;
        }
    }
}

/// A line, or of one with several loops the part of one of them: see [`SameLines`](super::same_line::SameLines).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Line {
    location: SourceLocation,
    part: u32,
}

/// The lines that stand directly in each scope. Not those on which procedures
/// are opened: parameters are moved anywhere.
fn direct_lines(tree: &ScopeTree, source: &Source) -> Vec<FxHashSet<Line>> {
    let mut lines = vec![FxHashSet::default(); tree.nodes.len()];
    let is_body = |code_range: &CodeRange| {
        code_range.location.is_none_or(|location| !source.is_opening(code_range.context, location))
    };
    for (code_range, &scope) in
        source.code_ranges.iter().zip(&tree.scopes).filter(|(code_range, _)| is_body(code_range))
    {
        if let (Some(location), Some(lines)) = (code_range.location, lines.get_mut(scope as usize)) {
            lines.insert(Line { location, part: tree.same_lines.part_of(code_range) });
        }
    }
    lines
}

/// A line that stands in two loops side by side, and not around them, was in one: the compiler split it (unrolling,
/// peeling, vectors and what is left over). Whether any were.
fn fuse(tree: &mut ScopeTree, source: &Source) -> bool {
    let lines = direct_lines(tree, source);
    let mut joined = false;
    for parent in 0..tree.nodes.len() as u32 {
        let loops: Vec<u32> = tree.children(parent).filter(|&child| tree.is_loop(child)).collect();
        if loops.len() < 2 {
            continue;
        }
        // Of each line, the first loop with it.
        let mut first_with: FxHashMap<Line, u32> = FxHashMap::default();
        for &candidate in &loops {
            let own = tree.own_lines(candidate, &lines);
            for line in &own {
                if tree.is_line_around(parent, *line, &lines) {
                    continue;
                }
                let first = tree.now(*first_with.entry(*line).or_insert(candidate));
                let candidate = tree.now(candidate);
                if first != candidate {
                    tree.join(first, candidate);
                    joined = true;
                }
            }
        }
    }
    if joined {
        tree.settle();
    }
    joined
}

/// A line, or an inlined call, that stands in a loop and around it was in the loop: what does not vary there was moved
/// out, and a test is made once before it. The lines of loops around it stay: some of their code is often moved in.
/// Whether any was moved. Alien code may be of another call (Figure 5 of the paper), and stays.
fn sink(tree: &mut ScopeTree, source: &Source, is_inferred: bool) -> bool {
    let lines = direct_lines(tree, source);
    // For each scope, the deepest loop below it, through loops only, that a line or a call stands in.
    let mut below: Vec<FxHashMap<Held, u32>> = vec![FxHashMap::default(); tree.nodes.len()];
    for scope in tree.inner_first() {
        let mut found: FxHashMap<Held, u32> = FxHashMap::default();
        for child in tree.children(scope).filter(|&child| tree.is_loop(child)) {
            steps::take(1 + below.get(child as usize).map_or(0, FxHashMap::len));
            found.extend(below.get(child as usize).into_iter().flatten());
            for line in lines.get(child as usize).into_iter().flatten() {
                found.entry(Held::Line(*line)).or_insert(child);
            }
            for call in tree.calls_in(child) {
                found.entry(Held::Call(tree.nodes[call as usize].key)).or_insert(child);
            }
        }
        below[scope as usize] = found;
    }
    let mut moved = false;
    for (index, code_range) in source.code_ranges.iter().enumerate() {
        let Some((location, &scope)) = code_range.location.zip(tree.scopes.get(index)) else { continue };
        let line = Line { location, part: tree.same_lines.part_of(code_range) };
        if let Some(&deep) = below.get(scope as usize).and_then(|found| found.get(&Held::Line(line)))
            && !tree.is_test_around(scope, location)
        {
            tree.scopes[index] = deep;
            moved = true;
        }
    }
    let mut is_joined = false;
    for scope in 0..if is_inferred { 0 } else { below.len() as u32 } {
        for call in tree.calls_in(scope) {
            let key = tree.nodes[call as usize].key;
            let deep = below.get(scope as usize).and_then(|found| found.get(&Held::Call(key)));
            // Where the loop has become another's meanwhile, the next round sees it.
            let its = deep.filter(|&&deep| tree.is_there(deep)).and_then(|&deep| tree.child(deep, key));
            if let Some(its) = its {
                tree.join(its, call);
                is_joined = true;
            }
        }
    }
    if is_joined {
        tree.settle();
    }
    moved || is_joined
}

/// What stands once in the source.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Held {
    Line(Line),
    Call(Key),
}

impl ScopeTree {
    /// The scope that a scope is now: itself, or the one that it was joined with.
    fn now(&self, mut scope: u32) -> u32 {
        while let Some(joined) = self.joined.get(scope as usize).filter(|joined| joined.get() != scope) {
            steps::take(1);
            let further = self.joined.get(joined.get() as usize).map_or(scope, std::cell::Cell::get);
            joined.set(further);
            scope = further;
        }
        scope
    }

    /// It was not joined with another.
    fn is_there(&self, scope: u32) -> bool {
        self.joined.get(scope as usize).is_some_and(|joined| joined.get() == scope)
    }

    /// What is directly in a scope that is there.
    fn children(&self, scope: u32) -> impl Iterator<Item = u32> + '_ {
        let children = self.nodes.get(scope as usize).filter(|_| self.is_there(scope)).map(|node| &node.children);
        children.into_iter().flatten().copied().filter(|&child| self.is_there(child))
    }

    /// What is directly in a scope and has that key.
    fn child(&self, scope: u32, key: Key) -> Option<u32> {
        self.known.get(&(*self.indexed_under.get(scope as usize)?, key)).copied()
    }

    fn is_loop(&self, scope: u32) -> bool {
        self.nodes.get(scope as usize).is_some_and(|node| node.key.is_loop())
    }

    /// The inlined calls directly in a scope.
    fn calls_in(&self, scope: u32) -> Vec<u32> {
        self.children(scope).filter(|&child| !self.is_loop(child)).collect()
    }

    /// All scopes, each behind those in it.
    fn inner_first(&self) -> Vec<u32> {
        let mut order = vec![0];
        let mut next = 0;
        while let Some(&scope) = order.get(next) {
            order.extend(self.children(scope));
            next += 1;
        }
        order.reverse();
        order
    }

    /// The scope, and the loops around it in the same procedure context, the context itself last.
    fn outwards(&self, scope: u32) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(Some(scope), |&scope| {
            steps::take(1);
            self.is_loop(scope).then(|| self.now(self.nodes.get(scope as usize).map_or(0, |node| node.parent)))
        })
    }

    /// The line stands directly in the scope, or in a loop around it.
    fn is_line_around(&self, scope: u32, line: Line, lines: &[FxHashSet<Line>]) -> bool {
        self.outwards(scope).any(|around| lines.get(around as usize).is_some_and(|lines| lines.contains(&line)))
    }

    /// The scope is in a loop whose test stands in that line.
    fn is_test_around(&self, scope: u32, location: SourceLocation) -> bool {
        let is_test = |key: Key| matches!(key, Key::Loop(test, _) if test == location);
        self.outwards(scope).any(|around| self.nodes.get(around as usize).is_some_and(|node| is_test(node.key)))
    }

    /// The lines of a loop and of the loops in it, in order.
    fn own_lines(&self, scope: u32, lines: &[FxHashSet<Line>]) -> Vec<Line> {
        let mut found = Vec::new();
        let mut pending = vec![scope];
        while let Some(scope) = pending.pop() {
            found.extend(lines.get(scope as usize).into_iter().flatten());
            pending.extend(self.children(scope).filter(|&child| self.is_loop(child)));
        }
        steps::take(found.len());
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Makes `from`, of the same parent or of one further out, one with `into`, and what is in them where it is the
    /// same. Lists of children, and the scopes of code ranges, know of it when all is settled.
    fn join(&mut self, into: u32, from: u32) {
        let mut pending = vec![(into, from)];
        while let Some((into, from)) = pending.pop() {
            let Node { parent, key, address, is_irreducible, .. } = self.nodes[from as usize];
            let around = self.indexed_under[self.now(parent) as usize];
            if self.known.get(&(around, key)) == Some(&from) {
                self.known.remove(&(around, key));
            }
            self.joined[from as usize].set(into);
            let target = &mut self.nodes[into as usize];
            target.address = target.address.min(address);
            target.is_irreducible |= is_irreducible;
            let mut ours = std::mem::take(&mut self.nodes[into as usize].children);
            let mut theirs = std::mem::take(&mut self.nodes[from as usize].children);
            // The shorter list is added to the longer one, ours stay in front, and what is the same is kept as ours.
            let are_ours_fewer = ours.len() < theirs.len();
            steps::take(1 + ours.len().min(theirs.len()));
            if are_ours_fewer {
                self.indexed_under.swap(into as usize, from as usize);
            }
            let under = self.indexed_under[into as usize];
            let fewer = std::mem::take(if are_ours_fewer { &mut ours } else { &mut theirs });
            let fewer: Vec<u32> = fewer.into_iter().filter(|&child| self.is_there(child)).collect();
            for &child in fewer.iter() {
                let key = self.nodes[child as usize].key;
                match self.known.get(&(under, key)).copied() {
                    Some(same) if are_ours_fewer => {
                        self.known.insert((under, key), child);
                        pending.push((child, same));
                    }
                    Some(same) => pending.push((same, child)),
                    None => {
                        self.known.insert((under, key), child);
                        if !are_ours_fewer {
                            ours.push_back(child);
                        }
                    }
                }
            }
            if are_ours_fewer {
                fewer.iter().rev().for_each(|&child| theirs.push_front(child));
                ours = theirs;
            }
            self.nodes[into as usize].children = ours;
        }
    }

    /// Lets all know what was joined.
    fn settle(&mut self) {
        steps::take(self.nodes.len() + self.scopes.len());
        for scope in 0..self.nodes.len() as u32 {
            let parent = self.now(self.nodes[scope as usize].parent);
            let mut children = std::mem::take(&mut self.nodes[scope as usize].children);
            children.retain(|&child| self.is_there(child));
            self.nodes[scope as usize].parent = parent;
            self.nodes[scope as usize].children = children;
        }
        for index in 0..self.scopes.len() {
            self.scopes[index] = self.now(self.scopes[index]);
        }
    }
}

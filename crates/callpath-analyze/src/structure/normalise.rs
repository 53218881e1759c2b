//! What the compiler split or moved, put together again, as the source has it.
//! Knows nothing of machine code.
//!
//! Tallent et al. 2009, section 3.4: a line stands once in the source. Never across procedure contexts: from a scope, only
//! loops directly in it, and loops in those, are looked at.

use rustc_hash::{FxHashMap, FxHashSet};

use super::SourcePlace;
use super::atoms::{Atom, Source};
use super::weave::{Key, Woven};

/// Applies both rules until nothing changes. `is_inferred`: of inlined code it is not known where it was called.
pub(super) fn normalise(woven: &mut Woven, source: &Source, is_inferred: bool) {
    // Each turn joins loops or moves lines inwards: a bound against what nobody thought of.
    for _ in 0..64 {
        let joined = fuse(woven, source);
        let moved = sink(woven, source, is_inferred);
        if !joined && !moved {
            return;
        }
    }
}

/// The lines that stand directly in each scope. Not those on which procedures are opened: parameters are moved anywhere.
fn direct_lines(woven: &Woven, source: &Source) -> Vec<FxHashSet<SourcePlace>> {
    let mut lines = vec![FxHashSet::default(); woven.nodes.len()];
    let is_body = |atom: &Atom| atom.place.is_none_or(|place| !source.is_opening(atom.context, place));
    for (atom, &scope) in source.atoms.iter().zip(&woven.scopes).filter(|(atom, _)| is_body(atom)) {
        if let (Some(place), Some(lines)) = (atom.place, lines.get_mut(scope as usize)) {
            lines.insert(place);
        }
    }
    lines
}

/// A line that stands in two loops side by side, and not around them, was in one: the compiler split it (unrolling,
/// peeling, vectors and what is left over). Whether any were.
fn fuse(woven: &mut Woven, source: &Source) -> bool {
    let lines = direct_lines(woven, source);
    let mut joined = false;
    for parent in 0..woven.nodes.len() {
        let loops: Vec<u32> = woven.nodes[parent].children.iter().copied().filter(|&c| woven.is_loop(c)).collect();
        if loops.len() < 2 {
            continue;
        }
        // Of each line, the first loop with it; and of a loop that was joined, with which.
        let mut first_with: FxHashMap<SourcePlace, u32> = FxHashMap::default();
        let mut now: FxHashMap<u32, u32> = FxHashMap::default();
        for &candidate in &loops {
            let own = woven.own_lines(candidate, &lines);
            for line in &own {
                if woven.is_line_around(parent as u32, *line, &lines) {
                    continue;
                }
                let first = resolve(&now, *first_with.entry(*line).or_insert(candidate));
                let candidate = resolve(&now, candidate);
                if first != candidate {
                    woven.join(first, candidate);
                    now.insert(candidate, first);
                    joined = true;
                }
            }
        }
    }
    joined
}

fn resolve(now: &FxHashMap<u32, u32>, mut scope: u32) -> u32 {
    while let Some(&into) = now.get(&scope) {
        scope = into;
    }
    scope
}

/// A line, or an inlined call, that stands in a loop and around it was in the loop: what does not vary there was moved
/// out, and a test is made once before it. The lines of loops around it stay: some of their code is often moved in. Whether
/// any was moved. Alien code may be of another call (Figure 5 of the paper), and stays.
fn sink(woven: &mut Woven, source: &Source, is_inferred: bool) -> bool {
    let lines = direct_lines(woven, source);
    // For each scope, the deepest loop below it, through loops only, that a line or a call stands in.
    let mut below: Vec<FxHashMap<Held, u32>> = vec![FxHashMap::default(); woven.nodes.len()];
    for scope in woven.inner_first() {
        let mut found: FxHashMap<Held, u32> = FxHashMap::default();
        for &child in woven.nodes[scope as usize].children.iter().filter(|&&child| woven.is_loop(child)) {
            found.extend(below.get(child as usize).into_iter().flatten());
            for line in lines.get(child as usize).into_iter().flatten() {
                found.entry(Held::Line(*line)).or_insert(child);
            }
            for call in woven.calls_in(child) {
                found.entry(Held::Call(woven.nodes[call as usize].key)).or_insert(child);
            }
        }
        below[scope as usize] = found;
    }
    let mut moved = false;
    for (index, atom) in source.atoms.iter().enumerate() {
        let Some((place, &scope)) = atom.place.zip(woven.scopes.get(index)) else { continue };
        if let Some(&deep) = below.get(scope as usize).and_then(|found| found.get(&Held::Line(place)))
            && !woven.is_test_around(scope, place)
        {
            woven.scopes[index] = deep;
            moved = true;
        }
    }
    for scope in 0..if is_inferred { 0 } else { below.len() as u32 } {
        for call in woven.calls_in(scope) {
            let key = woven.nodes[call as usize].key;
            let deep = below.get(scope as usize).and_then(|found| found.get(&Held::Call(key)));
            let its =
                deep.and_then(|&deep| woven.calls_in(deep).into_iter().find(|&c| woven.nodes[c as usize].key == key));
            if let Some(its) = its {
                woven.join(its, call);
                moved = true;
            }
        }
    }
    moved
}

/// What stands once in the source.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Held {
    Line(SourcePlace),
    Call(Key),
}

impl Woven {
    fn is_loop(&self, scope: u32) -> bool {
        self.nodes.get(scope as usize).is_some_and(|node| node.key.is_loop())
    }

    /// The inlined calls directly in a scope.
    fn calls_in(&self, scope: u32) -> Vec<u32> {
        let children = self.nodes.get(scope as usize).map_or(&[][..], |node| &node.children);
        children.iter().copied().filter(|&child| !self.is_loop(child)).collect()
    }

    /// All scopes, each behind those in it.
    fn inner_first(&self) -> Vec<u32> {
        let mut order = vec![0];
        let mut next = 0;
        while let Some(&scope) = order.get(next) {
            order.extend(self.nodes.get(scope as usize).into_iter().flat_map(|node| &node.children));
            next += 1;
        }
        order.reverse();
        order
    }

    /// The scope, and the loops around it in the same procedure context, the context itself last.
    fn outwards(&self, scope: u32) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(Some(scope), |&scope| {
            self.is_loop(scope).then(|| self.nodes.get(scope as usize).map_or(0, |node| node.parent))
        })
    }

    /// The line stands directly in the scope, or in a loop around it.
    fn is_line_around(&self, scope: u32, place: SourcePlace, lines: &[FxHashSet<SourcePlace>]) -> bool {
        self.outwards(scope).any(|around| lines.get(around as usize).is_some_and(|lines| lines.contains(&place)))
    }

    /// The scope is in a loop whose test stands in that line.
    fn is_test_around(&self, scope: u32, place: SourcePlace) -> bool {
        let test = Key::Loop(place);
        self.outwards(scope).any(|around| self.nodes.get(around as usize).is_some_and(|node| node.key == test))
    }

    /// The lines of a loop and of the loops in it, in order.
    fn own_lines(&self, scope: u32, lines: &[FxHashSet<SourcePlace>]) -> Vec<SourcePlace> {
        let mut found = Vec::new();
        let mut pending = vec![scope];
        while let Some(scope) = pending.pop() {
            found.extend(lines.get(scope as usize).into_iter().flatten());
            let children = self.nodes.get(scope as usize).map_or(&[][..], |node| &node.children);
            pending.extend(children.iter().filter(|&&child| self.is_loop(child)));
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Makes `from`, of the same parent or of one further out, one with `into`, and what is in them where it is the same.
    fn join(&mut self, into: u32, from: u32) {
        let mut pending = vec![(into, from)];
        let mut now: FxHashMap<u32, u32> = FxHashMap::default();
        while let Some((into, from)) = pending.pop() {
            now.insert(from, into);
            let parent = self.nodes[from as usize].parent;
            self.nodes[parent as usize].children.retain(|&child| child != from);
            let (address, irreducible) = (self.nodes[from as usize].address, self.nodes[from as usize].is_irreducible);
            let target = &mut self.nodes[into as usize];
            target.address = target.address.min(address);
            target.is_irreducible |= irreducible;
            for child in self.nodes[from as usize].children.clone() {
                let key = self.nodes[child as usize].key;
                let same =
                    self.nodes[into as usize].children.iter().copied().find(|&c| self.nodes[c as usize].key == key);
                match same {
                    Some(same) => pending.push((same, child)),
                    None => {
                        self.nodes[child as usize].parent = into;
                        self.nodes[into as usize].children.push(child);
                    }
                }
            }
            self.nodes[from as usize].children.clear();
        }
        for scope in &mut self.scopes {
            while let Some(&into) = now.get(scope) {
                *scope = into;
            }
        }
    }
}

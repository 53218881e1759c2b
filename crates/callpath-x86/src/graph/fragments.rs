//! Joins fragments of code into procedures: a hot part, and the cold parts that only it leads to.
//!
//! A fragment begins a procedure if it is called, if its address is taken, or if a symbol names it. Any other belongs
//! to the procedure that it exchanges jumps with: a jump into the middle of a fragment stays in the procedure, while
//! one to its start may be a tail call.

use std::ops::Range;

use callpath_format::address::LinkAddr;

use crate::bitmap::Bitmap;
use crate::code::{ModuleCode, words_of_code};
use crate::code_map::{CodeMap, NOWHERE};
use crate::decode::Instructions;
use crate::graph::{FragmentKind, GraphInput};
use crate::sweep::{EventKind, Sweep};

/// Code of one procedure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct CodeFragment {
    pub(super) start: u32,
    pub(super) end: u32,
    /// Whether a procedure begins here.
    pub(super) is_entry: bool,
    /// Whether no procedure begins here.
    pub(super) is_part: bool,
    is_aligned: bool,
    /// Its bounds were given.
    pub(super) is_given: bool,
}

/// Code whose address is taken.
pub(super) struct Taken {
    /// Those whose addresses are in data.
    in_data: Bitmap,
    /// These, and those whose addresses an instruction takes.
    pub(super) all: Bitmap,
    /// Those of which nothing but single words in data tells: any number, or text, may look like an address.
    pub(super) by_chance: Bitmap,
}

impl Taken {
    pub(super) fn new(input: &GraphInput<'_>, code: &ModuleCode<'_>) -> Taken {
        let ModuleCode { code_map, sweep, .. } = code;
        let mut in_data = Bitmap::new(code_map.len());
        let pointers = input.code.pointers.iter().filter_map(|(_, to)| code_map.position(to.0));
        pointers.for_each(|at| _ = in_data.insert(at));
        let mut surely = in_data.clone();
        sweep.code_references.iter().for_each(|&at| _ = surely.insert(at));
        let words = if input.code.is_absolute { words_of_code(&input.code, code_map) } else { Vec::new() };
        words.iter().filter(|word| !word.is_alone).for_each(|word| _ = surely.insert(word.to));
        let mut by_chance = Bitmap::new(code_map.len());
        words.iter().filter(|word| !surely.get(word.to)).for_each(|word| _ = by_chance.insert(word.to));
        words.iter().for_each(|word| _ = in_data.insert(word.to));
        surely.insert_all(&in_data);
        Taken { in_data, all: surely, by_chance }
    }
}

/// The code, cut at the given bounds, and elsewhere where procedures seem to begin.
pub(super) fn code_fragments(input: &GraphInput<'_>, code: &ModuleCode<'_>, taken: &Taken) -> Vec<CodeFragment> {
    let ModuleCode { code_map, sweep, sure_starts: sure, .. } = code;
    let mut given: Vec<(Range<u32>, FragmentKind)> = Vec::new();
    for fragment in input.fragments {
        given.extend(code_map.positions(&fragment.code).into_iter().map(|range| (range, fragment.kind)));
    }
    given.sort_by_key(|(range, _)| (range.start, u32::MAX - range.end));
    given.dedup_by_key(|(range, _)| range.start);
    let is_called = |at: u32| sure.get(at) || (sweep.call_targets.get(at) && sweep.boundaries.get(at));
    let mut code_fragments = Vec::with_capacity(given.len());
    let mut push = |range: Range<u32>, kind: FragmentKind, is_given: bool| {
        let start = range.start;
        let is_part = kind == FragmentKind::Part && !sweep.call_targets.get(start);
        // An instruction may refer to data among the code.
        let is_taken = if is_given || input.fragments.is_empty() { &taken.all } else { &taken.in_data };
        let is_entry = !is_part && (kind == FragmentKind::Entry || is_called(start) || is_taken.get(start));
        let is_aligned = code_map.is_aligned(start);
        code_fragments.push(CodeFragment { start, end: range.end, is_entry, is_part, is_aligned, is_given });
    };
    // Cut inside where control does not fall through, or where a symbol names a procedure.
    let cuts = |range: Range<u32>| {
        let sure = sure.range(range.start + 1, range.end);
        let called = sweep.call_targets.range(range.start + 1, range.end);
        let mut cuts: Vec<u32> = called.filter(|&at| sweep.boundaries.get(at) && sweep.behind_ends.get(at)).collect();
        cuts.extend(sure);
        cuts.sort_unstable();
        cuts.dedup();
        cuts
    };
    let mut index = 0;
    for part in code_map.parts() {
        let mut at = part.first;
        while at < part.end() {
            let next = given.get(index).filter(|(range, _)| range.start < part.end());
            let (range, kind, is_given) = match next {
                Some((range, _)) if range.start < at => {
                    // It overlaps the one before.
                    index += 1;
                    if range.end <= at {
                        continue;
                    }
                    (at..range.end, FragmentKind::Unknown, true)
                }
                Some((range, kind)) if range.start == at => {
                    index += 1;
                    let end = given.get(index).map_or(range.end, |after| range.end.min(after.0.start));
                    (at..end, *kind, true)
                }
                _ => {
                    // Without given bounds: up to the next that are given, without the padding in front.
                    let end = next.map_or(part.end(), |(range, _)| range.start);
                    let from = behind_padding(code_map, at, end);
                    if from >= end {
                        at = end;
                        continue;
                    }
                    (from..end, FragmentKind::Unknown, false)
                }
            };
            let mut from = range.start;
            let mut kind = kind;
            for cut in cuts(range.clone()) {
                push(from..cut, kind, is_given);
                from = cut;
                kind = FragmentKind::Unknown;
            }
            push(from..range.end, kind, is_given);
            at = range.end;
        }
    }
    code_fragments
}

/// The first position from `at` on that is neither padding nor zero, or `end`.
fn behind_padding(code_map: &CodeMap<'_>, at: u32, end: u32) -> u32 {
    let Some(mut instructions) = Instructions::new(code_map, at) else { return end };
    loop {
        let at = instructions.position();
        if at >= end {
            return end;
        }
        let zeros = code_map.bytes(at).iter().take((end - at) as usize).take_while(|&&byte| byte == 0).count() as u32;
        if zeros >= 2 {
            if at + zeros >= end || !instructions.seek(at + zeros) {
                return end;
            }
            continue;
        }
        if !instructions.read().is_some_and(|instruction| instruction.is_padding()) {
            return at;
        }
    }
}

/// The index of the fragment that contains a position.
pub(super) fn index_at(code_fragments: &[CodeFragment], at: u32) -> Option<u32> {
    let index = code_fragments.partition_point(|fragment| fragment.start <= at).checked_sub(1)?;
    code_fragments.get(index).filter(|fragment| at < fragment.end).map(|_| index as u32)
}

/// How a fragment is linked with another, of which at least one begins a procedure.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Link {
    /// A jump into the middle, in either direction, or an exception that lands there.
    Inside,
    /// A jump to the start.
    Start,
}

/// The procedures, by ascending start of their first fragments: for each, its range in the list of fragments' indices.
pub(super) fn procedures(
    code_fragments: &[CodeFragment],
    sweep: &Sweep,
    landing_pads: &[(u32, u32, u32)],
) -> (Vec<Range<u32>>, Vec<u32>) {
    // Links between fragments, of which at least one begins no procedure: `(index, other index, kind)`.
    let mut links: Vec<(u32, u32, Link)> = Vec::new();
    let mut add = |from: u32, to: u32, target: u32| {
        let ends = (code_fragments.get(from as usize), code_fragments.get(to as usize));
        let (Some(source), Some(target_fragment)) = ends else { return };
        let how = if target == target_fragment.start { Link::Start } else { Link::Inside };
        // Code without given bounds may be data.
        let is_code = source.is_given || source.is_entry;
        if from == to
            || !is_code
            || (source.is_entry && target_fragment.is_entry)
            || (how == Link::Start && target_fragment.is_entry)
        {
            return;
        }
        links.push((from, to, how));
    };
    let mut source = 0;
    for event in &sweep.events {
        if !matches!(event.kind, EventKind::Branch | EventKind::Jump) || event.target == NOWHERE {
            continue;
        }
        while code_fragments.get(source).is_some_and(|fragment| fragment.end <= event.at) {
            source += 1;
        }
        let Some(fragment) = code_fragments.get(source).filter(|fragment| fragment.start <= event.at) else {
            continue;
        };
        if event.target >= fragment.start && event.target < fragment.end {
            continue;
        }
        if let Some(to) = index_at(code_fragments, event.target) {
            add(source as u32, to, event.target);
        }
    }
    for &(from, _, pad) in landing_pads {
        if let (Some(from), Some(to)) = (index_at(code_fragments, from), index_at(code_fragments, pad)) {
            // Also at its start: a landing pad is never called.
            add(from, to, if from == to { pad } else { NOWHERE });
        }
    }
    let mut owners = Owners::new(code_fragments);
    // Certain links first: jumps into the middle of a procedure. Twice, because parts lead to parts.
    let mut doubtful = Vec::new();
    for (from, to, how) in links {
        match how {
            Link::Inside => owners.join(from, to),
            Link::Start => doubtful.push((from, to)),
        }
    }
    doubtful.sort_unstable_by_key(|&(from, to)| (to, from));
    doubtful.dedup();
    for jumps in doubtful.chunk_by(|a, b| a.1 == b.1) {
        let to = jumps[0].1;
        let Some(fragment) = code_fragments.get(to as usize) else { continue };
        // A procedure that is entered by tail calls only looks like a cold part, but compilers align it.
        let mut sources: Vec<u32> = jumps.iter().map(|&(from, _)| owners.root(from)).collect();
        sources.sort_unstable();
        sources.dedup();
        if sources.len() == 1 && (fragment.is_part || !fragment.is_aligned) {
            owners.join(sources[0], to);
        }
    }
    owners.lists(code_fragments)
}

/// The fragments that belong together, by index: union-find, with at most one entry in each set.
struct Owners {
    parent: Vec<u32>,
    /// For a root: the fragment that begins the procedure.
    entry: Vec<u32>,
    /// For a root: the number of fragments.
    size: Vec<u32>,
}

impl Owners {
    fn new(code_fragments: &[CodeFragment]) -> Owners {
        let entry = |(index, fragment): (u32, &CodeFragment)| if fragment.is_entry { index } else { NOWHERE };
        Owners {
            parent: (0..code_fragments.len() as u32).collect(),
            entry: (0u32..).zip(code_fragments).map(entry).collect(),
            size: vec![1; code_fragments.len()],
        }
    }

    fn root(&mut self, mut of: u32) -> u32 {
        while self.parent[of as usize] != of {
            let above = self.parent[self.parent[of as usize] as usize];
            self.parent[of as usize] = above;
            of = above;
        }
        of
    }

    /// Joins two fragments into one procedure, unless both have one already: then they share code.
    fn join(&mut self, a: u32, b: u32) {
        let (a, b) = (self.root(a), self.root(b));
        let (of_a, of_b) = (self.entry[a as usize], self.entry[b as usize]);
        if a == b || (of_a != NOWHERE && of_b != NOWHERE) {
            return;
        }
        // Procedures have few fragments: no ranks are stored.
        self.parent[b as usize] = a;
        self.size[a as usize] += self.size[b as usize];
        self.entry[a as usize] = of_a.min(of_b);
    }

    /// For each procedure, a range of the list of its fragments.
    fn lists(&mut self, code_fragments: &[CodeFragment]) -> (Vec<Range<u32>>, Vec<u32>) {
        let roots: Vec<(u32, u32)> = (0..code_fragments.len() as u32)
            .map(|index| {
                let root = self.root(index);
                (root, index)
            })
            .collect();
        // If no fragment certainly begins the procedure, the likeliest is chosen.
        let mut firsts = vec![NOWHERE; code_fragments.len()];
        for &(root, index) in &roots {
            let likely = |index: u32| {
                code_fragments.get(index as usize).map(|fragment| (fragment.is_part, !fragment.is_aligned, index))
            };
            let first = &mut firsts[root as usize];
            *first = match self.entry[root as usize] {
                NOWHERE if *first == NOWHERE || likely(index) < likely(*first) => index,
                NOWHERE => *first,
                entry => entry,
            };
        }
        let mut keyed: Vec<(u32, bool, u32)> = Vec::with_capacity(roots.len());
        for (root, index) in roots {
            let first = firsts[root as usize];
            // Without bounds and without links: probably data.
            let alone = first == index && self.size[root as usize] == 1;
            if !alone
                || code_fragments.get(index as usize).is_some_and(|fragment| fragment.is_given || fragment.is_entry)
            {
                keyed.push((first, index != first, index));
            }
        }
        keyed.sort_unstable();
        let members: Vec<u32> = keyed.iter().map(|key| key.2).collect();
        let mut procedures = Vec::new();
        let mut from = 0;
        for same in keyed.chunk_by(|a, b| a.0 == b.0) {
            procedures.push(from..from + same.len() as u32);
            from += same.len() as u32;
        }
        (procedures, members)
    }
}

/// The addresses of a fragment.
pub(super) fn address_range(code_map: &CodeMap<'_>, fragment: &CodeFragment) -> Range<LinkAddr> {
    let start = code_map.address(fragment.start);
    start..LinkAddr(start.0 + u64::from(fragment.end - fragment.start))
}

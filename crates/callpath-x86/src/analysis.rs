//! The analysis of a module's code, from bytes to rows.
//! Knows nothing of how each of its steps works.

use std::ops::Range;
use std::sync::Arc;

use callpath_format::address::LinkAddr;
use callpath_format::recipe::Recipe;

use crate::bitmap::Bitmap;
use crate::bounds::Procedure;
use crate::claims::{Claims, Verdict};
use crate::idioms;
use crate::input::CodeInput;
use crate::module::{INSIDE, Module, first_where};
use crate::places::{Part, Places};
use crate::pool::{UNKNOWN, UNSEEN};
use crate::returns::Returns;
use crate::state::{RSP, State};
use crate::sweep::{Sweep, targets_of_known};
use crate::tables::Data;

/// From an address on, up to the next row, one recipe holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// The first address.
    pub start: LinkAddr,
    /// Index in [`CodeAnalysis::recipes`].
    pub recipe: u16,
}

/// What machine code says.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CodeAnalysis {
    /// By ascending address. Where nothing is known the recipe is [`Recipe::UNKNOWN`].
    pub rows: Vec<Row>,
    /// Distinct recipes.
    pub recipes: Vec<Recipe>,
    /// The DWARF expressions that recipes refer to, one behind the other.
    pub expressions: Vec<u8>,
    /// Procedures by ascending start.
    pub procedures: Vec<Procedure>,
    /// What was odd.
    pub diagnostics: Vec<CodeDiagnostic>,
    /// The code, bytes.
    pub code_bytes: u64,
}

/// Something odd in machine code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CodeDiagnostic {
    /// There is more code than can be analysed; what is beyond has no recipes.
    TooMuchCode,
    /// So many recipes more than have numbers; their code has none.
    SurplusRecipes(u64),
}

/// What the machine code of a module says of its frames.
///
/// Takes time and memory in proportion to the code's length: about 50 ns (more in hand-written code) and 9 bytes for
/// each byte.
pub fn analyse(input: &CodeInput<'_>) -> CodeAnalysis {
    let (module, is_cut) = analysed(input, &[]);
    module.finish(is_cut)
}

/// A claim of someone else's: in `code`, this recipe holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Claim {
    /// Where.
    pub code: Range<LinkAddr>,
    /// What.
    pub recipe: Recipe,
}

/// How the code stands to claims that are sorted and disjoint: a verdict for each instruction of claimed code that the
/// sweep finds, but padding that is not run through, with the instruction's address, the claim's index, and what the code says.
pub fn judge(input: &CodeInput<'_>, claims: &[Claim]) -> Vec<(LinkAddr, usize, Verdict, Recipe)> {
    let (module, _) = analysed(input, claims);
    let Some(judged) = &module.claims else { return Vec::new() };
    let mut verdicts = Vec::new();
    for (index, claim) in claims.iter().enumerate() {
        for range in module.places.positions(&claim.code) {
            for at in module.sweep.boundaries.range(range.start, range.end) {
                let verdict = judged.verdicts.get(at as usize).copied().unwrap_or(Verdict::Unseen);
                if verdict == Verdict::Unseen && module.padding_end(at) > at {
                    continue;
                }
                let number = module.recipes.get(at as usize).copied().filter(|&number| number != INSIDE);
                let recipe = module.pool.recipes.get(usize::from(number.unwrap_or(UNSEEN)));
                verdicts.push((module.places.address(at), index, verdict, recipe.copied().unwrap_or(Recipe::UNKNOWN)));
            }
        }
    }
    verdicts
}

fn analysed<'a>(input: &CodeInput<'a>, claims: &'a [Claim]) -> (Module<'a>, bool) {
    let (mut places, is_cut) = Places::new(input.code);
    let mut known = Bitmap::new(places.len());
    for range in input.known.iter().flat_map(|range| places.positions(range)) {
        known.insert_range(range.start, range.end);
    }
    let mut sure = Bitmap::new(places.len());
    let entry = input.entry.and_then(|entry| places.position(entry.0));
    for start in input.starts.iter().filter_map(|start| places.position(start.0)).chain(entry) {
        sure.insert(start);
    }
    let mut no_return_slots: Vec<u64> = input.no_return_slots.iter().map(|slot| slot.0).collect();
    no_return_slots.sort_unstable();
    let data = Data::new(input);
    let (sweep, decoded) = Sweep::new(&places, &known, &sure, &no_return_slots, &data);
    places.decoded = Arc::new(decoded);
    let returns = Returns::new(&sweep.events, places.len());
    let mut starts = sure.clone();
    for target in sweep.call_targets.range(0, places.len()) {
        if sweep.boundaries.get(target) {
            starts.insert(target);
        }
    }
    let mut from_known = Bitmap::new(places.len());
    if !input.known.is_empty() {
        targets_of_known(&places, &known, &mut from_known);
    }
    let mut pointed: Vec<u32> = input.pointers.iter().filter_map(|(_, to)| places.position(to.0)).collect();
    pointed.extend(&sweep.code_references);
    if input.is_absolute {
        pointed.extend(words_of_code(input, &places));
    }
    pointed.sort_unstable();
    pointed.dedup();

    let mut module = Module::new(places, data, sweep, returns, known, starts, no_return_slots);
    if !claims.is_empty() {
        let mut rows = Vec::new();
        for claim in claims {
            for range in module.places.positions(&claim.code) {
                rows.push((range.start, Some(&claim.recipe)));
                rows.push((range.end, None));
            }
        }
        // Where one claim ends and the next begins, the beginning holds: it was pushed last.
        rows.sort_by_key(|row| row.0);
        rows.dedup_by(|later, earlier| {
            let same = later.0 == earlier.0;
            if same {
                earlier.1 = later.1.or(earlier.1);
            }
            same
        });
        module.claims = Some(Claims::new(rows, module.places.len()));
    }
    for &at in &pointed {
        module.pointed.insert(at);
    }
    module.signal_returns();
    if let Some(entry) = entry {
        let mut state = State::at_entry();
        state.is_outermost = true;
        state.set(RSP, crate::value::Value::Unknown, entry);
        module.follow(entry, state);
    }
    let len = module.places.len();
    module.found = module.starts.range(0, len).collect();
    module.found.extend(from_known.range(0, len));
    module.found.reverse();
    // Control does not run over those either.
    for &at in &pointed {
        if module.is_credible_start(at) && module.begins_probably(at) {
            module.find(at);
        }
    }
    module.follow_found();
    for at in pointed {
        if module.is_credible_start(at) {
            module.pointed_code(at);
        }
    }
    module.fill_gaps();
    (module, is_cut)
}

/// The words in data that are addresses of code, where nobody relocates them.
pub(crate) fn words_of_code(input: &CodeInput<'_>, places: &Places<'_>) -> Vec<u32> {
    let mut found = Vec::new();
    for (start, bytes) in input.data.iter().filter(|(start, _)| places.position(start.0).is_none()) {
        let skipped = start.0.wrapping_neg() as usize % 8;
        for word in bytes.get(skipped..).unwrap_or(&[]).chunks_exact(8) {
            let word = word.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
            found.extend(places.position(word));
        }
    }
    found
}

impl Module<'_> {
    /// Finds the code that signal handlers return to.
    fn signal_returns(&mut self) {
        let recipe = self.pool.intern(&idioms::signal_frame());
        let parts: Vec<Part<'_>> = self.places.parts().to_vec();
        for part in parts {
            for offset in idioms::system_calls(part.bytes) {
                // `syscall` ends both forms.
                for len in [9, 7] {
                    let Some(start) = (offset + 2).checked_sub(len) else { continue };
                    let form = part.bytes.get(start..offset + 2).unwrap_or(&[]);
                    if idioms::signal_return(form) != Some(len) {
                        continue;
                    }
                    let at = part.first + start as u32;
                    // A return address is looked up by the byte before it.
                    for marked in
                        (at.saturating_sub(1).max(part.first)..at + len as u32).filter(|&at| !self.known.get(at))
                    {
                        if let Some(place) = self.recipes.get_mut(marked as usize) {
                            *place = recipe;
                        }
                    }
                    break;
                }
            }
        }
    }

    /// A place whose address is taken, where a procedure may begin: not in the middle of other code.
    fn is_credible_start(&self, at: u32) -> bool {
        if self.is_seen(at) || !self.sweep.boundaries.get(at) || !self.sweep.behind_ends.get(at) {
            return false;
        }
        self.places.is_aligned(at)
            || self.places.bytes(at).starts_with(&[0xf3, 0x0f, 0x1e, 0xfa])
            || !self.sweep.jump_targets.get(at)
    }

    fn finish(mut self, is_cut: bool) -> CodeAnalysis {
        let mut analysis = CodeAnalysis {
            recipes: std::mem::take(&mut self.pool.recipes),
            expressions: std::mem::take(&mut self.pool.expressions.bytes),
            ..CodeAnalysis::default()
        };
        for part in self.places.parts() {
            let mut last = None;
            let mut at = part.first;
            let of = |number: u16| if number == UNKNOWN { UNSEEN } else { number };
            loop {
                let rest = self.recipes.get(at as usize..part.end() as usize).unwrap_or(&[]);
                let held = last.unwrap_or(INSIDE);
                let begins = |number: u16| (number != INSIDE) & (of(number) != held);
                let Some(skipped) = first_where(rest, begins) else { break };
                at += skipped as u32;
                let here = self.recipes.get(at as usize).copied().unwrap_or(UNSEEN);
                // Nobody runs through padding: what held before it may go on.
                let padding_end = if here == UNSEEN && last.is_some() { self.padding_end(at) } else { at };
                let is_unclaimed = |range: Range<u32>| range.into_iter().all(|at| !self.is_seen(at));
                if padding_end > at
                    && padding_end < part.end()
                    && self.is_seen(padding_end)
                    && is_unclaimed(at..padding_end)
                {
                    at = padding_end;
                    continue;
                }
                let recipe = of(here);
                analysis.rows.push(Row { start: LinkAddr(part.start.0 + u64::from(at - part.first)), recipe });
                last = Some(recipe);
                at += 1;
            }
            analysis.code_bytes += u64::from(part.end() - part.first);
        }
        for start in self.starts.range(0, self.places.len()) {
            let next = self.starts.next(start + 1, self.places.len()).unwrap_or(self.places.len());
            let end = self.places.part(start).map_or(next, |part| next.min(part.end()));
            analysis.procedures.push(Procedure {
                code: self.places.address(start)..LinkAddr(self.places.address(start).0 + u64::from(end - start)),
            });
        }
        if is_cut {
            analysis.diagnostics.push(CodeDiagnostic::TooMuchCode);
        }
        if self.pool.surplus > 0 {
            analysis.diagnostics.push(CodeDiagnostic::SurplusRecipes(self.pool.surplus));
        }
        analysis
    }
}

/// For fuzzing: whatever the bytes are, the analysis ends, and its rows are in order.
#[doc(hidden)]
pub fn fuzz_code(bytes: &[u8]) {
    let base = LinkAddr(0x1000);
    let (hints, code) = bytes.split_at(bytes.len().min(8));
    let word = hints.first_chunk().map_or(0, |hint| u64::from_le_bytes(*hint));
    let place = |shift: u32| LinkAddr(0x1000 + (word >> shift & 0xfff));
    let slices = [(base, code)];
    let analysis = analyse(&CodeInput {
        code: &slices,
        data: &slices,
        pointers: &[(place(0), place(12))],
        is_absolute: word & 1 != 0,
        entry: Some(place(24)),
        starts: &[place(36)],
        known: &[place(4)..place(16)],
        no_return_slots: &[place(48)],
    });
    assert!(analysis.rows.is_sorted_by(|a, b| a.start < b.start));
    assert!(analysis.rows.iter().all(|row| usize::from(row.recipe) < analysis.recipes.len()));
}

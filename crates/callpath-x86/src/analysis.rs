//! Analyses a module's code, from bytes to rows of recipes.

use std::ops::Range;

use callpath_format::address::LinkAddr;
use callpath_format::recipe::Recipe;

use crate::bitmap::Bitmap;
use crate::bounds::Procedure;
use crate::code::{ModuleCode, words_of_code};
use crate::code_map::{CodeMap, NOWHERE};
use crate::cross_validation::{CrossValidation, Evidence};
use crate::frames::Frames;
use crate::frames::gaps::{Gaps, begins_probably};
use crate::frames::knowledge::Knowledge;
use crate::frames::pool::{UNKNOWN, UNSEEN};
use crate::frames::recipe_map::{INSIDE, first_where};
use crate::idioms::signal_return;
use crate::input::CodeInput;
use crate::instruction::Operation;
use crate::state::{RSP, State};
use crate::sweep::targets_of_known;
use crate::value::Value;

/// Code that one recipe holds for: from `start` to the next row's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// Its first address.
    pub start: LinkAddr,
    /// Index in [`CodeAnalysis::recipes`].
    pub recipe: u16,
}

/// The recipes and procedures found in machine code.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CodeAnalysis {
    /// By ascending address. Code without a known frame has [`Recipe::UNKNOWN`].
    pub rows: Vec<Row>,
    /// Distinct recipes.
    pub recipes: Vec<Recipe>,
    /// The DWARF expressions that recipes refer to, concatenated.
    pub expressions: Vec<u8>,
    /// Procedures by ascending start.
    pub procedures: Vec<Procedure>,
    /// What was odd in the code.
    pub diagnostics: Vec<CodeDiagnostic>,
    /// The length of the code, bytes.
    pub code_bytes: u64,
}

/// Something odd in machine code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CodeDiagnostic {
    /// There is more code than can be analysed; the excess has no recipes.
    TooMuchCode,
    /// This many recipes did not fit into the row's index; their code has none.
    SurplusRecipes(u64),
}

/// Finds a module's recipes and procedures in its machine code.
///
/// Takes time and memory in proportion to the code's length: about 50 ns (more in hand-written code) and 9 bytes for
/// each byte.
pub fn analyse(input: &CodeInput<'_>) -> CodeAnalysis {
    rows_of(analysed(input, &[]))
}

/// A row of call frame information: `recipe` holds in `code`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CfiRecipe {
    /// The code's addresses.
    pub code: Range<LinkAddr>,
    /// The recipe.
    pub recipe: Recipe,
}

/// Compares the code with `cfi_recipes`, which are sorted and disjoint. The result has each instruction in their code
/// that the sweep finds, except padding that does not run: its address, the row's index, the evidence, and the recipe
/// that the code shows.
pub fn cross_validate(input: &CodeInput<'_>, cfi_recipes: &[CfiRecipe]) -> Vec<(LinkAddr, usize, Evidence, Recipe)> {
    let known = analysed(input, cfi_recipes);
    let Some(validated) = &known.cross_validation else { return Vec::new() };
    let mut results = Vec::new();
    for (index, cfi_recipe) in cfi_recipes.iter().enumerate() {
        for range in known.code.code_map.positions(&cfi_recipe.code) {
            for at in known.code.sweep.boundaries.range(range.start, range.end) {
                let evidence = validated.results.get(at as usize).copied().unwrap_or(Evidence::Unseen);
                if evidence == Evidence::Unseen && known.code.padding_end(at, NOWHERE) > at {
                    continue;
                }
                let recipe = known.recipes.known_at(at).copied().unwrap_or(Recipe::UNKNOWN);
                results.push((known.code.code_map.address(at), index, evidence, recipe));
            }
        }
    }
    results
}

/// Runs all phases of the analysis and returns what is known at the end.
fn analysed<'a>(input: &CodeInput<'a>, cfi_recipes: &'a [CfiRecipe]) -> Knowledge<'a> {
    let code = ModuleCode::read(input, []);
    let code_map = &code.code_map;
    let mut from_known = Bitmap::new(code_map.len());
    if !input.known.is_empty() {
        targets_of_known(code_map, &code.known, &mut from_known);
    }
    let mut pointed: Vec<u32> = input.pointers.iter().filter_map(|(_, to)| code_map.position(to.0)).collect();
    pointed.extend(&code.sweep.code_references);
    if input.is_absolute {
        pointed.extend(words_of_code(input, code_map).into_iter().map(|word| word.to));
    }
    pointed.sort_unstable();
    pointed.dedup();
    let entry = input.entry.and_then(|entry| code_map.position(entry.0));

    let mut known = Knowledge::new(code, &pointed);
    known.cross_validation = cross_validation_of(&known.code.code_map, cfi_recipes);
    mark_signal_returns(&mut known);
    let mut frames = Frames::new(known);
    if let Some(entry) = entry {
        let mut state = State::at_entry();
        state.is_outermost = true;
        state.set(RSP, Value::Unknown, entry);
        frames.follow(entry, state);
    }
    let len = frames.known.code.code_map.len();
    let begins = &mut frames.known.begins;
    begins.unfollowed = begins.starts.range(0, len).collect();
    begins.unfollowed.extend(from_known.range(0, len));
    begins.unfollowed.reverse();
    // Control does not run over those either.
    for &at in &pointed {
        if is_credible_start(&frames.known, at) && begins_probably(&frames.known.code.code_map, at) {
            frames.known.find(at);
        }
    }
    frames.follow_starts();
    let mut gaps = Gaps::new(&mut frames);
    for at in pointed {
        if is_credible_start(gaps.known(), at) {
            gaps.pointed_code(at);
        }
    }
    gaps.fill();
    frames.known
}

/// The recipes to check, by position. `None`: there are none.
fn cross_validation_of<'a>(code_map: &CodeMap<'_>, cfi_recipes: &'a [CfiRecipe]) -> Option<CrossValidation<'a>> {
    if cfi_recipes.is_empty() {
        return None;
    }
    let mut rows = Vec::new();
    for cfi_recipe in cfi_recipes {
        for range in code_map.positions(&cfi_recipe.code) {
            rows.push((range.start, Some(&cfi_recipe.recipe)));
            rows.push((range.end, None));
        }
    }
    // Where one row ends and the next begins, the beginning holds: it was pushed last.
    rows.sort_by_key(|row| row.0);
    rows.dedup_by(|later, earlier| {
        let same = later.0 == earlier.0;
        if same {
            earlier.1 = later.1.or(earlier.1);
        }
        same
    });
    Some(CrossValidation::new(rows, code_map.len()))
}

/// Marks the code that signal handlers return to.
fn mark_signal_returns(known: &mut Knowledge<'_>) {
    let recipe = known.recipes.pool.intern(&signal_return::recipe());
    for part in known.code.code_map.parts() {
        for found in signal_return::find(part.bytes) {
            let (from, to) = (part.first + found.start as u32, part.first + found.end as u32);
            // A return address is looked up by the byte before it.
            let marked = from.saturating_sub(1).max(part.first)..to;
            for marked in marked.filter(|&at| !known.code.known.get(at)) {
                if let Some(number) = known.recipes.numbers.get_mut(marked as usize) {
                    *number = recipe;
                }
            }
        }
    }
}

/// Whether a procedure may begin at a position whose address is taken: not in the middle of other code.
fn is_credible_start(known: &Knowledge<'_>, at: u32) -> bool {
    let code = &known.code;
    if known.recipes.is_seen(at) || !code.sweep.boundaries.get(at) || !code.sweep.behind_ends.get(at) {
        return false;
    }
    code.code_map.is_aligned(at)
        || code.instruction_at(at).is_some_and(|instruction| instruction.operation() == Operation::EndBranch)
        || !known.begins.jump_targets.get(at)
}

/// Converts what is known to rows by address.
fn rows_of(known: Knowledge<'_>) -> CodeAnalysis {
    let Knowledge { code, begins, recipes, .. } = known;
    let mut analysis = CodeAnalysis::default();
    let mut reader = None;
    for part in code.code_map.parts() {
        let mut last = None;
        let mut at = part.first;
        let of = |number: u16| if number == UNKNOWN { UNSEEN } else { number };
        loop {
            let rest = recipes.numbers.get(at as usize..part.end() as usize).unwrap_or(&[]);
            let held = last.unwrap_or(INSIDE);
            let begins = |number: u16| (number != INSIDE) & (of(number) != held);
            let Some(skipped) = first_where(rest, begins) else { break };
            at += skipped as u32;
            let here = recipes.numbers.get(at as usize).copied().unwrap_or(UNSEEN);
            // Padding does not run: the recipe before it may continue.
            let padding_end =
                if here == UNSEEN && last.is_some() { code.padding_end_by(&mut reader, at, NOWHERE) } else { at };
            if padding_end > at
                && padding_end < part.end()
                && recipes.is_seen(padding_end)
                && recipes.next_seen(at, padding_end) == padding_end
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
    let len = code.code_map.len();
    for start in begins.starts.range(0, len) {
        let next = begins.starts.next(start + 1, len).unwrap_or(len);
        let end = code.code_map.part(start).map_or(next, |part| next.min(part.end()));
        let address = code.code_map.address(start);
        analysis.procedures.push(Procedure { code: address..LinkAddr(address.0 + u64::from(end - start)) });
    }
    if code.is_cut {
        analysis.diagnostics.push(CodeDiagnostic::TooMuchCode);
    }
    if recipes.pool.surplus > 0 {
        analysis.diagnostics.push(CodeDiagnostic::SurplusRecipes(recipes.pool.surplus));
    }
    analysis.recipes = recipes.pool.recipes;
    analysis.expressions = recipes.pool.expressions.bytes;
    analysis
}

/// For fuzzing: on any bytes the analysis ends, and its rows are in order.
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
        constant: &[],
        is_absolute: word & 1 != 0,
        entry: Some(place(24)),
        starts: &[place(36)],
        known: &[place(4)..place(16)],
        no_return_slots: &[place(48)],
    });
    assert!(analysis.rows.is_sorted_by(|a, b| a.start < b.start));
    assert!(analysis.rows.iter().all(|row| usize::from(row.recipe) < analysis.recipes.len()));
}

//! Combines the recipes from all sources of a module into one table.

use std::ops::Range;

use callpath_format::address::LinkAddr;
use callpath_format::recipe::{Packed, Recipe};
use callpath_image::cfi::{CallFrames, CfiSection};

use super::encode::{self, encode};
use super::pool::RecipePool;
use super::spans::{Contribution, Span, change_within, flatten, overlay};
use super::table_build::{RecipeDiagnostic, TableBuild, TableStats};

/// The source of a recipe. Where two sources cover the same code, the first one here wins; where it has no recipe, the
/// next one is used.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Origin {
    /// Code that runs on another stack than its caller, followed by its values.
    StackSwitch,
    /// Code at which stacks begin, which call frame information does not show.
    Start,
    /// The machine code of procedures that compilers often describe wrongly in call frame information.
    CodeOverFrames,
    /// `.eh_frame`, by which programs themselves unwind.
    EhFrame,
    /// `.debug_frame`, which only debuggers read.
    DebugFrame,
    /// The image's entry point, which has no caller.
    Entry,
    /// The machine code.
    Code,
}

impl Origin {
    const ALL: [Origin; 7] = [
        Origin::StackSwitch,
        Origin::Start,
        Origin::CodeOverFrames,
        Origin::EhFrame,
        Origin::DebugFrame,
        Origin::Entry,
        Origin::Code,
    ];
}

/// A recipe that was added to a builder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecipeRef(u32);

impl RecipeRef {
    /// [`Recipe::UNKNOWN`] in every builder.
    pub const UNKNOWN: RecipeRef = RecipeRef(RecipePool::UNKNOWN);
}

/// Collects recipes from all sources of a module's code, in any order, and builds a table.
///
/// Rows come in contributions, one for each FDE or analysed procedure. The result does not depend on the order of
/// contributions of different origins. Among overlapping contributions of one origin the one that begins last wins; of
/// those that begin together, the one added first.
pub struct RecipeTableBuilder {
    pub(super) regions: Vec<Range<LinkAddr>>,
    pub(super) pool: RecipePool,
    rows: Vec<(u64, u32)>,
    contributions: [Vec<Contribution>; Origin::ALL.len()],
    /// Code with pinned frames, or whose callees' frames are pinned: `Packed::PINNED`, `Packed::PINS_CALLEE`,
    /// `Packed::TAIL_CALLS_ANY`.
    pub(super) pinned: Vec<(Range<LinkAddr>, u16)>,
    /// Code with call frame information that is known to be wrong.
    ignored: Vec<Range<u64>>,
    /// Whether `pinned` is complete.
    pub(super) knows_pinned: bool,
}

impl RecipeTableBuilder {
    /// A builder for these executable ranges, in any order. Overlapping ones are joined.
    pub fn new(mut regions: Vec<Range<LinkAddr>>) -> RecipeTableBuilder {
        regions.retain(|region| region.start < region.end);
        regions.sort_by_key(|region| region.start);
        let mut joined: Vec<Range<LinkAddr>> = Vec::with_capacity(regions.len());
        for region in regions {
            match joined.last_mut() {
                Some(last) if region.start <= last.end => last.end = last.end.max(region.end),
                _ => joined.push(region),
            }
        }
        RecipeTableBuilder {
            regions: joined,
            pool: RecipePool::new(),
            rows: Vec::new(),
            contributions: Default::default(),
            pinned: Vec::new(),
            ignored: Vec::new(),
            knows_pinned: false,
        }
    }

    /// Adds a recipe whose expressions are in `expressions`. A recipe with an expression outside them is unknown.
    pub fn recipe(&mut self, recipe: &Recipe, expressions: &[u8]) -> RecipeRef {
        RecipeRef(self.pool.intern(recipe, expressions))
    }

    /// Adds the rows of `origin` for `code`, in ascending order, each valid up to the next or the end. A row that
    /// begins before the previous one, or outside `code`, is ignored. Code before the first row is unknown.
    pub fn add(
        &mut self,
        origin: Origin,
        code: Range<LinkAddr>,
        rows: impl IntoIterator<Item = (LinkAddr, RecipeRef)>,
    ) {
        let first = self.rows.len();
        for (start, recipe) in rows {
            if !code.contains(&start) {
                continue;
            }
            if self.rows.len() == first && code.start < start {
                self.rows.push((code.start.0, RecipePool::UNKNOWN));
            }
            match self.rows.get_mut(first..).and_then(|rows| rows.last_mut()) {
                Some(last) if last.0 == start.0 => last.1 = recipe.0,
                Some(last) if last.0 > start.0 => {}
                _ => self.rows.push((start.0, recipe.0)),
            }
        }
        let contribution = Contribution { start: code.start.0, end: code.end.0, rows: first..self.rows.len() };
        self.contributions[origin as usize].push(contribution);
    }

    /// Adds all rows of call frame information.
    pub fn add_call_frames(&mut self, frames: &CallFrames) {
        let recipes: Vec<u32> =
            frames.recipes.iter().map(|recipe| self.pool.intern(recipe, &frames.expressions)).collect();
        let recipe_of = |index: u32| RecipeRef(recipes.get(index as usize).copied().unwrap_or(RecipePool::UNKNOWN));
        self.rows.reserve(frames.rows.len());
        for range in &frames.ranges {
            let origin = match range.section {
                CfiSection::EhFrame | CfiSection::EhFrameHdr => Origin::EhFrame,
                CfiSection::DebugFrame => Origin::DebugFrame,
            };
            let rows = frames.rows_of(range).iter().map(|row| (row.start, recipe_of(row.recipe)));
            self.add(origin, range.code.clone(), rows);
        }
    }

    /// Ignores call frame information for `code`.
    pub(super) fn ignore_call_frames(&mut self, code: &Range<LinkAddr>) {
        self.ignored.push(code.start.0..code.end.0);
    }

    /// The number of contributions from all sources. 0 after `spans`.
    pub(super) fn contribution_count(&self) -> usize {
        self.contributions.iter().map(Vec::len).sum()
    }

    /// Combines all sources into spans.
    pub(super) fn spans(&mut self) -> Vec<Span> {
        let mut spans = Vec::new();
        for (origin, contributions) in Origin::ALL.into_iter().zip(std::mem::take(&mut self.contributions)) {
            let mut of_origin = flatten(contributions, &self.rows, RecipePool::UNKNOWN);
            if matches!(origin, Origin::EhFrame | Origin::DebugFrame) && !self.ignored.is_empty() {
                of_origin = change_within(of_origin, self.ignored.clone(), |_| RecipePool::UNKNOWN);
                of_origin.retain(|span| span.recipe != RecipePool::UNKNOWN);
            }
            if origin != Origin::EhFrame {
                for span in &mut of_origin {
                    span.recipe = self.pool.with_bits(span.recipe, Packed::INFERRED);
                }
            }
            spans = overlay(spans, of_origin);
        }
        spans
    }

    /// Builds the table.
    pub fn finish(mut self) -> TableBuild {
        let contribution_count = self.contribution_count();
        let spans = self.spans();
        self.encode(spans, contribution_count)
    }

    pub(super) fn encode(mut self, mut spans: Vec<Span>, contribution_count: usize) -> TableBuild {
        for bit in [Packed::PINNED, Packed::PINS_CALLEE, Packed::TAIL_CALLS_ANY] {
            let code =
                self.pinned.iter().filter(|pinned| pinned.1 == bit).map(|pinned| pinned.0.start.0..pinned.0.end.0);
            spans = change_within(spans, code.collect(), |recipe| self.pool.with_bits(recipe, bit));
        }
        let mut diagnostics = Vec::new();
        let encoded = encode(&self.regions, &spans, &self.pool, self.knows_pinned).unwrap_or_else(|| {
            diagnostics.push(RecipeDiagnostic::TooLong);
            encode::empty()
        });
        if encoded.surplus_recipes > 0 {
            diagnostics.push(RecipeDiagnostic::SurplusRecipes(encoded.surplus_recipes));
        }
        let rows = encoded.header.rows;
        let stats = TableStats {
            code_bytes: self
                .regions
                .iter()
                .fold(0, |sum: u64, region| sum.saturating_add(region.end.0 - region.start.0)),
            covered_bytes: encoded.covered_bytes,
            table_bytes: encoded.bytes.len() as u64,
            rows: rows.into(),
            recipes: encoded.recipes.into(),
            wide_recipes: encoded.wide_recipes.into(),
            contributions: contribution_count as u64,
            diagnostics: diagnostics.len() as u64,
        };
        TableBuild { bytes: encoded.bytes, diagnostics, stats, from_cache: false }
    }
}

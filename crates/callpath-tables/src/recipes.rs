//! Recipe tables: what is known of a module's frames, from all sources, laid into one table.
//! Knows nothing of what the sources looked at, and of processes.

mod encode;
mod inner;
mod kept;
pub(crate) mod machine_code;
mod pool;
mod spans;
pub mod starts;
pub mod written;

use std::fmt;
use std::ops::Range;

use callpath_format::address::LinkAddr;
use callpath_format::recipe::{Cfa, Packed, Recipe};
use callpath_format::table::{RecipeId, Table};
use callpath_image::cfi::{CallFrames, CfiDiagnostic, CfiSection, FrameEntries};
use callpath_image::elf::Image;

use encode::encode;
pub use machine_code::{Disagreement, Verdict, compare, disagreements, procedures};
use pool::RecipePool;
use spans::{Piece, Span, change_within, flatten, overlay};

/// Who says so. Where two sources speak of the same code, the one that comes first here is believed; where it says
/// that it does not know, the next one is asked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Origin {
    /// Code that begins a stack, which call frame information does not tell.
    Start,
    /// The machine code of procedures whose call frame information compilers often get wrong.
    CodeOverFrames,
    /// `.eh_frame`, which programs themselves unwind by.
    EhFrame,
    /// `.debug_frame`, which only debuggers read.
    DebugFrame,
    /// The image's entry point, which nobody calls.
    Entry,
    /// The machine code itself.
    Code,
}

impl Origin {
    const ALL: [Origin; 6] =
        [Origin::Start, Origin::CodeOverFrames, Origin::EhFrame, Origin::DebugFrame, Origin::Entry, Origin::Code];
}

/// What goes into a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecipeOptions {
    /// Read `.debug_frame` where `.eh_frame` is silent.
    pub debug_frame: bool,
    /// Read call frame information at all. Without it (and without local symbols) a module is analysed as if it were
    /// fully stripped.
    pub call_frames: bool,
    /// Analyse machine code where call frame information is silent.
    pub machine_code: bool,
}

impl Default for RecipeOptions {
    fn default() -> RecipeOptions {
        RecipeOptions { debug_frame: true, call_frames: true, machine_code: true }
    }
}

/// A recipe that a builder knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecipeRef(u32);

impl RecipeRef {
    /// [`Recipe::UNKNOWN`] in every builder.
    pub const UNKNOWN: RecipeRef = RecipeRef(RecipePool::UNKNOWN);
}

/// A table, and what is to be said of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TableBuild {
    /// The table (`callpath_format::table`).
    pub bytes: Vec<u8>,
    /// What was odd. Empty if the table comes from the cache: see [`TableStats::diagnostics`].
    pub diagnostics: Vec<RecipeDiagnostic>,
    /// Figures.
    pub stats: TableStats,
    /// It was made earlier, and is valid still.
    pub from_cache: bool,
}

/// Figures of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TableStats {
    /// Executable code, bytes.
    pub code_bytes: u64,
    /// Code that has a recipe, bytes.
    pub covered_bytes: u64,
    /// The table, bytes.
    pub table_bytes: u64,
    /// Rows.
    pub rows: u64,
    /// Distinct recipes.
    pub recipes: u64,
    /// Those of them that are not packed.
    pub wide_recipes: u64,
    /// FDEs, or procedures of other sources, that speak of executable code.
    pub pieces: u64,
    /// What was odd when the table was made.
    pub diagnostics: u64,
}

/// Something odd that was met on the way to a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RecipeDiagnostic {
    /// In call frame information.
    Cfi(CfiDiagnostic),
    /// Call frame information has so many more oddities than are named.
    CfiLeftOut(u64),
    /// So many recipes more than a table can name: their code has none.
    SurplusRecipes(u64),
    /// Executable ranges add up to more than the file can account for: code from this address on has no recipes.
    TooMuchCode(LinkAddr),
    /// The table would be longer than 4 GiB: it is empty.
    TooLong,
    /// A cached table could not be used, and was made again.
    Cache(crate::table_cache::CacheTrouble),
}

impl fmt::Display for RecipeDiagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecipeDiagnostic::Cfi(diagnostic) => diagnostic.fmt(f),
            RecipeDiagnostic::CfiLeftOut(count) => write!(f, "{count} more oddities in call frame information"),
            RecipeDiagnostic::SurplusRecipes(count) => {
                write!(f, "{count} distinct recipes more than a table can name; their code has none")
            }
            RecipeDiagnostic::TooMuchCode(from) => {
                write!(f, "executable segments claim more than the file holds; no recipes from {from} on")
            }
            RecipeDiagnostic::TooLong => write!(f, "the recipe table would be longer than 4 GiB; there is none"),
            RecipeDiagnostic::Cache(trouble) => trouble.fmt(f),
        }
    }
}

/// Collects what sources say of a module's code, in any order, and makes a table of it.
///
/// Rows come in pieces, one for each FDE or analysed procedure. The result does not depend on the order in which the
/// pieces of different origins come; among overlapping pieces of one origin the one that begins last holds, and of
/// those that begin together the first that came.
pub struct RecipeTableBuilder {
    regions: Vec<Range<LinkAddr>>,
    pool: RecipePool,
    rows: Vec<(u64, u32)>,
    pieces: [Vec<Piece>; Origin::ALL.len()],
    /// Code whose frames, or those that they call, must keep their return addresses: `Packed::KEPT`, `Packed::KEEPS`,
    /// `Packed::LEAVES`.
    kept: Vec<(Range<LinkAddr>, u16)>,
    /// Code of which call frame information is known to be wrong.
    disbelieved: Vec<Range<u64>>,
    /// That is all such code.
    knows_kept: bool,
}

impl RecipeTableBuilder {
    /// A table of these executable ranges, in any order. Overlapping ones are joined.
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
            pieces: Default::default(),
            kept: Vec::new(),
            disbelieved: Vec::new(),
            knows_kept: false,
        }
    }

    /// Makes a recipe known. Its expressions are in `expressions`; one that is not there makes the recipe unknown.
    pub fn recipe(&mut self, recipe: &Recipe, expressions: &[u8]) -> RecipeRef {
        RecipeRef(self.pool.intern(recipe, expressions))
    }

    /// What `origin` says of `code`: rows in ascending order, each up to the next or the end. A row that begins before
    /// the one that came last, or outside `code`, is not taken. Code before the first row is unknown.
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
        let piece = Piece { start: code.start.0, end: code.end.0, rows: first..self.rows.len() };
        self.pieces[origin as usize].push(piece);
    }

    /// All that call frame information says.
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

    /// Whatever call frame information says of `code` is not taken.
    fn disbelieve(&mut self, code: &Range<LinkAddr>) {
        self.disbelieved.push(code.start.0..code.end.0);
    }

    /// What all sources together say.
    fn spans(&mut self) -> Vec<Span> {
        let mut spans = Vec::new();
        for (origin, pieces) in Origin::ALL.into_iter().zip(std::mem::take(&mut self.pieces)) {
            let mut said = flatten(pieces, &self.rows, RecipePool::UNKNOWN);
            if matches!(origin, Origin::EhFrame | Origin::DebugFrame) && !self.disbelieved.is_empty() {
                said = change_within(said, self.disbelieved.clone(), |_| RecipePool::UNKNOWN);
                said.retain(|span| span.recipe != RecipePool::UNKNOWN);
            }
            if origin != Origin::EhFrame {
                for span in &mut said {
                    span.recipe = self.pool.with_bits(span.recipe, Packed::INFERRED);
                }
            }
            spans = overlay(spans, said);
        }
        spans
    }

    /// The table.
    pub fn finish(mut self) -> TableBuild {
        let piece_count = self.pieces.iter().map(Vec::len).sum();
        let spans = self.spans();
        self.encode(spans, piece_count)
    }

    fn encode(mut self, mut spans: Vec<Span>, piece_count: usize) -> TableBuild {
        for bit in [Packed::KEPT, Packed::KEEPS, Packed::LEAVES] {
            let code = self.kept.iter().filter(|kept| kept.1 == bit).map(|kept| kept.0.start.0..kept.0.end.0);
            spans = change_within(spans, code.collect(), |recipe| self.pool.with_bits(recipe, bit));
        }
        let mut diagnostics = Vec::new();
        let encoded = encode(&self.regions, &spans, &self.pool, self.knows_kept).unwrap_or_else(|| {
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
            pieces: piece_count as u64,
            diagnostics: diagnostics.len() as u64,
        };
        TableBuild { bytes: encoded.bytes, diagnostics, stats, from_cache: false }
    }
}

/// Makes the recipe table of a module. Takes about 5 ms for a megabyte of code.
pub fn build_table(image: &Image, options: &RecipeOptions) -> TableBuild {
    let (code, too_much) = code_of(image);
    let mut frames = if options.call_frames { CallFrames::of_image(image, &code) } else { CallFrames::default() };
    if !options.debug_frame {
        frames.ranges.retain(|range| range.section != CfiSection::DebugFrame);
    }
    let mut builder = RecipeTableBuilder::new(code.clone());
    builder.add_call_frames(&frames);
    let procedures = match options.machine_code {
        true => machine_code::add(&mut builder, image, &code, &frames, options),
        false => Vec::new(),
    };
    let outermost = builder.recipe(&Recipe::OUTERMOST, &[]);
    if let Some(start) = start_code(image, frames.ranges.iter().map(|range| &range.code)) {
        builder.add(Origin::Entry, start.clone(), [(start.start, outermost)]);
    }
    let starts = if options.machine_code { starts::find(image, &frames, options.call_frames) } else { Vec::new() };
    for start in starts {
        builder.add(Origin::Start, start.clone(), [(start.start, outermost)]);
    }
    let piece_count = builder.pieces.iter().map(Vec::len).sum();
    let spans = builder.spans();
    kept::add(&mut builder, image, &frames, &spans, &procedures, options);
    let mut build = builder.encode(spans, piece_count);
    let odd = frames.diagnostics.into_iter().map(RecipeDiagnostic::Cfi);
    let left_out = (frames.diagnostics_left_out > 0).then_some(frames.diagnostics_left_out);
    let mut diagnostics: Vec<_> = too_much.into_iter().chain(odd).collect();
    diagnostics.extend(left_out.map(RecipeDiagnostic::CfiLeftOut));
    diagnostics.append(&mut build.diagnostics);
    // Linkers put read-only data into the same segment, or not.
    build.stats.code_bytes = image.instruction_ranges().iter().fold(0, |sum, code| sum + (code.end.0 - code.start.0));
    build.stats.diagnostics = diagnostics.len() as u64 + left_out.unwrap_or(0);
    build.diagnostics = diagnostics;
    build
}

/// The recipe table of a part of a module's code: what call frame information says of it. It is unknown what only an analysis of
/// the whole module's code would tell, and which frames must keep their return addresses.
pub(crate) struct TablePart<'a> {
    /// The module. It need not have the bytes of its code.
    pub(crate) image: &'a Image,
    /// What its call frame information speaks of.
    pub(crate) entries: &'a FrameEntries,
    /// Its procedures that nobody calls, by name.
    pub(crate) named: &'a starts::Named,
    /// Where its procedures begin, as symbols say.
    pub(crate) starts: &'a [LinkAddr],
    /// The part; no entry's code begins in it and ends beyond it.
    pub(crate) code: Range<LinkAddr>,
    /// The part's bytes.
    pub(crate) bytes: &'a [u8],
}

impl TablePart<'_> {
    pub(crate) fn build(&self) -> Vec<u8> {
        let TablePart { image, entries, named, starts, ref code, bytes } = *self;
        let frames = CallFrames::of_entries(image, entries, code);
        let mut builder = RecipeTableBuilder::new(vec![code.clone()]);
        builder.add_call_frames(&frames);
        machine_code::add_to_part(&mut builder, image, (code.start, bytes), &frames, starts);
        let outermost = builder.recipe(&Recipe::OUTERMOST, &[]);
        if code.contains(&image.entry())
            && let Some(start) = start_code(image, entries.all().iter().map(|entry| &entry.code))
        {
            builder.add(Origin::Entry, start.clone(), [(start.start, outermost)]);
        }
        let bytes_from = |at: LinkAddr| bytes.get(usize::try_from(at.0.checked_sub(code.start.0)?).ok()?..);
        for start in starts::find_in(image, &[(code.start, bytes)], bytes_from, &frames, named) {
            builder.add(Origin::Start, start.clone(), [(start.start, outermost)]);
        }
        builder.finish().bytes
    }
}

/// The hand-written start of a program or a loader, where no CFI speaks of it: from the entry point to the next code that
/// has some. Nobody called it, so it is outermost. What is longer than any such start is left alone: it is a whole
/// program without CFI.
fn start_code<'a>(
    image: &Image,
    described: impl Iterator<Item = &'a Range<LinkAddr>> + Clone,
) -> Option<Range<LinkAddr>> {
    const LONGEST_BYTES: u64 = 256;
    let entry = image.entry();
    if entry.0 == 0 || described.clone().any(|code| code.contains(&entry)) {
        return None;
    }
    let next = described.map(|code| code.start).filter(|start| *start > entry).min()?;
    (next.0 - entry.0 <= LONGEST_BYTES).then_some(entry..next)
}

/// The executable ranges that a table is made for: no more than the file, twice, whatever its headers claim.
pub(crate) fn code_of(image: &Image) -> (Vec<Range<LinkAddr>>, Option<RecipeDiagnostic>) {
    let mut budget = image.file_len().saturating_mul(2);
    let mut code = image.executable_ranges();
    let mut fits = 0;
    for range in &code {
        match budget.checked_sub(range.end.0 - range.start.0) {
            Some(left) => budget = left,
            None => break,
        }
        fits += 1;
    }
    let too_much = code.get(fits).map(|range| RecipeDiagnostic::TooMuchCode(range.start));
    code.truncate(fits);
    (code, too_much)
}

/// For fuzzing: whatever a table's bytes say, asking it ends without a panic; one that passes its check has a recipe for
/// every address of its regions.
#[doc(hidden)]
pub fn fuzz_table(bytes: &[u8]) {
    let Ok(table) = Table::new(bytes) else { return };
    let is_sound = table.check().is_ok();
    let recipe_at = |addr| table.find(addr).and_then(|id| table.recipe(id));
    for id in 0..=u16::MAX {
        let recipe = table.recipe(RecipeId(id));
        assert!(!is_sound || recipe.is_some() == (RecipeId(id).is_short() || u32::from(id) < table.header().recipes));
        if let Some(Recipe { cfa: Cfa::Expression(expression), .. }) = recipe {
            assert!(table.expression(expression).is_some());
        }
    }
    // Of a table that is not sound the list may be long.
    if is_sound || bytes.len() <= 4096 {
        let mut last = None;
        table.for_each_row(|start, id| {
            if is_sound {
                assert!(last <= Some(start));
                assert!(id.is_none() || (table.find(start) == id && recipe_at(start).is_some()));
                last = Some(start);
            }
        });
    }
    for addr in (0..0x4000).map(LinkAddr).chain([LinkAddr(u64::MAX), LinkAddr(1 << 47)]) {
        assert!(!is_sound || table.find(addr).is_some() == recipe_at(addr).is_some());
    }
}

//! Encodes spans and recipes as the bytes of a recipe table (its layout: `callpath_format::table`).

use std::cmp::Reverse;
use std::iter::Peekable;
use std::ops::Range;
use std::slice::Iter;

use callpath_format::address::LinkAddr;
use callpath_format::recipe::{Cfa, Expression, Packed, Recipe, Rule};
use callpath_format::table::{BLOCK_LEN_BYTES, Header, RecipeId, Region};
use callpath_format::table::{WIDE_BEGINS_STACK, WIDE_SIGNAL_FRAME, WIDE_SWITCHES_STACK};
use rustc_hash::FxHashMap;

use super::pool::RecipePool;
use super::spans::Span;

/// The most recipes without a short id that a table can have, the unknown one included.
const MAX_RECIPES: usize = Header::MAX_RECIPES as usize;

/// The bytes of a table, and its statistics.
pub(super) struct Encoded {
    pub(super) bytes: Vec<u8>,
    pub(super) header: Header,
    /// Code with a recipe, bytes.
    pub(super) covered_bytes: u64,
    /// Distinct recipes, the short ones included.
    pub(super) recipes: u32,
    /// Recipes without a packed form.
    pub(super) wide_recipes: u32,
    /// Recipes that did not fit; their code has none now.
    pub(super) surplus_recipes: u64,
}

/// Encodes `spans` in `regions` (both sorted, disjoint). `knows_pinned`: for the header. `None`: the table would exceed
/// 4 GiB.
pub(super) fn encode(
    regions: &[Range<LinkAddr>],
    spans: &[Span],
    pool: &RecipePool,
    knows_pinned: bool,
) -> Option<Encoded> {
    let ranking = Ranking::of(spans, pool);
    let mut rows = Rows::default();
    let mut spans = spans.iter().peekable();
    for region in regions.iter().filter(|region| region.start < region.end) {
        rows.region(region.start.0..region.end.0, &mut spans, &ranking)?;
    }
    let recipes = Recipes::of(&ranking.recipes, pool);
    let mut header = Header {
        len_bytes: 0,
        regions: u32::try_from(rows.regions.len()).ok()?,
        blocks: u32::try_from(rows.blocks.len()).ok()?,
        rows: u32::try_from(rows.starts.len()).ok()?,
        recipes: u32::try_from(ranking.recipes.len()).ok()?,
        wide_words: u32::try_from(recipes.words.len()).ok()?,
        expr_bytes: u32::try_from(recipes.expressions.len()).ok()?,
        knows_pinned,
        // The first of equally large ones.
        largest: rows.regions.iter().rev().max_by_key(|region| region.len_bytes).copied().unwrap_or_default(),
    };
    let layout = header.layout()?;
    header.len_bytes = u32::try_from(layout.end).ok()?;
    rows.blocks.push(header.rows);
    let mut bytes = Vec::with_capacity(layout.end);
    put(&mut bytes, 0, [header.to_bytes()]);
    put(&mut bytes, layout.regions, rows.regions.iter().map(Region::to_bytes));
    put(&mut bytes, layout.blocks, rows.blocks.iter().map(|block| block.to_le_bytes()));
    bytes.resize(layout.rows, 0);
    rows.put_by_block(&mut bytes);
    put(&mut bytes, layout.recipes, recipes.packed.iter().map(Packed::to_bytes));
    put(&mut bytes, layout.wide, recipes.words.iter().copied());
    put(&mut bytes, layout.expr, [&recipes.expressions]);
    bytes.resize(layout.end, 0);
    Some(Encoded {
        bytes,
        header,
        covered_bytes: rows.covered_bytes,
        recipes: header.recipes + ranking.short,
        wide_recipes: recipes.wide,
        surplus_recipes: ranking.surplus,
    })
}

/// Appends a section, which begins at `at`.
fn put(bytes: &mut Vec<u8>, at: usize, section: impl IntoIterator<Item = impl AsRef<[u8]>>) {
    bytes.resize(at, 0);
    for record in section {
        bytes.extend_from_slice(record.as_ref());
    }
}

/// The table for no code.
pub(super) fn empty() -> Encoded {
    let mut header = Header { recipes: 1, ..Header::default() };
    let layout = header.layout();
    header.len_bytes = layout.map_or(0, |layout| layout.end as u32);
    let mut bytes = header.to_bytes().to_vec();
    // All zeros: no block, and recipe 0, the unknown one.
    bytes.resize(header.len_bytes as usize, 0);
    Encoded { bytes, header, covered_bytes: 0, recipes: 1, wide_recipes: 0, surplus_recipes: 0 }
}

/// The recipes in the table, with their ids. Of those that are not short, the ones used by most spans come first: so
/// they share cache lines, and the rarest are left out if there are too many.
struct Ranking {
    /// By id, the recipe's index in the pool.
    recipes: Vec<u32>,
    /// By a recipe's index in the pool, its id; 0 for those that are not in the table.
    ids: Vec<u16>,
    /// The number of short recipes.
    short: u32,
    surplus: u64,
}

impl Ranking {
    fn of(spans: &[Span], pool: &RecipePool) -> Ranking {
        let mut uses = vec![0u64; pool.recipes.len()];
        for span in spans {
            if let Some(uses) = uses.get_mut(span.recipe as usize) {
                *uses += 1;
            }
        }
        let mut used: Vec<(u64, u32)> = (0u32..).zip(uses).skip(1).filter(|u| u.1 > 0).map(|(i, n)| (n, i)).collect();
        let mut ids = vec![0; pool.recipes.len()];
        let all = used.len();
        used.retain(|&(_, index)| {
            let short = pool.packed(index).and_then(|packed| RecipeId::short(&packed));
            if let (Some(id), Some(place)) = (short, ids.get_mut(index as usize)) {
                *place = id.0;
            }
            short.is_none()
        });
        let short = (all - used.len()) as u32;
        used.sort_by_key(|(uses, index)| (Reverse(*uses), *index));
        let surplus = used.len().saturating_sub(MAX_RECIPES - 1);
        used.truncate(MAX_RECIPES - 1);
        let mut recipes = vec![RecipePool::UNKNOWN];
        for (id, (_, index)) in (1u16..=u16::MAX).zip(used) {
            ids[index as usize] = id;
            recipes.push(index);
        }
        Ranking { recipes, ids, short, surplus: surplus as u64 }
    }
}

/// The sections of a table that grow with the code.
#[derive(Default)]
struct Rows {
    regions: Vec<Region>,
    blocks: Vec<u32>,
    starts: Vec<u8>,
    ids: Vec<u16>,
    covered_bytes: u64,
}

/// The region to which rows are appended.
struct OpenRegion {
    start: u64,
    first_block: u32,
    last_id: Option<u16>,
}

impl Rows {
    /// Appends a region, and takes the spans before its end.
    fn region(&mut self, region: Range<u64>, spans: &mut Peekable<Iter<'_, Span>>, ranking: &Ranking) -> Option<()> {
        let len_bytes = region.end - region.start;
        let first_block = u32::try_from(self.blocks.len()).ok()?;
        let block_count = u32::try_from(len_bytes.div_ceil(BLOCK_LEN_BYTES)).ok()?;
        first_block.checked_add(block_count)?.checked_add(1)?;
        self.regions.push(Region { link_start: region.start, len_bytes, first_block, block_count });
        let mut at = region.start;
        let mut open = OpenRegion { start: region.start, first_block, last_id: None };
        while let Some(span) = spans.peek() {
            let (from, to) = (span.start.max(region.start), span.end.min(region.end));
            if from < to {
                if at < from {
                    self.row(&mut open, at, 0)?;
                }
                let id = ranking.ids.get(span.recipe as usize).copied().unwrap_or(0);
                self.row(&mut open, from, id)?;
                self.covered_bytes += if id == 0 { 0 } else { to - from };
                at = to;
            }
            if span.end > region.end {
                break;
            }
            spans.next();
        }
        if at < region.end {
            self.row(&mut open, at, 0)?;
        }
        let rows = u32::try_from(self.starts.len()).ok()?;
        self.blocks.resize((first_block + block_count) as usize, rows);
        Some(())
    }

    /// Appends the bytes of the rows. `blocks` ends with the number of rows.
    fn put_by_block(&self, bytes: &mut Vec<u8>) {
        for ends in self.blocks.windows(2) {
            let rows = ends[0] as usize..ends[1] as usize;
            bytes.extend_from_slice(self.starts.get(rows.clone()).unwrap_or(&[]));
            for id in self.ids.get(rows).unwrap_or(&[]) {
                bytes.extend_from_slice(&id.to_le_bytes());
            }
        }
    }

    /// Appends a row, unless it equals the last one of the region.
    fn row(&mut self, open: &mut OpenRegion, start: u64, id: u16) -> Option<()> {
        if open.last_id == Some(id) {
            return Some(());
        }
        open.last_id = Some(id);
        let offset = start - open.start;
        let rows = u32::try_from(self.starts.len()).ok()?;
        self.blocks.resize(open.first_block as usize + (offset / BLOCK_LEN_BYTES) as usize + 1, rows);
        self.starts.push((offset % BLOCK_LEN_BYTES) as u8);
        self.ids.push(id);
        Some(())
    }
}

/// The sections of a table that grow with the number of distinct recipes.
#[derive(Default)]
struct Recipes {
    packed: Vec<Packed>,
    words: Vec<[u8; 8]>,
    expressions: Vec<u8>,
    known_expressions: FxHashMap<Expression, u32>,
    wide: u32,
}

impl Recipes {
    fn of(recipes: &[u32], pool: &RecipePool) -> Recipes {
        let mut out = Recipes::default();
        for (index, recipe) in recipes.iter().filter_map(|index| Some((*index, pool.recipes.get(*index as usize)?))) {
            let packed = pool.packed(index).unwrap_or_else(|| {
                let at = out.words.len() as i32;
                out.wide += 1;
                out.wide(recipe, pool);
                Packed { disp: at, add: 0, head: Packed::WIDE, slots: [0; 6] }
            });
            out.packed.push(packed);
        }
        out
    }

    fn wide(&mut self, recipe: &Recipe, pool: &RecipePool) {
        let head = self.words.len();
        self.words.push([0; 8]);
        let mut rules = 0;
        let mut word = |words: &mut Vec<[u8; 8]>, target: u8, kind: u8, base: u8, len: u8, value: i32| {
            let [a, b, c, d] = value.to_le_bytes();
            words.push([target, kind, base, len, a, b, c, d]);
            rules += 1;
        };
        match recipe.cfa {
            // These have a packed form.
            Cfa::Unknown | Cfa::Outermost => {}
            Cfa::Register { reg, disp } => word(&mut self.words, TARGET_CFA, 5, reg.index() as u8, 0, disp),
            Cfa::Deref { reg, disp, add } => {
                word(&mut self.words, TARGET_CFA, 8, reg.index() as u8, 0, disp);
                self.words.push(i64::from(add).to_le_bytes());
            }
            Cfa::Expression(expression) => {
                let (start, len) = self.expression(expression, pool);
                word(&mut self.words, TARGET_CFA, 7, 0, len, start);
            }
        }
        let usual = Recipe::with_cfa(recipe.cfa);
        let registers = (0u8..).zip(recipe.registers.into_iter().zip(usual.registers));
        let all = registers.chain([(TARGET_RETURN_ADDRESS, (recipe.return_address, usual.return_address))]);
        for (target, (rule, usual)) in all {
            if rule == usual {
                continue;
            }
            match rule {
                Rule::Same => word(&mut self.words, target, 0, 0, 0, 0),
                Rule::Lost => word(&mut self.words, target, 1, 0, 0, 0),
                Rule::AtCfa(disp) => word(&mut self.words, target, 2, 0, 0, disp),
                Rule::CfaPlus(disp) => word(&mut self.words, target, 3, 0, 0, disp),
                Rule::AtRegister(reg, disp) => word(&mut self.words, target, 4, reg.index() as u8, 0, disp),
                Rule::RegisterPlus(reg, disp) => word(&mut self.words, target, 5, reg.index() as u8, 0, disp),
                Rule::AtExpression(expression) => {
                    let (start, len) = self.expression(expression, pool);
                    word(&mut self.words, target, 6, 0, len, start);
                }
                Rule::ExpressionValue(expression) => {
                    let (start, len) = self.expression(expression, pool);
                    word(&mut self.words, target, 7, 0, len, start);
                }
            }
        }
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        let flags = flag(recipe.signal_frame, WIDE_SIGNAL_FRAME)
            | flag(recipe.switches_stack, WIDE_SWITCHES_STACK)
            | flag(recipe.begins_stack, WIDE_BEGINS_STACK);
        self.words[head] = [rules, flags, 0, 0, 0, 0, 0, 0];
    }

    /// The position of an expression of the pool in the table, and its length as encoded in a wide recipe (256 as 0).
    fn expression(&mut self, expression: Expression, pool: &RecipePool) -> (i32, u8) {
        let start = *self.known_expressions.entry(expression).or_insert_with(|| {
            let start = self.expressions.len() as u32;
            self.expressions.extend_from_slice(pool.bytes_of(expression));
            start
        });
        (start as i32, expression.len as u8)
    }
}

const TARGET_RETURN_ADDRESS: u8 = 16;
const TARGET_CFA: u8 = 17;

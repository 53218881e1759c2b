//! Recipes of code that was moved at run time: those of the code that it comes from, changed where inserted code has
//! lowered rsp, keeps rax elsewhere, or has made a frame larger.

use std::ops::Range;

use callpath_format::address::LinkAddr;
use callpath_format::frame::CloneNumber;
use callpath_format::recipe::{Cfa, Expression, Packed, Recipe, Rule};
use callpath_format::register::Reg;
use callpath_format::shared::moved::{HEAD_LEN_BYTES, Home, Piece, head_bytes};
use callpath_format::table::{RecipeId, Table};
use callpath_x86::rewrite::{FrameSize, Patch, Rax, Rewritten, THUNK_LEN_BYTES, THUNK_PUSH_BYTES};
use rustc_hash::FxHashMap;

use super::encode::{self, encode};
use super::pool::RecipePool;
use super::spans::Span;
use crate::copies::{Copies, Made};

/// The length of a return address, and of a word that a thunk pushes, bytes.
const WORD_BYTES: u32 = 8;
/// What may be in use below rsp, bytes (psABI): inserted code leaves it alone where it lowers rsp by that.
const RED_ZONE_BYTES: u32 = 128;
/// The length of a jump into a copy, bytes.
const SPRINGBOARD_BYTES: u64 = 5;

/// What is known of moved code without its recipes: which code each part of it belongs to, and how its frames differ.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Moved {
    /// By address, disjoint.
    parts: Vec<Part>,
    /// Springboards that do not lie where they are entered, by address.
    pub detours: Vec<Detour>,
}

/// A springboard that does not lie where it is entered: in code that nothing else executes, as long as it is written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Detour {
    /// Its code.
    pub code: Range<LinkAddr>,
    /// The first instruction of the procedure that it belongs to.
    pub procedure: LinkAddr,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Part {
    code: Range<LinkAddr>,
    home: Home,
    frame: Frame,
    clone: CloneNumber,
}

/// The frame of a part's code.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Frame {
    /// That of the code that it comes from, but for its size, rsp, which is lower, and rax. `is_at_insertion`: it is code that
    /// was inserted before that, or the first instruction behind it.
    OfHome { enlarged: u32, lowered: u32, rax: Rax, is_at_insertion: bool },
    /// That of a procedure that has pushed so many bytes and nothing else.
    Leaf { pushed: u32 },
    /// That which tables say of the code's own addresses.
    Own,
}

impl Frame {
    const SAME: Frame = Frame::enlarged(0);

    const fn enlarged(bytes: u32) -> Frame {
        Frame::OfHome { enlarged: bytes, lowered: 0, rax: Rax::InPlace, is_at_insertion: false }
    }
}

/// The recipe at moved code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MovedRecipe {
    /// Where it holds.
    pub code: Range<LinkAddr>,
    /// Where that code comes from: [`Home::At`] for all of it, [`Home::From`] one behind the other.
    pub home: Home,
    /// Its expressions are in `expressions`.
    pub recipe: Recipe,
    /// Expressions of the recipe.
    pub expressions: Vec<u8>,
    /// Flags in the recipe's head ([`Packed::PINNED`] and others).
    pub bits: u16,
}

impl Moved {
    /// Copies of a module's procedures, and their springboards.
    pub fn of(copies: &Copies) -> Moved {
        let mut moved = Moved::default();
        for Made { copy, clone, .. } in &copies.made {
            moved.add_copy(copy, *clone);
            for &(at, origin) in &copy.detours {
                let code = at..LinkAddr(at.0 + SPRINGBOARD_BYTES);
                let frame = Frame::enlarged(copy.enlarged_at_home);
                moved.parts.push(Part { code: code.clone(), home: Home::At(origin), frame, clone: *clone });
                moved.detours.push(Detour { code, procedure: copy.entry });
            }
            // At the entry the frame is what it was. Others that do not lie where they are entered are above.
            let is_other = |patch: &&Patch| {
                let is_detour = copy.detours.iter().any(|(at, _)| *at == patch.at);
                patch.is_springboard() && !patch.leads_to(copy.entered_at) && !is_detour
            };
            for patch in copy.patches.iter().filter(is_other).filter(|_| copy.enlarged_at_home > 0) {
                let code = patch.at..LinkAddr(patch.at.0 + patch.new.len() as u64);
                let frame = Frame::enlarged(copy.enlarged_at_home);
                moved.parts.push(Part { code: code.clone(), home: Home::At(patch.at), frame, clone: *clone });
                moved.detours.push(Detour { code, procedure: copy.entry });
            }
        }
        moved.in_order()
    }

    /// Our own code, whose recipes tables have at its own addresses.
    pub fn ours(code: Range<LinkAddr>) -> Moved {
        let part = Part { code, home: Home::Ours, frame: Frame::Own, clone: CloneNumber::NONE };
        Moved { parts: vec![part], detours: Vec::new() }
    }

    /// Adds small routines of our own: ranges of code, and how many bytes each has pushed since the call.
    pub fn with_routines(mut self, code: impl IntoIterator<Item = (Range<LinkAddr>, u32)>) -> Moved {
        let clone = CloneNumber::NONE;
        let part = |(code, pushed)| Part { code, home: Home::Ours, frame: Frame::Leaf { pushed }, clone };
        self.parts.extend(code.into_iter().map(part));
        self.in_order()
    }

    /// Adds thunks (`callpath_x86::rewrite::thunk`): where each begins, and whether it pushes a word.
    pub fn with_thunks(self, thunks: impl IntoIterator<Item = (LinkAddr, bool)>) -> Moved {
        let parts = |(at, pushes): (LinkAddr, bool)| {
            let end = LinkAddr(at.0 + THUNK_LEN_BYTES);
            let pushed = LinkAddr(at.0 + if pushes { THUNK_PUSH_BYTES } else { 0 });
            [(at..pushed, 0), (pushed..end, if pushes { WORD_BYTES } else { 0 })]
        };
        self.with_routines(thunks.into_iter().flat_map(parts))
    }

    fn in_order(mut self) -> Moved {
        self.parts.retain(|part| part.code.start < part.code.end);
        self.parts.sort_by_key(|part| part.code.start);
        self.detours.sort_by_key(|detour| detour.code.start);
        self
    }

    fn add_copy(&mut self, copy: &Rewritten, clone: CloneNumber) {
        let mut bounds: Vec<u32> = copy.origins.iter().map(|origin| origin.0).collect();
        bounds.extend(copy.lowered.iter().map(|lowered| lowered.0));
        bounds.extend(copy.enlarged.iter().map(|enlarged| enlarged.0));
        bounds.extend(copy.rax.iter().map(|rax| rax.0));
        bounds.extend(copy.returns.iter().flat_map(|&(offset, _)| [offset.saturating_sub(1), offset]));
        bounds.push(copy.code.len() as u32);
        bounds.sort_unstable();
        bounds.dedup();
        let at = |offset: u32| LinkAddr(copy.at.0 + u64::from(offset));
        // Inserted code and the instruction that it stands before have one origin.
        let mut before = None;
        for pair in bounds.windows(2) {
            let (code, next) = (at(pair[0])..at(pair[1]), pair[1]);
            let Some(origin) = copy.origin_of(code.start) else { continue };
            let (lowered, rax) = (copy.lowered_by(code.start), copy.rax_at(code.start));
            let is_at_insertion = before == Some(origin) || copy.origin_of(code.end) == Some(origin);
            before = Some(origin);
            let frame = match copy.size_at(code.start) {
                FrameSize::AsAtHome => Frame::OfHome { enlarged: 0, lowered, rax, is_at_insertion },
                FrameSize::LargerBy(enlarged) => Frame::OfHome { enlarged, lowered, rax, is_at_insertion },
                FrameSize::ReturnAddress => Frame::Leaf { pushed: lowered },
            };
            let len = code.end.0 - code.start.0;
            let goes_on = next <= copy.out_of_order && copy.origins.binary_search_by_key(&next, |o| o.0).is_ok();
            let is_as_at_home = frame == Frame::SAME
                && goes_on
                && copy.origin_of(code.end).is_some_and(|after| after.0.wrapping_sub(origin.0) == len);
            let comes_back = copy.returns.binary_search_by_key(&next, |back| back.0).ok();
            let home = match comes_back.and_then(|number| copy.returns.get(number)) {
                // The last byte of a call, by which its return address is looked up.
                Some(&(_, back)) if len == 1 => Home::At(LinkAddr(back.0.wrapping_sub(1))),
                _ if is_as_at_home => Home::From(origin),
                _ => Home::At(origin),
            };
            self.push(Part { code, home, frame, clone });
        }
    }

    /// Appends a part, to the last one if it goes on with that.
    fn push(&mut self, part: Part) {
        if let Some(last) = self.parts.last_mut()
            && last.code.end == part.code.start
            && (last.frame, last.clone) == (part.frame, part.clone)
        {
            let len = last.code.end.0 - last.code.start.0;
            let goes_on = match (last.home, part.home) {
                (Home::From(before), Home::From(home)) => before.0.wrapping_add(len) == home.0,
                (before, home) => before == home,
            };
            if goes_on {
                last.code.end = part.code.end;
                return;
            }
        }
        self.parts.push(part);
    }

    /// From the first byte of it that lies one behind the other to the last, detours apart.
    pub fn code(&self) -> Range<LinkAddr> {
        let is_detour = |part: &&Part| {
            let found = self.detours.binary_search_by_key(&part.code.start, |detour| detour.code.start);
            found.is_ok()
        };
        let mut own = self.parts.iter().filter(|part| !is_detour(part));
        let first = own.next().map_or(LinkAddr(0)..LinkAddr(0), |part| part.code.clone());
        let end = own.next_back().map_or(first.end, |part| part.code.end);
        first.start..end
    }

    /// Its recipes, by address. `tables`: of the module that it comes from; where none has one, it is unknown.
    pub fn recipes(&self, tables: &[Table<'_>]) -> Vec<MovedRecipe> {
        let mut recipes = Vec::new();
        self.each_recipe(tables, |code, home, found| {
            if let Some(Changed { recipe, bits, expressions }) = found.changed(tables) {
                recipes.push(MovedRecipe { code, home, recipe, expressions, bits });
            }
        });
        recipes
    }

    /// Calls `then` with each range, by address, where its code comes from, and what its recipe is made of.
    fn each_recipe(&self, tables: &[Table<'_>], mut then: impl FnMut(Range<LinkAddr>, Home, Source)) {
        let rows = Rows::of(tables);
        for Part { code, home, frame, .. } in &self.parts {
            let (from, is_along) = match (home, frame) {
                (_, Frame::Leaf { pushed }) => {
                    then(code.clone(), *home, Source::Leaf { pushed: *pushed });
                    continue;
                }
                (_, Frame::Own) => (code.start, true),
                (Home::From(from), _) => (*from, true),
                (Home::At(at), _) => (*at, false),
                (Home::Ours | Home::Nowhere, _) => continue,
            };
            let len = if is_along { code.end.0 - code.start.0 } else { 1 };
            rows.each_within(from..LinkAddr(from.0.saturating_add(len)), |piece, row| {
                let start = LinkAddr(code.start.0 + (piece.start.0 - from.0));
                let end = if is_along { LinkAddr(start.0 + (piece.end.0 - piece.start.0)) } else { code.end };
                let home = if is_along && matches!(home, Home::From(_)) { Home::From(piece.start) } else { *home };
                then(start..end, home, Source::Row { table: row.table, id: row.id, frame: *frame });
            });
        }
    }

    /// The block that is published (`callpath_format::shared::moved`). `tables`: as for [`Moved::recipes`]. `None`: it
    /// lies too far from the module.
    pub fn block(&self, tables: &[Table<'_>]) -> Option<Vec<u8>> {
        let base = self.code().start;
        let mut pieces: Vec<Piece> = Vec::new();
        let mut regions: Vec<Range<LinkAddr>> = Vec::new();
        for (part, next) in self.parts.iter().zip(self.parts.iter().skip(1).map(Some).chain([None])) {
            let piece = Piece { at: part.code.start, home: part.home, clone: part.clone };
            let goes_on = |last: &Piece| {
                last.home_of(piece.at) == piece.home_of(piece.at)
                    && (last.home, last.clone) == (piece.home, piece.clone)
            };
            if !pieces.last().is_some_and(goes_on) {
                pieces.push(piece);
            }
            if next.is_none_or(|next| next.code.start != part.code.end) {
                pieces.push(Piece { at: part.code.end, home: Home::Nowhere, clone: CloneNumber::NONE });
            }
            match regions.last_mut().filter(|last| last.end == part.code.start) {
                Some(last) => last.end = part.code.end,
                None => regions.push(part.code.clone()),
            }
        }
        let mut pool = RecipePool::new();
        let mut spans: Vec<Span> = Vec::new();
        let mut known = FxHashMap::default();
        self.each_recipe(tables, |code, _, source| {
            let found = *known.entry(source).or_insert_with(|| {
                let Changed { recipe, bits, expressions } = source.changed(tables)?;
                let index = pool.intern(&recipe, &expressions);
                Some(if bits == 0 { index } else { pool.with_bits(index, bits) })
            });
            let Some(recipe) = found else { return };
            match spans.last_mut().filter(|last| last.end == code.start.0 && last.recipe == recipe) {
                Some(last) => last.end = code.end.0,
                None => spans.push(Span { start: code.start.0, end: code.end.0, recipe }),
            }
        });
        let knows_pinned = tables.iter().all(|table| table.header().knows_pinned);
        let table = encode(&regions, &spans, &pool, knows_pinned).unwrap_or_else(encode::empty).bytes;
        let table_at = (HEAD_LEN_BYTES + pieces.len() * Piece::LEN_BYTES).next_multiple_of(8);
        let mut block = Vec::with_capacity(table_at + table.len());
        block.extend(head_bytes(base, u32::try_from(pieces.len()).ok()?, u32::try_from(table_at).ok()?));
        for piece in &pieces {
            block.extend(piece.to_bytes(base)?);
        }
        block.resize(table_at, 0);
        block.extend(table);
        Some(block)
    }
}

/// Which recipe of which table holds where.
struct Rows {
    /// By address, disjoint.
    rows: Vec<Row>,
}

struct Row {
    code: Range<LinkAddr>,
    /// The table's index.
    table: usize,
    id: RecipeId,
}

/// What the recipe of moved code is made of.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Source {
    /// A procedure that has pushed so many bytes and nothing else.
    Leaf { pushed: u32 },
    /// A recipe of one of the tables, by its index, and how the frame differs.
    Row { table: usize, id: RecipeId, frame: Frame },
}

/// A recipe as it holds in moved code, the flags of its head, and its expressions.
struct Changed {
    recipe: Recipe,
    bits: u16,
    expressions: Vec<u8>,
}

impl Rows {
    fn of(tables: &[Table<'_>]) -> Rows {
        let mut rows: Vec<Row> = Vec::new();
        for (number, table) in tables.iter().enumerate() {
            let mut open: Option<(LinkAddr, RecipeId)> = None;
            table.for_each_row(|start, id| {
                if let Some((from, id)) = open.take().filter(|open| open.0 < start) {
                    rows.push(Row { code: from..start, table: number, id });
                }
                open = id.map(|id| (start, id));
            });
        }
        rows.sort_by_key(|row| row.code.start);
        Rows { rows }
    }

    /// Calls `then` with each part of a range that has a recipe, by address.
    fn each_within(&self, range: Range<LinkAddr>, mut then: impl FnMut(Range<LinkAddr>, &Row)) {
        let first = self.rows.partition_point(|row| row.code.end <= range.start);
        let mut at = range.start;
        for row in self.rows.iter().skip(first).take_while(|row| row.code.start < range.end) {
            let (start, end) = (row.code.start.max(at), row.code.end.min(range.end));
            if start < end {
                then(start..end, row);
                at = end;
            }
        }
    }
}

impl Source {
    /// The recipe as it holds in moved code. `None`: there is none.
    fn changed(self, tables: &[Table<'_>]) -> Option<Changed> {
        let (table, id, frame) = match self {
            Source::Leaf { pushed } => {
                let cfa = Cfa::Register { reg: Reg::RSP, disp: (WORD_BYTES + pushed) as i32 };
                return Some(Changed { recipe: Recipe::with_cfa(cfa), bits: 0, expressions: Vec::new() });
            }
            Source::Row { table, id, frame } => (tables.get(table)?, id, frame),
        };
        let packed = table.packed(id)?;
        let mut recipe = table.recipe(id)?;
        if matches!(recipe.cfa, Cfa::Unknown) {
            return None;
        }
        const FLAGS: u16 = Packed::PINNED | Packed::PINS_CALLEE | Packed::TAIL_CALLS_ANY | Packed::INFERRED;
        let bits = if packed.kind() == Packed::WIDE { 0 } else { packed.head & FLAGS };
        let mut expressions = Vec::new();
        let mut own = |expression: &mut Expression| {
            let bytes = table.expression(*expression)?;
            expression.start = u32::try_from(expressions.len()).ok()?;
            expressions.extend_from_slice(bytes);
            Some(())
        };
        if let Cfa::Expression(expression) = &mut recipe.cfa {
            own(expression)?;
        }
        for rule in recipe.registers.iter_mut().chain([&mut recipe.return_address]) {
            if let Rule::AtExpression(expression) | Rule::ExpressionValue(expression) = rule {
                own(expression)?;
            }
        }
        if let Frame::OfHome { enlarged, lowered, rax, is_at_insertion } = frame
            && frame != Frame::SAME
        {
            if is_at_insertion && lowered < RED_ZONE_BYTES {
                forget_below_rsp(&mut recipe);
            }
            enlarge(&mut recipe, i32::try_from(enlarged).ok()?)?;
            lower(&mut recipe, i32::try_from(lowered).ok()?, &expressions)?;
            move_rax(&mut recipe, rax, &expressions)?;
        }
        Some(Changed { recipe, bits, expressions })
    }
}

/// The recipe of code that writes below rsp, or runs after that: what was restored from there is in its register. (What is left
/// there is the red zone's, or was restored without a row above rsp.)
fn forget_below_rsp(recipe: &mut Recipe) {
    let Cfa::Register { reg: Reg::RSP, disp } = recipe.cfa else { return };
    let is_below = |rule: &&mut Rule| matches!(rule, Rule::AtCfa(at) if i64::from(disp) + i64::from(*at) < 0);
    recipe.registers.iter_mut().filter(is_below).for_each(|rule| *rule = Rule::Same);
}

/// The recipe of code whose frame is larger, right below the return address. `None`: it cannot be written.
fn enlarge(recipe: &mut Recipe, bytes: i32) -> Option<()> {
    const RETURN_ADDRESS: Rule = Rule::AtCfa(-8);
    if bytes == 0 {
        return Some(());
    }
    match &mut recipe.cfa {
        Cfa::Register { reg: Reg::RSP | Reg::RBP, disp } => *disp = disp.checked_add(bytes)?,
        Cfa::Outermost => return Some(()),
        _ => return None,
    }
    if recipe.return_address != RETURN_ADDRESS {
        return None;
    }
    for rule in &mut recipe.registers {
        match rule {
            Rule::AtCfa(at) if *at < -8 => *at = at.checked_sub(bytes)?,
            Rule::RegisterPlus(..) | Rule::AtExpression(_) | Rule::ExpressionValue(_) => return None,
            _ => {}
        }
    }
    Some(())
}

/// The recipe of code where rsp is lower. `None`: it cannot be written.
fn lower(recipe: &mut Recipe, bytes: i32, expressions: &[u8]) -> Option<()> {
    if bytes == 0 {
        return Some(());
    }
    match &mut recipe.cfa {
        Cfa::Register { reg, disp } | Cfa::Deref { reg, disp, .. } if *reg == Reg::RSP => {
            *disp = disp.checked_add(bytes)?
        }
        _ => {}
    }
    for rule in recipe.registers.iter_mut().chain([&mut recipe.return_address]) {
        match rule {
            Rule::AtRegister(reg, disp) | Rule::RegisterPlus(reg, disp) if *reg == Reg::RSP => {
                *disp = disp.checked_add(bytes)?;
            }
            _ => {}
        }
    }
    if let Some(rsp) = recipe.registers.get_mut(Reg::RSP.index()).filter(|rule| **rule == Rule::Same) {
        *rsp = Rule::RegisterPlus(Reg::RSP, bytes);
    }
    (!mentions(expressions, Reg::RSP)).then_some(())
}

/// The recipe of code where the value of rax is elsewhere. `None`: it cannot be written.
fn move_rax(recipe: &mut Recipe, rax: Rax, expressions: &[u8]) -> Option<()> {
    if rax == Rax::InPlace {
        return Some(());
    }
    match recipe.cfa {
        Cfa::Register { reg, disp } if reg == Reg::RAX && rax == Rax::OnStack => {
            recipe.cfa = Cfa::Deref { reg: Reg::RSP, disp: 0, add: disp };
        }
        Cfa::Register { reg, .. } | Cfa::Deref { reg, .. } if reg == Reg::RAX => return None,
        _ => {}
    }
    let is_by_rax =
        |rule: &Rule| matches!(rule, Rule::AtRegister(reg, _) | Rule::RegisterPlus(reg, _) if *reg == Reg::RAX);
    let mut rules = recipe.registers.iter().chain([&recipe.return_address]);
    (!rules.any(is_by_rax) && !mentions(expressions, Reg::RAX)).then_some(())
}

/// Whether expressions may read a register. Operands may look like it.
fn mentions(expressions: &[u8], reg: Reg) -> bool {
    /// `DW_OP_breg0`
    const FIRST: u8 = 0x70;
    expressions.iter().any(|byte| usize::from(byte.wrapping_sub(FIRST)) == reg.index())
}

#[cfg(test)]
mod tests {
    use super::*;

    const RSP_BY_8: Recipe = Recipe::with_cfa(Cfa::Register { reg: Reg::RSP, disp: 8 });

    #[test]
    fn a_lower_rsp_moves_what_counts_from_it() {
        let mut recipe = RSP_BY_8;
        recipe.registers[Reg::RBP.index()] = Rule::AtCfa(-16);
        recipe.registers[Reg::RBX.index()] = Rule::AtRegister(Reg::RSP, 24);
        lower(&mut recipe, 136, &[]).expect("it can be written");
        assert_eq!(recipe.cfa, Cfa::Register { reg: Reg::RSP, disp: 144 });
        assert_eq!(recipe.registers[Reg::RBP.index()], Rule::AtCfa(-16));
        assert_eq!(recipe.registers[Reg::RBX.index()], Rule::AtRegister(Reg::RSP, 160));
        // Another base is where it was; an expression over rsp is not understood.
        let framed = Recipe::with_cfa(Cfa::Register { reg: Reg::RBP, disp: 16 });
        let mut recipe = framed;
        lower(&mut recipe, 136, &[]).expect("it can be written");
        assert_eq!(recipe, framed);
        assert_eq!(lower(&mut recipe, 136, &[0x77, 8]), None);
        assert_eq!(lower(&mut recipe, 0, &[0x77, 8]), Some(()));
    }

    #[test]
    fn what_was_restored_from_below_rsp_is_in_its_register() {
        // Behind `leave`, the compiler's CFI goes on to name the place of rbp.
        let mut recipe = RSP_BY_8;
        recipe.registers[Reg::RBP.index()] = Rule::AtCfa(-16);
        recipe.registers[Reg::RBX.index()] = Rule::AtCfa(-8);
        forget_below_rsp(&mut recipe);
        assert_eq!(recipe.registers[Reg::RBP.index()], Rule::Same);
        assert_eq!(recipe.registers[Reg::RBX.index()], Rule::AtCfa(-8));
        // In a frame all places are in use.
        let mut framed = Recipe::with_cfa(Cfa::Register { reg: Reg::RBP, disp: 16 });
        framed.registers[Reg::RBP.index()] = Rule::AtCfa(-16);
        let before = framed;
        forget_below_rsp(&mut framed);
        assert_eq!(framed, before);
    }

    #[test]
    fn a_larger_frame_moves_what_lies_below_the_return_address() {
        let mut recipe = Recipe::with_cfa(Cfa::Register { reg: Reg::RBP, disp: 16 });
        recipe.registers[Reg::RBP.index()] = Rule::AtCfa(-16);
        recipe.registers[Reg::RBX.index()] = Rule::AtRegister(Reg::RSP, 24);
        enlarge(&mut recipe, 32).expect("it can be written");
        assert_eq!(recipe.cfa, Cfa::Register { reg: Reg::RBP, disp: 48 });
        assert_eq!(recipe.registers[Reg::RBP.index()], Rule::AtCfa(-48));
        assert_eq!(recipe.registers[Reg::RBX.index()], Rule::AtRegister(Reg::RSP, 24));
        assert_eq!(recipe.return_address, Rule::AtCfa(-8));
        // Where the CFA is not the procedure's own register, nothing is sure.
        let mut other = Recipe::with_cfa(Cfa::Register { reg: Reg::RAX, disp: 8 });
        assert_eq!(enlarge(&mut other, 32), None);
        assert_eq!(enlarge(&mut other, 0), Some(()));
    }

    #[test]
    fn a_frame_by_rax_is_found_where_that_waits() {
        let by_rax = Recipe::with_cfa(Cfa::Register { reg: Reg::RAX, disp: 8 });
        let mut recipe = by_rax;
        move_rax(&mut recipe, Rax::OnStack, &[]).expect("it can be written");
        assert_eq!(recipe.cfa, Cfa::Deref { reg: Reg::RSP, disp: 0, add: 8 });
        let mut recipe = by_rax;
        assert_eq!(move_rax(&mut recipe, Rax::InCell, &[]), None);
        assert_eq!(move_rax(&mut recipe, Rax::InPlace, &[]), Some(()));
        let mut recipe = RSP_BY_8;
        assert_eq!(move_rax(&mut recipe, Rax::InCell, &[]), Some(()));
    }
}

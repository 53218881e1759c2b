//! Properties of recipe tables: every address has the recipe that was added, for any recipes in any order, and no bytes
//! that pass the check of a table cause a panic.

use std::ops::Range;

use callpath_format::address::LinkAddr;
use callpath_format::recipe::{Cfa, Expression, Packed, Recipe, Rule};
use callpath_format::register::Reg;
use callpath_format::table::{RecipeId, Table};
use callpath_tables::recipes::{Origin, RecipeDiagnostic, RecipeTableBuilder, fuzz_table};
use fastrand::Rng;

struct Random(Rng);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0.u64(..end)
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn reg(&mut self) -> Reg {
        Reg::from_low_bits(self.below(16) as u16)
    }

    fn disp(&mut self) -> i32 {
        match self.below(4) {
            0 => self.below(1 << 32) as u32 as i32,
            _ => self.below(40) as i32 * 8 - 160,
        }
    }

    fn expression(&mut self) -> Expression {
        let len = if self.one_in(8) { 256 } else { 1 + self.below(20) };
        Expression { start: self.below(POOL_LEN_BYTES as u64 - len + 1) as u32, len: len as u16 }
    }

    fn rule(&mut self) -> Rule {
        match self.below(12) {
            0 => Rule::Lost,
            1 => Rule::CfaPlus(self.disp()),
            2 => Rule::AtRegister(self.reg(), self.disp()),
            3 => Rule::RegisterPlus(self.reg(), self.disp()),
            4 => Rule::AtExpression(self.expression()),
            5 => Rule::ExpressionValue(self.expression()),
            6..=8 => Rule::AtCfa(self.disp()),
            _ => Rule::Same,
        }
    }

    /// A recipe like those of compilers, or sometimes any.
    fn recipe(&mut self) -> Recipe {
        let mut recipe = Recipe::with_cfa(match self.below(10) {
            0 => return Recipe::UNKNOWN,
            1 => return Recipe::OUTERMOST,
            2 => Cfa::Deref { reg: self.reg(), disp: self.disp(), add: self.disp() },
            3 => Cfa::Expression(self.expression()),
            _ => Cfa::Register { reg: self.reg(), disp: self.disp() },
        });
        if self.one_in(4) {
            recipe.registers = std::array::from_fn(|_| self.rule());
            recipe.return_address = self.rule();
            recipe.signal_frame = self.one_in(2);
            recipe.switches_stack = self.one_in(4);
            recipe.begins_stack = self.one_in(4);
        } else {
            for reg in Reg::CALLEE_SAVED {
                if self.one_in(3) {
                    recipe.registers[reg.index()] = Rule::AtCfa(-8 * (2 + self.below(100) as i32));
                }
            }
        }
        recipe
    }
}

const POOL_LEN_BYTES: usize = 600;

/// A recipe with the bytes of its expressions, so that pools can differ, and without registers that a packed recipe
/// does not store (those that calls clobber).
fn meaning(recipe: &Recipe, bytes_of: impl Fn(Expression) -> Vec<u8>) -> String {
    let recipe = Packed::pack(recipe).and_then(|packed| packed.unpack()).unwrap_or(*recipe);
    let cfa = match recipe.cfa {
        Cfa::Expression(expression) => format!("expression {:x?}", bytes_of(expression)),
        cfa => format!("{cfa:?}"),
    };
    let rule = |rule: &Rule| match *rule {
        Rule::AtExpression(expression) => format!("*expression {:x?}", bytes_of(expression)),
        Rule::ExpressionValue(expression) => format!("expression {:x?}", bytes_of(expression)),
        rule => format!("{rule:?}"),
    };
    let registers: Vec<String> = recipe.registers.iter().map(rule).collect();
    let flags = (recipe.signal_frame, recipe.switches_stack, recipe.begins_stack);
    format!("{cfa}; {}; {registers:?}; {flags:?}", rule(&recipe.return_address))
}

struct Contribution {
    origin: Origin,
    code: Range<u64>,
    rows: Vec<(u64, Recipe)>,
}

/// The recipe of one address by the contributions, computed from the description of `RecipeTableBuilder`.
fn by_description(contributions: &[Contribution], addr: u64) -> Recipe {
    for origin in [Origin::EhFrame, Origin::DebugFrame] {
        let mut best: Option<&Contribution> = None;
        for contribution in contributions
            .iter()
            .filter(|contribution| contribution.origin == origin && contribution.code.contains(&addr))
        {
            if best.is_none_or(|best| contribution.code.start > best.code.start) {
                best = Some(contribution);
            }
        }
        let row = best.and_then(|contribution| contribution.rows.iter().rfind(|row| row.0 <= addr));
        if let Some((_, recipe)) = row
            && *recipe != Recipe::UNKNOWN
        {
            return *recipe;
        }
    }
    Recipe::UNKNOWN
}

fn random_contributions(random: &mut Random, end: u64) -> Vec<Contribution> {
    let recipes: Vec<Recipe> = (0..1 + random.below(20)).map(|_| random.recipe()).collect();
    (0..random.below(30))
        .map(|_| {
            let start = random.below(end);
            let longest = if random.one_in(4) { 2000 } else { 60 };
            let code = start..start + random.below(longest);
            let mut rows = Vec::new();
            let mut at = start + if random.one_in(5) { random.below(9) } else { 0 };
            while at < code.end {
                rows.push((at, recipes[random.below(recipes.len() as u64) as usize]));
                let longest = if random.one_in(6) { 700 } else { 9 };
                at += 1 + random.below(longest);
            }
            let origin = if random.one_in(3) { Origin::DebugFrame } else { Origin::EhFrame };
            Contribution { origin, code, rows }
        })
        .collect()
}

fn table_of(regions: &[Range<u64>], contributions: &[Contribution], pool: &[u8]) -> Vec<u8> {
    let link = |range: &Range<u64>| LinkAddr(range.start)..LinkAddr(range.end);
    let mut builder = RecipeTableBuilder::new(regions.iter().map(link).collect());
    for contribution in contributions {
        let rows: Vec<_> =
            contribution.rows.iter().map(|(at, recipe)| (LinkAddr(*at), builder.recipe(recipe, pool))).collect();
        builder.add(contribution.origin, link(&contribution.code), rows);
    }
    let build = builder.finish();
    assert_eq!(build.diagnostics, []);
    build.bytes
}

#[test]
fn every_address_answers_what_was_put_in() {
    let mut random = Random(Rng::with_seed(0x2545_f491_4f6c_dd1d));
    let pool: Vec<u8> = (0..POOL_LEN_BYTES).map(|_| random.below(256) as u8).collect();
    for round in 0..400 {
        let regions = [0x100..0x100 + random.below(0x900), 0xb00..0xc00, 0x1000..0x1001 + random.below(0x300)];
        let contributions = random_contributions(&mut random, 0x1400);
        let bytes = table_of(&regions, &contributions, &pool);
        let table = Table::new(&bytes).unwrap();
        assert_eq!(table.check(), Ok(()), "round {round}");
        assert_eq!(bytes.len(), table.len_bytes());
        for addr in 0..0x1500 {
            let found = table.find(LinkAddr(addr));
            if !regions.iter().any(|region| region.contains(&addr)) {
                assert_eq!(found, None, "round {round}, {addr:#x}");
                continue;
            }
            let recipe = table.recipe(found.unwrap()).unwrap();
            let got = meaning(&recipe, |expression| table.expression(expression).unwrap().to_vec());
            let expected = meaning(&by_description(&contributions, addr), |expression| {
                pool[expression.start as usize..][..usize::from(expression.len)].to_vec()
            });
            assert_eq!(got, expected, "round {round}, {addr:#x}");
        }
        fuzz_table(&bytes);
    }
}

#[test]
fn rows_are_listed_once_and_neighbours_differ() {
    let mut random = Random(Rng::with_seed(0x853c_49e6_748f_ea9b));
    let pool = [0x77; POOL_LEN_BYTES];
    for _ in 0..100 {
        let regions = [0x100..0x900, 0xb00..0xc07];
        let bytes = table_of(&regions, &random_contributions(&mut random, 0xd00), &pool);
        let table = Table::new(&bytes).unwrap();
        let mut listed = Vec::new();
        table.for_each_row(|start, id| listed.push((start.0, id)));
        let mut expected = Vec::new();
        for region in regions {
            let mut last = None;
            for addr in region.clone() {
                let id = table.find(LinkAddr(addr));
                if id != last {
                    expected.push((addr, id));
                }
                last = id;
            }
            expected.push((region.end, None));
        }
        assert_eq!(listed, expected);
    }
}

#[test]
fn the_order_of_origins_does_not_matter() {
    let mut random = Random(Rng::with_seed(0xda3e_39cb_94b9_5bdb));
    let pool = [0x77; POOL_LEN_BYTES];
    for _ in 0..50 {
        let mut contributions = random_contributions(&mut random, 0x900);
        let addresses = 0x100..0x900u64;
        let before = table_of(std::slice::from_ref(&addresses), &contributions, &pool);
        contributions.sort_by_key(|contribution| contribution.origin);
        let first = contributions.iter().filter(|contribution| contribution.origin == Origin::EhFrame).count();
        contributions.rotate_left(first);
        let after = table_of(std::slice::from_ref(&addresses), &contributions, &pool);
        let (before, after) = (Table::new(&before).unwrap(), Table::new(&after).unwrap());
        for addr in addresses.map(LinkAddr) {
            let meaning_in = |table: &Table<'_>| {
                meaning(&table.recipe(table.find(addr).unwrap()).unwrap(), |e| table.expression(e).unwrap().to_vec())
            };
            assert_eq!(meaning_in(&before), meaning_in(&after));
        }
    }
}

#[test]
fn mutated_tables_never_panic() {
    let mut random = Random(Rng::with_seed(0x9e37_79b9_7f4a_7c15));
    let pool = [0x77; POOL_LEN_BYTES];
    for _ in 0..300 {
        let mut bytes = table_of(&[0x100..0x900, 0xb00..0xc07], &random_contributions(&mut random, 0xd00), &pool);
        for _ in 0..20 {
            let at = random.below(bytes.len() as u64) as usize;
            let old = bytes[at];
            bytes[at] = match random.below(4) {
                0 => 0xff,
                1 => 0,
                _ => random.below(256) as u8,
            };
            fuzz_table(&bytes);
            if random.one_in(2) {
                bytes[at] = old;
            }
        }
        bytes.truncate(random.below(bytes.len() as u64 + 1) as usize);
        fuzz_table(&bytes);
    }
}

#[test]
fn the_surplus_of_recipes_is_unknown_and_said() {
    let rows = 70_000u64;
    let region = LinkAddr(0x1000)..LinkAddr(0x1000 + 2 * rows);
    let mut builder = RecipeTableBuilder::new(vec![region.clone()]);
    let often = builder.recipe(&Recipe::with_cfa(Cfa::Register { reg: Reg::RBP, disp: 16 }), &[]);
    let rows: Vec<_> = (0..rows)
        .flat_map(|row| {
            let rare = Recipe::with_cfa(Cfa::Register { reg: Reg::RSP, disp: row as i32 });
            let at = region.start.0 + 2 * row;
            [(LinkAddr(at), builder.recipe(&rare, &[])), (LinkAddr(at + 1), often)]
        })
        .collect();
    builder.add(Origin::EhFrame, region, rows);
    let build = builder.finish();
    assert_eq!(build.diagnostics, [RecipeDiagnostic::SurplusRecipes(70_001 - 256 - 32_767)]);
    let table = Table::new(&build.bytes).unwrap();
    assert_eq!(table.check(), Ok(()));
    let cfa_at = |addr| table.recipe(table.find(LinkAddr(addr)).unwrap()).unwrap().cfa;
    assert_eq!(cfa_at(0x1001), Cfa::Register { reg: Reg::RBP, disp: 16 });
    assert_eq!(cfa_at(0x1000 + 2 * 1000), Cfa::Register { reg: Reg::RSP, disp: 1000 });
    // A short recipe, which needs no entry.
    assert_eq!(cfa_at(0x1000 + 2 * 2032), Cfa::Register { reg: Reg::RSP, disp: 2032 });
    assert_eq!(cfa_at(0x1000 + 2 * 69_999), Cfa::Unknown);
    assert_eq!(table.find(LinkAddr(0x1001)), Some(RecipeId(1)));
}

#[test]
fn no_code_and_odd_regions() {
    let empty = RecipeTableBuilder::new(Vec::new()).finish();
    assert_eq!(Table::new(&empty.bytes).unwrap().check(), Ok(()));
    assert_eq!(Table::new(&empty.bytes).unwrap().find(LinkAddr(0)), None);
    let range = |start, end| LinkAddr(start)..LinkAddr(end);
    // More blocks than a table can count: no table is built, and no memory allocated for one.
    let huge = RecipeTableBuilder::new(vec![range(0, u64::MAX)]).finish();
    assert_eq!(huge.diagnostics, [RecipeDiagnostic::TooLong]);
    assert_eq!(Table::new(&huge.bytes).unwrap().check(), Ok(()));
    // Overlapping ranges are joined; the last of all addresses has a row.
    let joined = RecipeTableBuilder::new(vec![range(u64::MAX - 9, u64::MAX), range(20, 30), range(10, 25)]).finish();
    let table = Table::new(&joined.bytes).unwrap();
    assert_eq!((table.check(), table.header().regions), (Ok(()), 2));
    assert_eq!(table.find(LinkAddr(u64::MAX - 1)), Some(RecipeId(0)));
    assert_eq!(table.find(LinkAddr(30)), None);
}

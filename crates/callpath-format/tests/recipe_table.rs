//! The recipe table's layout, written out by hand from its description, read by the code.

use callpath_format::address::LinkAddr;
use callpath_format::recipe::{Cfa, Expression, Packed, Recipe, Rule};
use callpath_format::register::Reg;
use callpath_format::table::{Header, RecipeId, Table, TableError};

/// A table of the worked example's region, 0x1000..0x1300 with rows at 0x1000, 0x1001 and 0x1204.
#[derive(Clone)]
struct Parts {
    regions: Vec<(u64, u64, u32, u32)>,
    blocks: Vec<u32>,
    starts: Vec<u8>,
    ids: Vec<u16>,
    recipes: Vec<[u8; 16]>,
    wide: Vec<[u8; 8]>,
    expr: Vec<u8>,
}

const RSP_8: [u8; 16] = [8, 0, 0, 0, 0, 0, 0, 0, 7 << 3 | 2, 0, 0, 0, 0, 0, 0, 0];
const RBP_16: [u8; 16] = [16, 0, 0, 0, 0, 0, 0, 0, 6 << 3 | 2, 0, 0, 2, 0, 0, 0, 0];

fn example() -> Parts {
    Parts {
        regions: vec![(0x1000, 0x300, 0, 3)],
        blocks: vec![0, 2, 2, 3],
        starts: vec![0x00, 0x01, 0x04],
        ids: vec![1, 2, 0],
        recipes: vec![[0; 16], RSP_8, RBP_16],
        wide: vec![],
        expr: vec![],
    }
}

impl Parts {
    fn bytes(&self) -> Vec<u8> {
        let pad = |bytes: &mut Vec<u8>| bytes.resize(bytes.len().next_multiple_of(8), 0);
        let mut bytes = vec![0; 40];
        // The first of the largest.
        let largest = self.regions.iter().rev().max_by_key(|region| region.1).copied().unwrap_or_default();
        for (start, len, block, count) in [largest].iter().chain(&self.regions) {
            bytes.extend([start.to_le_bytes(), len.to_le_bytes()].concat());
            bytes.extend([block.to_le_bytes(), count.to_le_bytes()].concat());
        }
        bytes.extend(self.blocks.iter().flat_map(|block| block.to_le_bytes()));
        pad(&mut bytes);
        // Those that are in no block come last.
        let mut ends: Vec<usize> = self.blocks.iter().map(|block| (*block as usize).min(self.starts.len())).collect();
        ends.sort_unstable();
        ends.push(self.starts.len());
        for ends in ends.windows(2) {
            bytes.extend(&self.starts[ends[0]..ends[1]]);
            bytes.extend(self.ids[ends[0]..ends[1]].iter().flat_map(|id| id.to_le_bytes()));
        }
        pad(&mut bytes);
        bytes.extend(self.recipes.concat());
        bytes.extend(self.wide.concat());
        bytes.extend(&self.expr);
        pad(&mut bytes);
        let lens = [
            bytes.len(),
            self.regions.len(),
            self.blocks.len() - 1,
            self.starts.len(),
            self.recipes.len(),
            self.wide.len(),
            self.expr.len(),
        ];
        bytes[..8].copy_from_slice(b"CPRTAB06");
        for (index, len) in lens.into_iter().enumerate() {
            bytes[8 + 4 * index..][..4].copy_from_slice(&(len as u32).to_le_bytes());
        }
        bytes
    }

    fn check(&self) -> Result<(), TableError> {
        Table::new(&self.bytes())?.check()
    }

    /// Recipe 1 becomes wide.
    fn with_wide(mut self, words: &[[u8; 8]]) -> Parts {
        self.recipes[1] = [0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0];
        self.wide = words.to_vec();
        self
    }
}

fn id_at(table: &Table<'_>, addr: u64) -> Option<u16> {
    table.find(LinkAddr(addr)).map(|id| id.0)
}

#[test]
fn worked_example() {
    let bytes = example().bytes();
    let table = Table::new(&bytes).unwrap();
    assert_eq!(table.check(), Ok(()));
    let found = [0xfff, 0x1000, 0x1001, 0x10ff, 0x1110, 0x1203, 0x1204, 0x12ff, 0x1300].map(|addr| id_at(&table, addr));
    assert_eq!(found, [None, Some(1), Some(2), Some(2), Some(2), Some(2), Some(0), Some(0), None]);
    let mut rows = Vec::new();
    table.for_each_row(|start, id| rows.push((start.0, id.map(|id| id.0))));
    assert_eq!(rows, [(0x1000, Some(1)), (0x1001, Some(2)), (0x1204, Some(0)), (0x1300, None)]);
    assert_eq!(table.recipe(RecipeId(1)), Some(Recipe::with_cfa(Cfa::Register { reg: Reg::RSP, disp: 8 })));
    let mut saved_rbp = Recipe::with_cfa(Cfa::Register { reg: Reg::RBP, disp: 16 });
    saved_rbp.registers[Reg::RBP.index()] = Rule::AtCfa(-16);
    assert_eq!(table.recipe(RecipeId(2)), Some(saved_rbp));
    assert_eq!(table.recipe(RecipeId(3)), None);
}

#[test]
fn short_recipes() {
    // What they are, by hand: bits 8 to 13 are rbx, rbp, r12, r13, r14, r15.
    let cases: [(u16, i32, [u8; 6]); 6] = [
        (0x8001, 8, [0; 6]),
        (0x80ff, 2040, [0; 6]),
        // push r12; push rbp; push rbx; sub rsp, 16
        (0x8706, 48, [4, 3, 2, 0, 0, 0]),
        // all, as gcc pushes them
        (0xbf07, 56, [7, 6, 5, 4, 3, 2]),
        // all, as clang does
        (0xff07, 56, [7, 2, 6, 5, 4, 3]),
        // push rbp; push r14; push rbx
        (0xd304, 32, [4, 2, 0, 0, 3, 0]),
    ];
    let mut parts = example();
    for (id, disp, slots) in cases {
        parts.ids[1] = id;
        let bytes = parts.bytes();
        let table = Table::new(&bytes).unwrap();
        assert_eq!((table.check(), id_at(&table, 0x1002)), (Ok(()), Some(id)));
        let packed = Packed { disp, add: 0, head: 7 << 3 | 2, slots };
        assert_eq!(table.packed(RecipeId(id)), Some(packed));
        assert_eq!(table.recipe(RecipeId(id)), packed.unpack());
        assert_eq!(RecipeId::short(&packed), Some(RecipeId(id)));
    }
    let plain = Packed { disp: 8, add: 0, head: 7 << 3 | 2, slots: [0; 6] };
    let others = [
        Packed { disp: 4, ..plain },
        Packed { disp: -8, ..plain },
        Packed { disp: 2048, ..plain },
        Packed { add: 8, ..plain },
        Packed { head: 6 << 3 | 2, ..plain },
        Packed { head: 7 << 3 | 3, ..plain },
        Packed { slots: [1, 0, 0, 0, 0, 0], ..plain },
        Packed { slots: [3, 0, 0, 0, 0, 0], ..plain },
        Packed { slots: [2, 3, 0, 0, 0, 0], ..plain },
    ];
    for packed in others {
        assert_eq!(RecipeId::short(&packed), None, "{packed:?}");
    }
    // Every one is what it says.
    for id in 0x8000..=u16::MAX {
        let table = example().bytes();
        let packed = Table::new(&table).unwrap().packed(RecipeId(id)).unwrap();
        let again = RecipeId::short(&packed).unwrap();
        assert_eq!(Table::new(&table).unwrap().packed(again), Some(packed), "{id:#x}");
    }
}

#[test]
fn blocks_of_many_rows() {
    // A row at every second address: found by halving, not one by one.
    let mut parts = example();
    parts.regions = vec![(0x1000, 0x100, 0, 1), (0x1100, 0x80, 1, 1)];
    parts.blocks = vec![0, 128, 129];
    parts.starts = (0..128).map(|row| row * 2).chain([0]).collect();
    parts.ids = (0..129).map(|row| 1 + row % 2).collect();
    let bytes = parts.bytes();
    let table = Table::new(&bytes).unwrap();
    assert_eq!(table.check(), Ok(()));
    for addr in 0x1000..0x1100 {
        assert_eq!(id_at(&table, addr), Some(1 + (addr / 2 % 2) as u16), "{addr:#x}");
    }
    assert_eq!((id_at(&table, 0x1100), id_at(&table, 0x117f), id_at(&table, 0x1180)), (Some(1), Some(1), None));
}

#[test]
fn wide_recipes() {
    let words = [
        [5, 1, 0, 0, 0, 0, 0, 0],
        [17, 8, 6, 0, 0xf8, 0xff, 0xff, 0xff], // CFA = *(rbp - 8) + 16
        [16, 0, 0, 0, 0, 0, 0, 0],
        [16, 4, 7, 0, 168, 0, 0, 0], // return address = *(rsp + 168)
        [3, 5, 10, 0, 0, 0, 0, 0],   // rbx = r10
        [7, 7, 0, 2, 1, 0, 0, 0],    // rsp = expression
        [12, 6, 0, 3, 0, 0, 0, 0],   // r12 = *(expression)
    ];
    let mut parts = example().with_wide(&words);
    parts.expr = vec![0x77, 8, 6];
    let bytes = parts.bytes();
    let table = Table::new(&bytes).unwrap();
    assert_eq!(table.check(), Ok(()));
    let mut expected = Recipe::with_cfa(Cfa::Deref { reg: Reg::RBP, disp: -8, add: 16 });
    expected.signal_frame = true;
    expected.return_address = Rule::AtRegister(Reg::RSP, 168);
    expected.registers[3] = Rule::RegisterPlus(Reg::R10, 0);
    expected.registers[7] = Rule::ExpressionValue(Expression { start: 1, len: 2 });
    expected.registers[12] = Rule::AtExpression(Expression { start: 0, len: 3 });
    assert_eq!(table.recipe(RecipeId(1)), Some(expected));
    assert_eq!(table.expression(Expression { start: 1, len: 2 }), Some(&[8, 6][..]));
    assert_eq!(table.expression(Expression { start: 2, len: 2 }), None);

    let cfa = [17, 5, 7, 0, 8, 0, 0, 0];
    let malformed = |words: &[[u8; 8]]| {
        assert_eq!(example().with_wide(words).check(), Err(TableError::Recipe(1)), "{words:x?}");
    };
    malformed(&[]);
    malformed(&[[1, 0, 0, 0, 0, 0, 0, 0]]); // its word is missing
    malformed(&[[1, 0, 0, 0, 0, 0, 0, 0], [3, 1, 0, 0, 0, 0, 0, 0]]); // no CFA
    malformed(&[[2, 0, 0, 0, 0, 0, 0, 0], cfa, [18, 0, 0, 0, 0, 0, 0, 0]]); // no such target
    malformed(&[[2, 0, 0, 0, 0, 0, 0, 0], cfa, [3, 9, 0, 0, 0, 0, 0, 0]]); // no such kind
    malformed(&[[2, 0, 0, 0, 0, 0, 0, 0], cfa, [3, 4, 16, 0, 0, 0, 0, 0]]); // no such base
    malformed(&[[2, 0, 0, 0, 0, 0, 0, 0], cfa, [3, 6, 0, 1, 0, 0, 0, 0]]); // no such expression
    malformed(&[[1, 0, 0, 0, 0, 0, 0, 0], [17, 8, 6, 0, 0, 0, 0, 0]]); // its addend is missing
}

#[test]
fn check_finds_what_is_wrong() {
    let wrong = |change: fn(&mut Parts), error| {
        let mut parts = example();
        change(&mut parts);
        assert_eq!(parts.check(), Err(error));
    };
    wrong(|p| p.regions[0].1 = 0, TableError::Region(0));
    wrong(|p| p.regions[0].1 = 0x301, TableError::Region(0));
    wrong(|p| p.regions[0].1 = 0x204, TableError::Region(0)); // the last row begins at its end
    wrong(|p| p.regions[0].2 = 1, TableError::Region(0));
    wrong(|p| p.regions[0].0 = u64::MAX - 0x200, TableError::Region(0));
    wrong(|p| p.starts[0] = 1, TableError::Region(0));
    wrong(|p| p.blocks = vec![0, 0, 2, 3], TableError::Region(0)); // its first row is in its second block
    wrong(|p| p.blocks = vec![0, 2, 1, 3], TableError::Block(1));
    wrong(|p| p.blocks = vec![0, 2, 2, 2], TableError::Length);
    wrong(|p| p.starts[1] = 0, TableError::Block(0));
    wrong(|p| p.ids[1] = 3, TableError::Row(1));
    wrong(|p| p.recipes[0] = RSP_8, TableError::Recipe(0));
    wrong(|p| p.recipes[2][8] = 5, TableError::Recipe(2));
    let twice = |p: &mut Parts| {
        p.regions.push((0x1200, 0x100, 3, 1));
        p.blocks = vec![0, 2, 2, 3, 4];
        p.starts.push(0);
        p.ids.push(0);
    };
    let mut overlapping = example();
    twice(&mut overlapping);
    assert_eq!(overlapping.check(), Err(TableError::Region(1)));
    overlapping.regions[1].0 = 0x1300;
    assert_eq!(overlapping.check(), Ok(()));
    // The block counts of hostile regions add up to more than 32 bits.
    overlapping.regions = vec![(0, 0xff_ffff_ff00, 0, u32::MAX), (0x100_0000_0000, 0x100, u32::MAX, 1)];
    assert!(overlapping.check().is_err());
}

#[test]
fn header_decides_what_is_a_table() {
    let bytes = example().bytes();
    assert_eq!(Table::new(&[]).err(), Some(TableError::Length));
    let other_version = [&b"CPRTAB05"[..], &bytes[8..]].concat();
    assert_eq!(Table::new(&other_version).err(), Some(TableError::Magic));
    for len in 8..bytes.len() {
        assert!(Table::new(&bytes[..len]).is_err(), "{len}");
    }
    // What comes after is not the table's.
    assert_eq!(Table::new(&[&bytes[..], &[1; 9]].concat()).unwrap().len_bytes(), bytes.len());
    for field in 0..7 {
        let mut wrong = bytes.clone();
        wrong[8 + 4 * field..][..4].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(Table::new(&wrong).err(), Some(TableError::Length), "field {field}");
    }
    // The largest region is the one that the header repeats.
    for at in 40..64 {
        let mut wrong = bytes.clone();
        wrong[at] ^= 1;
        assert_eq!(Table::new(&wrong).unwrap().check(), Err(TableError::Length), "{at}");
    }
    assert_eq!(Header::default().layout().map(|layout| layout.end), Some(72));
}

#[test]
fn packed_recipes_hold_what_they_are_given() {
    let mut recipe = Recipe::with_cfa(Cfa::Deref { reg: Reg::R10, disp: -8, add: i32::MIN });
    recipe.registers[Reg::RBX.index()] = Rule::AtCfa(-2040);
    recipe.registers[Reg::R15.index()] = Rule::Lost;
    let packed = Packed::pack(&recipe).unwrap();
    assert_eq!(packed.unpack(), Some(recipe));
    assert_eq!(Packed::from_bytes(&packed.to_bytes()), packed);
    for recipe in [Recipe::UNKNOWN, Recipe::OUTERMOST] {
        assert_eq!(Packed::pack(&recipe).unwrap().unpack(), Some(recipe));
    }
    let not_packed = |rule, reg: Reg| {
        let mut recipe = Recipe::with_cfa(Cfa::Register { reg: Reg::RSP, disp: 8 });
        recipe.registers[reg.index()] = rule;
        assert_eq!(Packed::pack(&recipe), None, "{rule:?}");
    };
    for disp in [-8, 0, 8, -17, -2048, i32::MIN] {
        not_packed(Rule::AtCfa(disp), Reg::RBX); // no slot
    }
    not_packed(Rule::RegisterPlus(Reg::R10, 0), Reg::RBP);
    not_packed(Rule::Same, Reg::RSP);
    not_packed(Rule::CfaPlus(8), Reg::RSP);
    let signal = Recipe { signal_frame: true, ..Recipe::with_cfa(Cfa::Register { reg: Reg::RSP, disp: 8 }) };
    assert_eq!(Packed::pack(&signal), None);
}

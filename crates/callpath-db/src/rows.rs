//! Costs by node and metric: a table that takes memory for the cells that there
//! are, and not for each metric at each node.
//!
//! It is kept by column, since metrics differ: of most nodes there is an inclusive time, but most events happen at few.
//! A column with few cells is a hash table, one with many an array.

use std::ops::Index;

use callpath_schema::Rule;
use rustc_hash::FxHashMap;

/// A cell of a hash table takes the memory of some three in an array.
const PER_HASHED_CELL: usize = 3;

/// A row for each node, a column for each metric.
#[derive(Clone, Debug)]
pub(crate) struct Rows {
    len: usize,
    columns: Vec<Column>,
}

#[derive(Clone, Debug)]
struct Column {
    rule: Rule,
    cells: Cells,
}

/// The cells of a column that are not 0.
#[derive(Clone, Debug)]
enum Cells {
    Few(Few),
    /// By row, as far as any is not 0, and how many are not.
    Many(Vec<u64>, usize),
}

/// Cells by row, and a bit for each row that has one: most look-ups find none.
#[derive(Clone, Debug, Default)]
struct Few {
    cells: FxHashMap<u32, u64>,
    bits: Vec<u64>,
}

impl Few {
    fn of(values: &[u64], used: usize) -> Few {
        let cells = FxHashMap::with_capacity_and_hasher(used, rustc_hash::FxBuildHasher);
        let mut few = Few { cells, bits: Vec::new() };
        for (row, value) in values.iter().enumerate().filter(|(_, value)| **value != 0) {
            *few.cell(row) = *value;
        }
        few
    }

    #[inline]
    fn at(&self, row: usize) -> &u64 {
        match self.bits.get(row / 64) {
            Some(word) if word >> (row % 64) & 1 != 0 => self.cells.get(&(row as u32)).unwrap_or(&0),
            _ => &0,
        }
    }

    fn cell(&mut self, row: usize) -> &mut u64 {
        if row / 64 >= self.bits.len() {
            self.bits.resize(row / 64 + 1, 0);
        }
        self.bits[row / 64] |= 1 << (row % 64);
        self.cells.entry(row as u32).or_default()
    }

    fn forget(&mut self, row: usize) {
        self.cells.remove(&(row as u32));
        self.bits[row / 64] &= !(1 << (row % 64));
    }
}

/// What is moved from one table to another: the row there, the row here.
pub(crate) type Moves = Vec<(u32, u32)>;

impl Rows {
    /// A table without rows, and a column for each rule.
    pub(crate) fn new(rules: impl IntoIterator<Item = Rule>) -> Rows {
        let column = |rule| Column { rule, cells: Cells::Few(Few::default()) };
        Rows { len: 0, columns: rules.into_iter().map(column).collect() }
    }

    /// A table of `len` rows of zeros with the columns of this one.
    pub(crate) fn zeros_like(&self, len: usize) -> Rows {
        Rows { len, ..Rows::new(self.rules()) }
    }

    /// How the values of each column combine.
    pub(crate) fn rules(&self) -> impl Iterator<Item = Rule> {
        self.columns.iter().map(|column| column.rule)
    }

    /// Number of columns.
    pub(crate) fn width(&self) -> usize {
        self.columns.len()
    }

    /// Number of rows.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Appends a row of zeros.
    pub(crate) fn push(&mut self) {
        self.len += 1;
    }

    /// Adds columns of zeros on the right.
    pub(crate) fn widen(&mut self, added: &[Rule]) {
        self.columns.extend(Rows::new(added.iter().copied()).columns);
    }

    /// Puts the columns in another order: those that `order` names, each once.
    pub(crate) fn reorder(&mut self, order: &[usize]) {
        self.columns = order.iter().filter_map(|column| self.columns.get(*column).cloned()).collect();
    }

    /// A row.
    pub(crate) fn row(&self, row: usize) -> Row<'_> {
        Row { rows: self, row }
    }

    /// A cell; 0 where there is no such column.
    pub(crate) fn get(&self, row: usize, metric: usize) -> u64 {
        self.columns.get(metric).map_or(0, |column| *column.cells.at(row))
    }

    /// Combines `value` with a cell.
    pub(crate) fn add(&mut self, row: usize, metric: usize, value: u64) {
        let len = self.len;
        if let Some(column) = self.columns.get_mut(metric).filter(|_| value != 0) {
            column.add(row, value, len);
        }
    }

    /// Combines values, one for each metric, with a row.
    pub(crate) fn add_row(&mut self, row: usize, values: &[u64]) {
        for (metric, value) in values.iter().enumerate() {
            self.add(row, metric, *value);
        }
    }

    /// Combines rows of another table with rows of this one, in order. `columns`: for each of its columns the one here.
    pub(crate) fn take_over(&mut self, from: &Rows, columns: impl IntoIterator<Item = usize>, moves: &[(u32, u32)]) {
        let len = self.len;
        for (theirs, here) in from.columns.iter().zip(columns) {
            let Some(column) = self.columns.get_mut(here).filter(|_| !theirs.cells.is_empty()) else { continue };
            match &theirs.cells {
                // To most rows something comes.
                Cells::Many(theirs, _) if moves.len() > len / PER_HASHED_CELL => {
                    let (rule, mut values) = (column.rule, column.cells.to_vec(len));
                    for (there, here) in moves {
                        let value = theirs.get(*there as usize).copied().unwrap_or(0);
                        let here = &mut values[*here as usize];
                        *here = rule.combine(*here, value);
                    }
                    column.cells = Cells::of(values);
                }
                theirs => {
                    for (there, here) in moves {
                        match *theirs.at(*there as usize) {
                            0 => {}
                            value => column.add(*here as usize, value, len),
                        }
                    }
                }
            }
        }
    }

    /// The same of a table with the same columns.
    pub(crate) fn take(&mut self, from: &Rows, moves: &[(u32, u32)]) {
        self.take_over(from, 0..from.width(), moves);
    }

    /// The table in which each column is what `change` makes of it, given its rule. A column of zeros stays one.
    pub(crate) fn mapped(&self, mut change: impl FnMut(Rule, &mut [u64])) -> Rows {
        let columns = self.columns.iter().map(|column| {
            if column.cells.is_empty() {
                return column.clone();
            }
            let mut values = column.cells.to_vec(self.len);
            change(column.rule, &mut values);
            Column { rule: column.rule, cells: Cells::of(values) }
        });
        Rows { len: self.len, columns: columns.collect() }
    }

    /// The cells of a column that are not 0, in order of the rows.
    pub(crate) fn column(&self, metric: usize) -> Vec<(u32, u64)> {
        let Some(column) = self.columns.get(metric) else { return Vec::new() };
        match &column.cells {
            Cells::Few(few) => {
                let mut cells: Vec<(u32, u64)> = few.cells.iter().map(|(row, value)| (*row, *value)).collect();
                cells.sort_unstable_by_key(|cell| cell.0);
                cells
            }
            Cells::Many(values, _) => {
                let cells = values.iter().enumerate().filter(|(_, value)| **value != 0);
                cells.map(|(row, value)| (row as u32, *value)).collect()
            }
        }
    }

    /// All rows, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Row<'_>> {
        (0..self.len).map(|row| self.row(row))
    }

    /// Replaces a column by one value for each row.
    pub(crate) fn set_column(&mut self, metric: usize, mut values: Vec<u64>) {
        values.resize(self.len, 0);
        if let Some(column) = self.columns.get_mut(metric) {
            column.cells = Cells::of(values);
        }
    }

    /// Replaces rows by those of a table with the same columns.
    pub(crate) fn replace(&mut self, from: &Rows, rows: &[usize]) {
        for (column, theirs) in self.columns.iter_mut().zip(&from.columns) {
            let mut values = column.cells.to_vec(self.len);
            rows.iter().for_each(|row| values[*row] = *theirs.cells.at(*row));
            column.cells = Cells::of(values);
        }
    }

    /// For each row whether it has a cell.
    pub(crate) fn occupied(&self) -> Vec<bool> {
        let mut occupied = vec![false; self.len];
        for column in &self.columns {
            match &column.cells {
                Cells::Few(few) => few.cells.keys().for_each(|row| occupied[*row as usize] = true),
                Cells::Many(values, _) => {
                    occupied.iter_mut().zip(values).for_each(|(occupied, value)| *occupied |= *value != 0);
                }
            }
        }
        occupied
    }
}

impl Column {
    /// Combines `value`, which is not 0, with the cell of a row of `len`.
    fn add(&mut self, row: usize, value: u64, len: usize) {
        self.cells.make_room(row, len);
        let before = match &mut self.cells {
            Cells::Few(few) => few.cell(row),
            Cells::Many(values, used) => {
                let before = &mut values[row];
                *used += usize::from(*before == 0);
                before
            }
        };
        *before = self.rule.combine(*before, value);
        if *before == 0 {
            self.cells.forget(row);
        }
    }
}

impl Cells {
    /// Of one value for each row.
    fn of(values: Vec<u64>) -> Cells {
        let used = values.iter().filter(|value| **value != 0).count();
        if used * PER_HASHED_CELL > values.len() {
            Cells::Many(values, used)
        } else {
            Cells::Few(Few::of(&values, used))
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Cells::Few(few) => few.cells.is_empty(),
            Cells::Many(_, used) => *used == 0,
        }
    }

    #[inline]
    fn at(&self, row: usize) -> &u64 {
        match self {
            Cells::Few(few) => few.at(row),
            Cells::Many(values, _) => values.get(row).unwrap_or(&0),
        }
    }

    /// One value for each row.
    fn to_vec(&self, len: usize) -> Vec<u64> {
        let mut all = vec![0; len];
        match self {
            Cells::Few(few) => few.cells.iter().for_each(|(row, value)| all[*row as usize] = *value),
            Cells::Many(values, _) => all[..values.len()].copy_from_slice(values),
        }
        all
    }

    /// Has a place for a row of `len`, in whichever way takes less memory.
    fn make_room(&mut self, row: usize, len: usize) {
        match self {
            Cells::Few(few) if few.cells.len() * PER_HASHED_CELL > len => {
                let used = few.cells.len();
                *self = Cells::Many(self.to_vec(len), used);
            }
            // The table has grown, and most new rows have no such cell.
            Cells::Many(values, used) if row >= values.len() && *used * (PER_HASHED_CELL + 1) < row => {
                *self = Cells::Few(Few::of(values, *used));
            }
            Cells::Many(values, _) if row >= values.len() => values.resize(row + 1, 0),
            _ => {}
        }
    }

    /// The cell of a row has become 0.
    fn forget(&mut self, row: usize) {
        match self {
            Cells::Few(few) => few.forget(row),
            Cells::Many(_, used) => *used -= 1,
        }
    }
}

/// What something costs, a value for each metric.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    rows: &'a Rows,
    row: usize,
}

impl<'a> Row<'a> {
    /// Of one metric; 0 where there is no such metric.
    pub fn get(&self, metric: usize) -> u64 {
        self.rows.get(self.row, metric)
    }

    /// In order of the metrics.
    pub fn iter(&self) -> impl Iterator<Item = u64> + use<'a> {
        let Row { rows, row } = *self;
        rows.columns.iter().map(move |column| *column.cells.at(row))
    }

    /// The same.
    pub fn to_vec(&self) -> Vec<u64> {
        self.iter().collect()
    }

    /// Whether all of them are 0.
    pub fn is_zero(&self) -> bool {
        self.iter().all(|value| value == 0)
    }
}

impl Index<usize> for Row<'_> {
    type Output = u64;

    fn index(&self, metric: usize) -> &u64 {
        self.rows.columns[metric].cells.at(self.row)
    }
}

impl<const N: usize> PartialEq<[u64; N]> for Row<'_> {
    fn eq(&self, other: &[u64; N]) -> bool {
        self.iter().eq(other.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Metric;

    /// Sums and maxima of random cells against rows that have all of them, while the table grows.
    #[test]
    fn a_table_is_what_full_rows_would_be() {
        let metrics = [Metric::sum("often", "count"), Metric::max("seldom", "count"), Metric::sum("never", "count")];
        let rules: Vec<Rule> = metrics.iter().map(Metric::rule).collect();
        let mut seed = 5u64;
        let mut below = |bound: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as usize % bound
        };
        // Dense at first, then with more and more rows that have nothing, then dense again.
        for added_at_once in [1, 2, 40] {
            let (mut rows, mut model): (Rows, Vec<[u64; 3]>) = (Rows::new(rules.iter().copied()), Vec::new());
            for _ in 0..2000 {
                for _ in 0..added_at_once {
                    rows.push();
                    model.push([0; 3]);
                }
                let (row, value) = (below(model.len()), below(9) as u64);
                rows.add(row, 0, value);
                model[row][0] += value;
                if below(50) == 0 {
                    rows.add(row, 1, value);
                    model[row][1] = model[row][1].max(value);
                }
            }
            for (row, expected) in model.iter().enumerate() {
                assert_eq!(rows.row(row), *expected);
                assert_eq!(rows.row(row).is_zero(), *expected == [0; 3]);
            }
            assert!(rows.occupied().iter().zip(&model).all(|(occupied, model)| *occupied == (*model != [0; 3])));
            let doubled =
                rows.mapped(|rule, column| column.iter_mut().for_each(|cell| *cell = rule.combine(*cell, *cell)));
            let mut moved = rows.zeros_like(model.len());
            let moves: Moves = (0..model.len() as u32).map(|row| (row, row / 2)).collect();
            moved.take(&doubled, &moves);
            for (row, pair) in model.chunks(2).enumerate() {
                let often: u64 = pair.iter().map(|of| 2 * of[0]).sum();
                let seldom = pair.iter().map(|of| of[1]).max().unwrap_or(0);
                assert_eq!(moved.row(row), [often, seldom, 0]);
            }
        }
    }

    #[test]
    fn what_has_few_cells_takes_little_memory() {
        let metrics: Vec<Metric> = (0..50).map(|_| Metric::sum("event", "count")).collect();
        let mut rows = Rows::new(metrics.iter().map(Metric::rule));
        for row in 0..100_000 {
            rows.push();
            rows.add(row, 0, 1);
            rows.add(row, 1 + row % 49, u64::from(row % 100 == 0));
        }
        let cells = |column: &Column| match &column.cells {
            Cells::Few(few) => few.cells.capacity() * PER_HASHED_CELL + few.bits.capacity(),
            Cells::Many(values, _) => values.capacity(),
        };
        // The first is full; in each other one is a cell in five thousand, and a bit for each row.
        assert!(cells(&rows.columns[0]) >= 100_000);
        assert!(rows.columns[1..].iter().map(cells).sum::<usize>() < 200_000);
    }

    #[test]
    fn a_cell_that_becomes_zero_again_is_none() {
        let signed = Metric { value: callpath_schema::MetricType::Signed, ..Metric::sum("delta", "count") };
        let mut rows = Rows::new([signed.rule()]);
        for row in 0..10 {
            rows.push();
            rows.add(row, 0, 7);
            rows.add(row, 0, -7i64 as u64);
            assert!(rows.row(row).is_zero() && rows.columns[0].cells.is_empty());
        }
        assert_eq!(rows.occupied(), [false; 10]);
    }
}

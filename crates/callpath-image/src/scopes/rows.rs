//! A unit's line map: where in the code which line begins.

use gimli::LineRow;

use super::reading::Reading;
use super::unit::{END, NO_FILE, NONE, Row, STATEMENT};

/// A unit's line map.
#[derive(Debug, Default)]
pub(super) struct LineRows {
    /// Ascending.
    pub(super) rows: Vec<Row>,
    /// Statements that begin where other rows have the code: ascending, at one address in the compiler's order.
    pub(super) bare: Vec<Row>,
}

/// A range of the line map without gaps.
#[derive(Default)]
struct Sequence {
    rows: Vec<Row>,
    bare: Vec<Row>,
    end: u64,
}

/// Reads the line program of the unit. What was found before an error stays.
pub(super) fn read(reading: &mut Reading<'_>) -> LineRows {
    let skeleton = std::rc::Rc::clone(&reading.skeleton);
    let (start, dwarf) = (skeleton.start, reading.dwarf(skeleton.home));
    let mut sequences = Vec::new();
    match reading.texts.program(dwarf, &skeleton) {
        Ok(Some(program)) => {
            let bytes = program.header().raw_program_buf().len();
            let shared = !reading.module.is_first_use(program.header().offset().0, start);
            if shared && !reading.module.spend(bytes) {
                reading.diagnose(start, "too many units share one line program".to_string());
                return LineRows::default();
            }
            if let Err(error) = sequences_of(reading, program, &mut sequences) {
                reading.diagnose(start, format!("its line program cannot be read to its end: {error}"));
            }
        }
        Ok(None) => {}
        Err(error) => reading.diagnose(start, format!("its line program's header cannot be read: {error}")),
    }
    joined(sequences)
}

fn sequences_of<'a>(
    reading: &mut Reading<'a>,
    program: gimli::IncompleteLineProgram<crate::dwarf::Reader<'a>>,
    sequences: &mut Vec<Sequence>,
) -> Result<(), gimli::Error> {
    let skeleton = std::rc::Rc::clone(&reading.skeleton);
    let dwarf = reading.dwarf(skeleton.home);
    let mut rows = program.rows();
    let mut sequence = Sequence::default();
    // The file of the row before, by its index in the table.
    let mut last_file = (u64::MAX, NONE);
    while let Some((_, row)) = rows.next_row()? {
        let goes_back = sequence.rows.last().is_some_and(|last| row.address() < last.addr);
        if row.end_sequence() || goes_back {
            sequence.end = if goes_back { sequence.rows.last().map_or(0, |last| last.addr) } else { row.address() };
            let ended = std::mem::take(&mut sequence);
            // Code that the linker dropped begins at 0, where an ELF header lies, never code.
            if ended.rows.first().is_some_and(|first| first.addr != 0 && first.addr < ended.end) {
                sequences.push(ended.shrunk());
            }
            if row.end_sequence() {
                continue;
            }
        }
        if row.file_index() != last_file.0 {
            let file = reading.texts.file(dwarf, &skeleton, row.file_index()).unwrap_or_else(|why| {
                reading.diagnose(skeleton.start, format!("a file of its line program cannot be found: {why}"));
                NONE
            });
            last_file = (row.file_index(), file);
        }
        let new = compact(row, last_file.1);
        match sequence.rows.last_mut() {
            // Of several rows at one address only the last has code.
            Some(last) if last.addr == new.addr => {
                let before = std::mem::replace(last, new);
                let is_other = (before.file, before.line, before.column) != (new.file, new.line, new.column);
                if before.file & STATEMENT != 0 && before.line != 0 && is_other {
                    sequence.bare.push(before);
                }
            }
            _ => sequence.rows.push(new),
        }
    }
    Ok(())
}

fn compact(row: &LineRow, file: u32) -> Row {
    let column = match row.column() {
        gimli::ColumnType::LeftEdge => 0,
        gimli::ColumnType::Column(column) => u32::try_from(column.get()).unwrap_or(0),
    };
    let file = if file >= NO_FILE { NO_FILE } else { file };
    Row {
        addr: row.address(),
        file: if row.is_stmt() { file | STATEMENT } else { file },
        line: row.line().and_then(|line| u32::try_from(line.get()).ok()).unwrap_or(0),
        discriminator: u32::try_from(row.discriminator()).unwrap_or(0),
        column,
    }
}

impl Sequence {
    fn shrunk(mut self) -> Sequence {
        self.rows.shrink_to_fit();
        self.bare.shrink_to_fit();
        self
    }
}

/// All sequences as one ascending list. Where they overlap, the one that begins first continues to its end.
fn joined(mut sequences: Vec<Sequence>) -> LineRows {
    sequences.sort_by_key(|sequence| sequence.rows.first().map_or(0, |row| row.addr));
    let mut rows: Vec<Row> = Vec::with_capacity(sequences.iter().map(|sequence| sequence.rows.len() + 1).sum());
    let mut bare: Vec<Row> = Vec::with_capacity(sequences.iter().map(|sequence| sequence.bare.len()).sum());
    let mut end = 0;
    for sequence in sequences {
        if sequence.end <= end {
            continue;
        }
        let hidden = sequence.rows.partition_point(|row| row.addr < end);
        // The end before this one, if there is no gap.
        if rows.last().is_some_and(|last| last.addr == end && sequence.rows.first().is_some_and(|row| row.addr <= end))
        {
            rows.pop();
        }
        if let Some(cut) = hidden.checked_sub(1).and_then(|index| sequence.rows.get(index))
            && sequence.rows.get(hidden).is_none_or(|row| row.addr > end)
        {
            rows.push(Row { addr: end, ..*cut });
        }
        rows.extend_from_slice(sequence.rows.get(hidden..).unwrap_or_default());
        bare.extend(sequence.bare.iter().filter(|row| row.addr >= end));
        end = sequence.end;
        rows.push(Row { addr: end, file: END, line: 0, discriminator: 0, column: 0 });
    }
    rows.shrink_to_fit();
    bare.shrink_to_fit();
    LineRows { rows, bare }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sequence(rows: &[(u64, u32)], end: u64) -> Sequence {
        let row = |&(addr, line): &(u64, u32)| Row { addr, file: 0, line, discriminator: 0, column: 0 };
        // A statement without code in each row's place, of a line a hundred further on.
        let bare = |row: Row| Row { line: row.line + 100, ..row };
        Sequence { rows: rows.iter().map(row).collect(), bare: rows.iter().map(row).map(bare).collect(), end }
    }

    #[test]
    fn sequences_are_put_in_order_and_the_first_goes_on() {
        let LineRows { rows, bare } = joined(vec![
            sequence(&[(60, 6)], 70),
            sequence(&[(10, 1), (20, 2)], 30),
            sequence(&[(30, 3)], 40),
            sequence(&[(35, 4), (45, 5)], 50),
            sequence(&[(36, 9)], 39),
        ]);
        let said: Vec<(u64, u32)> = rows.iter().map(|row| (row.addr, row.line)).collect();
        assert_eq!(said, [(10, 1), (20, 2), (30, 3), (40, 4), (45, 5), (50, 0), (60, 6), (70, 0)]);
        let begun: Vec<(u64, u32)> = bare.iter().map(|row| (row.addr, row.line)).collect();
        assert_eq!(begun, [(10, 101), (20, 102), (30, 103), (45, 105), (60, 106)]);
    }
}

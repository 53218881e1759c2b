//! The table of values: what each context costs itself in each profile, what is 0 left out.

use callpath_db::database::{Content, Database};
use callpath_db::{Metric, Value};

use crate::column::Cell;
use crate::error::ExportError;
use crate::tables::VALUE;
use crate::written::Written;

/// Where values come from, and the ids of what they are of.
pub(crate) struct Source<'a> {
    pub(crate) database: &'a Database,
    pub(crate) content: &'a Content<'a>,
    pub(crate) export: u64,
    /// By number of the metric.
    pub(crate) metrics: &'a [u64],
    /// By number of the profile.
    pub(crate) profiles: &'a [u64],
}

/// Writes the values of all profiles, one profile after the other. `go_on`: see [`crate::NewTables::write`].
pub(crate) fn write(
    source: Source<'_>,
    written: &mut Written<'_>,
    go_on: &mut dyn FnMut(usize) -> bool,
) -> Result<(), ExportError> {
    let Source { database, content, export, metrics, profiles } = source;
    let mut table = written.begin(&VALUE)?;
    for (number, (entry, profile)) in database.profiles().iter().zip(profiles).enumerate() {
        if !go_on(number) {
            return Err(ExportError::Interrupted { path: written.path.to_owned() });
        }
        for (metric, facts) in database.values(entry)? {
            // Profiles have no other metrics than the database: it was checked.
            let (of, id) = (&database.metrics()[metric as usize], metrics[metric as usize]);
            for (place, bits) in facts {
                let (value, real) = cells(of, bits).ok_or_else(|| ExportError::TooLarge {
                    path: written.path.to_owned(),
                    metric: of.name.clone(),
                    value: bits,
                })?;
                let node = content.context(place as usize).id;
                table.row([Cell::bits(export), Cell::bits(*profile), Cell::bits(node), Cell::bits(id), value, real])?;
            }
        }
    }
    let len_bytes = table.finish()?;
    written.add(len_bytes);
    Ok(())
}

/// A value as an integer, or as a real number; `None`: no integer of the table is so large.
fn cells<'a>(metric: &Metric, bits: u64) -> Option<(Cell<'a>, Cell<'a>)> {
    Some(match metric.value(bits) {
        Value::Integer(value) => (Cell::Integer(i64::try_from(value).ok()?), Cell::Null),
        Value::Signed(value) => (Cell::Integer(value), Cell::Null),
        Value::Real(value) => (Cell::Null, Cell::Real(value)),
    })
}

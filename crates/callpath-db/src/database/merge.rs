//! Merging: any number of databases into one. Memory is bounded by the tree and one input, not by the number of inputs: the inputs
//! are read twice, first their contexts, then their values.

use std::io::{BufWriter, Cursor, Seek, Write};
use std::path::Path;

use callpath_schema::Metric;

use super::error::DatabaseError;
use super::facts::{Member, Run};
use super::new_file::NewFile;
use super::union::{Order, ROOT, Union, renamed};
use super::write::{Assembly, Columns};
use super::{ContextTable, Database};
use crate::metric::columns_for;
use crate::{CodeCosts, Name};

/// What can be merged, and opened several times.
pub trait Source {
    /// Why it cannot be opened.
    type Error: From<DatabaseError>;

    /// The database.
    fn open(&self) -> Result<Database, Self::Error>;
}

/// What came out of merging.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Merged {
    /// Runs of all inputs.
    pub runs: usize,
    /// Profiles of all inputs.
    pub profiles: usize,
    /// Different contexts, the root included.
    pub contexts: usize,
    /// Values of all profiles.
    pub facts: u64,
    /// Length of the file, bytes.
    pub len_bytes: u64,
}

/// Merges `sources` into a new file. It gets its name when it is complete: a merge that fails or is killed leaves nothing. (Where
/// the file system has no files without a name, one that is killed leaves a file with `.part` in its name, which
/// no command takes for a database.)
///
/// Associative, also in what the file's bytes are; commutative but for the order of runs, profiles and metrics.
/// `progress`: steps done, of two for each source.
pub fn merge<S: Source>(sources: &[S], path: &Path, mut progress: impl FnMut(usize)) -> Result<Merged, S::Error> {
    // Before hours of reading, too.
    let new = NewFile::create(path)?;
    let mut union = Union::new();
    let mut metrics: Vec<Metric> = Vec::new();
    let mut runs: Vec<Run> = Vec::new();
    let mut code = MergedCode::new();
    let mut seen = Vec::with_capacity(sources.len());
    for (number, source) in sources.iter().enumerate() {
        let database = source.open()?;
        seen.push(database.fingerprint());
        join(&mut union, &database)?;
        let columns = columns_for(&mut metrics, database.metrics());
        code.add(&database, &columns, &metrics)?;
        runs.extend_from_slice(database.runs());
        progress(number);
    }
    union.check()?;
    let order = union.order();
    let out = BufWriter::with_capacity(1 << 20, new.file());
    let mut output = Output::begin(path, out, metrics, union.len())?.with_code(code);
    for (number, source) in sources.iter().enumerate() {
        let database = source.open()?;
        if database.fingerprint() != seen[number] {
            return Err(database.changed().into());
        }
        output.add(&database, &places(&union, &order, &database)?)?;
        progress(sources.len() + number);
    }
    let (contexts, profiles, facts, count) = (union.len(), output.profiles, output.facts, runs.len());
    drop(output.finish(&union, &order, runs)?);
    let len_bytes = new.finish()?;
    Ok(Merged { runs: count, profiles, contexts, facts, len_bytes })
}

/// For a fuzzer: a database merged with itself, without a file.
pub(super) fn merged_in_memory(database: &Database) -> Result<(), DatabaseError> {
    let mut union = Union::new();
    join(&mut union, database)?;
    join(&mut union, database)?;
    let order = union.order();
    let mut output =
        Output::begin(Path::new("memory"), Cursor::new(Vec::new()), database.metrics().to_vec(), union.len())?;
    output.add(database, &places(&union, &order, database)?)?;
    output.add(database, &places(&union, &order, database)?)?;
    let mut code = MergedCode::new();
    let columns: Vec<usize> = (0..database.metrics().len()).collect();
    code.add(database, &columns, database.metrics())?;
    code.add(database, &columns, database.metrics())?;
    let output = output.with_code(code);
    output.finish(&union, &order, database.runs().to_vec()).map(drop)
}

/// A database that is written, profile by profile.
struct Output<'a, W: Write + Seek> {
    /// For errors.
    path: &'a Path,
    assembly: Assembly<W>,
    metrics: Vec<Metric>,
    runs: u32,
    profiles: usize,
    facts: u64,
}

impl<'a, W: Write + Seek> Output<'a, W> {
    fn begin(path: &'a Path, out: W, metrics: Vec<Metric>, contexts: usize) -> Result<Self, DatabaseError> {
        let assembly = Assembly::new(out, metrics.clone(), contexts);
        let assembly = assembly.map_err(|source| DatabaseError::of_writing(path, source))?;
        Ok(Output { path, assembly, metrics, runs: 0, profiles: 0, facts: 0 })
    }

    fn with_code(self, code: MergedCode) -> Self {
        Output { assembly: self.assembly.with_code(code.of_all()), ..self }
    }

    /// Adds the profiles of a database whose contexts have these places.
    fn add(&mut self, database: &Database, places: &[u32]) -> Result<(), DatabaseError> {
        let columns = columns_for(&mut self.metrics, database.metrics());
        for profile in database.profiles() {
            let values = moved(database.values(profile)?, places, &columns);
            let member = Member { run: profile.member.run + self.runs, ..profile.member.clone() };
            let written = self.assembly.profile(member, &values);
            written.map_err(|source| DatabaseError::of_writing(self.path, source))?;
        }
        self.runs += database.runs().len() as u32;
        self.profiles += database.profiles().len();
        self.facts += database.facts();
        Ok(())
    }

    fn finish(self, union: &Union, order: &Order, runs: Vec<Run>) -> Result<W, DatabaseError> {
        let finished = self.assembly.with_views().finish(union, order, runs);
        finished.map_err(|source| DatabaseError::of_writing(self.path, source))
    }
}

/// What instructions of all inputs cost.
struct MergedCode {
    sum: CodeCosts,
    is_known_of_any: bool,
}

impl MergedCode {
    fn new() -> MergedCode {
        MergedCode { sum: CodeCosts::new([]), is_known_of_any: false }
    }

    /// Adds those of a database. `columns`: for each of its metrics the one of `metrics`.
    fn add(&mut self, database: &Database, columns: &[usize], metrics: &[Metric]) -> Result<(), DatabaseError> {
        match database.code()? {
            Some(code) => {
                self.sum.merge(&code, columns, metrics);
                self.is_known_of_any = true;
            }
            None => self.sum.lack(),
        }
        Ok(())
    }

    /// None where nothing is known.
    fn of_all(self) -> Option<CodeCosts> {
        Some(self.sum).filter(|_| self.is_known_of_any)
    }
}

/// Adds the contexts of a database.
fn join(union: &mut Union, database: &Database) -> Result<(), DatabaseError> {
    let (texts, contexts) = (database.strings()?, database.contexts()?);
    let names: Vec<Name> = texts.iter().map(|text| union.string(text)).collect();
    let mut name = |name: Name| names.get(name.index()).copied().unwrap_or(Name::EMPTY);
    let scopes = database.scopes(texts.len())?;
    let scopes: Vec<u32> = scopes.iter().map(|scope| union.number_of(renamed(scope, &mut name))).collect();
    let mut here = vec![ROOT; contexts.len];
    for context in 1..contexts.len {
        // Both were checked: if they are out of range now, the file is being written to.
        let above = here.get(contexts.parent(context) as usize);
        let (above, scope) =
            above.zip(scopes.get(contexts.scope(context) as usize)).ok_or_else(|| database.changed())?;
        here[context] = union.enter(*above, contexts.id(context), *scope);
    }
    Ok(())
}

/// For each context of a database its place in the order of the union.
fn places(union: &Union, order: &Order, database: &Database) -> Result<Vec<u32>, DatabaseError> {
    let contexts: ContextTable<'_> = database.contexts()?;
    let mut places: Vec<u32> = vec![0; contexts.len];
    for context in 1..contexts.len {
        // Where two trees are alike, the next one here is the next one there.
        let next = places[context - 1] + 1;
        let id = contexts.id(context);
        let is_next = order.members.get(next as usize).is_some_and(|member| union.ids()[*member as usize] == id);
        places[context] = match is_next {
            true => next,
            false => union.find(id).map_or(0, |member| order.places[member as usize]),
        };
    }
    Ok(places)
}

/// Values at the contexts and metrics of the union.
fn moved(values: Columns, places: &[u32], columns: &[usize]) -> Columns {
    let mut moved: Columns = values
        .into_iter()
        .map(|(metric, mut facts)| {
            facts.iter_mut().for_each(|(context, _)| *context = places[*context as usize]);
            // Of a file that callpath wrote, they are in order.
            if !facts.is_sorted() {
                facts.sort_unstable();
            }
            (columns[metric as usize] as u32, facts)
        })
        .collect();
    moved.sort_unstable_by_key(|(metric, _)| *metric);
    moved
}

//! What single instructions cost themselves, by the file of code that they are in: over all processes and threads, without call paths.

use std::path::PathBuf;

use callpath_schema::Rule;
use rustc_hash::FxHashMap;

use crate::Metric;
use crate::rows::{Moves, Rows};

/// Which build of a file it is.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum CodeIdentity {
    /// What the linker gave it.
    BuildId(Vec<u8>),
    /// XXH3-128 of the whole file.
    Content(u128),
}

/// A file of code, as a process mapped it; the default stands for what is in no file.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Debug)]
pub struct CodeFile {
    /// Where it was; or, in brackets, what is mapped without a file.
    pub path: PathBuf,
    /// None where it could not be read.
    pub identity: Option<CodeIdentity>,
}

impl CodeFile {
    /// Whether its instructions can be read later, and told from those of another build.
    pub(crate) fn is_lasting(&self) -> bool {
        self.path.is_absolute() && self.identity.is_some()
    }
}

/// Files with numbers.
#[derive(Clone, Default, Debug)]
pub(crate) struct CodeFiles {
    files: Vec<CodeFile>,
    numbers: FxHashMap<CodeFile, u32>,
}

impl CodeFiles {
    /// The number of a file, a new one where it has none yet.
    pub(crate) fn number(&mut self, file: &CodeFile) -> u32 {
        if let Some(number) = self.numbers.get(file) {
            return *number;
        }
        let number = self.files.len() as u32;
        self.files.push(file.clone());
        self.numbers.insert(file.clone(), number);
        number
    }

    /// By number.
    pub(crate) fn all(&self) -> &[CodeFile] {
        &self.files
    }
}

/// What instructions cost themselves.
#[derive(Clone, Debug)]
pub struct CodeCosts {
    files: CodeFiles,
    /// Each with its file and link-time address.
    instructions: Vec<(u32, u64)>,
    index: FxHashMap<(u32, u64), u32>,
    /// By instruction and metric.
    own: Rows,
    lacks_some: bool,
}

impl CodeCosts {
    /// Of no instruction yet.
    pub(crate) fn new(rules: impl IntoIterator<Item = Rule>) -> CodeCosts {
        CodeCosts {
            files: CodeFiles::default(),
            instructions: Vec::new(),
            index: FxHashMap::default(),
            own: Rows::new(rules),
            lacks_some: false,
        }
    }

    /// Whether some of what was merged did not know its instructions any more.
    pub fn lacks_some(&self) -> bool {
        self.lacks_some
    }

    /// That it is so.
    pub(crate) fn lack(&mut self) {
        self.lacks_some = true;
    }

    /// The files, in order, each with its instructions that cost something by a metric: link-time addresses in ascending order.
    pub fn by_file(&self, metric: usize) -> Vec<(&CodeFile, Vec<(u64, u64)>)> {
        let mut files: Vec<(&CodeFile, Vec<(u64, u64)>)> = Vec::new();
        for row in self.order() {
            let ((file, address), cost) = (self.place(row), self.own.get(row as usize, metric));
            if cost == 0 {
                continue;
            }
            match files.last_mut().filter(|(last, _)| *last == file) {
                Some((_, costs)) => costs.push((address, cost)),
                None => files.push((file, vec![(address, cost)])),
            }
        }
        files
    }

    /// The number of a file.
    pub(crate) fn file(&mut self, file: &CodeFile) -> u32 {
        self.files.number(file)
    }

    /// The row of an instruction, by the number of its file and its link-time address.
    pub(crate) fn instruction(&mut self, file: u32, address: u64) -> u32 {
        let next = self.instructions.len() as u32;
        let row = *self.index.entry((file, address)).or_insert(next);
        if row == next {
            self.instructions.push((file, address));
            self.own.push();
        }
        row
    }

    /// Combines a value with what an instruction costs by a metric.
    pub(crate) fn add(&mut self, row: u32, metric: usize, value: u64) {
        self.own.add(row as usize, metric, value);
    }

    /// Combines rows of a table of the same metrics with rows of this one.
    pub(crate) fn take(&mut self, from: &Rows, moves: &[(u32, u32)]) {
        self.own.take(from, moves);
    }

    /// Adds those of others. `columns`: for each of their metrics the one here, of `metrics`, which may have become more.
    pub(crate) fn merge(&mut self, other: &CodeCosts, columns: &[usize], metrics: &[Metric]) {
        let added: Vec<Rule> = metrics.iter().skip(self.own.width()).map(Metric::rule).collect();
        self.own.widen(&added);
        self.lacks_some |= other.lacks_some;
        let files: Vec<u32> = other.files.all().iter().map(|file| self.file(file)).collect();
        let moves: Moves = (0u32..)
            .zip(&other.instructions)
            .map(|(there, (file, address))| (there, self.instruction(files[*file as usize], *address)))
            .collect();
        self.own.take_over(&other.own, columns.iter().copied(), &moves);
    }

    /// The rows in order of their files and addresses.
    pub(crate) fn order(&self) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.instructions.len() as u32).collect();
        let key = |row: &u32| {
            let (file, address) = self.instructions[*row as usize];
            (&self.files.all()[file as usize], address)
        };
        order.sort_unstable_by(|one, other| key(one).cmp(&key(other)));
        order
    }

    /// The file and link-time address of a row.
    pub(crate) fn place(&self, row: u32) -> (&CodeFile, u64) {
        let (file, address) = self.instructions[row as usize];
        (&self.files.all()[file as usize], address)
    }

    /// By instruction and metric.
    pub(crate) fn own(&self) -> &Rows {
        &self.own
    }
}

//! The calling contexts of a profile: chains of (module, offset), each with its id and its cost, merged by id.
//! What code is called and what is inlined where is not known here: the tree of scopes says that.

use callpath_schema::{ContextId, Rule};
use rustc_hash::FxHashMap;

use crate::code::CodeFiles;
use crate::metric::columns_for;
use crate::rows::{Moves, Row, Rows};
use crate::{CodeCosts, CodeFile, Metric, Profile};

/// A frame in its calling context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Context {
    /// The same on every thread, host and run.
    pub id: ContextId,
    /// The id of the context that it was called from.
    pub parent: ContextId,
    /// The number of the file that it is code of; 0 where it is none's.
    pub file: u32,
    /// Link-time address in the module; run-time address where there is none.
    pub offset: u64,
}

/// All contexts, parents before children; the first two are the roots, which are their own parents.
#[derive(Clone, Debug)]
pub struct Contexts {
    /// By number; the first is none.
    files: CodeFiles,
    contexts: Vec<Context>,
    index: FxHashMap<ContextId, u32>,
    /// By context, what it costs itself.
    own: Rows,
}

impl Contexts {
    pub(crate) fn new(metrics: &[Metric]) -> Contexts {
        let own = Rows::new(metrics.iter().map(Metric::rule));
        let mut files = CodeFiles::default();
        files.number(&CodeFile::default());
        let mut contexts = Contexts { files, contexts: Vec::new(), index: FxHashMap::default(), own };
        for root in [ContextId::ROOT, ContextId::PARTIAL_ROOT] {
            contexts.enter(Context { id: root, parent: root, file: 0, offset: 0 });
        }
        contexts
    }

    /// The number of a file.
    pub fn enter_file(&mut self, file: &CodeFile) -> u32 {
        self.files.number(file)
    }

    /// The file with a number.
    pub fn file(&self, number: u32) -> Option<&CodeFile> {
        self.files.all().get(number as usize)
    }

    /// Adds a context if its id is not there. Its parent is there.
    pub fn enter(&mut self, context: Context) {
        let next = self.contexts.len() as u32;
        if *self.index.entry(context.id).or_insert(next) == next {
            self.contexts.push(context);
            self.own.push();
        }
    }

    /// Combines values, one per metric, with what the context itself costs; it must be there.
    pub fn add(&mut self, id: ContextId, values: &[u64]) {
        if let Some(&at) = self.index.get(&id) {
            self.own.add_row(at as usize, values);
        }
    }

    /// Each with what it costs itself; every parent before its children.
    pub fn iter(&self) -> impl Iterator<Item = (&Context, Row<'_>)> {
        self.contexts.iter().enumerate().map(|(at, context)| (context, self.own.row(at)))
    }

    /// What instructions cost, whatever called them. What no later process can read is left out: code without a file, and of an unknown
    /// build.
    pub fn code(&self) -> CodeCosts {
        let mut code = CodeCosts::new(self.own.rules());
        let files: Vec<Option<u32>> =
            self.files.all().iter().map(|file| file.is_lasting().then(|| code.file(file))).collect();
        let mut moves = Moves::new();
        for (at, context) in self.contexts.iter().enumerate() {
            let file = files.get(context.file as usize).copied().flatten();
            if let Some(file) = file.filter(|_| !self.own.row(at).is_zero()) {
                moves.push((at as u32, code.instruction(file, context.offset)));
            }
        }
        code.take(&self.own, &moves);
        code
    }

    /// Whether there is nothing but the roots.
    pub(crate) fn is_empty(&self) -> bool {
        self.contexts.len() <= 2
    }

    /// Puts the columns in another order.
    pub(crate) fn reorder(&mut self, order: &[usize]) {
        self.own.reorder(order);
    }

    /// Adds columns of zeros on the right.
    pub(crate) fn widen(&mut self, added: &[Rule]) {
        self.own.widen(added);
    }
}

/// The calling contexts of any number of profiles, added up by id.
#[derive(Debug)]
pub struct ContextSum {
    /// The columns: those of all profiles.
    pub metrics: Vec<Metric>,
    /// The contexts.
    pub contexts: Contexts,
}

impl Default for ContextSum {
    fn default() -> Self {
        ContextSum { metrics: Vec::new(), contexts: Contexts::new(&[]) }
    }
}

impl ContextSum {
    /// Adds those of a profile. A metric is the same when all that is said of it is equal; others become columns of their own.
    pub fn add(&mut self, profile: &Profile) {
        let mine = self.metrics.len();
        let columns = columns_for(&mut self.metrics, &profile.metrics);
        let added: Vec<Rule> = self.metrics[mine..].iter().map(Metric::rule).collect();
        self.contexts.widen(&added);
        let files: Vec<u32> = profile.contexts.files.all().iter().map(|file| self.contexts.enter_file(file)).collect();
        let mut moves = Moves::with_capacity(profile.contexts.contexts.len());
        for (there, context) in profile.contexts.contexts.iter().enumerate() {
            let file = files.get(context.file as usize).copied().unwrap_or(0);
            self.contexts.enter(Context { file, ..*context });
            moves.extend(self.contexts.index.get(&context.id).map(|here| (there as u32, *here)));
        }
        self.contexts.own.take_over(&profile.contexts.own, columns, &moves);
    }
}

//! The calling contexts of a profile: chains of (module, offset), each with its id and its cost, merged by id.
//! What code is called and what is inlined where is not known here: the tree of scopes says that.

use callpath_schema::{ContextId, Rule};
use rustc_hash::FxHashMap;

use crate::metric::columns_for;
use crate::rows::{Moves, Row, Rows};
use crate::{Metric, Name, Profile, Strings};

/// A frame in its calling context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Context {
    /// The same on every thread, host and run.
    pub id: ContextId,
    /// The id of the context that it was called from.
    pub parent: ContextId,
    /// The module's name, or what stands there that is no code.
    pub module: Name,
    /// Link-time address in the module; run-time address where there is none.
    pub offset: u64,
}

/// All contexts, parents before children; the first two are the roots, which are their own parents.
#[derive(Clone, Debug)]
pub struct Contexts {
    contexts: Vec<Context>,
    index: FxHashMap<ContextId, u32>,
    /// By context, what it costs itself.
    own: Rows,
}

impl Contexts {
    pub(crate) fn new(metrics: &[Metric]) -> Contexts {
        let own = Rows::new(metrics.iter().map(Metric::rule));
        let mut contexts = Contexts { contexts: Vec::new(), index: FxHashMap::default(), own };
        for root in [ContextId::ROOT, ContextId::PARTIAL_ROOT] {
            contexts.enter(Context { id: root, parent: root, module: Name::EMPTY, offset: 0 });
        }
        contexts
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
    /// The strings that modules' names are of.
    pub strings: Strings,
    /// The contexts.
    pub contexts: Contexts,
}

impl Default for ContextSum {
    fn default() -> Self {
        ContextSum { metrics: Vec::new(), strings: Strings::default(), contexts: Contexts::new(&[]) }
    }
}

impl ContextSum {
    /// Adds those of a profile. A metric is the same when all that is said of it is equal; others become columns of their own.
    pub fn add(&mut self, profile: &Profile) {
        let mine = self.metrics.len();
        let columns = columns_for(&mut self.metrics, &profile.metrics);
        let added: Vec<Rule> = self.metrics[mine..].iter().map(Metric::rule).collect();
        self.contexts.widen(&added);
        let mut moves = Moves::with_capacity(profile.contexts.contexts.len());
        for (there, context) in profile.contexts.contexts.iter().enumerate() {
            let module = self.strings.intern(profile.strings.get(context.module));
            self.contexts.enter(Context { module, ..*context });
            moves.extend(self.contexts.index.get(&context.id).map(|here| (there as u32, *here)));
        }
        self.contexts.own.take_over(&profile.contexts.own, columns, &moves);
    }
}

//! The calling contexts of a profile: chains of (module, offset), each with its id and its cost, merged by id.
//! Refuses to know what code is called and what is inlined where: the tree of scopes says that.

use callpath_schema::{ContextId, Rule};
use rustc_hash::FxHashMap;

use crate::metric::accumulate;
use crate::{Metric, Name};

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
    /// A row of own values per context.
    own: Vec<u64>,
    rules: Vec<Rule>,
}

impl Contexts {
    pub(crate) fn new(metrics: &[Metric]) -> Contexts {
        let rules = metrics.iter().map(Metric::rule).collect();
        let mut contexts = Contexts { contexts: Vec::new(), index: FxHashMap::default(), own: Vec::new(), rules };
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
            self.own.resize(self.own.len() + self.rules.len(), 0);
        }
    }

    /// Combines values, one per metric, with what the context itself costs; it must be there.
    pub fn add(&mut self, id: ContextId, values: &[u64]) {
        let Some(&at) = self.index.get(&id) else { return };
        let (width, at) = (self.rules.len(), at as usize);
        accumulate(&self.rules, &mut self.own[at * width..(at + 1) * width], values);
    }

    /// Each with what it costs itself, one value per metric; every parent before its children.
    pub fn iter(&self) -> impl Iterator<Item = (&Context, &[u64])> {
        let width = self.rules.len();
        self.contexts.iter().enumerate().map(move |(at, context)| (context, &self.own[at * width..(at + 1) * width]))
    }

    /// Adds columns of zeros on the right.
    pub(crate) fn widen(&mut self, added: &[Rule]) {
        if added.is_empty() {
            return;
        }
        let (width, wider) = (self.rules.len(), self.rules.len() + added.len());
        let mut own = vec![0; self.contexts.len() * wider];
        if width > 0 {
            for (to, from) in own.chunks_exact_mut(wider).zip(self.own.chunks_exact(width)) {
                to[..width].copy_from_slice(from);
            }
        }
        self.own = own;
        self.rules.extend_from_slice(added);
    }
}

//! The contexts of several trees as one tree: contexts with equal ids are one. In the order in which files have them,
//! children stand by their ids, so that the same contexts stand in the same order in each file.

use rustc_hash::FxHashMap;

use super::error::DatabaseError;
use crate::{CallSite, Name, Scope, ScopeKind, Strings};

/// The index of the root.
pub(crate) const ROOT: u32 = 0;

/// The id of the root.
pub(crate) const ROOT_ID: u64 = 0;

/// No database has more contexts, strings or scopes.
const MOST: usize = u32::MAX as usize - 1;

/// Contexts, each below its parent, with what they stand for.
pub(crate) struct Union {
    strings: Strings,
    scopes: Vec<Scope>,
    scope_index: FxHashMap<Scope, u32>,
    ids: Vec<u64>,
    parents: Vec<u32>,
    scope_of: Vec<u32>,
    index: FxHashMap<u64, u32>,
}

/// The contexts of a union in preorder, children by their ids.
pub(crate) struct Order {
    /// By place in this order, the number in the union.
    pub(crate) members: Vec<u32>,
    /// By number in the union, the place.
    pub(crate) places: Vec<u32>,
    /// By place, the place of the one above; the root's is its own.
    pub(crate) parents: Vec<u32>,
    /// By place, one past the last place below.
    pub(crate) ends: Vec<u32>,
    /// By place, how many are above.
    pub(crate) depths: Vec<u32>,
}

impl Union {
    /// The root alone.
    pub(crate) fn new() -> Union {
        let mut union = Union {
            strings: Strings::default(),
            scopes: Vec::new(),
            scope_index: FxHashMap::default(),
            ids: vec![ROOT_ID],
            parents: vec![ROOT],
            scope_of: Vec::new(),
            index: FxHashMap::default(),
        };
        union.index.insert(ROOT_ID, ROOT);
        let root = union.number_of(Scope::new(ScopeKind::Root, Name::EMPTY));
        union.scope_of.push(root);
        union
    }

    pub(crate) fn len(&self) -> usize {
        self.ids.len()
    }

    pub(crate) fn ids(&self) -> &[u64] {
        &self.ids
    }

    /// The number of a string here.
    pub(crate) fn string(&mut self, text: &str) -> Name {
        self.strings.intern(text)
    }

    /// The number of a scope, whose strings are of this union.
    pub(crate) fn number_of(&mut self, scope: Scope) -> u32 {
        let next = self.scopes.len() as u32;
        let number = *self.scope_index.entry(scope).or_insert(next);
        if number == next {
            self.scopes.push(scope);
        }
        number
    }

    /// Enters a context below one that is here; gives its number. What it says otherwise than an equal one here becomes
    /// unknown.
    #[inline]
    pub(crate) fn enter(&mut self, parent: u32, id: u64, scope: u32) -> u32 {
        let next = self.ids.len() as u32;
        let here = *self.index.entry(id).or_insert(next);
        if here == next {
            self.ids.push(id);
            self.parents.push(parent);
            self.scope_of.push(scope);
        } else if self.scope_of[here as usize] != scope {
            let mut agreed = self.scopes[self.scope_of[here as usize] as usize];
            agreed.agree(&self.scopes[scope as usize]);
            self.scope_of[here as usize] = self.number_of(agreed);
        }
        here
    }

    /// The number of the context with this id.
    #[inline]
    pub(crate) fn find(&self, id: u64) -> Option<u32> {
        self.index.get(&id).copied()
    }

    /// An error if there is more than numbers of files can count.
    pub(crate) fn check(&self) -> Result<(), DatabaseError> {
        let counts = [(self.ids.len(), "contexts"), (self.strings.len(), "strings"), (self.scopes.len(), "scopes")];
        match counts.into_iter().find(|(count, _)| *count > MOST) {
            Some((_, what)) => Err(DatabaseError::TooMany { what, most: MOST as u64 }),
            None => Ok(()),
        }
    }

    /// The order of files.
    pub(crate) fn order(&self) -> Order {
        let n = self.ids.len();
        // The children of each, one after the other.
        let mut firsts = vec![0u32; n + 1];
        self.parents.iter().skip(1).for_each(|parent| firsts[*parent as usize + 1] += 1);
        for at in 0..n {
            firsts[at + 1] += firsts[at];
        }
        let mut fill = firsts.clone();
        let mut children = vec![0u32; n.saturating_sub(1)];
        for (node, parent) in self.parents.iter().enumerate().skip(1) {
            let at = &mut fill[*parent as usize];
            children[*at as usize] = node as u32;
            *at += 1;
        }
        drop(fill);
        let mut order = Order {
            members: Vec::with_capacity(n),
            places: vec![0; n],
            parents: Vec::with_capacity(n),
            ends: vec![0; n],
            depths: Vec::with_capacity(n),
        };
        let mut stack = vec![(ROOT, 0u32, 0u32)];
        while let Some((node, parent, depth)) = stack.pop() {
            let place = order.members.len() as u32;
            order.members.push(node);
            order.places[node as usize] = place;
            order.parents.push(parent);
            order.depths.push(depth);
            let its = &mut children[firsts[node as usize] as usize..firsts[node as usize + 1] as usize];
            its.sort_unstable_by_key(|child| self.ids[*child as usize]);
            stack.extend(its.iter().rev().map(|child| (*child, place, depth + 1)));
        }
        for place in (0..n).rev() {
            order.ends[place] = order.ends[place].max(place as u32 + 1);
            let parent = order.parents[place] as usize;
            order.ends[parent] = order.ends[parent].max(order.ends[place]);
        }
        order
    }

    /// For each place of `order` a scope; these scopes; and the strings that they name. Scopes and strings are those that are
    /// needed, in the order in which they are: the same, however the union came about.
    pub(crate) fn scopes_in(&self, order: &Order) -> (Vec<u32>, Vec<Scope>, Strings) {
        let mut strings = Strings::default();
        let mut numbers = vec![u32::MAX; self.scopes.len()];
        let mut scopes = Vec::new();
        let mut scope_of = Vec::with_capacity(order.members.len());
        for member in &order.members {
            let old = self.scope_of[*member as usize] as usize;
            if numbers[old] == u32::MAX {
                numbers[old] = scopes.len() as u32;
                let mut name = |name: Name| strings.intern(self.strings.get(name));
                scopes.push(renamed(&self.scopes[old], &mut name));
            }
            scope_of.push(numbers[old]);
        }
        (scope_of, scopes, strings)
    }
}

/// A scope with other strings.
pub(crate) fn renamed(scope: &Scope, name: &mut impl FnMut(Name) -> Name) -> Scope {
    Scope {
        name: name(scope.name),
        module: scope.module.map(&mut *name),
        file: scope.file.map(&mut *name),
        call_site: scope.call_site.map(|site| CallSite { file: name(site.file), line: site.line }),
        ..*scope
    }
}

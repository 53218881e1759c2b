//! From a database to a profile in memory, with a process and a thread for each of its profiles.

use callpath_schema::{Metric, leb128};
use xxhash_rust::xxh3::xxh3_64;

use super::code_section;
use super::error::DatabaseError;
use super::facts::{Member, ProfileEntry, Unit};
use super::layout::SectionKind;
use super::write::{Columns, unpacked};
use super::{ContextTable, Database};
use crate::{CodeCosts, NodeId, Profile, Scope, ScopeKind};

/// A context that no node stands for yet.
const NONE: u32 = u32::MAX;

impl Database {
    /// The values of a profile: by metric, the places of contexts, ascending, with values that are not 0.
    pub fn values(&self, profile: &ProfileEntry) -> Result<Columns, DatabaseError> {
        let section = self.section(SectionKind::Values, 0)?;
        let start = section.offset + profile.offset;
        // The profile's extent is inside the section, which is inside the file.
        let bytes = self.bytes.get(start as usize..(start + profile.len_bytes) as usize).unwrap_or_default();
        if self.checksums_count && xxh3_64(bytes) != profile.checksum {
            return Err(DatabaseError::Checksum { path: self.path.clone(), section: "values", offset: start });
        }
        let mut at = 0;
        let mut columns = Columns::new();
        for column in &profile.columns {
            let of = self.facts.metrics[column.metric as usize].value;
            // Each takes two bytes at least.
            let count = usize::try_from(column.facts).ok().filter(|count| *count <= (bytes.len() - at) / 2);
            let count = count.ok_or_else(|| self.nonsense(start, "number of values"))?;
            let mut facts = Vec::with_capacity(count);
            let mut context = 0u64;
            for number in 0..count {
                let pair = leb128::take(bytes, &mut at).zip(leb128::take(bytes, &mut at));
                let (step, value) = pair.ok_or_else(|| self.nonsense(start + at as u64, "value"))?;
                context = context.saturating_add(step);
                if context >= self.contexts as u64 || number > 0 && step == 0 {
                    return Err(self.nonsense(start + at as u64, "context of a value"));
                }
                facts.push((context as u32, unpacked(value, of)));
            }
            columns.push((column.metric, facts));
        }
        if at != bytes.len() {
            return Err(self.nonsense(start + at as u64, "bytes behind a profile's values"));
        }
        Ok(columns)
    }

    /// What instructions cost themselves, by the database's metrics; none in a file that was merged before they were kept.
    pub fn code(&self) -> Result<Option<CodeCosts>, DatabaseError> {
        if !self.has(SectionKind::Code) {
            // Of nothing, nothing is lacking.
            let rules = self.metrics().iter().map(Metric::rule);
            return Ok(self.is_empty().then(|| CodeCosts::new(rules)));
        }
        let at = self.section(SectionKind::Code, 0)?.offset;
        let read = code_section::read(self.bytes_of_kind(SectionKind::Code, 0)?, self.metrics());
        read.map(Some).map_err(|malformed| self.nonsense(at + malformed.offset as u64, malformed.what))
    }

    /// The whole as a profile in memory.
    pub fn to_profile(&self) -> Result<Profile, DatabaseError> {
        let mut profile = Profile::new(self.facts.metrics.clone());
        self.check_all()?;
        let names = self.begin(&mut profile)?;
        let scopes = self.named_scopes(SectionKind::Scopes, &names)?;
        let contexts = self.contexts()?;
        let mut loading = Loading { profile: &mut profile, scopes, contexts, nodes: vec![NONE; self.contexts] };
        let mut touched = Vec::new();
        for entry in &self.facts.profiles {
            let thread = member(loading.profile, entry);
            loading.nodes[0] = thread.index() as u32;
            for (metric, facts) in self.values(entry)? {
                for (context, value) in facts {
                    let node = loading.node(context, &mut touched);
                    loading.profile.tree.add_one(node, metric as usize, value);
                }
            }
            touched.drain(..).for_each(|context: u32| loading.nodes[context as usize] = NONE);
        }
        Ok(profile)
    }
}

/// The node of a profile's thread.
pub(super) fn member(profile: &mut Profile, entry: &ProfileEntry) -> NodeId {
    let Profile { tree, strings, .. } = profile;
    let Member { run, rank, process, thread } = &entry.member;
    let mut node = NodeId::ROOT;
    if let Some(rank) = rank {
        node = tree.child(node, Scope::rank(strings.intern(&rank.to_string()), *rank));
    }
    if let Some(Unit { name, id }) = process {
        node = tree.child(node, Scope::process(strings.intern(name), *run, *id as u32));
    }
    if let Some(Unit { name, id }) = thread {
        let scope = Scope { discriminator: *id, ..Scope::new(ScopeKind::Thread, strings.intern(name)) };
        node = tree.child(node, scope);
    }
    node
}

/// A profile that becomes.
struct Loading<'a> {
    profile: &'a mut Profile,
    scopes: Vec<Scope>,
    contexts: ContextTable<'a>,
    /// By context, the node of the profile at hand.
    nodes: Vec<u32>,
}

impl Loading<'_> {
    /// The node of a context; `touched` gets those that are new.
    fn node(&mut self, context: u32, touched: &mut Vec<u32>) -> NodeId {
        let (mut above, mut way) = (context, Vec::new());
        while self.nodes[above as usize] == NONE {
            way.push(above);
            above = self.contexts.parent(above as usize);
        }
        let mut node = NodeId::at(self.nodes[above as usize] as usize);
        for context in way.into_iter().rev() {
            node = self.profile.tree.child(node, self.scopes[self.contexts.scope(context as usize) as usize]);
            self.nodes[context as usize] = node.index() as u32;
            touched.push(context);
        }
        node
    }
}

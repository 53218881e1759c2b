//! From a profile to a database.

use std::io::Cursor;

use rustc_hash::{FxHashMap, FxHashSet};
use xxhash_rust::xxh3::xxh3_64;

use super::error::DatabaseError;
use super::facts::{Member, Run, Unit};
use super::union::{ROOT, Union, renamed};
use super::write::{Assembly, Columns};
use crate::{Name, NodeId, Profile, ScopeKind};

impl Profile {
    /// This profile as a database's bytes, without what shows it at once: that is for what is merged of it.
    pub fn to_database(&self) -> Result<Vec<u8>, DatabaseError> {
        let tree = &self.tree;
        // What has no cost, and nothing with a cost below, is left out.
        let mut is_kept = tree.own().occupied();
        for node in tree.nodes().rev() {
            if let Some(parent) = tree.parent(node).filter(|_| is_kept[node.index()]) {
                is_kept[parent.index()] = true;
            }
        }
        let hashes: Vec<u64> = self.strings.iter().map(|text| xxh3_64(text.as_bytes())).collect();
        let hash = |name: Name| hashes.get(name.index()).copied().unwrap_or(0);
        let mut union = Union::new();
        let mut names: FxHashMap<Name, Name> = FxHashMap::default();
        let mut members: Vec<Member> = vec![Member::default()];
        // By node: whose it is, and its context.
        let mut places: Vec<(usize, u32)> = Vec::with_capacity(tree.len());
        for node in tree.nodes() {
            let scope = tree.scope(node);
            let Some(parent) = tree.parent(node) else {
                places.push((0, ROOT));
                continue;
            };
            let (member, above) = places[parent.index()];
            let unit = || Some(Unit { name: self.strings.get(scope.name).into(), id: scope.unit_id() });
            let new = match scope.kind {
                ScopeKind::Rank if above == ROOT => {
                    Some(Member { rank: u32::try_from(scope.discriminator).ok(), ..Member::default() })
                }
                ScopeKind::Process if above == ROOT => Some(Member { process: unit(), ..members[member].clone() }),
                ScopeKind::Thread if above == ROOT => Some(Member { thread: unit(), ..members[member].clone() }),
                _ => None,
            };
            places.push(match new {
                Some(new) => {
                    members.push(new);
                    (members.len() - 1, ROOT)
                }
                None if !is_kept[node.index()] => (member, above),
                None => {
                    let id = scope.id_under(union.ids()[above as usize], hash);
                    let mut name =
                        |name: Name| *names.entry(name).or_insert_with(|| union.string(self.strings.get(name)));
                    let scope = renamed(scope, &mut name);
                    let scope = union.number_of(scope);
                    (member, union.enter(above, id, scope))
                }
            });
        }
        union.check()?;
        let order = union.order();
        let mut of_members: Vec<Vec<(u32, NodeId)>> = vec![Vec::new(); members.len()];
        let occupied = tree.own().occupied();
        for node in tree.nodes().filter(|node| occupied[node.index()]) {
            let (member, context) = places[node.index()];
            of_members[member].push((order.places[context as usize], node));
        }
        let bytes = Cursor::new(Vec::new());
        let in_memory = |source| DatabaseError::Write { path: "memory".into(), source };
        let mut assembly = Assembly::new(bytes, self.metrics.clone(), union.len()).map_err(in_memory)?;
        // What is no thread's is a profile only where it has values, or the process has no thread.
        let have_threads = members.iter().filter(|member| member.thread.is_some());
        let have_threads: FxHashSet<_> = have_threads.map(|member| (member.rank, member.process.clone())).collect();
        let have_processes = members.iter().filter(|member| member.process.is_some());
        let have_processes: FxHashSet<_> = have_processes.map(|member| member.rank).collect();
        for (number, (member, mut nodes)) in members.into_iter().zip(of_members).enumerate() {
            let is_level = number == 0
                || member.thread.is_none() && have_threads.contains(&(member.rank, member.process.clone()))
                || member.thread.is_none() && member.process.is_none() && have_processes.contains(&member.rank);
            if is_level && nodes.is_empty() {
                continue;
            }
            nodes.sort_unstable();
            let columns: Columns = (0..self.metrics.len())
                .map(|metric| {
                    let value = |(context, node): &(u32, NodeId)| (*context, tree.own().get(node.index(), metric));
                    (metric as u32, nodes.iter().map(value).filter(|(_, value)| *value != 0).collect())
                })
                .collect();
            assembly.profile(member, &columns).map_err(in_memory)?;
        }
        let run = Run { info: self.info.clone(), quality: self.quality.clone() };
        // A profile of a database has no contexts.
        let has_code = !self.contexts.is_empty() || order.members.len() == 1;
        let assembly = assembly.with_code(has_code.then(|| self.contexts.code()));
        let bytes = assembly.finish(&union, &order, vec![run]).map_err(in_memory)?;
        Ok(bytes.into_inner())
    }
}

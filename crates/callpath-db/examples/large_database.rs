//! A database with a tree as large as asked for, to see how fast it opens: `large_database CONTEXTS FILE`. `cargo xtask bench-views`
//! runs it.

use std::path::{Path, PathBuf};
use std::time::Instant;

use callpath_db::database::{Database, DatabaseError, Source, merge};
use callpath_db::{Metric, MetricId, NodeId, Profile, Scope, ScopeKind};

/// Different procedures.
const PROCEDURES: usize = 5000;
/// Paths are about so deep.
const DEPTH: usize = 40;

struct InMemory(Vec<u8>);

impl Source for InMemory {
    type Error = DatabaseError;

    fn open(&self) -> Result<Database, DatabaseError> {
        Database::of_bytes(self.0.clone(), Path::new("memory"))
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [contexts, file] = &words[..] else {
        return Err("large_database CONTEXTS FILE".into());
    };
    let source = InMemory(profile(contexts.parse()?).to_database()?);
    // From here on, the peak is that of merging alone.
    std::fs::write("/proc/self/clear_refs", "5")?;
    let began = Instant::now();
    let merged = merge(&[source], &PathBuf::from(file), |_| {})?;
    let status = std::fs::read_to_string("/proc/self/status")?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("unknown").trim();
    let (bytes, count) = (merged.len_bytes as f64, merged.contexts as f64);
    println!("| contexts | {} |", merged.contexts);
    println!("| values | {} |", merged.facts);
    println!("| bytes a context | {:.1} |", bytes / count);
    println!("| written in | {:.1} s, at most {peak} of memory |", began.elapsed().as_secs_f64());
    Ok(())
}

/// A profile of one thread with so many contexts. Few procedures are called in most places, as in programs: `malloc` is. Some of them call
/// themselves again, and some have loops.
fn profile(contexts: usize) -> Profile {
    let mut random = fastrand::Rng::with_seed(1);
    let mut profile = Profile::new(vec![Metric::of(MetricId::CPU_TIME)]);
    let app = profile.strings.intern("app");
    let module = Some(app);
    let scopes: Vec<Scope> = (0..PROCEDURES)
        .map(|number| match number % 50 {
            49 => Scope {
                line: Some(number as u32),
                file: module,
                ..Scope::new(ScopeKind::Loop, callpath_db::Name::EMPTY)
            },
            _ => {
                let name = profile.strings.intern(&format!("namespace::procedure_{number}"));
                Scope { module, ..Scope::new(ScopeKind::Procedure, name) }
            }
        })
        .collect();
    let process = profile.tree.child(NodeId::ROOT, Scope::process(app, 0, 1));
    let thread = profile.tree.child(process, Scope { discriminator: 1, ..Scope::new(ScopeKind::Thread, app) });
    let mut path = vec![thread];
    for name in ["_start", "main"] {
        let scope = Scope { module, ..Scope::new(ScopeKind::Procedure, profile.strings.intern(name)) };
        path.push(profile.tree.child(path[path.len() - 1], scope));
    }
    // Process and thread are no contexts, but the root is.
    while profile.tree.len() < contexts + 2 {
        // A walk through the program's calls: mostly inwards where the stack is shallow, outwards where it is deep.
        while path.len() > 3 && random.usize(..2 * DEPTH) < path.len() {
            path.pop();
        }
        let place = random.f64().powi(3) * PROCEDURES as f64;
        let node = profile.tree.child(path[path.len() - 1], scopes[place as usize]);
        if random.u8(..4) > 0 {
            profile.tree.add(node, &[1_000_000 * random.u64(1..50)]);
        }
        path.push(node);
    }
    profile
}

//! How fast profiles are merged, and how large a database is: `merge_speed PROFILES CONTEXTS FACTS DIRECTORY` makes so many
//! profiles of one program's tree, of so many contexts, each with so many values, and merges them.

use std::path::PathBuf;
use std::time::Instant;

use callpath_db::database::{Database, DatabaseError, Source, merge};
use callpath_db::{Metric, MetricId, NodeId, Profile, Scope, ScopeKind};

struct InFile(PathBuf);

impl Source for InFile {
    type Error = DatabaseError;

    fn open(&self) -> Result<Database, DatabaseError> {
        Database::open(&self.0)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [profiles, contexts, facts, directory] = &words[..] else {
        return Err("merge_speed PROFILES CONTEXTS FACTS DIRECTORY".into());
    };
    let (profiles, contexts, facts): (u64, usize, usize) = (profiles.parse()?, contexts.parse()?, facts.parse()?);
    let mut random = fastrand::Rng::with_seed(1);
    // A tree in which most nodes are deep, like that of a program.
    let mut shape: Vec<(usize, usize)> = Vec::new();
    for node in 1..contexts {
        let reach = 1 + random.usize(..40);
        shape.push((node - 1 - random.usize(..node.min(reach)), random.usize(..5000)));
    }
    let mut sources = Vec::new();
    let (mut bytes, began) = (0, Instant::now());
    for profile in 0..profiles {
        let path = PathBuf::from(directory).join(format!("{profile}.cpdb"));
        let made = one(profile, &shape, facts, &mut random).to_database()?;
        bytes += made.len();
        std::fs::write(&path, made)?;
        sources.push(InFile(path));
    }
    println!("made {profiles} databases, {bytes} bytes, in {:.1} s", began.elapsed().as_secs_f64());
    // What the kernel writes out meanwhile is not merging.
    rustix::fs::sync();
    // From here on, the peak is that of merging alone.
    std::fs::write("/proc/self/clear_refs", "5")?;
    let (began, cpu_before) = (Instant::now(), cpu_seconds()?);
    let all = PathBuf::from(directory).join("all.cpdb");
    let merged = merge(&sources, &all, |_| {})?;
    let (seconds, cpu, peak) = (began.elapsed().as_secs_f64(), cpu_seconds()? - cpu_before, peak()?);
    let bytes_per_fact = merged.len_bytes as f64 / merged.facts as f64;
    println!(
        "merged {} contexts, {} facts in {seconds:.3} s ({cpu:.3} s of CPU); peak of memory {peak}; {bytes_per_fact:.2} bytes a fact",
        merged.contexts, merged.facts
    );
    let began = Instant::now();
    let database = Database::open(&all)?;
    println!("opened in {:.4} s: {} contexts", began.elapsed().as_secs_f64(), database.len());
    Ok(())
}

/// CPU time of this thread so far: what is not spent on waiting for disks.
fn cpu_seconds() -> Result<f64, Box<dyn std::error::Error>> {
    let statistics = std::fs::read_to_string("/proc/self/schedstat")?;
    Ok(statistics.split(' ').next().unwrap_or_default().parse::<f64>()? / 1e9)
}

/// The most memory that this process had, files that it has mapped included.
fn peak() -> std::io::Result<String> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    Ok(peak.unwrap_or("unknown").trim().to_owned())
}

/// A profile with values at `facts` of the tree's nodes.
fn one(number: u64, shape: &[(usize, usize)], facts: usize, random: &mut fastrand::Rng) -> Profile {
    let mut profile = Profile::new(vec![Metric::of(MetricId::CPU_TIME)]);
    let name = profile.strings.intern("app");
    let process = profile.tree.child(NodeId::ROOT, Scope::process(name, 0, number as u32 + 1));
    let thread = Scope { discriminator: number + 1, ..Scope::new(ScopeKind::Thread, name) };
    let mut nodes = vec![profile.tree.child(process, thread)];
    let module = Some(profile.strings.intern("app"));
    for (above, name) in shape {
        let name = profile.strings.intern(&format!("namespace::procedure_{name}"));
        let scope = Scope { module, ..Scope::new(ScopeKind::Procedure, name) };
        nodes.push(profile.tree.child(nodes[*above], scope));
    }
    for _ in 0..facts {
        let node = nodes[random.usize(1..nodes.len())];
        profile.tree.add(node, &[10_000_000 * random.u64(1..50)]);
    }
    profile
}

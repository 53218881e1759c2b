//! Databases with all that tables can hold, to try engines on: `kinds SEED DATABASE`. Metrics of each kind and type, ranks, processes
//! and threads, a path 3,000 deep, names that are no ASCII, hold quotes and line breaks, or are a hundred thousand bytes long.
//! Databases of different seeds have most contexts in common, and say some of them differently.

use callpath_db::{CallSite, Metric, MetricType, NodeId, Profile, RunInfo, Scope, ScopeKind};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [seed, database] = &words[..] else { return Err("kinds SEED DATABASE".into()) };
    let seed: u64 = seed.parse()?;
    let mut random = fastrand::Rng::with_seed(seed);
    let real = Metric { value: MetricType::Real, ..Metric::sum("energy", "joules") };
    let highest = Metric { value: MetricType::Real, ..Metric::max("temperature", "celsius") };
    let signed = Metric { value: MetricType::Signed, ..Metric::sum("balance", "bytes") };
    let mut metrics = vec![Metric::sum("cpu-time", "ns"), Metric::max("peak", "bytes"), real, highest, signed];
    metrics.push(Metric::min("shortest", "ns"));
    metrics.extend(Metric::histogram("latency", "count", 3));
    // A metric that some of the databases lack, in the midst.
    if seed.is_multiple_of(2) {
        metrics.insert(1, Metric::sum("page-faults", "count"));
    }
    let mut profile = Profile::new(metrics);
    profile.info = RunInfo {
        program: "app".into(),
        command: vec!["app".into(), seed.to_string()],
        host: format!("node{seed}"),
        started_unix_ns: 1_700_000_000_000_000_000 + seed,
        exit: Some("exit status 0".into()),
        ..RunInfo::default()
    };
    for rank in 0..3 {
        let name = profile.strings.intern(&rank.to_string());
        let rank_node = profile.tree.child(NodeId::ROOT, Scope::rank(name, rank));
        let name = profile.strings.intern("app");
        let process = profile.tree.child(rank_node, Scope::process(name, 0, 100 + rank));
        for thread in 0..2 {
            let name = profile.strings.intern(if thread == 0 { "app" } else { "worker" });
            let scope = Scope { discriminator: 100 + thread, ..Scope::new(ScopeKind::Thread, name) };
            let thread = profile.tree.child(process, scope);
            // A cost that is no context's.
            cost(&mut profile, thread, &mut random);
            for _ in 0..150 {
                path(&mut profile, thread, &mut random, seed);
            }
        }
    }
    std::fs::write(database, profile.to_database()?)?;
    Ok(())
}

/// Adds a path with a cost at its end, and here and there on its way.
fn path(profile: &mut Profile, thread: NodeId, random: &mut fastrand::Rng, seed: u64) {
    let mut node = thread;
    // One of a hundred paths, which all databases have.
    let mut way = fastrand::Rng::with_seed(random.u64(..100));
    let steps = if way.u8(..40) == 0 { 3000 } else { way.usize(1..25) };
    for step in 0..steps {
        let scope = scope(profile, &mut way, (seed, steps - step));
        node = profile.tree.child(node, scope);
        if random.u8(..8) == 0 {
            cost(profile, node, random);
        }
    }
    cost(profile, node, random);
}

fn scope(profile: &mut Profile, random: &mut fastrand::Rng, (seed, left): (u64, usize)) -> Scope {
    let strings = &mut profile.strings;
    let which = if left > 30 { 1 } else { random.u32(..6) };
    let huge = "huge::".repeat(20_000);
    let name = match which {
        0 => "main".to_owned(),
        1 => "größe::<Ελλάς, 日本語>::\u{1F980}".to_owned(),
        2 => "it's \"quoted\"; DROP TABLE node --\n\t\u{1b}[31m".to_owned(),
        3 if random.u8(..20) == 0 => huge,
        other => format!("procedure_{other}"),
    };
    let (name, empty) = (strings.intern(&name), strings.intern(""));
    let (module, file) = (strings.intern(if which < 3 { "app" } else { "libm.so.6" }), strings.intern("src/größe.c"));
    let line = 10 + which;
    let kind = match random.u8(..10) {
        0 => ScopeKind::Loop,
        1 => ScopeKind::Inlined,
        2 => ScopeKind::Line,
        _ => ScopeKind::Procedure,
    };
    // The last one of a path.
    let kind = if left == 1 && random.u8(..4) == 0 { ScopeKind::SystemCall } else { kind };
    match kind {
        ScopeKind::Loop | ScopeKind::Line => {
            let address = (kind == ScopeKind::Loop).then_some(0xffff_ffff_ff60_0000 + u64::from(which));
            Scope { module: Some(module), file: Some(file), line: Some(line), address, ..Scope::new(kind, empty) }
        }
        ScopeKind::SystemCall => Scope::new(kind, strings.intern("read")),
        // A procedure stands at another line in each program; each call of it elsewhere.
        _ => Scope {
            module: Some(module),
            file: Some(file),
            line: Some(if kind == ScopeKind::Inlined { line } else { line + seed as u32 }),
            call_site: Some(CallSite { file, line: random.u32(1..3) }),
            ..Scope::new(kind, name)
        },
    }
}

/// Reals are multiples of 1/8, whose sums are exact in any order.
fn cost(profile: &mut Profile, node: NodeId, random: &mut fastrand::Rng) {
    let values: Vec<u64> = profile
        .metrics
        .iter()
        .map(|metric| match metric.value {
            MetricType::Integer if random.u8(..3) == 0 => 0,
            MetricType::Integer => random.u64(1..1 << 40),
            MetricType::Histogram { .. } => random.u64(..3),
            MetricType::Signed => random.i64(-1000..1000) as u64,
            MetricType::Real => (f64::from(random.i32(1..10_000)) / 8.0).to_bits(),
        })
        .collect();
    profile.tree.add(node, &values);
}

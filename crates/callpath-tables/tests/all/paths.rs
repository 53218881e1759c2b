//! Numbers of paths of real procedures, and what counts them: every place exists, and random walks along the graphs'
//! edges are counted as they went. Prints how many paths procedures have.
//!
//! `CALLPATH_TEST_MODULES` names more modules to check, separated by colons.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use callpath_format::address::LinkAddr;
use callpath_tables::graphs::with_flow;
use callpath_tables::module::Module;
use callpath_x86::graph::{EdgeKind, ModuleFlow, ProcedureGraph, Terminator, merged};
use callpath_x86::paths::{EdgePlan, MAX_PATHS, Numbering, PathOperation, Placement, Site, Ways, weights};
use callpath_x86::rewrite::{Cell, Operation, Place, Plan, Reason, Rewriter};
use fastrand::Rng;

/// The modules of this machine; missing ones are printed.
fn modules() -> Vec<PathBuf> {
    let names = ["/usr/bin/perl", "/lib/x86_64-linux-gnu/libc.so.6", "/usr/bin/python3.11"].map(PathBuf::from);
    let (mut found, missing): (Vec<_>, Vec<_>) = names.into_iter().partition(|name| name.exists());
    missing.iter().for_each(|name| eprintln!("SKIPPED: paths of {}: it is not here", name.display()));
    // Code by rustc and LLVM, with landing pads.
    found.push(std::env::current_exe().unwrap());
    let more = std::env::var("CALLPATH_TEST_MODULES").unwrap_or_default();
    found.extend(more.split(':').filter(|name| !name.is_empty()).map(PathBuf::from));
    found
}

/// What a procedure's paths are counted with.
struct Instrumented<'g> {
    graph: &'g ProcedureGraph,
    ways: Ways,
    numbering: Numbering,
    operations: BTreeMap<Site, Vec<PathOperation>>,
}

impl<'g> Instrumented<'g> {
    fn new(flow: &ModuleFlow<'_>, graph: &'g ProcedureGraph, placement: Placement) -> Instrumented<'g> {
        let ways = Ways::new(flow, graph);
        let weights = weights(graph, &ways);
        let numbering = Numbering::new(&ways, &weights);
        let mut operations: BTreeMap<Site, Vec<PathOperation>> = BTreeMap::new();
        for (site, operation) in numbering.place(&ways, &weights, placement) {
            operations.entry(site).or_default().push(operation);
        }
        Instrumented { graph, ways, numbering, operations }
    }
}

/// A walk, and what is counted on it.
struct Walk<'i, 'g> {
    code: &'i Instrumented<'g>,
    random: Rng,
    /// `None`: it holds nothing that may be used.
    r: Option<i64>,
    counted: Vec<i64>,
    cut_short: u64,
    /// Blocks since the path began.
    current: Vec<u32>,
    walked: Vec<Vec<u32>>,
}

impl Walk<'_, '_> {
    fn pass(&mut self, site: Site) {
        for &operation in self.code.operations.get(&site).into_iter().flatten() {
            match operation {
                PathOperation::Set(constant) => self.r = Some(constant),
                PathOperation::Add(constant) => *self.r.as_mut().expect("r is set") += constant,
                PathOperation::Count(constant) => {
                    let r = self.r.take();
                    self.counted.push(r.unwrap_or_else(|| panic!("r is set at {site:?}")) + constant);
                }
                PathOperation::CountNumber(number) => self.counted.push(number),
                PathOperation::CutShort => self.cut_short += 1,
            }
        }
    }

    fn end_path(&mut self) {
        let path = std::mem::take(&mut self.current);
        self.walked.push(path);
    }

    fn start(&self, block: u32) -> LinkAddr {
        self.code.graph.blocks[block as usize].code.start
    }

    /// All that stands before instructions of a block.
    fn pass_block(&mut self, block: u32) {
        let code = self.code.graph.blocks[block as usize].code.clone();
        let places = self.code.operations.range(Site::Before(code.start)..Site::Before(code.end));
        let places: Vec<Site> = places.map(|(&site, _)| site).collect();
        places.into_iter().for_each(|site| self.pass(site));
    }

    /// Control leaves the procedure behind a block, by one of the ways that its end may have.
    fn leave(&mut self, block: u32) {
        let (counted, graph) = (self.counted.len(), self.code.graph);
        let start = graph.blocks[block as usize].code.start;
        let inside =
            |to: LinkAddr| graph.successors(block).iter().any(|&next| graph.blocks[next as usize].code.start == to);
        let all = Site::Edge(start, LinkAddr(0))..=Site::Edge(start, LinkAddr(u64::MAX));
        let sites = self.code.operations.range(all).map(|(&site, _)| site);
        let mut out: Vec<Site> = sites.filter(|site| matches!(site, Site::Edge(_, to) if !inside(*to))).collect();
        if let Terminator::BranchOut(to) = graph.blocks[block as usize].terminator
            && !inside(to)
            && self.random.bool()
        {
            out = vec![Site::Edge(start, to)];
        }
        assert!(out.len() <= 2);
        if let Some(&site) = self.random.choice(&out) {
            self.pass(site);
        }
        assert_eq!(self.counted.len(), counted + 1, "one path ends where block {:#x} leaves: {out:?}", start.0);
        self.end_path();
    }

    /// One activation, as far as `steps` lead.
    fn run(&mut self, steps: u32) {
        let graph = self.code.graph;
        let mut block = self.code.ways.entry;
        self.pass(Site::Entry);
        for _ in 0..steps {
            self.current.push(block);
            let edges: Vec<(u32, EdgeKind)> = graph.edges_of(block).collect();
            let (pads, next): (Vec<_>, Vec<_>) = edges.into_iter().partition(|edge| edge.1 == EdgeKind::LandingPad);
            let ends_without = matches!(graph.blocks[block as usize].terminator, Terminator::NoReturnCall);
            if !pads.is_empty() && (ends_without || self.random.u8(..8) == 0) {
                let (cut_short, pad) = (self.cut_short, pads[self.random.usize(..pads.len())].0);
                let ours = self.code.graph.blocks[block as usize].code.clone();
                let returns = graph.calls.iter().any(|call| ours.contains(&call.code.start) && call.returns);
                if !returns {
                    self.pass_block(block);
                    self.end_path();
                }
                self.pass(Site::Arrival(self.start(pad)));
                let is_also_target = (0..graph.blocks.len() as u32)
                    .any(|block| graph.edges_of(block).any(|edge| edge == (pad, EdgeKind::Table)));
                if returns && !is_also_target {
                    assert_eq!(self.cut_short, cut_short + 1, "cut short at {:#x}", self.start(pad).0);
                }
                self.current.clear();
                block = pad;
                continue;
            }
            let counted = self.counted.len();
            self.pass_block(block);
            let leaves_too = match graph.blocks[block as usize].terminator {
                Terminator::BranchOut(_) => self.random.bool(),
                Terminator::Branch => next.len() == 1 && next[0].1 == EdgeKind::Taken && self.random.bool(),
                _ => false,
            };
            if next.is_empty() || leaves_too {
                if self.counted.len() > counted {
                    self.end_path();
                } else {
                    self.leave(block);
                }
                return;
            }
            let (to, kind) = next[self.random.usize(..next.len())];
            let is_entry = to == self.code.ways.entry;
            let site = match kind {
                EdgeKind::Table if is_entry => Site::Entry,
                EdgeKind::Table => Site::Arrival(self.start(to)),
                _ => Site::Edge(self.start(block), self.start(to)),
            };
            self.pass(site);
            let way = self.code.ways.from(block).find(|&way| self.code.ways.ways[way].to == Some(to));
            if way.is_none_or(|way| self.code.numbering.is_cut(way as u32)) {
                assert_eq!(self.counted.len(), counted + 1, "a path ends with {site:?}");
                self.end_path();
            }
            assert!(way.is_some() || kind == EdgeKind::Table);
            block = to;
        }
        self.current.clear();
    }
}

/// Where a plan inserts.
fn place(site: Site) -> Option<Place> {
    match site {
        Site::Entry => Some(Place::Entry),
        Site::Before(at) => Some(Place::Before(at)),
        Site::Edge(from, to) => Some(Place::Edge(from, to)),
        Site::Arrival(_) => None,
    }
}

/// Checks that each site is a place of the procedure, by inserting something there.
fn check_sites(rewriter: &Rewriter<'_, '_>, procedure: usize, graph: &ProcedureGraph, sites: &BTreeSet<Site>) {
    let starts: BTreeSet<LinkAddr> = graph.blocks.iter().map(|block| block.code.start).collect();
    let mut plan = Plan::new(Some(Cell::OfThread(-64)));
    for &site in sites {
        match place(site) {
            Some(place) => plan.insert(place, Operation::Add(Cell::OfThread(-8), 1)),
            None => assert!(matches!(site, Site::Arrival(at) if starts.contains(&at)), "{site:?}"),
        }
    }
    if let Err(refusal) = rewriter.copy(procedure, LinkAddr(0x4000_0000), &plan) {
        assert_ne!(refusal.reason, Reason::NoSuchPlace, "{refusal:?} in {:#x}", graph.entry.0);
    }
}

/// What is printed of a module.
#[derive(Default)]
struct Figures {
    /// Procedures by the number of their paths: 1, up to 16, 256, 4096, 65536, 2^32, more.
    histogram: [usize; 7],
    procedures: usize,
    cuts: usize,
    with_dispatch: usize,
    took: Duration,
    slowest: Duration,
    slowest_blocks: usize,
    sites: [usize; 3],
    blocks: usize,
    walks: usize,
}

impl Figures {
    fn add(&mut self, numbering: &Numbering) {
        let limits = [1, 1 << 4, 1 << 8, 1 << 12, 1 << 16, u128::from(MAX_PATHS)];
        self.histogram[limits.partition_point(|&limit| limit < numbering.uncut_paths())] += 1;
        self.procedures += 1;
        self.cuts += numbering.cuts() as usize;
        assert!(numbering.paths() <= MAX_PATHS);
    }
}

fn overlaps(graph: &ProcedureGraph) -> bool {
    graph.blocks.windows(2).any(|pair| pair[0].code.end > pair[1].code.start)
}

fn check(module: &Path, figures: &mut Figures) {
    let module = Module::read(module).unwrap();
    with_flow(&module, |flow, _| {
        let graphs: Vec<ProcedureGraph> = merged((0..flow.len()).map(|procedure| flow.graph(procedure)).collect());
        let rewriter = Rewriter::without_liveness(flow, &graphs);
        for (procedure, graph) in graphs.iter().enumerate() {
            let began = Instant::now();
            let code = Instrumented::new(flow, graph, Placement::Tree);
            let took = began.elapsed();
            figures.took += took;
            if took > figures.slowest {
                (figures.slowest, figures.slowest_blocks) = (took, graph.blocks.len());
            }
            figures.add(&code.numbering);
            figures.blocks += graph.blocks.len();
            figures.with_dispatch += usize::from(!code.ways.dispatches.is_empty());
            let simple = Instrumented::new(flow, graph, Placement::Simple);
            let plan = EdgePlan::new(&code.ways, &weights(graph, &code.ways));
            let sites: BTreeSet<Site> = code.operations.keys().copied().collect();
            let counters: BTreeSet<Site> = plan.counters().collect();
            assert_eq!(counters.len(), plan.counters().count());
            for (sum, len) in figures.sites.iter_mut().zip([simple.operations.len(), sites.len(), counters.len()]) {
                *sum += len;
            }
            check_sites(&rewriter, procedure, graph, &sites);
            check_sites(&rewriter, procedure, graph, &counters);
            // Who jumps where no one knows, or where blocks overlap, is not walked.
            if graph.unresolved() > 0 || overlaps(graph) {
                continue;
            }
            for code in [&code, &simple] {
                let mut walk = Walk {
                    code,
                    random: Rng::with_seed(graph.entry.0),
                    r: None,
                    counted: Vec::new(),
                    cut_short: 0,
                    current: Vec::new(),
                    walked: Vec::new(),
                };
                for _ in 0..8 {
                    walk.r = None;
                    walk.run(200);
                }
                assert_eq!(walk.counted.len(), walk.walked.len(), "{:#x}", graph.entry.0);
                for (&number, walked) in walk.counted.iter().zip(&walk.walked) {
                    let path = u64::try_from(number).ok().and_then(|number| code.numbering.decode(&code.ways, number));
                    let path = path.unwrap_or_else(|| panic!("{number} is a path of {:#x}", graph.entry.0));
                    assert_eq!(&path.blocks, walked, "path {number} of {:#x}", graph.entry.0);
                }
                figures.walks += walk.walked.len();
            }
        }
    });
}

#[test]
fn paths_of_real_procedures() {
    for name in modules() {
        let mut figures = Figures::default();
        check(&name, &mut figures);
        let Figures { histogram, procedures, cuts, with_dispatch, took, slowest, slowest_blocks, .. } = figures;
        let name = name.file_name().unwrap().to_string_lossy().into_owned();
        let few: usize = histogram[..4].iter().sum();
        println!(
            "{name}: {procedures} procedures, {} blocks; paths 1, ..16, ..256, ..4096, ..65536, ..2^32, more: {histogram:?}",
            figures.blocks
        );
        println!(
            "  {:.1}% have up to 4096; {cuts} cuts; {with_dispatch} with tables that share targets",
            few as f64 / procedures as f64 * 100.0
        );
        println!("  ways, numbers and placement took {took:?}; the slowest {slowest:?} ({slowest_blocks} blocks)");
        let [simple, tree, edges] = figures.sites;
        println!("  sites: {simple} simple, {tree} by trees, {edges} of edge profiles; {} paths walked", figures.walks);
        assert!(figures.walks > procedures);
    }
}

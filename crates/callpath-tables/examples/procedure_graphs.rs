//! Control flow graphs and loops of whole files: `procedure_graphs [--threads N] [--show] FILE...`.
//!
//! Columns: procedures; those of several fragments; the share of procedures in which every jump is resolved; blocks;
//! jumps through tables, and those whose table is bounded by its contents, not by the code; unresolved jumps; code in
//! no block, except padding, bytes; loops, and the irreducible ones; the time for the sweep over all code and for all
//! graphs and loops, after the file was read.

use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

use callpath_tables::graphs::with_flow;
use callpath_tables::module::Module;
use callpath_x86::graph::{ModuleFlow, ProcedureGraph, TableEnd, Terminator, merged};
use callpath_x86::loops::{LoopForest, forest};

fn main() -> Result<(), Box<dyn Error>> {
    let mut threads = 1;
    let mut show = false;
    println!(
        "{:<24} {:>7} {:>7} {:>9} {:>8} {:>7} {:>8} {:>7} {:>7} {:>6} {:>6} {:>8} {:>8}",
        "file",
        "procs",
        "joined",
        "resolved",
        "blocks",
        "tables",
        "contents",
        "unres.",
        "gaps",
        "loops",
        "irred.",
        "sweep",
        "graphs"
    );
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--threads" => threads = args.next().ok_or("--threads needs a number")?.parse()?,
            "--show" => show = true,
            path => print(Path::new(path), threads, show)?,
        }
    }
    Ok(())
}

fn print(path: &Path, threads: usize, show: bool) -> Result<(), Box<dyn Error>> {
    let module = Module::read(path)?;
    let begun = Instant::now();
    let (swept, graphs) = with_flow(&module, |flow, _| {
        let swept = begun.elapsed();
        (swept, graphs(flow, threads))
    });
    let took = begun.elapsed();
    let count =
        |wanted: &dyn Fn(&ProcedureGraph) -> usize| graphs.iter().map(|(graph, _)| wanted(graph)).sum::<usize>();
    let unresolved = count(&|graph| usize::from(graph.unresolved() > 0));
    let by_contents = |graph: &ProcedureGraph| graph.tables.iter().filter(|t| t.end == TableEnd::Contents).count();
    println!(
        "{:<24} {:>7} {:>7} {:>8.3}% {:>8} {:>7} {:>8} {:>7} {:>7} {:>6} {:>6} {:>8} {:>8}",
        path.file_name().unwrap_or_default().to_string_lossy(),
        graphs.len(),
        count(&|graph| usize::from(graph.fragments.len() > 1)),
        100.0 * (1.0 - unresolved as f64 / graphs.len().max(1) as f64),
        count(&|graph| graph.blocks.len()),
        count(&|graph| graph.tables.len()),
        count(&by_contents),
        count(&ProcedureGraph::unresolved),
        count(&|graph| graph.roots.len().saturating_sub(1)),
        graphs.iter().map(|(_, forest)| forest.loops.len()).sum::<usize>(),
        graphs.iter().flat_map(|(_, forest)| &forest.loops).filter(|l| l.is_irreducible).count(),
        milliseconds(swept),
        milliseconds(took),
    );
    if show {
        graphs.iter().for_each(|(graph, _)| tell(graph));
    }
    Ok(())
}

fn milliseconds(time: Duration) -> String {
    format!("{:.0} ms", time.as_secs_f64() * 1e3)
}

/// All graphs, built by `threads` threads.
fn graphs(flow: &ModuleFlow<'_>, threads: usize) -> Vec<(ProcedureGraph, LoopForest)> {
    let share = flow.len().div_ceil(threads.max(1) * 16).max(1);
    let next = std::sync::atomic::AtomicUsize::new(0);
    let work = || {
        let mut made = Vec::new();
        loop {
            let from = next.fetch_add(share, std::sync::atomic::Ordering::Relaxed);
            if from >= flow.len() {
                return made;
            }
            made.extend((from..flow.len().min(from + share)).map(|procedure| flow.graph(procedure)));
        }
    };
    let mut all = std::thread::scope(|scope| {
        let workers: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut all = work();
        all.extend(workers.into_iter().flat_map(|worker| worker.join().expect("no worker panics")));
        all
    });
    if threads > 1 {
        all.sort_by_key(|graph| graph.entry);
    }
    merged(all)
        .into_iter()
        .map(|graph| {
            let forest = forest(&graph);
            (graph, forest)
        })
        .collect()
}

fn tell(graph: &ProcedureGraph) {
    if graph.fragments.len() > 1 {
        println!("fragments: {:x?}", graph.fragments.iter().map(|f| (f.start.0, f.end.0)).collect::<Vec<_>>());
    }
    for root in graph.roots.iter().skip(1) {
        println!("root: {:#x} of {:#x}", graph.blocks[*root as usize].code.start, graph.entry);
    }
    for block in graph.blocks.iter().filter(|block| block.terminator == Terminator::Unresolved) {
        println!("unresolved: {:#x} in the procedure at {:#x}", block.code.start, graph.entry);
    }
    for table in graph.tables.iter().filter(|table| table.end == TableEnd::Contents) {
        println!(
            "by contents: {:#x} in the procedure at {:#x}, {} targets",
            table.jump,
            graph.entry,
            table.targets.len()
        );
    }
}

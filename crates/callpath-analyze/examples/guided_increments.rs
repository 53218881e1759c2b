//! How many increments a measurement of `record --exact=paths` would have taken if they had been placed by others:
//! `guided_increments COUNTED GUIDE...`. Prints that for placement by loop depth, by each guide, and by its own counts. The paths are
//! those that were counted, so that figures do not depend on the run.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};

use callpath_analyze::exact::guide;
use callpath_measurement::{CountedProcedure, Measurement};
use callpath_tables::graphs::with_flow;
use callpath_tables::guide::{Guide, Guided};
use callpath_tables::module::Module;
use callpath_tables::paths::MOST_PATHS;
use callpath_x86::paths::{Numbering, Ways, weights};

fn main() -> Result<(), Box<dyn Error>> {
    let directories: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let counted = Measurement::read(directories.first().ok_or("usage: guided_increments COUNTED GUIDE...")?)?;
    let paths = counted.read_paths()?;
    let guides = directories.iter().skip(1).chain(directories.first()).map(|directory| {
        let measurement = Measurement::read(directory)?;
        Ok::<Guide, Box<dyn Error>>(guide(&measurement, &measurement.read_paths()?))
    });
    let guides: Vec<Guide> = guides.collect::<Result<_, _>>()?;
    let mut by_module: BTreeMap<&Path, Vec<&CountedProcedure>> = BTreeMap::new();
    for (process, counts) in &paths.processes {
        for procedure in counts.procedures.iter().filter(|procedure| !procedure.paths.is_empty()) {
            let module = &counted.processes[*process].modules[usize::from(procedure.module.0)];
            by_module.entry(&module.path).or_default().push(procedure);
        }
    }
    // By loop depth, then by each guide.
    let mut sums = vec![0u64; 1 + guides.len()];
    for (path, procedures) in by_module {
        let Ok(module) = Module::read(path) else { continue };
        let all = increments(&module, path, (&procedures, &guides));
        sums.iter_mut().zip(all).for_each(|(sum, more)| *sum += more);
    }
    println!("{:>16} by loop depth", sums[0]);
    for (guide, sum) in guides.iter().zip(&sums[1..]) {
        println!("{sum:>16} by {} ({:.3})", guide.directory.display(), *sum as f64 / sums[0] as f64);
    }
    Ok(())
}

/// The increments of a module's procedures: by loop depth, then by each guide.
fn increments(module: &Module, path: &Path, (procedures, guides): (&[&CountedProcedure], &[Guide])) -> Vec<u64> {
    let identity = module.image().identity();
    with_flow(module, |flow, _| {
        let mut sums = vec![0u64; 1 + guides.len()];
        for procedure in procedures {
            let Some(graph) = flow.procedure_at(procedure.entry).map(|number| flow.graph(number)) else { continue };
            let ways = Ways::new(flow, &graph);
            let guess = weights(&graph, &ways);
            let numbering = Numbering::with_limit(&ways, &guess, MOST_PATHS);
            let by_guide = guides.iter().map(|guide| match guide.of(&identity, path) {
                Guided::By(told) => told.weights((flow, &graph), (&ways, &guess), |way| numbering.is_cut(way)),
                Guided::OtherBuild | Guided::Unknown => None,
            });
            for (sum, weights) in sums.iter_mut().zip(std::iter::once(None).chain(by_guide)) {
                let placed = numbering.place_in_tree(&ways, weights.as_ref().unwrap_or(&guess), &guess);
                let along = procedure
                    .paths
                    .iter()
                    .map(|path| placed.increments_along(&numbering, path.number) * path.executions);
                *sum += along.sum::<u64>();
            }
        }
        sums
    })
}

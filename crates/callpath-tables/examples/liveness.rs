//! Live registers and flags of whole files: `liveness FILE...` prints a line for each.
//!
//! Columns: procedures; blocks; the share of blocks at whose start flags are live; the shares at whose start a
//! general-purpose register is dead, and a caller-saved one (rsp and rbp aside); the time for all graphs and for
//! liveness, on one core.

use std::error::Error;
use std::path::Path;
use std::time::Instant;

use callpath_tables::graphs::with_flow;
use callpath_tables::module::Module;
use callpath_x86::graph::{ProcedureGraph, merged};
use callpath_x86::liveness::{Convention, Liveness};

/// rax, rcx, rdx, rsi, rdi, r8 to r11.
const CALL_CLOBBERED: u16 = 0x0fc7;

fn main() -> Result<(), Box<dyn Error>> {
    println!(
        "{:<24} {:>7} {:>8} {:>7} {:>7} {:>9} {:>9} {:>9}",
        "file", "procs", "blocks", "flags", "dead", "clobbered", "graphs", "liveness"
    );
    for path in std::env::args().skip(1) {
        let module = Module::read(Path::new(&path))?;
        let name = Path::new(&path).file_name().unwrap_or_default().to_string_lossy().into_owned();
        with_flow(&module, |flow, _| {
            let start = Instant::now();
            let graphs: Vec<ProcedureGraph> = merged((0..flow.len()).map(|procedure| flow.graph(procedure)).collect());
            let graphs_took = start.elapsed();
            let start = Instant::now();
            let liveness = Liveness::new(flow, &graphs, Convention::SystemV);
            let took = start.elapsed();
            let (mut blocks, mut flags, mut dead, mut clobbered) = (0u32, 0u32, 0u32, 0u32);
            for (number, graph) in graphs.iter().enumerate() {
                for block in 0..graph.blocks.len() as u32 {
                    let live = liveness.at_block(number, block);
                    blocks += 1;
                    flags += u32::from(live.has_flags());
                    dead += u32::from(live.general() != u16::MAX);
                    clobbered += u32::from(!live.general() & CALL_CLOBBERED != 0);
                }
            }
            let share = |count: u32| format!("{:.2}%", f64::from(count) * 100.0 / f64::from(blocks.max(1)));
            println!(
                "{name:<24} {:>7} {blocks:>8} {:>7} {:>7} {:>9} {:>6} ms {:>6} ms",
                graphs.len(),
                share(flags),
                share(dead),
                share(clobbered),
                graphs_took.as_millis(),
                took.as_millis()
            );
        });
    }
    Ok(())
}

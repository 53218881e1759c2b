//! Scratch.
use callpath_tables::graphs::with_flow;
use callpath_tables::module::Module;
use callpath_x86::graph::*;
use callpath_x86::liveness::{Convention, Liveness};
use std::error::Error;
use std::path::Path;
fn main() -> Result<(), Box<dyn Error>> {
    let verbose = std::env::var("V").is_ok();
    for path in std::env::args().skip(1) {
        let module = Module::read(Path::new(&path))?;
        with_flow(&module, |flow, _| {
            let graphs: Vec<ProcedureGraph> = merged((0..flow.len()).map(|p| flow.graph(p)).collect());
            let entries: std::collections::HashSet<u64> = graphs.iter().map(|g| g.entry.0).collect();
            let mut k = std::collections::BTreeMap::<&str, u32>::new();
            for g in &graphs {
                for (n, b) in (0u32..).zip(&g.blocks) {
                    let has = |kinds: &[EdgeKind]| g.edges_of(n).any(|(_, kind)| kinds.contains(&kind));
                    let what = match b.terminator {
                        Terminator::TailCall(Some(t)) if !entries.contains(&t.0) => "tail to middle",
                        Terminator::BranchOut(t) if !entries.contains(&t.0) => "branchout to middle",
                        Terminator::BranchOut(_) if !has(&[EdgeKind::FallThrough, EdgeKind::NotTaken]) => {
                            "branchout no rest"
                        }
                        Terminator::Branch if !has(&[EdgeKind::FallThrough, EdgeKind::Taken]) => "branch no edges",
                        Terminator::Branch if !has(&[EdgeKind::FallThrough, EdgeKind::NotTaken]) => "branch no rest",
                        Terminator::Unresolved => "unresolved",
                        Terminator::RunsOut => "runs out",
                        Terminator::SharedTail(_) => "shared tail",
                        Terminator::Switch(t)
                            if g.tables.get(t as usize).is_none_or(|t| t.end == TableEnd::Contents) =>
                        {
                            "contents"
                        }
                        Terminator::Trap
                        | Terminator::NoReturnCall
                        | Terminator::Return
                        | Terminator::TailCall(_)
                        | Terminator::BranchOut(_)
                        | Terminator::Branch => continue,
                        _ if g.successors(n).is_empty() => "no successors",
                        _ => continue,
                    };
                    *k.entry(what).or_default() += 1;
                    if verbose {
                        println!("{:x} {what} {:x}..{:x}", g.entry.0, b.code.start.0, b.code.end.0);
                    }
                }
                for c in &g.calls {
                    if let Some(t) = c.target
                        && !entries.contains(&t.0)
                    {
                        *k.entry("call middle").or_default() += 1;
                        if verbose {
                            println!("{:x} call middle {:x}", g.entry.0, t.0);
                        }
                    }
                }
            }
            let l = Liveness::new(flow, &graphs, Convention::SystemV);
            let (mut r11, mut fl, mut blocks, mut dead, mut dv, mut bf) = (0, 0, 0u64, 0u64, 0u64, 0);
            for (n, g) in graphs.iter().enumerate() {
                let s = l.at_block(n, g.block_at(g.entry).unwrap_or(0));
                r11 += u32::from(s.general() >> 11 & 1 != 0);
                fl += u32::from(s.has_flags());
                for b in 0..g.blocks.len() as u32 {
                    let s = l.at_block(n, b);
                    blocks += 1;
                    bf += u32::from(s.has_flags());
                    dead += u64::from((!s.general() & 0x0fc7).count_ones());
                    dv += u64::from((!s.vectors()).count_ones());
                }
            }
            println!(
                "{path}: procs {} {k:?} entry r11 {r11} flags {fl}; per block: flags live {:.2}% dead general {:.2} vectors {:.2}",
                graphs.len(),
                f64::from(bf) * 100.0 / blocks as f64,
                dead as f64 / blocks as f64,
                dv as f64 / blocks as f64
            );
        });
    }
    Ok(())
}

//! Compares procedure bounds found in machine code with the symbols of unstripped files: `procedure_bounds [--show]
//! FILE...`.
//!
//! Each file is analysed as if it had no call frame information and no local symbols. Columns: procedures with symbols;
//! precision and recall of the starts that were found; for missed and wrong starts, how many are malignant and how many
//! benign. An error is malignant if, in its procedure, the frames from the code alone differ from call frame
//! information; a benign error does not affect stack walks.
//!
//! A cold part of a procedure (`f.cold`) is not a procedure: a start there is an error, and so is one inside a
//! procedure. Stubs of the procedure linkage table and code without symbols are not counted.

use std::collections::BTreeSet;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use callpath_format::address::LinkAddr;
use callpath_image::debug_file::{DEFAULT_ROOT, DebugFiles};
use callpath_image::loading::named_starts;
use callpath_image::symbols::Procedures;
use callpath_tables::module::Module;
use callpath_tables::recipes::{Evidence, compare, procedures};

#[derive(Default)]
struct Figures {
    named: usize,
    found: usize,
    right: usize,
    /// Malignant, benign.
    missed: [usize; 2],
    wrong: [usize; 2],
    /// The wrong ones at the start of a cold part.
    cold: usize,
}

impl Figures {
    fn print(&self, name: &str) {
        let share = |part: usize, all: usize| 100.0 * part as f64 / all.max(1) as f64;
        println!(
            "{name:<36} {:>7} {:>9.3}% {:>8.3}% {:>9} {:>7} {:>9} {:>7} {:>7}",
            self.named,
            share(self.right, self.found),
            share(self.right, self.named),
            self.missed[0],
            self.missed[1],
            self.wrong[0],
            self.wrong[1],
            self.cold,
        );
    }

    fn add(&mut self, other: &Figures) {
        self.named += other.named;
        self.found += other.found;
        self.right += other.right;
        self.cold += other.cold;
        for kind in 0..2 {
            self.missed[kind] += other.missed[kind];
            self.wrong[kind] += other.wrong[kind];
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut show = false;
    let mut sum = Figures::default();
    println!(
        "{:<36} {:>7} {:>10} {:>9} {:>17} {:>17} {:>7}",
        "", "", "", "", "missed starts", "starts that are", "of them"
    );
    println!(
        "{:<36} {:>7} {:>10} {:>9} {:>9} {:>7} {:>9} {:>7} {:>7}",
        "file", "named", "precision", "recall", "malignant", "benign", "malignant", "benign", "cold"
    );
    for path in std::env::args().skip(1) {
        if path == "--show" {
            show = true;
            continue;
        }
        let figures = figures(Path::new(&path), show)?;
        figures.print(&Path::new(&path).file_name().unwrap_or_default().to_string_lossy());
        sum.add(&figures);
    }
    sum.print("all");
    Ok(())
}

fn figures(path: &Path, show: bool) -> Result<Figures, Box<dyn Error>> {
    let module = Module::read(path)?;
    let image = module.image();
    let debug_file = DebugFiles::find(image, &[PathBuf::from(DEFAULT_ROOT)]).debug_file;
    let named = named_starts(image, debug_file.as_ref());
    let around = Procedures::new(Arc::clone(image), debug_file.as_ref());
    // Instructions for which the code alone and call frame information differ.
    let mut differing = BTreeSet::new();
    compare(&module, |point| {
        if point.evidence != Evidence::Agrees {
            differing.insert(point.address);
        }
    });
    let is_malignant = |start: LinkAddr| {
        let len = around.procedure_at(start).map_or(1, |p| (p.start.0 + p.len).saturating_sub(start.0).max(1));
        differing.range(start..LinkAddr(start.0.saturating_add(len))).next().is_some()
    };
    let kind = |start| usize::from(!is_malignant(start));
    let found: BTreeSet<LinkAddr> = procedures(&module).into_iter().map(|procedure| procedure.code.start).collect();
    let mut figures = Figures::default();
    for &(start, is_part) in &named {
        if is_part {
            continue;
        }
        figures.named += 1;
        if found.contains(&start) {
            figures.right += 1;
        } else {
            figures.missed[kind(start)] += 1;
            if show {
                tell("missed", start, &around, is_malignant(start));
            }
        }
    }
    figures.found = figures.right;
    for &start in &found {
        let at = named.binary_search_by_key(&start, |named| named.0);
        let is_cold = at.is_ok_and(|at| named[at].1);
        let procedure = around.procedure_at(start);
        let is_inside = procedure.is_some_and(|p| p.start < start && p.name.is_some_and(|name| !name.contains("@plt")));
        if is_cold || at.is_err() && is_inside {
            figures.found += 1;
            figures.wrong[kind(start)] += 1;
            figures.cold += usize::from(is_cold);
            if show {
                tell("no procedure", start, &around, is_malignant(start));
            }
        }
    }
    Ok(figures)
}

fn tell(what: &str, start: LinkAddr, around: &Procedures, is_malignant: bool) {
    let kind = if is_malignant { "malignant" } else { "benign" };
    let procedure = around.procedure_at(start);
    let name = procedure.and_then(|procedure| procedure.name).unwrap_or("?");
    let offset = procedure.map_or(0, |procedure| start.0 - procedure.start.0);
    println!("{what}, {kind}: {start:#x} {name}+{offset:#x}");
}

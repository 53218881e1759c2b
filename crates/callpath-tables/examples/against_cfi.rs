//! Compares recipes from machine code alone with call frame information: `against_cfi FILE [EVIDENCE|ADDRESS [COUNT]]`.
//! It does not decide which of them is right.
//!
//! Prints how many instructions agree and how many do not, and the procedures with the most instructions of one kind of
//! evidence.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use callpath_image::elf::Image;
use callpath_image::symbols::Procedures;
use callpath_tables::module::Module;
use callpath_tables::recipes::{Disagreement, compare};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let file = args.next().ok_or("usage: against_cfi FILE [EVIDENCE|ADDRESS [COUNT]]")?;
    let wanted = args.next().unwrap_or_default();
    let count = args.next().map_or(Ok(10), |count| count.parse())?;
    let image = Arc::new(Image::read(Path::new(&file))?);
    let procedures = Procedures::new(Arc::clone(&image), None);
    let mut totals: BTreeMap<String, u64> = BTreeMap::new();
    let mut places: BTreeMap<u64, Vec<Disagreement>> = BTreeMap::new();
    compare(&Module::new(Arc::clone(&image)), |point| {
        let evidence = format!("{:?}", point.evidence);
        *totals.entry(evidence.clone()).or_default() += 1;
        if format!("{:#x}", point.address) == wanted {
            println!("{evidence}\n    CFI  {}\n    code {}", short(&point.call_frames), short(&point.machine_code));
        }
        if evidence == wanted {
            let start = procedures.procedure_at(point.address).map_or(0, |procedure| procedure.start.0);
            places.entry(start).or_default().push(point);
        }
    });
    let all: u64 = totals.values().sum();
    for (evidence, count) in &totals {
        println!("{evidence:16} {count:9} {:8.4}%", 100.0 * *count as f64 / all.max(1) as f64);
    }
    let mut places: Vec<_> = places.into_iter().collect();
    places.sort_by_key(|(_, points)| std::cmp::Reverse(points.len()));
    println!("{} procedures", places.len());
    for (start, points) in places.iter().take(count) {
        let name = procedures.procedure_at(points[0].address).and_then(|procedure| procedure.name).unwrap_or("?");
        println!("{start:#x} {name}: {} points, first {:#x}", points.len(), points[0].address);
        println!("    CFI  {}", short(&points[0].call_frames));
        println!("    code {}", short(&points[0].machine_code));
    }
    Ok(())
}

fn short(recipe: &callpath_format::recipe::Recipe) -> String {
    let mut text = format!("{:?} ra {:?}", recipe.cfa, recipe.return_address);
    for reg in callpath_format::register::Reg::CALLEE_SAVED {
        text += &format!(" {}:{:?}", reg.index(), recipe.registers[reg.index()]);
    }
    text
}

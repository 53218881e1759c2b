//! Times opening and naming of files: `cargo run --release -p callpath-image --example naming_speed -- FILE...`

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use callpath_format::address::LinkAddr;
use callpath_image::debug_file::{DEFAULT_ROOT, DebugFiles};
use callpath_image::demangle::demangle;
use callpath_image::elf::Image;
use callpath_image::error::ImageError;
use callpath_image::lines::Lines;
use callpath_image::symbols::Procedures;

/// How many addresses, spread evenly over the executable bytes.
const ADDRS: u64 = 50_000;

fn main() -> Result<(), ImageError> {
    println!(
        "{:>9} {:>9} {:>9} {:>9} {:>9} {:>8} {:>8}  file",
        "read", "debug", "index", "name", "lines", "named", "lined"
    );
    for path in std::env::args().skip(1) {
        measure(Path::new(&path))?;
    }
    Ok(())
}

fn measure(path: &Path) -> Result<(), ImageError> {
    let mut clock = Instant::now();
    let mut lap = || {
        let ms = clock.elapsed().as_secs_f64() * 1e3;
        clock = Instant::now();
        format!("{ms:6.1} ms")
    };
    let image = Arc::new(Image::read(path)?);
    let read = lap();
    let found = DebugFiles::find(&image, &[DEFAULT_ROOT.into()]);
    let debug = lap();
    let procedures = Procedures::new(Arc::clone(&image), found.debug_file.as_ref());
    let index = lap();
    let addrs: Vec<LinkAddr> = image
        .executable_ranges()
        .iter()
        .flat_map(|range| {
            let total: u64 = image.executable_ranges().iter().map(|range| range.end.0 - range.start.0).sum();
            (range.start.0..range.end.0).step_by((total / ADDRS).max(1) as usize).map(LinkAddr)
        })
        .collect();
    lap();
    let names = addrs.iter().filter_map(|&addr| procedures.procedure_at(addr)?.name.map(demangle));
    let named = names.filter(|name| !name.is_empty()).count();
    let name = lap();
    let lines = Lines::new(found.debug_file.map_or(image, Arc::new), found.supplement.map(Arc::new));
    let lined = lines.lines(&addrs).into_iter().flatten().count();
    let line = lap();
    println!("{read} {debug} {index} {name} {line} {named:>8} {lined:>8}  {}", path.display());
    for error in found.diagnostics {
        println!("failed to {error}");
    }
    for diagnostic in lines.diagnostics() {
        println!("{diagnostic}");
    }
    Ok(())
}

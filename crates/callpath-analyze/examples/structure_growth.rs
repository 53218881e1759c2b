//! How time and memory of a structure grow with the file: one C++ unit linked 50, 100, 200, ... times, as it is, with
//! its debug information compressed, and without any. Needs g++ and objcopy.
//!
//! ```text
//! cargo run --release -p callpath-analyze --example structure_growth [-- DOUBLINGS]
//! ```
//!
//! Each file is looked at by a process of its own, whose peak memory is the kernel's.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use callpath_analyze::structure::{ModuleSource, structure};
use callpath_image::elf::Image;
use callpath_tables::module::Module;

const LEAST_UNITS: usize = 50;
const TICKS_PER_SECOND: f64 = 100.0;

fn run(directory: &Path, program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).current_dir(directory).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The second word of a line of `/proc/self/status`, in bytes.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    1024 * line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
}

/// User's and system's time of all threads, those that have ended included.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    fields[11..13].iter().map(|ticks| ticks.parse::<f64>().unwrap()).sum::<f64>() / TICKS_PER_SECOND
}

/// In a process of its own: one row of the table.
fn measure(path: &Path, what: &str) {
    let began = Instant::now();
    let image = Arc::new(Image::read(path).unwrap());
    let file = image.file_len();
    let source =
        ModuleSource { module: Arc::new(Module::new(Arc::clone(&image))), with_dwarf: image, supplement: None };
    let found = structure(&source, None, &|_, _| {});
    let (wall, cpu, memory) = (began.elapsed().as_secs_f64(), cpu_seconds(), peak_memory());
    let scopes: usize = found.procedures.iter().map(|procedure| procedure.scopes.len()).sum();
    let sections = [".debug_info", ".debug_abbrev", ".debug_line", ".debug_str", ".debug_line_str", ".debug_rnglists"];
    let more = [".debug_loclists", ".debug_aranges"];
    let debug = sections.iter().chain(&more).filter_map(|name| source.module.image().section(name));
    let debug: usize = debug.map(|section| section.data.len()).sum();
    let mib = |bytes: u64| bytes as f64 / (1 << 20) as f64;
    println!(
        "| {what} | {:.1} | {:.1} | {} | {scopes} | {wall:.2} s | {cpu:.2} s | {:.0} | {:.2} |",
        mib(file),
        mib(debug as u64),
        found.procedures.len(),
        mib(memory),
        memory as f64 / file as f64,
    );
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [word, path, what] = &arguments[..]
        && word == "measure"
    {
        return measure(Path::new(path), what);
    }
    let doublings: u32 = arguments.first().map_or(4, |number| number.parse().expect("how often to double"));
    let directory = tempfile::tempdir().unwrap();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../callpath-image/tests/programs/shapes.cc");
    run(directory.path(), "g++", &["-g", "-O2", "-c", source, "-o", "all.o"]);
    // Each copy keeps its templates.
    run(directory.path(), "objcopy", &["-R", ".group", "all.o", "one.o"]);
    println!(
        "| units | file, MiB | debug, MiB | procedures | scopes | on the clock | CPU | peak, MiB | bytes a byte |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for doubling in 0..=doublings {
        let units = LEAST_UNITS << doubling;
        let name = |kind: &str| directory.path().join(format!("{units}{kind}"));
        let text = |path: PathBuf| path.to_str().unwrap().to_owned();
        let (plain, compressed, stripped) = (text(name("")), text(name(".compressed")), text(name(".stripped")));
        let link = ["-Wl,--allow-multiple-definition", "-o", &plain];
        run(directory.path(), "g++", &[&link[..], &vec!["one.o"; units]].concat());
        run(directory.path(), "objcopy", &["--compress-debug-sections=zlib", &plain, &compressed]);
        run(directory.path(), "strip", &[&plain, "-o", &stripped]);
        for (path, kind) in [(plain, ""), (compressed, ", compressed"), (stripped, ", stripped")] {
            let own = std::env::current_exe().unwrap();
            let status = Command::new(own).args(["measure", &path, &format!("{units}{kind}")]).status().unwrap();
            assert!(status.success());
            std::fs::remove_file(path).unwrap();
        }
    }
}

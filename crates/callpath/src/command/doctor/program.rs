//! What a program is, what it would be loaded with, and whether `record` takes it.

use std::path::{Path, PathBuf};

use callpath_image::peek::ElfPeek;
use callpath_measurement::plain;
use callpath_record::{WayIn, check_program, way_in};
use callpath_tables::module_facts::ModuleFacts;
use callpath_tables::table_cache::TableCache;
use callpath_target::{Needed, needed_libraries};

use super::finding::Finding;
use super::modules;
use crate::surroundings::{self, Progress};

/// A program.
pub(super) struct Program {
    pub(super) path: PathBuf,
    pub(super) findings: Vec<Finding>,
    /// The program's file, or its interpreter's, and the libraries.
    pub(super) modules: Vec<ModuleFacts>,
}

/// The oldest C library that the preload object was tried with.
const OLDEST_GLIBC: (u32, u32) = (2, 31);

/// Looks at the program at `path`.
pub(super) fn look(path: &Path) -> Program {
    let mut program = Program { path: path.to_owned(), findings: Vec::new(), modules: Vec::new() };
    if let Ok(WayIn::Outside(what)) = way_in(path) {
        let finding = Finding::limited("program", what);
        program.findings.push(finding.means(
            "`callpath record` samples it from outside, by CPU time alone; probes and exact counts need a program that loads a preloaded object",
        ));
    } else if let Err(error) = check_program(path) {
        let finding = Finding::bad("program", format!("failed to {}", plain(error)));
        program.findings.push(finding.means("`callpath record` refuses it with this sentence"));
    }
    let Some((file, loader)) = executed(path) else { return program };
    if file != path {
        let found = format!("a script, executed by {}", file.display());
        let finding = Finding::good("program", found);
        program.findings.push(finding.means("procedures are the interpreter's, not the script's"));
    } else if program.findings.is_empty() {
        program.findings.push(Finding::good("program", "64-bit, dynamically linked, with no privileges of its own"));
    }
    let needed = libraries(&file, loader.as_deref(), &mut program.findings);
    program.read_modules(file, &needed);
    program.c_library(loader.as_deref(), &needed);
    program.findings.extend(modules::findings(&program.modules));
    program
}

/// The file that is executed in the end, and its dynamic loader. `None` if it is nothing that can be read.
pub(in crate::command) fn executed(path: &Path) -> Option<(PathBuf, Option<PathBuf>)> {
    const SCRIPTS: u32 = 5;
    let mut file = path.to_owned();
    for _ in 0..SCRIPTS {
        match ElfPeek::read(&file).ok()? {
            ElfPeek::Script { interpreter, .. } => file = interpreter,
            ElfPeek::Dynamic { interpreter } => return Some((file, Some(interpreter))),
            ElfPeek::Static => return Some((file, None)),
            _ => return None,
        }
    }
    None
}

/// What the loader finds for it.
fn libraries(file: &Path, loader: Option<&Path>, findings: &mut Vec<Finding>) -> Vec<Needed> {
    let Some(loader) = loader else { return Vec::new() };
    match needed_libraries(loader, file) {
        Ok(Some(needed)) => {
            let missing: Vec<&str> = needed.iter().filter(|n| n.path.is_none()).map(|n| n.name.as_str()).collect();
            if !missing.is_empty() {
                findings.push(
                    Finding::bad("libraries", format!("not found: {}", missing.join(", ")))
                        .means("the program does not start, with or without callpath")
                        .remedy("install them, or name their directory in LD_LIBRARY_PATH"),
                );
            }
            needed
        }
        Ok(None) => {
            let found = format!("{} does not look like a dynamic loader, and was not asked", loader.display());
            findings.push(Finding::limited("libraries", found).means("they were not looked at"));
            Vec::new()
        }
        Err(error) => {
            let finding =
                Finding::bad("libraries", format!("the dynamic loader cannot list them: failed to {}", plain(error)));
            findings.push(finding.means("the program does not start, with or without callpath"));
            Vec::new()
        }
    }
}

impl Program {
    fn read_modules(&mut self, file: PathBuf, needed: &[Needed]) {
        let cache = TableCache::open(surroundings::cache_directory());
        let roots = surroundings::debug_roots();
        let mut paths = vec![file];
        paths.extend(needed.iter().filter_map(|library| library.path.clone()));
        let count = paths.len();
        let mut progress = Progress::new("reading modules");
        for (done, path) in paths.into_iter().enumerate() {
            progress.step(done, count);
            match ModuleFacts::read(&path, &roots, &cache) {
                Ok(facts) => self.modules.push(facts),
                Err(error) => self.findings.push(Finding::limited("module", format!("failed to {}", plain(error)))),
            }
        }
    }

    fn c_library(&mut self, loader: Option<&Path>, needed: &[Needed]) {
        const TOPIC: &str = "C library";
        let Some(loader) = loader else { return };
        let name = loader.file_name().unwrap_or_default().to_string_lossy();
        let loads = |library: &str| needed.iter().any(|needed| needed.name.starts_with(library));
        let release = self.modules.iter().find_map(|module| module.glibc.clone());
        self.findings.push(match release {
            _ if name.starts_with("ld-musl") => Finding::limited(TOPIC, "musl")
                .means("the program is sampled from outside")
                .remedy("for probes and exact counts, build it for the GNU C library"),
            None => Finding::limited(TOPIC, format!("not known (loaded by {})", loader.display()))
                .means("only programs of the GNU C library are measured"),
            Some(release) if number(&release) < Some(OLDEST_GLIBC) => {
                Finding::limited(TOPIC, format!("glibc {release}"))
                    .means("callpath is not tried with releases before 2.31")
            }
            Some(release) => Finding::good(TOPIC, format!("glibc {release}")),
        });
        // gcc's runtimes; clang's are inside the program.
        if let Some(runtime) = ["libasan.so", "libtsan.so", "liblsan.so"].into_iter().find(|runtime| loads(runtime)) {
            self.findings.push(
                Finding::limited("sanitizer", format!("the program needs {runtime}"))
                    .means("the cost of its checks is in the call paths")
                    .remedy("record a build without -fsanitize"),
            );
        }
        if self.modules.first().is_some_and(|module| module.is_go) {
            self.findings.push(Finding::good("runtime", "Go").means(
                "with cgo, paths begin where a goroutine does; without cgo, the program is sampled from outside",
            ));
        }
    }
}

fn number(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split('.').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

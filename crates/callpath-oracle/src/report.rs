//! What a person reads of the scores: figures by module and kind of code, and the first failures.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::path::{Path, PathBuf};

use callpath_format::address::RunAddr;

use crate::code_kind::{CodeKind, CodeKinds};
use crate::modules::Images;
use crate::run::Ran;
use crate::score::{Score, Scored, Tally};

/// Addresses of a path that are shown.
const SHOWN_FRAMES: usize = 12;

/// The figures, and the failures in words.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// All snapshots.
    pub all: Tally,
    /// By module.
    pub modules: BTreeMap<String, Tally>,
    /// By kind of code.
    pub code_kinds: BTreeMap<CodeKind, Tally>,
    /// The first failures, the wrong ones first.
    pub failures: Vec<String>,
}

impl Report {
    /// Of snapshots that were scored; `shown` failures of each kind are described. `images` knows the vdso.
    pub fn new<'a>(scored: impl Iterator<Item = Scored<'a>>, images: Images, shown: usize) -> Report {
        let mut code = ModuleCode { images, code_kinds: HashMap::new() };
        let mut report = Report::default();
        let (mut wrong, mut partial) = (Vec::new(), Vec::new());
        for scored in scored {
            let located = scored.locate(scored.pc);
            let name = located.map_or("outside of modules".into(), |(module, _)| module.path.display().to_string());
            let code_kind = located.and_then(|(module, addr)| Some(code.get(&module.path)?.kind(addr)));
            let code_kind = code_kind.unwrap_or(CodeKind::Outside);
            report.all.add(scored.score);
            report.modules.entry(name).or_default().add(scored.score);
            report.code_kinds.entry(code_kind).or_default().add(scored.score);
            let list = match scored.score {
                Score::Exact => continue,
                Score::Wrong => &mut wrong,
                Score::Partial => &mut partial,
            };
            if list.len() < shown {
                list.push(code.describe(&scored, code_kind));
            }
        }
        report.failures = wrong;
        report.failures.append(&mut partial);
        report
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for failure in &self.failures {
            writeln!(f, "{failure}")?;
        }
        writeln!(f, "{:>10} {:>10} {:>7} {:>8}", "snapshots", "exact", "wrong", "partial")?;
        let mut row = |name: &str, tally: &Tally| {
            let Tally { exact, wrong, partial } = tally;
            writeln!(f, "{:>10} {exact:>10} {wrong:>7} {partial:>8}  {name}", tally.snapshots())
        };
        for (name, tally) in &self.modules {
            row(name, tally)?;
        }
        for (code_kind, tally) in &self.code_kinds {
            row(code_kind.name(), tally)?;
        }
        row("all", &self.all)
    }
}

impl fmt::Display for Ran {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.elapsed.as_secs_f64();
        write!(f, "{} stops in {seconds:.1} s, {} distinct instructions", self.steps, self.instructions)?;
        if self.threads > 1 {
            write!(f, ", {} threads", self.threads)?;
        }
        if self.signals > 0 {
            write!(f, ", {} signals handled", self.signals)?;
        }
        match self.status {
            Some(status) => writeln!(f, ", exit status {status}")?,
            None => writeln!(f, ", stopped before the end")?,
        }
        let mut doubted: Vec<_> = self.doubted.iter().collect();
        doubted.sort();
        for (doubt, count) in doubted {
            writeln!(f, "{count} not scored: {doubt}")?;
        }
        if self.unexplained_returns > 0 {
            writeln!(f, "{} returns to addresses that no call had pushed", self.unexplained_returns)?;
        }
        Ok(())
    }
}

struct ModuleCode {
    images: Images,
    code_kinds: HashMap<PathBuf, Option<CodeKinds>>,
}

impl ModuleCode {
    fn get(&mut self, path: &Path) -> Option<&CodeKinds> {
        let images = &mut self.images;
        self.code_kinds.entry(path.to_owned()).or_insert_with(|| images.get(path).map(CodeKinds::new)).as_ref()
    }

    fn describe(&mut self, scored: &Scored<'_>, code_kind: CodeKind) -> String {
        let kind = if scored.score == Score::Wrong { "wrong" } else { "partial" };
        let mut text = format!("{kind} #{} at {}, {}\n", scored.id, self.name(scored, scored.pc), code_kind.name());
        if let Some((module, addr)) = scored.locate(scored.pc)
            && let Some(code_kinds) = self.get(&module.path)
        {
            let start = code_kinds.procedure(addr).map_or(addr, |(start, _)| start);
            for line in crate::listing::around(code_kinds.image(), start, addr) {
                text.push_str("    ");
                text.push_str(&line);
                text.push('\n');
            }
        }
        let agree = scored.truth.iter().zip(scored.found).take_while(|(a, b)| a == b).count();
        let from = agree.saturating_sub(1);
        for (which, path) in [("true", scored.truth), ("found", scored.found)] {
            text.push_str(&format!("  {which}: {} frames", path.len()));
            if from > 0 {
                text.push_str(&format!(", the first {from} in both"));
            }
            text.push('\n');
            for address in path.iter().skip(from).take(SHOWN_FRAMES) {
                text.push_str(&format!("    {}\n", self.name(scored, RunAddr(*address))));
            }
            if path.len() > from + SHOWN_FRAMES {
                text.push_str("    ...\n");
            }
        }
        text
    }

    /// An address with what is there.
    fn name(&mut self, scored: &Scored<'_>, addr: RunAddr) -> String {
        let mut text = format!("{addr:#x}");
        let Some((module, link)) = scored.locate(addr) else { return text };
        let file = module.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let path = module.path.clone();
        let procedure = self.get(&path).and_then(|code_kinds| {
            // A return address may be the next procedure's first.
            let (start, name) = code_kinds.procedure(link)?;
            Some(format!("{}+{:#x}", name.unwrap_or("?"), link.0 - start.0))
        });
        let written = match procedure {
            Some(procedure) => write!(text, " {file}:{link:#x} {procedure}"),
            None => write!(text, " {file}:{link:#x}"),
        };
        written.map_or_else(|_| String::new(), |()| text)
    }
}

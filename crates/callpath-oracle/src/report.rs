//! What a person reads of a verdict: figures by module and place, and the first failures.
//! Knows nothing of how it came about.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::path::{Path, PathBuf};

use callpath_format::address::RunAddr;

use crate::modules::Images;
use crate::place::{Place, Places};
use crate::run::Ran;
use crate::score::{Judged, Tally, Verdict};

/// Addresses of a path that are shown.
const SHOWN_FRAMES: usize = 12;

/// The figures, and the failures in words.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// All snapshots.
    pub all: Tally,
    /// By module.
    pub modules: BTreeMap<String, Tally>,
    /// By kind of place.
    pub places: BTreeMap<Place, Tally>,
    /// The first failures, the wrong ones first.
    pub failures: Vec<String>,
}

impl Report {
    /// Of snapshots that were judged; `shown` failures of each kind are described. `images` knows the vdso.
    pub fn new<'a>(judged: impl Iterator<Item = Judged<'a>>, images: Images, shown: usize) -> Report {
        let mut code = ModuleCode { images, places: HashMap::new() };
        let mut report = Report::default();
        let (mut wrong, mut partial) = (Vec::new(), Vec::new());
        for judged in judged {
            let located = judged.locate(judged.pc);
            let name = located.map_or("outside of modules".into(), |(module, _)| module.path.display().to_string());
            let place = located.and_then(|(module, addr)| Some(code.get(&module.path)?.place(addr)));
            let place = place.unwrap_or(Place::Outside);
            report.all.add(judged.verdict);
            report.modules.entry(name).or_default().add(judged.verdict);
            report.places.entry(place).or_default().add(judged.verdict);
            let list = match judged.verdict {
                Verdict::Exact => continue,
                Verdict::Wrong => &mut wrong,
                Verdict::Partial => &mut partial,
            };
            if list.len() < shown {
                list.push(code.describe(&judged, place));
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
        for (place, tally) in &self.places {
            row(place.name(), tally)?;
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
            writeln!(f, "{count} not judged: {doubt}")?;
        }
        if self.unexplained_returns > 0 {
            writeln!(f, "{} returns to addresses that no call had pushed", self.unexplained_returns)?;
        }
        Ok(())
    }
}

struct ModuleCode {
    images: Images,
    places: HashMap<PathBuf, Option<Places>>,
}

impl ModuleCode {
    fn get(&mut self, path: &Path) -> Option<&Places> {
        let images = &mut self.images;
        self.places.entry(path.to_owned()).or_insert_with(|| images.get(path).map(Places::new)).as_ref()
    }

    fn describe(&mut self, judged: &Judged<'_>, place: Place) -> String {
        let kind = if judged.verdict == Verdict::Wrong { "wrong" } else { "partial" };
        let mut text = format!("{kind} #{} at {}, {}\n", judged.id, self.name(judged, judged.pc), place.name());
        if let Some((module, addr)) = judged.locate(judged.pc)
            && let Some(places) = self.get(&module.path)
        {
            let start = places.procedure(addr).map_or(addr, |(start, _)| start);
            for line in crate::listing::around(places.image(), start, addr) {
                text.push_str("    ");
                text.push_str(&line);
                text.push('\n');
            }
        }
        let agree = judged.truth.iter().zip(judged.found).take_while(|(a, b)| a == b).count();
        let from = agree.saturating_sub(1);
        for (which, path) in [("true", judged.truth), ("found", judged.found)] {
            text.push_str(&format!("  {which}: {} frames", path.len()));
            if from > 0 {
                text.push_str(&format!(", the first {from} in both"));
            }
            text.push('\n');
            for address in path.iter().skip(from).take(SHOWN_FRAMES) {
                text.push_str(&format!("    {}\n", self.name(judged, RunAddr(*address))));
            }
            if path.len() > from + SHOWN_FRAMES {
                text.push_str("    ...\n");
            }
        }
        text
    }

    /// An address with what is there.
    fn name(&mut self, judged: &Judged<'_>, addr: RunAddr) -> String {
        let mut text = format!("{addr:#x}");
        let Some((module, link)) = judged.locate(addr) else { return text };
        let file = module.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let path = module.path.clone();
        let procedure = self.get(&path).and_then(|places| {
            // A return address may be the next procedure's first.
            let (start, name) = places.procedure(link)?;
            Some(format!("{}+{:#x}", name.unwrap_or("?"), link.0 - start.0))
        });
        let written = match procedure {
            Some(procedure) => write!(text, " {file}:{link:#x} {procedure}"),
            None => write!(text, " {file}:{link:#x}"),
        };
        written.map_or_else(|_| String::new(), |()| text)
    }
}

//! The ids of rows: hashes of what they stand for, equal in every export. docs/engines.md specifies them.

use callpath_db::database::{Database, Member, Run, Unit};
use callpath_db::{Metric, Scope};
use callpath_schema::encoding::Writer;
use rustc_hash::FxHashMap;
use xxhash_rust::xxh3::xxh3_64;

/// Of a module or a file, by its name.
pub(crate) fn text(text: &str) -> u64 {
    xxh3_64(text.as_bytes())
}

/// Of a function, by the ids of its texts; 0 for a module or file that is not known.
pub(crate) fn function(scope: &Scope, [name, module, file]: [u64; 3]) -> u64 {
    let mut bytes = [0; 32];
    for (place, word) in bytes.chunks_exact_mut(8).zip([name, module, file, scope.discriminator]) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    xxh3_64(&bytes)
}

/// Of an export: equal for those of equal databases.
pub(crate) fn export(database: &Database) -> u64 {
    database.fingerprint()
}

/// Numbers equal things: the second of two equal metrics, or of a run that was merged twice, has an id of its own.
#[derive(Default)]
pub(crate) struct Numbered {
    seen: FxHashMap<u64, u64>,
}

impl Numbered {
    fn of(&mut self, mut w: Writer) -> u64 {
        let count = self.seen.entry(xxh3_64(&w.bytes)).or_default();
        w.number(*count);
        *count += 1;
        xxh3_64(&w.bytes)
    }

    /// Of a metric: all that files say of it.
    pub(crate) fn metric(&mut self, metric: &Metric) -> u64 {
        let mut w = Writer::default();
        metric.write(&mut w);
        self.of(w)
    }

    /// Of a run: where and when it began, and what ran.
    pub(crate) fn run(&mut self, run: &Run) -> u64 {
        self.of(run_words(run))
    }

    /// Of a profile: its run, and which thread of which process of which rank it is.
    pub(crate) fn profile(&mut self, run: &Run, member: &Member) -> u64 {
        let mut w = run_words(run);
        w.optional(member.rank.map(u64::from));
        for unit in [&member.process, &member.thread] {
            w.optional(unit.as_ref().map(|unit: &Unit| unit.id));
            w.string(unit.as_ref().map_or("", |unit| &unit.name));
        }
        self.of(w)
    }
}

fn run_words(run: &Run) -> Writer {
    let (info, mut w) = (&run.info, Writer::default());
    w.string(&info.host);
    w.number(info.started_unix_ns);
    w.string(&info.program);
    w.strings(&info.command);
    w.string(&info.working_directory);
    w
}

//! A short recording of callpath itself at work: what `record` says and gets here.
//! Knows nothing of why.

use callpath_db::Quality;
use callpath_record::{Clock, RecordOptions, record};

use super::Finding;
use crate::{preload, surroundings};

/// How long callpath works while it is recorded, milliseconds of CPU time.
const WORK_MS: u32 = 50;
const PERIOD_NS: u64 = 1_000_000;

/// Records by `clock`, the first finding is where samples come from, as `record` says it; the second what came.
pub(super) fn of(clock: Clock) -> Vec<Finding> {
    let topic = match clock {
        Clock::CpuTime => "samples of cpu-time",
        Clock::WallTime => "samples of wall-time",
    };
    let directory = format!("callpath-doctor-{}-{}.callpath", std::process::id(), clock.name());
    let directory = std::env::temp_dir().join(directory);
    let signals = Signals::keep();
    let trial = (|| -> anyhow::Result<(Vec<String>, Quality)> {
        let options = RecordOptions {
            program: std::env::current_exe()?.into_os_string(),
            arguments: vec!["debug".into(), "busy".into(), WORK_MS.to_string().into()],
            clocks: vec![clock],
            period_ns: PERIOD_NS,
            trace: false,
            output: Some(directory.clone()),
            cache: surroundings::cache_directory(),
            preload: preload::OBJECT,
        };
        let recorded = record(&options).map_err(|error| anyhow::anyhow!("failed to {error}"))?;
        let profile = super::super::report::load(Some(&recorded.directory))?;
        Ok((recorded.notes, profile.quality))
    })();
    drop(signals);
    // Nothing is lost with it: it was made here.
    drop(std::fs::remove_dir_all(&directory));
    match trial {
        Err(error) => vec![
            Finding::bad(topic, format!("a trial recording did not work: {error:#}"))
                .means("`callpath record` does not work here"),
        ],
        Ok((notes, quality)) => {
            let source = if notes.is_empty() {
                Finding::good(topic, "the kernel's clock, in user mode and in the kernel, at any rate")
            } else {
                Finding::limited(topic, notes.join("; ")).means("`callpath record` says so, too; the sums are right")
            };
            vec![source, paths(clock, &quality)]
        }
    }
}

fn paths(clock: Clock, quality: &Quality) -> Finding {
    let topic = match clock {
        Clock::CpuTime => "trial by cpu-time",
        Clock::WallTime => "trial by wall-time",
    };
    let found =
        format!("{} samples in {WORK_MS} ms of work, {} with their whole call path", quality.taken, quality.full);
    let incomplete = quality.partial + quality.raw_kept;
    match quality.full {
        0 => Finding::bad(topic, found).means("no call path could be taken: `callpath record` is of no use here"),
        _ if incomplete > 0 => Finding::limited(topic, found).means("some paths of callpath's own are not whole"),
        _ => Finding::good(topic, found),
    }
}

/// The actions that a recording changes, put back when this goes.
struct Signals([(i32, libc::sigaction); 4]);

impl Signals {
    fn keep() -> Signals {
        Signals([libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP].map(|signal| {
            // SAFETY: asks for the action; a valid place.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                libc::sigaction(signal, std::ptr::null(), &mut action);
                (signal, action)
            }
        }))
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for (signal, action) in &self.0 {
            // SAFETY: the action that was there before.
            unsafe { libc::sigaction(*signal, action, std::ptr::null_mut()) };
        }
    }
}

/// Work that is there to be recorded.
pub(in crate::command) fn busy(milliseconds: u32) {
    let used = || {
        // SAFETY: a valid place.
        unsafe {
            let mut time: libc::timespec = std::mem::zeroed();
            libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time);
            time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000
        }
    };
    let begin = used();
    let mut work = 1u64;
    while used() < begin + u64::from(milliseconds) {
        for _ in 0..10_000 {
            work = std::hint::black_box(work.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
    }
}

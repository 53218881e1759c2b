//! System calls that a seccomp filter refuses to measured processes: which of a sample's the
//! recorder's own filter refuses, and the line about them.

use std::collections::BTreeMap;

use callpath_format::shared::refused::Calls;

/// Which calls of samples the filter refuses that the recorder itself runs under, if it does: programs inherit it.
pub(crate) fn own() -> Calls {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let is_filtered = status.lines().any(|line| line.strip_prefix("Seccomp:").is_some_and(|mode| mode.trim() == "2"));
    if is_filtered { callpath_target::refused_calls(Calls::OF_SAMPLES) } else { Calls(0) }
}

/// What was refused in which programs.
#[derive(Debug, Default)]
pub(crate) struct Refusals(BTreeMap<String, u32>);

impl Refusals {
    /// Of one process, which may have been added before.
    pub(crate) fn add(&mut self, program: &str, calls: Calls) {
        if calls.0 & Calls::OF_SAMPLES.0 != 0 {
            *self.0.entry(program.to_owned()).or_default() |= calls.0;
        }
    }

    /// A line for each program.
    pub(crate) fn notes(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|(program, calls)| note(program, Calls(*calls)))
    }
}

fn note(program: &str, calls: Calls) -> String {
    let of_samples = Calls(calls.0 & Calls::OF_SAMPLES.0);
    let names: Vec<_> = of_samples.names().collect();
    let mut what = Vec::new();
    if of_samples.has(Calls::RT_SIGRETURN) {
        what.push("it is not sampled from there on");
    } else {
        if of_samples.has(Calls(Calls::CLOCK_GETTIME.0 | Calls::GETRUSAGE.0)) {
            what.push("a sample counts as one period of cpu-time");
        }
        if of_samples.has(Calls::RT_SIGPROCMASK) {
            what.push("call paths end where a stack is not the thread's own");
        }
        if of_samples.has(Calls::GETPID) {
            what.push("processes that it forks are not measured");
        }
    }
    if what.is_empty() {
        what.push("samples do without");
    }
    format!("a seccomp filter of {program} refuses {}: {}", names.join(", "), what.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_and_what_follows() {
        let mut refusals = Refusals::default();
        refusals.add("a", Calls(0));
        refusals.add("b", Calls::OPENAT);
        assert_eq!(refusals.notes().count(), 0);
        refusals.add("a", Calls::CLOCK_GETTIME);
        assert_eq!(
            refusals.notes().collect::<Vec<_>>(),
            ["a seccomp filter of a refuses clock_gettime: samples do without"]
        );
        refusals.add("a", Calls(Calls::GETRUSAGE.0 | Calls::CLOCK_GETTIME.0 | Calls::OPENAT.0));
        refusals.add("c", Calls(Calls::RT_SIGRETURN.0 | Calls::GETPID.0));
        assert_eq!(
            refusals.notes().collect::<Vec<_>>(),
            [
                "a seccomp filter of a refuses clock_gettime, getrusage: a sample counts as one period of cpu-time",
                "a seccomp filter of c refuses getpid, rt_sigreturn: it is not sampled from there on"
            ]
        );
    }
}

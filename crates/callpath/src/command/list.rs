//! `callpath list`: the events' names, and which of them this machine offers this user.
//! Knows nothing of how they are tried out.

use std::io::Write;

use callpath_record::offered_events;

use super::Outcome;
use crate::output;

#[derive(clap::Args)]
pub(crate) struct Arguments {}

/// Events that are named by what they are, not by a word.
const OTHERS: [(&str, &str); 5] = [
    ("LLC-load-misses", "a cache's, as perf names them"),
    ("r1a8", "the processor's own number, in hexadecimal"),
    ("cpu/event=0x3c,umask=0x0/", "a unit's, by the terms that /sys/bus/event_source/devices gives it"),
    ("sched:sched_switch", "a tracepoint of the kernel; for root"),
    ("mem:0x401136:x", "an address that is executed (x), read (r) or written (w)"),
];

pub(crate) fn run(_: &Arguments) -> Outcome {
    let mut out = output::stdout();
    let (here, elsewhere): (Vec<_>, Vec<_>) = offered_events().into_iter().partition(|offer| offer.why_not.is_none());
    writeln!(out, "Events that can be sampled here")?;
    for offer in &here {
        let other = if offer.other_name.is_empty() { String::new() } else { format!(", or {}", offer.other_name) };
        writeln!(out, "  {}{other}", offer.name)?;
    }
    if !elsewhere.is_empty() {
        writeln!(out, "\nEvents that cannot")?;
        let mut reasons: Vec<&str> = elsewhere.iter().filter_map(|offer| offer.why_not.as_deref()).collect();
        reasons.dedup();
        for reason in reasons {
            let of_it = elsewhere.iter().filter(|offer| offer.why_not.as_deref() == Some(reason));
            let names: Vec<&str> = of_it.map(|offer| offer.name.as_str()).collect();
            writeln!(out, "  {}\n    {reason}", names.join(", "))?;
        }
    }
    writeln!(out, "\nEvents by number or place, which are tried when they are asked for")?;
    for (name, what) in OTHERS {
        writeln!(out, "  {name:<26}  {what}")?;
    }
    writeln!(
        out,
        "\nBehind a name: :u user mode, :k kernel, :p :pp :ppp precise; @PERIOD events (or ns) from sample to sample, @fRATE \
         samples a second"
    )?;
    out.flush()?;
    Ok(0)
}

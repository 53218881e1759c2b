//! `callpath list`: the events' names, and which of them this machine offers this user.

use std::io::Write;

use callpath_record::offered_events;
use callpath_view::json::quoted;

use crate::outcome::Outcome;
use crate::screen::ScreenOptions;
use crate::wrapped::wrapped;
use crate::{output, surroundings};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Print JSON (docs/formats.md)
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    screen: ScreenOptions,
}

/// An example of each form of event without a fixed name, and what the form means.
const OTHERS: [(&str, &str); 5] = [
    ("LLC-load-misses", "a cache event, by perf's name"),
    ("r1a8", "a processor event, by its number in hexadecimal"),
    ("cpu/event=0x3c,umask=0x0/", "an event of a unit in /sys/bus/event_source/devices, by its terms"),
    ("sched:sched_switch", "a kernel tracepoint; needs root"),
    ("mem:0x401136:x", "an address when it is executed (x), read (r) or written (w)"),
];

/// The schema of the JSON (docs/formats.md).
const SCHEMA: u32 = 1;

fn print_json() -> anyhow::Result<()> {
    let mut out = output::stdout();
    write!(out, "{{\"schema\":{SCHEMA},\"kind\":\"events\",\"events\":[")?;
    for (number, offer) in offered_events().iter().enumerate() {
        let comma = if number == 0 { "" } else { "," };
        write!(out, "{comma}\n{{\"name\":{},\"offered\":{}", quoted(&offer.name)?, offer.why_not.is_none())?;
        if !offer.other_name.is_empty() {
            write!(out, ",\"other_name\":{}", quoted(offer.other_name)?)?;
        }
        if let Some(why) = &offer.why_not {
            write!(out, ",\"why_not\":{}", quoted(why)?)?;
        }
        write!(out, "}}")?;
    }
    writeln!(out, "]}}")?;
    Ok(out.flush()?)
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    if arguments.json {
        print_json()?;
        return Ok(0);
    }
    let mut out = arguments.screen.open();
    let (here, elsewhere): (Vec<_>, Vec<_>) = offered_events().into_iter().partition(|offer| offer.why_not.is_none());
    writeln!(out, "Events that can be sampled here")?;
    for offer in &here {
        let other = if offer.other_name.is_empty() { String::new() } else { format!(", or {}", offer.other_name) };
        writeln!(out, "  {}{other}", offer.name)?;
    }
    if !elsewhere.is_empty() {
        writeln!(out, "\nEvents that cannot be sampled here")?;
        let mut reasons: Vec<&str> = elsewhere.iter().filter_map(|offer| offer.why_not.as_deref()).collect();
        reasons.dedup();
        for reason in reasons {
            let of_it = elsewhere.iter().filter(|offer| offer.why_not.as_deref() == Some(reason));
            let names: Vec<&str> = of_it.map(|offer| offer.name.as_str()).collect();
            for line in wrapped(&names.join(", "), surroundings::width().saturating_sub(2)) {
                writeln!(out, "  {line}")?;
            }
            writeln!(out, "    {reason}")?;
        }
    }
    writeln!(out, "\nOther forms (`record` says whether one works here)")?;
    for (name, what) in OTHERS {
        writeln!(out, "  {name:<26}  {what}")?;
    }
    writeln!(
        out,
        "\nAfter a name\n  :u user mode, :k kernel mode, :p :pp :ppp precise (clocks have none of these)\n  \
         @PERIOD events (clocks: ns) from sample to sample, @fRATE samples a second"
    )?;
    out.end()?;
    Ok(0)
}

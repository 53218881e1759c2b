//! The quality of a measurement in full: every class with its share, and how long the handlers took.

use std::io::{self, Write};

use callpath_db::{Profile, RefusedProbe};

use super::head;
use super::options::TextOptions;
use super::page::Page;
use super::paint::Ink;
use super::printable::printable;
use super::quantity::{duration, percent, thousands};
use crate::ViewError;

/// The longest bar of the histogram, columns.
const BAR: u64 = 40;

/// Writes what ran, the class of every sample, how sure the links between frames are, and how long the handlers took.
pub fn quality(profile: &Profile, options: &TextOptions, out: &mut dyn Write) -> Result<(), ViewError> {
    let page = Page { profile, options };
    head::what_ran(page, out)?;
    classes(page, out)?;
    links(page, out)?;
    handlers(page, out)?;
    out.flush()?;
    Ok(())
}

fn classes(page: Page<'_>, out: &mut dyn Write) -> io::Result<()> {
    let quality = &page.profile.quality;
    let heading = match () {
        () if quality.is_of_calls() => "Probed calls",
        () if head::is_of_counted_calls(page.profile) => "Counted calls",
        () => "Samples",
    };
    writeln!(out, "\n{}", page.ink(Ink::Bold, heading))?;
    let mut line = |count: u64, words: &str| {
        writeln!(out, "{:>12} {:>6}  {words}", thousands(count), percent(count, quality.taken.max(1)))
    };
    line(quality.taken, "taken")?;
    line(quality.full, "with their whole call path")?;
    line(quality.partial, "with a part of it")?;
    line(quality.raw_kept, "kept raw")?;
    for (reason, &dropped) in &quality.dropped {
        line(dropped, &format!("dropped ({})", printable(reason)))?;
    }
    if let Some(probes) = &quality.probes {
        line(probes.inside_when_set, "had begun before the probes were set, and are not counted")?;
        line(probes.unmatched_exits, "exits without a known entry")?;
    }
    if !quality.is_balanced() {
        line(quality.accounted(), "accounted for: these do not add up, please report it")?;
    }
    refused(page, out)
}

/// The functions that could not be probed.
fn refused(page: Page<'_>, out: &mut dyn Write) -> io::Result<()> {
    let refused = page.profile.quality.probes.iter().flat_map(|probes| &probes.refused);
    for (number, RefusedProbe { function, reason }) in refused.enumerate() {
        if number == 0 {
            writeln!(out, "\n{}", page.ink(Ink::Bold, "Not probed"))?;
        }
        writeln!(out, "  {}: {}", printable(function), printable(reason))?;
    }
    Ok(())
}

/// How sure the steps from callee to caller are.
fn links(page: Page<'_>, out: &mut dyn Write) -> io::Result<()> {
    let links = page.profile.quality.links;
    let all = links.valid.saturating_add(links.likely).saturating_add(links.invalid);
    if all == 0 {
        return Ok(());
    }
    writeln!(out, "\n{}", page.ink(Ink::Bold, "Links between frames"))?;
    for (count, word) in [(links.valid, "valid"), (links.likely, "likely"), (links.invalid, "invalid")] {
        writeln!(out, "{:>12} {:>6}  {word}", thousands(count), percent(count, all))?;
    }
    Ok(())
}

fn handlers(page: Page<'_>, out: &mut dyn Write) -> io::Result<()> {
    let handlers = &page.profile.quality.handlers;
    let all = handlers.histogram.iter().fold(0u64, |sum, count| sum.saturating_add(*count));
    if all == 0 {
        return Ok(());
    }
    writeln!(out, "\n{}", page.ink(Ink::Bold, "Handlers"))?;
    writeln!(out, "{:>12} took the longest", duration(handlers.longest_ns))?;
    let first = handlers.histogram.iter().position(|count| *count > 0).unwrap_or(0);
    for (bin, &count) in handlers.histogram.iter().enumerate().skip(first) {
        let below = 1u64.checked_shl(bin as u32 + 1).unwrap_or(u64::MAX);
        let length = (u128::from(count) * u128::from(BAR)).div_ceil(u128::from(all)) as usize;
        let bar = "#".repeat(length);
        let (counted, share) = (thousands(count), percent(count, all));
        writeln!(out, "  < {:>8} {counted:>12} {share:>6}  {bar}", duration(below))?;
    }
    Ok(())
}

//! What a soak prints: a line for each program, and the whole.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use serde_json::Value;

use super::watch::Memory;

/// What all runs of a program did.
#[derive(Debug, Default)]
pub struct Tally {
    pub runs: usize,
    pub failures: usize,
    pub taken: u64,
    pub full: u64,
    pub dropped: BTreeMap<String, u64>,
    pub longest_handler_ns: u64,
    /// The recorder's largest resident set, and what was behind its windows at the end, bytes.
    pub peak_bytes: u64,
    pub arena_bytes: u64,
    pub published_bytes: u64,
    /// Of the one that lasts: in its middle and at its end.
    pub long: Option<(Memory, Memory)>,
}

impl Tally {
    /// Adds one run's tally of its samples.
    pub fn add(&mut self, quality: &Value) {
        let number = |name: &str| quality[name].as_u64().unwrap_or(0);
        self.taken += number("taken");
        self.full += number("full");
        self.longest_handler_ns = self.longest_handler_ns.max(quality["handlers"]["longest_ns"].as_u64().unwrap_or(0));
        for (reason, count) in quality["dropped"].as_object().into_iter().flatten() {
            *self.dropped.entry(reason.clone()).or_insert(0) += count.as_u64().unwrap_or(0);
        }
    }

    fn merge(&mut self, other: &Tally) {
        self.runs += other.runs;
        self.failures += other.failures;
        self.taken += other.taken;
        self.full += other.full;
        for (reason, count) in &other.dropped {
            *self.dropped.entry(reason.clone()).or_insert(0) += count;
        }
        self.longest_handler_ns = self.longest_handler_ns.max(other.longest_handler_ns);
        self.peak_bytes = self.peak_bytes.max(other.peak_bytes);
        self.arena_bytes = self.arena_bytes.max(other.arena_bytes);
        self.published_bytes = self.published_bytes.max(other.published_bytes);
    }
}

/// As Markdown.
pub fn markdown(tallies: &BTreeMap<&'static str, Tally>, lasted: Duration) -> anyhow::Result<String> {
    let mut text = String::new();
    let words: Vec<String> = std::env::args().skip(1).collect();
    writeln!(text, "`cargo xtask {}`, {}; {} s.\n", words.join(" "), crate::suite::machine()?, lasted.as_secs())?;
    writeln!(
        text,
        "| program | runs | failed | samples | whole | dropped | longest handler us | recorder's peak MB | arena MB | published MB |"
    )?;
    writeln!(text, "|---|---|---|---|---|---|---|---|---|---|")?;
    let mut all = Tally::default();
    for (name, tally) in tallies {
        line(&mut text, name, tally)?;
        all.merge(tally);
    }
    line(&mut text, "all", &all)?;
    for (middle, end) in tallies.values().filter_map(|tally| tally.long) {
        let said = |memory: Memory| {
            let Memory { own, arena, published } = memory;
            format!("{} MB of its own, {} MB behind the arena, {} MB published", mb(own), mb(arena), mb(published))
        };
        writeln!(text, "\nThe recorder of the long run: in its middle {}; at its end {}.", said(middle), said(end))?;
    }
    Ok(text)
}

fn line(text: &mut String, name: &str, tally: &Tally) -> std::fmt::Result {
    let whole = if tally.taken == 0 { "-".into() } else { percent(tally.full, tally.taken) };
    let dropped: Vec<String> = tally
        .dropped
        .iter()
        .map(|(reason, count)| format!("{count} {reason} ({})", percent(*count, tally.taken)))
        .collect();
    let dropped = if dropped.is_empty() { "0".into() } else { dropped.join(", ") };
    writeln!(
        text,
        "| {name} | {} | {} | {} | {whole} | {dropped} | {:.0} | {} | {} | {} |",
        tally.runs,
        tally.failures,
        tally.taken,
        tally.longest_handler_ns as f64 / 1e3,
        mb(tally.peak_bytes),
        mb(tally.arena_bytes),
        mb(tally.published_bytes)
    )
}

fn percent(part: u64, of: u64) -> String {
    format!("{:.3}%", 100.0 * part as f64 / of.max(1) as f64)
}

fn mb(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / 1e6)
}

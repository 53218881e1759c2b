//! `callpath demo`: a real multi-threaded program that is always there, recorded and reported.

use std::io::Write;
use std::path::PathBuf;

use callpath_db::Query;
use callpath_record::{Clock, Event, FromOutside, RecordOptions, record};
use callpath_view::text::{self, TextOptions};

use super::{number, profile};
use crate::outcome::Outcome;
use crate::screen::ScreenOptions;
use crate::{output, preload, surroundings};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// How many of the system's largest libraries to analyse
    #[arg(long, value_name = "NUMBER", default_value_t = 6, value_parser = number::whole::<usize>)]
    libraries: usize,
    /// Print the calling context view as JSON, as `report --json` does
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    screen: ScreenOptions,
}

/// Where libraries are on the usual systems.
const LIBRARY_DIRECTORIES: [&str; 4] = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/lib/x86_64-linux-gnu"];
/// Larger ones would make the demonstration long.
const LARGEST_BYTES: u64 = 40 << 20;

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let own = std::env::current_exe()?;
    let mut files = vec![own.clone()];
    files.extend(largest_libraries(arguments.libraries));
    output::say(format_args!(
        "recording callpath while it analyses its own executable and {} libraries",
        files.len() - 1
    ));
    let mut words: Vec<std::ffi::OsString> = vec!["debug".into(), "analyse".into(), "--rounds".into(), "8".into()];
    words.extend(files.iter().map(|f| f.as_os_str().to_owned()));
    let options = RecordOptions {
        program: own.into_os_string(),
        arguments: words,
        events: vec![Event::clock(Clock::CpuTime)],
        period_ns: 1_000_000,
        sentinel: callpath_record::Sentinel::default(),
        recursion: callpath_record::Recursion::default(),
        unwind: callpath_record::Unwind::default(),
        told: Vec::new(),
        told_by: 0,
        kernel: false,
        outside: FromOutside::Never,
        wait_all: false,
        output: None,
        rank: None,
        cache: surroundings::cache_directory(),
        preload: preload::OBJECT,
    };
    let recorded = record(&options).map_err(|e| anyhow::anyhow!("failed to {e}"))?;
    for note in &recorded.notes {
        output::say(note);
    }
    let measured = profile::load(Some(&recorded.directory))?;
    if arguments.json {
        let mut out = output::stdout();
        callpath_view::json::write(&measured.view(&Query::default())?, &measured, &mut out)?;
        out.flush()?;
        return Ok(recorded.ended.status as u8);
    }
    let options = TextOptions {
        width: surroundings::width(),
        color: arguments.screen.color(),
        command: surroundings::typed_command(),
        ..TextOptions::default()
    };
    let mut out = arguments.screen.open();
    text::report(&measured, &options, &mut out).map_err(profile::shown)?;
    out.end()?;
    Ok(recorded.ended.status as u8)
}

fn largest_libraries(count: usize) -> Vec<PathBuf> {
    let mut found: Vec<(u64, PathBuf)> = LIBRARY_DIRECTORIES
        .iter()
        .filter_map(|d| std::fs::read_dir(d).ok())
        .flatten()
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let metadata = std::fs::symlink_metadata(&path).ok()?;
            let is_library = path.to_string_lossy().contains(".so");
            (metadata.is_file() && is_library && metadata.len() <= LARGEST_BYTES).then_some((metadata.len(), path))
        })
        .collect();
    found.sort_by(|a, b| b.cmp(a));
    found.dedup_by(|a, b| a.1.file_name() == b.1.file_name());
    found.into_iter().take(count).map(|(_, path)| path).collect()
}

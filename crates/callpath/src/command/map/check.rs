//! `callpath map check`: what a map says of samples whose call path is known.

use std::io::Write;
use std::path::PathBuf;

use anyhow::anyhow;
use callpath_analyze::infer::{self, Checked, Missing, Verdicts, Walks};
use callpath_view::text::printable;
use serde_json::{Value, json};

use crate::command::path_map;
use crate::command::profile::{self, analysis_options_of};
use crate::outcome::Outcome;
use crate::output;
use crate::screen::ScreenOptions;
use crate::surroundings::Progress;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The map
    #[arg(value_name = "MAP", value_hint = clap::ValueHint::FilePath)]
    map: PathBuf,
    /// A measurement that was recorded with --unwind=both [default: the newest *.callpath in the current directory]
    #[arg(value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    measurement: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    screen: ScreenOptions,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let measurement = profile::read(arguments.measurement.as_deref())?;
    let map = path_map::read_for(&arguments.map, &measurement)?;
    let directory = measurement.directory.display();
    if !infer::has_heights(&measurement) || path_map::needs_map(&measurement) {
        return Err(anyhow!(
            "failed to check a map against {directory}: its samples have not both their call path and how high the stack was; record with --unwind=both"
        )
        .into());
    }
    let mut progress = Progress::new("reading modules");
    let checked =
        infer::check(&measurement, map.maps(), &analysis_options_of(&measurement.directory), &mut |done, of| {
            progress.step(done, of)
        });
    drop(progress);
    let checked = checked.map_err(|other| {
        anyhow!("failed to check {} against {directory}: {other} than was measured", arguments.map.display())
    })?;
    if arguments.json {
        let mut out = output::stdout();
        serde_json::to_writer(&mut out, &value(&checked))?;
        out.write_all(b"\n")?;
        out.flush()?;
        return Ok(0);
    }
    let mut out = arguments.screen.open();
    write(&checked, &mut out)?;
    out.end()?;
    Ok(0)
}

fn value(checked: &Checked) -> Value {
    let verdicts = |verdicts: &Verdicts| {
        json!({
            "precise": verdicts.precise,
            "ambiguous": verdicts.ambiguous,
            "wrong": verdicts.wrong,
            "likely": verdicts.likely,
            "unlikely": verdicts.unlikely,
            "static": verdicts.by_code,
            "static_wrong": verdicts.by_code_wrong,
            "many": verdicts.many,
            "incorrect": verdicts.incorrect,
            "missing": verdicts.missing,
            "undetermined": verdicts.undetermined,
        })
    };
    let wrong: Vec<Value> = checked.wrong.iter().map(|(said, truth)| json!({ "said": said, "truth": truth })).collect();
    let missing = checked
        .missing
        .iter()
        .map(|missing| json!({ "path": missing.path, "height": missing.height, "known_at": missing.known_at }));
    let missing: Vec<Value> = missing.collect();
    json!({
        "schema": 1,
        "kind": "map-check",
        "paths": verdicts(&checked.paths),
        "samples": verdicts(&checked.samples),
        "unknown": checked.unknown,
        "walks": {
            "told": checked.walks.told,
            "whole": checked.walks.whole,
            "walked_frames": checked.walks.walked_frames,
            "frames": checked.walks.frames,
        },
        "wrong": wrong,
        "missing": missing,
    })
}

/// What walks would be like that end where the map tells the rest.
fn of_walks(walks: &Walks) -> String {
    let Walks { told, whole, walked_frames, frames } = *walks;
    let each = |frames: u64| frames as f64 / told.max(1) as f64;
    let share = |of: u64| 100.0 * of as f64 / told.saturating_add(whole).max(1) as f64;
    format!(
        "record --on-ambiguous=walk would walk {:.1} of {:.1} frames where the map tells the rest, {:.2}% of samples, and {:.2}% whole",
        each(walked_frames),
        each(frames),
        share(told),
        share(whole)
    )
}

fn write(checked: &Checked, out: &mut impl Write) -> std::io::Result<()> {
    type Of = fn(&Verdicts) -> u64;
    let rows: [(&str, Of); 11] = [
        ("one path, the true one", |verdicts| verdicts.precise),
        ("several, the true one among them", |verdicts| verdicts.ambiguous),
        ("one path, and it is wrong", |verdicts| verdicts.wrong),
        ("one likely path, the true one", |verdicts| verdicts.likely),
        ("one likely path, and it is wrong", |verdicts| verdicts.unlikely),
        ("one that the code alone has, the true one", |verdicts| verdicts.by_code),
        ("one that the code alone has, wrong", |verdicts| verdicts.by_code_wrong),
        ("more than are told", |verdicts| verdicts.many),
        ("several, all wrong", |verdicts| verdicts.incorrect),
        ("none (missing)", |verdicts| verdicts.missing),
        ("cannot be asked (no height)", |verdicts| verdicts.undetermined),
    ];
    writeln!(out, "{:<41} {:>18} {:>18}", "The map has", "of call paths", "of samples")?;
    for (name, of) in rows {
        let cell = |verdicts: &Verdicts| {
            let share = 100.0 * of(verdicts) as f64 / verdicts.all().max(1) as f64;
            format!("{} {:>7}", of(verdicts), format!("{share:.2}%"))
        };
        writeln!(out, "{name:<41} {:>18} {:>18}", cell(&checked.paths), cell(&checked.samples))?;
    }
    if checked.unknown > 0 {
        writeln!(out, "{} samples were walked in part: what is true of them is not known", checked.unknown)?;
    }
    writeln!(out, "{}", of_walks(&checked.walks))?;
    for Missing { path, height, known_at } in &checked.missing {
        writeln!(out)?;
        writeln!(out, "missing: {}", printable(&path.join(" > ")))?;
        match known_at.as_deref() {
            None => writeln!(out, "         which the map does not have")?,
            Some([]) => writeln!(out, "         which the map has at no known height; sampled at {height}")?,
            Some(heights) => {
                let heights: Vec<String> = heights.iter().map(i64::to_string).collect();
                writeln!(out, "         which the map has at {}; sampled at {height}", heights.join(", "))?;
            }
        }
    }
    for (said, truth) in &checked.wrong {
        writeln!(out)?;
        writeln!(out, "said:  {}", printable(&said.join(" > ")))?;
        writeln!(out, "truth: {}", printable(&truth.join(" > ")))?;
    }
    Ok(())
}

//! Synthetic profiles through every output, to be judged by eye: `cargo run -p
//! callpath-view --example synthetic -- xz`.

use std::io::stdout;

use callpath_db::{Query, ViewKind};
use callpath_view::text::TextOptions;
use callpath_view::{ViewError, json, text};

#[path = "../tests/all/synthetic/mod.rs"]
mod synthetic;

fn main() -> Result<(), ViewError> {
    let began = std::time::Instant::now();
    let words: Vec<String> = std::env::args().skip(1).collect();
    let has = |word: &str| words.iter().any(|have| have == word);
    let profile = match () {
        () if has("cpp") => synthetic::cpp(),
        () if has("many") => synthetic::many(),
        () if has("million") => synthetic::large(1_000_000),
        () if has("deep") => synthetic::deep(200_000, false),
        () if has("deeper") => synthetic::deep(200_000, true),
        () => synthetic::xz(),
    };
    let width = words.iter().find_map(|word| word.parse().ok()).unwrap_or(100);
    let mut options = TextOptions { width, color: has("color"), ..TextOptions::default() };
    eprintln!("made after {:?}", began.elapsed());
    let kinds = [ViewKind::Context, ViewKind::Callers, ViewKind::Flat];
    let kind = kinds.into_iter().find(|kind| has(kind.word()));
    let out = &mut stdout().lock();
    let done = match kind {
        _ if has("json") => {
            let view = profile.view(&Query { view: kind.unwrap_or_default(), ..Query::default() })?;
            eprintln!("asked after {:?}", began.elapsed());
            Ok(json::write(&view, &profile, out)?)
        }
        Some(kind) => {
            options.query.view = kind;
            text::view(&profile, &options, out)
        }
        None => text::report(&profile, &options, out),
    };
    eprintln!("shown after {:?}", began.elapsed());
    done
}

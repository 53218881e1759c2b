//! How fast a database is exported, and how large its tables are: `export_speed DATABASE OUT`.

use std::path::Path;
use std::time::Instant;

use callpath_db::database::Database;
use callpath_parquet::NewTables;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [database, out] = &words[..] else { return Err("export_speed DATABASE OUT".into()) };
    let began = Instant::now();
    let database = Database::open(Path::new(database))?;
    let written = NewTables::create(Path::new(out))?.write(&database, |_| true)?;
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("unknown").trim();
    println!(
        "{} contexts, {} facts in {:.2} s; peak of memory {}, {} of it mapped files; {:.2} bytes a fact",
        written.contexts,
        written.facts,
        began.elapsed().as_secs_f64(),
        line("VmHWM:"),
        line("RssFile:"),
        written.len_bytes as f64 / written.facts as f64
    );
    Ok(())
}

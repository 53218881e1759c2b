//! Measures epilogues, as table 2 of csprof-2006: `epilogues FILE...` prints a line of a Markdown table for each
//! module.
//!
//! Columns: code; length of the call frame information (.eh_frame and .eh_frame_hdr) and of the recipe table, bytes;
//! epilogues; and those in which the frame is right at each instruction, by call frame information alone and by the
//! table.
//!
//! An epilogue is a straight sequence of instructions in the output of `objdump -d`, from the first that releases a
//! part of the stack to a `ret`. The true frame follows from its end: a `ret` finds its address at rsp, so the frame's
//! end (CFA) is at rsp + 8, and each instruction before changes rsp by a known amount. A frame by rbp is right until
//! rbp is restored.

use std::error::Error;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use callpath_format::address::LinkAddr;
use callpath_format::recipe::{Cfa, Recipe};
use callpath_format::register::Reg;
use callpath_format::table::Table;
use callpath_image::elf::Image;
use callpath_tables::module::Module;
use callpath_tables::recipes::{RecipeOptions, build_table};

fn main() -> Result<(), Box<dyn Error>> {
    println!(
        "| module | code | CFI | of the code | recipes | of the code | epilogues | right by CFI | right by recipes |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for path in std::env::args().skip(1) {
        let path = Path::new(&path);
        let image = Arc::new(Image::read(path)?);
        let cfi: usize =
            [".eh_frame", ".eh_frame_hdr"].iter().filter_map(|name| image.section(name)).map(|s| s.data.len()).sum();
        let whole = build_table(&Module::new(Arc::clone(&image)), &RecipeOptions::default());
        let cfi_alone = RecipeOptions { debug_frame: false, machine_code: false, ..RecipeOptions::default() };
        let by_cfi = build_table(&Module::new(Arc::clone(&image)), &cfi_alone);
        let tables = [&by_cfi, &whole].map(|build| Table::new(&build.bytes));
        let [Ok(by_cfi), Ok(by_recipes)] = tables else { return Err("a table cannot be read".into()) };
        let epilogues = epilogues(path)?;
        let right = |table: &Table<'_>| {
            let all = epilogues.iter().filter(|epilogue| epilogue.iter().all(|point| point.is_right(table))).count();
            format!("{:.2}%", 100.0 * all as f64 / epilogues.len().max(1) as f64)
        };
        let code = whole.stats.code_bytes;
        let of_code = |bytes: u64| format!("{:.1}%", 100.0 * bytes as f64 / code.max(1) as f64);
        println!(
            "| {} | {code} | {cfi} | {} | {} | {} | {} | {} | {} |",
            path.file_name().unwrap_or_default().to_string_lossy(),
            of_code(cfi as u64),
            whole.stats.table_bytes,
            of_code(whole.stats.table_bytes),
            epilogues.len(),
            right(&by_cfi),
            right(&by_recipes),
        );
    }
    Ok(())
}

/// The true frame before one instruction of an epilogue.
struct Point {
    address: u64,
    /// The frame's end, counted from rsp; `None`: only known from rbp.
    from_rsp: Option<i64>,
    /// Whether rbp still has the procedure's value.
    has_rbp: bool,
}

impl Point {
    fn is_right(&self, table: &Table<'_>) -> bool {
        let recipe = table.find(LinkAddr(self.address)).and_then(|id| table.recipe(id));
        match recipe.unwrap_or(Recipe::UNKNOWN).cfa {
            Cfa::Register { reg: Reg::RSP, disp } => Some(i64::from(disp)) == self.from_rsp,
            Cfa::Register { reg: Reg::RBP, .. } => self.has_rbp,
            _ => false,
        }
    }
}

/// An instruction as objdump writes it.
struct Line {
    address: u64,
    text: String,
}

/// The effect of an instruction on the stack pointer.
enum Step {
    /// It releases this many bytes.
    Up(i64),
    /// rsp is copied from rbp; with `leave` rbp is restored, too.
    FromRbp,
    /// It changes neither rsp nor control.
    Nothing,
    /// Not part of an epilogue.
    Other,
}

fn step(text: &str) -> Step {
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    let rest = rest.trim();
    let number = |text: &str| i64::from_str_radix(text.trim_start_matches("0x"), 16).ok();
    match word {
        "pop" if rest != "%rsp" => Step::Up(8),
        "leave" => Step::FromRbp,
        "add" => match rest.strip_prefix('$').and_then(|rest| rest.strip_suffix(",%rsp")).map(number) {
            Some(Some(bytes)) if bytes > 0 && bytes < i64::from(i32::MAX) => Step::Up(bytes),
            Some(_) => Step::Other,
            None => Step::Nothing,
        },
        "lea" if rest.ends_with("(%rsp),%rsp") => {
            number(rest.trim_end_matches("(%rsp),%rsp")).map_or(Step::Other, Step::Up)
        }
        "lea" if rest.ends_with("(%rbp),%rsp") => Step::FromRbp,
        "mov" if rest == "%rbp,%rsp" => Step::FromRbp,
        _ if word.starts_with('j') || word.starts_with("call") || word.starts_with("push") || word.contains("ret") => {
            Step::Other
        }
        _ if matches!(word, "bnd" | "notrack" | "syscall" | "hlt" | "ud2" | "int3" | "(bad)" | "enter") => Step::Other,
        _ if rest.ends_with("%rsp") || rest.ends_with("%rbp") || rest.ends_with("%esp") => Step::Other,
        _ => Step::Nothing,
    }
}

fn epilogues(path: &Path) -> Result<Vec<Vec<Point>>, Box<dyn Error>> {
    let output = Command::new("objdump").args(["-d", "--no-show-raw-insn", "-w"]).arg(path).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let (mut found, mut straight): (Vec<Vec<Point>>, Vec<Line>) = (Vec::new(), Vec::new());
    for line in text.lines() {
        let Some((address, text)) = line.trim_start().split_once(":\t") else {
            // A symbol: the code before it does not continue here, or only by chance.
            straight.clear();
            continue;
        };
        let Ok(address) = u64::from_str_radix(address, 16) else { continue };
        let text = text.split('#').next().unwrap_or_default().trim().to_owned();
        if matches!(text.as_str(), "ret" | "repz ret" | "bnd ret" | "retq") {
            found.extend(epilogue(address, &straight));
            straight.clear();
        } else if matches!(step(&text), Step::Other) {
            straight.clear();
        } else {
            straight.push(Line { address, text });
        }
    }
    Ok(found)
}

/// The epilogue at the end of a straight sequence, its last instruction first; `None`: there is only the `ret`.
fn epilogue(ret: u64, straight: &[Line]) -> Option<Vec<Point>> {
    let mut points = vec![Point { address: ret, from_rsp: Some(8), has_rbp: false }];
    let (mut from_rsp, mut has_rbp, mut begin) = (Some(8), false, 1);
    for line in straight.iter().rev() {
        let is_restoring = match step(&line.text) {
            Step::Up(bytes) => {
                has_rbp |= line.text == "pop %rbp" || line.text.split_whitespace().eq(["pop", "%rbp"]);
                from_rsp = from_rsp.map(|height| height + bytes);
                true
            }
            Step::FromRbp => {
                (from_rsp, has_rbp) = (None, true);
                true
            }
            Step::Nothing | Step::Other => false,
        };
        points.push(Point { address: line.address, from_rsp, has_rbp });
        if is_restoring {
            begin = points.len();
        }
    }
    points.truncate(begin);
    (points.len() > 1).then_some(points)
}

//! `callpath debug`: recipes, unwinding and the preloaded object, for those who work on callpath.

use std::io::{self, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use callpath_db::database::is_database;
use callpath_db::{ContextSum, MetricSource};
use callpath_format::recipe::Packed;
use callpath_format::table::{RecipeId, Table};
use callpath_tables::SnapshotError;
use callpath_tables::module::Module;
use callpath_tables::recipes::RecipeOptions;
use callpath_tables::snapshot;
use callpath_tables::table_cache::TableCache;
use callpath_view::text::printable;
use clap::Subcommand;
use serde_json::{Map, Value, json};

use super::code::expect_code;
use super::profile::load;
use super::work;
use crate::outcome::Outcome;
use crate::output::Stdout;
use crate::{output, preload, surroundings};

mod rewrite;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Unwind each snapshot of a CPSNAP01 stream on standard input, one line of return addresses each
    Unwind {
        /// Ignore the call frame information and local symbols of all modules
        #[arg(long)]
        no_cfi: bool,
        #[command(flatten)]
        json: Json,
    },
    /// Show the recipes of a module
    Recipes {
        /// An ELF file
        file: PathBuf,
        /// Show instead where its call frame information and its machine code contradict each other
        #[arg(long)]
        disagree: bool,
        /// Ignore its call frame information and local symbols
        #[arg(long, conflicts_with = "disagree")]
        no_cfi: bool,
        #[command(flatten)]
        json: Json,
    },
    /// Show how procedures run as copies with code inserted, original and copy side by side
    Rewrite(rewrite::Arguments),
    /// Write the preload object to a file
    PreloadObject {
        /// The file to write
        file: PathBuf,
    },
    /// Show the calling contexts of measurements by id, added up, a line each: id, the caller's id, offset, module, costs
    Contexts {
        /// Measurement directories
        #[arg(required = true)]
        measurements: Vec<PathBuf>,
        #[command(flatten)]
        json: Json,
    },
    /// Use up CPU time; the doctor records this
    #[command(hide = true)]
    Busy {
        /// CPU time to use
        milliseconds: u32,
    },
    /// Make the recipe tables of modules and name their procedures, in parallel; the demonstration records this
    #[command(hide = true)]
    Analyse {
        /// ELF files
        files: Vec<PathBuf>,
        /// Number of rounds
        #[arg(long, default_value_t = 1)]
        rounds: u32,
    },
}

/// The schema of the JSON of each (docs/formats.md).
const SCHEMA: u32 = 1;

#[derive(clap::Args)]
pub(crate) struct Json {
    /// Print JSON (docs/formats.md)
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(command: Command) -> Outcome {
    match command {
        Command::Unwind { no_cfi, json } => unwind(&options(no_cfi), json.json),
        Command::Recipes { file, disagree: true, json, .. } => disagreements(&file, json.json),
        Command::Recipes { file, no_cfi, json, .. } => recipes(&file, &options(no_cfi), json.json),
        Command::Rewrite(arguments) => rewrite::run(&arguments),
        Command::PreloadObject { file } => {
            std::fs::write(&file, preload::OBJECT)
                .map_err(|e| anyhow::anyhow!("failed to write {}: {e}", file.display()))?;
            Ok(0)
        }
        Command::Contexts { measurements, json } => contexts(&measurements, json.json),
        Command::Busy { milliseconds } => {
            work::busy(milliseconds);
            Ok(0)
        }
        Command::Analyse { files, rounds } => work::analyse(&files, rounds),
    }
}

/// The lines of a command: as they are, or as the items of a JSON array.
struct Lines {
    out: BufWriter<Stdout>,
    json: bool,
    are_none: bool,
}

impl Lines {
    /// `kind`: of the JSON; `items`: what its array is called.
    fn begin(json: bool, kind: &str, items: &str) -> io::Result<Lines> {
        let mut out = output::stdout();
        if json {
            write!(out, "{{\"schema\":{SCHEMA},\"kind\":\"{kind}\",\"{items}\":[")?;
        }
        Ok(Lines { out, json, are_none: true })
    }

    /// The next one.
    fn line(&mut self, text: impl FnOnce() -> String, json: impl FnOnce() -> Value) -> io::Result<()> {
        let comma = if std::mem::take(&mut self.are_none) { "" } else { "," };
        if self.json { write!(self.out, "{comma}\n{}", json()) } else { writeln!(self.out, "{}", text()) }
    }

    fn end(mut self) -> io::Result<()> {
        if self.json {
            writeln!(self.out, "]}}")?;
        }
        self.out.flush()
    }
}

fn options(no_cfi: bool) -> RecipeOptions {
    RecipeOptions { call_frames: !no_cfi, ..RecipeOptions::default() }
}

/// Prints all contexts, those without a cost of their own, too. Tabs separate the columns.
fn contexts(measurements: &[PathBuf], json: bool) -> Outcome {
    let mut sum = ContextSum::default();
    for measurement in measurements {
        if is_database(measurement) {
            let file = measurement.display();
            return Err(anyhow::anyhow!(
                "failed to show contexts of addresses: {file} is a database, whose contexts are of names; name the measurements that it was merged from"
            )
            .into());
        }
        sum.add(&load(Some(measurement))?);
    }
    // Computed metrics are not costs of a context.
    let columns: Vec<usize> =
        (0..sum.metrics.len()).filter(|column| sum.metrics[*column].source != MetricSource::Computed).collect();
    let names: Vec<&str> = columns.iter().map(|column| sum.metrics[*column].name.as_str()).collect();
    let mut lines = Lines::begin(json, "contexts", "contexts")?;
    if !json {
        writeln!(lines.out, "id\tcaller\toffset\tmodule\t{}", names.join("\t"))?;
    }
    for (context, values) in sum.contexts.iter() {
        let (id, caller) = (format!("{:016x}", context.id.0), format!("{:016x}", context.parent.0));
        let offset = format!("{:#x}", context.offset);
        let file = sum.contexts.file(context.file).map_or(Path::new(""), |file| &file.path);
        let module = &*file.to_string_lossy();
        let costs = || columns.iter().map(|column| values.get(*column));
        lines.line(
            || {
                let costs: String = costs().map(|cost| format!("\t{cost}")).collect();
                format!("{id}\t{caller}\t{offset}\t{}{costs}", printable(module))
            },
            || {
                let costs: Map<String, Value> =
                    std::iter::zip(&names, costs()).map(|(n, c)| (n.to_string(), c.into())).collect();
                json!({"id": id, "caller": caller, "offset": offset, "module": module, "costs": costs})
            },
        )?;
    }
    lines.end()?;
    Ok(0)
}

fn unwind(options: &RecipeOptions, json: bool) -> Outcome {
    let cache = TableCache::open(surroundings::cache_directory());
    let input = BufReader::new(std::io::stdin().lock());
    let mut text = Vec::new();
    let (answered, result) = match json {
        true => snapshot::answer(input, &mut text, &cache, options),
        false => snapshot::answer(input, output::stdout(), &cache, options),
    };
    if json {
        let mut lines = Lines::begin(json, "unwind", "snapshots")?;
        for line in String::from_utf8_lossy(&text).lines() {
            let (id, addresses) = line.split_once(' ').unwrap_or((line, ""));
            let addresses: Vec<&str> = addresses.split_whitespace().collect();
            lines.line(String::new, || json!({"id": id, "return_addresses": addresses}))?;
        }
        lines.end()?;
    }
    for remark in &answered.remarks {
        output::say(remark);
    }
    match result {
        Ok(()) => Ok(0),
        Err(SnapshotError::SnapshotWrite { source }) => Err(source.into()),
        Err(error) => Err(anyhow::anyhow!("failed to {error}").into()),
    }
}

fn module(file: &std::path::Path) -> anyhow::Result<Module> {
    let module = Module::read(file).map_err(|e| anyhow::anyhow!("failed to {e}"))?;
    expect_code(&module, file)?;
    Ok(module)
}

fn disagreements(file: &std::path::Path, json: bool) -> Outcome {
    let module = module(file)?;
    let found = callpath_tables::recipes::disagreements(&module);
    let mut lines = Lines::begin(json, "disagreements", "instructions")?;
    for point in &found {
        let (frames, code) = (Shown(&point.call_frames).to_string(), Shown(&point.machine_code).to_string());
        let address = format!("{:#x}", point.address.0);
        lines.line(
            || format!("{address} call frame information: {frames}; machine code: {code}"),
            || json!({"address": address, "call_frame_information": frames, "machine_code": code}),
        )?;
    }
    lines.end()?;
    output::say(format_args!("{} instructions; call frame information is believed", found.len()));
    Ok(0)
}

fn recipes(file: &std::path::Path, options: &RecipeOptions, json: bool) -> Outcome {
    let module = module(file)?;
    let build = callpath_tables::recipes::build_table(&module, options);
    let table = Table::new(&build.bytes).map_err(|e| anyhow::anyhow!("the table is malformed: {e:?}"))?;
    let mut lines = Lines::begin(json, "recipes", "rows")?;
    let mut written = Ok(());
    table.for_each_row(|start, id| {
        if written.is_ok() {
            let recipe = match id {
                Some(id) => match table.recipe(id) {
                    Some(recipe) => format!("{}{}", Shown(&recipe), pinned(&table, id)),
                    None => format!("malformed recipe {}", id.0),
                },
                None => "end".into(),
            };
            let start = format!("{:#x}", start.0);
            written = lines.line(|| format!("{start} {recipe}"), || json!({"start": start, "recipe": recipe}));
        }
    });
    written.and_then(|()| lines.end())?;
    for diagnostic in &build.diagnostics {
        output::say(diagnostic);
    }
    Ok(0)
}

/// The return addresses that must not be marked, in words.
fn pinned(table: &Table<'_>, id: RecipeId) -> String {
    let head = table.packed(id).map_or(0, |packed| packed.head);
    let said = [
        (Packed::PINNED, ", return kept"),
        (Packed::PINS_CALLEE, ", callee's return kept"),
        (Packed::TAIL_CALLS_ANY, ", may continue elsewhere"),
    ];
    said.into_iter().filter(|(bit, _)| head & bit != 0).map(|(_, what)| what).collect()
}

/// A recipe as equations.
struct Shown<'a>(&'a callpath_format::recipe::Recipe);

impl std::fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        use callpath_format::recipe::{Cfa, Rule};
        use callpath_format::register::Reg;
        const NAMES: [&str; 16] = [
            "rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13", "r14",
            "r15",
        ];
        let name = |r: Reg| NAMES[r.index()];
        match self.0.cfa {
            Cfa::Unknown => return f.write_str("unknown"),
            Cfa::Outermost => return f.write_str("outermost"),
            Cfa::Register { reg, disp } => write!(f, "CFA = {}{disp:+}", name(reg))?,
            Cfa::Deref { reg, disp, add } => write!(f, "CFA = *({}{disp:+}){add:+}", name(reg))?,
            Cfa::Expression(e) => write!(f, "CFA = expression {}+{}", e.start, e.len)?,
        }
        let ordinary = callpath_format::recipe::Recipe::with_cfa(self.0.cfa);
        let mut rule = |what: &str, rule: Rule, usual: Rule| {
            if rule == usual {
                return Ok(());
            }
            match rule {
                Rule::Same => write!(f, ", {what} same"),
                Rule::Lost => write!(f, ", {what} lost"),
                Rule::AtCfa(disp) => write!(f, ", {what} = *(CFA{disp:+})"),
                Rule::CfaPlus(disp) => write!(f, ", {what} = CFA{disp:+}"),
                Rule::AtRegister(reg, disp) => write!(f, ", {what} = *({}{disp:+})", name(reg)),
                Rule::RegisterPlus(reg, disp) => write!(f, ", {what} = {}{disp:+}", name(reg)),
                Rule::AtExpression(e) => write!(f, ", {what} = *(expression {}+{})", e.start, e.len),
                Rule::ExpressionValue(e) => write!(f, ", {what} = expression {}+{}", e.start, e.len),
            }
        };
        rule("return", self.0.return_address, ordinary.return_address)?;
        for (i, r) in self.0.registers.iter().enumerate() {
            rule(NAMES[i], *r, ordinary.registers[i])?;
        }
        if self.0.signal_frame {
            f.write_str(", signal frame")?;
        }
        if self.0.switches_stack {
            f.write_str(", switches stacks")?;
        }
        if self.0.begins_stack {
            f.write_str(", outermost if no caller is found")?;
        }
        Ok(())
    }
}

//! What a probe would be set at: for a person a line for each function, for programs an object.
//! What is found where, the caller says.

use std::io::{self, Write};

use serde_json::{Map, Value, json};

use super::paint::{Ink, Paint};
use super::printable::{columns, printable};
use super::quantity::count;

/// The schema of the JSON (docs/formats.md).
const SCHEMA: u32 = 1;

/// A column is padded to at most so many columns; what is longer is whole, and moves its line to the right.
const PADDED: usize = 48;

/// So many callers of what is inlined are named.
const CALLERS: usize = 3;

/// A line of source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedPlace {
    /// The file's path, as debug information has it.
    pub file: String,
    /// From 1 on.
    pub line: u32,
}

/// A function with code of its own that was named, or is an implementation of one that was.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedFunction {
    /// The module's file name.
    pub module: String,
    /// The module's path.
    pub path: String,
    /// As reports show it.
    pub name: String,
    /// The linker's name; empty where there is none.
    pub linker_name: String,
    /// Its first instruction, as the file counts.
    pub address: u64,
    /// The length of its first part, bytes.
    pub size_bytes: u64,
    /// Where it is declared, if that is known.
    pub place: Option<ListedPlace>,
    /// What tells it from others of the module with its name.
    pub distinguishing: Option<String>,
    /// The pattern that named it.
    pub pattern: String,
    /// The function that may choose it when it is loaded.
    pub chosen_by: Option<String>,
    /// Why it cannot be probed. `None`: it can.
    pub why_not: Option<String>,
}

/// A function whose body stands in others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedInlined {
    /// The module's file name.
    pub module: String,
    /// As reports show it.
    pub name: String,
    /// Where it is declared, if that is known.
    pub place: Option<ListedPlace>,
    /// The pattern that named it.
    pub pattern: String,
    /// Each copy: its address as the file counts, the function that it stands in, and the line of the call.
    pub copies: Vec<(u64, String, Option<ListedPlace>)>,
}

/// A function that only chooses, when it is loaded, which one its name stands for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedIfunc {
    /// The module's file name.
    pub module: String,
    /// As reports show it.
    pub name: String,
    /// Its first instruction, as the file counts.
    pub address: u64,
    /// The pattern that named it.
    pub pattern: String,
    /// The names of those that it chooses from, as far as symbols say so.
    pub implementations: Vec<String>,
}

/// A pattern that names nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedUnknown {
    /// The pattern.
    pub pattern: String,
    /// That it is so, in a sentence with the names nearest to it.
    pub why: String,
    /// These names.
    pub closest: Vec<String>,
}

/// What patterns name in a program and its libraries.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ProbeList {
    /// Functions, in the order of modules and addresses.
    pub functions: Vec<ListedFunction>,
    /// What is inlined.
    pub inlined: Vec<ListedInlined>,
    /// What chooses others.
    pub ifuncs: Vec<ListedIfunc>,
    /// Patterns that name nothing.
    pub unknown: Vec<ListedUnknown>,
    /// Whole sentences on what else should be known.
    pub notes: Vec<String>,
}

/// Writes `list` as text, a line for each function. `color`: whether escape sequences may be used.
///
/// # Errors
/// If the output takes no more.
pub fn probe_list(list: &ProbeList, color: bool, out: &mut dyn Write) -> io::Result<()> {
    let paint = Paint { color };
    let mut is_first = true;
    let mut title = |out: &mut dyn Write, text: &str| {
        let gap = if std::mem::take(&mut is_first) { "" } else { "\n" };
        writeln!(out, "{gap}{}", paint.with(Ink::Bold, text))
    };
    if !list.functions.is_empty() {
        title(out, &heading(&list.functions))?;
        table(&list.functions.iter().map(row).collect::<Vec<_>>(), paint, out)?;
    }
    if !list.inlined.is_empty() {
        title(out, "Inlined: these copies are not probed")?;
        table(&list.inlined.iter().map(inlined_row).collect::<Vec<_>>(), paint, out)?;
    }
    if !list.ifuncs.is_empty() {
        title(out, "Chosen when they are loaded: the implementations are probed")?;
        for ifunc in &list.ifuncs {
            let names: Vec<String> = ifunc.implementations.iter().map(|name| printable(name)).collect();
            let names = if names.is_empty() { "no symbol names one".to_owned() } else { names.join(", ") };
            writeln!(out, "  {}  {}: {names}", printable(&ifunc.module), printable(&ifunc.name))?;
        }
    }
    let said: Vec<&String> = list.unknown.iter().map(|unknown| &unknown.why).chain(&list.notes).collect();
    if !said.is_empty() {
        title(out, "Notes")?;
        for line in said {
            writeln!(out, "  {}", printable(line))?;
        }
    }
    Ok(())
}

fn heading(functions: &[ListedFunction]) -> String {
    let all = functions.len();
    let refused = functions.iter().filter(|function| function.why_not.is_some()).count();
    let words = match all - refused {
        0 => "No function can be probed".to_owned(),
        some => count(some as u64, "function can be probed", "functions can be probed"),
    };
    match refused {
        0 => words,
        _ if refused == all => words,
        _ => format!("{words}, {refused} cannot"),
    }
}

/// A line of a table: cells, and the last one, with whether it says what is wrong.
type Line = (Vec<String>, String, bool);

fn row(function: &ListedFunction) -> Line {
    let place = function.distinguishing.clone().or_else(|| function.place.as_ref().map(short));
    let cells = vec![
        function.module.clone(),
        function.name.clone(),
        format!("{}+{:#x}", function.module, function.address),
        place.unwrap_or_else(|| "-".to_owned()),
    ];
    let (said, is_odd) = match (&function.why_not, &function.chosen_by) {
        (Some(why), _) => (format!("cannot be probed: {why}"), true),
        (None, Some(chooser)) => (format!("can be probed, for {chooser}"), false),
        (None, None) => ("can be probed".to_owned(), false),
    };
    (cells, said, is_odd)
}

fn inlined_row(inlined: &ListedInlined) -> Line {
    let place = inlined.place.as_ref().map(short).unwrap_or_else(|| "-".to_owned());
    let at = |(_, caller, call): &(u64, String, Option<ListedPlace>)| match call {
        Some(call) => format!("{caller} at {}", short(call)),
        None => caller.clone(),
    };
    let named: Vec<String> = inlined.copies.iter().take(CALLERS).map(at).collect();
    let more = if inlined.copies.len() > CALLERS { ", ..." } else { "" };
    let said = format!("in {}: {}{more}", count(inlined.copies.len() as u64, "place", "places"), named.join(", "));
    (vec![inlined.module.clone(), inlined.name.clone(), place], said, false)
}

/// Without the directory.
fn short(place: &ListedPlace) -> String {
    format!("{}:{}", place.file.rsplit('/').next().unwrap_or_default(), place.line)
}

fn table(lines: &[Line], paint: Paint, out: &mut dyn Write) -> io::Result<()> {
    let cells: Vec<Vec<String>> =
        lines.iter().map(|(cells, ..)| cells.iter().map(|cell| printable(cell)).collect()).collect();
    let width = |column: usize| {
        let widths = cells.iter().filter_map(|cells| cells.get(column)).map(|cell| columns(cell));
        widths.max().unwrap_or(0).min(PADDED)
    };
    let widths: Vec<usize> = (0..cells.first().map_or(0, Vec::len)).map(width).collect();
    for (cells, (_, said, is_odd)) in cells.iter().zip(lines) {
        let mut line = String::new();
        for (cell, width) in cells.iter().zip(&widths) {
            line += &format!("  {cell}{}", " ".repeat(width.saturating_sub(columns(cell))));
        }
        let ink = if *is_odd { Ink::Warm } else { Ink::Plain };
        writeln!(out, "{line}  {}", paint.with(ink, &printable(said)))?;
    }
    Ok(())
}

/// The same as JSON (docs/formats.md).
pub fn probe_list_json(list: &ProbeList) -> Value {
    let ProbeList { functions, inlined, ifuncs, unknown, notes } = list;
    json!({
        "schema": SCHEMA,
        "kind": "probes",
        "functions": functions.iter().map(function_json).collect::<Vec<_>>(),
        "inlined": inlined.iter().map(inlined_json).collect::<Vec<_>>(),
        "ifuncs": ifuncs.iter().map(|ifunc| json!({
            "module": ifunc.module,
            "name": ifunc.name,
            "address": hex(ifunc.address),
            "pattern": ifunc.pattern,
            "implementations": ifunc.implementations,
        })).collect::<Vec<_>>(),
        "unknown": unknown.iter().map(|unknown| json!({
            "pattern": unknown.pattern,
            "why": unknown.why,
            "closest": unknown.closest,
        })).collect::<Vec<_>>(),
        "notes": notes,
    })
}

fn function_json(function: &ListedFunction) -> Value {
    let mut object = Map::new();
    object.insert("module".into(), json!(function.module));
    object.insert("path".into(), json!(function.path));
    object.insert("name".into(), json!(function.name));
    object.insert("address".into(), json!(hex(function.address)));
    object.insert("size_bytes".into(), json!(function.size_bytes));
    object.insert("pattern".into(), json!(function.pattern));
    object.insert("can_be_probed".into(), json!(function.why_not.is_none()));
    let linker_name = Some(&function.linker_name).filter(|name| !name.is_empty());
    let known = [
        ("linker_name", linker_name.map(|name| json!(name))),
        ("place", function.place.as_ref().map(place_json)),
        ("distinguishing", function.distinguishing.as_ref().map(|text| json!(text))),
        ("chosen_by", function.chosen_by.as_ref().map(|name| json!(name))),
        ("why_not", function.why_not.as_ref().map(|why| json!(why))),
    ];
    object.extend(known.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))));
    Value::Object(object)
}

fn inlined_json(inlined: &ListedInlined) -> Value {
    let copy = |(address, caller, call): &(u64, String, Option<ListedPlace>)| {
        let mut copy = json!({ "address": hex(*address), "caller": caller });
        let call = call.as_ref().map(place_json);
        copy.as_object_mut().zip(call).map(|(object, call)| object.insert("call".into(), call));
        copy
    };
    let mut value = json!({
        "module": inlined.module,
        "name": inlined.name,
        "pattern": inlined.pattern,
        "copies": inlined.copies.iter().map(copy).collect::<Vec<_>>(),
    });
    let place = inlined.place.as_ref().map(place_json);
    value.as_object_mut().zip(place).map(|(object, place)| object.insert("place".into(), place));
    value
}

fn place_json(place: &ListedPlace) -> Value {
    json!({ "file": place.file, "line": place.line })
}

fn hex(address: u64) -> String {
    format!("{address:#x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list() -> ProbeList {
        let place = |line| Some(ListedPlace { file: "/src/x.c".into(), line });
        let function = |module: &str, name: &str, address| ListedFunction {
            module: module.into(),
            path: format!("/usr/lib/{module}"),
            name: name.into(),
            linker_name: name.into(),
            address,
            size_bytes: 16,
            place: None,
            distinguishing: None,
            pattern: "*".into(),
            chosen_by: None,
            why_not: None,
        };
        ProbeList {
            functions: vec![
                ListedFunction { place: place(12), ..function("prog", "step", 0x1139) },
                ListedFunction {
                    distinguishing: Some("memcpy@GLIBC_2.2.5".into()),
                    why_not: Some("no room for a jump at 0x9b0a0".into()),
                    ..function("libc.so.6", "memcpy", 0x9b0a0)
                },
                ListedFunction {
                    chosen_by: Some("memcpy".into()),
                    ..function("libc.so.6", "__memcpy_avx\x1b[31m", 0x9b1a0)
                },
            ],
            inlined: vec![ListedInlined {
                module: "prog".into(),
                name: "tiny".into(),
                place: place(3),
                pattern: "tiny".into(),
                copies: (0..4).map(|i| (0x1140 + i, format!("caller{i}"), place(20 + i as u32))).collect(),
            }],
            ifuncs: vec![ListedIfunc {
                module: "libc.so.6".into(),
                name: "memcpy".into(),
                address: 0x9b000,
                pattern: "memcpy".into(),
                implementations: vec!["__memcpy_avx".into()],
            }],
            unknown: vec![ListedUnknown {
                pattern: "stepp".into(),
                why: "stepp: no function has this name; similar names: step".into(),
                closest: vec!["step".into()],
            }],
            notes: vec!["a note".into()],
        }
    }

    #[test]
    fn a_line_for_each_function() {
        let mut out = Vec::new();
        probe_list(&list(), false, &mut out).expect("room");
        let text = String::from_utf8(out).expect("UTF-8");
        let expected = "\
2 functions can be probed, 1 cannot
  prog       step                  prog+0x1139        x.c:12              can be probed
  libc.so.6  memcpy                libc.so.6+0x9b0a0  memcpy@GLIBC_2.2.5  cannot be probed: no room for a jump at 0x9b0a0
  libc.so.6  __memcpy_avx\\x1b[31m  libc.so.6+0x9b1a0  -                   can be probed, for memcpy

Inlined: these copies are not probed
  prog  tiny  x.c:3  in 4 places: caller0 at x.c:20, caller1 at x.c:21, caller2 at x.c:22, ...

Chosen when they are loaded: the implementations are probed
  libc.so.6  memcpy: __memcpy_avx

Notes
  stepp: no function has this name; similar names: step
  a note
";
        assert_eq!(text, expected);
    }

    #[test]
    fn json_has_what_is_known_only() {
        let json = probe_list_json(&list());
        let [step, memcpy, _] = [0, 1, 2].map(|number| &json["functions"][number]);
        assert_eq!((&step["place"]["line"], &step["address"]), (&json!(12), &json!("0x1139")));
        assert!(step["can_be_probed"] == true && step.get("why_not").is_none());
        assert_eq!(memcpy["why_not"], "no room for a jump at 0x9b0a0");
        assert!(memcpy["can_be_probed"] == false && memcpy.get("place").is_none());
        assert_eq!(
            json["inlined"][0]["copies"][3],
            json!({"address": "0x1143", "caller": "caller3",
            "call": {"file": "/src/x.c", "line": 23}})
        );
        assert_eq!(json["unknown"][0]["closest"], json!(["step"]));
    }
}

//! `callpath report --context`: the call paths of contexts by the numbers that a program has logged.

use std::io::{self, Write};

use serde_json::{Map, Value, json};

use super::printable;
use crate::json::SCHEMA;

/// A context by its number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NumberedContext {
    /// The number that the program was given.
    pub number: u64,
    /// The same context's id in each run.
    pub id: u64,
    /// How often it was entered.
    pub calls: u64,
    /// The processes that it was entered in.
    pub pids: Vec<u32>,
    /// The outer end of its path is not known.
    pub is_partial: bool,
    /// The path, from the outermost frame to the innermost.
    pub frames: Vec<NumberedFrame>,
}

/// A frame of its path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NumberedFrame {
    /// `procedure`, `inlined`, or what else stands in a view.
    pub kind: &'static str,
    /// What it is called.
    pub name: String,
    /// The file name of its module.
    pub module: Option<String>,
    /// Where the frame outwards of it calls it: file and line.
    pub call_site: Option<(String, u32)>,
}

/// Writes a paragraph for each.
///
/// # Errors
/// Those of `out`.
pub fn contexts(all: &[NumberedContext], out: &mut dyn Write) -> io::Result<()> {
    for (nth, context) in all.iter().enumerate() {
        if nth > 0 {
            writeln!(out)?;
        }
        let NumberedContext { number, id, calls, pids, is_partial, frames } = context;
        let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
        let processes = if pids.len() == 1 { "process" } else { "processes" };
        let calls = if *calls == 1 { "1 call".to_owned() } else { format!("{calls} calls") };
        writeln!(out, "context {number}: {calls} in {processes} {}; id {id:016x}", pids.join(", "))?;
        if *is_partial {
            writeln!(out, "  (outer frames are not known)")?;
        }
        let width = frames.iter().map(|frame| printable(&frame.name).chars().count()).max().unwrap_or(0);
        for frame in frames {
            let name = printable(&frame.name);
            match &frame.call_site {
                Some((file, line)) => writeln!(out, "  {name:width$}  called at {}:{line}", printable(file))?,
                None => writeln!(out, "  {name}")?,
            }
        }
    }
    Ok(())
}

/// The same as JSON (docs/formats.md).
pub fn contexts_json(all: &[NumberedContext]) -> Value {
    let frame = |frame: &NumberedFrame| {
        let mut map = Map::new();
        map.insert("kind".into(), frame.kind.into());
        map.insert("name".into(), frame.name.as_str().into());
        map.extend(frame.module.as_deref().map(|module| ("module".into(), module.into())));
        map.extend(
            frame.call_site.as_ref().map(|(file, line)| ("call_site".into(), json!({ "file": file, "line": line }))),
        );
        Value::Object(map)
    };
    let context = |context: &NumberedContext| {
        json!({
            "context": context.number,
            "id": format!("{:016x}", context.id),
            "calls": context.calls,
            "pids": context.pids,
            "partial": context.is_partial,
            "path": context.frames.iter().map(frame).collect::<Vec<_>>(),
        })
    };
    json!({ "schema": SCHEMA, "kind": "numbered contexts", "contexts": all.iter().map(context).collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_is_its_path() {
        let frame = |name: &str, call_site| NumberedFrame {
            kind: "procedure",
            name: name.into(),
            module: Some("app".into()),
            call_site,
        };
        let context = NumberedContext {
            number: 2_305_843_009_213_693_950,
            id: 0xbc4,
            calls: 1,
            pids: vec![7],
            is_partial: true,
            frames: vec![frame("main", None), frame("f\u{1b}", Some(("a.c".into(), 9)))],
        };
        let mut out = Vec::new();
        contexts(std::slice::from_ref(&context), &mut out).unwrap();
        let expected = "context 2305843009213693950: 1 call in process 7; id 0000000000000bc4\n  \
            (outer frames are not known)\n  main\n  f\\x1b  called at a.c:9\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
        let json = contexts_json(&[context]);
        assert_eq!(json["contexts"][0]["context"].as_u64(), Some(2_305_843_009_213_693_950));
        assert_eq!(
            json["contexts"][0]["path"][1],
            json!({ "kind": "procedure", "name": "f\u{1b}", "module": "app",
            "call_site": { "file": "a.c", "line": 9 } })
        );
    }
}

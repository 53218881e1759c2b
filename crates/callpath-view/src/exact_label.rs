//! Paths in words: `main.c:12 -> 14 -> 20`, `loop at main.c:14`, `calls puts`.

use callpath_db::PathCategory;
use callpath_db::exact::{ExactBlock, ExactCall, ExactLoop, ExactPath, ExactPlace, ExactProcedure};

/// A file without its directory.
pub(crate) fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

/// `main.c:12`
pub(crate) fn place(place: &ExactPlace) -> String {
    format!("{}:{}", file_name(&place.file), place.line)
}

/// Of more blocks without a line behind each other than these, the first and the last are named.
const NAMELESS: usize = 4;

/// The lines that blocks begin with, in order, each behind itself once; the file where it changes: `main.c:12`, `14`, `util.h:3`.
/// A block without a line is its address; of many the first and the last one's.
fn lines_of_blocks<'b>(blocks: impl Iterator<Item = &'b ExactBlock>) -> Vec<String> {
    let blocks: Vec<&ExactBlock> = blocks.collect();
    let mut words: Vec<String> = Vec::new();
    let mut last: Option<&ExactPlace> = None;
    for alike in blocks.chunk_by(|one, next| one.place == next.place) {
        let address = |block: &&ExactBlock| format!("{:#x}", block.code.start);
        match (&alike[0].place, last) {
            (Some(here), Some(last)) if here.file == last.file => words.push(here.line.to_string()),
            (Some(here), _) => words.push(place(here)),
            (None, _) if alike.len() > NAMELESS => {
                let between = format!("… {} blocks …", alike.len() - 2);
                words.extend([address(&alike[0]), between, address(&alike[alike.len() - 1])]);
            }
            (None, _) => words.extend(alike.iter().map(address)),
        }
        last = alike[0].place.as_ref();
    }
    words
}

/// The lines of a block, adjacent ones as a range: `main.c:12-14, 20, util.h:3`.
pub(crate) fn lines(lines: &[ExactPlace]) -> String {
    let mut words: Vec<String> = Vec::new();
    let mut last: Option<&ExactPlace> = None;
    let mut at = 0;
    while let Some(first) = lines.get(at) {
        let follows = |end: usize| {
            lines.get(end + 1).is_some_and(|next| next.file == first.file && next.line == lines[end].line + 1)
        };
        let end = (at..lines.len()).find(|end| !follows(*end)).unwrap_or(at);
        let file = last.is_none_or(|last| last.file != first.file);
        let first_word = if file { place(first) } else { first.line.to_string() };
        words.push(if end > at { format!("{first_word}-{}", lines[end].line) } else { first_word });
        last = Some(first);
        at = end + 1;
    }
    words.join(", ")
}

/// `main.c:12 -> 14 -> 20`
pub(crate) fn trail(procedure: &ExactProcedure, path: &ExactPath) -> String {
    lines_of_blocks(procedure.blocks_of(path)).join(" -> ")
}

/// `loop at main.c:14`, `2nd loop at main.c:14`, `loop at 0x1139`
pub(crate) fn loop_words(its: &ExactLoop) -> String {
    let at = its.place.as_ref().map_or_else(|| format!("{:#x}", its.address), place);
    match its.ordinal {
        0 | 1 => format!("loop at {at}"),
        2 => format!("2nd loop at {at}"),
        3 => format!("3rd loop at {at}"),
        number => format!("{number}th loop at {at}"),
    }
}

/// What a path has to do with loops: it goes round in one, leads into one or out of one.
pub(crate) fn around(procedure: &ExactProcedure, path: &ExactPath) -> Option<String> {
    let innermost = |block: Option<&ExactBlock>| procedure.loops.get(block?.inside?);
    match path.category {
        PathCategory::EntryExit => None,
        // It ends where the loop begins anew.
        PathCategory::EntryBack => {
            innermost(procedure.blocks_of(path).last()).map(|its| format!("into {}", loop_words(its)))
        }
        PathCategory::HeadBack => procedure.loop_of(path).map(loop_words),
        PathCategory::HeadExit => procedure.loop_of(path).map(|its| format!("out of {}", loop_words(its))),
    }
}

/// The callees of a path in the order of the calls, each once.
pub(crate) fn callees(procedure: &ExactProcedure, path: &ExactPath) -> Vec<String> {
    let calls = procedure.blocks_of(path).flat_map(|block| &block.calls);
    let mut names: Vec<String> = Vec::new();
    for ExactCall { name, .. } in calls {
        let name = name.clone().unwrap_or_else(|| "something indirectly".into());
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

#[cfg(test)]
pub(crate) mod tests {
    use callpath_db::exact::{
        ExactCallers, ExactCounts, ExactQuality, ExactSampling, ExactTiming, InContext, RefusedFunction,
    };
    use callpath_db::{CALLS_ALONE, MeasuredTime, Metric, TimesAccount};

    use super::*;

    fn at(file: &str, line: u32) -> Option<ExactPlace> {
        Some(ExactPlace { file: format!("/src/{file}"), line })
    }

    /// Two procedures: one with a loop, one without lines.
    pub(crate) fn counts() -> ExactCounts {
        let block = |start: u64, line: u32, inside, successors: &[u64]| ExactBlock {
            code: start..start + 0x10,
            instructions: 4,
            place: at("main.c", line),
            lines: at("main.c", line).into_iter().chain(at("main.c", line + 1)).collect(),
            inside,
            calls: Vec::new(),
            successors: successors.to_vec(),
            sampled: 0,
        };
        let mut blocks = vec![
            block(0x1000, 12, None, &[0x1010]),
            block(0x1010, 14, Some(0), &[0x1020, 0x1030]),
            block(0x1020, 14, Some(0), &[0x1030]),
            block(0x1030, 3, Some(0), &[0x1010, 0x1040]),
            block(0x1040, 20, None, &[]),
        ];
        blocks[3].place = at("util.h", 3);
        blocks[2].calls = vec![
            ExactCall { name: Some("puts".into()), place: at("main.c", 15) },
            ExactCall { name: None, place: None },
            ExactCall { name: Some("puts".into()), place: None },
        ];
        let path = |number, category, blocks: &[u32], executions| ExactPath {
            number,
            category,
            blocks: blocks.to_vec(),
            executions,
            contexts: Vec::new(),
            sampled: 0,
            times: Default::default(),
            interruptions: [0; 2],
        };
        let looping = ExactProcedure {
            flow: None,
            activations: None,
            name: "work<int>".into(),
            module: "app".into(),
            place: at("main.c", 10),
            address: 0x1000,
            possible: 212,
            cuts: 0,
            loops: vec![
                ExactLoop { place: at("main.c", 14), ordinal: 1, address: 0x1010 },
                ExactLoop { place: at("main.c", 14), ordinal: 2, address: 0x1050 },
            ],
            blocks,
            paths: vec![
                path(1, PathCategory::EntryBack, &[0, 1, 2, 3], 10),
                path(5, PathCategory::HeadBack, &[1, 3], 980),
                path(9, PathCategory::HeadExit, &[1, 2, 3, 4], 9),
            ],
            sampled_unexecuted: 0,
            sampled_outside: 0,
        };
        let bare = ExactProcedure {
            name: "bare\x1b[31m".into(),
            module: "libx.so".into(),
            address: 0x20,
            possible: 1,
            blocks: vec![ExactBlock { code: 0x20..0x30, instructions: 3, ..ExactBlock::default() }],
            paths: vec![path(0, PathCategory::EntryExit, &[0], 7)],
            ..ExactProcedure::default()
        };
        let refused = |function: &str| RefusedFunction {
            function: function.into(),
            module: "app".into(),
            reason: "an indirect jump could not be followed".into(),
        };
        let mut counts = ExactCounts {
            procedures: vec![bare, looping],
            quality: ExactQuality {
                paths: true,
                in_contexts: false,
                counted: 3,
                refused: vec![refused("odd"), refused("jumps")],
                cut_short: 2,
                lost: 0,
            },
            ..ExactCounts::default()
        };
        counts.info.command = vec!["app".into(), "1".into()];
        counts.sort();
        counts
    }

    /// The same with samples beside: of 1 ms, 100 us are elsewhere and 20 us on no path.
    pub(crate) fn with_samples() -> ExactCounts {
        let mut counts = counts();
        let looping = &mut counts.procedures[0];
        let addresses =
            [(0x1000, 7_000), (0x1012, 99_900), (0x1020, 760_000), (0x1031, 100), (0x1045, 3_000), (0x1050, 20_000)];
        let code = [0x1000..0x1050, 0x1050..0x1058];
        looping.divide_samples(&addresses, &code);
        counts.procedures[1].divide_samples(&[(0x20, 10_000)], &[]);
        counts.sampling = Some(ExactSampling { metric: Metric::sum("cpu-time", "ns"), total: 1_000_000, samples: 900 });
        counts.sort();
        counts
    }

    /// Those of [`counts`], some of which were measured: two executions of path 5, of 10 and 30 ns, all of path 1, one of path 9, none of the other procedure.
    pub(crate) fn with_times() -> ExactCounts {
        let mut counts = counts();
        let pairs = 65 * 64;
        let spread_5 = [2 * pairs, pairs * 40, pairs * 1_000];
        let spread_9 = [pairs, pairs * 200, pairs * 40_000];
        for path in counts.procedures.iter_mut().flat_map(|procedure| &mut procedure.paths) {
            let (measured, weight, time_ns, spread) = match path.number {
                5 => (2, 130, 65 * 40, spread_5),
                1 => (10, 10, 50_000, [0; 3]),
                9 => (1, 65, 65 * 200, spread_9),
                _ => (0, 0, 0, [0; 3]),
            };
            path.times[0] = MeasuredTime { measured, weight, time_ns, spread };
            path.interruptions[0] = u64::from(path.number == 5);
        }
        let account = TimesAccount { lost: 2, clock_ns: 20 };
        counts.timings = vec![ExactTiming { name: "wall-time".into(), unit: "ns".into(), account }];
        counts
    }

    /// Those of [`counts`], counted in contexts: path 5 in four, the others in none that are known.
    pub(crate) fn in_contexts() -> ExactCounts {
        let mut counts = counts();
        let mut callers = ExactCallers::default();
        let [main, run, other, down] =
            ["main", "run", "other", "down\x1b[31m"].map(|name| callers.procedure(name.into(), "app".into()));
        let chains =
            [(&[run, main][..], true, 700), (&[other, main], true, 270), (&[run, down], false, 9), (&[], true, 1)];
        let mut context = |(chain, is_whole, executions): &(&[u32], bool, u64)| InContext {
            callers: callers.chain(chain.iter().copied(), *is_whole),
            executions: *executions,
        };
        let contexts: Vec<InContext> = chains.iter().rev().map(&mut context).collect();
        let paths = counts.procedures.iter_mut().flat_map(|procedure| &mut procedure.paths);
        paths.filter(|path| path.number == 5).for_each(|path| path.contexts.clone_from(&contexts));
        counts.quality.refused[0].reason.insert_str(0, CALLS_ALONE);
        (counts.callers, counts.quality.in_contexts) = (Some(callers), true);
        counts.sort();
        counts
    }

    #[test]
    fn lines_in_words() {
        let of = |places: &[(&str, u32)]| {
            lines(&places.iter().filter_map(|(file, line)| at(file, *line)).collect::<Vec<_>>())
        };
        let places = [("m.c", 3), ("m.c", 4), ("m.c", 5), ("m.c", 3), ("u.h", 9), ("m.c", 10), ("m.c", 11)];
        assert_eq!(of(&places), "m.c:3-5, 3, u.h:9, m.c:10-11");
        assert_eq!(of(&[]), "");
    }

    #[test]
    fn blocks_without_lines_are_addresses() {
        let block = |(number, line): (u64, Option<u32>)| ExactBlock {
            code: number..number + 1,
            place: line.and_then(|line| at("m.c", line)),
            ..ExactBlock::default()
        };
        let of = |lines: &[Option<u32>]| {
            let blocks: Vec<ExactBlock> = (16..).zip(lines.iter().copied()).map(block).collect();
            lines_of_blocks(blocks.iter()).join(" ")
        };
        assert_eq!(of(&[Some(1), None, None, Some(1), Some(1), Some(2)]), "m.c:1 0x11 0x12 m.c:1 2");
        assert_eq!(of(&[None; 4]), "0x10 0x11 0x12 0x13");
        assert_eq!(of(&[None, None, None, None, None, Some(3)]), "0x10 … 3 blocks … 0x14 m.c:3");
    }

    #[test]
    fn paths_in_words() {
        let counts = counts();
        let procedure = &counts.procedures[0];
        let words = |number: u64| {
            let path = procedure.paths.iter().find(|path| path.number == number).unwrap();
            (trail(procedure, path), around(procedure, path), callees(procedure, path))
        };
        let calls = || vec!["puts".to_owned(), "something indirectly".to_owned()];
        let into = Some("into loop at main.c:14".to_owned());
        assert_eq!(words(1), ("main.c:12 -> 14 -> util.h:3".to_owned(), into, calls()));
        assert_eq!(words(5), ("main.c:14 -> util.h:3".to_owned(), Some("loop at main.c:14".to_owned()), vec![]));
        let out = Some("out of loop at main.c:14".to_owned());
        assert_eq!(words(9), ("main.c:14 -> util.h:3 -> main.c:20".to_owned(), out, calls()));
        assert_eq!(loop_words(&procedure.loops[1]), "2nd loop at main.c:14");
        let bare = &counts.procedures[1];
        assert_eq!((trail(bare, &bare.paths[0]), around(bare, &bare.paths[0])), ("0x20".to_owned(), None));
    }
}

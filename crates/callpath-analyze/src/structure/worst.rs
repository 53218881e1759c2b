//! Procedures that are a worst case: tests that twice the code and DWARF take about twice the steps.

mod program;

use std::fmt::Write as _;

use program::Program;

use super::{ModuleStructure, NEST_TOO_DEEP, steps, structure};

/// Each case ends with its own jump through the table of all cases.
fn dispatch(cases: usize) -> Program {
    let mut program = Program::default();
    let jump = "movzwl (%rdi),%eax\nadd $2,%rdi\njmp *table(,%rax,8)";
    program.line(2, jump);
    program.tables += "table:\n";
    for case in 0..cases {
        program.label(&format!("case{case}"));
        program.line(3 + case, &format!("add ${case},%rsi"));
        program.code += if case + 1 < cases { jump } else { "ret" };
        program.code += "\n";
        writeln!(program.tables, ".quad case{case}").unwrap();
    }
    program.finish()
}

/// Nested loops.
fn nested_loops(depth: usize) -> Program {
    let mut program = Program::default();
    let heads: Vec<String> = (0..depth)
        .map(|level| {
            let head = program.here();
            program.line(2 + level, "add $1,%rax");
            head
        })
        .collect();
    for (level, head) in heads.iter().enumerate().rev() {
        program.line(2 + level, &format!("dec %rcx\njne {head}"));
    }
    program.line(2 + depth, "ret");
    program.finish()
}

/// A program that goes to each of so many numbered labels.
fn goes_to_each(label: &str, count: usize) -> Program {
    let mut program = Program::default();
    for number in 0..count {
        program.line(2, &format!("cmp ${number},%edi\nje {label}{number}"));
    }
    program
}

/// A loop that is entered at each of its blocks.
fn ring(entries: usize) -> Program {
    let mut program = goes_to_each("ring", entries);
    for entry in 0..entries {
        program.label(&format!("ring{entry}"));
        program.line(3 + entry, "add $1,%rax\ndec %rcx\nje out");
    }
    program.code += "jmp ring0\n";
    program.label("out");
    program.line(3 + entries, "ret");
    program.finish()
}

/// Nested loops, each entered at each of its blocks.
fn ladder(blocks: usize) -> Program {
    let mut program = goes_to_each("rung", blocks);
    for block in 0..blocks {
        program.label(&format!("rung{block}"));
        program.line(3 + block, &format!("add $1,%rax\ndec %rcx\nje rung{}", block.saturating_sub(1)));
    }
    program.line(3 + blocks, "ret");
    program.finish()
}

/// Loops side by side, of two lines.
fn ranges_of_a_loop(loops: usize) -> Program {
    let mut program = Program::default();
    for number in 0..loops {
        let head = program.here();
        program.line(3 + number % 2, &format!("add $1,%rax\ndec %rcx\njne {head}"));
        program.line(10 + number, "inc %rdx");
    }
    program.line(10 + loops, "ret");
    program.finish()
}

/// A loop with as many ways back, and before each of them as many statements without code as ways back together.
fn ways_back(count: usize) -> Program {
    let mut program = Program::default();
    let head = program.here();
    for way in 0..count {
        for statement in 0..8 {
            program.line(10 + 9 * way + statement, "");
        }
        program.line(18 + 9 * way, &format!("cmp ${way},%edi\nje {head}"));
    }
    program.line(20 + 9 * count, "ret");
    program.finish()
}

/// Statements without code, all at one place of a nest of loops.
fn statements(count: usize) -> Program {
    let mut program = Program::default();
    let heads: Vec<String> = (0..64).map(|_| program.here_line(2)).collect();
    for number in 0..count {
        program.line(10 + number, "");
    }
    program.line(9, "add $2,%rax");
    for (level, head) in heads.iter().enumerate().rev() {
        program.line(2 + level, &format!("dec %rcx\njne {head}"));
    }
    program.line(70, "ret");
    program.finish()
}

/// Lines in the innermost of some loops.
fn lines_in_a_nest(count: usize) -> Program {
    let mut program = Program::default();
    let heads: Vec<String> = (0..500).map(|_| program.here_line(2)).collect();
    for number in 0..count {
        program.line(10 + number, "add $2,%rax");
    }
    for (level, head) in heads.iter().enumerate().rev() {
        program.line(2 + level, &format!("dec %rcx\njne {head}"));
    }
    program.line(70, "ret");
    program.finish()
}

/// Nested inlined calls, with a loop in each if `looped`.
fn inlined_deep(depth: usize, looped: bool) -> Program {
    let mut program = Program::default();
    for level in 0..depth {
        program.label(&format!("in{level}"));
        program.line(2 + level, "add $1,%rax");
    }
    for level in (0..depth).rev() {
        let back = if looped { format!("jne in{level}") } else { String::new() };
        program.line(2 + level, &format!("dec %rcx\n{back}"));
        program.label(&format!("out{level}"));
    }
    program.line(2 + depth, "ret");
    for level in 0..depth {
        program.inlined(2 + level, &[(format!("in{level}"), format!("out{level}"))]);
    }
    (0..depth).for_each(|_| program.end());
    program.finish()
}

/// Inlined calls side by side, each with a loop; each around a loop of all, and in it.
fn inlined_wide(count: usize) -> Program {
    let mut program = Program::default();
    let before: Vec<(String, String)> = (0..count)
        .map(|_| {
            let start = program.here();
            program.line(1_000_001, "add $1,%rax");
            (start, program.here())
        })
        .collect();
    let head = program.here_line(2);
    let inside: Vec<(String, String)> = (0..count)
        .map(|number| {
            let start = program.here();
            program.line(1_000_001, &format!("add $1,%rax\ndec %rcx\njne {start}"));
            let end = program.here();
            program.line(3 + number, "add $3,%rdx");
            (start, end)
        })
        .collect();
    program.line(2, &format!("dec %rdx\njne {head}"));
    program.line(3 + count, "ret");
    for (number, ranges) in before.into_iter().zip(inside).enumerate() {
        program.inlined(3 + number, &[ranges.0, ranges.1]);
        program.end();
    }
    program.finish()
}

/// Inlined calls that the compiler mixed: each has as many stretches of code as there are calls.
fn inlined_scattered(calls: usize) -> Program {
    let mut program = Program::default();
    let mut ranges = vec![Vec::new(); calls];
    let head = program.here();
    for _ in 0..calls {
        for (call, ranges) in ranges.iter_mut().enumerate() {
            let start = program.here();
            program.line(1_000_001 + call, "add $1,%rax");
            ranges.push((start, program.here()));
        }
    }
    program.line(2, &format!("dec %rdx\njne {head}"));
    program.line(3, "ret");
    for (call, ranges) in ranges.iter().enumerate() {
        program.inlined(3 + call, ranges);
        program.end();
    }
    program.finish()
}

/// Lines only: code of lines behind those of many nested procedures.
fn nested_procedures(count: usize) -> Program {
    let mut program = Program::default();
    for number in 0..count {
        program.line(1_000_001 + number, "add $1,%rax");
    }
    program.line(3, "ret");
    for number in 0..count {
        program.inside += &Program::declared(4 + 2 * number);
    }
    // Ends `run` in the source.
    program.beside += &Program::declared(4 + 2 * count);
    program.finish()
}

/// Lines only: each line between those of two procedures.
fn alien_lines(count: usize) -> Program {
    let mut program = Program::default();
    for number in 0..count {
        let head = program.here();
        program.line(101 + 2 * number, &format!("add $1,%rax\ndec %rcx\njne {head}"));
    }
    program.line(3, "ret");
    for number in 0..count {
        program.beside += &Program::declared(100 + 2 * number);
    }
    program.finish()
}

fn procedures(count: usize) -> Program {
    let mut program = Program::default();
    program.line(2, "ret");
    program.finish().with_procedures(count)
}

/// Loops with a loop in each, and one that has a line of each, so that all are one in the end.
fn bridged(loops: usize) -> Program {
    let mut program = Program::default();
    for number in 0..loops {
        let outer = program.here();
        program.line(10 + 3 * number, "add $1,%rax");
        let inner = program.here();
        program.line(11 + 3 * number, &format!("add $2,%rax\ndec %rcx\njne {inner}"));
        program.line(10 + 3 * number, &format!("dec %rdx\njne {outer}"));
        program.line(12 + 3 * number, "add $3,%rsi");
    }
    let last = program.here();
    for number in 0..loops {
        program.line(10 + 3 * number, "add $4,%rsi");
    }
    program.line(9, &format!("dec %rdi\njne {last}"));
    program.line(8, "ret");
    program.finish()
}

/// As many loops side by side in the innermost of inlined calls, as they are deep.
fn wide_in_deep(size: usize) -> Program {
    let mut program = Program::default();
    for level in 0..size {
        program.label(&format!("in{level}"));
        program.line(2 + level, "add $1,%rax");
    }
    for number in 0..size {
        let head = program.here();
        program.line(1_000_001 + 2 * number, &format!("add $1,%rax\ndec %rcx\njne {head}"));
    }
    program.label("all_out");
    program.line(2 + size, "ret");
    for level in 0..size {
        program.inlined(2 + level, &[(format!("in{level}"), "all_out".to_string())]);
    }
    (0..size).for_each(|_| program.end());
    program.finish()
}

struct Case {
    name: &'static str,
    make: fn(usize) -> Program,
    size: usize,
    /// How many scopes there are, unless loops nest too deep to tell them all.
    scopes: Option<fn(usize) -> usize>,
}

fn case(name: &'static str, make: fn(usize) -> Program, size: usize, scopes: fn(usize) -> usize) -> Case {
    Case { name, make, size, scopes: Some(scopes) }
}

fn too_deep(name: &'static str, make: fn(usize) -> Program, size: usize) -> Case {
    Case { name, make, size, scopes: None }
}

fn cases() -> Vec<Case> {
    vec![
        case("dispatch", dispatch, 500, |_| 1),
        too_deep("nested loops", nested_loops, 2000),
        case("ring", ring, 2000, |_| 1),
        too_deep("ladder", ladder, 2000),
        case("pieces of a loop", ranges_of_a_loop, 2000, |_| 2),
        case("bridged", bridged, 1000, |loops| loops + 1),
        case("ways back", ways_back, 2000, |_| 1),
        case("statements", statements, 4000, |_| 64),
        too_deep("lines in a nest", lines_in_a_nest, 4000),
        case("inlined deep", |depth| inlined_deep(depth, false), 2000, |depth| depth),
        too_deep("inlined deep, looped", |depth| inlined_deep(depth, true), 2000),
        case("inlined wide", inlined_wide, 2000, |count| 2 * count + 1),
        case("wide in deep", wide_in_deep, 1000, |size| 2 * size),
        // Twice as many in four times the ranges.
        case("inlined scattered", inlined_scattered, 40, |calls| calls + 1),
        case("nested procedures", nested_procedures, 2000, |_| 1),
        case("alien lines", alien_lines, 2000, |count| 2 * count),
        case("procedures", procedures, 2000, |_| 0),
    ]
}

/// How many steps it takes, and what was found.
fn steps_of(case: &Case, size: usize) -> (u64, ModuleStructure) {
    let program = (case.make)(size).build();
    let before = steps::taken();
    let found = structure(&program, None, &|_, _| {});
    (steps::taken() - before, found)
}

#[test]
fn twice_as_much_takes_twice_the_steps() {
    for case in cases() {
        let (few, _) = steps_of(&case, case.size);
        let (many, found) = steps_of(&case, 2 * case.size);
        let scopes: usize = found.procedures.iter().map(|procedure| procedure.scopes.len()).sum();
        match case.scopes {
            Some(expected) => {
                assert_eq!(scopes, expected(2 * case.size), "{}", case.name);
                assert!(found.diagnostics.is_empty(), "{}: {:?}", case.name, found.diagnostics);
            }
            None => assert!(found.diagnostics.iter().all(|why| why.starts_with(NEST_TOO_DEEP)), "{}", case.name),
        }
        let is_said = !found.diagnostics.is_empty();
        assert_eq!(is_said, case.scopes.is_none(), "{}", case.name);
        let times = if case.name == "inlined scattered" { 4 } else { 2 };
        assert!(few > 0 && 10 * many <= (10 * times + 3) * few, "{}: {few} steps, then {many}", case.name);
    }
}

/// What each takes: for people.
#[test]
#[ignore = "prints a table"]
fn table() {
    let only = std::env::var("CASE").ok();
    for case in cases().iter().filter(|case| only.as_ref().is_none_or(|only| only == case.name)) {
        for size in [case.size, 2 * case.size, 4 * case.size] {
            let program = (case.make)(size).build();
            let (start, before) = (std::time::Instant::now(), steps::taken());
            let found = structure(&program, None, &|_, _| {});
            let (took, steps) = (start.elapsed(), steps::taken() - before);
            let scopes: usize = found.procedures.iter().map(|procedure| procedure.scopes.len()).sum();
            println!("{} {size}: {took:?}, {steps} steps, {scopes} scopes, {:?}", case.name, found.diagnostics);
        }
    }
}

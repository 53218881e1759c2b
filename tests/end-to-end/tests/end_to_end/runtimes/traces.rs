//! Programs whose compiled code runs in an interpreter's frame: the C procedures that called the interpreter are those that call
//! it without the compiler.

use std::collections::{BTreeMap, BTreeSet};

use callpath_end_to_end::{Profile, Program};

use super::{Runtime, nasty};

const LUAJIT: Runtime = Runtime { name: "luajit", commands: &["/usr/bin/luajit"] };
const PHP: Runtime = Runtime { name: "PHP with opcache", commands: &["/usr/bin/php", "/usr/share/php8.2-opcache"] };

/// What called `interpreter`, or the code that stands in for it, on each whole path: without these frames themselves.
fn callers(profile: &Profile, is_interpreter: impl Fn(&str) -> bool) -> BTreeSet<Vec<&str>> {
    let mut callers = BTreeSet::new();
    for path in profile.paths().into_iter().filter(|path| path.first() == Some(&"_start")) {
        let mut chain = Vec::new();
        for name in path {
            if is_interpreter(name) {
                callers.insert(chain.clone());
            } else {
                chain.push(name);
            }
        }
    }
    callers
}

fn is_generated(name: &str) -> bool {
    name.starts_with("[jit]")
}

/// No compiled code may have callers that the interpreter never has.
fn assert_same_callers(interpreted: &Profile, compiled: &Profile, interpreter: &str) {
    let allowed = callers(interpreted, |name| name == interpreter);
    assert!(allowed.iter().any(|chain| chain.len() > 12), "the interpreter is deep: {allowed:?}");
    let own = |name: &str| name == interpreter || is_generated(name);
    for path in compiled.paths() {
        // Its compiler runs the interpreter, too.
        if path.first() != Some(&"_start") || path.iter().any(|name| name.starts_with("opcache.so")) {
            continue;
        }
        for end in (0..path.len()).filter(|at| is_generated(path[*at])) {
            let chain: Vec<&str> = path[..end].iter().copied().filter(|name| !own(name)).collect();
            assert!(allowed.contains(&chain), "the interpreter has no such callers: {chain:?}, of {path:?}");
        }
    }
}

/// The procedure that is most often at `beyond` frames below one of this name.
fn below<'p>(profile: &'p Profile, name: &str, beyond: usize) -> &'p str {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for path in profile.paths() {
        let at = path.iter().position(|its| *its == name);
        if let Some(found) = at.and_then(|at| path.get(at + beyond)) {
            *counts.entry(*found).or_default() += 1;
        }
    }
    counts.into_iter().max_by_key(|(_, count)| *count).expect("it is on some path").0
}

#[test]
#[ignore = "has a step of its own"]
fn luajit() {
    if !LUAJIT.is_here("runtimes::traces::luajit") {
        return;
    }
    let script = nasty("traces.lua");
    let program = || Program::at(LUAJIT.commands[0]);
    let interpreted = program().arguments(["-joff"]).arguments([script.as_os_str()]).arguments(["40"]).same().profile();
    for options in [&[][..], &["--outside"]] {
        let compiled = program().arguments([script.as_os_str()]).arguments(["250"]).options(options).same().profile();
        compiled.assert_full(900);
        // The file has no symbols.
        let (interpreter, gsub) = (below(&interpreted, "lua_pcall", 1), below(&interpreted, "lua_pcall", 2));
        assert_same_callers(&interpreted, &compiled, interpreter);
        let deep = compiled.percent_of_samples_through(&["lua_pcall", gsub, gsub]);
        assert!(deep > 80.0, "{deep}% three callbacks deep: {compiled:?}");
        let generated: u64 = compiled.exclusive_in("[jit]").into_values().sum();
        assert!(generated * 2 > compiled.total("cpu-time"), "it is compiled: {compiled:?}");
    }
}

#[test]
#[ignore = "has a step of its own"]
fn php() {
    if !PHP.is_here("runtimes::traces::php") {
        return;
    }
    let script = nasty("traces.php");
    let php = |jit: &'static str, rounds: &'static str| {
        let options = ["zend_extension=opcache", "opcache.enable_cli=1", "opcache.jit_buffer_size=64M", jit];
        let words = options.into_iter().flat_map(|option| ["-d", option]);
        let program = Program::at(PHP.commands[0]).arguments(["-n"]).arguments(words);
        program.arguments([script.as_os_str()]).arguments([rounds]).same().profile()
    };
    let interpreted = php("opcache.jit=off", "300");
    let compiled = php("opcache.jit=tracing", "2500");
    compiled.assert_full(800);
    assert_same_callers(&interpreted, &compiled, "execute_ex");
    let deep = compiled.percent_of_samples_through(&["zend_call_function"; 3]);
    assert!(deep > 70.0, "{deep}% three callbacks deep: {compiled:?}");
    let generated: u64 = compiled.exclusive_in("[jit]").into_values().sum();
    assert!(generated * 3 > compiled.total("cpu-time"), "it is compiled: {compiled:?}");
    // Most of this code names no way out. What is whole is right.
    assert_same_callers(&interpreted, &php("opcache.jit=function", "1000"), "execute_ex");
}

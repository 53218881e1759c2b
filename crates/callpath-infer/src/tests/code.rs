//! Paths that the code has.

use super::*;

fn of_code() -> OfCode {
    let mut builder = MapBuilder::default();
    let file = builder.module(module(7)).unwrap();
    builder.whole(file);
    let names = ["main", "A", "B", "C", "Alone"];
    let procedures = [0, 1, 2, 3, 4].map(|at| procedure(&mut builder, file, 0x100 * (at + 1), names[at as usize]));
    let [main, a, b, c, alone] = procedures;
    let root = builder.root(Root::Main);
    let node = builder.node(None, main, root);
    builder.met(node, -8, Weight::default());
    for (caller, callee, height) in [(main, a, 32), (main, b, 48), (a, c, 64), (b, c, 64), (c, c, 16)] {
        builder.call(DirectCall { callee, caller, height });
    }
    builder.pointer_call(PointerCall { caller: main, height: 112, passes: 0b1 });
    builder.pointed(Pointed { procedure: c, takes: 0b1, is_at_start: false });
    builder.pointed(Pointed { procedure: alone, takes: 0b11, is_at_start: false });
    builder.root(Root::Thread(b));
    OfCode { builder, root, procedures, main: node }
}

#[test]
fn code_alone_has_paths() {
    let OfCode { builder, root, procedures: [main, a, b, c, alone], main: node } = of_code();
    let map = builder.finish();
    let mut search = Search::new(&map);
    let mut ask = |root, procedure, height| search.tell(Identifier { root, procedure, height });
    let of = |told: &Told<'_>| (told.certainty, told.callers());
    assert_eq!(of(&ask(root, main, -8)), (Certainty::Precise, vec![vec![]]));
    assert_eq!(of(&ask(root, a, 24)), (Certainty::Static, vec![vec![main]]));
    assert_eq!(of(&ask(root, c, 88)), (Certainty::Static, vec![vec![main, a]]));
    // By way of B, by the pointer, and of A and itself: the one that needs no pointer is not known to be the one.
    let several = ask(root, c, 104);
    assert_eq!(several.certainty, Certainty::Ambiguous(3));
    assert_eq!(several.common(), [main]);
    let mut callers = several.callers();
    assert_eq!(callers.pop(), Some(vec![main]), "what a pointer says comes last");
    callers.sort_unstable();
    assert_eq!(callers, [vec![main, a, c], vec![main, b]]);
    for (procedure, height) in [(alone, 104), (c, 80), (a, 32), (a, 25), (b, i64::MIN), (c, i64::MAX)] {
        let told = ask(root, procedure, height);
        assert!(matches!(told.certainty, Certainty::Missing | Certainty::Undetermined), "{procedure} {height}");
        assert_eq!((told.callers(), told.common()), (vec![], vec![]));
    }
    // A thread that begins in B.
    let thread = root + 1;
    assert_eq!(of(&ask(thread, b, 0)), (Certainty::Static, vec![vec![]]));
    assert_eq!(of(&ask(thread, c, 64)), (Certainty::Static, vec![vec![b]]));
    assert_eq!(ask(thread, a, 32).certainty, Certainty::Missing);
    assert_eq!(map.nodes()[node as usize].procedure, main);
    let decoded = PathMap::decode(&map.encode(), Path::new("a.map")).unwrap();
    assert_eq!((decoded.code(), decoded.calls()), (map.code(), map.calls()));
}

/// What a run has seen is continued, not sought again.
#[test]
fn code_continues_what_was_seen() {
    let OfCode { mut builder, root, procedures: [main, _, b, c, _], main: node } = of_code();
    let of_b = builder.node(Some(node), b, root);
    builder.met(of_b, 40, Weight { calls: 3, samples: 0 });
    let map = builder.finish();
    let mut search = Search::new(&map);
    let told = search.tell(Identifier { root, procedure: c, height: 104 });
    // One call that was not seen, of what was: B's. A's would be two.
    assert_eq!((told.certainty, told.callers()), (Certainty::Likely, vec![vec![main, b]]));
    assert!(!told.is_seen());
    let told = search.tell(Identifier { root, procedure: c, height: 120 });
    assert_eq!(told.certainty, Certainty::Ambiguous(3), "with two: {:?}", told.callers());
}

#[test]
fn a_search_that_would_take_too_long_tells_nothing() {
    let OfCode { builder, root, procedures: [.., c, _], .. } = of_code();
    let map = builder.finish();
    let told = |height| Search::new(&map).find(Identifier { root, procedure: c, height });
    let Searched::Found(many) = told(16 * 1000 + 88) else { panic!() };
    assert_eq!((many.count, many.paths.len()), (3, 3), "down to itself, a thousand times");
    assert_eq!(told(1 << 40), Searched::TooMuch);
    let mut short = Search::within(&map, (100, 1000));
    assert_eq!(short.find(Identifier { root, procedure: c, height: 16 * 1000 + 88 }), Searched::TooMuch);
}

/// Where a call at no known height may lead, nothing is known to be the only path.
#[test]
fn calls_at_no_known_height_leave_doubt() {
    let ask = |calls: &[VariableCall], procedure: usize, height: i64| {
        let OfCode { mut builder, root, procedures, .. } = of_code();
        calls.iter().for_each(|call| builder.variable_call(*call));
        let map = builder.finish();
        let decoded = PathMap::decode(&map.encode(), Path::new("a.map")).unwrap();
        assert_eq!(decoded.code(), map.code());
        Search::new(&decoded).tell(Identifier { root, procedure: procedures[procedure], height }).certainty
    };
    let [_, a, b, c, _] = of_code().procedures;
    assert_eq!(ask(&[], 3, 88), Certainty::Static);
    // From B, which is as high as 40 at least; from A, as high as 24, by way of B.
    let from = |caller: u32, to: Called| VariableCall { caller: Some(caller), to };
    assert_eq!(ask(&[from(b, Called::Procedure(c))], 3, 88), Certainty::Likely);
    assert_eq!(ask(&[from(b, Called::Procedure(c))], 1, 24), Certainty::Static);
    assert_eq!(ask(&[from(a, Called::Procedure(b))], 3, 88), Certainty::Static);
    assert_eq!(ask(&[from(a, Called::Procedure(b))], 2, 40), Certainty::Likely);
    // Through a pointer, with the argument that C takes, or with none.
    assert_eq!(ask(&[from(a, Called::Pointer(0b1))], 3, 88), Certainty::Likely);
    assert_eq!(ask(&[from(a, Called::Pointer(0b10))], 3, 88), Certainty::Static);
    // From a file that is not known.
    assert_eq!(ask(&[VariableCall { caller: None, to: Called::Procedure(a) }], 3, 88), Certainty::Likely);
}

/// What only the program's start has the address of is called there.
#[test]
fn what_is_called_at_the_start() {
    let mut builder = MapBuilder::default();
    let (file, library) = (
        builder.module(module(7)).unwrap(),
        builder.module(MapModule { path: "/lib/c".into(), identity: vec![1, 9] }).unwrap(),
    );
    builder.whole(file);
    let start = procedure(&mut builder, file, 0x100, "_start");
    let main = procedure(&mut builder, file, 0x200, "main");
    let loader = procedure(&mut builder, library, 0x100, "_start of the loader");
    let [calls, deeper, deepest] = [2, 3, 4].map(|at| procedure(&mut builder, library, 0x100 * at, "starts"));
    let root = builder.root(Root::Main);
    for begins in [start, loader] {
        let node = builder.node(None, begins, root);
        builder.met(node, -8, Weight::default());
    }
    for (caller, callee) in [(start, calls), (calls, deeper), (deeper, deepest), (loader, deeper), (main, deeper)] {
        builder.call(DirectCall { callee, caller, height: 32 });
    }
    for caller in [calls, deeper, deepest] {
        builder.pointer_call(PointerCall { caller, height: 16, passes: 0b11 });
    }
    builder.pointed(Pointed { procedure: main, takes: 0b11, is_at_start: true });
    let map = builder.finish();
    let mut search = Search::new(&map);
    let mut ask = |height| search.tell(Identifier { root, procedure: main, height });
    // By the first and by the second call below the start; not by the third, from main itself, nor from the loader's start (which would be as
    // high as the first).
    for (height, callers) in [(40, vec![start, calls]), (72, vec![start, calls, deeper])] {
        let told = ask(height);
        assert_eq!((told.certainty, told.callers()), (Certainty::Static, vec![callers]), "{height}");
    }
    for height in [104, 120, 56, 88] {
        assert_eq!(ask(height).certainty, Certainty::Missing, "{height}");
    }
}

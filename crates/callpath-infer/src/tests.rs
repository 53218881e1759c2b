//! Maps that are made by hand: what they answer, and what becomes of their files.

mod clones;
mod code;

use std::path::Path;

use crate::{
    Answer, Budget, Called, Certainty, DirectCall, Identifier, MapBuilder, MapError, MapModule, MapProcedure,
    OtherBuild, PaddingPlan, Paddings, PathMap, Pointed, PointerCall, Precision, Root, Search, Searched, Told,
    VariableCall, Weight, fuzz_padding_plan, fuzz_path_map,
};

/// A program in which `main` calls A, B and C, which call D; A and B have frames of the same size.
struct Known {
    builder: MapBuilder,
    root: u32,
    /// main, A, B, C, D
    procedures: [u32; 5],
    /// `main`'s, then main > A > D, main > B > D, main > C > D
    nodes: [u32; 4],
}

fn procedure(builder: &mut MapBuilder, module: u32, start: u64, name: &str) -> u32 {
    builder.procedure(MapProcedure { module, start, name: name.to_owned() })
}

fn module(identity: u8) -> MapModule {
    MapModule { path: "/usr/bin/known".into(), identity: vec![1, identity] }
}

fn known() -> Known {
    let mut builder = MapBuilder::default();
    let file = builder.module(module(7)).unwrap();
    let procedures = [("main", 0x100), ("A", 0x200), ("B", 0x300), ("C", 0x400), ("D", 0x500)];
    let procedures = procedures.map(|(name, start)| procedure(&mut builder, file, start, name));
    let [main, a, b, c, d] = procedures;
    let root = builder.root(Root::Main);
    let of_main = builder.node(None, main, root);
    builder.met(of_main, 16, Weight { calls: 1, samples: 0 });
    let mut nodes = [of_main; 4];
    for (index, (caller, height, calls)) in [(a, 96, 10), (b, 96, 30), (c, 160, 5)].into_iter().enumerate() {
        let node = builder.node(Some(of_main), caller, root);
        builder.met(node, 48, Weight { calls, samples: 1 });
        let called = builder.node(Some(node), d, root);
        builder.met(called, height, Weight { calls, samples: 2 });
        nodes[index + 1] = called;
        builder.call(DirectCall { callee: d, caller, height: height - 48 });
    }
    Known { builder, root, procedures, nodes }
}

#[test]
fn paths_that_share_an_identifier_are_all_answers_those_seen_most_first() {
    let Known { builder, root, procedures: [main, .., d], nodes: [of_main, by_a, by_b, by_c] } = known();
    let map = builder.finish();
    let ask = |procedure, height| map.answer(Identifier { root, procedure, height });
    assert_eq!(ask(main, 16), Answer::Precise(of_main));
    assert_eq!(ask(d, 160), Answer::Precise(by_c));
    assert_eq!(ask(d, 96), Answer::Ambiguous(&[by_b, by_a]));
    assert_eq!((ask(d, 104), ask(main, 96)), (Answer::Missing, Answer::Missing));
    assert_eq!(map.answer(Identifier { root: root + 1, procedure: d, height: 160 }), Answer::Missing);
    assert_eq!(map.common(&[by_a, by_b]), [of_main]);
    assert_eq!(map.common(&[by_a]).len(), 3);
    let precision = map.precision();
    // main, A, B, C, D through C; and two paths to D.
    assert_eq!((precision.pairs, precision.paths.clone()), (6, [(1, 5), (2, 2)].into()));
    assert_eq!(precision.calls, [(1, 1 + 10 + 30 + 5 + 5), (2, 40)].into());
    assert_eq!(Precision::share(&precision.samples), Some(5.0 / 9.0));
    assert_eq!(Precision::share(&Default::default()), None);
}

/// Two programs that call a library: a process of one program never gets the other's paths.
#[test]
fn paths_through_modules_that_a_process_does_not_have() {
    let mut builder = MapBuilder::default();
    let [one, two, library] = [1, 2, 3]
        .map(|at| builder.module(MapModule { path: format!("/usr/lib/{at}").into(), identity: vec![1, at] }).unwrap());
    let root = builder.root(Root::Main);
    let called = procedure(&mut builder, library, 0x700, "called");
    let of_programs = [one, two].map(|file| {
        let main = procedure(&mut builder, file, 0x100, "main");
        let of_main = builder.node(None, main, root);
        builder.met(of_main, 16, Weight { calls: 1, samples: 0 });
        let node = builder.node(Some(of_main), called, root);
        builder.met(node, 48, Weight { calls: 1, samples: 0 });
        builder.call(DirectCall { callee: called, caller: main, height: 32 });
        (main, of_main, node)
    });
    for module in [one, two, library] {
        builder.whole(module);
    }
    let map = builder.finish();
    let identifier = Identifier { root, procedure: called, height: 48 };
    assert!(matches!(map.answer(identifier), Answer::Ambiguous(paths) if paths.len() == 2));
    for (index, (main, of_main, node)) in of_programs.into_iter().enumerate() {
        let of_process = map.of_modules(&[index == 0, index == 1, true]);
        assert_eq!(of_process.answer(identifier), Answer::Precise(node));
        assert_eq!(
            of_process.answer(Identifier { procedure: main, height: 16, ..identifier }),
            Answer::Precise(of_main)
        );
        assert_eq!(Search::new(&of_process).tell(identifier).callers(), [[main]]);
    }
    let of_neither = map.of_modules(&[false, false, true]);
    assert_eq!(of_neither.answer(identifier), Answer::Missing);
    assert_eq!(Search::new(&of_neither).tell(identifier).certainty, Certainty::Missing);
    assert_eq!(map.of_modules(&[true; 3]).told().count(), map.told().count());
}

/// A single path is only likely if the procedure was also met at an unknown height, unless that must be greater.
#[test]
fn paths_without_heights_leave_a_doubt() {
    let Known { mut builder, root, procedures: [main, a, .., d], nodes: [of_main, _, _, by_c] } = known();
    let variable = procedure(&mut builder, 0, 0x600, "variable");
    // At 152, what it calls is at 160 at least.
    let of_variable = builder.node(Some(of_main), variable, root);
    builder.met(of_variable, 152, Weight { calls: 1, samples: 0 });
    builder.node(Some(of_variable), d, root);
    let map = builder.finish();
    let ask = |procedure, height| map.answer(Identifier { root, procedure, height });
    assert_eq!(ask(d, 160), Answer::Likely(by_c));
    assert!(matches!(ask(a, 48), Answer::Precise(_)) && ask(main, 16) == Answer::Precise(of_main));
    let Known { mut builder, root, procedures: [.., d], nodes: [of_main, _, _, by_c], .. } = known();
    let variable = procedure(&mut builder, 0, 0x600, "variable");
    let of_variable = builder.node(Some(of_main), variable, root);
    builder.met(of_variable, 160, Weight { calls: 1, samples: 0 });
    builder.node(Some(of_variable), d, root);
    let map = builder.finish();
    assert_eq!(map.answer(Identifier { root, procedure: d, height: 160 }), Answer::Precise(by_c));
}

/// main calls A and B, A calls C, and C calls D; B calls E, which no run has done, and E calls D. Whether D is as high by way of E, decides.
#[test]
fn a_path_is_doubted_where_the_code_has_a_chain_of_calls_of_the_same_height() {
    let doubted = |by_e: i64, most_calls: usize| {
        let mut builder = MapBuilder::default();
        let file = builder.module(module(7)).unwrap();
        let procedures = [("main", 0x100), ("A", 0x200), ("B", 0x300), ("C", 0x400), ("D", 0x500), ("E", 0x600)];
        let [main, a, b, c, d, e] = procedures.map(|(name, start)| procedure(&mut builder, file, start, name));
        let below = procedure(&mut builder, file, 0x700, "below");
        let root = builder.root(Root::Main);
        let (mut node, mut height) = (None, 0);
        for (at, frame) in [(main, 32), (a, 48), (c, 64), (d, 16), (below, 0)] {
            node = Some(builder.node(node, at, root));
            builder.met(node.unwrap(), height, Weight { calls: 1, samples: 0 });
            height += frame;
        }
        for (caller, callee, height) in
            [(main, a, 32), (main, b, 32), (a, c, 48), (c, d, 64), (b, e, 48), (e, d, by_e), (d, d, 16)]
        {
            builder.call(DirectCall { callee, caller, height });
        }
        let map = builder.finish();
        let told: Vec<u32> = map.told().map(|(identifier, _)| identifier.procedure).collect();
        assert_eq!(told.len(), 5, "walks compare with the stack: {told:?}");
        let all = Weight { calls: 2, samples: 0 };
        let likely = if [48, 64].contains(&by_e) { (2, all) } else { (0, Weight::default()) };
        assert_eq!(map.precision().likely, likely);
        let mut doubted: Vec<u32> = crate::doubt::doubts(&map, most_calls)
            .into_iter()
            .filter(|(_, doubt)| *doubt == crate::doubt::Doubt::Code)
            .map(|(identifier, _)| identifier.procedure)
            .collect();
        doubted.sort_unstable();
        (doubted, [d, below], [a, c, d])
    };
    // What is called through a pointer from where that is not sure, is not sure, either.
    let (found, d_and_below, _) = doubted(64, 1 << 10);
    assert_eq!(found, d_and_below);
    // 16 bytes more are one level of D's own recursion.
    assert_eq!(doubted(48, 1 << 10).0, d_and_below);
    for by_e in [56, 72, 80] {
        assert_eq!(doubted(by_e, 1 << 10).0, [], "{by_e}");
    }
    // What is not looked at is not ruled out.
    let (found, _, callees) = doubted(80, 0);
    assert!(callees.iter().all(|callee| found.contains(callee)), "{found:?}");
}

#[test]
fn larger_frames_tell_paths_apart() {
    let Known { builder, root, procedures: [_, a, b, c, d], nodes: [_, by_a, by_b, by_c] } = known();
    let map = builder.finish();
    let resized = map.resize(|_| true, Budget { growth: 1.2, ..Budget::default() }, None);
    let [(padded, bytes)] = resized.paddings.of_procedures[..] else { panic!("{resized:?}") };
    assert!([a, b].contains(&padded) && bytes == 16, "{resized:?}");
    let larger = map.resized(&resized.paddings);
    let ask = |height| larger.answer(Identifier { root, procedure: d, height });
    let (own, others) = if padded == a { (by_a, by_b) } else { (by_b, by_a) };
    assert_eq!(
        (ask(96 + 16), ask(96), ask(160)),
        (Answer::Precise(own), Answer::Precise(others), Answer::Precise(by_c))
    );
    assert_eq!(larger.precision().paths, [(1, 7)].into());
    // The procedure's own CFA stays where it is.
    assert!(matches!(larger.answer(Identifier { root, procedure: padded, height: 48 }), Answer::Precise(_)));
    // Nothing is gained by frames that cannot be larger, or where the stack must not grow.
    assert_eq!(map.resize(|procedure| procedure == c, Budget::default(), None).paddings, Paddings::default());
    let low = Paddings { of_procedures: vec![(c, 16)], ..Paddings::default() };
    assert_eq!(
        map.resize(|procedure| procedure == c, Budget { growth: 9.0, ..Budget::default() }, None).paddings,
        Paddings::default()
    );
    assert_eq!(map.resized(&low).answer(Identifier { root, procedure: d, height: 176 }), Answer::Precise(by_c));
    let (before, after) = resized.highest;
    assert!(before == 160 && after <= 192, "{resized:?}");
    let out_of_time = map.resize(|_| true, Budget { time: std::time::Duration::ZERO, ..Budget::default() }, None);
    assert!(out_of_time.is_cut && out_of_time.paddings == Paddings::default());
}

/// Three paths to a procedure at one height. With one more height that a stack may have, one of them can be alone; with two more, all.
#[test]
fn the_stack_bounds_how_many_paths_can_be_told_apart() {
    let mut builder = MapBuilder::default();
    let file = builder.module(module(7)).unwrap();
    let root = builder.root(Root::Main);
    let [main, called] = [0x100, 0x200].map(|start| procedure(&mut builder, file, start, "it"));
    let of_main = builder.node(None, main, root);
    for start in [0x300, 0x400, 0x500] {
        let caller = procedure(&mut builder, file, start, "caller");
        let node = builder.node(Some(of_main), caller, root);
        let node = builder.node(Some(node), called, root);
        builder.met(node, 160, Weight { calls: 1, samples: 0 });
    }
    let map = builder.finish();
    let of_growth = |growth: f64| {
        let budget = Budget { growth, ..Budget::default() };
        let larger = map.resized(&map.resize(|_| true, budget, None).paddings);
        (map.most_precise(budget), larger.precision().paths.get(&1).copied().unwrap_or(0))
    };
    assert_eq!([1.0, 1.1, 1.2].map(of_growth), [(0, 0), (1, 1), (3, 3)]);
    // Two of four share a height, two do not.
    let map = known().builder.finish();
    assert_eq!(map.most_precise(Budget { growth: 1.0, ..Budget::default() }), 7);
}

/// Either A's or B's larger frame tells the paths to D apart; A calls itself.
#[test]
fn frames_in_recursion_are_larger_only_if_no_others_will_do() {
    let Known { mut builder, root, procedures: [_, a, b, ..], nodes: [of_main, ..] } = known();
    let of_a = builder.node(Some(of_main), a, root);
    let again = builder.node(Some(of_a), a, root);
    builder.met(again, 80, Weight { calls: 1, samples: 0 });
    let map = builder.finish();
    let resized = map.resize(|_| true, Budget { growth: 1.2, ..Budget::default() }, None);
    assert_eq!((resized.paddings.of_procedures, resized.of_recursive), (vec![(b, 16)], vec![]));
    let resized = map.resize(|procedure| procedure != b, Budget { growth: 1.2, ..Budget::default() }, None);
    assert!(resized.of_recursive == resized.paddings.of_procedures && resized.of_recursive[0].0 == a, "{resized:?}");
    assert_eq!(map.pad_all(|_| true, 16, None).of_recursive, [(a, 16)]);
}

/// The work does not grow with the square of the depth; heights may lie on either side of 0.
#[test]
fn paddings_below_deep_recursion() {
    const DEPTH: i64 = 20_000;
    let Known { mut builder, root, procedures: [_, a, b, _, d], .. } = known();
    let mut at = builder.node(None, a, root);
    for depth in 0..DEPTH {
        builder.met(at, 16 * (depth - DEPTH / 2), Weight { calls: 1, samples: 0 });
        at = builder.node(Some(at), a, root);
    }
    // D below all of that, called by A and by B.
    let by_b = builder.node(Some(at), b, root);
    let nodes = [builder.node(Some(at), d, root), builder.node(Some(by_b), d, root)];
    for node in nodes {
        builder.met(node, 16 * DEPTH, Weight { calls: 1000, samples: 0 });
    }
    let map = builder.finish();
    assert!(matches!(map.answer(Identifier { root, procedure: d, height: 16 * DEPTH }), Answer::Ambiguous(_)));
    let resized = map.resize(|procedure| procedure == b, Budget::default(), None);
    let larger = map.resized(&resized.paddings);
    assert!(nodes.iter().all(|node| larger.told().any(|(_, told)| told == *node)), "{resized:?}");
}

#[test]
fn plans_are_of_builds_and_not_of_maps() {
    let Known { builder, procedures: [_, a, ..], .. } = known();
    let map = builder.finish();
    let plan = map.plan(&Paddings { of_procedures: vec![(a, 48)], ..Paddings::default() });
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.plan");
    plan.write(&path).unwrap();
    assert_eq!(PaddingPlan::read(&path).unwrap(), plan);
    // Another map of the program, in which the procedure has another number.
    let mut other = MapBuilder::default();
    let file = other.module(module(7)).unwrap();
    procedure(&mut other, file, 0x900, "another");
    let number = procedure(&mut other, file, 0x200, "A");
    assert_eq!(
        other.finish().paddings_of(&plan),
        Ok(Paddings { of_procedures: vec![(number, 48)], ..Paddings::default() })
    );
    let mut other = MapBuilder::default();
    other.module(module(8)).unwrap();
    assert!(other.finish().paddings_of(&plan).is_err(), "another build");
    assert_eq!(MapBuilder::default().finish().paddings_of(&plan), Ok(Paddings::default()), "another program");

    let bytes = plan.encode();
    for at in 0..bytes.len() {
        assert!(PaddingPlan::decode(&bytes[..at], &path).is_err());
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        assert!(PaddingPlan::decode(&changed, &path).is_err());
    }
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..20_000 {
        let mut changed = bytes[24..].to_vec();
        let at = random.usize(..changed.len());
        changed[at] = random.u8(..);
        fuzz_padding_plan(&changed);
    }
    let odd = |bytes: u32| {
        let mut odd = plan.clone();
        odd.paddings[0].bytes = bytes;
        PaddingPlan::decode(&odd.encode(), &path)
    };
    assert!(odd(8).is_err() && odd(8192).is_err() && odd(4096).is_ok());
    assert!(PathMap::decode(&bytes, &path).unwrap_err().to_string().contains("not a map of call paths"));
}

#[test]
fn what_could_not_be_counted_is_told_by_the_code() {
    let Known { mut builder, root, procedures: [main, a, b, c, d], nodes: [of_main, .., by_c] } = known();
    let file = builder.module(module(7)).unwrap();
    let [stub, other] = [("memcpy@plt", 0x40), ("E", 0x600)].map(|(name, at)| procedure(&mut builder, file, at, name));
    builder.call(DirectCall { callee: stub, caller: main, height: 32 });
    for caller in [a, b] {
        builder.call(DirectCall { callee: other, caller, height: 24 });
    }
    // It is called from `main`, too, where the stack would be as high as through C.
    builder.call(DirectCall { callee: d, caller: main, height: 160 - 16 });
    let map = builder.finish();
    let ask = |procedure, height| map.answer(Identifier { root, procedure, height });
    assert_eq!(ask(stub, 48), Answer::ByCode(vec![of_main]));
    assert_eq!(ask(stub, 56), Answer::Missing);
    let Answer::ByCode(callers) = ask(other, 72) else { panic!("{:?}", ask(other, 72)) };
    assert_eq!(callers.iter().map(|node| map.nodes()[*node as usize].procedure).collect::<Vec<_>>(), [a, b]);
    assert_eq!(ask(d, 160), Answer::Likely(by_c));

    let Known { mut builder, procedures: [.., d], .. } = known();
    builder.uncounted(d);
    let map = builder.finish();
    let Answer::ByCode(callers) = map.answer(Identifier { root, procedure: d, height: 160 }) else { panic!("counted") };
    assert_eq!(callers.iter().map(|node| map.nodes()[*node as usize].procedure).collect::<Vec<_>>(), [c]);
}

#[test]
fn maps_of_several_runs_add_up_in_any_order() {
    let one = known().builder.finish();
    let mut other = MapBuilder::default();
    // Other numbers for the same things, a thread, and a path of its own.
    let file = other.module(module(7)).unwrap();
    let work = procedure(&mut other, file, 0x800, "work");
    let thread = other.root(Root::Thread(work));
    let of_thread = other.node(None, work, thread);
    other.met(of_thread, 0, Weight { calls: 4, samples: 4 });
    let d = procedure(&mut other, file, 0x500, "D");
    let called = other.node(Some(of_thread), d, thread);
    other.met(called, 96, Weight { calls: 8, samples: 1 });
    let main = procedure(&mut other, file, 0x100, "main");
    let root = other.root(Root::Main);
    let of_main = other.node(None, main, root);
    other.met(of_main, 16, Weight { calls: 1, samples: 3 });
    other.variable(work);
    let other = other.finish();
    let sum = |maps: [&PathMap; 2]| {
        let mut builder = MapBuilder::default();
        maps.into_iter().for_each(|map| builder.add(map).unwrap());
        builder.finish()
    };
    let (there, back) = (sum([&one, &other]), sum([&other, &one]));
    assert_eq!(there.precision(), back.precision());
    assert_eq!(there.precision().calls.values().sum::<u64>(), 91 + 13);
    assert_eq!((there.roots().len(), there.len()), (2, 8));
    let weight = there.heights().iter().find(|(node, _, _)| there.nodes()[*node as usize].parent.is_none());
    assert_eq!(weight.map(|(_, _, weight)| *weight), Some(Weight { calls: 2, samples: 3 }));
    // The same map twice has the same paths.
    assert_eq!(sum([&one, &one]).precision().paths, one.precision().paths);
}

#[test]
fn another_build_of_a_file_is_refused() {
    let mut builder = known().builder;
    assert_eq!(builder.module(module(8)), Err(OtherBuild { path: "/usr/bin/known".into() }));
    let elsewhere = MapModule { path: "/opt/known".into(), ..module(7) };
    assert_eq!(builder.module(elsewhere), Ok(0), "the same build in another place");
    let mut other = MapBuilder::default();
    other.module(module(8)).unwrap();
    assert!(builder.add(&other.finish()).is_err());
}

#[test]
fn a_file_holds_all_of_a_map() {
    let Known { mut builder, procedures: [main, .., d], root, .. } = known();
    builder.variable(d);
    builder.uncounted(main);
    builder.unidentified(Weight { calls: 3, samples: u64::MAX });
    let node = builder.node(None, d, root);
    let most = PathMap::MOST_HIGH as i64;
    [1 - most, -8, most - 1].into_iter().for_each(|height| builder.met(node, height, Weight::default()));
    [i64::MIN, -most, most, i64::MAX]
        .into_iter()
        .for_each(|height| builder.met(node, height, Weight { calls: 1, samples: 0 }));
    let thread = builder.root(Root::Thread(main));
    builder.node(None, main, thread);
    let map = builder.finish();
    assert_eq!(map.unidentified().calls, 3 + 4, "those that no sample can have");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.map");
    map.write(&path).unwrap();
    map.write(&path).unwrap();
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "nothing is left beside it");
    let read = PathMap::read(&path).unwrap();
    assert_eq!((read.modules(), read.procedures()), (map.modules(), map.procedures()));
    assert_eq!((read.roots(), read.nodes(), read.heights()), (map.roots(), map.nodes(), map.heights()));
    assert_eq!((read.variable(), read.uncounted(), read.calls()), (map.variable(), map.uncounted(), map.calls()));
    assert_eq!((read.precision(), read.unidentified()), (map.precision(), map.unidentified()));
    let missing = PathMap::read(&directory.path().join("none")).unwrap_err();
    assert!(matches!(missing, MapError::File { .. }) && missing.to_string().contains("none"), "{missing}");
    let nowhere = map.write(&directory.path().join("none/a.map")).unwrap_err();
    assert!(matches!(nowhere, MapError::Write { .. }), "{nowhere}");
}

#[test]
fn a_file_that_was_cut_or_changed_is_refused() {
    let bytes = known().builder.finish().encode();
    let path = Path::new("changed.map");
    for len in 0..bytes.len() {
        let error = PathMap::decode(&bytes[..len], path).expect_err("cut");
        assert!(error.to_string().contains("changed.map"), "{error}");
    }
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << bit;
            let error = PathMap::decode(&changed, path).expect_err("changed");
            let is_it = match at {
                0..5 => matches!(error, MapError::Magic { .. }),
                5..8 => matches!(error, MapError::Version { .. }),
                8..16 => matches!(error, MapError::Length { .. }),
                _ => matches!(error, MapError::Checksum { .. }),
            };
            assert!(is_it, "byte {at}: {error}");
        }
    }
    let longer = [bytes.as_slice(), &[0]].concat();
    assert!(matches!(PathMap::decode(&longer, path), Err(MapError::Length { .. })));
}

#[test]
fn any_payload_is_a_map_or_an_error() {
    const HEADER_BYTES: usize = 24;
    let payload = known().builder.finish().encode()[HEADER_BYTES..].to_vec();
    fuzz_path_map(&payload);
    let mut random = fastrand::Rng::with_seed(19);
    for _ in 0..20_000 {
        let mut changed = payload.clone();
        for _ in 0..random.usize(1..4) {
            let at = random.usize(..changed.len());
            changed[at] = random.u8(..);
        }
        changed.truncate(random.usize(..=changed.len() + 8));
        fuzz_path_map(&changed);
    }
}

/// A program of which the code alone is known: `main` calls A and B, whose frames have other sizes, and B calls C; `main` calls something through a
/// pointer with one argument, which may be C. Alone takes two, and no call passes those.
struct OfCode {
    builder: MapBuilder,
    root: u32,
    /// main, A, B, C, Alone
    procedures: [u32; 5],
    main: u32,
}

#[test]
fn a_pipe_is_written_into() {
    let map = known().builder.finish();
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || std::fs::read(pipe).unwrap()
    });
    map.write(&pipe).unwrap();
    assert_eq!(reader.join().unwrap(), map.encode());
    assert!(!std::fs::metadata(&pipe).unwrap().is_file());
}

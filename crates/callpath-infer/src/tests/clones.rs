//! Clones: what they tell apart, and that no path of a program with them is taken for another one.

use callpath_format::frame::CloneNumber;

use super::{Known, known, module, procedure};
use crate::clones::{By, Chosen};
use crate::{
    Answer, Budget, CloneLink, ClonedProcedure, Clones, Cloning, DirectCall, Identifier, MapBuilder, MapProcedure,
    PaddingPlan, Paddings, PathMap, Root, Weight,
};

/// Clones in which paths end, so many at most. `leads`: which calls lead to clones; `is_sure`: that these calls do.
fn clones_of(map: &PathMap, leads: impl Fn(u32, u32) -> bool, (is_sure, most): (bool, u16)) -> Clones {
    let cloning = Cloning { leads: &leads, is_sure: &|_, _| is_sure, may_differ: &|_| true, most };
    let mut chosen = Chosen::new(map, cloning);
    chosen.add(map, By::Place, &[]);
    chosen.clones()
}

fn of_clones(clones: Clones) -> Paddings {
    Paddings { clones, ..Paddings::default() }
}

/// The clone that a procedure's calls of another lead to.
fn linked(clones: &Clones, caller: u32, callee: u32) -> CloneNumber {
    let is_it = |link: &&CloneLink| {
        link.caller == caller && clones.procedures[usize::from(link.to.0) - 1].procedure == Some(callee)
    };
    clones.links.iter().find(is_it).map_or(CloneNumber::NONE, |link| link.to)
}

#[test]
fn each_caller_has_a_clone_where_frames_must_not_be_larger() {
    let Known { builder, root, procedures: [main, a, b, _, d], nodes: [_, by_a, by_b, by_c] } = known();
    let map = builder.finish();
    assert_eq!(
        clones_of(&map, |_, callee| callee == a, (false, 9)),
        Clones::default(),
        "none of D's calls may lead elsewhere"
    );
    assert_eq!(clones_of(&map, |_, _| true, (false, 1)).procedures.len(), 1);
    let clones = clones_of(&map, |_, _| true, (false, 9));
    assert_eq!((clones.procedures.len(), clones.links.len()), (2, 2));
    let paddings = of_clones(clones.clone());
    let of_callers = [a, b].map(|caller| linked(&clones, caller, d));
    let cloned = map.resized(&paddings);
    let ask = |map: &PathMap, clone: CloneNumber, height: i64| {
        let height = clone.height(height).expect("no stack is that high");
        map.answer(Identifier { root, procedure: d, height }).clone_of_nodes()
    };
    for (clone, node) in of_callers.into_iter().zip([by_a, by_b]) {
        assert_eq!(ask(&cloned, clone, 96), (true, vec![node]));
    }
    // Where a clone could not be made.
    assert_eq!(ask(&cloned, CloneNumber::NONE, 96), (false, vec![by_a, by_b]));
    assert_eq!(ask(&cloned, CloneNumber::NONE, 160), (true, vec![by_c]));
    assert_eq!(ask(&cloned, of_callers[0], 160), (false, vec![]));
    // Each path counts once.
    assert_eq!((cloned.precision().paths, cloned.precision().calls), ([(1, 7)].into(), [(1, 91)].into()));
    // Code that was never met may call A, whose clone of D is in doubt then; B's is not.
    let mut builder = known().builder;
    let caller = procedure(&mut builder, 0, 0x600, "never met");
    for call in [(caller, main, 16), (a, caller, 16)] {
        builder.call(DirectCall { callee: call.0, caller: call.1, height: call.2 });
    }
    let other = builder.finish().resized(&paddings);
    assert_eq!(of_callers.map(|clone| ask(&other, clone, 96).0), [false, true]);
}

impl Answer<'_> {
    /// Whether it is precise, and its nodes.
    fn clone_of_nodes(&self) -> (bool, Vec<u32>) {
        match self {
            Answer::Precise(node) => (true, vec![*node]),
            Answer::Likely(node) => (false, vec![*node]),
            Answer::Ambiguous(nodes) => (false, nodes.to_vec()),
            Answer::ByCode(_) | Answer::Missing => (false, Vec::new()),
        }
    }
}

#[test]
fn plans_have_clones_by_where_procedures_begin() {
    let Known { builder, procedures: [_, a, b, _, d], .. } = known();
    let map = builder.finish();
    let paddings = of_clones(clones_of(&map, |_, _| true, (true, 9)));
    let plan = map.plan(&paddings);
    let path = std::path::Path::new("a.plan");
    assert_eq!(PaddingPlan::decode(&plan.encode(), path).unwrap(), plan);
    assert_eq!(map.paddings_of(&plan), Ok(paddings.clone()));
    // Another map of the program, which has not met A.
    let mut other = MapBuilder::default();
    let file = other.module(module(7)).unwrap();
    let [other_d, other_b] = [0x500, 0x300].map(|start| procedure(&mut other, file, start, "it"));
    let found = other.finish().paddings_of(&plan).unwrap().clones;
    assert_eq!(linked(&found, other_b, other_d), linked(&paddings.clones, b, d));
    assert_eq!((found.procedures.len(), found.links.len()), (2, 1));
    assert_ne!(linked(&paddings.clones, a, d), CloneNumber::NONE);
    // Calls of clones that are none, or of another procedure than the caller's clone is.
    let changed = |change: &dyn Fn(&mut PaddingPlan)| {
        let mut plan = plan.clone();
        change(&mut plan);
        PaddingPlan::decode(&plan.encode(), path).map(drop).map_err(|error| error.to_string())
    };
    for change in [
        (&|plan: &mut PaddingPlan| plan.links[0].to = CloneNumber(3)) as &dyn Fn(&mut PaddingPlan),
        &|plan| plan.links[0].to = CloneNumber::NONE,
        &|plan| plan.links[0].from = CloneNumber(1),
        &|plan| plan.links.swap(0, 1),
        &|plan| plan.clones[0].module = 1,
        &|plan| plan.links[0].module = 1,
    ] {
        assert!(changed(change).is_err_and(|error| error.contains("a.plan") && error.contains("clone")));
    }
}

/// A node as [`no_path_is_taken_for_another_one`] has it.
type Met = (u32, u32, i64, Vec<(u32, u32, u32, bool)>);

/// How a procedure calls another one.
#[derive(Clone, Copy, PartialEq)]
enum How {
    Named,
    Pointer,
    Tail,
}

/// Programs at random: calls by name, through pointers and by jumps, of some clones that could not be made. Whichever clone a path ends in: the
/// map has the path there, and a precise one is the only one that was seen.
#[test]
fn no_path_is_taken_for_another_one() {
    let (mut told_apart, mut in_clones, mut precisely) = (0, 0, 0);
    for seed in 0..600 {
        let mut random = fastrand::Rng::with_seed(seed);
        let count = random.u32(3..9);
        let mut builder = MapBuilder::default();
        let files = [7, 8].map(|at| {
            builder.module(crate::MapModule { path: format!("/usr/lib/{at}").into(), identity: vec![1, at] }).unwrap()
        });
        let procedures: Vec<u32> = (0..count)
            .map(|at| {
                let module = files[usize::from(random.u8(..) < 40)];
                builder.procedure(MapProcedure { module, start: 0x100 * u64::from(at), name: "it".to_owned() })
            })
            .collect();
        let root = builder.root(Root::Main);
        // How far the stack grows.
        let mut edges = Vec::new();
        for caller in &procedures {
            for callee in &procedures {
                if random.u8(..) < 120 {
                    let how = [How::Named, How::Named, How::Named, How::Pointer, How::Tail][random.usize(..5)];
                    edges.push((*caller, *callee, 16 * random.i64(1..4), how));
                }
            }
        }
        let of_kind = |how: How| edges.iter().filter(move |edge| edge.3 == how);
        let named: Vec<(u32, u32)> = of_kind(How::Named).map(|edge| (edge.0, edge.1)).collect();
        for &(caller, callee, height, _) in of_kind(How::Named) {
            builder.call(DirectCall { callee, caller, height });
            for tail in of_kind(How::Tail).filter(|tail| tail.0 == callee) {
                builder.call(DirectCall { callee: tail.1, caller, height });
            }
        }
        let of_main = builder.node(None, procedures[0], root);
        builder.met(of_main, 16, Weight { calls: 1, samples: 0 });
        // By node: its procedure and height, and the calls that lead there: of which node and procedure, what they call, whether by name.
        let mut nodes: Vec<Met> = vec![(of_main, procedures[0], 16, vec![])];
        for _ in 0..random.usize(5..60) {
            let (node, caller, height, path) = nodes[random.usize(..nodes.len())].clone();
            let from = edges.iter().filter(|edge| edge.0 == caller);
            let Some(&(_, callee, grows, how)) = random.choice(from.collect::<Vec<_>>()) else { continue };
            // What jumps there is not on the stack.
            let (parent, by, grows) = match (how, path.split_last()) {
                (How::Tail, None) => continue,
                (How::Tail, Some(((parent, by, ..), path))) => {
                    (*parent, path.iter().copied().chain([(*parent, *by, callee, false)]).collect::<Vec<_>>(), 0)
                }
                (how, _) => {
                    let call = (node, caller, callee, how == How::Named);
                    (node, path.iter().copied().chain([call]).collect(), grows)
                }
            };
            let child = builder.node(Some(parent), callee, root);
            if nodes.iter().any(|(known, ..)| *known == child) {
                continue;
            }
            builder.met(child, height + grows, Weight { calls: random.u64(1..9), samples: 0 });
            nodes.push((child, callee, height + grows, by));
        }
        let map = builder.finish();
        let most = [0, 1, 3, 2000][random.usize(..4)];
        // It may be taken for a call what is none.
        let is_strict = random.bool();
        let leads = |caller, callee| !is_strict || named.contains(&(caller, callee));
        // By pointers, by tail calls of what is called.
        let mut in_other_ways: Vec<(u32, u32)> = of_kind(How::Pointer).map(|edge| (edge.0, edge.1)).collect();
        for caller in &procedures {
            let called = edges.iter().filter(|edge| edge.0 == *caller && edge.3 != How::Tail).map(|edge| edge.1);
            let mut open: Vec<u32> = called.collect();
            let mut met = open.clone();
            while let Some(jumps) = open.pop() {
                for to in of_kind(How::Tail).filter(|tail| tail.0 == jumps).map(|tail| tail.1) {
                    in_other_ways.push((*caller, to));
                    if !met.contains(&to) {
                        met.push(to);
                        open.push(to);
                    }
                }
            }
        }
        let is_sure = |caller, callee| named.contains(&(caller, callee)) && !in_other_ways.contains(&(caller, callee));
        let differs = random.u32(..);
        let may_differ = |procedure: u32| differs >> procedure & 1 == 0;
        let cloning = Cloning { leads: &leads, is_sure: &is_sure, may_differ: &may_differ, most };
        let mut chosen = Chosen::new(&map, cloning);
        let units = |random: &mut fastrand::Rng| 16 * random.u32(..4);
        let bytes: Vec<u32> = (0..count).map(|_| if random.bool() { units(&mut random) } else { 0 }).collect();
        let of_procedures: Vec<(u32, u32)> = (0..).zip(bytes.iter().copied()).filter(|(_, bytes)| *bytes > 0).collect();
        let larger = map.resized(&Paddings { of_procedures: of_procedures.clone(), ..Paddings::default() });
        chosen.add(&larger, By::PlaceOrHeight, &bytes);
        let sized = chosen.clones().procedures.into_iter().map(|clone| match clone.procedure {
            Some(procedure) if !may_differ(procedure) => clone.bytes,
            _ => units(&mut random),
        });
        chosen.set_bytes(&sized.collect::<Vec<_>>());
        if random.bool() {
            let so_far = Paddings { of_procedures: of_procedures.clone(), clones: chosen.clones() };
            chosen.add(&map.resized(&so_far), By::Place, &bytes);
        }
        let mut clones = chosen.clones();
        assert!(clones.procedures.len() <= usize::from(most));
        let is_made: Vec<bool> = clones.procedures.iter().map(|_| random.u8(..) < 230).collect();
        let made = |clone: CloneNumber| clone == CloneNumber::NONE || is_made[usize::from(clone.0) - 1];
        clones.links.retain(|link| made(link.from) && made(link.to));
        // Not all calls of a caller could be led there.
        clones.links.iter_mut().for_each(|link| link.is_sure &= random.u8(..) < 230);
        let cloned = map.resized(&Paddings { of_procedures, clones: clones.clone() });
        let [before, after] = [&map, &cloned].map(|map| map.precision().paths);
        assert_eq!(before.values().sum::<u64>(), after.values().sum::<u64>());
        assert_eq!(map.precision().calls.values().sum::<u64>(), cloned.precision().calls.values().sum::<u64>());
        let precise = |degrees: &crate::Degrees| degrees.get(&1).copied().unwrap_or(0);
        told_apart += precise(&after).saturating_sub(precise(&before));
        for (node, procedure, height, path) in &nodes {
            let (mut from, mut height) = (CloneNumber::NONE, *height);
            for (_, caller, callee, is_named) in path {
                height += i64::from(match from {
                    CloneNumber::NONE => bytes[*caller as usize],
                    clone => clones.procedures[usize::from(clone.0) - 1].bytes,
                });
                let link = clones.links.iter().find(|link| {
                    (link.caller, link.from) == (*caller, from)
                        && clones.procedures[usize::from(link.to.0) - 1].procedure == Some(*callee)
                });
                // A procedure may call another in both ways.
                let is_led = |link: &&CloneLink| {
                    assert!(!link.is_sure || *is_named);
                    link.is_sure || *is_named && random.u8(..) < 230
                };
                from = link.filter(is_led).map_or(CloneNumber::NONE, |link| link.to);
                // A caught exception goes on in the procedure's own copy.
                if !may_differ(*callee) && random.bool() {
                    from = CloneNumber::NONE;
                }
            }
            in_clones += u32::from(from != CloneNumber::NONE);
            let height = from.height(height).unwrap();
            let identifier = Identifier { root, procedure: *procedure, height };
            let found = cloned.answer(identifier);
            assert!(cloned.seen_paths(identifier).contains(node), "{seed}: {node} in {from:?}, not {found:?}");
            match found {
                Answer::Precise(found) => {
                    precisely += 1;
                    assert_eq!(found, *node, "{seed}, in {from:?}");
                }
                Answer::Ambiguous(several) => assert!(several.contains(node), "{seed}: {node}, not {several:?}"),
                Answer::Likely(_) => {}
                Answer::ByCode(_) | Answer::Missing => panic!("{seed}: {node} in {from:?}: {found:?}"),
            }
        }
    }
    assert!(told_apart > 300 && in_clones > 300, "{told_apart} paths, {in_clones} times in clones");
    assert!(precisely > 3000, "{precisely}");
}

/// Where a path may be at more places than are followed, it is at no known height, and so is what is below it.
#[test]
fn a_path_that_may_be_anywhere_has_no_identifier() {
    for calls in [6, 7, 12] {
        let mut builder = MapBuilder::default();
        let file = builder.module(module(7)).unwrap();
        let procedures: Vec<u32> =
            (0..=calls + 1).map(|at| procedure(&mut builder, file, 0x100 * (at + 1), "it")).collect();
        let root = builder.root(Root::Main);
        let mut parent = None;
        for (procedure, height) in procedures.iter().zip((0..).step_by(4096)) {
            let node = builder.node(parent, *procedure, root);
            builder.met(node, height, Weight { calls: 1, samples: 0 });
            parent = Some(node);
        }
        let map = builder.finish();
        // Each of them but the first and the last may be met in its clone, whose frame is larger, and in itself.
        let cloned = (1..=calls as u32).map(|at| ClonedProcedure { procedure: Some(at), bytes: 16 << at });
        let links = (1..=calls as u16).map(|at| CloneLink {
            caller: u32::from(at) - 1,
            from: CloneNumber(at - 1),
            to: CloneNumber(at),
            is_sure: false,
        });
        let all = (1..=calls as u16)
            .map(|at| CloneLink { from: CloneNumber::NONE, ..links.clone().nth(usize::from(at) - 1).unwrap() });
        let mut links: Vec<CloneLink> = links.clone().chain(all).collect();
        links.sort_unstable();
        links.dedup();
        let cloned = map.resized(&of_clones(Clones { procedures: cloned.collect(), links }));
        let places = |node: u32| cloned.heights().iter().filter(|(of, ..)| *of == node).count();
        // 2 for each call that leads to a clone: 64 at most.
        assert_eq!((places(5), places(6)), (32, 64));
        assert_eq!((7..procedures.len() as u32).map(places).max(), (calls == 6).then_some(64).or(Some(0)));
        assert_eq!(
            cloned.precision().unidentified_paths,
            (procedures.len() as u64).saturating_sub(if calls == 6 { 8 } else { 7 })
        );
    }
}

/// Paths that lead through a pointer are told apart where a clone above it has a frame of another size: A's for each of its callers, B and C,
/// where all of A's calls are through pointers.
#[test]
fn clones_of_other_sizes_tell_apart_what_pointers_lead_to() {
    const CALLEES: u64 = 20;
    let mut builder = MapBuilder::default();
    let file = builder.module(module(7)).unwrap();
    let [main, b, c, a] = [0x100, 0x200, 0x300, 0x400].map(|start| procedure(&mut builder, file, start, "it"));
    let callees: Vec<u32> = (0..CALLEES).map(|at| procedure(&mut builder, file, 0x1000 + 16 * at, "called")).collect();
    let root = builder.root(Root::Main);
    let weight = Weight { calls: 1, samples: 0 };
    let mut met = |parent, procedure, height| {
        let node = builder.node(parent, procedure, root);
        builder.met(node, height, weight);
        node
    };
    let of_main = met(None, main, 16);
    let mut nodes = Vec::new();
    for caller in [b, c] {
        let by = met(Some(of_main), caller, 1000);
        let of_a = met(Some(by), a, 1048);
        nodes.push(callees.iter().map(|callee| met(Some(of_a), *callee, 1096)).collect::<Vec<_>>());
    }
    let map = builder.finish();
    assert_eq!(map.precision().paths, [(1, 3), (2, 2 * (1 + CALLEES))].into());
    let cloning = Cloning {
        leads: &|caller, callee| [b, c].contains(&caller) && callee == a,
        is_sure: &|_, _| true,
        may_differ: &|procedure| procedure == a,
        most: 9,
    };
    // No procedure's frame may be larger but A's.
    let resize = |cloning| map.resize(|procedure| procedure == a, Budget { growth: 1.2, ..Budget::default() }, cloning);
    let resized = resize(Some(cloning));
    assert_eq!(resized.paddings.clones.procedures.len(), 2, "{resized:?}");
    let cloned = map.resized(&resized.paddings);
    assert_eq!(cloned.precision().paths, [(1, 5 + 2 * CALLEES)].into(), "{resized:?}");
    let [by_b, by_c] = [b, c].map(|caller| linked(&resized.paddings.clones, caller, a));
    for (clone, nodes) in [by_b, by_c].into_iter().zip(nodes) {
        let bytes = resized.paddings.clones.procedures[usize::from(clone.0) - 1].bytes;
        for (procedure, node) in callees.iter().zip(nodes) {
            let identifier = Identifier { root, procedure: *procedure, height: 1096 + i64::from(bytes) };
            assert_eq!(cloned.answer(identifier), Answer::Precise(node));
        }
    }
    assert_eq!(
        resized.highest.1,
        cloned.heights().iter().map(|(_, height, _)| CloneNumber::of_height(*height).1).max().unwrap()
    );
    let plan = map.plan(&resized.paddings);
    assert_eq!(map.paddings_of(&PaddingPlan::decode(&plan.encode(), "a".as_ref()).unwrap()), Ok(resized.paddings));
    assert_eq!(resize(None).paddings, Paddings::default());
}

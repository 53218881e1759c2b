//! Learns a map from a measurement: from the calls that it has counted and the samples that it has taken.
//!
//! A frame's CFA is as far below that of its caller as the caller's code says of the call, so that contexts tell heights: nothing
//! needs to be measured for that, and copies that count calls may have larger frames.
//!
//! ```text
//! height(callee) = height(caller) + what the caller has on the stack at the call
//! height(what the kernel or the loader starts) = -8: rsp there is the fixed place, and nothing was pushed
//! height(what a thread begins with) = 0
//! ```

use callpath_format::frame::FrameKey;
use callpath_infer::{DirectCall, MapBuilder, MapProcedure, OtherBuild, PathMap, Root, Weight};
use callpath_measurement::{FULL_ROOT, MeasuredPaths, Measurement, PARTIAL_ROOT, ThreadProfile, plain};
use callpath_schema::MetricId;
use rustc_hash::FxHashSet;

use super::code::{Code, Links, ProcedureAt, Read};
use super::linked::{Linked, Order, Place};
use crate::attribute::{AttributeOptions, Progress};

/// How high the stack is where a program or the loader begins, bytes: see above.
pub(super) const AT_START: i64 = -8;

/// What was learned.
pub struct Trained {
    /// The map.
    pub map: PathMap,
    /// What could not be learned, in sentences.
    pub notes: Vec<String>,
}

/// Learns from a measurement, after what is in `builder` already.
///
/// # Errors
/// If the builder's map is of other builds of the program's code.
pub fn train(
    measurement: &Measurement,
    mut builder: MapBuilder,
    options: &AttributeOptions,
    progress: Progress<'_>,
) -> Result<Trained, OtherBuild> {
    let mut code = Code::default();
    let modules: Vec<Vec<Option<usize>>> = measurement.processes.iter().map(|process| code.enter(process)).collect();
    code.read(Read::AllCalls, options, progress);
    let mut numbers = Vec::with_capacity(code.modules.len());
    for module in &code.modules {
        numbers.push(builder.module(module.record.clone())?);
    }
    // What cannot be read of it counts as not counted.
    let (exact, unreadable) = match measurement.read_paths() {
        Ok(exact) => (exact, None),
        Err(error) => (MeasuredPaths::default(), Some(error)),
    };
    let lost = exact.unreadable.iter().chain(&unreadable).map(|error| {
        format!(
            "failed to {}: the procedures that it has count as not counted, and their paths are no more than likely",
            plain(error)
        )
    });
    let counted = exact.processes.iter().flat_map(|(process, counts)| {
        let modules = &modules[*process];
        counts.procedures.iter().filter_map(|counted| {
            let module = (*modules.get(usize::from(counted.module.0))?)?;
            Some(ProcedureAt { module, start: counted.entry })
        })
    });
    let counted = counted.collect();
    let mut learner =
        Learner { code: &code, numbers, builder, met: FxHashSet::default(), counted, links: Links::default() };
    for (process, modules) in measurement.processes.iter().zip(&modules) {
        let metrics = &measurement.session_of(process).metrics;
        let calls = metrics.iter().position(|metric| metric.id == Some(MetricId::CALLS));
        for thread in &process.threads {
            learner.learn(thread, modules, calls);
        }
    }
    learner.end();
    let map = learner.builder.finish();
    let notes = code.modules.iter().filter_map(|module| module.trouble.clone()).chain(lost).collect();
    Ok(Trained { map, notes })
}

struct Learner<'c> {
    code: &'c Code,
    /// Of the code's modules, in the map.
    numbers: Vec<u32>,
    builder: MapBuilder,
    links: Links,
    /// The procedures that were met.
    met: FxHashSet<ProcedureAt>,
    /// Those whose calls were counted, whether or not there were any.
    counted: FxHashSet<ProcedureAt>,
}

/// What is known of a frame in its context.
#[derive(Clone, Copy)]
struct Known {
    node: u32,
    /// Of its procedure's CFA.
    height: Option<i64>,
}

impl Learner<'_> {
    fn procedure(&mut self, at: ProcedureAt) -> u32 {
        let name = self.code.name(at);
        self.builder.procedure(MapProcedure { module: self.numbers[at.module], start: at.start.0, name })
    }

    fn learn(&mut self, thread: &ThreadProfile, modules: &[Option<usize>], calls: Option<usize>) {
        let begins = thread.start.map(|start| self.code.procedure(modules, start));
        let root = match begins {
            None => Root::Main,
            Some(Some(begins)) => Root::Thread(self.procedure(begins)),
            // It began in code of no file.
            Some(None) => return,
        };
        let root = self.builder.root(root);
        let nodes = thread.tree.nodes();
        let mut known: Vec<Option<Known>> = Vec::with_capacity(nodes.len());
        // What begins a coroutine's stack is in no procedure: what it calls is the first of a path, at no known height.
        let is_unnamed_start = |index: u32| {
            let node = &nodes[index as usize];
            index > PARTIAL_ROOT && node.parent == FULL_ROOT && self.code.is_of_no_procedure(modules, node.key)
        };
        let starts_below: Vec<bool> = nodes.iter().map(|node| is_unnamed_start(node.parent)).collect();
        for (index, node) in nodes.iter().enumerate() {
            let own = || {
                let calls = calls.and_then(|calls| {
                    thread.tree.values(index as u32).find_map(|(metric, value)| (metric == calls).then_some(value))
                });
                Weight { calls: calls.unwrap_or(0), samples: node.samples }
            };
            let is_root = index <= PARTIAL_ROOT as usize;
            let is_outermost = node.parent == FULL_ROOT || starts_below[index];
            let caller = if is_root { None } else { known[node.parent as usize] };
            let is_linked = is_root
                || is_outermost
                || self.links.is_possible(self.code, modules, (nodes[node.parent as usize].key, node.key));
            let at = if is_root || !is_linked { None } else { self.code.procedure(modules, node.key) };
            let Some(at) = at.filter(|_| is_outermost || caller.is_some()) else {
                known.push(None);
                self.builder.unidentified(own());
                continue;
            };
            let weight = own();
            self.met.insert(at);
            let procedure = self.procedure(at);
            let context = self.builder.node(caller.map(|caller| caller.node), procedure, root);
            let height = match caller {
                Some(caller) => self.below(caller, modules, nodes[node.parent as usize].key),
                None if starts_below[index] => None,
                None if begins.is_none() => self.code.is_entry(at).then_some(AT_START),
                None => None,
            };
            // What began the thread may be called again, deeper.
            let height = height.or_else(|| (begins == Some(Some(at)) && !starts_below[index]).then_some(0));
            match height {
                Some(height) => self.builder.met(context, height, weight),
                None => self.builder.unidentified(weight),
            }
            known.push(Some(Known { node: context, height }));
        }
    }

    /// Adds what is known of the procedures that were met, and the calls by which the code may lead from one to the other.
    fn end(&mut self) {
        let code = self.code;
        let (modules, bound) = code.bound();
        let linked = Linked::of(&bound, Order::Unknown);
        let mut met: Vec<ProcedureAt> = self.met.drain().collect();
        met.sort_unstable_by_key(|at| (at.module, at.start));
        let place = |at: &ProcedureAt| Some(Place { file: modules.binary_search(&at.module).ok()?, entry: at.start });
        let mut calls = linked.chains(&met.iter().filter_map(place).collect());
        calls.sort_unstable_by_key(|call| (call.caller, call.callee, call.height));
        for at in met {
            self.noted(at);
        }
        for call in calls {
            let [caller, callee] = [call.caller, call.callee]
                .map(|place| self.noted(ProcedureAt { module: modules[place.file], start: place.entry }));
            self.builder.call(DirectCall { callee, caller, height: call.height });
        }
    }

    /// A procedure; the builder learns if its calls were not counted.
    fn noted(&mut self, at: ProcedureAt) -> u32 {
        let procedure = self.procedure(at);
        if !self.counted.contains(&at) {
            self.builder.uncounted(procedure);
        }
        procedure
    }

    /// The height of what a frame calls.
    fn below(&mut self, caller: Known, modules: &[Option<usize>], call: FrameKey) -> Option<i64> {
        let height = caller.height?;
        let of_call = self.code.call_height(modules, call)?;
        if of_call.is_none()
            && let Some(procedure) = self.code.procedure(modules, call)
        {
            let procedure = self.procedure(procedure);
            self.builder.variable(procedure);
        }
        height.checked_add(of_call?)
    }
}

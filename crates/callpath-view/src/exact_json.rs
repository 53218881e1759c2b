//! What was counted exactly as JSON, schema 2: paths or blocks below their procedures. It leaves nothing out.

use std::io::{self, Write};

use callpath_db::exact::{
    ExactBlock, ExactCall, ExactCallers, ExactCost, ExactCounts, ExactPath, ExactPlace, ExactProcedure, ExactQuality,
    ExactRanking, ExactSampling, ExactTiming, InContext, Unmeasured,
};
use callpath_db::{Profile, RunInfo};
use serde_json::{Map, Value, json};

use crate::exact_label::{self, loop_words, trail};
use crate::json::{SCHEMA, exact_quality, run, without_actions};

/// What is written.
#[derive(Clone, Copy)]
pub struct ExactJson<'a> {
    /// All that was counted.
    pub counts: &'a ExactCounts,
    /// The procedures that are written, by their indices; the root stands for these.
    pub procedures: &'a [usize],
    /// By what paths and blocks may be left out.
    pub ranking: ExactRanking,
    /// Paths and blocks with less than this share of all of that, from 0 to 1, are left out.
    pub min_share: f64,
}

/// Writes each procedure's paths, and a newline.
pub fn paths(written: ExactJson<'_>, out: &mut dyn Write) -> io::Result<()> {
    let costs = |procedure: &ExactProcedure| procedure.paths.iter().map(|path| procedure.cost_of(path)).collect();
    Written::of(written).write("paths", (costs, Written::paths_of), out)
}

/// Writes each procedure's blocks with the edges from them, and a newline.
pub fn blocks(written: ExactJson<'_>, out: &mut dyn Write) -> io::Result<()> {
    Written::of(written).write("blocks", (ExactProcedure::block_costs, Written::blocks_of), out)
}

/// What an object of exact counts begins with.
pub(crate) struct Head<'a> {
    /// Its name.
    pub(crate) view: &'a str,
    /// The columns.
    pub(crate) metrics: [&'a str; 2],
    pub(crate) quality: &'a ExactQuality,
    pub(crate) info: &'a RunInfo,
    pub(crate) notes: &'a [String],
}

impl Head<'_> {
    /// Writes all up to `run`, without a comma behind it.
    pub(crate) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let metrics = self
            .metrics
            .map(|name| json!({ "name": name, "unit": "count", "kind": "sum", "type": "integer", "source": "exact" }));
        let (view, metrics) = (self.view, Value::from(metrics.to_vec()));
        write!(out, "{{\"schema\":{SCHEMA},\"view\":\"{view}\",\n\"metrics\":{metrics},")?;
        let quality = json!({ "exact": exact_quality(self.quality) }).to_string();
        write!(out, "\n\"quality\":{},\n\"run\":", without_actions(&quality))?;
        let mut profile = Profile::new(Vec::new());
        profile.info = self.info.clone();
        profile.info.notes.extend(self.notes.iter().cloned());
        let mut ran = Vec::new();
        run(&mut ran, &profile)?;
        out.write_all(&ran)
    }
}

/// Nodes without their place in the array, one after the other: there may be millions of paths.
type Children<'a> = Box<dyn Iterator<Item = Map<String, Value>> + 'a>;

/// What each child of a procedure costs, and those children that are shown.
type Below<'a> = (fn(&ExactProcedure) -> Vec<ExactCost>, fn(Written<'a>, &'a ExactProcedure) -> Children<'a>);

/// See [`ExactJson`].
#[derive(Clone, Copy)]
struct Written<'a> {
    counts: &'a ExactCounts,
    procedures: &'a [usize],
    ranking: ExactRanking,
    /// What costs less, by the ranking, is left out.
    least: f64,
}

impl<'a> Written<'a> {
    fn of(written: ExactJson<'a>) -> Written<'a> {
        let ExactJson { counts, procedures, ranking, min_share } = written;
        Written { counts, procedures, ranking, least: min_share * ranking.whole(counts) as f64 }
    }

    fn write(self, view: &str, (costs, children): Below<'a>, out: &mut dyn Write) -> io::Result<()> {
        let counts = self.counts;
        Head {
            view,
            metrics: ["instructions", "executions"],
            quality: &counts.quality,
            info: &counts.info,
            notes: &counts.notes,
        }
        .write(out)?;
        if let Some(sampling) = &counts.sampling {
            write!(out, ",\n\"sampled\":{}", without_actions(&sampled(counts, sampling).to_string()))?;
        }
        let measured: Vec<Value> = (0..counts.timings.len()).map(|number| timed(counts, number)).collect();
        if let Some(at) = counts.timings.iter().position(ExactTiming::is_wall_time) {
            write!(out, ",\n\"timed\":{}", without_actions(&measured[at].to_string()))?;
        }
        if !measured.is_empty() {
            write!(out, ",\n\"measured\":{}", without_actions(&Value::from(measured).to_string()))?;
        }
        let of_procedure = |at: &usize| {
            let procedure = counts.procedures.get(*at)?;
            let costs = costs(procedure);
            let left_out: ExactCost = costs.iter().copied().filter(|cost| !self.is_shown(*cost)).sum();
            Some((procedure, costs.into_iter().sum::<ExactCost>(), left_out))
        };
        let procedures: Vec<_> = self.procedures.iter().filter_map(of_procedure).collect();
        let total = procedures.iter().map(|(_, cost, _)| *cost).sum();
        let root = node("root", &counts.info.program, [total, ExactCost::default(), ExactCost::default()]);
        write!(out, ",\n\"nodes\":[\n{}", without_actions(&Value::from(root).to_string()))?;
        let mut next = 1usize;
        for (procedure, cost, left_out) in procedures {
            // Paths and blocks are a procedure's own code: what is no child of it here is left out.
            let mut above = node("procedure", &procedure.name, [cost, left_out, cost]);
            above.insert("parent".into(), 0.into());
            above.insert("module".into(), procedure.module.as_str().into());
            insert_place(&mut above, procedure.place.as_ref());
            above.insert("address".into(), hex(procedure.address));
            above.insert("entries".into(), procedure.entries().into());
            if counts.sampling.is_some() {
                let (unexecuted, outside) = (procedure.sampled_unexecuted, procedure.sampled_outside);
                above.insert("sampled".into(), procedure.sampled().into());
                above.insert("undivided".into(), json!({ "unexecuted": unexecuted, "outside": outside }));
            }
            match &procedure.flow {
                Some(flow) => drop(above.insert("cut_short".into(), flow.cut_short.into())),
                None => {
                    if let Some(activations) = procedure.activations {
                        above.insert("cut_short".into(), activations.cut_short.into());
                    }
                    above.insert("possible".into(), procedure.possible.into());
                    above.insert("cuts".into(), procedure.cuts.into());
                }
            }
            let number = next;
            let below = children(self, procedure).map(|mut child| {
                child.insert("parent".into(), number.into());
                child
            });
            for node in std::iter::once(above).chain(below) {
                write!(out, ",\n{}", without_actions(&Value::from(node).to_string()))?;
                next += 1;
            }
        }
        out.write_all(b"\n]}\n")
    }

    fn is_shown(&self, cost: ExactCost) -> bool {
        self.ranking.of(cost) as f64 >= self.least
    }

    fn paths_of(self, procedure: &'a ExactProcedure) -> Children<'a> {
        let of = move |path: &ExactPath| {
            let cost = procedure.cost_of(path);
            if !self.is_shown(cost) {
                return None;
            }
            let mut child = node("path", &trail(procedure, path), [cost; 3]);
            child.insert("path".into(), path.number.into());
            child.insert("category".into(), path.category.word().into());
            let blocks = procedure.blocks_of(path);
            child.insert("blocks".into(), blocks.map(|block| hex(block.code.start)).collect());
            let lines = procedure.blocks_of(path).map(|block| place(block.place.as_ref()));
            child.insert("lines".into(), lines.collect());
            let calls = procedure.blocks_of(path).flat_map(|block| &block.calls);
            child.insert("calls".into(), calls.map(call).collect());
            if let Some(its) = procedure.loop_of(path) {
                let place = place(its.place.as_ref());
                let json = json!({ "name": loop_words(its), "place": place, "ordinal": its.ordinal, "address": hex(its.address) });
                child.insert("loop".into(), json);
            }
            if self.counts.sampling.is_some() {
                child.insert("sampled_estimate".into(), path.sampled.into());
            }
            for (number, timing) in self.counts.timings.iter().enumerate() {
                let time = time((number, timing), (procedure, path));
                // A name of a file is no reason to lose what is there.
                child.entry(timing.name.replace('-', "_")).or_insert(time);
            }
            if let Some(callers) = &self.counts.callers {
                child.insert("contexts".into(), path.contexts.iter().map(|its| context(callers, its)).collect());
            }
            Some(child)
        };
        Box::new(procedure.paths.iter().filter_map(of))
    }

    fn blocks_of(self, procedure: &'a ExactProcedure) -> Children<'a> {
        let edges = procedure.edges();
        let start = |block: &u32| procedure.blocks.get(*block as usize).map(|block| hex(block.code.start));
        let executions = procedure.block_executions();
        let blocks = (0u32..).zip(procedure.blocks.iter().zip(procedure.block_costs()));
        let mut shown: Vec<(u32, (&ExactBlock, ExactCost))> =
            blocks.filter(|(_, (_, cost))| self.is_shown(*cost)).collect();
        shown.sort_by_key(|(_, (_, cost))| std::cmp::Reverse(cost.instructions));
        let of = move |(number, (block, cost)): (u32, (&ExactBlock, ExactCost))| {
            let name = block.place.as_ref().map_or_else(|| format!("{:#x}", block.code.start), exact_label::place);
            let mut child = node("block", &name, [cost; 3]);
            insert_place(&mut child, block.place.as_ref());
            child.insert("address".into(), hex(block.code.start));
            child.insert("end".into(), hex(block.code.end));
            child.insert("lines".into(), block.lines.iter().map(|line| place(Some(line))).collect());
            child.insert("calls".into(), block.calls.iter().map(call).collect());
            if self.counts.sampling.is_some() {
                child.insert("sampled".into(), block.sampled.into());
            }
            let from = edges.iter().filter(|edge| edge.from == number).map(|edge| {
                let to: Vec<Value> = edge.to.iter().filter_map(start).collect();
                let mut json = json!({ "to": to, "is_back": edge.is_back, "executions": edge.executions.least });
                if let (false, Some(json)) = (edge.executions.is_exact(), json.as_object_mut()) {
                    json.insert("most".into(), edge.executions.most.into());
                }
                json
            });
            child.insert("edges".into(), from.collect());
            if let Some(executions) = executions.get(number as usize).filter(|executions| !executions.is_exact()) {
                child.insert("most".into(), executions.most.into());
            }
            child
        };
        Box::new(shown.into_iter().map(of))
    }
}

/// `costs`: inclusive, exclusive and self.
fn node(kind: &str, name: &str, costs: [ExactCost; 3]) -> Map<String, Value> {
    node_with(kind, name, costs.map(|cost| [cost.instructions, cost.executions]))
}

/// The same with the rows of two columns.
pub(crate) fn node_with(kind: &str, name: &str, rows: [[u64; 2]; 3]) -> Map<String, Value> {
    let mut node = Map::new();
    node.insert("kind".into(), kind.into());
    node.insert("name".into(), name.into());
    for (key, row) in ["inclusive", "exclusive", "self"].into_iter().zip(rows) {
        node.insert(key.into(), json!(row));
    }
    node
}

/// What was sampled in all.
fn sampled(counts: &ExactCounts, sampling: &ExactSampling) -> Value {
    let ExactSampling { metric, total, samples } = sampling;
    let elsewhere = counts.sampled_elsewhere();
    json!({ "name": metric.name, "unit": metric.unit, "total": total, "elsewhere": elsewhere, "samples": samples })
}

/// What was measured in all, of one metric.
fn timed(counts: &ExactCounts, number: usize) -> Value {
    let (Some(timing), Some(estimate)) = (counts.timings.get(number), counts.cost().timed.get(number).copied()) else {
        return Value::Null;
    };
    let Unmeasured { paths, executions } = counts.unmeasured(number);
    let ExactTiming { name, unit, account } = timing;
    let unmeasured = json!({ "paths": paths, "executions": executions });
    json!({ "name": name, "unit": unit, "estimate": estimate, "unmeasured": unmeasured, "lost": account.lost, "clock": account.clock_ns })
}

/// What was measured of a path.
fn time((number, timing): (usize, &ExactTiming), (procedure, path): (&ExactProcedure, &ExactPath)) -> Value {
    let time = path.times.get(number).copied().unwrap_or_default();
    let interrupted = path.interruptions.get(number).copied().unwrap_or(0);
    let Some((mean, total)) = time.mean_ns().zip(time.total_ns(path.executions)) else { return Value::Null };
    let interval = procedure.interval_ns(path, (number, timing.account));
    json!({ "measured": time.measured, "interrupted": interrupted, "mean": mean, "estimate": total.round() as u64, "interval": interval })
}

pub(crate) fn hex(address: u64) -> Value {
    format!("{address:#x}").into()
}

fn place(place: Option<&ExactPlace>) -> Value {
    place.map_or(Value::Null, |place| json!({ "file": place.file, "line": place.line }))
}

fn insert_place(node: &mut Map<String, Value>, place: Option<&ExactPlace>) {
    if let Some(ExactPlace { file, line }) = place {
        node.insert("file".into(), file.as_str().into());
        node.insert("line".into(), (*line).into());
    }
}

fn context(callers: &ExactCallers, its: &InContext) -> Value {
    let names: Vec<&str> = callers.names(its.callers).collect();
    let mut json = json!({ "callers": names, "executions": its.executions });
    if let (true, Some(json)) = (callers.is_partial(its.callers), json.as_object_mut()) {
        json.insert("is_partial".into(), true.into());
    }
    json
}

fn call(call: &ExactCall) -> Value {
    json!({ "name": call.name, "place": place(call.place.as_ref()) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exact_label::tests::{counts, in_contexts, with_samples, with_times};

    type View = fn(ExactJson<'_>, &mut dyn Write) -> io::Result<()>;

    fn written(min_share: f64, view: View) -> Value {
        let counts = counts();
        let mut out = Vec::new();
        view(
            ExactJson { counts: &counts, procedures: &[0, 1], ranking: ExactRanking::Instructions, min_share },
            &mut out,
        )
        .unwrap();
        assert!(!out.contains(&0x1b));
        serde_json::from_slice(&out).unwrap()
    }

    /// Each node's inclusive cost is its exclusive one and that of its children.
    fn adds_up(json: &Value) {
        let nodes = json["nodes"].as_array().unwrap();
        let cost = |node: &Value, key: &str, metric: usize| node[key][metric].as_u64().unwrap();
        for (number, node) in nodes.iter().enumerate() {
            for metric in 0..2 {
                let children = nodes.iter().filter(|child| child["parent"] == number);
                let below: u64 = children.map(|child| cost(child, "inclusive", metric)).sum();
                assert_eq!(cost(node, "inclusive", metric), cost(node, "exclusive", metric) + below, "{node}");
            }
        }
    }

    #[test]
    fn paths_stand_below_their_procedures() {
        let json = written(0.0, paths);
        adds_up(&json);
        assert_eq!(
            (&json["schema"], &json["view"], &json["metrics"][0]["name"]),
            (&2.into(), &"paths".into(), &"instructions".into())
        );
        let exact = &json["quality"]["exact"];
        assert_eq!((&exact["procedures"], &exact["cut_short"], &exact["gaps"]), (&3.into(), &2.into(), &0.into()));
        assert_eq!(exact["refused"][1]["function"], "odd");
        let nodes = json["nodes"].as_array().unwrap();
        let kinds: Vec<&str> = nodes.iter().map(|node| node["kind"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["root", "procedure", "path", "path", "path", "procedure", "path"]);
        // 980 x 8, 10 x 16, 9 x 16 instructions; 7 x 3 of the other procedure.
        assert_eq!(nodes[0]["inclusive"], json!([7840 + 160 + 144 + 21, 1006]));
        let hot = &nodes[2];
        assert_eq!((&hot["path"], &hot["category"], &hot["parent"]), (&5.into(), &"head-back".into(), &1.into()));
        assert_eq!((&hot["blocks"], &hot["self"]), (&json!(["0x1010", "0x1030"]), &json!([7840, 980])));
        assert_eq!((&hot["loop"]["address"], &hot["lines"][1]["line"]), (&"0x1010".into(), &3.into()));
        assert_eq!(nodes[1]["possible"], 212);
        assert_eq!(nodes[6]["lines"], json!([null]));
    }

    #[test]
    fn paths_have_the_contexts_that_they_were_executed_in() {
        let counts = in_contexts();
        let mut out = Vec::new();
        paths(
            ExactJson { counts: &counts, procedures: &[0, 1], ranking: ExactRanking::Instructions, min_share: 0.0 },
            &mut out,
        )
        .unwrap();
        assert!(!out.contains(&0x1b));
        let json: Value = serde_json::from_slice(&out).unwrap();
        let hot = &json["nodes"][2];
        assert_eq!(hot["path"], 5);
        let context = |callers: &[&str], executions: u64| json!({ "callers": callers, "executions": executions });
        let mut cut = context(&["down\x1b[31m", "run"], 9);
        cut["is_partial"] = true.into();
        assert_eq!(
            hot["contexts"],
            json!([context(&["main", "run"], 700), context(&["main", "other"], 270), cut, context(&[], 1)])
        );
        // No context of it is known.
        assert_eq!(json["nodes"][3]["contexts"], json!([]));
        assert_eq!(json["quality"]["exact"]["gaps"], Value::Null);
        assert_eq!(written(0.0, paths)["nodes"][2]["contexts"], Value::Null);
    }

    #[test]
    fn paths_have_what_was_measured_of_them() {
        let counts = with_times();
        let written = |ranking: ExactRanking, min_share: f64| -> Value {
            let mut out = Vec::new();
            paths(ExactJson { counts: &counts, procedures: &[0, 1], ranking, min_share }, &mut out).unwrap();
            serde_json::from_slice(&out).unwrap()
        };
        let json = written(ExactRanking::Instructions, 0.0);
        adds_up(&json);
        let unmeasured = json!({ "paths": 1, "executions": 7 });
        let expected = json!({ "name": "wall-time", "unit": "ns", "estimate": 71_400, "unmeasured": unmeasured, "lost": 2, "clock": 20 });
        assert_eq!(json["timed"], expected);
        let of = |path: u64| {
            let nodes = json["nodes"].as_array().unwrap();
            nodes.iter().find(|node| node["path"] == path).unwrap()["wall_time"].clone()
        };
        // The clock is read before each of three calls and behind it: four stretches of 5 ns, ten times.
        let all = json!({ "measured": 10, "interrupted": 0, "mean": 5_000.0, "estimate": 50_000, "interval": 200.0 });
        assert_eq!(of(1), all);
        let alone = json!({ "measured": 1, "interrupted": 0, "mean": 200.0, "estimate": 1_800, "interval": null });
        assert_eq!(of(9), alone);
        assert_eq!((&of(5)["estimate"], &of(5)["interrupted"]), (&19_600.into(), &1.into()));
        assert_eq!(of(0), Value::Null);
        // Half of the time, and not of the instructions.
        let nodes = written(ExactRanking::Timed(0), 0.5)["nodes"].as_array().unwrap().clone();
        let left: Vec<&Value> = nodes.iter().filter(|node| node["kind"] == "path").map(|node| &node["path"]).collect();
        assert_eq!(left, [1]);
        let untimed = self::written(0.0, paths);
        assert!(untimed.get("timed").is_none() && untimed["nodes"][2].get("wall_time").is_none());
    }

    #[test]
    fn what_was_sampled_adds_up() {
        let counts = with_samples();
        let written = |view: View, min_share: f64| -> Value {
            let mut out = Vec::new();
            let ranking = ExactRanking::Sampled;
            view(ExactJson { counts: &counts, procedures: &[0, 1], ranking, min_share }, &mut out).unwrap();
            serde_json::from_slice(&out).unwrap()
        };
        let json = written(paths, 0.0);
        let expected =
            json!({ "name": "cpu-time", "unit": "ns", "total": 1_000_000, "elsewhere": 100_000, "samples": 900 });
        assert_eq!(json["sampled"], expected);
        for (view, key) in [(paths as View, "sampled_estimate"), (blocks, "sampled")] {
            let json = written(view, 0.0);
            let nodes = json["nodes"].as_array().unwrap();
            let (mut all, number) = (0, |value: &Value| value.as_u64().unwrap());
            for (at, procedure) in nodes.iter().enumerate().filter(|(_, node)| node["kind"] == "procedure") {
                let below: u64 = nodes.iter().filter(|node| node["parent"] == at).map(|node| number(&node[key])).sum();
                let undivided = &procedure["undivided"];
                let sum = below + number(&undivided["unexecuted"]) + number(&undivided["outside"]);
                assert_eq!(sum, number(&procedure["sampled"]), "{procedure}");
                all += sum;
            }
            assert_eq!(all + 100_000, 1_000_000);
        }
        assert_eq!(json["nodes"][1]["undivided"], json!({ "unexecuted": 20_000, "outside": 0 }));
        // Path 5 has 98% of two blocks, and 10% of all that was sampled; path 1 has most of another one.
        let nodes = written(paths, 0.2)["nodes"].as_array().unwrap().clone();
        let numbers: Vec<&Value> =
            nodes.iter().filter(|node| node["kind"] == "path").map(|node| &node["path"]).collect();
        assert_eq!(numbers, [1, 9]);
        assert_eq!(self::written(0.0, paths)["sampled"], Value::Null);
    }

    #[test]
    fn blocks_have_their_edges() {
        let json = written(0.0, blocks);
        adds_up(&json);
        let nodes = json["nodes"].as_array().unwrap();
        let at =
            |address: &str| nodes.iter().find(|node| node["kind"] == "block" && node["address"] == address).unwrap();
        assert_eq!(at("0x1010")["inclusive"], json!([4 * 999, 999]));
        let edge = |to: &[&str], is_back: bool, executions: u64| json!({ "to": to, "is_back": is_back, "executions": executions });
        assert_eq!(at("0x1010")["edges"], json!([edge(&["0x1020"], false, 19), edge(&["0x1030"], false, 980)]));
        assert_eq!(at("0x1030")["edges"], json!([edge(&["0x1010"], true, 990), edge(&["0x1040"], false, 9)]));
        assert_eq!(at("0x1040")["edges"], json!([edge(&[], false, 9)]));
        assert_eq!((&at("0x1030")["end"], &nodes[1]["entries"]), (&"0x1040".into(), &10.into()));
    }

    #[test]
    fn what_is_left_out_belongs_to_the_procedure() {
        let json = written(0.5, paths);
        adds_up(&json);
        assert_eq!(json["nodes"].as_array().unwrap().iter().filter(|node| node["kind"] == "path").count(), 1);
        assert_eq!(json["nodes"][1]["exclusive"], json!([304, 19]));
    }
}

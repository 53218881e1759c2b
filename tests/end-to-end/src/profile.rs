//! A profile as `report --json` gives it (schema 2).

use std::collections::BTreeMap;

use serde_json::Value;

/// The default rate of `record`, samples a second.
const DEFAULT_RATE_HZ: u64 = 1000;

/// What took the samples, as the notes say.
#[derive(Clone, Copy, Debug)]
enum Clock {
    Kernel,
    /// The kernel's, but time in the kernel is seen at its tick only.
    UserMode,
    /// A timer in each thread: at most a sample for each tick of the kernel that finds the thread running.
    Timer,
}

impl Clock {
    fn of_notes(notes: &[Value]) -> Self {
        let has = |words: &str| notes.iter().any(|note| text_of(note).contains(words));
        match (has("samples come from a timer"), has("sampled at the kernel's tick only")) {
            (true, _) => Clock::Timer,
            (_, true) => Clock::UserMode,
            _ => Clock::Kernel,
        }
    }

    /// One of so many samples that were due is walked at least, where nothing is wrong. The clock of a
    /// virtual machine may be half as fast as asked. Where others want the processor, the tick finds a thread
    /// at work a few times in 400 ms of its CPU time.
    fn floor(self) -> u64 {
        match self {
            Clock::Kernel => 4,
            Clock::UserMode => 16,
            Clock::Timer => u64::MAX,
        }
    }
}

/// The context view.
#[derive(Debug)]
pub struct Profile {
    metrics: Vec<String>,
    /// Which of them do not add up.
    marks: Vec<bool>,
    /// Samples a second of CPU time that were asked for.
    rate_hz: u64,
    /// Threads of all processes, from first to last.
    pub threads: u64,
    /// Name of each process, and how long the recorder saw it, nanoseconds.
    durations: Vec<(String, u64)>,
    clock: Clock,
    pub(crate) nodes: Vec<Node>,
    /// The classes of the samples, and what they cost.
    pub quality: Quality,
}

/// The classes of the samples, and what they cost.
#[derive(Debug)]
pub struct Quality {
    /// Samples taken.
    pub taken: u64,
    /// Of these, with a whole path.
    pub full: u64,
    /// Of these, with a part of it.
    pub partial: u64,
    /// Of these, kept raw.
    pub raw_kept: u64,
    /// Of these, dropped, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Time in handlers by the collector's own clocks, nanoseconds.
    pub overhead_ns: u64,
    /// The longest handler, nanoseconds.
    pub longest_ns: u64,
    /// How many handlers took at least so many times 2 to the power of the
    /// index, nanoseconds, and less than twice that.
    pub handlers: Vec<u64>,
}

impl Quality {
    /// What half of the handlers took no longer than, within a factor of two: the power of two, of nanoseconds.
    pub fn median_handler_log2(&self) -> usize {
        let all: u64 = self.handlers.iter().sum();
        let mut seen = 0;
        self.handlers
            .iter()
            .position(|count| {
                seen += count;
                seen * 2 >= all
            })
            .expect("there are handlers")
    }
}

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) parent: Option<usize>,
    pub(crate) kind: String,
    pub(crate) name: String,
    /// Of a process.
    pub(crate) id: Option<u64>,
    pub(crate) module: String,
    line: u64,
    inclusive: Vec<u64>,
    pub(crate) exclusive: Vec<u64>,
    /// The exclusive cells as they are in JSON: of histograms arrays.
    pub(crate) cells: Vec<Value>,
}

impl Profile {
    /// From JSON of a recording at the default rate. Panics if it does not follow the schema.
    pub fn of_json(text: &str) -> Self {
        let json: Value = serde_json::from_str(text).expect("the report is JSON");
        assert_eq!((json["schema"].as_u64(), json["view"].as_str()), (Some(2), Some("context")));
        let metrics = list(&json["metrics"]).iter().map(|metric| text_of(&metric["name"])).collect();
        let marks = list(&json["metrics"]).iter().map(|metric| metric["kind"] != "sum").collect();
        let nodes = list(&json["nodes"]).iter().map(Node::of_json).collect();
        let quality = &json["quality"];
        let dropped = quality["dropped"].as_object().expect("dropped is an object");
        let quality = Quality {
            taken: number(&quality["taken"]),
            full: number(&quality["full"]),
            partial: number(&quality["partial"]),
            raw_kept: number(&quality["raw_kept"]),
            dropped: dropped.iter().map(|(reason, count)| (reason.clone(), number(count))).collect(),
            overhead_ns: number(&quality["overhead_ns"]),
            longest_ns: number(&quality["handlers"]["longest_ns"]),
            handlers: list(&quality["handlers"]["histogram"]).iter().map(number).collect(),
        };
        let run = &json["run"];
        let threads = list(&run["processes"]).iter().map(|process| number(&process["threads"])).sum();
        let durations =
            list(&run["processes"]).iter().map(|p| (text_of(&p["name"]), number(&p["duration_ns"]))).collect();
        let clock = Clock::of_notes(list(&run["notes"]));
        Self { metrics, marks, rate_hz: DEFAULT_RATE_HZ, threads, durations, clock, nodes, quality }
    }

    /// The same profile of a recording with `-F rate_hz`.
    #[must_use]
    pub fn at_rate(self, rate_hz: u64) -> Self {
        Self { rate_hz, ..self }
    }

    /// Asserts what holds for every profile: each sample is in one class, inclusive = exclusive + the children's
    /// inclusive (of metrics that add up), preorder, one root.
    pub fn assert_sound(&self) {
        let quality = &self.quality;
        let dropped: u64 = quality.dropped.values().sum();
        let accounted = quality.full + quality.partial + quality.raw_kept + dropped;
        assert_eq!(quality.taken, accounted, "the samples do not add up: {quality:?}");
        let mut sums: Vec<Vec<u64>> = self.nodes.iter().map(|node| node.exclusive.clone()).collect();
        for (index, node) in self.nodes.iter().enumerate().rev() {
            for (sum, inclusive) in sums[index]
                .iter_mut()
                .zip(&node.inclusive)
                .zip(&self.marks)
                .filter_map(|(pair, is_mark)| is_mark.then_some(pair))
            {
                *sum = *inclusive;
            }
            assert_eq!(sums[index], node.inclusive, "inclusive of node {index} ({}) is not the sum", node.name);
            let inclusive = node.inclusive.clone();
            match node.parent {
                None => assert_eq!((index, node.kind.as_str()), (0, "root")),
                Some(parent) => {
                    assert!(parent < index, "node {index} stands before its parent");
                    sums[parent].iter_mut().zip(inclusive).for_each(|(sum, add)| *sum = sum.wrapping_add(add));
                }
            }
        }
    }

    /// The total of a metric. Panics if there is none of this name.
    pub fn total(&self, metric: &str) -> u64 {
        self.nodes[0].inclusive[self.metric(metric)]
    }

    /// The samples that the measured CPU time is worth at the rate asked. A thread's first sample comes when its first
    /// period is over, so one period is taken off for each thread.
    pub fn due(&self) -> u64 {
        let cpu_ns = u128::from(self.total("cpu-time"));
        let periods = cpu_ns * u128::from(self.rate_hz) / 1_000_000_000;
        (periods as u64).saturating_sub(self.threads)
    }

    /// Asserts that almost all samples have a whole path: `share` of 1000; and that enough samples were walked to tell.
    /// Not counted are those that are not walked by design: delivered late, too soon after one that took long, or
    /// inside the collector where a thread begins, which are few.
    #[track_caller]
    pub fn assert_full(&self, share: u64) {
        let (quality, walked) = (&self.quality, self.walked());
        assert!(quality.full * 1000 >= walked * share, "too few whole paths: {quality:?}");
        self.assert_walked(self.clock.floor());
    }

    /// Asserts that one of each `of` samples that were due was walked, and one at least.
    #[track_caller]
    pub fn assert_walked(&self, of: u64) {
        let (walked, due) = (self.walked(), self.due());
        let floor = due.div_ceil(of).max(1);
        assert!(walked >= floor, "{walked} samples walked of {due} due, fewer than {floor}: {:?}", self.quality);
    }

    /// Asserts that no more samples were throttled than their cost says: none is walked for five times as long as one took, which is a period more
    /// at most, since periods are whole.
    #[track_caller]
    pub fn assert_throttled_as_said(&self) {
        let quality = &self.quality;
        let throttled = quality.dropped.get("throttled").copied().unwrap_or(0);
        let periods = 5 * u128::from(quality.overhead_ns) * u128::from(self.rate_hz) / 1_000_000_000;
        assert!(u128::from(throttled) <= periods + u128::from(self.walked()), "{quality:?}");
    }

    fn walked(&self) -> u64 {
        let quality = &self.quality;
        let dropped = |reason: &str| quality.dropped.get(reason).copied().unwrap_or(0);
        let own = dropped("in-collector");
        let usual = 2 + quality.taken / 50;
        assert!(
            own <= usual || own <= usual + self.due_at_births_and_ends(),
            "too many samples in the collector: {quality:?}"
        );
        quality.taken - dropped("throttled") - dropped("late") - own
    }

    /// The samples that are due in the collector where threads are made and where they end: the one that makes a thread
    /// is sampled there if that is due, and one that ends adds what no sample has had. Signals are not blocked in
    /// either, and each takes about as long as a handler does.
    fn due_at_births_and_ends(&self) -> u64 {
        let handler_ns = 1 << self.quality.median_handler_log2();
        self.threads * 2 * handler_ns * self.rate_hz / 1_000_000_000
    }

    /// A metric of all contexts whose path goes through these names in this order, others between them allowed.
    /// Inclusive of the outermost such context.
    pub fn through(&self, names: &[&str], metric: &str) -> u64 {
        let column = self.metric(metric);
        // How many of the names the path to each node has met.
        let mut met = vec![0; self.nodes.len()];
        let mut sum = 0;
        for (index, node) in self.nodes.iter().enumerate() {
            let before = node.parent.map_or(0, |parent| met[parent]);
            met[index] = before;
            if names.get(before).is_some_and(|wanted| node.is_called(wanted)) {
                met[index] += 1;
                if met[index] == names.len() {
                    sum += node.inclusive[column];
                }
            }
        }
        sum
    }

    /// The share of a metric that goes through these names, in percent of what was sampled: a process's
    /// start and end were not, and the end is long on a busy machine.
    pub fn percent_through(&self, names: &[&str]) -> f64 {
        let metric = &self.metrics[0];
        const NOT_SAMPLED: [&str; 4] = [
            "gap:start of the process: exec, loader",
            "gap:start of callpath in the process",
            "gap:ended before the first sample",
            "gap:after the last sample",
        ];
        let sampled = NOT_SAMPLED.iter().fold(self.total(metric), |rest, gap| rest - self.through(&[gap], metric));
        100.0 * self.through(names, metric) as f64 / sampled.max(1) as f64
    }

    /// The same of samples. Where a virtual machine stands still and does not say so, its kernel charges the time to the thread
    /// that was on the processor, and one sample has as much of it as a thousand others: for which paths there are, where
    /// that samples are missing is asserted apart ([`assert_full`](Profile::assert_full)).
    pub fn percent_of_samples_through(&self, names: &[&str]) -> f64 {
        100.0 * self.through(names, "samples") as f64 / self.total("samples").max(1) as f64
    }

    /// How long the process of this name lasted by the recorder's clock, nanoseconds. Panics if there is not one of it.
    pub fn duration_ns(&self, name: &str) -> u64 {
        let found: Vec<u64> = self.durations.iter().filter(|(of, _)| of == name).map(|(_, ns)| *ns).collect();
        let [duration_ns] = found[..] else { panic!("not one process {name}: {:?}", self.durations) };
        duration_ns
    }

    /// Name and first metric of each process.
    pub fn processes(&self) -> Vec<(String, u64)> {
        self.of_kind("process")
    }

    /// Name and first metric of each node of a kind.
    pub fn of_kind(&self, kind: &str) -> Vec<(String, u64)> {
        let found = self.nodes.iter().filter(|node| node.kind == kind);
        found.map(|node| (node.name.clone(), node.inclusive[0])).collect()
    }

    /// The names of its procedures, inlined or not.
    pub fn names(&self) -> std::collections::BTreeSet<String> {
        self.nodes
            .iter()
            .filter(|node| ["procedure", "inlined"].contains(&&*node.kind))
            .map(|n| n.name.clone())
            .collect()
    }

    /// How many returns were counted from procedures of this name.
    pub fn returns_of(&self, name: &str) -> u64 {
        let returns = self.metric("returns");
        self.nodes.iter().filter(|n| n.kind == "procedure" && n.name == name).map(|n| n.exclusive[returns]).sum()
    }

    /// The same by how many activations there are around them, from none on.
    pub fn returns_by_depth_of(&self, name: &str) -> Vec<u64> {
        let returns = self.metric("returns");
        let mut around = vec![0; self.nodes.len()];
        let mut found = Vec::new();
        for (index, node) in self.nodes.iter().enumerate() {
            let outer = node.parent.map_or(0, |parent| around[parent]);
            let is_it = node.kind == "procedure" && node.name == name;
            around[index] = outer + usize::from(is_it);
            if is_it && node.exclusive[returns] > 0 {
                found.resize(found.len().max(outer + 1), 0);
                found[outer] += node.exclusive[returns];
            }
        }
        found
    }

    /// What each scope of a procedure costs for each of its returns, where it has returned.
    pub fn per_return_of(&self, name: &str) -> Vec<u64> {
        let (returns, per_return) = (self.metric("returns"), self.metric("cpu-time-per-return"));
        let returned = self.nodes.iter().filter(|node| node.name == name && node.exclusive[returns] > 0);
        returned.map(|node| node.inclusive[per_return]).collect()
    }

    /// Whether the recording has a metric of this name.
    pub fn has_metric(&self, name: &str) -> bool {
        self.metrics.iter().any(|metric| metric == name)
    }

    /// The same, but those that stand in its loops: there should be none.
    pub fn returns_in_loops_of(&self, name: &str) -> u64 {
        let returns = self.metric("returns");
        let is_of = |node: &Node| {
            let mut around = node.parent.map(|parent| &self.nodes[parent]);
            while let Some(outer) = around.filter(|outer| outer.kind == "loop") {
                around = outer.parent.map(|parent| &self.nodes[parent]);
            }
            around.is_some_and(|procedure| procedure.name == name)
        };
        self.nodes.iter().filter(|n| n.kind == "loop" && is_of(n)).map(|n| n.exclusive[returns]).sum()
    }

    /// How many nodes there are.
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// The longest path, in nodes.
    pub fn depth(&self) -> usize {
        let mut depths = vec![0; self.nodes.len()];
        for (index, node) in self.nodes.iter().enumerate() {
            depths[index] = node.parent.map_or(0, |parent| depths[parent] + 1);
        }
        depths.into_iter().max().unwrap_or(0)
    }

    /// What a module's procedures cost exclusively, with their loops (first metric), by name.
    pub fn exclusive_in(&self, module: &str) -> BTreeMap<String, u64> {
        let mut costs = BTreeMap::new();
        for node in self.nodes.iter().filter(|node| node.module.ends_with(module)) {
            let mut named = node;
            while let Some(around) = named.parent.filter(|_| named.kind == "loop") {
                named = &self.nodes[around];
            }
            *costs.entry(named.name.clone()).or_insert(0) += node.exclusive[0];
        }
        costs.retain(|_, cost| *cost > 0);
        costs
    }

    /// Each path that has a cost of its own, as its procedures' names from the outermost on.
    pub fn paths(&self) -> Vec<Vec<&str>> {
        let mut paths: Vec<Vec<&str>> = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            let mut path = node.parent.map(|parent| paths[parent].clone()).unwrap_or_default();
            if node.kind == "procedure" {
                path.push(&node.name);
            }
            paths.push(path);
        }
        let costs = self.nodes.iter().map(|node| node.exclusive.iter().any(|value| *value > 0));
        paths.into_iter().zip(costs).filter_map(|(path, has_cost)| has_cost.then_some(path)).collect()
    }

    pub(crate) fn metric(&self, name: &str) -> usize {
        self.metrics.iter().position(|metric| metric == name).unwrap_or_else(|| panic!("no metric {name}"))
    }
}

impl Node {
    fn of_json(node: &Value) -> Self {
        let words = |key: &str| node[key].as_str().unwrap_or_default().to_owned();
        Self {
            parent: node["parent"].as_u64().map(|index| index as usize),
            kind: text_of(&node["kind"]),
            name: words("name"),
            id: node["id"].as_u64(),
            module: words("module"),
            line: node["line"].as_u64().unwrap_or(0),
            inclusive: list(&node["inclusive"]).iter().map(cell).collect(),
            exclusive: list(&node["exclusive"]).iter().map(cell).collect(),
            cells: list(&node["exclusive"]).to_vec(),
        }
    }

    /// `name`, or `kind:name`, or `kind@line`, or `module!`.
    fn is_called(&self, wanted: &str) -> bool {
        if let Some(module) = wanted.strip_suffix('!') {
            return self.module.ends_with(module);
        }
        if let Some((kind, line)) = wanted.split_once('@')
            && let Ok(line) = line.parse::<u64>()
        {
            return self.kind == kind && self.line == line;
        }
        match wanted.split_once(':') {
            Some((kind, name)) if !name.starts_with(':') => self.kind == kind && self.name.contains(name),
            _ => matches!(self.kind.as_str(), "procedure" | "inlined") && self.name == wanted,
        }
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The bits of a whole number, a number rounded to one, or how many values a histogram holds.
fn cell(value: &Value) -> u64 {
    match value {
        Value::Array(bins) => bins.iter().map(number).sum(),
        // What is computed of others may have a fraction.
        value if value.is_f64() => value.as_f64().unwrap_or_default().round() as u64,
        value => value.as_i64().map_or_else(|| number(value), |signed| signed as u64),
    }
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is not a whole number"))
}

fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is not text")).to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A profile of one process with `taken` whole samples in 400 ms of CPU time.
    fn profile(taken: u64, threads: u64, note: &str) -> Profile {
        let cost = [400_000_000, taken];
        let text = json!({
            "schema": 2, "view": "context",
            "metrics": [{"name": "cpu-time", "kind": "sum"}, {"name": "samples", "kind": "sum"}],
            "quality": {"taken": taken, "full": taken, "partial": 0, "raw_kept": 0, "dropped": {}, "overhead_ns": 0,
                        "handlers": {"longest_ns": 0, "histogram": []}},
            "run": {"notes": [note], "processes": [{"name": "burn", "threads": threads, "duration_ns": 1}]},
            "nodes": [{"kind": "root", "name": "burn", "inclusive": cost, "exclusive": cost}],
        });
        Profile::of_json(&text.to_string())
    }

    fn is_enough(profile: &Profile) -> bool {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| profile.assert_full(1000))).is_ok()
    }

    #[test]
    fn a_quarter_of_what_the_cpu_time_is_worth_is_asked_of_the_kernels_clock() {
        assert_eq!(profile(0, 1, "").due(), 399);
        assert!(is_enough(&profile(100, 1, "")) && !is_enough(&profile(99, 1, "")));
        assert!(is_enough(&profile(88, 50, "")) && !is_enough(&profile(87, 50, "")));
        assert!(is_enough(&profile(1000, 1, "").at_rate(10_000)) && !is_enough(&profile(999, 1, "").at_rate(10_000)));
    }

    #[test]
    fn less_is_asked_where_the_kernels_tick_takes_samples() {
        let user = "time in the kernel is sampled at the kernel's tick only";
        assert!(is_enough(&profile(25, 1, user)) && !is_enough(&profile(24, 1, user)));
        let timer = "samples come from a timer in each thread";
        assert!(is_enough(&profile(1, 1, timer)) && !is_enough(&profile(0, 1, timer)));
    }
}

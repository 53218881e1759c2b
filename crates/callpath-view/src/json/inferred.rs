//! Of call paths that were inferred: how sure they are.

use callpath_db::{
    InferredCounts, InferredQuality, LIKELY_SAMPLES, MetricId, MetricSource, Profile, STATIC_SAMPLES, ScopeKind,
    UNDETERMINED, View, WALKED_SAMPLES,
};
use serde_json::{Value, json};

/// The member `inferred` of `quality`.
pub(super) fn value(inferred: &InferredQuality) -> Value {
    let counts = |counts: &InferredCounts| {
        let degree: serde_json::Map<String, Value> =
            counts.degree.iter().map(|(degree, count)| (degree.to_string(), json!(count))).collect();
        json!({
            "precise": counts.precise,
            "likely": counts.likely,
            "static": counts.by_code,
            "ambiguous": counts.ambiguous,
            "undetermined": counts.undetermined,
            "missing": counts.missing,
            "degree": degree,
        })
    };
    let mut value = counts(&inferred.pairs);
    value["pairs"] = json!(inferred.pairs.all());
    value["samples"] = counts(&inferred.samples);
    value["samples"]["walked"] = json!(inferred.walked);
    if inferred.calls.all() > 0 {
        value["calls"] = counts(&inferred.calls);
    }
    value
}

/// How sure each node's call path is; empty where none was inferred.
///
/// ```text
/// missing        the map has no path
/// undetermined   it has several: what is called from where they part
/// likely         one, for all samples through the node, and calls of probed functions, no more than likely
/// static         one, which no run has taken, and the code has no other: for all of these that is so
/// walked         no map was asked: the stacks of all samples through the node were walked whole
/// precise        one
/// ```
pub(super) fn certainties(view: &View, profile: &Profile) -> Vec<Option<&'static str>> {
    if profile.quality.inferred.is_none() {
        return Vec::new();
    }
    let column = |is_it: &dyn Fn(&callpath_db::Metric) -> bool| profile.metrics.iter().position(is_it);
    const MARKS: [&str; 3] = [LIKELY_SAMPLES, STATIC_SAMPLES, WALKED_SAMPLES];
    let is_marked = |name: &str| MARKS.contains(&name);
    let samples = column(&|metric| metric.source == MetricSource::Samples && !is_marked(&metric.name));
    let calls = column(&|metric| metric.id == Some(MetricId::CALLS));
    let marks = MARKS.map(|name| column(&|metric| metric.name == name));
    let mut certainties: Vec<Option<&'static str>> = Vec::with_capacity(view.nodes.len());
    for (index, node) in view.nodes.iter().enumerate() {
        let above = node.parent.and_then(|parent| certainties.get(parent).copied().flatten());
        let of_samples = || {
            let costs = view.inclusive(index);
            let count = |column: Option<usize>| column.map_or(0, |at| costs.get(at));
            let (all, [likely, by_code, walked]) = (count(samples).saturating_add(count(calls)), marks.map(count));
            // A node that samples of both kinds lead through is as sure as those that were inferred.
            let inferred = all.saturating_sub(walked);
            match (likely, by_code) {
                _ if walked > 0 && inferred == 0 => "walked",
                (0, by_code) if inferred > 0 && by_code >= inferred => "static",
                (likely, by_code) if inferred > 0 && likely.saturating_add(by_code) >= inferred => "likely",
                _ => "precise",
            }
        };
        certainties.push(match node.scope.kind {
            ScopeKind::Partial => Some("missing"),
            _ if matches!(above, Some("missing" | "undetermined")) => above,
            _ if view.name(index, profile) == UNDETERMINED => Some("undetermined"),
            ScopeKind::Procedure | ScopeKind::Inlined | ScopeKind::Loop | ScopeKind::Line | ScopeKind::SystemCall => {
                Some(of_samples())
            }
            _ => None,
        });
    }
    certainties
}

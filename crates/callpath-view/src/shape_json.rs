//! The shape of the calling context tree of calls that were counted exactly, as JSON, schema 2.

use std::io::{self, Write};

use callpath_db::exact::{ContextShape, ContextTree, Replication};
use serde_json::{Value, json};

use crate::exact_json::{Head, hex, node_with};
use crate::json::without_actions;

/// Writes the shape of a tree, its procedures, and a newline. Procedures with less than `min_share` of all contexts, from 0 to 1, are left out.
///
/// # Errors
/// If the output takes no more.
pub fn write(tree: &ContextTree, min_share: f64, out: &mut dyn Write) -> io::Result<()> {
    let shape = tree.shape();
    Head {
        view: "contexts",
        metrics: ["contexts", "calls"],
        quality: &tree.quality,
        info: &tree.info,
        notes: &tree.notes,
    }
    .write(out)?;
    write!(out, ",\n\"shape\":{}", without_actions(&members(tree, &shape).to_string()))?;
    let least = min_share * shape.size.contexts as f64;
    let (shown, left_out): (Vec<&Replication>, Vec<&Replication>) =
        shape.procedures.iter().partition(|its| its.contexts as f64 >= least);
    let exclusive = left_out.iter().fold([0u64; 2], |sum, its| [sum[0] + its.contexts, sum[1] + its.calls]);
    let root = node_with("root", &tree.info.program, [[shape.size.contexts, shape.calls], exclusive, [0; 2]]);
    write!(out, ",\n\"nodes\":[\n{}", without_actions(&Value::from(root).to_string()))?;
    for its in shown {
        let Some(procedure) = tree.procedure(its.procedure) else { continue };
        let mut node = node_with("procedure", &procedure.name, [[its.contexts, its.calls]; 3]);
        node.insert("parent".into(), 0.into());
        node.insert("module".into(), procedure.module.as_str().into());
        node.insert("address".into(), hex(procedure.address));
        node.insert("call_sites".into(), procedure.sites.into());
        write!(out, ",\n{}", without_actions(&Value::from(node).to_string()))?;
    }
    out.write_all(b"\n]}\n")
}

fn members(tree: &ContextTree, shape: &ContextShape) -> Value {
    let most = shape.procedures.first().and_then(|its| {
        let procedure = tree.procedure(its.procedure)?;
        let (name, module, address) = (&procedure.name, &procedure.module, hex(procedure.address));
        Some(json!({ "name": name, "module": module, "address": address, "contexts": its.contexts }))
    });
    let together = shape.sites_together;
    json!({
        "contexts": shape.size.contexts,
        "bytes": shape.size.bytes,
        "node_bytes": shape.mean_node_bytes(),
        "inner": shape.inner,
        "leaves": shape.leaves(),
        "out_degree": shape.mean_out_degree(),
        "mean_height": shape.mean_height(),
        "max_height": shape.max_height,
        "max_replication": most,
        "call_sites": {
            "all": shape.sites,
            "used": shape.used_sites,
            // Which paths led to a call only counts of paths in contexts tell.
            "one_path": shape.one_path.map(|its| its.sites),
            "unknown_paths": shape.one_path.map(|its| its.unknown),
        },
        "without_call_sites": shape.without_sites,
        "gaps": shape.gaps,
        "together": { "contexts": together.contexts, "bytes": together.bytes },
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use callpath_db::RunInfo;
    use callpath_db::exact::{CalledFrom, ContextProcedure, NodeBytes, RefusedFunction};

    use super::*;

    /// main (3 sites) calls leaf twice, and [sort], which is not counted and calls leaf, too; below the second leaf nothing.
    pub(crate) fn tree() -> ContextTree {
        let info = RunInfo { command: vec!["app".into()], program: "app".into(), ..RunInfo::default() };
        let mut tree = ContextTree::new(info, NodeBytes { node: 32, slot: 8 });
        tree.quality.refused.push(RefusedFunction {
            function: "sort".into(),
            module: "app".into(),
            reason: "it calls setjmp".into(),
        });
        let [main, leaf, sort] = [("main", Some(3)), ("leaf\x1b[31m", Some(0)), ("sort", None)].map(|(name, sites)| {
            let (name, module, address) = (name.to_owned(), "app".to_owned(), 0x1000);
            tree.enter_procedure(ContextProcedure { name, module, address, sites })
        });
        let from = |caller, site| Some(CalledFrom { caller, site: Some(site) });
        let root = tree.enter(main, None);
        let between = tree.enter(sort, from(root, 0x1030));
        let leaves = [(root, 0x1010, 1_000_000), (root, 0x1020, 20), (between, 0x2000, 7)];
        for (caller, site, calls) in leaves {
            let context = tree.enter(leaf, from(caller, site));
            tree.add_calls(context, calls);
        }
        tree.add_calls(root, 1);
        tree
    }

    fn written(min_share: f64) -> Value {
        let mut out = Vec::new();
        write(&tree(), min_share, &mut out).unwrap();
        assert!(!out.contains(&0x1b));
        serde_json::from_slice(&out).unwrap()
    }

    #[test]
    fn the_shape_and_its_procedures() {
        let json = written(0.0);
        assert_eq!((&json["schema"], &json["view"]), (&2.into(), &"contexts".into()));
        assert_eq!((&json["metrics"][0]["name"], &json["metrics"][1]["source"]), (&"contexts".into(), &"exact".into()));
        assert_eq!(
            (&json["quality"]["exact"]["refused"][0]["function"], &json["run"]["command"][0]),
            (&"sort".into(), &"app".into())
        );
        let expected = json!({
            "contexts": 4, "bytes": 4 * 32 + 3 * 8, "node_bytes": 38.0, "inner": 1, "leaves": 3, "out_degree": 3.0,
            "mean_height": 2.0, "max_height": 2,
            "max_replication": { "name": "leaf\u{1b}[31m", "module": "app", "address": "0x1000", "contexts": 3 },
            "call_sites": { "all": 3, "used": 3, "one_path": null, "unknown_paths": null },
            "without_call_sites": 0, "gaps": 1, "together": { "contexts": 3, "bytes": 3 * 32 + 8 },
        });
        assert_eq!(json["shape"], expected);
        let nodes = json["nodes"].as_array().unwrap();
        assert_eq!(nodes.len(), 3);
        assert_eq!((&nodes[0]["inclusive"], &nodes[0]["exclusive"]), (&json!([4, 1_000_028]), &json!([0, 0])));
        assert_eq!((&nodes[1]["inclusive"], &nodes[1]["call_sites"]), (&json!([3, 1_000_027]), &0.into()));
        assert_eq!((&nodes[2]["self"], &nodes[2]["call_sites"]), (&json!([1, 1]), &3.into()));
    }

    #[test]
    fn call_sites_that_one_path_leads_to() {
        let mut tree = tree();
        tree.say_paths_to(0, 0x1010, 1);
        tree.say_paths_to(0, 0x1020, 2);
        let mut out = Vec::new();
        write(&tree, 0.0, &mut out).unwrap();
        let json: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(json["shape"]["call_sites"], json!({ "all": 3, "used": 3, "one_path": 1, "unknown_paths": 1 }));
    }

    #[test]
    fn what_is_left_out_belongs_to_the_root() {
        let json = written(0.5);
        assert_eq!((json["nodes"].as_array().unwrap().len(), &json["nodes"][0]["exclusive"]), (2, &json!([1, 1])));
        assert_eq!(json["shape"]["contexts"], 4);
    }
}

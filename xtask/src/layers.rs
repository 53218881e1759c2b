//! Which crate may use which: the table of ARCHITECTURE.md, checked against the manifests.
//! Dev-dependencies are free: a test may look at anything.

use anyhow::{Context, ensure};
use serde_json::Value;

use crate::build::{self, OBJECT_MANIFESTS};

/// A crate and what it may use.
struct Layer {
    name: &'static str,
    /// Crates of the workspace.
    uses: &'static [&'static str],
    /// Whether it may use crates from outside: not where it runs inside a measured program.
    foreign: bool,
}

const fn layer(name: &'static str, uses: &'static [&'static str]) -> Layer {
    Layer { name, uses, foreign: true }
}

const fn inside(name: &'static str, uses: &'static [&'static str]) -> Layer {
    Layer { name, uses, foreign: false }
}

const LAYERS: &[Layer] = &[
    inside("callpath-format", &[]),
    inside("callpath-unwind", &["callpath-format"]),
    inside("callpath-collect", &["callpath-format", "callpath-unwind"]),
    inside("callpath-preload", &["callpath-collect", "callpath-format"]),
    inside("callpath-inject", &["callpath-collect", "callpath-format"]),
    layer("callpath-image", &["callpath-format"]),
    layer("callpath-x86", &["callpath-format"]),
    layer("callpath-target", &["callpath-format"]),
    layer("callpath-schema", &[]),
    layer("callpath-db", &["callpath-schema"]),
    layer("callpath-infer", &["callpath-format", "callpath-schema"]),
    layer("callpath-tables", &["callpath-image", "callpath-x86", "callpath-unwind", "callpath-format"]),
    layer("callpath-measurement", &["callpath-image", "callpath-schema", "callpath-format"]),
    layer(
        "callpath-analyze",
        &[
            "callpath-infer",
            "callpath-tables",
            "callpath-measurement",
            "callpath-image",
            "callpath-x86",
            "callpath-format",
            "callpath-schema",
            "callpath-db",
        ],
    ),
    // More than the design's table has: it peeks at programs before it runs them, and walks over raw samples itself.
    layer(
        "callpath-record",
        &[
            "callpath-target",
            "callpath-tables",
            "callpath-measurement",
            "callpath-image",
            "callpath-unwind",
            "callpath-schema",
            "callpath-format",
        ],
    ),
    layer("callpath-view", &["callpath-db"]),
    layer("callpath-parquet", &["callpath-db", "callpath-schema"]),
    layer(
        "callpath",
        &[
            "callpath-analyze",
            "callpath-collect",
            "callpath-db",
            "callpath-format",
            "callpath-image",
            "callpath-infer",
            "callpath-measurement",
            "callpath-parquet",
            "callpath-record",
            "callpath-tables",
            "callpath-target",
            "callpath-unwind",
            "callpath-view",
            "callpath-x86",
        ],
    ),
    layer(
        "callpath-oracle",
        &["callpath-tables", "callpath-format", "callpath-image", "callpath-target", "callpath-x86"],
    ),
    layer("callpath-end-to-end", &[]),
    layer("xtask", &["callpath-db", "callpath-tables", "callpath-oracle", "callpath-target"]),
];

/// Crates from outside that only some of ours may use.
const RESERVED: &[(&str, &[&str])] = &[
    ("object", &["callpath-image", "xtask"]),
    ("gimli", &["callpath-image"]),
    ("addr2line", &["callpath-image"]),
    ("iced-x86", &["callpath-oracle", "callpath-x86"]),
    ("yaxpeax-x86", &["callpath-x86"]),
    ("clap", &["callpath"]),
    ("parquet", &["callpath-parquet"]),
    ("anyhow", &["callpath", "xtask"]),
];

/// Fails with every dependency that the table does not allow.
pub fn check() -> anyhow::Result<()> {
    let mut wrong = Vec::new();
    for manifest in ["Cargo.toml"].into_iter().chain(OBJECT_MANIFESTS) {
        let metadata = build::metadata(manifest, &["--no-deps"])?;
        for package in metadata["packages"].as_array().context("cargo metadata without packages")? {
            check_package(package, &mut wrong);
        }
    }
    ensure!(wrong.is_empty(), "dependencies that the layers do not allow:\n  {}", wrong.join("\n  "));
    Ok(())
}

fn check_package(package: &Value, wrong: &mut Vec<String>) {
    let name = package["name"].as_str().unwrap_or_default();
    let Some(layer) = LAYERS.iter().find(|layer| layer.name == name) else {
        wrong.push(format!("{name} is not in the table (xtask/src/layers.rs)"));
        return;
    };
    for dependency in package["dependencies"].as_array().into_iter().flatten() {
        let used = dependency["name"].as_str().unwrap_or_default();
        if dependency["kind"].as_str() == Some("dev") {
            continue;
        }
        let ours = LAYERS.iter().any(|layer| layer.name == used) || used.starts_with("callpath");
        if ours && !layer.uses.contains(&used) {
            wrong.push(format!("{name} uses {used}"));
        }
        if !ours && !layer.foreign {
            wrong.push(format!("{name} runs inside measured programs and uses {used} from outside"));
        }
        if let Some((_, allowed)) = RESERVED.iter().find(|(reserved, _)| *reserved == used)
            && !allowed.contains(&name)
        {
            wrong.push(format!("{name} uses {used}, which is for {} only", allowed.join(", ")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn complaints(name: &str, used: &str, kind: Value) -> usize {
        let mut wrong = Vec::new();
        check_package(&json!({"name": name, "dependencies": [{"name": used, "kind": kind}]}), &mut wrong);
        wrong.len()
    }

    #[test]
    fn wrong_directions_are_named() {
        assert_eq!(complaints("callpath-view", "callpath-db", Value::Null), 0);
        assert_eq!(complaints("callpath-db", "callpath-view", Value::Null), 1);
        assert_eq!(complaints("callpath-db", "callpath-view", json!("dev")), 0);
        assert_eq!(complaints("callpath-collect", "libc", Value::Null), 1);
        assert_eq!(complaints("callpath-db", "gimli", Value::Null), 1);
        assert_eq!(complaints("callpath-new", "libc", Value::Null), 1);
    }
}

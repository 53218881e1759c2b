//! Paths and headings that the documents name must exist: ARCHITECTURE.md, README.md, CHANGELOG.md and docs/.

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

use crate::build;

const DOCUMENTS: &[&str] = &["ARCHITECTURE.md", "README.md", "CHANGELOG.md"];
/// Directories of this repository with which a path begins.
const ROOTS: &[&str] = &["crates/", "docs/", "fuzz/", "tests/", "xtask/"];

/// Fails with each path and each heading that a document names and that does not exist.
pub fn check() -> anyhow::Result<()> {
    let mut documents: Vec<PathBuf> = DOCUMENTS.iter().map(|name| build::root().join(name)).collect();
    let docs = std::fs::read_dir(build::root().join("docs")).context("failed to read docs")?;
    for entry in docs {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "md") {
            documents.push(path);
        }
    }
    let (mut wrong, mut count) = (Vec::new(), 0);
    for document in &documents {
        let text =
            std::fs::read_to_string(document).with_context(|| format!("failed to read {}", document.display()))?;
        let name = document.strip_prefix(build::root()).unwrap_or(document).display();
        for path in paths(&text) {
            count += 1;
            if !build::root().join(path).exists() {
                wrong.push(format!("{name}: {path} does not exist"));
            }
        }
        let directory = document.parent().unwrap_or(build::root());
        for link in links(&text) {
            count += 1;
            if !leads_somewhere(link, document, directory) {
                wrong.push(format!("{name}: the link to {link} leads nowhere"));
            }
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n  "));
    println!("{count} paths and links in {} documents", documents.len());
    Ok(())
}

/// What stands between backticks, without blanks, and begins with a directory of the repository.
fn paths(text: &str) -> impl Iterator<Item = &str> {
    let quoted = text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    quoted.filter(|word| ROOTS.iter().any(|place| word.starts_with(place)) && !word.contains([' ', '*', '<']))
}

/// The targets of links, `[words](target)`, within the repository.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
    targets.filter(|target| !target.contains("://"))
}

/// Whether a link of `document` leads to a file, and to a heading of it if it names one.
fn leads_somewhere(link: &str, document: &Path, directory: &Path) -> bool {
    let (file, heading) = link.split_once('#').map_or((link, None), |(file, heading)| (file, Some(heading)));
    let file = if file.is_empty() { document.to_owned() } else { directory.join(file) };
    match heading {
        None => file.exists(),
        Some(heading) => {
            std::fs::read_to_string(&file).is_ok_and(|text| anchors(&text).any(|anchor| anchor == heading))
        }
    }
}

/// What a heading is called in a link: small letters, digits and hyphens.
fn anchors(text: &str) -> impl Iterator<Item = String> {
    let headings = text.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    headings.map(|heading| {
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
        kept.collect::<String>().to_lowercase().replace(' ', "-")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_document_names() {
        let text = "See `crates/a/src/b.rs`, `docs/c d`, `tests/*.c` and `word`; [here](docs/x.md#a-b) and [there](https://e.org).";
        assert_eq!(paths(text).collect::<Vec<_>>(), ["crates/a/src/b.rs"]);
        assert_eq!(links(text).collect::<Vec<_>>(), ["docs/x.md#a-b"]);
        let anchors: Vec<String> = anchors("# The manual\n## Get names (JIT), now\ntext\n").collect();
        assert_eq!(anchors, ["the-manual", "get-names-jit-now"]);
    }
}

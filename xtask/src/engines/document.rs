//! The code in docs/engines.md, run as it stands there, from top to bottom.

use std::process::Command;

use anyhow::{Context, ensure};

use super::Bench;
use crate::build;
use crate::install::said;

/// Where it is run: with the recordings `first.callpath` and `second.callpath`.
pub(super) const DIRECTORY: &str = "docs";

/// Runs each piece of code. Each has to print something.
pub(super) fn run(bench: &Bench) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(build::root().join("docs/engines.md"))?;
    let mut path: Vec<_> = [&*bench.programs, bench.callpath.parent().context("callpath in no directory")?].into();
    let old = std::env::var_os("PATH").unwrap_or_default();
    let old: Vec<_> = std::env::split_paths(&old).collect();
    path.extend(old.iter().map(|directory| &**directory));
    let path = std::env::join_paths(path)?;
    let pieces = pieces(&text);
    ensure!(pieces.len() > 5, "docs/engines.md has no code");
    for (line, language, code) in pieces {
        let mut command = match language {
            "sh" => {
                let mut command = Command::new("sh");
                command.arg("-ec");
                command
            }
            "python" => {
                let mut command = bench.python();
                command.arg("-c");
                command
            }
            other => anyhow::bail!("docs/engines.md:{line}: nothing runs {other}"),
        };
        command.arg(&code).current_dir(bench.directory.join(DIRECTORY)).env("PATH", &path);
        let printed = said(&mut command).with_context(|| format!("docs/engines.md:{line}"))?;
        ensure!(!printed.trim().is_empty(), "docs/engines.md:{line} prints nothing");
        println!(
            "docs/engines.md:{line}: {} lines of {language}, {} printed",
            code.lines().count(),
            printed.lines().count()
        );
    }
    Ok(())
}

/// The pieces of code between fences: the first line's number, the language, the code.
fn pieces(text: &str) -> Vec<(usize, &str, String)> {
    let mut pieces: Vec<(usize, &str, String)> = Vec::new();
    let mut inside = false;
    for (number, line) in text.lines().enumerate() {
        match line.strip_prefix("```") {
            Some(_) if inside => inside = false,
            Some(language) => {
                inside = true;
                pieces.push((number + 2, language, String::new()));
            }
            None if inside => {
                let code = pieces.last_mut().map(|(_, _, code)| code);
                code.into_iter().for_each(|code| code.extend([line, "\n"]));
            }
            None => {}
        }
    }
    // What is only to be read has no language.
    pieces.retain(|(_, language, _)| !language.is_empty());
    pieces
}

#[cfg(test)]
mod tests {
    use super::pieces;

    #[test]
    fn code_stands_between_fences() {
        let text = "words\n```sh\nls\necho a\n```\n```\nfor reading\n```\n```python\nprint(1)\n```\n";
        let expected = [(3, "sh", "ls\necho a\n".to_owned()), (10, "python", "print(1)\n".to_owned())];
        assert_eq!(pieces(text), expected);
    }
}

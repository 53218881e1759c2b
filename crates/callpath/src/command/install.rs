//! `callpath install`: shell completions and man pages, where shells and `man` look for them.

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use callpath_view::json::quoted;
use callpath_view::text::{printable, shell_word};
use clap_mangen::Man;

use super::completions::{ShellArgument, completions};
use crate::outcome::Outcome;
use crate::output;

/// The schema of the JSON (docs/formats.md).
const SCHEMA: u32 = 1;

/// Where zsh looks, below the directory of shared data.
const ZSH: &str = "zsh/site-functions";

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Install below DIR/share [default: /usr/local/share for root, else $XDG_DATA_HOME or ~/.local/share]
    #[arg(long, value_name = "DIR")]
    prefix: Option<PathBuf>,
    /// Print what was written as JSON (docs/formats.md)
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments, whole: clap::Command) -> Outcome {
    let share = share(arguments)?;
    let files: Vec<(PathBuf, Vec<u8>)> =
        scripts(&whole).into_iter().chain(pages(whole)?).map(|(name, content)| (share.join(name), content)).collect();
    for (path, content) in &files {
        write(path, content).with_context(|| format!("failed to write {}", path.display()))?;
    }
    let mut out = output::stdout();
    if arguments.json {
        let names = files.iter().map(|(path, _)| quoted(&path.to_string_lossy()));
        let names = names.collect::<Result<Vec<String>, _>>()?.join(",\n");
        writeln!(out, "{{\"schema\":{SCHEMA},\"kind\":\"install\",\"files\":[\n{names}]}}")?;
    } else {
        files.iter().try_for_each(|(path, _)| writeln!(out, "{}", printable(&path.to_string_lossy())))?;
    }
    out.flush()?;
    if arguments.prefix.is_some() || !is_root() {
        let directory = shell_word(&share.join(ZSH).to_string_lossy());
        output::say(format_args!("zsh finds them if ~/.zshrc has, before compinit: fpath+=({directory})"));
    }
    Ok(0)
}

fn is_root() -> bool {
    // SAFETY: a call without arguments that cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// The directory of shared data.
fn share(arguments: &Arguments) -> anyhow::Result<PathBuf> {
    if let Some(prefix) = &arguments.prefix {
        return Ok(prefix.join("share"));
    }
    if is_root() {
        return Ok("/usr/local/share".into());
    }
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || absolute("HOME").map(|home| home.join(".local/share"));
    absolute("XDG_DATA_HOME").or_else(home).context("no home directory ($HOME): name one with --prefix")
}

fn scripts(whole: &clap::Command) -> [(PathBuf, Vec<u8>); 3] {
    [
        ("bash-completion/completions/callpath".into(), completions(ShellArgument::Bash, whole)),
        (Path::new(ZSH).join("_callpath"), completions(ShellArgument::Zsh, whole)),
        ("fish/vendor_completions.d/callpath.fish".into(), completions(ShellArgument::Fish, whole)),
    ]
}

/// A man page for each command.
fn pages(whole: clap::Command) -> anyhow::Result<Vec<(PathBuf, Vec<u8>)>> {
    let mut whole = whole.disable_help_subcommand(true).propagate_version(true);
    whole.build();
    let (mut left, mut pages) = (vec![whole], Vec::new());
    while let Some(command) = left.pop() {
        left.extend(command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()).cloned());
        let man = Man::new(command).source(concat!("callpath ", env!("CARGO_PKG_VERSION"))).manual("callpath");
        let mut page = Vec::new();
        man.render(&mut page)?;
        // No date: without quotes, what follows would be taken for it.
        let page = String::from_utf8(page)?.replacen(" 1  \"", " 1 \"\" \"", 1);
        pages.push((Path::new("man/man1").join(man.get_filename()), page.into_bytes()));
    }
    pages.sort();
    Ok(pages)
}

/// Writes a file that everybody may read, in the place of an older one; never a half of it.
fn write(path: &Path, content: &[u8]) -> std::io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(directory)?;
    let mode = Permissions::from_mode(0o644);
    let mut file = tempfile::Builder::new().permissions(mode).tempfile_in(directory)?;
    file.write_all(content)?;
    file.persist(path)?;
    Ok(())
}

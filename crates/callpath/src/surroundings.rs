//! What the environment says: where things are kept, what a terminal can show, where debug files are.

use std::io::{IsTerminal, Write, stderr};
use std::path::PathBuf;

use callpath_view::text::shell_word;

/// Where recipe tables and the preload object are kept: `CALLPATH_CACHE_DIR`, or the user's cache directory.
pub(crate) fn cache_directory() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    set("CALLPATH_CACHE_DIR")
        .or_else(|| set("XDG_CACHE_HOME").filter(|p| p.is_absolute()).map(|p| p.join("callpath")))
        .or_else(|| set("HOME").filter(|p| p.is_absolute() && p.is_dir()).map(|p| p.join(".cache/callpath")))
}

/// Where separate debug files are: `CALLPATH_DEBUG_DIR` (several with colons), and the system's.
pub(crate) fn debug_roots() -> Vec<PathBuf> {
    let own = std::env::var_os("CALLPATH_DEBUG_DIR").unwrap_or_default();
    let own: Vec<PathBuf> = std::env::split_paths(&own).filter(|p| !p.as_os_str().is_empty()).collect();
    own.into_iter().chain([PathBuf::from(callpath_image::debug_file::DEFAULT_ROOT)]).collect()
}

/// Columns and rows of a terminal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Size {
    pub(crate) columns: usize,
    pub(crate) rows: usize,
}

/// The terminal that standard output is. `None`: it is none, or one that does not know its size.
pub(crate) fn terminal() -> Option<Size> {
    terminal_of(libc::STDOUT_FILENO)
}

/// The terminal that a descriptor is.
pub(crate) fn terminal_of(descriptor: libc::c_int) -> Option<Size> {
    // SAFETY: a valid place for the answer.
    let size = unsafe {
        let mut size: libc::winsize = std::mem::zeroed();
        (libc::ioctl(descriptor, libc::TIOCGWINSZ, &mut size) == 0).then_some(size)
    };
    let size = size.map(|size| Size { columns: size.ws_col.into(), rows: size.ws_row.into() });
    size.filter(|size| size.columns > 0)
}

/// Pages and terminals are taken to be at least so wide: in fewer columns, lines break in the middle of numbers.
pub(crate) const LEAST_COLUMNS: usize = 40;

/// Columns of the terminal that standard output is; else what the variable `COLUMNS` says, else of a page.
pub(crate) fn width() -> usize {
    const PAGE: usize = 100;
    const MOST: usize = 10_000;
    let said = || std::env::var("COLUMNS").ok().and_then(|columns| columns.trim().parse::<usize>().ok());
    let said = || said().filter(|columns| *columns > 0).map(|columns| columns.min(MOST));
    let columns = terminal().map(|size| size.columns.min(200)).or_else(said).unwrap_or(PAGE);
    columns.max(LEAST_COLUMNS)
}

/// What was typed to run this command, for messages that name the next one: `callpath`, or a path.
pub(crate) fn typed_command() -> String {
    std::env::args().next().filter(|name| !name.is_empty()).map_or("callpath".into(), |name| shell_word(&name))
}

/// A bar on a terminal's standard error that shows how far a long work has come, after half a second.
pub(crate) struct Progress {
    what: &'static str,
    began: std::time::Instant,
    /// How many columns are written on.
    shown: usize,
}

impl Progress {
    pub(crate) fn new(what: &'static str) -> Progress {
        Progress { what, began: std::time::Instant::now(), shown: 0 }
    }

    /// Shows that `done` are done, of the number `of`.
    pub(crate) fn step(&mut self, done: usize, of: usize) {
        const PATIENCE: std::time::Duration = std::time::Duration::from_millis(500);
        if self.began.elapsed() >= PATIENCE && stderr().is_terminal() {
            let line = bar(self.what, done, of);
            self.shown = self.shown.max(line.len());
            drop(write!(stderr(), "\r{line:0$}", self.shown));
        }
    }
}

/// `reading [####......] 2/5`
fn bar(what: &str, done: usize, of: usize) -> String {
    const COLUMNS: usize = 30;
    let full = (done * COLUMNS).checked_div(of).unwrap_or(COLUMNS).min(COLUMNS);
    let left = COLUMNS - full;
    format!("{what} [{:#<full$}{:.<left$}] {done}/{of}", "", "")
}

impl Drop for Progress {
    fn drop(&mut self) {
        // No colours, and no escapes either: not every terminal has them.
        if self.shown > 0 {
            drop(write!(stderr(), "\r{:1$}\r", "", self.shown));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::bar;

    #[test]
    fn a_bar_grows_from_left_to_right() {
        assert_eq!(bar("reading", 0, 3), "reading [..............................] 0/3");
        assert_eq!(bar("reading", 1, 3), "reading [##########....................] 1/3");
        assert_eq!(bar("reading", 3, 3), "reading [##############################] 3/3");
        assert_eq!(bar("reading", 0, 0), "reading [##############################] 0/0");
    }
}

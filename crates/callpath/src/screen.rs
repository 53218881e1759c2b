//! How a command shows its text: in colour or not, and through a pager where it is longer than the terminal.

use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::process::{Child, ChildStdin, Command, Stdio};

use callpath_target::find_program;

use crate::output::{self, Stdout};
use crate::surroundings::{self, Size};

/// The options of commands that show text.
#[derive(clap::Args)]
pub(crate) struct ScreenOptions {
    /// When to use colour: auto (on a terminal), always or never
    #[arg(long, value_name = "WHEN", default_value = "auto", hide_possible_values = true)]
    color: When,
    /// Do not start a pager ($CALLPATH_PAGER, $PAGER, or less) where the text is longer than the terminal
    #[arg(long)]
    no_pager: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum When {
    Auto,
    Always,
    Never,
}

impl ScreenOptions {
    /// Whether the text may be coloured.
    pub(crate) fn color(&self) -> bool {
        is_coloured(self.color, &|name| std::env::var_os(name), io::stdout().is_terminal())
    }

    /// Whether what is drawn on standard error may be coloured.
    pub(crate) fn color_of_stderr(&self) -> bool {
        is_coloured(self.color, &|name| std::env::var_os(name), io::stderr().is_terminal())
    }

    /// Where the text goes. Call [`Screen::end`] after the last byte.
    pub(crate) fn open(&self) -> Screen {
        let terminal = surroundings::terminal().filter(|_| !self.no_pager);
        let has_less = || find_program(OsStr::new("less")).is_ok();
        match terminal.and_then(|size| Some((size, pager(&|name| std::env::var_os(name), has_less)?))) {
            Some((size, pager)) => Screen::Held { text: Vec::new(), size, pager },
            None => Screen::Stdout(output::stdout()),
        }
    }
}

/// `--color`, then what the environment says by the customs of <https://no-color.org> and
/// <https://bixense.com/clicolors>, then whether a terminal shows it.
fn is_coloured(asked: When, environment: &dyn Fn(&str) -> Option<OsString>, is_terminal: bool) -> bool {
    let set = |name: &str| environment(name).filter(|value| !value.is_empty());
    match asked {
        When::Always => true,
        When::Never => false,
        When::Auto if set("NO_COLOR").is_some() => false,
        When::Auto if set("CLICOLOR_FORCE").is_some_and(|value| value != "0") => true,
        When::Auto => {
            is_terminal
                && set("TERM").is_none_or(|terminal| terminal != "dumb")
                && set("CLICOLOR").is_none_or(|value| value != "0")
        }
    }
}

/// The pager as a shell's command line. `None`: there is none, or there shall be none (empty, or `cat`).
fn pager(environment: &dyn Fn(&str) -> Option<OsString>, has_less: impl Fn() -> bool) -> Option<OsString> {
    let named = environment("CALLPATH_PAGER").or_else(|| environment("PAGER"));
    named.or_else(|| has_less().then(|| "less -FRX".into())).filter(|pager| !pager.is_empty() && pager != "cat")
}

/// Standard output, with a pager before it as soon as the text is longer than the terminal.
pub(crate) enum Screen {
    /// No pager, however long the text is.
    Stdout(io::BufWriter<Stdout>),
    /// So far the text fits on the terminal.
    Held { text: Vec<u8>, size: Size, pager: OsString },
    /// It did not.
    Paged(Pager),
}

impl Screen {
    /// Writes what is still held back, and waits until the pager has ended.
    pub(crate) fn end(&mut self) -> io::Result<()> {
        match self {
            Screen::Stdout(out) => out.flush(),
            Screen::Held { text, .. } => {
                let mut out = output::stdout();
                out.write_all(text)?;
                out.flush()
            }
            Screen::Paged(pager) => pager.end(),
        }
    }
}

impl Write for Screen {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Screen::Stdout(out) => return out.write(bytes),
            Screen::Held { text, size, pager } => {
                text.extend_from_slice(bytes);
                if rows(text, size.columns) >= size.rows {
                    let mut started = Pager::start(pager)?;
                    started.write(text)?;
                    *self = Screen::Paged(started);
                }
            }
            Screen::Paged(pager) => pager.write(bytes)?,
        }
        Ok(bytes.len())
    }

    /// What is held back stays so until the end.
    fn flush(&mut self) -> io::Result<()> {
        match self {
            Screen::Stdout(out) => out.flush(),
            Screen::Held { .. } | Screen::Paged(_) => Ok(()),
        }
    }
}

/// Rows of a terminal with so many columns that a text takes.
fn rows(text: &[u8], columns: usize) -> usize {
    let text = String::from_utf8_lossy(text);
    let of_line = |line: &str| {
        let mut is_escape = false;
        let shown = line.chars().filter(|&c| {
            let is_shown = !is_escape && c != '\x1b';
            // `ESC [ 1 ; 31 m`: the only kind there is.
            is_escape = c == '\x1b' || is_escape && c != 'm';
            is_shown
        });
        shown.count().div_ceil(columns.max(1)).max(1)
    };
    text.lines().map(of_line).sum()
}

/// A pager that reads what is written to it. Dropped, it is waited for: else it would share the terminal with the shell.
pub(crate) struct Pager {
    /// The command line.
    name: OsString,
    child: Child,
    /// Gone when all is written, or nothing reads it any more.
    input: Option<io::BufWriter<ChildStdin>>,
    /// What was written: it is shown without the pager if that cannot be run.
    written: Vec<u8>,
}

impl Pager {
    fn start(name: &OsStr) -> io::Result<Pager> {
        let mut shell = Command::new("/bin/sh");
        shell.arg("-c").arg(name).stdin(Stdio::piped());
        if std::env::var_os("LESS").is_none() {
            // Colours as they are, no other screen: also where $PAGER is a plain `less`.
            shell.env("LESS", "FRX");
        }
        let mut child = shell.spawn()?;
        // Ctrl-C is for the pager; we end when it does.
        // SAFETY: no handler is installed.
        unsafe { libc::signal(libc::SIGINT, libc::SIG_IGN) };
        let input = child.stdin.take().map(io::BufWriter::new);
        Ok(Pager { name: name.to_owned(), child, input, written: Vec::new() })
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.written.extend_from_slice(bytes);
        let Some(input) = &mut self.input else { return Ok(()) };
        match input.write_all(bytes) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                self.close();
                // Left early by its user, who wants no more; or it has never run, and all of the text is still to be shown.
                if self.has_run()? { Err(error) } else { Ok(()) }
            }
            result => result,
        }
    }

    fn close(&mut self) {
        if let Some(input) = self.input.take() {
            // What is still in it no one reads.
            drop(input.into_parts());
        }
    }

    /// Waits until its user has seen enough; whether it could be run at all, by the shell's words for that.
    fn has_run(&mut self) -> io::Result<bool> {
        Ok(!matches!(self.child.wait()?.code(), Some(126 | 127)))
    }

    /// Waits until its user has seen enough. Without a pager that can be run, the text is shown as it is.
    fn end(&mut self) -> io::Result<()> {
        let flushed = self.input.as_mut().map_or(Ok(()), Write::flush);
        self.close();
        if self.has_run()? {
            return flushed;
        }
        let text = std::mem::take(&mut self.written);
        if text.is_empty() {
            return Ok(());
        }
        let name = self.name.to_string_lossy();
        output::say(format_args!("the pager `{name}` cannot be run ($CALLPATH_PAGER, $PAGER); --no-pager starts none"));
        let mut out = output::stdout();
        out.write_all(&text)?;
        out.flush()
    }
}

impl Drop for Pager {
    fn drop(&mut self) {
        // Whatever it says: another error is on its way, or all has been said.
        self.close();
        drop(self.has_run());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment<'a>(set: &'a [(&str, &str)]) -> impl Fn(&str) -> Option<OsString> + 'a {
        move |name| set.iter().find(|(set, _)| *set == name).map(|(_, value)| value.into())
    }

    #[test]
    fn colour_by_option_environment_and_terminal() {
        let auto = |set: &[(&str, &str)], is_terminal| is_coloured(When::Auto, &environment(set), is_terminal);
        assert!(auto(&[], true) && !auto(&[], false));
        assert!(!auto(&[("NO_COLOR", "1")], true) && auto(&[("NO_COLOR", "")], true));
        assert!(auto(&[("CLICOLOR_FORCE", "1")], false) && !auto(&[("CLICOLOR_FORCE", "0")], false));
        assert!(!auto(&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")], true));
        assert!(!auto(&[("TERM", "dumb")], true) && !auto(&[("CLICOLOR", "0")], true));
        let no_color = environment(&[("NO_COLOR", "1")]);
        assert!(is_coloured(When::Always, &no_color, false) && !is_coloured(When::Never, &environment(&[]), true));
    }

    #[test]
    fn which_pager() {
        let chosen = |set: &[(&str, &str)], has_less| pager(&environment(set), || has_less);
        assert_eq!(chosen(&[], true), Some("less -FRX".into()));
        assert_eq!(chosen(&[], false), None);
        assert_eq!(chosen(&[("PAGER", "more")], true), Some("more".into()));
        assert_eq!(chosen(&[("PAGER", "more"), ("CALLPATH_PAGER", "most -w")], true), Some("most -w".into()));
        for none in ["", "cat"] {
            assert_eq!(chosen(&[("PAGER", "more"), ("CALLPATH_PAGER", none)], true), None);
        }
    }

    #[test]
    fn rows_of_a_text() {
        assert_eq!(rows(b"", 80), 0);
        assert_eq!(rows(b"one\n\nthree", 80), 3);
        assert_eq!(rows(b"1234567890\n12345678901\n", 10), 3);
        assert_eq!(rows("\x1b[1;31m1234567890\x1b[0m\n└┴┴┴┴┴┴┴┴┘\n".as_bytes(), 10), 2);
    }
}

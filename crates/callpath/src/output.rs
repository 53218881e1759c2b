//! Output: data to standard output, all else to standard error.
//!
//! Standard output that takes no more (a full disk) ends the command with a sentence; one whose reader went away
//! (`| head`) ends it silently. A standard error that takes no more changes nothing.

use std::fmt::Display;
use std::io::{self, BufWriter, ErrorKind, StdoutLock, Write};

use callpath_measurement::plain;
use callpath_view::text::printable;

/// Standard output, in pieces. Flush it at the end: what is still in it when it is dropped may be lost without a word.
pub(crate) fn stdout() -> BufWriter<Stdout> {
    BufWriter::new(Stdout(io::stdout().lock()))
}

/// Standard output, with errors that say so.
pub(crate) struct Stdout(StdoutLock<'static>);

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(explained)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(explained)
    }
}

/// The same error, as a sentence.
pub(crate) fn explained(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot write to standard output: {}", plain(&error)))
}

/// The reader of standard output has gone away.
pub(crate) fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == ErrorKind::BrokenPipe))
}

/// A line on standard error.
pub(crate) fn say(line: impl Display) {
    // It contains names of files and programs, which must not act on a terminal.
    drop(writeln!(io::stderr(), "callpath: {}", printable(&plain(line))));
}

//! The output of a process for which no one waits: it writes to a named pipe, and its end ends what is read.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::JoinHandle;

/// A pipe with a name, for one writer after the other.
#[derive(Debug)]
pub struct NamedPipe {
    path: PathBuf,
}

impl NamedPipe {
    /// A pipe that every user may write to. Panics if there is something of this name.
    pub fn new(path: PathBuf) -> Self {
        let made = Command::new("mkfifo").args(["-m", "666"]).arg(&path).status();
        assert!(made.expect("mkfifo can be run").success(), "no pipe {}", path.display());
        Self { path }
    }

    /// Its name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Begins to read what the next writer says.
    pub fn told(&self) -> Told {
        let path = self.path.clone();
        let reader = std::thread::spawn(move || {
            let mut text = String::new();
            // Opened when the writer opens it; at its end when all have closed it.
            File::open(path).and_then(|mut pipe| pipe.read_to_string(&mut text)).expect("the pipe can be read");
            text
        });
        Told { reader }
    }
}

/// What is being read of a pipe.
#[derive(Debug)]
pub struct Told {
    reader: JoinHandle<String>,
}

impl Told {
    /// All of it, when the writer and its children have ended.
    pub fn until_the_end(self) -> String {
        self.reader.join().expect("the reader ends with the pipe")
    }

    /// Whether the writer has ended.
    pub fn is_over(&self) -> bool {
        self.reader.is_finished()
    }
}

//! A program of the field, as data.

/// Makes an input, the same each time.
pub type Maker = fn() -> Vec<u8>;

/// One program. Its output and status should depend on nothing but the row.
#[derive(Debug)]
pub struct Row {
    /// What `--programs` calls it.
    pub name: &'static str,
    /// What it is and does, in a few words.
    pub does: &'static str,
    /// Debian packages that it needs.
    pub packages: &'static [&'static str],
    /// Files that are written into its directory: name, content.
    pub files: &'static [(&'static str, &'static str)],
    /// Files that are made for it: name, content.
    pub generated_inputs: &'static [(&'static str, Maker)],
    /// A shell script, run there once, that builds it and makes its inputs; what is
    /// installed from elsewhere goes there, too.
    pub build: &'static str,
    /// The words that are run there. A first word with a slash is a file in the
    /// directory, another a program of Debian's.
    pub run: &'static [&'static str],
    /// Environment beyond the usual one.
    pub environment: &'static [(&'static str, &'static str)],
    /// A file in the directory that it reads.
    pub stdin: Option<&'static str>,
    /// Each recording begins with an empty cache.
    pub cold: bool,
}

/// What most rows leave out.
pub(super) const PLAIN: Row = Row {
    name: "",
    does: "",
    packages: &[],
    files: &[],
    generated_inputs: &[],
    build: "",
    run: &[],
    environment: &[],
    stdin: None,
    cold: false,
};

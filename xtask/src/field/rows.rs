//! The programs of the field, as data: what is installed, how it is built, what is run. A room for each family.

mod checked;
mod managed;
mod native;
mod scripted;
mod servers;
mod tools;

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
    pub made: &'static [(&'static str, Maker)],
    /// A shell script, run there once, that builds it and makes its inputs; what is installed from elsewhere goes there, too.
    pub build: &'static str,
    /// The words that are run there. A first word with a slash is a file in the directory, another a program of Debian's.
    pub run: &'static [&'static str],
    /// Environment beyond the usual one.
    pub environment: &'static [(&'static str, &'static str)],
    /// A file in the directory that it reads.
    pub stdin: Option<&'static str>,
    /// Each recording begins with an empty cache.
    pub cold: bool,
}

/// What most rows leave out.
const PLAIN: Row = Row {
    name: "",
    does: "",
    packages: &[],
    files: &[],
    made: &[],
    build: "",
    run: &[],
    environment: &[],
    stdin: None,
    cold: false,
};

/// All of them, in the order of the table.
pub fn all() -> impl Iterator<Item = &'static Row> {
    [native::ROWS, scripted::ROWS, managed::ROWS, checked::ROWS, servers::ROWS, tools::ROWS].into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_row_is_complete_and_has_a_name_of_its_own() {
        let mut names = BTreeSet::new();
        for row in all() {
            assert!(names.insert(row.name), "{} twice", row.name);
            assert!(!row.does.is_empty() && !row.run.is_empty(), "{} lacks something", row.name);
            let plain = |c: char| c.is_ascii_alphanumeric() || ".-+".contains(c);
            assert!(row.name.chars().all(plain), "{} cannot be a directory and a word of --programs", row.name);
        }
    }
}

//! The programs of the field, as data: what is installed, how it is built, what is run. A room for each family.

mod checked;
mod managed;
mod native;
mod outside;
mod row;
mod scripted;
mod servers;
mod tools;

pub use row::Row;

/// All of them, in the order of the table.
pub fn all() -> impl Iterator<Item = &'static Row> {
    [native::ROWS, scripted::ROWS, managed::ROWS, outside::ROWS, checked::ROWS, servers::ROWS, tools::ROWS]
        .into_iter()
        .flatten()
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

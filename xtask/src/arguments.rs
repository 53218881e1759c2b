//! The command line after the command: `--name value`, `--name=value` and `--flag`.
//! An unknown name is an error.

use std::collections::BTreeMap;

use anyhow::{Context, bail};

/// Options that take no value.
const FLAGS: [&str; 5] = ["quick", "list", "five-pairs", "no-install", "outside"];

/// The options that were typed.
#[derive(Debug, Default)]
pub struct Arguments {
    given: BTreeMap<String, String>,
}

impl Arguments {
    /// From the words after the command. Fails on a word that is no option, and on an option without its value.
    pub fn parse(mut words: impl Iterator<Item = String>) -> anyhow::Result<Self> {
        let mut given = BTreeMap::new();
        while let Some(word) = words.next() {
            let Some(name) = word.strip_prefix("--") else { bail!("`{word}` is not an option") };
            let (name, value) = match name.split_once('=') {
                Some((name, value)) => (name, value.to_owned()),
                None if FLAGS.contains(&name) => (name, String::new()),
                None => (name, words.next().with_context(|| format!("--{name} needs a value"))?),
            };
            given.insert(name.to_owned(), value);
        }
        Ok(Self { given })
    }

    /// Fails on any option that is not in `known`.
    pub fn only(&self, known: &[&str]) -> anyhow::Result<()> {
        match self.given.keys().find(|name| !known.contains(&name.as_str())) {
            Some(name) => bail!("--{name} is not an option of this command"),
            None => Ok(()),
        }
    }

    /// Whether a flag was given.
    pub fn flag(&self, name: &str) -> bool {
        self.given.contains_key(name)
    }

    /// An option's value.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.given.get(name).map(String::as_str)
    }

    /// An option's value as a number above 0, or the default. Fails on anything else.
    pub fn number(&self, name: &str, default: usize) -> anyhow::Result<usize> {
        match self.text(name) {
            None => Ok(default),
            Some(text) => match text.parse() {
                Ok(number) if number > 0 => Ok(number),
                _ => bail!("--{name} takes a number above 0, not `{text}`"),
            },
        }
    }
}

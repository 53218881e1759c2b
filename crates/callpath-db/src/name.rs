//! Interned strings: every name, module and file of a profile is stored once and referred to by a small id.

use std::num::NonZeroU32;
use std::sync::Arc;

use rustc_hash::FxHashMap;

/// A string of one [`Strings`] table. Ids of different tables do not compare.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Name(NonZeroU32);

impl Name {
    /// The empty string, in every table.
    pub const EMPTY: Name = Name(NonZeroU32::MIN);

    pub(crate) fn index(self) -> usize {
        self.0.get() as usize - 1
    }

    /// The name with this index; `None`: no table is so long.
    pub(crate) fn at(index: usize) -> Option<Name> {
        u32::try_from(index).ok()?.checked_add(1).and_then(NonZeroU32::new).map(Name)
    }
}

impl Default for Name {
    fn default() -> Self {
        Name::EMPTY
    }
}

/// The strings of one profile.
#[derive(Clone, Debug)]
pub struct Strings {
    list: Vec<Arc<str>>,
    index: FxHashMap<Arc<str>, Name>,
}

impl Default for Strings {
    fn default() -> Self {
        let mut strings = Strings { list: Vec::new(), index: FxHashMap::default() };
        strings.intern("");
        strings
    }
}

impl Strings {
    /// The id of `text`, the same for equal text.
    pub fn intern(&mut self, text: &str) -> Name {
        if let Some(&name) = self.index.get(text) {
            return name;
        }
        let text: Arc<str> = text.into();
        self.list.push(text.clone());
        let count = u32::try_from(self.list.len()).ok().and_then(NonZeroU32::new);
        let name = Name(count.expect("memory runs out long before 2^32 distinct strings"));
        self.index.insert(text, name);
        name
    }

    /// The text of `name`; empty for an id that is not of this table.
    pub fn get(&self, name: Name) -> &str {
        self.list.get(name.index()).map_or("", |text| text)
    }

    /// All of them, in order of their ids.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        self.list.iter().map(|text| &**text)
    }

    /// How many distinct strings there are, the empty one included.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Never true: every table has the empty string.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_text_has_one_id() {
        let mut strings = Strings::default();
        let main = strings.intern("main");
        assert_eq!(strings.intern("main"), main);
        assert_ne!(strings.intern("mai"), main);
        assert_eq!(strings.get(main), "main");
        assert_eq!(strings.intern(""), Name::EMPTY);
        assert_eq!(strings.len(), 3);
    }
}

//! What a database holds, row by row, for who writes it in another format: contexts in preorder, with their ids, and what they
//! stand for. Values are read profile by profile ([`Database::values`]).

use super::error::DatabaseError;
use super::layout::{SectionKind, u32_at};
use super::{ContextTable, Database};
use crate::{Name, Scope};

/// The contexts of a database, with their names.
pub struct Content<'a> {
    contexts: ContextTable<'a>,
    ends: &'a [u8],
    depths: &'a [u8],
    scopes: Vec<Scope>,
    texts: Vec<&'a str>,
}

/// A context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ContextEntry {
    /// Its id, equal in each database; the root's is 0.
    pub id: u64,
    /// The place of the one above; none of the root.
    pub parent: Option<u32>,
    /// One past the last place below it.
    pub end: u32,
    /// How many are above.
    pub depth: u32,
    /// What it stands for, by its number in [`Content::scopes`].
    pub scope: u32,
}

impl Database {
    /// The contexts, their scopes and strings, all of them checked.
    pub fn content(&self) -> Result<Content<'_>, DatabaseError> {
        let texts = self.strings()?;
        Ok(Content {
            contexts: self.contexts()?,
            ends: self.bytes_of_kind(SectionKind::Ends, 0)?,
            depths: self.bytes_of_kind(SectionKind::Depths, 0)?,
            scopes: self.scopes(texts.len())?,
            texts,
        })
    }
}

impl Content<'_> {
    /// How many contexts there are: their places are from 0, the root's, up to this.
    pub fn len(&self) -> usize {
        self.contexts.len
    }

    /// Never true: there is a root.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The context at a place.
    pub fn context(&self, place: usize) -> ContextEntry {
        let end = u32_at(self.ends, place).clamp(place as u32 + 1, self.len() as u32);
        ContextEntry {
            id: self.contexts.id(place),
            parent: (place > 0).then(|| self.contexts.parent(place)),
            end,
            depth: u32_at(self.depths, place),
            scope: self.contexts.scope(place),
        }
    }

    /// What contexts stand for; their names are of [`Content::text`].
    pub fn scopes(&self) -> &[Scope] {
        &self.scopes
    }

    /// A name's text.
    pub fn text(&self, name: Name) -> &str {
        // Scopes name no other strings.
        self.texts.get(name.index()).copied().unwrap_or_default()
    }
}

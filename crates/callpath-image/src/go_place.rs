//! Where an image has Go's own table ([`crate::go_table`]).

/// A place in a section.
pub(crate) struct GoPlace {
    pub(crate) section: &'static str,
    /// In the section, bytes.
    pub(crate) offset: usize,
    /// Where code begins, for a table that does not say it.
    pub(crate) text: u64,
}

//! How often something happened, where that is known within bounds.

/// How often, at least and at most.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Bounds {
    /// At least so often.
    pub least: u64,
    /// At most so often. `None`: that is not known.
    pub most: Option<u64>,
}

impl Bounds {
    /// So often, and neither less nor more.
    pub fn exactly(count: u64) -> Bounds {
        Bounds { least: count, most: Some(count) }
    }

    /// Whether it is known exactly.
    pub fn is_exact(self) -> bool {
        self.most == Some(self.least)
    }

    /// Both together.
    pub fn plus(self, other: Bounds) -> Bounds {
        let most = self.most.zip(other.most).and_then(|(one, two)| one.checked_add(two));
        Bounds { least: self.least.saturating_add(other.least), most }
    }
}

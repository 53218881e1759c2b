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

    /// Whether there is any that is known of: one at least, or not more than so many.
    pub fn is_known_to_be_some(self) -> bool {
        self.least > 0 || self.most.is_some_and(|most| most > 0)
    }

    /// Both together.
    pub fn plus(self, other: Bounds) -> Bounds {
        let most = self.most.zip(other.most).and_then(|(one, two)| one.checked_add(two));
        Bounds { least: self.least.saturating_add(other.least), most }
    }
}

//! One thing that the doctor looked at: how it is, what follows, what to do.

/// How a thing is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum State {
    /// As good as it gets.
    Good,
    /// Measuring works, with less than there could be.
    Limited,
    /// Measuring does not work.
    Bad,
}

/// One thing that was looked at.
pub(super) struct Finding {
    pub(super) topic: &'static str,
    pub(super) state: State,
    /// What is so.
    pub(super) found: String,
    /// What follows for a measurement; empty: nothing.
    pub(super) meaning: String,
    /// What to do, a command where there is one; empty: nothing.
    pub(super) remedy: String,
}

impl Finding {
    pub(super) fn new(topic: &'static str, state: State, found: impl Into<String>) -> Finding {
        Finding { topic, state, found: found.into(), meaning: String::new(), remedy: String::new() }
    }

    pub(super) fn good(topic: &'static str, found: impl Into<String>) -> Finding {
        Finding::new(topic, State::Good, found)
    }

    pub(super) fn limited(topic: &'static str, found: impl Into<String>) -> Finding {
        Finding::new(topic, State::Limited, found)
    }

    pub(super) fn bad(topic: &'static str, found: impl Into<String>) -> Finding {
        Finding::new(topic, State::Bad, found)
    }

    pub(super) fn means(mut self, meaning: impl Into<String>) -> Finding {
        self.meaning = meaning.into();
        self
    }

    pub(super) fn remedy(mut self, remedy: impl Into<String>) -> Finding {
        self.remedy = remedy.into();
        self
    }
}

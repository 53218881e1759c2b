//! What answers queries: a profile in memory, or a database that reads no more than an answer needs.

use super::error::DatabaseError;
use crate::{Inlined, ProcedureCost, Profile, Query, QueryError, View};

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// What was asked for is not there.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// The database cannot be read.
    #[error("failed to {0}")]
    Database(#[from] DatabaseError),
}

/// What answers queries. Equal profiles answer equally, wherever they are; only [`crate::ViewNode::contexts`] of scopes that are neither
/// processes nor threads may be less where threads are added up.
pub trait Answers {
    /// What ran, how samples were accounted for, the metrics and strings, and the tree's ranks, processes and threads with what each costs.
    /// Whether the tree has anything below a thread is not said.
    fn profile(&self) -> &Profile;

    /// The same for a query, of which [`Profile::processes`] and [`Profile::meant`] are asked, too: with the whole tree where paths decide.
    fn profile_for(&self, query: &Query) -> Result<&Profile, AnswerError>;

    /// As [`Profile::view`].
    fn view(&self, query: &Query) -> Result<View, AnswerError>;

    /// A calling context view, of a query that prunes nothing, with the path from the root always to the costliest child; what is beside it may
    /// stand there as one node with all that it calls.
    fn hottest(&self, query: &Query) -> Result<View, AnswerError>;

    /// As [`Profile::procedures`].
    fn procedures(&self, query: &Query, inlined: Inlined) -> Result<Vec<ProcedureCost>, AnswerError>;
}

impl Answers for Profile {
    fn profile(&self) -> &Profile {
        self
    }

    fn profile_for(&self, _: &Query) -> Result<&Profile, AnswerError> {
        Ok(self)
    }

    fn view(&self, query: &Query) -> Result<View, AnswerError> {
        Ok(Profile::view(self, query)?)
    }

    fn hottest(&self, query: &Query) -> Result<View, AnswerError> {
        Ok(Profile::view(self, query)?)
    }

    fn procedures(&self, query: &Query, inlined: Inlined) -> Result<Vec<ProcedureCost>, AnswerError> {
        Ok(Profile::procedures(self, query, inlined)?)
    }
}

//! The result of a subcommand: an exit status, or an error.

/// Why a subcommand ended without doing its work.
pub(crate) struct Failure {
    /// The message, after "callpath: ".
    pub(crate) error: anyhow::Error,
    /// The exit status.
    pub(crate) status: u8,
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure { error: error.into(), status: 1 }
    }
}

/// The exit status, or the error.
pub(crate) type Outcome = Result<u8, Failure>;

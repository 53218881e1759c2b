//! `--recursion=full|collapse|suffix:N`, which `record` and `report` have in common, and `backedges` of `record`.

use std::num::NonZeroU32;
use std::str::FromStr;

/// As typed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RecursionArgument {
    Full,
    Collapse,
    Suffix(NonZeroU32),
}

impl FromStr for RecursionArgument {
    type Err = &'static str;

    fn from_str(typed: &str) -> Result<RecursionArgument, &'static str> {
        const FRAMES: &str = "N of suffix:N must be 1 or more";
        match typed {
            "full" => Ok(RecursionArgument::Full),
            "collapse" => Ok(RecursionArgument::Collapse),
            "suffix" => Err(FRAMES),
            _ => match typed.strip_prefix("suffix:") {
                Some(frames) => frames.parse().map(RecursionArgument::Suffix).map_err(|_| FRAMES),
                None => Err("must be full, collapse or suffix:N"),
            },
        }
    }
}

/// As typed for `record`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RecordedRecursion {
    Shared(RecursionArgument),
    BackEdges,
}

impl FromStr for RecordedRecursion {
    type Err = &'static str;

    fn from_str(typed: &str) -> Result<RecordedRecursion, &'static str> {
        match typed {
            "backedges" => Ok(RecordedRecursion::BackEdges),
            "full" | "collapse" => typed.parse().map(RecordedRecursion::Shared),
            _ if typed.starts_with("suffix") => typed.parse().map(RecordedRecursion::Shared),
            _ => Err("must be full, collapse, suffix:N or backedges"),
        }
    }
}

impl From<RecordedRecursion> for callpath_record::Recursion {
    fn from(typed: RecordedRecursion) -> callpath_record::Recursion {
        match typed {
            RecordedRecursion::Shared(RecursionArgument::Full) => callpath_record::Recursion::Full,
            RecordedRecursion::Shared(RecursionArgument::Collapse) => callpath_record::Recursion::Collapse,
            RecordedRecursion::Shared(RecursionArgument::Suffix(frames)) => callpath_record::Recursion::Suffix(frames),
            RecordedRecursion::BackEdges => callpath_record::Recursion::BackEdges,
        }
    }
}

impl From<RecursionArgument> for callpath_db::Recursion {
    fn from(typed: RecursionArgument) -> callpath_db::Recursion {
        match typed {
            RecursionArgument::Full => callpath_db::Recursion::Full,
            RecursionArgument::Collapse => callpath_db::Recursion::Collapse,
            RecursionArgument::Suffix(frames) => callpath_db::Recursion::Suffix(frames),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{RecordedRecursion, RecursionArgument};

    #[test]
    fn what_is_typed() {
        let typed = |word: &str| word.parse::<RecursionArgument>();
        assert_eq!(typed("full"), Ok(RecursionArgument::Full));
        assert_eq!(typed("collapse"), Ok(RecursionArgument::Collapse));
        assert!(matches!(typed("suffix:12"), Ok(RecursionArgument::Suffix(frames)) if frames.get() == 12));
        for wrong in ["", "suffix", "suffix:", "suffix:0", "suffix:-1", "suffix:4294967296", "Full", "fold"] {
            assert!(typed(wrong).is_err(), "{wrong}");
            assert!(wrong.parse::<RecordedRecursion>().is_err(), "{wrong}");
        }
        assert!(typed("backedges").is_err());
        assert_eq!("backedges".parse(), Ok(RecordedRecursion::BackEdges));
        assert_eq!("collapse".parse(), Ok(RecordedRecursion::Shared(RecursionArgument::Collapse)));
    }
}

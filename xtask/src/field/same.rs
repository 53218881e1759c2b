//! Whether a program does recorded what it does bare: status, output, and what it leaves running.

use anyhow::ensure;

use crate::measure::Usage;

/// How a run ended and what it said.
#[derive(Debug)]
pub struct Ended {
    pub usage: Usage,
    said: Said,
    by_callpath: String,
}

/// What can be compared.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Said {
    status: String,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    /// Processes that did not end with it.
    left: Vec<String>,
}

impl Ended {
    /// `exceeded`: what it was killed for; `left`: names and numbers of processes that had to be killed after it.
    pub fn new(
        (usage, exceeded): (Usage, Option<String>),
        stdout: Vec<u8>,
        stderr: Vec<u8>,
        left: Vec<String>,
    ) -> Ended {
        let status = match exceeded {
            None => usage.status.to_string(),
            Some(what) => format!("killed, since it took {what}"),
        };
        let left = left.into_iter().map(|one| one.split(" (").next().unwrap_or_default().to_owned()).collect();
        // callpath's sentences on standard error begin with its name.
        let lines = stderr.split_inclusive(|byte| *byte == b'\n');
        let (ours, theirs): (Vec<&[u8]>, Vec<&[u8]>) = lines.partition(|line| line.starts_with(b"callpath: "));
        let said = Said { status, stdout, stderr: theirs.concat(), left };
        Ended { usage, said, by_callpath: String::from_utf8_lossy(&ours.concat()).trim().to_owned() }
    }

    /// What callpath said of its own.
    pub fn by_callpath(&self) -> &str {
        &self.by_callpath
    }

    /// Fails unless its status is that of success.
    pub fn ensure_success(&self) -> anyhow::Result<()> {
        let said = String::from_utf8_lossy(&self.said.stderr);
        let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
        ensure!(self.usage.status.success(), "bare: {}: {}", self.said.status, last.trim());
        Ok(())
    }
}

/// What all runs together say.
#[derive(Debug)]
pub struct Agreement {
    bare: Said,
    /// Bare runs differ among themselves in these.
    varies: Vec<&'static str>,
    /// Recorded runs differ from the first bare one in these, and how.
    differs: Vec<(&'static str, String)>,
}

impl Agreement {
    /// With the first bare run.
    pub fn of_bare(ended: Ended) -> Agreement {
        Agreement { bare: ended.said, varies: vec![], differs: vec![] }
    }

    /// Another bare run.
    pub fn bare(&mut self, ended: &Ended) {
        for (aspect, _) in differences(&self.bare, &ended.said) {
            if !self.varies.contains(&aspect) {
                self.varies.push(aspect);
            }
        }
    }

    /// A recorded run.
    pub fn recorded(&mut self, ended: &Ended) {
        for difference in differences(&self.bare, &ended.said) {
            if self.differs.iter().all(|(aspect, _)| *aspect != difference.0) {
                self.differs.push(difference);
            }
        }
    }

    fn wrong(&self) -> impl Iterator<Item = &(&'static str, String)> {
        self.differs.iter().filter(|(aspect, _)| !self.varies.contains(aspect))
    }

    /// Whether nothing is different that is the same from one bare run to the next.
    pub fn is_right(&self) -> bool {
        self.wrong().next().is_none()
    }

    /// The cell of the table.
    pub fn cell(&self) -> String {
        let wrong: Vec<&str> = self.wrong().map(|(aspect, _)| *aspect).collect();
        match (&wrong[..], &self.varies[..]) {
            ([], []) => "same".into(),
            ([], varies) => format!("same; {} varies bare, too", varies.join(", ")),
            (wrong, _) => format!("**other {}**", wrong.join(", ")),
        }
    }

    /// What is different, a sentence each.
    pub fn sentences(&self) -> Vec<String> {
        self.wrong().map(|(aspect, how)| format!("other {aspect}: {how}")).collect()
    }
}

fn differences(bare: &Said, other: &Said) -> Vec<(&'static str, String)> {
    let mut found = vec![];
    if bare.status != other.status {
        found.push(("status", format!("{} for {}", other.status, bare.status)));
    }
    for (aspect, bare, other) in [("stdout", &bare.stdout, &other.stdout), ("stderr", &bare.stderr, &other.stderr)] {
        if bare != other {
            found.push((aspect, first_difference(bare, other)));
        }
    }
    if bare.left != other.left {
        found.push(("processes left", format!("[{}] for [{}]", other.left.join(", "), bare.left.join(", "))));
    }
    found
}

fn first_difference(bare: &[u8], other: &[u8]) -> String {
    let line = |text: Option<&str>| match text {
        Some(line) => format!("`{}`", line.chars().take(120).collect::<String>()),
        None => "no line".into(),
    };
    let (bare, other) = (String::from_utf8_lossy(bare), String::from_utf8_lossy(other));
    let (mut bare, mut other) = (bare.lines(), other.lines());
    loop {
        match (bare.next(), other.next()) {
            (None, None) => return "bytes that are no text, or line ends".into(),
            (bare, other) if bare != other => return format!("{} for {}", line(other), line(bare)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;
    use std::time::Duration;

    use super::*;

    fn ended(status: i32, stdout: &str, stderr: &str, left: &[&str]) -> Ended {
        let usage = Usage {
            cpu: Duration::ZERO,
            wall: Duration::ZERO,
            max_rss_bytes: 0,
            status: ExitStatus::from_raw(status << 8),
        };
        Ended::new((usage, None), stdout.into(), stderr.into(), left.iter().map(|&name| name.to_owned()).collect())
    }

    #[test]
    fn what_callpath_says_of_itself_is_no_difference() {
        let mut agreement = Agreement::of_bare(ended(0, "5\n", "warm\n", &[]));
        agreement.recorded(&ended(0, "5\n", "warm\ncallpath: recorded to x\n", &[]));
        assert!(agreement.is_right());
        assert_eq!(agreement.cell(), "same");
    }

    #[test]
    fn a_status_an_output_and_a_daemon_are_told() {
        let mut agreement = Agreement::of_bare(ended(5, "1\n2\n", "", &[]));
        agreement.bare(&ended(5, "1\n2\n", "", &[]));
        agreement.recorded(&ended(101, "1\n3\n", "", &["sleep (17)"]));
        assert!(!agreement.is_right());
        assert_eq!(agreement.cell(), "**other status, stdout, processes left**");
        assert_eq!(
            agreement.sentences(),
            [
                "other status: exit status: 101 for exit status: 5",
                "other stdout: `3` for `2`",
                "other processes left: [sleep] for []"
            ]
        );
    }

    #[test]
    fn what_varies_bare_says_nothing_but_the_rest_does() {
        let mut agreement = Agreement::of_bare(ended(0, "took 5 ms\n", "", &[]));
        agreement.bare(&ended(0, "took 6 ms\n", "", &[]));
        agreement.recorded(&ended(0, "took 7 ms\n", "", &[]));
        assert_eq!(agreement.cell(), "same; stdout varies bare, too");
        agreement.recorded(&ended(1, "took 7 ms\n", "", &[]));
        assert_eq!(agreement.cell(), "**other status**");
    }
}

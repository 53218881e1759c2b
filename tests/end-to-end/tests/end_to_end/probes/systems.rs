//! The system's own programs, whole modules of them probed.

use std::path::{Path, PathBuf};

use callpath_end_to_end::{Program, skip};

/// A program of the system's; `None` with the report of a skipped test.
fn installed(test: &str, name: &str) -> Option<PathBuf> {
    let path = Path::new("/usr/bin").join(name);
    if path.is_file() {
        return std::fs::canonicalize(path).ok();
    }
    skip(test, &format!("{name} is not installed"));
    None
}

/// Output and status are the bare program's, and so many functions were called at least.
#[track_caller]
fn is_the_same(program: &Program, functions: &[&str], least: usize) {
    for metric in ["calls", "wall-time"] {
        let recorded = program.clone().options(&["-m", metric]).same_probed(functions);
        let profile = recorded.profile();
        let names = profile.names().into_iter().filter(|name| profile.calls_of(name) > 0).count();
        assert!(names >= least, "{names} functions; {}", recorded.ended.stderr);
    }
}

#[test]
fn perl() {
    let Some(perl) = installed("probes::perl", "perl") else { return };
    let script = "my %h; for my $i (1 .. 3000) { $h{$i % 97} .= sprintf('%03x,', $i * 7); } \
                  for my $k (sort { $a <=> $b } keys %h) { (my $t = $h{$k}) =~ s/0+//g; print \"$k $t\\n\"; } \
                  eval { die { code => 5 } }; exit($@->{code});";
    is_the_same(&Program::at(perl).arguments(["-e", script]), &["perl!*"], 50);
}

#[test]
fn python() {
    let Some(python) = installed("probes::python", "python3") else { return };
    let module = python.file_name().unwrap().to_string_lossy().into_owned();
    let script = "import json, re, zlib, hashlib\n\
                  rows = [{'n': n, 'text': re.sub('[aeiou]', '', repr(n) * 3), 'sum': zlib.crc32(b'%d' % n)} for n in range(800)]\n\
                  print(hashlib.sha256(json.dumps(rows).encode()).hexdigest())\n\
                  try:\n  [].pop()\nexcept IndexError as error:\n  print(error)\n\
                  raise SystemExit(6)";
    is_the_same(&Program::at(python).arguments(["-c", script]), &[&format!("{module}!Py*")], 50);
}

#[test]
fn git() {
    let Some(git) = installed("probes::git", "git") else { return };
    is_the_same(&Program::at(git).arguments(["--version"]), &["git!*", "libc.so.6!*"], 50);
}

#[test]
fn xz() {
    let Some(xz) = installed("probes::xz", "xz") else { return };
    let input: Vec<u8> = (0..60_000u32).flat_map(|n| (n / 7 * n % 1013).to_le_bytes()).collect();
    let packs = Program::at(xz).arguments(["-c", "-1", "-T2"]).input(&input);
    is_the_same(&packs, &["xz!*", "liblzma.so*!*"], 10);
}

#[test]
fn sort_with_threads() {
    let Some(sort) = installed("probes::sort_with_threads", "sort") else { return };
    let lines: String = (0..150_000u64).map(|n| format!("{}\n", n * 7919 % 100_003)).collect();
    is_the_same(
        &Program::at(sort).arguments(["-n", "--parallel=4"]).input(lines.as_bytes()),
        &["sort!*", "libc.so.6!*"],
        50,
    );
}

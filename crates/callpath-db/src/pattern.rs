//! Names as a person types them: globs, parts of names, names that are near; and which names are of one kind.

/// Whether `name` is what `glob` describes: `*` is any text, `?` any character.
pub fn matches_glob(glob: &str, name: &str) -> bool {
    let (glob, name): (Vec<char>, Vec<char>) = (glob.chars().collect(), name.chars().collect());
    let (mut at, mut read) = (0, 0);
    // Behind the last `*`, and how much of the name it stands for.
    let mut star: Option<(usize, usize)> = None;
    while read < name.len() {
        match (glob.get(at), star) {
            (Some('*'), _) => {
                star = Some((at + 1, read));
                at += 1;
            }
            (Some(&wanted), _) if wanted == '?' || wanted == name[read] => (at, read) = (at + 1, read + 1),
            (_, Some((behind, taken))) => {
                star = Some((behind, taken + 1));
                (at, read) = (behind, taken + 1);
            }
            (_, None) => return false,
        }
    }
    glob[at..].iter().all(|&rest| rest == '*')
}

/// At most so many names are suggested.
const SUGGESTED: usize = 5;

/// Names are compared up to this length, so that an error takes no time.
const COMPARED_CHARS: usize = 64;

/// A name is near if so few edits lead to it: one for each three letters that were typed.
fn most_edits(typed: &str) -> usize {
    let len = typed.chars().count();
    len.div_ceil(3).min(len.saturating_sub(1))
}

/// Those of `names` that somebody who typed `wanted` may have meant, the nearest first; five at most, none if none is near. A name is as near
/// as the nearest of its identifiers is to the last identifier of `wanted`, or as the names are as wholes.
pub fn nearest<'a>(wanted: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let lower = |text: &str| text.chars().take(COMPARED_CHARS).flat_map(char::to_lowercase).collect::<String>();
    let identifiers = |name: &'a str| name.split(|c: char| !(c.is_alphanumeric() || c == '_'));
    let whole = lower(wanted);
    let last = last_identifier(&whole);
    let near = |typed: &str, name: &str| {
        // The lengths alone tell most names from it.
        let most = most_edits(typed);
        let name = lower(name);
        let may_be = typed.chars().count().abs_diff(name.chars().count()) <= most;
        may_be.then(|| edits(typed, &name)).filter(|edits| *edits <= most)
    };
    let distance = |name: &'a str| {
        let parts = identifiers(name).filter(|part| !part.is_empty()).filter_map(|part| near(last, part));
        parts.chain(near(&whole, name)).min()
    };
    // An address is not what was mistyped.
    let names = names.into_iter().filter(|name| !name.contains("+0x"));
    // Of equals, the shortest.
    let mut by_edits: Vec<(usize, usize, &str)> =
        names.filter_map(|name| Some((distance(name)?, name.len(), name))).collect();
    by_edits.sort_unstable();
    by_edits.dedup();
    by_edits.into_iter().take(SUGGESTED).map(|(.., name)| name.to_owned()).collect()
}

/// The name without what it belongs to, its parameters and its arguments: `run` of `pool::Worker<int>::run(long)`.
fn last_identifier(name: &str) -> &str {
    let bare = name.split('(').find(|part| !part.is_empty()).unwrap_or(name);
    let bare = bare.split("::<").next().unwrap_or(bare);
    let path = bare.trim_end_matches(':').rsplit("::").next().unwrap_or(bare);
    path.split('<').find(|part| !part.is_empty()).unwrap_or(path)
}

/// How many characters have to be changed, added, left out or swapped with the next one to make one text the other (optimal string
/// alignment). Takes time in proportion to both lengths.
fn edits(from: &str, to: &str) -> usize {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
    let mut before = vec![0; to.len() + 1];
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, &a) in from.iter().enumerate() {
        let mut next = vec![i + 1; to.len() + 1];
        for (j, &b) in to.iter().enumerate() {
            let edited = (row[j] + usize::from(a != b)).min(next[j] + 1).min(row[j + 1] + 1);
            let is_swapped = i > 0 && j > 0 && a == to[j - 1] && from[i - 1] == b;
            next[j + 1] = if is_swapped { edited.min(before[j - 1] + 1) } else { edited };
        }
        before = std::mem::replace(&mut row, next);
    }
    row[to.len()]
}

/// The kind of thread that a name tells: numbers in it become `*`, and so does a last part that is one letter or a
/// hexadecimal number. `worker-7` and `worker-12` are of the kind `worker-*`.
pub fn kind_of_name(name: &str) -> String {
    const HEX_DIGITS: usize = 4;
    let mut kind = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(first) = rest.chars().next() {
        let is_part = |c: char| c.is_alphanumeric();
        let end = rest.find(|c| is_part(c) != is_part(first)).unwrap_or(rest.len());
        let (part, behind) = rest.split_at(end);
        rest = behind;
        let digits = part.chars().any(|c| c.is_ascii_digit());
        let is_hex = digits && part.len() >= HEX_DIGITS && part.chars().all(|c| c.is_ascii_hexdigit());
        let is_letter = rest.is_empty() && !kind.is_empty() && part.len() == 1 && is_part(first);
        if is_hex || is_letter {
            kind.push('*');
            continue;
        }
        let mut in_number = false;
        for c in part.chars() {
            if !c.is_ascii_digit() {
                kind.push(c);
            } else if !in_number {
                kind.push('*');
            }
            in_number = c.is_ascii_digit();
        }
    }
    kind
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs() {
        for (glob, name, does) in [
            ("worker-*", "worker-12", true),
            ("worker-*", "worker-", true),
            ("worker-*", "a worker-1", false),
            ("*", "", true),
            ("?", "", false),
            ("w?rk", "wörk", true),
            ("*a*b", "xaaxab", true),
            ("*a*b", "xaaxabc", false),
            ("gzip", "gzip", true),
            ("gzip", "gzip2", false),
            ("a**b?", "abbc", true),
        ] {
            assert_eq!(matches_glob(glob, name), does, "{glob} {name}");
        }
        // Backtracking over two stars only; a naive one takes for ever here.
        assert!(!matches_glob(&"*a".repeat(30), &"a".repeat(29)));
        assert!(!matches_glob(&("*a".repeat(30) + "b"), &"a".repeat(5000)));
    }

    #[test]
    fn the_nearest_names() {
        let names = ["main", "app::main", "domain", "compute_sum", "compute(int)", "a::compile", "x", "libc.so+0x1234"];
        let near = |wanted| nearest(wanted, names);
        assert_eq!(near("mian"), ["main", "app::main"]);
        assert_eq!(near("Domian"), ["domain"]);
        assert_eq!(near("comptue"), ["compute(int)", "a::compile"]);
        // What it belongs to and its parameters do not make a name look like others.
        assert_eq!(near("other::place::Worker<int>::comptue(int)"), ["compute(int)", "a::compile"]);
        assert_eq!(near("b::compiel::<u8>")[0], "a::compile");
        assert!(near("zzzzzzzz").is_empty() && near("").is_empty() && near("libc.so+0x1235").is_empty());
        let wide = "é".repeat(100);
        assert_eq!(nearest(&wide, [wide.as_str(), "e"])[..], [wide.as_str()]);
        let many: Vec<String> = (10..99).map(|number| format!("worker{number}")).collect();
        assert_eq!(nearest("worker1", many.iter().map(String::as_str)).len(), SUGGESTED);
    }

    #[test]
    fn kinds() {
        for (name, kind) in [
            ("worker-7", "worker-*"),
            ("worker-12", "worker-*"),
            ("pool-1-thread-33", "pool-*-thread-*"),
            ("C2 CompilerThre", "C* CompilerThre"),
            ("GC Thread#0", "GC Thread#*"),
            ("grpc-a3f2", "grpc-*"),
            ("part-b", "part-*"),
            ("python3.11", "python*.*"),
            ("main", "main"),
            ("x", "x"),
            ("", ""),
        ] {
            assert_eq!(kind_of_name(name), kind, "{name}");
        }
    }
}

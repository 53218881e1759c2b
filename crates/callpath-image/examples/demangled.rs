//! How many names of files come out as binutils' c++filt has them: those of their
//! symbols and of their DWARF. Needs c++filt.
//!
//! ```text
//! cargo run --profile quick -p callpath-image --example demangled -- [--show N] FILE...
//! ```
//!
//! Of each name that begins with `_Z` and is not Rust's: c++filt's word for word; the same but for a number's type (`0`
//! for `0ul`), which `demangle` leaves out; or something else, of which `--show` prints the first N.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use callpath_image::demangle::demangle;
use callpath_image::elf::Image;
use callpath_image::scopes::Scopes;
use callpath_image::symbols::Procedures;

fn names(path: &Path) -> BTreeSet<String> {
    let image = Arc::new(Image::read(path).unwrap());
    let procedures = Procedures::new(Arc::clone(&image), None);
    let mut names: BTreeSet<String> = procedures.named().filter_map(|p| p.name).map(str::to_owned).collect();
    if let Some(scopes) = Scopes::find(image, None, None) {
        for unit in scopes.units().filter_map(|unit| scopes.read(unit).ok()) {
            let origins = unit.scopes().filter_map(|scope| scope.origin?.linkage_name());
            names.extend(origins.map(str::to_owned));
        }
    }
    names.retain(|name| name.starts_with("_Z") && !name.contains("17h") && !name.contains('@'));
    names
}

fn filtered(names: &BTreeSet<String>) -> Vec<String> {
    let filter = Command::new("c++filt").arg("--no-verbose").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut filter = filter.expect("c++filt can be run");
    let mut input = filter.stdin.take().unwrap();
    let lines: String = names.iter().map(|name| name.clone() + "\n").collect();
    let writer = std::thread::spawn(move || input.write_all(lines.as_bytes()));
    let output = filter.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

/// Without `ul`, `u` and `l` behind numbers.
fn without_suffixes(name: &str) -> String {
    let mut text = String::new();
    let mut is_number = false;
    let mut rest = name.chars().peekable();
    while let Some(c) = rest.next() {
        if is_number && matches!(c, 'u' | 'l') {
            while rest.peek().is_some_and(|next| matches!(next, 'u' | 'l')) {
                rest.next();
            }
            is_number = false;
            continue;
        }
        let continues = text.chars().next_back().is_some_and(|last| last.is_alphanumeric() || last == '_');
        is_number = c.is_ascii_digit() && (is_number || !continues);
        text.push(c);
    }
    text
}

fn main() {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut show = 0;
    if let Some(at) = arguments.iter().position(|argument| argument == "--show") {
        show = arguments.remove(at + 1).parse().expect("how many to show");
        arguments.remove(at);
    }
    println!("| file | names | as c++filt has them | but for a number's type | otherwise | left as they are |");
    println!("|---|---|---|---|---|---|");
    for path in &arguments {
        let names = names(Path::new(path));
        let (mut equal, mut near, mut other, mut left) = (0, 0, 0, 0);
        for (name, expected) in names.iter().zip(filtered(&names)) {
            let own = demangle(name);
            match () {
                () if own == expected => equal += 1,
                () if own == without_suffixes(&expected) => near += 1,
                () => {
                    if own == *name {
                        left += 1;
                    } else {
                        other += 1;
                    }
                    if other + left <= show {
                        println!("{name}\n  {own}\n  {expected}");
                    }
                }
            }
        }
        let percent = 100.0 * f64::from(equal + near) / f64::max(names.len() as f64, 1.0);
        println!("| {path} | {} | {equal} | {near} ({percent:.3}% together) | {other} | {left} |", names.len());
    }
}

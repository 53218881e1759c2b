//! Compiles libraries, and asks which functions of them patterns name. Expected addresses are those that nm prints.

use std::path::{Path, PathBuf};
use std::process::Command;

use callpath_analyze::functions::{Function, Functions, Pattern, Selection};
use callpath_format::address::LinkAddr;

pub(crate) fn run(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).env("LC_ALL", "C").output();
    let output =
        output.unwrap_or_else(|error| panic!("cannot run {program} (compilers and binutils are needed): {error}"));
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A library of these sources, by their names and texts.
pub(crate) fn library(dir: &Path, compiler: &str, options: &[&str], sources: &[(&str, &str)]) -> PathBuf {
    let path = dir.join("libtried.so.1");
    let paths = sources.iter().map(|(name, text)| {
        let source = dir.join(name);
        std::fs::create_dir_all(source.parent().unwrap()).unwrap();
        std::fs::write(&source, text).unwrap();
        source.to_str().unwrap().to_owned()
    });
    let paths: Vec<String> = paths.collect();
    let all: Vec<&str> = ["-shared", "-fPIC", "-o", path.to_str().unwrap()]
        .into_iter()
        .chain(options.iter().copied())
        .chain(paths.iter().map(String::as_str))
        .collect();
    run(compiler, &all);
    path
}

/// Where nm says that a symbol is; several of one name by ascending address.
pub(crate) fn addrs_of(module: &Path, name: &str) -> Vec<LinkAddr> {
    let listing = run("nm", &[module.to_str().unwrap()]);
    let of_name = listing.lines().filter(|line| line.split_whitespace().nth(2) == Some(name));
    let mut addrs: Vec<LinkAddr> =
        of_name.map(|line| LinkAddr(u64::from_str_radix(&line[..16], 16).unwrap())).collect();
    addrs.sort_unstable();
    addrs
}

pub(crate) fn read(module: &Path) -> Functions {
    Functions::read(module, &[]).unwrap()
}

pub(crate) fn patterns(texts: &[&str]) -> Vec<Pattern> {
    texts.iter().map(|text| Pattern::parse(text).unwrap()).collect()
}

pub(crate) fn select(functions: &Functions, text: &str) -> Selection {
    functions.select(&patterns(&[text]))
}

pub(crate) fn entries(selection: &Selection) -> Vec<LinkAddr> {
    selection.chosen.iter().map(|function| function.entry).collect()
}

pub(crate) fn names(selection: &Selection) -> Vec<&str> {
    let mut names: Vec<&str> = selection.chosen.iter().map(|function| &*function.name).collect();
    names.sort_unstable();
    names
}

/// Whatever was chosen is chosen by its address, and is the same.
pub(crate) fn check_addresses(functions: &Functions, chosen: &[Function]) {
    let texts: Vec<String> = chosen.iter().map(|function| functions.address_text(function.entry)).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let again = functions.select(&patterns(&texts));
    assert_eq!((again.not_entries.len(), again.unmatched.len()), (0, 0));
    assert_eq!(again.chosen.len(), chosen.len());
    for (number, (found, function)) in again.chosen.iter().zip(chosen).enumerate() {
        assert_eq!((found.pattern, found.entry, found.size_bytes), (number, function.entry, function.size_bytes));
        assert_eq!((&found.name, &found.distinguishing), (&function.name, &function.distinguishing));
    }
}

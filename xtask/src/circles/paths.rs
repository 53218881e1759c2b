//! The paths that a source file writes, found by its tokens.

use std::collections::{BTreeMap, BTreeSet};

/// What a file says of modules.
#[derive(Default)]
pub struct Source {
    /// The modules that it declares.
    pub modules: BTreeSet<String>,
    /// Those of them that are tests.
    pub tests: BTreeSet<String>,
    /// The paths that it uses outside of its tests.
    pub paths: Vec<Vec<String>>,
    /// The names that it hands on, and the paths that they stand for.
    pub handed_on: BTreeMap<String, Vec<String>>,
}

impl Source {
    pub fn read(text: &str) -> Source {
        let tokens = tokens(text);
        let mut reader = Reader {
            source: Source::default(),
            tokens: &tokens,
            at: 0,
            inner: Vec::new(),
            depth: 0,
            is_handed_on: false,
            names: BTreeSet::new(),
        };
        reader.source.declarations(&tokens);
        reader.items();
        let Reader { mut source, names, .. } = reader;
        // What is handed on may be used here, too.
        let used = source.handed_on.iter().filter(|(name, _)| names.contains(name.as_str()));
        let used: Vec<_> = used.map(|(_, path)| path.clone()).collect();
        source.paths.extend(used);
        source
    }

    fn declarations(&mut self, tokens: &[String]) {
        for (at, window) in tokens.windows(3).enumerate() {
            if let [keyword, name, end] = window
                && keyword == "mod"
                && end == ";"
            {
                self.modules.insert(name.clone());
                let before = tokens[..at].rsplit(|token| [";", "}", "{"].contains(&token.as_str())).next();
                if before.is_some_and(is_test) {
                    self.tests.insert(name.clone());
                }
            }
        }
    }
}

/// Whether these attributes say so.
fn is_test(attributes: &[String]) -> bool {
    attributes.windows(4).any(|words| words == ["cfg", "(", "test", ")"])
}

/// Reads on, and notes what it finds in `source`.
struct Reader<'t> {
    source: Source,
    tokens: &'t [String],
    at: usize,
    /// The depths at which modules within the file begin.
    inner: Vec<usize>,
    depth: usize,
    /// After `pub`.
    is_handed_on: bool,
    /// Names among other code.
    names: BTreeSet<&'t str>,
}

impl Reader<'_> {
    fn token(&self, ahead: usize) -> &str {
        self.tokens.get(self.at + ahead).map_or("", String::as_str)
    }

    fn items(&mut self) {
        while self.at < self.tokens.len() {
            match self.token(0) {
                "#" => self.attribute(),
                "mod" if self.token(2) == "{" => {
                    self.inner.push(self.depth);
                    self.at += 2;
                }
                "{" => {
                    self.depth += 1;
                    self.at += 1;
                }
                "}" => {
                    self.depth = self.depth.saturating_sub(1);
                    self.inner.pop_if(|depth| *depth == self.depth);
                    self.at += 1;
                }
                "pub" => {
                    self.at += 1;
                    if self.token(0) == "(" {
                        self.skip();
                    }
                    self.is_handed_on = self.token(0) == "use";
                }
                "use" => {
                    self.at += 1;
                    let handed_on = std::mem::take(&mut self.is_handed_on);
                    self.tree(&mut Vec::new(), handed_on);
                }
                _ => self.path(),
            }
        }
    }

    /// Skips an attribute, and what it stands before if that is for tests.
    fn attribute(&mut self) {
        self.at += 1 + usize::from(self.token(1) == "!");
        let begin = self.at;
        self.skip();
        if !is_test(&self.tokens[begin..self.at]) {
            return;
        }
        while self.at < self.tokens.len() {
            match self.token(0) {
                ";" => return,
                "{" => return self.skip(),
                "(" | "[" => self.skip(),
                _ => self.at += 1,
            }
        }
    }

    /// Skips a pair of brackets and what is in it.
    fn skip(&mut self) {
        let mut depth = 0;
        while self.at < self.tokens.len() {
            match self.token(0) {
                "(" | "[" | "{" => depth += 1,
                ")" | "]" | "}" => depth -= 1,
                _ => {}
            }
            self.at += 1;
            if depth <= 0 {
                return;
            }
        }
    }

    /// A path among other code.
    fn path(&mut self) {
        let is_begin = self.at == 0 || self.tokens[self.at - 1] != "::";
        let is_path = self.token(1) == "::" && is_begin;
        let mut path = vec![self.token(0).to_owned()];
        self.names.extend(self.tokens.get(self.at).map(String::as_str));
        self.at += 1;
        while is_path && self.token(0) == "::" && is_name(self.token(1)) {
            path.push(self.token(1).to_owned());
            self.at += 2;
        }
        if is_path {
            self.add(path);
        }
    }

    /// What follows `use`: `prefix` stands before it.
    fn tree(&mut self, prefix: &mut Vec<String>, handed_on: bool) {
        let len = prefix.len();
        while is_name(self.token(0)) && self.token(0) != "as" {
            prefix.push(self.token(0).to_owned());
            self.at += 1;
            if self.token(0) == "::" {
                self.at += 1;
            }
        }
        match self.token(0) {
            "{" => {
                self.at += 1;
                while !matches!(self.token(0), "}" | "") {
                    self.tree(prefix, handed_on);
                    if self.token(0) == "," {
                        self.at += 1;
                    }
                }
                self.at += 1;
            }
            "*" => {
                self.at += 1;
                self.add(prefix.clone());
            }
            "as" => {
                let name = self.token(1).to_owned();
                self.at += 2;
                self.leaf(prefix, &name, handed_on);
            }
            _ => {
                let name = prefix.last().cloned().unwrap_or_default();
                self.leaf(prefix, &name, handed_on);
            }
        }
        prefix.truncate(len);
    }

    fn leaf(&mut self, path: &[String], name: &str, handed_on: bool) {
        let path = path.strip_suffix(&["self".to_owned()]).unwrap_or(path).to_vec();
        if path.is_empty() {
            // One token at least, whatever it is.
            self.at += usize::from(!matches!(self.token(0), "," | "}" | ";"));
        } else if handed_on {
            self.source.handed_on.insert(name.to_owned(), path);
        } else {
            self.add(path);
        }
    }

    /// Adds a path that is used. Within a module of the file `super` is that file's, or the one around it.
    fn add(&mut self, mut path: Vec<String>) {
        let above = path.iter().take_while(|name| *name == "super").count();
        if !self.inner.is_empty() && above > 0 {
            let within = above.min(self.inner.len());
            path.drain(..within);
            if within == above {
                path.insert(0, "self".to_owned());
            }
        }
        self.source.paths.push(path);
    }
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Names, `::`, and single characters; neither comments nor what stands in quotes.
fn tokens(text: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let len = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |at| at + 2)
        } else if let Some(len) = quoted(rest) {
            len
        } else if is_name(rest) {
            let len = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            tokens.push(rest[..len].to_owned());
            len
        } else if rest.starts_with("::") {
            tokens.push("::".to_owned());
            2
        } else {
            if !first.is_whitespace() {
                tokens.push(first.to_string());
            }
            first.len_utf8()
        };
        rest = &rest[len..];
    }
    tokens
}

/// The length of a literal in quotes at the beginning of a text, if there is one.
fn quoted(text: &str) -> Option<usize> {
    let unprefixed = text.trim_start_matches(['b', 'c', 'r']);
    let prefix = text.len() - unprefixed.len();
    let inner = unprefixed.trim_start_matches('#');
    let marks = unprefixed.len() - inner.len();
    if prefix > 0 && text[..prefix].contains('r') && inner.starts_with('"') {
        let end = format!("\"{}", "#".repeat(marks));
        let begin = prefix + marks + 1;
        return Some(text[begin..].find(&end).map_or(text.len(), |at| begin + at + end.len()));
    }
    if marks > 0 || prefix > 1 {
        return None;
    }
    let quote = unprefixed.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let mut escaped = false;
    for (at, c) in unprefixed.char_indices().skip(1) {
        if quote == '\'' && at > 1 && !unprefixed[1..].starts_with('\\') && c != '\'' {
            // A lifetime.
            return None;
        }
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return Some(prefix + at + 1),
            _ => {}
        }
    }
    None
}

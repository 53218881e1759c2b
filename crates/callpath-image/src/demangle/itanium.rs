//! C++ names as the Itanium C++ ABI mangles them (chapter 5.1), read into their parts.
//! Types and expressions are parsed in `types` and `expressions`. What the parser does not know gives no name at all.

use super::tables::OPERATORS;
use super::tree::{Function, Id, LVALUE, Node, RVALUE};

/// What is known of a name while it is parsed.
#[derive(Default)]
pub(super) struct Said {
    ends_in_arguments: bool,
    has_no_result: bool,
    qualifiers: u8,
}

pub(super) struct Parser<'a> {
    bytes: &'a str,
    pub(super) at: usize,
    pub(super) nodes: Vec<Node<'a>>,
    pub(super) substitutions: Vec<Id>,
    arguments: Vec<Id>,
    /// Parameters of a conversion's type, whose arguments follow.
    forward: Vec<(Id, usize)>,
    /// A name inside of a type is read: its arguments are not those that parameters mean.
    pub(super) is_in_type: bool,
    /// The parameters of a lambda are read.
    is_in_lambda: bool,
    /// The type of a conversion is read: arguments behind it are the conversion's.
    pub(super) is_converting: bool,
    pub(super) depth: u32,
}

impl<'a> Parser<'a> {
    /// Of what follows `_Z`.
    pub(super) fn new(bytes: &'a str, depth: u32) -> Parser<'a> {
        let (nodes, substitutions, arguments, forward) = Default::default();
        let (is_in_type, is_in_lambda, is_converting) = (false, false, false);
        Parser {
            bytes,
            at: 0,
            nodes,
            substitutions,
            arguments,
            forward,
            is_in_type,
            is_in_lambda,
            is_converting,
            depth,
        }
    }

    /// The whole name, and what is behind it.
    pub(super) fn mangled(&mut self) -> Option<(Id, &'a str)> {
        let root = self.encoding()?;
        Some((root, self.bytes.get(self.at..)?))
    }

    pub(super) fn add(&mut self, node: Node<'a>) -> Id {
        self.nodes.push(node);
        self.nodes.len() as Id - 1
    }

    pub(super) fn text(&mut self, text: &'a str) -> Id {
        self.add(Node::Text(text))
    }

    pub(super) fn substitute(&mut self, id: Id) -> Id {
        self.substitutions.push(id);
        id
    }

    pub(super) fn peek(&self, ahead: usize) -> u8 {
        self.bytes.as_bytes().get(self.at + ahead).copied().unwrap_or(0)
    }

    pub(super) fn rest(&self) -> &'a str {
        self.bytes.get(self.at..).unwrap_or("")
    }

    pub(super) fn eat(&mut self, text: &str) -> bool {
        let is_there = self.rest().starts_with(text);
        self.at += if is_there { text.len() } else { 0 };
        is_there
    }

    pub(super) fn enter(&mut self) -> Option<()> {
        self.depth = self.depth.checked_sub(1)?;
        Some(())
    }

    pub(super) fn number(&mut self) -> Option<u64> {
        let rest = self.bytes.get(self.at..)?;
        let len = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number = rest.get(..len)?.parse().ok()?;
        self.at += len;
        Some(number)
    }

    /// `_` is 0, `0_` is 1, `Z_` is 36.
    fn sequence(&mut self) -> Option<usize> {
        let mut number = 0usize;
        let mut is_first = true;
        while !self.eat("_") {
            let digit = char::from(self.peek(0)).to_digit(36).filter(|_| !self.peek(0).is_ascii_lowercase())?;
            number = number.checked_mul(36)?.checked_add(digit as usize)?;
            is_first = false;
            self.at += 1;
        }
        Some(if is_first { 0 } else { number.checked_add(1)? })
    }

    pub(super) fn encoding(&mut self) -> Option<Id> {
        self.enter()?;
        let arguments = std::mem::take(&mut self.arguments);
        let forward = std::mem::take(&mut self.forward);
        let is_in_type = std::mem::take(&mut self.is_in_type);
        let is_in_lambda = std::mem::take(&mut self.is_in_lambda);
        let id = if matches!(self.peek(0), b'G' | b'T') { self.special() } else { self.procedure() };
        (self.arguments, self.forward, self.is_in_type, self.is_in_lambda) =
            (arguments, forward, is_in_type, is_in_lambda);
        self.depth += 1;
        id
    }

    fn procedure(&mut self) -> Option<Id> {
        let mut said = Said::default();
        let name = self.name(&mut said)?;
        for (id, index) in std::mem::take(&mut self.forward) {
            // None of a node's own parts: it was made before its arguments.
            if let Some(&argument) = self.arguments.get(index) {
                *self.nodes.get_mut(id as usize)? = Node::Same(argument);
            }
        }
        if matches!(self.peek(0), 0 | b'E' | b'.') {
            return Some(name);
        }
        let has_result = said.ends_in_arguments && !said.has_no_result;
        let result = if has_result { Some(self.type_()?) } else { None };
        let parameters = self.parameters()?;
        let function = Function { result, parameters, qualifiers: said.qualifiers, is_noexcept: false };
        Some(self.add(Node::Encoding(name, Box::new(function))))
    }

    /// Up to the end, or an `E`.
    pub(super) fn parameters(&mut self) -> Option<Vec<Id>> {
        if self.eat("v") {
            return Some(Vec::new());
        }
        let mut parameters = Vec::new();
        while !matches!(self.peek(0), 0 | b'E' | b'.') {
            if matches!(self.peek(0), b'R' | b'O') && self.peek(1) == b'E' {
                break;
            }
            parameters.push(self.type_()?);
        }
        (!parameters.is_empty()).then_some(parameters)
    }

    fn special(&mut self) -> Option<Id> {
        let of_types =
            [("TV", "vtable for "), ("TT", "VTT for "), ("TI", "typeinfo for "), ("TS", "typeinfo name for ")];
        for (code, words) in of_types {
            if self.eat(code) {
                let of = self.type_()?;
                return Some(self.add(Node::Prefixed(words, of)));
            }
        }
        let of_names =
            [("GV", "guard variable for "), ("TW", "TLS wrapper function for "), ("TH", "TLS init function for ")];
        for (code, words) in of_names {
            if self.eat(code) {
                let of = self.name(&mut Said::default())?;
                return Some(self.add(Node::Prefixed(words, of)));
            }
        }
        let words = match () {
            () if self.eat("GTt") => "transaction clone for ",
            () if self.eat("Tc") => {
                self.call_offset()?;
                self.call_offset()?;
                "covariant return thunk to "
            }
            () if self.peek(1) == b'h' => {
                self.at += 1;
                self.call_offset()?;
                "non-virtual thunk to "
            }
            () if self.peek(1) == b'v' => {
                self.at += 1;
                self.call_offset()?;
                "virtual thunk to "
            }
            () => return None,
        };
        let of = self.encoding()?;
        Some(self.add(Node::Prefixed(words, of)))
    }

    fn call_offset(&mut self) -> Option<()> {
        let numbers = if self.eat("h") {
            1
        } else if self.eat("v") {
            2
        } else {
            return None;
        };
        for _ in 0..numbers {
            self.eat("n");
            self.number()?;
            self.eat("_").then_some(())?;
        }
        Some(())
    }

    pub(super) fn name(&mut self, said: &mut Said) -> Option<Id> {
        match self.peek(0) {
            b'N' => return self.nested(said),
            b'Z' => return self.local(said),
            _ => {}
        }
        let mut name = match (self.peek(0), self.peek(1)) {
            (b'S', second) if second != b't' => {
                let name = self.substitution()?;
                (self.peek(0) == b'I').then_some(name)?
            }
            _ => {
                let name = self.unscoped(said)?;
                if self.peek(0) == b'I' { self.substitute(name) } else { name }
            }
        };
        if self.peek(0) == b'I' {
            let arguments = self.template_arguments(true)?;
            said.ends_in_arguments = true;
            name = self.add(Node::Template(name, arguments));
        }
        Some(name)
    }

    fn unscoped(&mut self, said: &mut Said) -> Option<Id> {
        if !self.eat("St") {
            return self.unqualified(None, said);
        }
        let outer = self.text("std");
        let inner = self.unqualified(None, said)?;
        Some(self.add(Node::Nested(outer, inner)))
    }

    fn nested(&mut self, said: &mut Said) -> Option<Id> {
        self.eat("N").then_some(())?;
        said.qualifiers = self.cv();
        said.qualifiers |= if self.eat("R") {
            LVALUE
        } else if self.eat("O") {
            RVALUE
        } else {
            0
        };
        let mut so_far: Option<Id> = None;
        while !self.eat("E") {
            self.eat("L");
            match (self.peek(0), self.peek(1)) {
                (b'I', _) => {
                    let name = so_far?;
                    let arguments = self.template_arguments(true)?;
                    said.ends_in_arguments = true;
                    so_far = Some(self.add(Node::Template(name, arguments)));
                }
                (b'S', second) if second != b't' => {
                    so_far.is_none().then_some(())?;
                    so_far = Some(self.substitution()?);
                    continue;
                }
                (b'S', _) if so_far.is_none() => {
                    self.at += 2;
                    so_far = Some(self.text("std"));
                    continue;
                }
                (b'T', _) if so_far.is_none() => so_far = Some(self.template_parameter()?),
                (b'D', b't' | b'T') if so_far.is_none() => so_far = Some(self.decltype()?),
                (b'M', _) if so_far.is_some() => {
                    self.at += 1;
                    continue;
                }
                _ => {
                    said.ends_in_arguments = false;
                    let name = self.unqualified(so_far, said)?;
                    so_far = Some(match so_far {
                        Some(outer) => self.add(Node::Nested(outer, name)),
                        None => name,
                    });
                }
            }
            self.substitutions.push(so_far?);
        }
        self.substitutions.pop()?;
        so_far
    }

    fn local(&mut self, said: &mut Said) -> Option<Id> {
        self.eat("Z").then_some(())?;
        let outer = self.encoding()?;
        self.eat("E").then_some(())?;
        if self.is_in_type
            && let Node::Encoding(_, function) = self.nodes.get_mut(outer as usize)?
        {
            function.result = None;
        }
        let inner = if self.eat("s") {
            self.text("string literal")
        } else {
            if self.eat("d") {
                self.number();
                self.eat("_").then_some(())?;
            }
            self.name(said)?
        };
        // Which of several.
        if self.eat("__") {
            self.number()?;
            self.eat("_").then_some(())?;
        } else if self.peek(0) == b'_' && self.peek(1).is_ascii_digit() {
            self.at += 2;
        }
        Some(self.add(Node::Nested(outer, inner)))
    }

    fn unqualified(&mut self, class: Option<Id>, said: &mut Said) -> Option<Id> {
        self.eat("L");
        let mut name = match (self.peek(0), self.peek(1)) {
            (b'0'..=b'9', _) => self.source_name()?,
            (b'C', b'1'..=b'5' | b'I') | (b'D', b'0'..=b'5') => {
                let (is_destructor, inherits) = (self.peek(0) == b'D', self.peek(1) == b'I');
                self.at += if inherits { 3 } else { 2 };
                said.has_no_result = true;
                if inherits {
                    self.type_()?;
                }
                self.add(Node::Structor(class?, is_destructor))
            }
            (b'U', b't') => {
                self.at += 2;
                let number = self.ordinal()?;
                self.add(Node::Words(format!("{{unnamed type#{number}}}")))
            }
            (b'U', b'l') => {
                self.at += 2;
                let was_in_lambda = std::mem::replace(&mut self.is_in_lambda, true);
                let parameters = self.parameters()?;
                self.is_in_lambda = was_in_lambda;
                self.eat("E").then_some(())?;
                let number = self.ordinal()?;
                self.add(Node::Lambda(parameters, number))
            }
            (b'D', b'C') => {
                self.at += 2;
                let mut names = Vec::new();
                while !self.eat("E") {
                    names.push(self.source_name()?);
                }
                self.add(Node::List("[", names, "]"))
            }
            _ => self.operator(said)?,
        };
        while self.eat("B") {
            let tag = self.identifier()?;
            name = self.add(Node::Tagged(name, tag));
        }
        Some(name)
    }

    /// `_` is 1, `0_` is 2.
    pub(super) fn ordinal(&mut self) -> Option<u64> {
        let number = if self.peek(0) == b'_' { 1 } else { self.number()?.checked_add(2)? };
        self.eat("_").then_some(number)
    }

    fn identifier(&mut self) -> Option<&'a str> {
        let len = usize::try_from(self.number()?).ok().filter(|len| *len > 0)?;
        let name = self.bytes.get(self.at..self.at.checked_add(len)?)?;
        self.at += len;
        Some(name)
    }

    pub(super) fn source_name(&mut self) -> Option<Id> {
        let name = self.identifier()?;
        let is_anonymous = name.starts_with("_GLOBAL__N") || name.starts_with("_GLOBAL_.N");
        Some(self.text(if is_anonymous { "(anonymous namespace)" } else { name }))
    }

    pub(super) fn operator(&mut self, said: &mut Said) -> Option<Id> {
        if self.eat("cv") {
            said.has_no_result = true;
            let was_converting = std::mem::replace(&mut self.is_converting, true);
            let to = self.type_();
            self.is_converting = was_converting;
            return Some(self.add(Node::Conversion(to?)));
        }
        if self.eat("li") {
            let name = self.identifier()?;
            return Some(self.add(Node::Words(format!("operator\"\" {name}"))));
        }
        let (code, written, _) = OPERATORS.iter().find(|(code, ..)| self.rest().starts_with(code))?;
        self.at += code.len();
        Some(self.add(Node::Words(format!("operator{written}"))))
    }

    pub(super) fn substitution(&mut self) -> Option<Id> {
        self.eat("S").then_some(())?;
        let is_structor = matches!(self.peek(1), b'C' | b'D') && self.peek(2).is_ascii_digit();
        let (name, full) = match self.peek(0) {
            b'a' => ("std::allocator", None),
            b'b' => ("std::basic_string", None),
            b's' => ("std::string", Some(("basic_string", "<char, std::char_traits<char>, std::allocator<char> >"))),
            b'i' => ("std::istream", Some(("basic_istream", "<char, std::char_traits<char> >"))),
            b'o' => ("std::ostream", Some(("basic_ostream", "<char, std::char_traits<char> >"))),
            b'd' => ("std::iostream", Some(("basic_iostream", "<char, std::char_traits<char> >"))),
            _ => {
                let number = self.sequence()?;
                return self.substitutions.get(number).copied();
            }
        };
        self.at += 1;
        let outer = self.text("std");
        let inner = match full.filter(|_| is_structor) {
            Some((base, arguments)) => {
                let base = self.text(base);
                let arguments = arguments.strip_prefix('<')?.strip_suffix(" >")?;
                let arguments = self.text(arguments);
                self.add(Node::Template(base, vec![arguments]))
            }
            None => self.text(name.strip_prefix("std::")?),
        };
        let mut name = self.add(Node::Nested(outer, inner));
        while self.eat("B") {
            let tag = self.identifier()?;
            name = self.add(Node::Tagged(name, tag));
            self.substitutions.push(name);
        }
        Some(name)
    }

    pub(super) fn template_parameter(&mut self) -> Option<Id> {
        self.eat("T").then_some(())?;
        let index = self.sequence()?;
        match self.arguments.get(index).filter(|_| !self.is_in_lambda) {
            Some(argument) => Some(*argument),
            None => {
                let id = self.add(Node::Words(format!("auto:{}", index.checked_add(1)?)));
                if !self.is_in_lambda {
                    self.forward.push((id, index));
                }
                Some(id)
            }
        }
    }

    /// With `is_of_name` later parameters mean these.
    pub(super) fn template_arguments(&mut self, is_of_name: bool) -> Option<Vec<Id>> {
        self.enter()?;
        let is_of_name = is_of_name && !self.is_in_type;
        self.eat("I").then_some(())?;
        if is_of_name {
            self.arguments.clear();
        }
        let mut arguments = Vec::new();
        while !self.eat("E") {
            let argument = self.template_argument()?;
            arguments.push(argument);
            if is_of_name {
                self.arguments.push(argument);
            }
        }
        self.depth += 1;
        Some(arguments)
    }

    fn template_argument(&mut self) -> Option<Id> {
        self.enter()?;
        let argument = match self.peek(0) {
            b'X' => {
                self.at += 1;
                let expression = self.expression()?;
                self.eat("E").then_some(expression)?
            }
            b'J' => {
                self.at += 1;
                let mut elements = Vec::new();
                while !self.eat("E") {
                    elements.push(self.template_argument()?);
                }
                self.add(Node::Pack(elements))
            }
            b'L' => self.literal()?,
            _ => self.type_()?,
        };
        self.depth += 1;
        Some(argument)
    }
}

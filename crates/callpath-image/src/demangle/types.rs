//! Parses types in mangled names.

use super::itanium::{Parser, Said};
use super::tables::{BUILTINS, TWO_LETTERS};
use super::tree::{CONST, Function, Id, LVALUE, Node, RESTRICT, RVALUE, VOLATILE};

impl<'a> Parser<'a> {
    pub(super) fn cv(&mut self) -> u8 {
        let mut qualifiers = 0;
        for (letter, bit) in [("r", RESTRICT), ("V", VOLATILE), ("K", CONST)] {
            qualifiers |= if self.eat(letter) { bit } else { 0 };
        }
        qualifiers
    }

    pub(super) fn type_(&mut self) -> Option<Id> {
        self.enter()?;
        let id = self.type_of_any_kind();
        self.depth += 1;
        id
    }

    fn type_of_any_kind(&mut self) -> Option<Id> {
        let letter = self.peek(0);
        if letter != b'u'
            && let Some((_, name)) = BUILTINS.iter().find(|(code, _)| *code == letter)
        {
            self.at += 1;
            return Some(self.text(name));
        }
        let id = match (letter, self.peek(1)) {
            (b'u', _) => {
                self.at += 1;
                self.source_name()?
            }
            (b'r' | b'V' | b'K', _) => {
                let qualifiers = self.cv();
                let of = self.type_()?;
                match self.nodes.get(of as usize)? {
                    Node::Function(function) => {
                        let mut function = function.clone();
                        function.qualifiers |= qualifiers;
                        // Without its qualifiers it is no type of its own.
                        self.substitutions.pop();
                        self.add(Node::Function(function))
                    }
                    _ => self.add(Node::Qualified(of, qualifiers)),
                }
            }
            (b'P', _) => {
                self.at += 1;
                let to = self.type_()?;
                self.add(Node::Pointer(to))
            }
            (b'R' | b'O', _) => {
                self.at += 1;
                let to = self.type_()?;
                self.add(Node::Reference(to, letter == b'O'))
            }
            (b'C' | b'G', _) => {
                self.at += 1;
                let of = self.type_()?;
                self.add(Node::Suffixed(of, if letter == b'C' { " _Complex" } else { " _Imaginary" }))
            }
            (b'F', _) | (b'D', b'o' | b'O' | b'w' | b'x') => self.function()?,
            (b'A', _) => self.array()?,
            (b'M', _) => {
                self.at += 1;
                let class = self.type_()?;
                let member = self.type_()?;
                self.add(Node::Member(class, member))
            }
            (b'T', b's' | b'u' | b'e') => {
                self.at += 2;
                self.class()?
            }
            (b'T', _) => {
                let parameter = self.template_parameter()?;
                if self.peek(0) != b'I' || self.is_converting {
                    return Some(self.substitute(parameter));
                }
                self.substitutions.push(parameter);
                let arguments = self.template_arguments(false)?;
                self.add(Node::Template(parameter, arguments))
            }
            (b'D', b't' | b'T') => self.decltype()?,
            (b'D', b'p') => {
                self.at += 2;
                let pattern = self.type_()?;
                self.add(Node::Expansion(pattern))
            }
            (b'D', b'F') => {
                self.at += 2;
                let bits = self.number()?;
                self.eat("_").then_some(())?;
                return Some(self.add(Node::Words(format!("_Float{bits}"))));
            }
            (b'D', b'v') => {
                self.at += 2;
                let len = self.number()?;
                self.eat("_").then_some(())?;
                let of = self.type_()?;
                let len = self.add(Node::Words(format!(" __vector({len})")));
                self.add(Node::Row(vec![of, len]))
            }
            (b'D', second) => {
                let (_, name) = TWO_LETTERS.iter().find(|(code, _)| *code == second)?;
                self.at += 2;
                return Some(self.text(name));
            }
            (b'S', second) if second != b't' => {
                let name = self.substitution()?;
                if self.peek(0) != b'I' {
                    return Some(name);
                }
                let arguments = self.template_arguments(false)?;
                self.add(Node::Template(name, arguments))
            }
            _ => self.class()?,
        };
        Some(self.substitute(id))
    }

    /// A class's name: its arguments are not those that parameters mean.
    fn class(&mut self) -> Option<Id> {
        let was_in_type = std::mem::replace(&mut self.is_in_type, true);
        let id = self.name(&mut Said::default());
        self.is_in_type = was_in_type;
        id
    }

    fn function(&mut self) -> Option<Id> {
        let mut function = Function::default();
        if self.eat("Do") {
            function.is_noexcept = true;
        } else if self.peek(0) == b'D' {
            return None;
        }
        self.eat("F").then_some(())?;
        self.eat("Y");
        function.result = Some(self.type_()?);
        function.parameters = self.parameters()?;
        function.qualifiers = if self.eat("R") {
            LVALUE
        } else if self.eat("O") {
            RVALUE
        } else {
            0
        };
        self.eat("E").then_some(())?;
        Some(self.add(Node::Function(Box::new(function))))
    }

    fn array(&mut self) -> Option<Id> {
        self.eat("A").then_some(())?;
        let len = match self.peek(0) {
            b'_' => None,
            b'0'..=b'9' => {
                let len = self.number()?;
                Some(self.add(Node::Words(len.to_string())))
            }
            _ => Some(self.expression()?),
        };
        self.eat("_").then_some(())?;
        let of = self.type_()?;
        Some(self.add(Node::Array(of, len)))
    }

    pub(super) fn decltype(&mut self) -> Option<Id> {
        self.at += 2;
        let expression = self.expression()?;
        self.eat("E").then_some(())?;
        Some(self.add(Node::List("decltype (", vec![expression], ")")))
    }
}

//! Parses expressions in mangled names: template arguments that are not types.

use super::itanium::{Parser, Said};
use super::tables::OPERATORS;
use super::tree::{Id, Node};

impl<'a> Parser<'a> {
    pub(super) fn literal(&mut self) -> Option<Id> {
        self.eat("L").then_some(())?;
        if self.eat("_Z") || self.eat("Z") {
            let of = self.encoding()?;
            return self.eat("E").then_some(of);
        }
        let letter = self.peek(0);
        let kind = self.type_()?;
        let sign = if self.eat("n") { "-" } else { "" };
        let rest = self.rest();
        let len = rest.find('E')?;
        let value = rest.get(..len)?;
        self.at += len + 1;
        let words = match (letter, value) {
            (b'b', "0") => "false".to_owned(),
            (b'b', "1") => "true".to_owned(),
            _ => format!("{sign}{value}"),
        };
        let value = self.add(Node::Words(words));
        if matches!(letter, b'b' | b'i' | b'j' | b'l' | b'm' | b'x' | b'y') {
            return Some(value);
        }
        let kind = self.add(Node::List("(", vec![kind], ")"));
        Some(self.add(Node::Row(vec![kind, value])))
    }

    pub(super) fn expression(&mut self) -> Option<Id> {
        self.enter()?;
        let id = self.expression_of_any_kind();
        self.depth += 1;
        id
    }

    fn expression_of_any_kind(&mut self) -> Option<Id> {
        match (self.peek(0), self.peek(1)) {
            (b'L', _) => return self.literal(),
            (b'T', _) => return self.template_parameter(),
            (b'0'..=b'9', _) => return self.simple_name(),
            (b'f', b'p') => {
                self.at += 2;
                if self.eat("T") {
                    return Some(self.text("this"));
                }
                self.cv();
                let number = self.ordinal()?;
                return Some(self.add(Node::Words(format!("{{parm#{number}}}"))));
            }
            (b's', b'r') => return self.unresolved(),
            _ => {}
        }
        if self.eat("sp") {
            let pattern = self.expression()?;
            return Some(self.add(Node::Expansion(pattern)));
        }
        if self.eat("sZ") {
            let pack = self.expression()?;
            return Some(self.add(Node::PackLength(pack)));
        }
        for (code, before) in [("st", "sizeof ("), ("at", "alignof ("), ("ti", "typeid (")] {
            if self.eat(code) {
                let of = self.type_()?;
                return Some(self.add(Node::List(before, vec![of], ")")));
            }
        }
        for (code, before) in [("sz", "sizeof ("), ("az", "alignof ("), ("te", "typeid ("), ("nx", "noexcept(")] {
            if self.eat(code) {
                let of = self.expression()?;
                return Some(self.add(Node::List(before, vec![of], ")")));
            }
        }
        if self.eat("cl") {
            let callee = self.expression()?;
            let mut arguments = Vec::new();
            while !self.eat("E") {
                arguments.push(self.expression()?);
            }
            let callee = self.parenthesised(callee);
            let arguments = self.add(Node::List("(", arguments, ")"));
            return Some(self.add(Node::Row(vec![callee, arguments])));
        }
        if self.eat("cv") {
            let to = self.type_()?;
            let values = if self.eat("_") {
                let mut values = Vec::new();
                while !self.eat("E") {
                    values.push(self.expression()?);
                }
                values
            } else {
                vec![self.expression()?]
            };
            let to = self.add(Node::List("(", vec![to], ")"));
            let values = self.add(Node::List("(", values, ")"));
            return Some(self.add(Node::Row(vec![to, values])));
        }
        for (code, between) in [("dt", "."), ("pt", "->")] {
            if self.eat(code) {
                let object = self.expression()?;
                let between = self.text(between);
                let member = if self.peek(0) == b's' { self.unresolved()? } else { self.simple_name()? };
                let object = self.parenthesised(object);
                return Some(self.add(Node::Row(vec![object, between, member])));
            }
        }
        let (code, written, operands) = *OPERATORS.iter().find(|(code, ..)| self.rest().starts_with(code))?;
        self.at += code.len();
        let sign = self.text(written);
        let first = match operands {
            1 | 2 => self.expression()?,
            _ => return None,
        };
        let first = self.parenthesised(first);
        if operands == 1 {
            return Some(self.add(Node::Row(vec![sign, first])));
        }
        let second = self.expression()?;
        let second = self.parenthesised(second);
        Some(self.add(Node::Row(vec![first, sign, second])))
    }

    fn parenthesised(&mut self, id: Id) -> Id {
        match self.nodes.get(id as usize) {
            Some(Node::Text(_) | Node::Words(_)) => id,
            _ => self.add(Node::List("(", vec![id], ")")),
        }
    }

    fn simple_name(&mut self) -> Option<Id> {
        let name = if self.peek(0).is_ascii_digit() {
            self.source_name()?
        } else {
            self.eat("on");
            self.operator(&mut Said::default())?
        };
        if self.peek(0) != b'I' {
            return Some(name);
        }
        let arguments = self.template_arguments(false)?;
        Some(self.add(Node::Template(name, arguments)))
    }

    fn unresolved(&mut self) -> Option<Id> {
        self.eat("sr").then_some(())?;
        let has_levels = self.eat("N");
        let mut name = self.type_()?;
        if has_levels {
            while !self.eat("E") {
                let level = self.simple_name()?;
                name = self.add(Node::Nested(name, level));
            }
        }
        let base = self.simple_name()?;
        Some(self.add(Node::Nested(name, base)))
    }
}

//! A C++ name, written as c++filt writes it.

use std::fmt::{self, Write};

use super::Limited;
use super::tree::{CONST, Function, Id, LVALUE, Node, RESTRICT, RVALUE, VOLATILE};

/// Steps that no name of a compiler needs.
const STEPS: usize = 1 << 18;

pub(super) struct Printer<'t, 'a> {
    nodes: &'t [Node<'a>],
    out: Limited,
    /// The element of packs that is written now.
    element: Option<usize>,
    depth: u32,
    steps: usize,
}

/// The text of a node.
pub(super) fn written(nodes: &[Node<'_>], root: Id, depth: u32) -> Option<String> {
    let mut printer = Printer { nodes, out: Limited::default(), element: None, depth, steps: STEPS };
    printer.whole(root).ok()?;
    Some(printer.out.text)
}

impl<'t, 'a> Printer<'t, 'a> {
    fn node(&self, id: Id) -> Result<&'t Node<'a>, fmt::Error> {
        self.nodes.get(id as usize).ok_or(fmt::Error)
    }

    fn whole(&mut self, id: Id) -> fmt::Result {
        self.left(id)?;
        self.right(id)
    }

    fn enter(&mut self) -> fmt::Result {
        self.depth = self.depth.checked_sub(1).ok_or(fmt::Error)?;
        self.steps = self.steps.checked_sub(1).ok_or(fmt::Error)?;
        Ok(())
    }

    /// What stands before a declared name.
    fn left(&mut self, id: Id) -> fmt::Result {
        self.enter()?;
        let result = self.left_of(id);
        self.depth += 1;
        result
    }

    fn left_of(&mut self, id: Id) -> fmt::Result {
        match self.node(id)? {
            Node::Text(text) => self.out.write_str(text),
            Node::Words(text) => self.out.write_str(text),
            Node::Same(other) => self.left(*other),
            Node::Nested(outer, inner) => {
                self.whole(*outer)?;
                self.out.write_str("::")?;
                self.whole(*inner)
            }
            Node::Template(name, arguments) => {
                self.whole(*name)?;
                let ends_in_angle = self.out.text.ends_with('<');
                self.out.write_str(if ends_in_angle { " <" } else { "<" })?;
                self.list(arguments)?;
                self.out.write_str(if self.out.text.ends_with('>') { " >" } else { ">" })
            }
            Node::Tagged(name, tag) => {
                self.whole(*name)?;
                write!(self.out, "[abi:{tag}]")
            }
            Node::Structor(class, is_destructor) => {
                self.out.write_str(if *is_destructor { "~" } else { "" })?;
                let base = self.base(*class)?;
                self.whole(base)
            }
            Node::Conversion(to) => {
                self.out.write_str("operator ")?;
                self.whole(*to)
            }
            Node::Qualified(of, qualifiers) => {
                self.left(*of)?;
                self.qualifiers(*qualifiers)
            }
            Node::Pointer(to) => self.left_of_indirect(*to, "*"),
            Node::Reference(..) => {
                let (to, is_rvalue, element) = self.collapsed(id)?;
                let sign = if is_rvalue { "&&" } else { "&" };
                self.within(element, |printer| printer.left_of_indirect(to, sign))
            }
            Node::Suffixed(of, suffix) => {
                self.left(*of)?;
                self.out.write_str(suffix)
            }
            Node::Array(of, _) => self.left(*of),
            Node::Function(function) => match function.result {
                Some(result) => {
                    self.left(result)?;
                    self.out.write_str(" ")
                }
                None => Ok(()),
            },
            Node::Member(class, member) => {
                self.left(*member)?;
                match self.is_function_or_array(*member)? {
                    true => self.out.write_str("(")?,
                    false => self.out.write_str(" ")?,
                }
                self.whole(*class)?;
                self.out.write_str("::*")
            }
            Node::Pack(elements) => match self.element {
                Some(element) => {
                    let part = elements.get(element);
                    // Packs in it are not those of the pattern.
                    self.within(None, |printer| part.map_or(Ok(()), |part| printer.left(*part)))
                }
                None => self.list(elements),
            },
            Node::Expansion(pattern) => self.expansion(*pattern),
            Node::Encoding(name, function) => self.encoding(*name, function),
            Node::Prefixed(prefix, of) => {
                self.out.write_str(prefix)?;
                self.whole(*of)
            }
            Node::Lambda(parameters, number) => {
                self.out.write_str("{lambda(")?;
                self.list(parameters)?;
                write!(self.out, ")#{number}}}")
            }
            Node::List(before, parts, behind) => {
                self.out.write_str(before)?;
                self.list(parts)?;
                self.out.write_str(behind)
            }
            Node::Row(parts) => parts.iter().try_for_each(|part| self.whole(*part)),
            Node::PackLength(of) => match self.pack_len(*of, 0)? {
                Some(len) => write!(self.out, "{len}"),
                None => {
                    self.out.write_str("sizeof...(")?;
                    self.whole(*of)?;
                    self.out.write_str(")")
                }
            },
        }
    }

    fn left_of_indirect(&mut self, to: Id, sign: &str) -> fmt::Result {
        self.left(to)?;
        match self.node(self.resolved(to)?)? {
            Node::Array(..) => self.out.write_str(" (")?,
            Node::Function(_) => self.out.write_str("(")?,
            _ => {}
        }
        self.out.write_str(sign)
    }

    /// What stands behind a declared name.
    fn right(&mut self, id: Id) -> fmt::Result {
        self.enter()?;
        let result = self.right_of(id);
        self.depth += 1;
        result
    }

    fn right_of(&mut self, id: Id) -> fmt::Result {
        match self.node(id)? {
            Node::Same(other) => self.right(*other),
            Node::Qualified(of, _) | Node::Suffixed(of, _) => self.right(*of),
            Node::Pointer(to) => self.right_of_indirect(*to),
            Node::Reference(..) => {
                let (to, _, element) = self.collapsed(id)?;
                self.within(element, |printer| printer.right_of_indirect(to))
            }
            Node::Member(_, member) => self.right_of_indirect(*member),
            Node::Array(of, len) => {
                self.out.write_str(if self.out.text.ends_with(']') { "[" } else { " [" })?;
                len.map_or(Ok(()), |len| self.whole(len))?;
                self.out.write_str("]")?;
                self.right(*of)
            }
            Node::Function(function) => {
                self.parameters(function)?;
                function.result.map_or(Ok(()), |result| self.right(result))
            }
            Node::Pack(elements) => match self.element.and_then(|element| elements.get(element)) {
                Some(element) => self.within(None, |printer| printer.right(*element)),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }

    fn right_of_indirect(&mut self, to: Id) -> fmt::Result {
        if self.is_function_or_array(to)? {
            self.out.write_str(")")?;
        }
        self.right(to)
    }

    fn is_function_or_array(&self, id: Id) -> Result<bool, fmt::Error> {
        Ok(matches!(self.node(self.resolved(id)?)?, Node::Function(_) | Node::Array(..)))
    }

    /// Writes with another element of packs.
    fn within(&mut self, element: Option<usize>, write: impl FnOnce(&mut Self) -> fmt::Result) -> fmt::Result {
        let outer = std::mem::replace(&mut self.element, element);
        let result = write(self);
        self.element = outer;
        result
    }

    /// The node that another stands for now.
    fn resolved(&self, id: Id) -> Result<Id, fmt::Error> {
        self.resolved_with(id, self.element).map(|(id, _)| id)
    }

    /// The same for an element of packs; and the element that holds in what was found.
    fn resolved_with(&self, mut id: Id, mut element: Option<usize>) -> Result<(Id, Option<usize>), fmt::Error> {
        for _ in 0..self.nodes.len() {
            id = match (self.node(id)?, element) {
                (Node::Same(other), _) => *other,
                (Node::Pack(elements), Some(index)) => match elements.get(index) {
                    Some(part) => {
                        element = None;
                        *part
                    }
                    None => return Ok((id, element)),
                },
                _ => return Ok((id, element)),
            };
        }
        Err(fmt::Error)
    }

    /// What a reference refers to, references to references made one: with whether it is to an rvalue,
    /// and the element of packs that holds in it.
    fn collapsed(&self, id: Id) -> Result<(Id, bool, Option<usize>), fmt::Error> {
        let (mut to, mut is_rvalue, mut element) = (id, true, self.element);
        for _ in 0..self.nodes.len() {
            let (found, within) = self.resolved_with(to, element)?;
            match self.node(found)? {
                Node::Reference(inner, inner_is_rvalue) => {
                    is_rvalue &= *inner_is_rvalue;
                    (to, element) = (*inner, within);
                }
                _ => return Ok((to, is_rvalue, element)),
            }
        }
        Err(fmt::Error)
    }

    fn encoding(&mut self, name: Id, function: &Function) -> fmt::Result {
        if let Some(result) = function.result {
            self.left(result)?;
            self.out.write_str(" ")?;
        }
        self.whole(name)?;
        self.parameters(function)?;
        function.result.map_or(Ok(()), |result| self.right(result))
    }

    fn parameters(&mut self, function: &Function) -> fmt::Result {
        self.out.write_str("(")?;
        self.list(&function.parameters)?;
        self.out.write_str(")")?;
        self.qualifiers(function.qualifiers)?;
        self.out.write_str(if function.is_noexcept { " noexcept" } else { "" })
    }

    fn qualifiers(&mut self, qualifiers: u8) -> fmt::Result {
        let all =
            [(RESTRICT, " __restrict"), (VOLATILE, " volatile"), (CONST, " const"), (LVALUE, " &"), (RVALUE, " &&")];
        all.iter().filter(|(bit, _)| qualifiers & bit != 0).try_for_each(|(_, text)| self.out.write_str(text))
    }

    /// With commas between those that are not empty.
    fn list(&mut self, parts: &[Id]) -> fmt::Result {
        let mut is_first = true;
        for part in parts {
            let before = self.out.text.len();
            self.out.write_str(if is_first { "" } else { ", " })?;
            let begun = self.out.text.len();
            self.whole(*part)?;
            if self.out.text.len() == begun {
                self.out.text.truncate(before);
            } else {
                is_first = false;
            }
        }
        Ok(())
    }

    fn expansion(&mut self, pattern: Id) -> fmt::Result {
        let Some(len) = self.pack_len(pattern, 0)? else {
            self.whole(pattern)?;
            return self.out.write_str("...");
        };
        let outer = self.element;
        for element in 0..len {
            self.out.write_str(if element == 0 { "" } else { ", " })?;
            self.element = Some(element);
            self.whole(pattern)?;
        }
        self.element = outer;
        Ok(())
    }

    /// How many elements the first pack in a pattern has.
    fn pack_len(&mut self, id: Id, depth: u32) -> Result<Option<usize>, fmt::Error> {
        const DEEPEST: u32 = 64;
        self.steps = self.steps.checked_sub(1).ok_or(fmt::Error)?;
        if depth > DEEPEST {
            return Err(fmt::Error);
        }
        let parts: Vec<Id> = match self.node(id)? {
            Node::Pack(elements) => return Ok(Some(elements.len())),
            Node::Text(_) | Node::Words(_) | Node::Expansion(_) => Vec::new(),
            Node::Same(of)
            | Node::Structor(of, _)
            | Node::Conversion(of)
            | Node::Tagged(of, _)
            | Node::Qualified(of, _)
            | Node::Pointer(of)
            | Node::Reference(of, _)
            | Node::Suffixed(of, _)
            | Node::PackLength(of)
            | Node::Prefixed(_, of) => vec![*of],
            Node::Nested(one, other) | Node::Member(one, other) => vec![*one, *other],
            Node::Template(name, arguments) => [&[*name][..], arguments].concat(),
            Node::Array(of, len) => len.iter().chain([of]).copied().collect(),
            Node::Function(function) => function.result.iter().chain(&function.parameters).copied().collect(),
            Node::Encoding(name, _) => vec![*name],
            Node::Lambda(parts, _) | Node::List(_, parts, _) | Node::Row(parts) => parts.clone(),
        };
        for part in parts {
            if let Some(len) = self.pack_len(part, depth + 1)? {
                return Ok(Some(len));
            }
        }
        Ok(None)
    }

    /// The last component of a class's name, without its arguments.
    fn base(&self, mut id: Id) -> Result<Id, fmt::Error> {
        for _ in 0..self.nodes.len() {
            id = match self.node(self.resolved(id)?)? {
                Node::Nested(_, inner) => *inner,
                Node::Template(name, _) | Node::Tagged(name, _) => *name,
                _ => return self.resolved(id),
            };
        }
        Err(fmt::Error)
    }
}

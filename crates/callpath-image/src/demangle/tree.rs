//! The syntax tree of a C++ name.

/// A node's number.
pub(super) type Id = u32;

/// `const`, `volatile`, `restrict`, `&` and `&&` as bits.
pub(super) const CONST: u8 = 1;
pub(super) const VOLATILE: u8 = 2;
pub(super) const RESTRICT: u8 = 4;
pub(super) const LVALUE: u8 = 8;
pub(super) const RVALUE: u8 = 16;

/// A part of a name. Parts may be parts of several others, never of themselves.
#[derive(Clone, Debug)]
pub(super) enum Node<'a> {
    Text(&'a str),
    Words(String),
    /// Another node, which became known later.
    Same(Id),
    /// `a::b`
    Nested(Id, Id),
    /// `a<b, c>`
    Template(Id, Vec<Id>),
    /// `a[abi:b]`
    Tagged(Id, &'a str),
    /// `~a` or `a`, of the last component of a class's name.
    Structor(Id, bool),
    /// `operator a`
    Conversion(Id),
    /// With cv-qualifiers.
    Qualified(Id, u8),
    Pointer(Id),
    /// To an rvalue?
    Reference(Id, bool),
    Suffixed(Id, &'static str),
    Array(Id, Option<Id>),
    Function(Box<Function>),
    /// A pointer to a member: class and type.
    Member(Id, Id),
    /// What a parameter pack stands for.
    Pack(Vec<Id>),
    /// A pattern, once for each of its packs' elements.
    Expansion(Id),
    /// A name with its type.
    Encoding(Id, Box<Function>),
    Prefixed(&'static str, Id),
    /// `{lambda(a)#1}`
    Lambda(Vec<Id>, u64),
    /// Text, parts separated by commas, text.
    List(&'static str, Vec<Id>, &'static str),
    /// Parts one after the other.
    Row(Vec<Id>),
    /// The number of elements of the pack in it.
    PackLength(Id),
}

/// A procedure's type.
#[derive(Clone, Debug, Default)]
pub(super) struct Function {
    pub(super) result: Option<Id>,
    pub(super) parameters: Vec<Id>,
    pub(super) qualifiers: u8,
    pub(super) is_noexcept: bool,
}

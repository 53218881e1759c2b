//! How the contexts of code nest: which is in which, in steps that do not grow with their depth.

use super::code_ranges::HOST;

/// The tree of contexts; an outer one has a smaller number than those in it, and [`HOST`] is around all.
#[derive(Debug, Default)]
pub(super) struct Nest(Vec<Node>);

#[derive(Clone, Copy, Debug)]
struct Node {
    parent: u32,
    depth: u32,
    /// One further out, so chosen that the way to any is short (Myers 1983, "An Applicative Random-Access Stack").
    jump: u32,
    /// Its number in an order in which those in it follow it; and one past the last of them.
    first: u32,
    end: u32,
}

impl Nest {
    /// Takes the parent of each.
    pub(super) fn of(parents: impl Iterator<Item = u32>) -> Nest {
        let host = Node { parent: HOST, depth: 0, jump: HOST, first: 0, end: 1 };
        let mut nodes = vec![host];
        for (number, parent) in (0u32..).zip(parents).skip(1) {
            let parent = parent.min(number - 1);
            let around = nodes[parent as usize];
            let jump = nodes[around.jump as usize];
            let is_even = around.depth - jump.depth == jump.depth - nodes[jump.jump as usize].depth;
            let jump = if is_even { jump.jump } else { parent };
            // For now, how many there are in it.
            nodes.push(Node { parent, depth: around.depth + 1, jump, first: 0, end: 1 });
        }
        for number in (1..nodes.len()).rev() {
            let (parent, its) = (nodes[number].parent as usize, nodes[number].end);
            nodes[parent].end += its;
        }
        // Where the next one in each begins.
        let mut next = vec![1; nodes.len()];
        for number in 1..nodes.len() {
            let (parent, its) = (nodes[number].parent as usize, nodes[number].end);
            let first = next[parent];
            next[parent] += its;
            next[number] = first + 1;
            (nodes[number].first, nodes[number].end) = (first, first + its);
        }
        Nest(nodes)
    }

    fn node(&self, context: u32) -> Node {
        let unknown = Node { parent: HOST, depth: 0, jump: HOST, first: u32::MAX, end: u32::MAX };
        self.0.get(context as usize).copied().unwrap_or(unknown)
    }

    pub(super) fn parent(&self, context: u32) -> u32 {
        self.node(context).parent
    }

    pub(super) fn depth(&self, context: u32) -> u32 {
        self.node(context).depth
    }

    /// Its number in an order in which those in it follow it, without a gap.
    pub(super) fn first(&self, context: u32) -> u32 {
        self.node(context).first
    }

    /// One past the last number of those in it.
    pub(super) fn end(&self, context: u32) -> u32 {
        self.node(context).end
    }

    /// A context is `around`, or in it.
    pub(super) fn is_in(&self, context: u32, around: u32) -> bool {
        let around = self.node(around);
        (around.first..around.end).contains(&self.node(context).first)
    }

    /// The context itself or the one around it that has so many around it.
    pub(super) fn at_depth(&self, mut context: u32, depth: u32) -> u32 {
        while self.depth(context) > depth {
            super::steps::take(1);
            let node = self.node(context);
            context = if self.depth(node.jump) >= depth { node.jump } else { node.parent };
        }
        context
    }

    /// Of the contexts directly in `around`, the one that `context` is, or is in.
    pub(super) fn towards(&self, context: u32, around: u32) -> Option<u32> {
        let is_inside = context != around && self.is_in(context, around);
        is_inside.then(|| self.at_depth(context, self.depth(around) + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_are_found_as_by_going_from_parent_to_parent() {
        // Each seventh begins anew in the host; others are in one of the four before them.
        let parent = |number: u32| if number.is_multiple_of(7) { 0 } else { number.saturating_sub(1 + number * 5 % 4) };
        let nest = Nest::of((0..500).map(parent));
        for context in 0..500 {
            let around = std::iter::successors(Some(context), |&at| (at != HOST).then(|| parent(at)));
            let mut around: Vec<u32> = around.collect();
            around.reverse();
            assert_eq!(nest.depth(context) as usize, around.len() - 1);
            for other in 0..500 {
                let at = around.iter().position(|&outer| outer == other);
                assert_eq!(nest.is_in(context, other), at.is_some());
                assert_eq!(nest.towards(context, other), at.and_then(|at| around.get(at + 1)).copied());
            }
        }
    }

    #[test]
    fn a_way_of_thousands_is_short() {
        let nest = Nest::of((0..100_000u32).map(|number| number.saturating_sub(1)));
        let before = crate::structure::steps::taken();
        assert_eq!(nest.towards(99_999, 17), Some(18));
        assert!(crate::structure::steps::taken() - before < 64);
    }
}

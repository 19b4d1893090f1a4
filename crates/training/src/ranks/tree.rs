//! The fixed tree of an update: micro-batches are its leaves, and a node splits at the largest power of two below its length.
//!
//! Every aligned block of `2^k` leaves is a node, however many leaves there are: so sums can be formed as leaves come, before
//! anybody knows how many will.

use std::ops::Range;

/// Leaves, from the first to before the last.
pub(crate) type Node = Range<usize>;

/// The two nodes below one of at least two leaves.
fn split(node: &Node) -> [Node; 2] {
    let middle = node.start + node.len().next_power_of_two() / 2;
    [node.start..middle, middle..node.end]
}

/// The leaves of a rank.
pub(crate) fn held(leaves: usize, rank: usize, ranks: usize) -> Node {
    rank * leaves / ranks..(rank + 1) * leaves / ranks
}

/// The highest nodes among so many leaves that have only leaves of `held`, from left to right.
pub(crate) fn subtrees(leaves: usize, held: &Node) -> Vec<Node> {
    fn visit(node: Node, held: &Node, found: &mut Vec<Node>) {
        if node.start >= held.end || node.end <= held.start {
            return;
        }
        if held.start <= node.start && node.end <= held.end {
            return found.push(node);
        }
        split(&node).into_iter().for_each(|node| visit(node, held, found));
    }
    let mut found = Vec::new();
    if leaves > 0 {
        visit(0..leaves, held, &mut found);
    }
    found
}

/// The sum over a node, of the sums of nodes below it: `find` has them.
pub(crate) fn sum<T>(
    node: &Node,
    find: &mut impl FnMut(&Node) -> Option<T>,
    add: &mut impl FnMut(&mut T, T),
) -> T {
    if let Some(found) = find(node) {
        return found;
    }
    assert!(node.len() > 1, "leaf {} is held by nobody", node.start);
    let [left, right] = split(node);
    let mut whole = sum(&left, find, add);
    let more = sum(&right, find, add);
    add(&mut whole, more);
    whole
}

/// Sums of leaves that come one after the other.
#[derive(Debug)]
pub(crate) struct Sums<T> {
    found: Vec<(Node, T)>,
    next: usize,
}

impl<T: Default> Sums<T> {
    /// None yet; the first leaf has this number.
    pub(crate) fn from_leaf(first: usize) -> Self {
        Self { found: Vec::new(), next: first }
    }

    /// The number of the next leaf.
    pub(crate) fn next(&self) -> usize {
        self.next
    }

    /// Where to add the next leaf: to the one before, if both are the leaves of one node.
    pub(crate) fn leaf(&mut self) -> &mut T {
        let at = self.next;
        self.next += 1;
        match self.found.last_mut() {
            Some((node, _)) if at % 2 == 1 && *node == (at - 1..at) => node.end += 1,
            _ => self.found.push((at..at + 1, T::default())),
        }
        &mut self.found.last_mut().expect("one was pushed").1
    }

    /// Adds up the blocks that the last leaf has made whole.
    pub(crate) fn settle(&mut self, mut add: impl FnMut(&mut T, T)) {
        while let [.., (left, _), (right, _)] = &self.found[..]
            && left.len() == right.len()
            && left.start.is_multiple_of(2 * left.len())
        {
            let (right, more) = self.found.pop().expect("two are there");
            let (left, sum) = self.found.last_mut().expect("one is left");
            left.end = right.end;
            add(sum, more);
        }
    }

    /// The sums of the highest nodes, now that the number of leaves in the whole tree is known.
    pub(crate) fn close(self, leaves: usize, mut add: impl FnMut(&mut T, T)) -> Vec<(Node, T)> {
        let Self { found, next } = self;
        let Some(first) = found.first().map(|(node, _)| node.start) else { return Vec::new() };
        let mut found: Vec<(Node, Option<T>)> =
            found.into_iter().map(|(node, sum)| (node, Some(sum))).collect();
        let mut find = |node: &Node| {
            found.iter_mut().find(|(known, _)| known == node).and_then(|(_, sum)| sum.take())
        };
        let nodes = subtrees(leaves, &(first..next)).into_iter();
        nodes.map(|node| (node.clone(), sum(&node, &mut find, &mut add))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sum as it is written: `((0+1)+(2+3))+4`.
    fn written(node: &Node) -> String {
        let leaf = |node: &Node| (node.len() == 1).then(|| node.start.to_string());
        sum(node, &mut |node| leaf(node), &mut |a, b| *a = format!("({a}+{b})"))
    }

    #[test]
    fn a_node_splits_at_the_largest_power_of_two() {
        assert_eq!(written(&(0..1)), "0");
        assert_eq!(written(&(0..3)), "((0+1)+2)");
        assert_eq!(written(&(0..7)), "(((0+1)+(2+3))+((4+5)+6))");
    }

    /// Sums of words, so that any other order or grouping shows.
    #[test]
    fn any_number_of_ranks_adds_in_the_same_order() {
        for leaves in 1..=33 {
            for ranks in 1..=leaves {
                let mut all = Vec::new();
                for rank in 0..ranks {
                    let own = held(leaves, rank, ranks);
                    let mut sums = Sums::<String>::from_leaf(own.start);
                    let add = |a: &mut String, b: String| *a = format!("({a}+{b})");
                    for leaf in own.clone() {
                        let slot = sums.leaf();
                        let leaf = leaf.to_string();
                        *slot = if slot.is_empty() { leaf } else { format!("({slot}+{leaf})") };
                        sums.settle(add);
                    }
                    assert_eq!(sums.next(), own.end);
                    // What is kept meanwhile stays few.
                    assert!(sums.found.len() <= 2 * (own.len().ilog2() as usize + 1));
                    let closed = sums.close(leaves, add);
                    let nodes: Vec<Node> = closed.iter().map(|(node, _)| node.clone()).collect();
                    assert_eq!(nodes, subtrees(leaves, &own), "{leaves} leaves, {ranks} ranks");
                    all.extend(closed);
                }
                let find = &mut |node: &Node| {
                    all.iter().find(|(known, _)| known == node).map(|(_, sum)| sum.clone())
                };
                let whole = sum(&(0..leaves), find, &mut |a, b| *a = format!("({a}+{b})"));
                assert_eq!(whole, written(&(0..leaves)), "{leaves} leaves, {ranks} ranks");
            }
        }
    }

    #[test]
    fn equal_shares_of_powers_of_two_are_one_subtree_each() {
        for ranks in [1, 2, 4, 8] {
            let one = |rank| subtrees(8, &held(8, rank, ranks)).len() == 1;
            assert!((0..ranks).all(one), "{ranks}");
        }
    }
}

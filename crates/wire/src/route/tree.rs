//! From whom each node takes a channel that another one receives.

use super::Key;

/// One node of a channel's tree.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Link {
    /// From whom it takes the channel: the place of another node; `None` for the one that receives
    /// the channel itself.
    pub parent: Option<usize>,
    /// How many nodes lie between.
    pub depth: u32,
}

/// The tree by which a channel reaches `nodes` from `root`, the place of the one that receives it:
/// no node feeds more than `fan_out` others, and none is further from the root than it must be.
///
/// All who know the same nodes make the same tree. Layers are filled in the order in which nodes
/// want the channel ([`Key::score`]), and a node takes, of the layer above, the one it wants most
/// that still has room. When a node goes, those whom it fed and one a layer find another; the rest
/// stay, nearly always.
///
/// # Panics
///
/// If `root` is no place in `nodes`, or `fan_out` is 0.
#[must_use]
pub fn relaying_tree(channel: Key, nodes: &[Key], root: usize, fan_out: usize) -> Vec<Link> {
    assert!(root < nodes.len(), "the root is one of the nodes");
    assert!(fan_out > 0, "a node feeds at least one other");
    let mut order: Vec<usize> = (0..nodes.len()).filter(|&node| node != root).collect();
    order.sort_by(|&a, &b| {
        let score = |node: usize| nodes[node].score(1.0, channel);
        score(b).total_cmp(&score(a)).then(nodes[a].cmp(&nodes[b]))
    });
    let apart = Link {
        parent: None,
        depth: 0,
    };
    let mut links = vec![apart; nodes.len()];
    let mut above = vec![root];
    let mut rest = order.as_slice();
    let mut depth = 0;
    while !rest.is_empty() {
        depth += 1;
        let (layer, others) = rest.split_at(rest.len().min(above.len().saturating_mul(fan_out)));
        let mut fed = vec![0_usize; above.len()];
        for &node in layer {
            let parent = (0..above.len())
                .filter(|&of| fed[of] < fan_out)
                .max_by(|&a, &b| {
                    let wants = |of: usize| nodes[node].score(1.0, nodes[above[of]]);
                    wants(a).total_cmp(&wants(b))
                })
                .expect("a layer is cut to what the one above it can feed");
            fed[parent] += 1;
            links[node] = Link {
                parent: Some(above[parent]),
                depth,
            };
        }
        above = layer.to_vec();
        rest = others;
    }
    links
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn keys(count: usize) -> Vec<Key> {
        (0..count).map(|i| Key::of(&format!("node-{i}"))).collect()
    }

    #[test]
    fn a_node_that_goes_disturbs_few() {
        let mut nodes = keys(300);
        let channel = Key::of("news");
        let before = relaying_tree(channel, &nodes, 0, 8);
        let gone = 120;
        let fed = before
            .iter()
            .filter(|link| link.parent == Some(gone))
            .count();
        nodes.remove(gone);
        let after = relaying_tree(channel, &nodes, 0, 8);
        let place = |node: usize| node - usize::from(node > gone);
        let moved = (0..300)
            .filter(|&node| node != gone && before[node].parent != Some(gone))
            .filter(|&node| after[place(node)].parent != before[node].parent.map(place))
            .count();
        assert!(
            moved < 60,
            "{moved} of those whom it did not feed ({fed} it did)"
        );
    }

    proptest! {
        #[test]
        fn it_reaches_all_by_short_ways(
            count in 1..200_usize,
            root in any::<prop::sample::Index>(),
            fan_out in 1..10_usize,
            channel in "[a-z]{1,8}",
        ) {
            let nodes = keys(count);
            let root = root.index(count);
            let links = relaying_tree(Key::of(&channel), &nodes, root, fan_out);
            let mut fed = vec![0_usize; count];
            for (node, link) in links.iter().enumerate() {
                prop_assert_eq!(link.parent.is_none(), node == root);
                let Some(parent) = link.parent else { continue };
                fed[parent] += 1;
                prop_assert_eq!(links[parent].depth + 1, link.depth);
            }
            prop_assert!(fed.iter().all(|&fed| fed <= fan_out));
            // The least depth that holds so many.
            let (mut holds, mut layer, mut depth) = (1, 1, 0);
            while holds < count {
                layer *= fan_out;
                holds += layer;
                depth += 1;
            }
            prop_assert_eq!(links.iter().map(|link| link.depth).max(), Some(depth));
        }

        #[test]
        fn the_order_of_the_list_does_not_matter(count in 2..60_usize, fan_out in 1..6_usize) {
            let nodes = keys(count);
            let channel = Key::of("sport");
            let links = relaying_tree(channel, &nodes, 0, fan_out);
            let turned: Vec<Key> = nodes.iter().rev().copied().collect();
            let of_turned = relaying_tree(channel, &turned, count - 1, fan_out);
            for node in 0..count {
                let other = of_turned[count - 1 - node];
                prop_assert_eq!(other.depth, links[node].depth);
                prop_assert_eq!(other.parent.map(|parent| count - 1 - parent), links[node].parent);
            }
        }
    }
}

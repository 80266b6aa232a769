//! The links of a network.

use coplay_links::link::{Link, LinkConfig};

/// Links between the computers of a network.
#[derive(Debug)]
pub struct Topology {
    shape: Shape,
    nodes: usize,
    links: Vec<Link>,
}

#[derive(Clone, Copy, Debug)]
enum Shape {
    Mesh,
    Tree,
}

impl Topology {
    /// Creates a link from each of `nodes` computers to each other one. `config(from, to)` returns the conditions of a
    /// link, `name(from, to)` the name of its random streams, which is part of the seed.
    pub fn mesh(
        seed: u64,
        nodes: usize,
        name: impl Fn(usize, usize) -> String,
        config: impl Fn(usize, usize) -> LinkConfig,
    ) -> Self {
        let pairs = (0..nodes * nodes).map(|at| (at / nodes, at % nodes));
        let links = pairs.map(|(from, to)| Link::new(config(from, to), seed, &name(from, to))).collect();
        Self { shape: Shape::Mesh, nodes, links }
    }

    /// Creates one downlink and one uplink for each of `nodes` computers but the first. A datagram to a computer with a
    /// higher number uses the downlink of its receiver, every other one the uplink of its sender. `config(node)`
    /// returns the conditions of both links of a computer; `name(node, direction)`, with the direction "up" or "down",
    /// the name of a link's random streams, which is part of the seed.
    pub fn tree(
        seed: u64,
        nodes: usize,
        name: impl Fn(usize, &str) -> String,
        config: impl Fn(usize) -> LinkConfig,
    ) -> Self {
        let link = |node: usize, direction: &str| Link::new(config(node), seed, &name(node, direction));
        let links = (1..nodes).flat_map(|node| [link(node, "down"), link(node, "up")]).collect();
        Self { shape: Shape::Tree, nodes, links }
    }

    /// Returns the index of the link that carries datagrams from one computer to another.
    pub(super) fn index(&self, from: usize, to: usize) -> usize {
        match self.shape {
            Shape::Mesh => from * self.nodes + to,
            Shape::Tree => 2 * (from.max(to) - 1) + usize::from(from > to),
        }
    }

    pub(super) fn link(&mut self, index: usize) -> &mut Link {
        &mut self.links[index]
    }

    pub(super) fn links(&self) -> &[Link] {
        &self.links
    }

    pub(super) fn links_mut(&mut self) -> &mut [Link] {
        &mut self.links
    }
}

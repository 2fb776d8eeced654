//! Pieces by their bytes.

use std::collections::HashMap;

/// A tree with a node for each beginning of a piece.
#[derive(Debug, Default)]
pub(super) struct Trie {
    children: HashMap<(u32, u8), u32>,
    /// The piece that ends at each node. The root is the first node.
    ends: Vec<Option<u32>>,
}

impl Trie {
    /// Adds a piece. An earlier piece with the same bytes stays.
    pub(super) fn insert(&mut self, piece: &[u8], id: u32) {
        if self.ends.is_empty() {
            self.ends.push(None);
        }
        let mut node = 0;
        for byte in piece {
            // A node costs at least one byte of a file, so there are fewer than 2^32.
            let next = self.ends.len() as u32;
            node = *self.children.entry((node, *byte)).or_insert(next);
            if node == next {
                self.ends.push(None);
            }
        }
        if let Some(end) = self.ends.get_mut(node as usize).filter(|_| !piece.is_empty()) {
            end.get_or_insert(id);
        }
    }

    /// Returns the pieces at the beginning of `text` with their lengths, shorter ones first.
    pub(super) fn prefixes<'a>(
        &'a self,
        text: &'a [u8],
    ) -> impl Iterator<Item = (usize, u32)> + 'a {
        let mut node = 0;
        let nodes = text.iter().map_while(move |byte| {
            node = *self.children.get(&(node, *byte))?;
            Some(self.ends[node as usize])
        });
        nodes.enumerate().filter_map(|(at, end)| Some((at + 1, end?)))
    }

    /// Returns the piece with exactly these bytes.
    pub(super) fn get(&self, piece: &[u8]) -> Option<u32> {
        let step = |node: u32, byte: &u8| self.children.get(&(node, *byte)).copied();
        let node = piece.iter().try_fold(0, step)?;
        self.ends.get(node as usize).copied().flatten()
    }
}

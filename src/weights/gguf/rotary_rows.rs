//! The order of the rows of q and k in GGUF files of the architecture `llama`.
//!
//! Rotary embeddings rotate pairs. Hugging Face's Llama pairs row `i` of a head with row
//! `i + head_dim / 2`, and llama.cpp pairs it with its neighbour. So the converter interleaves the
//! halves of each head (`LlamaModel.permute` of convert_hf_to_gguf.py). This module separates them
//! again.

use std::borrow::Cow;

/// Heads of the projections whose rows are interleaved.
#[derive(Debug, Clone, Copy)]
pub(in crate::weights) struct RotaryHeads {
    pub(in crate::weights) query: usize,
    pub(in crate::weights) key: usize,
}

/// The order of the rows of one tensor.
#[derive(Debug, Clone, Copy)]
pub(in crate::weights) struct RowOrder {
    head_dim: usize,
}

impl RotaryHeads {
    /// Returns the order of the `rows` rows of the tensor `name` (Hugging Face's), if it differs
    /// from Hugging Face's.
    pub(in crate::weights) fn order(&self, name: &str, rows: usize) -> Option<RowOrder> {
        let heads = match name {
            name if name.contains(".self_attn.q_proj.") => self.query,
            name if name.contains(".self_attn.k_proj.") => self.key,
            _ => return None,
        };
        let head_dim = rows.checked_div(heads)?;
        let whole = head_dim * heads == rows && head_dim.is_multiple_of(2);
        whole.then_some(RowOrder { head_dim })
    }
}

impl RowOrder {
    /// Returns the index in the file of row `row`.
    pub(in crate::weights) fn stored_row(self, row: usize) -> usize {
        let (head, within) = (row / self.head_dim, row % self.head_dim);
        let half = self.head_dim / 2;
        head * self.head_dim + 2 * (within % half) + within / half
    }

    /// Returns `bytes`, rows of `row_bytes`, in Hugging Face's order.
    pub(in crate::weights) fn restore(self, bytes: &[u8], row_bytes: usize) -> Cow<'_, [u8]> {
        if row_bytes == 0 {
            return Cow::Borrowed(bytes);
        }
        let rows = 0..bytes.len() / row_bytes;
        let stored = rows.map(|row| self.stored_row(row) * row_bytes);
        Cow::Owned(stored.flat_map(|at| &bytes[at..at + row_bytes]).copied().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_halves_of_each_head_come_apart() {
        let heads = RotaryHeads { query: 2, key: 1 };
        // The converter writes rows 0..8 of two heads in this order: [0, 2, 1, 3, 4, 6, 5, 7].
        let order = heads.order("model.layers.0.self_attn.q_proj.weight", 8).unwrap();
        assert_eq!(*order.restore(&[0, 2, 1, 3, 4, 6, 5, 7], 1), [0, 1, 2, 3, 4, 5, 6, 7]);
        let order = heads.order("model.layers.0.self_attn.k_proj.bias", 6).unwrap();
        assert_eq!((0..6).map(|row| order.stored_row(row)).collect::<Vec<_>>(), [0, 2, 4, 1, 3, 5]);
        assert!(heads.order("model.layers.0.self_attn.v_proj.weight", 8).is_none());
        assert!(heads.order("model.layers.0.self_attn.q_norm.weight", 8).is_none());
    }
}

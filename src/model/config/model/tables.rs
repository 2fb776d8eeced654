//! The rows of the embedding and of the output layer, where they are not those of one tensor.

use super::ModelConfig;
use crate::weights::Checkpoint;

/// The tensors of a table in two parts, within the module of the embedding: the `Molmo2Embedding`
/// of published folders.
pub(crate) const TABLE_PARTS: [&str; 2] = ["embedding", "new_embedding"];

impl ModelConfig {
    /// Returns the rows of both parts of the embedding's table, if the checkpoint has it so.
    /// Together they are those of the vocabulary. The inventory refuses parts of other heights.
    pub(super) fn table_parts_in(&self, checkpoint: &Checkpoint) -> Option<[usize; 2]> {
        let module = self.names.stored(self.names.embed_tokens);
        let rows = |part: &str| checkpoint.shape(&format!("{module}.{part}"))?.first().copied();
        let [first, second] = TABLE_PARTS.map(rows);
        second?;
        first.map(|first| [first, self.vocab_size.saturating_sub(first)])
    }

    /// Returns the rows of the output layer.
    pub(crate) fn scored_tokens(&self) -> usize {
        self.vocab_size.saturating_sub(self.num_unscored)
    }
}

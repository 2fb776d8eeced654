//! Requests that stay within a model's short context, in a batch with others.

use playhouse_actors::ports::ExecuteError;

use super::batch::{PersistentBatch, RaggedBatch};

impl PersistentBatch {
    /// Chooses the rows of the tokens in rotary tables, if a request of the batch has the mark of
    /// the model's short context. Its rows follow those of `max_model_len` positions.
    ///
    /// # Errors
    /// [`ExecuteError::InvalidStep`] when a chunk is of an unknown request.
    pub(super) fn turn_short(
        &self,
        max_model_len: usize,
        batch: &mut RaggedBatch,
    ) -> Result<(), ExecuteError> {
        let RaggedBatch { chunks, rotary_rows, .. } = batch;
        let mut any = false;
        for chunk in &*chunks {
            let is_short = self.sequence(chunk)?.request.is_short();
            let first_row = if is_short { max_model_len } else { 0 };
            let rows = chunk.start..chunk.end + chunk.num_guesses;
            rotary_rows.extend(rows.map(|position| (first_row + position) as u32));
            any |= is_short;
        }
        if !any {
            rotary_rows.clear();
        }
        Ok(())
    }
}

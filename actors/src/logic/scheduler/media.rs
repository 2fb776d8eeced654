//! Images and sounds: an encoder output must exist before the first of its tokens is computed. It
//! is dropped after the last.

use std::sync::Arc;

use super::{
    Scheduler,
    planning::{Planning, Row},
    request_table::Slot,
};

/// The part of a request that this step can compute, given its media.
pub(super) struct MediaWindow {
    /// Number of tokens to compute.
    pub(super) num_tokens: usize,
    /// Indices of the features to encode for these tokens.
    pub(super) features: Vec<usize>,
}

impl Scheduler {
    /// Returns whether some of the request's media are not computed yet.
    pub(super) fn has_media_ahead(&self, slot: Slot) -> bool {
        let state = &self.requests[slot];
        state.num_passed_features < state.request.mm_features.len()
    }

    /// Shortens the `num_tokens` after `num_computed` to end before the first item that cannot be
    /// encoded now. Returns the tokens and the features to encode.
    pub(super) fn media_window(
        &mut self,
        slot: Slot,
        num_computed: usize,
        mut num_tokens: usize,
        budget: usize,
    ) -> MediaWindow {
        let request = Arc::clone(&self.requests[slot].request);
        let mut features: Vec<usize> = Vec::new();
        let mut num_embeds = 0;
        for (index, item) in request.mm_features.iter().enumerate() {
            let end = item.offset + item.length;
            if item.offset >= num_computed + num_tokens {
                break;
            }
            let is_planned =
                |&other: &usize| request.mm_features[other].identifier == item.identifier;
            if end <= num_computed
                || features.iter().any(is_planned)
                || self.encoder_cache.check_and_update_cache(request.id, item)
            {
                continue;
            }
            // An item longer than a reduced budget is computed in parts all the same.
            let is_cut = self.config.disable_chunked_mm_input
                && item.length <= self.token_budget
                && num_computed < item.offset
                && num_computed + num_tokens < end;
            let left = budget - num_embeds;
            if is_cut || !self.encoder_cache.can_allocate(item, left, num_embeds) {
                num_tokens = item.offset.saturating_sub(num_computed);
                break;
            }
            num_embeds += item.num_embeds;
            features.push(index);
        }
        MediaWindow { num_tokens, features }
    }

    /// Allocates encoder space for the features of a row that is certain.
    #[inline]
    pub(super) fn allocate_media(&mut self, planning: &mut Planning, row: usize) {
        if !planning.rows[row].features.is_empty() {
            self.allocate_features(planning, row);
        }
    }

    /// Most rows have no media, so this is no part of their path.
    #[inline(never)]
    fn allocate_features(&mut self, planning: &mut Planning, row: usize) {
        let row = &planning.rows[row];
        let request = &self.requests[row.slot].request;
        for &index in &row.features {
            let item = &request.mm_features[index];
            self.encoder_cache.allocate(request.id, item);
            planning.encoder_budget -= item.num_embeds;
        }
    }

    /// Releases the encoder space of a row that is taken back. A feature that another row relies on
    /// is encoded for that row.
    pub(super) fn cancel_media(&mut self, planning: &mut Planning, row: Row) {
        let request = Arc::clone(&self.requests[row.slot].request);
        for index in row.features {
            let item = &request.mm_features[index];
            let heir = planning.rows.iter_mut().find_map(|other| {
                let request = &self.requests[other.slot].request;
                let mut features = request.mm_features.iter();
                let position = features.position(|other| other.identifier == item.identifier)?;
                let counts_on_it = self.encoder_cache.is_used_by(request.id, &item.identifier);
                counts_on_it.then_some((other, position))
            });
            match heir {
                Some((other, position)) => other.features.push(position),
                None => {
                    self.encoder_cache.cancel(&item.identifier);
                    planning.encoder_budget += item.num_embeds;
                }
            }
        }
    }

    /// Releases all media of a request that no longer uses them.
    pub(super) fn free_media(&mut self, slot: Slot) {
        let request = &self.requests[slot].request;
        for item in request.mm_features.iter() {
            self.encoder_cache.free(request.id, &item.identifier);
        }
    }

    /// Drops the media whose last token is computed.
    pub(super) fn pass_media(&mut self, slot: Slot) {
        let state = &mut self.requests[slot];
        let features = &state.request.mm_features[state.num_passed_features..];
        let num_computed = state.num_computed_tokens;
        for item in features.iter().take_while(|item| item.offset + item.length <= num_computed) {
            state.num_passed_features += 1;
            self.encoder_cache.free(state.request.id, &item.identifier);
        }
    }
}

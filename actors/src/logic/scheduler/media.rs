//! Images and sounds: a step computes a token of an item only when the item is encoded.
//!
//! The scheduler lists the items that requests need, and the encoder cache answers which are ready.
//! A running request goes on up to the first item that is not. A request that cannot begin waits
//! aside, so it holds up no other. An item is listed from the plan that first reaches it until its
//! tokens are computed. One that all tokens attend to is listed until its request ends.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    Scheduler,
    aside::Resource,
    planning::Planning,
    request_queue::QueueKey,
    request_state::{RequestState, Status},
    request_table::Slot,
};
use crate::logic::{
    encoder_cache::{EncoderAnswer, EncoderNeed, EncoderNeeds},
    planted::{Bug, planted},
    request::{
        EngineRequest, FinishReason, ids::RequestId, media::MultimodalFeature, outputs::Commit,
    },
    scheduler::request_queue::SchedulingPolicy,
};

/// An item, for one of the requests that need it.
type Item = (RequestId, Arc<str>);

/// The scheduler's side of the encoder cache, of one epoch.
#[derive(Debug, Clone)]
pub(super) struct Media {
    /// The number of the last list.
    version: u64,
    /// The version of the last answer.
    answered: u64,
    /// Whether the last list is out of date.
    has_changed: bool,
    /// The listed items, with the first of the versions that name them without a gap.
    listed: BTreeMap<Item, u64>,
    /// The listed items that are ready.
    ready: BTreeSet<Item>,
    /// Whether only a cohort may list items.
    is_limited: bool,
    /// Whether a running request finds no room for its items. Others then give up theirs.
    is_tight: bool,
}

impl Media {
    /// Returns the state of a new epoch. Its first list is sent even if it is empty, because the
    /// encoder cache may keep items for the epoch before. `takes_media` is false if no request has
    /// some.
    pub(super) fn new(takes_media: bool) -> Self {
        Self {
            version: 0,
            answered: 0,
            has_changed: takes_media,
            listed: BTreeMap::new(),
            ready: BTreeSet::new(),
            is_limited: false,
            is_tight: false,
        }
    }

    fn is_ready(&self, request: RequestId, identifier: &Arc<str>) -> bool {
        self.ready.contains(&(request, Arc::clone(identifier)))
    }

    /// Records the items of a new list. Of a request, the encoder cache releases the items behind
    /// one without a place. They are ready only if the answer to this list says so.
    fn list(&mut self, needs: &EncoderNeeds) {
        let before = std::mem::take(&mut self.listed);
        let mut ready = BTreeSet::new();
        for need in &needs.needs {
            let mut all_are_ready = true;
            for item in &need.items {
                let item: Item = (need.request, Arc::clone(&item.identifier));
                let since = before.get(&item).copied().filter(|_| all_are_ready);
                all_are_ready &= self.ready.contains(&item);
                if all_are_ready {
                    ready.insert(item.clone());
                }
                self.listed.entry(item).or_insert(since.unwrap_or(self.version));
            }
        }
        self.ready = ready;
    }

    /// Records that other requests may be scheduled now.
    pub(super) fn cohort_changed(&mut self) {
        self.has_changed = true;
    }
}

impl RequestState {
    /// Returns whether some of the request's items are not computed yet.
    fn has_media_ahead(&self) -> bool {
        let items = &self.request.mm_features;
        self.num_passed_features < items.len() || items.iter().any(|item| item.is_attended())
    }

    /// Returns the number of items before the `num_computed`-th token.
    fn num_features_before(&self, num_computed: usize) -> usize {
        let items = self.request.mm_features.iter();
        items.take_while(|item| item.is_before(num_computed)).count()
    }
}

impl Scheduler {
    /// Returns whether the request has items.
    pub(super) fn has_media(&self, slot: Slot) -> bool {
        !self.requests[slot].request.mm_features.is_empty()
    }

    /// Returns whether some of the items of a running request are not computed yet.
    pub(super) fn has_media_ahead(&self, slot: Slot) -> bool {
        self.requests[slot].has_media_ahead()
    }

    /// Shortens the `num_tokens` after `num_computed` to end before the first item that is not
    /// ready, and lists the items that they need.
    pub(super) fn media_window(
        &mut self,
        slot: Slot,
        num_computed: usize,
        num_tokens: usize,
    ) -> usize {
        let budget = self.token_budget;
        let (most_embeds, is_whole) = (self.config.encoder_cache_size, self.needs_whole_items());
        let state = &mut self.requests[slot];
        if state.status != Status::Running {
            // Those within the hits. Of a running request, steps in flight may still read some.
            let num_passed = state.num_features_before(num_computed);
            self.media.has_changed |= num_passed != state.num_passed_features;
            state.num_passed_features = num_passed;
        }
        let request = Arc::clone(&state.request);
        let end = num_computed + num_tokens;
        let (mut window, mut num_embeds) = (num_tokens, 0);
        // The first token of an item that spans others attends to all of them.
        let mut span = 0..0;
        for (index, item) in request.mm_features.iter().enumerate() {
            let is_spanned = !item.is_attended() && item.offset < span.end;
            if item.offset >= end && !item.is_attended() && !is_spanned {
                break;
            }
            if !is_spanned {
                span = item.offset..item.offset + item.length;
            }
            if item.is_before(num_computed) {
                continue;
            }
            // An item longer than a reduced budget is computed in parts all the same.
            let is_cut = is_whole
                && item.length <= budget
                && num_computed < item.offset
                && end < item.offset + item.length;
            num_embeds += item.num_embeds;
            let before = span.start.saturating_sub(num_computed);
            if is_cut || num_embeds > most_embeds {
                window = window.min(before);
                break;
            }
            if index >= state.num_wanted_features {
                state.num_wanted_features = index + 1;
                self.media.has_changed = true;
            }
            let is_ready = self.media.is_ready(request.id, &item.identifier);
            if !is_ready && !planted(Bug::SkipEncoder) {
                window = window.min(before);
            }
        }
        window
    }

    /// Changes the number of tokens after `num_computed` so that the step has all tokens of an
    /// image that attend to each other, or none. At most `budget` tokens are left to the step. A
    /// prefix hit may end within an image. Its first tokens were then computed with all others.
    pub(super) fn whole_items(
        &self,
        slot: Slot,
        num_computed: usize,
        num_tokens: usize,
        budget: usize,
    ) -> usize {
        let is_off = self.config.largest_whole_item == 0 || planted(Bug::CutImage);
        if num_tokens == 0 || is_off {
            return num_tokens;
        }
        let end = num_computed + num_tokens;
        let items = &self.requests[slot].request.mm_features;
        let is_cut = |item: &&MultimodalFeature| {
            !item.is_attended() && item.offset < end && !item.is_before(end)
        };
        let cut = items.iter().find(is_cut);
        let Some(item) = cut else { return num_tokens };
        let missing = item.offset + item.length - num_computed;
        match item.offset > num_computed {
            true => item.offset - num_computed,
            false if missing <= budget => missing,
            false => 0,
        }
    }

    fn needs_whole_items(&self) -> bool {
        self.config.disable_chunked_mm_input
    }

    /// Moves a request that cannot begin without an item from the queue to a place aside.
    pub(super) fn wait_for_media(&mut self, planning: &mut Planning, key: QueueKey, slot: Slot) {
        let state = &mut self.requests[slot];
        let resource = Resource::Encoder(state.request.id);
        self.queues.waiting.take(key, state.request.arrival);
        self.queues.aside.wait(&resource, state.request.id);
        state.status = Status::WaitingFor(resource, key);
        planning.looked_up = None;
    }

    /// Releases all items of a request that no longer uses them.
    pub(super) fn free_media(&mut self, slot: Slot) {
        let state = &mut self.requests[slot];
        self.media.has_changed |= state.num_wanted_features > state.num_passed_features;
        state.num_wanted_features = 0;
    }

    /// Releases the items whose last token is computed. Steps in flight may still read the others.
    pub(super) fn pass_media(&mut self, slot: Slot) {
        let state = &self.requests[slot];
        if state.num_passed_features == state.request.mm_features.len() {
            return;
        }
        let rows = self.flight.steps.iter().flat_map(|step| &step.rows);
        let starts = rows.filter(|row| row.slot == slot).map(|row| row.start);
        let num_settled = starts.min().unwrap_or(state.num_computed_tokens);
        let num_passed = state.num_features_before(num_settled);
        if num_passed > state.num_passed_features {
            self.requests[slot].num_passed_features = num_passed;
            self.media.has_changed = true;
        }
    }

    /// Returns the list of needed items, if it has changed since the last call.
    pub fn take_encoder_needs(&mut self) -> Option<EncoderNeeds> {
        let is_limited = self.active_cohort().is_some();
        let is_other = std::mem::replace(&mut self.media.is_limited, is_limited) != is_limited;
        let has_changed = std::mem::take(&mut self.media.has_changed) || is_other;
        if !has_changed || self.config.encoder_cache_size == 0 {
            return None;
        }
        self.media.version += 1;
        let needs = self.encoder_needs();
        self.media.list(&needs);
        Some(needs)
    }

    /// Returns the last list, if no answer to it has come, or if items of it are awaited. The
    /// caller sends it again, because a message may have been lost.
    #[must_use]
    pub fn unanswered_encoder_needs(&self) -> Option<EncoderNeeds> {
        let Media { version, answered, listed, ready, .. } = &self.media;
        let is_settled = answered == version && listed.keys().all(|item| ready.contains(item));
        (!is_settled).then(|| self.encoder_needs())
    }

    /// Returns the items that requests need. Those of running requests come first, so that they
    /// come to an end. Others then keep the order of their arrival.
    fn encoder_needs(&self) -> EncoderNeeds {
        let cohort = self.active_cohort();
        let is_listed = |state: &&RequestState| {
            let is_member = cohort.is_none_or(|cohort| cohort.contains(&state.request.id));
            state.num_wanted_features > state.num_passed_features
                && is_member
                && (state.status == Status::Running || !self.media.is_tight)
        };
        let rank = |state: &&RequestState| {
            let EngineRequest { priority, arrival, id, .. } = *state.request;
            let priority = match self.config.policy {
                SchedulingPolicy::Fcfs => 0,
                SchedulingPolicy::Priority => priority,
            };
            (state.status != Status::Running, priority, arrival, id)
        };
        let mut states: Vec<&RequestState> = self.requests.live().filter(is_listed).collect();
        states.sort_by_key(rank);
        let need = |state: &RequestState| {
            let items = &state.request.mm_features[..state.num_wanted_features];
            let (passed, others) = items.split_at(state.num_passed_features);
            let attended = passed.iter().filter(|item| item.is_attended());
            EncoderNeed {
                request: state.request.id,
                items: attended.chain(others).cloned().collect(),
            }
        };
        let needs = states.into_iter().map(need).collect();
        EncoderNeeds { epoch: self.epoch, version: self.media.version, needs }
    }

    /// Takes the encoder cache's answer. Requests whose items are ready take their places in the
    /// queue, and those with an item that cannot be encoded end. Returns the ends. An answer to a
    /// list of another epoch is counted and dropped. Must not be called while a step is planned.
    pub fn encoded(&mut self, answer: EncoderAnswer) -> Vec<Commit> {
        let EncoderAnswer { epoch, version, ready, failed, starved } = answer;
        if epoch != self.epoch || version < self.media.answered {
            self.num_stale += 1;
            return Vec::new();
        }
        self.media.answered = version;
        // The item stays only while every list since names it.
        let is_kept = |item: &Item| self.media.listed.get(item).is_some_and(|&v| v <= version);
        let ready: Vec<Item> = ready.into_iter().filter(is_kept).collect();
        self.media.ready.extend(ready);
        if version == self.media.version {
            let is_running = |id| {
                let slot = self.requests.find(id);
                slot.is_some_and(|slot| self.requests[slot].status == Status::Running)
            };
            let is_tight = starved.is_some_and(is_running);
            self.media.has_changed |= is_tight != self.media.is_tight;
            self.media.is_tight = is_tight;
        }
        let mut ended = Vec::new();
        for (identifier, failure) in failed {
            for slot in self.users_of(&identifier) {
                ended.push(self.end_with(slot, false, FinishReason::Error(failure.clone())));
            }
        }
        self.compact_running();
        for id in self.aside_with_media() {
            ended.extend(self.resolve(&Resource::Encoder(id), Ok(())));
        }
        ended
    }

    /// Returns the requests that need an item now.
    fn users_of(&self, identifier: &Arc<str>) -> Vec<Slot> {
        let needs = |state: &&RequestState| {
            let items = state.request.mm_features.get(..state.num_wanted_features);
            items.unwrap_or_default().iter().any(|item| item.identifier == *identifier)
        };
        let users = self.requests.live().filter(needs).map(|state| state.request.id);
        users.filter_map(|id| self.requests.find(id)).collect()
    }

    /// Returns the requests aside whose first item is ready.
    fn aside_with_media(&self) -> Vec<RequestId> {
        let can_begin = |state: &&RequestState| {
            let waits = matches!(state.status, Status::WaitingFor(Resource::Encoder(_), _));
            let items = state.request.mm_features.iter();
            let mut awaited = items.skip(state.num_passed_features);
            let id = state.request.id;
            let is_ready = |item: &MultimodalFeature| self.media.is_ready(id, &item.identifier);
            waits && awaited.next().is_none_or(is_ready)
        };
        let states = self.requests.live().filter(can_begin);
        states.map(|state| state.request.id).collect()
    }
}

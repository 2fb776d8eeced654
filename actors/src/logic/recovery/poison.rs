//! Finds the request that makes the model fail. A step that panics names a batch, not one request.
//! Most faults do not repeat, so the same requests first run together once more. When one of them
//! has gone on, other requests run beside the rest. If they fail again, they run apart, in ever
//! smaller groups, until one of them fails alone, three times.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::logic::request::ids::RequestId;

/// Failures alone, in a row, that convict a request if there is evidence that the engine works.
pub const SOLO_STRIKES: u32 = 3;
/// Failures alone, in a row, that convict without this evidence. Otherwise two poisoned requests
/// that are the only ones would keep each other alive for ever.
pub const SOLO_STRIKES_UNPROVEN: u32 = 9;

/// The suspects, kept apart from other requests and from each other.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ward {
    suspects: BTreeMap<RequestId, Suspect>,
    /// Each suspect is in exactly one group, and no group is empty. The first group runs.
    groups: VecDeque<Group>,
    /// Number of all steps that succeeded.
    num_successes: u64,
    consecutive_failures: u32,
}

/// Suspects that run together.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Group {
    members: BTreeSet<RequestId>,
    trial: Trial,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trial {
    /// They failed once, and none of them has gone on since.
    Again,
    /// They failed once, and some of them have gone on since. Other requests run beside the rest.
    GoesOn,
    /// They or some of them failed at least twice.
    Apart,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Suspect {
    /// Number of steps that had succeeded when the request first took part in a failure.
    num_successes_before: u64,
    /// Number of failures alone since it became a suspect.
    solo_strikes: u32,
}

impl Ward {
    /// Returns a ward without suspects.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Records that a step with exactly the requests of `batch` panicked or failed on the device,
    /// so all its results are dropped. `num_live` requests are alive, including these. Only a step
    /// that started from committed tokens alone (`is_committed`) gives a strike.
    ///
    /// Returns the convicted request, at most one, and forgets it. The others are suspects until
    /// they are [cleared](Self::clear). If some of them were suspects before, only those are.
    pub fn step_failed(
        &mut self,
        batch: &[RequestId],
        num_live: usize,
        is_committed: bool,
    ) -> Vec<RequestId> {
        let convicted = self.convicts(batch, num_live, is_committed);
        self.consecutive_failures = self.consecutive_failures.saturating_add(1);
        let batch: BTreeSet<RequestId> = batch.iter().copied().collect();
        let is_suspect = |request: &RequestId| self.suspects.contains_key(request);
        let known: BTreeSet<RequestId> = batch.iter().copied().filter(is_suspect).collect();
        let (is_first, is_alone) = (known.is_empty(), batch.len() == 1);
        let members = if is_first { batch } else { known };
        self.leave_groups(&members);
        let num_successes_before = self.num_successes;
        for &request in &members {
            let suspect = Suspect { num_successes_before, solo_strikes: 0 };
            let suspect = self.suspects.entry(request).or_insert(suspect);
            suspect.solo_strikes += u32::from(is_alone && is_committed);
        }
        match (members.len(), convicted) {
            (0, _) => {}
            (1, Some(request)) => {
                self.suspects.remove(&request);
            }
            // The others run first, because their success is the evidence.
            (1, None) => self.groups.push_back(Group { members, trial: Trial::Apart }),
            _ if is_first => self.groups.push_front(Group { members, trial: Trial::Again }),
            _ => self.split(&members),
        }
        convicted.into_iter().collect()
    }

    /// Returns the request that this failure of a step convicts, if any. It failed alone, from
    /// committed tokens, often enough.
    #[must_use]
    pub fn convicts(
        &self,
        batch: &[RequestId],
        num_live: usize,
        is_committed: bool,
    ) -> Option<RequestId> {
        let &request = batch.first().filter(|first| batch.iter().all(|id| id == *first))?;
        let suspect = self.suspects.get(&request);
        let solo_strikes = suspect.map_or(0, |suspect| suspect.solo_strikes) + 1;
        let before = suspect.map_or(self.num_successes, |suspect| suspect.num_successes_before);
        let engine_works = num_live <= 1 || self.num_successes > before;
        let enough = if engine_works { SOLO_STRIKES } else { SOLO_STRIKES_UNPROVEN };
        (is_committed && solo_strikes >= enough).then_some(request)
    }

    /// Records that a step was computed, so the engine can work. It clears no suspect, because a
    /// step may compute only a part of a prompt.
    pub fn step_succeeded(&mut self) {
        self.num_successes += 1;
        self.consecutive_failures = 0;
    }

    /// Forgets the strikes of a request, because its commit was accepted or it ended.
    pub fn clear(&mut self, request: RequestId) {
        if self.suspects.remove(&request).is_some() {
            let has_it = |group: &&mut Group| group.members.contains(&request);
            for group in self.groups.iter_mut().filter(has_it) {
                if group.trial == Trial::Again {
                    group.trial = Trial::GoesOn;
                }
            }
            self.leave_groups(&BTreeSet::from([request]));
        }
    }

    /// Returns the only requests that may be scheduled now, at least one. `None`: all may. Suspects
    /// without an output follow those with one, whose streams must not wait for their prompts.
    #[must_use]
    pub fn cohort(&self) -> Option<&BTreeSet<RequestId>> {
        let first = self.groups.front()?;
        let runs_beside_others = self.groups.len() == 1 && first.trial == Trial::GoesOn;
        (!runs_beside_others).then_some(&first.members)
    }

    /// Returns whether a request is a suspect.
    #[must_use]
    pub fn suspects(&self, request: RequestId) -> bool {
        self.suspects.contains_key(&request)
    }

    /// Returns the number of suspects, neither convicted nor cleared.
    #[must_use]
    pub fn num_suspects(&self) -> usize {
        self.suspects.len()
    }

    /// Returns the number of failed steps since one succeeded. After many failures the requests are
    /// not the cause.
    #[must_use]
    pub fn consecutive_failures(&self) -> u32 {
        self.consecutive_failures
    }

    /// Puts two halves before all other groups, so that one failure is traced to its end before the
    /// next.
    fn split(&mut self, batch: &BTreeSet<RequestId>) {
        let mut first = batch.iter().copied();
        let half: BTreeSet<_> = first.by_ref().take(batch.len().div_ceil(2)).collect();
        for members in [first.collect(), half] {
            self.groups.push_front(Group { members, trial: Trial::Apart });
        }
    }

    fn leave_groups(&mut self, requests: &BTreeSet<RequestId>) {
        for group in &mut self.groups {
            group.members.retain(|request| !requests.contains(request));
        }
        self.groups.retain(|group| !group.members.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids<const N: usize>(ids: [u64; N]) -> Vec<RequestId> {
        ids.map(RequestId).to_vec()
    }

    fn cohort(ward: &Ward) -> Vec<u64> {
        ward.cohort().into_iter().flatten().map(|id| id.0).collect()
    }

    fn fail_alone(ward: &mut Ward, id: u64) -> Vec<RequestId> {
        ward.step_failed(&ids([id]), 9, true)
    }

    #[test]
    fn without_a_failure_all_requests_run() {
        let mut ward = Ward::new();
        ward.step_succeeded();
        assert_eq!((ward.cohort(), ward.num_suspects()), (None, 0));
    }

    /// Fails twice with the same batch, whose groups then are halves.
    fn fail_twice(ward: &mut Ward, batch: &[RequestId]) {
        for _ in 0..2 {
            assert_eq!(ward.step_failed(batch, 9, true), []);
        }
    }

    #[test]
    fn a_batch_that_failed_once_runs_again_as_it_is() {
        let mut ward = Ward::new();
        assert_eq!(ward.step_failed(&ids([5, 1, 4]), 9, true), []);
        assert_eq!((cohort(&ward), ward.num_suspects()), (vec![1, 4, 5], 3));
        ward.clear(RequestId(1));
        ward.clear(RequestId(4));
        ward.clear(RequestId(5));
        assert_eq!((ward.cohort(), ward.num_suspects()), (None, 0));
    }

    #[test]
    fn when_a_suspect_has_gone_on_others_run_beside_the_rest() {
        let mut ward = Ward::new();
        ward.step_failed(&ids([1, 2, 3]), 9, true);
        assert_eq!(cohort(&ward), [1, 2, 3]);
        ward.step_succeeded();
        ward.clear(RequestId(1));
        assert_eq!((ward.cohort(), ward.num_suspects()), (None, 2));
        // Only the suspects of this batch are suspected, and now they run apart.
        assert_eq!(ward.step_failed(&ids([1, 2, 3, 4]), 9, true), []);
        assert_eq!((cohort(&ward), ward.num_suspects()), (vec![2], 2));
        ward.step_succeeded();
        ward.clear(RequestId(2));
        assert_eq!(cohort(&ward), [3]);
        assert_eq!(fail_alone(&mut ward, 3), []);
        assert_eq!(fail_alone(&mut ward, 3), []);
        assert_eq!(fail_alone(&mut ward, 3), ids([3]));
        assert_eq!((ward.cohort(), ward.num_suspects()), (None, 0));
    }

    #[test]
    fn a_failure_beside_others_is_no_strike() {
        let mut ward = Ward::new();
        ward.step_failed(&ids([1, 2]), 9, true);
        ward.step_succeeded();
        ward.clear(RequestId(1));
        for _ in 0..SOLO_STRIKES_UNPROVEN {
            assert_eq!(ward.step_failed(&ids([1, 2]), 9, true), []);
            assert_eq!(cohort(&ward), [2], "it is tried alone");
        }
        assert_eq!(fail_alone(&mut ward, 2), []);
    }

    #[test]
    fn a_batch_without_suspects_that_fails_comes_first() {
        let mut ward = Ward::new();
        ward.step_failed(&ids([1, 2]), 9, true);
        ward.clear(RequestId(1));
        ward.step_failed(&ids([3, 4]), 9, true);
        assert_eq!(cohort(&ward), [3, 4]);
        ward.clear(RequestId(3));
        assert_eq!(cohort(&ward), [4], "another group waits");
        ward.clear(RequestId(4));
        assert_eq!((ward.cohort(), ward.num_suspects()), (None, 1));
    }

    #[test]
    fn a_batch_that_failed_twice_runs_in_halves_and_the_cleared_leave() {
        let mut ward = Ward::new();
        fail_twice(&mut ward, &ids([5, 1, 4, 2, 3]));
        assert_eq!((cohort(&ward), ward.num_suspects()), (vec![1, 2, 3], 5));
        ward.step_succeeded();
        ward.clear(RequestId(1));
        assert_eq!(cohort(&ward), [2, 3], "a part of the group may take more steps");
        ward.clear(RequestId(2));
        ward.clear(RequestId(3));
        assert_eq!(cohort(&ward), [4, 5]);
        ward.clear(RequestId(4));
        ward.clear(RequestId(5));
        assert_eq!((ward.cohort(), ward.num_suspects()), (None, 0));
    }

    #[test]
    fn a_group_that_fails_is_split_before_the_others_are_tried() {
        let mut ward = Ward::new();
        fail_twice(&mut ward, &ids([1, 2, 3, 4]));
        ward.step_failed(&ids([1, 2]), 9, true);
        assert_eq!(cohort(&ward), [1]);
        assert_eq!(fail_alone(&mut ward, 1), []);
        assert_eq!(cohort(&ward), [2], "a request that failed alone waits for the others");
        ward.clear(RequestId(2));
        assert_eq!(cohort(&ward), [3, 4]);
    }

    #[test]
    fn only_a_part_of_a_group_may_have_run() {
        let mut ward = Ward::new();
        fail_twice(&mut ward, &ids([1, 2, 3, 4, 5, 6, 7, 8]));
        ward.step_failed(&ids([1, 2]), 9, true);
        assert_eq!(cohort(&ward), [1]);
        ward.clear(RequestId(1));
        ward.clear(RequestId(2));
        assert_eq!(cohort(&ward), [3, 4], "the rest of the group that did not run");
    }

    #[test]
    fn three_strikes_alone_convict_once_anything_succeeded() {
        let mut ward = Ward::new();
        assert_eq!(fail_alone(&mut ward, 1), []);
        ward.step_succeeded();
        assert_eq!(fail_alone(&mut ward, 1), []);
        assert_eq!(fail_alone(&mut ward, 1), ids([1]));
        assert_eq!((ward.cohort(), ward.num_suspects()), (None, 0));
        assert_eq!(fail_alone(&mut ward, 1), [], "it was forgotten");
    }

    #[test]
    fn a_success_before_the_first_strike_is_no_evidence() {
        let mut ward = Ward::new();
        ward.step_succeeded();
        for _ in 0..SOLO_STRIKES + 1 {
            assert_eq!(fail_alone(&mut ward, 1), []);
        }
        ward.step_succeeded();
        assert_eq!(fail_alone(&mut ward, 1), ids([1]), "now the engine is known to work");
    }

    #[test]
    fn a_broken_device_convicts_no_request_soon() {
        let mut ward = Ward::new();
        for strike in 1..SOLO_STRIKES_UNPROVEN {
            assert_eq!(fail_alone(&mut ward, 1), []);
            assert_eq!(ward.consecutive_failures(), strike);
        }
        assert_eq!(fail_alone(&mut ward, 1), ids([1]), "but no request fails for ever");
    }

    #[test]
    fn the_only_request_needs_no_evidence() {
        let mut ward = Ward::new();
        assert_eq!(ward.step_failed(&ids([1]), 1, true), []);
        assert_eq!(ward.step_failed(&ids([1]), 1, true), []);
        assert_eq!(ward.step_failed(&ids([1]), 1, true), ids([1]));
    }

    #[test]
    fn a_failure_ahead_of_the_commits_is_no_strike() {
        let mut ward = Ward::new();
        for _ in 0..SOLO_STRIKES_UNPROVEN + 1 {
            assert_eq!(ward.step_failed(&ids([1]), 1, false), []);
            assert_eq!(cohort(&ward), [1], "it is tried again, alone");
        }
        for _ in 1..SOLO_STRIKES {
            assert_eq!(ward.step_failed(&ids([1]), 1, true), []);
        }
        assert_eq!(ward.step_failed(&ids([1]), 1, true), ids([1]));
    }

    #[test]
    fn a_commit_wipes_the_strikes() {
        let mut ward = Ward::new();
        for _ in 0..2 {
            fail_alone(&mut ward, 1);
            ward.step_succeeded();
            fail_alone(&mut ward, 1);
            ward.clear(RequestId(1));
        }
        assert_eq!(ward.num_suspects(), 0);
    }

    #[test]
    fn failures_are_counted_until_a_step_succeeds() {
        let mut ward = Ward::new();
        ward.step_failed(&ids([1, 2]), 2, true);
        assert_eq!(ward.step_failed(&[], 2, true), [], "a step may fail that computes nothing");
        assert_eq!(ward.consecutive_failures(), 2);
        ward.step_succeeded();
        assert_eq!(ward.consecutive_failures(), 0);
    }
}

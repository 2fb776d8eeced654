//! Admission: limits, quotas, and the time to wait before a retry.

use std::time::Duration;

use playhouse_actors::{
    error::RequestError,
    logic::{
        admission::{Admission, AdmissionCost, AdmissionLimits, Quota, Tenant},
        request::ids::{Micros, RequestId},
    },
};

const SECOND: Micros = 1_000_000;
const ALICE: Option<Tenant> = Some(Tenant(1));
const BOB: Option<Tenant> = Some(Tenant(2));

/// Limits of a test that sets only some of them.
const UNLIMITED: AdmissionLimits = AdmissionLimits {
    max_num_requests: usize::MAX,
    max_num_queued_reqs: None,
    max_num_queued_tokens: None,
    quota: Quota { max_open_requests: None, tokens_per_minute: None },
};

/// Admits requests: checks them and reserves their costs.
pub(crate) trait Admit {
    fn admit(
        &mut self,
        now: Micros,
        tenant: Option<Tenant>,
        requests: &[(RequestId, AdmissionCost)],
    ) -> Result<(), RequestError>;
}

impl Admit for Admission {
    fn admit(
        &mut self,
        now: Micros,
        tenant: Option<Tenant>,
        requests: &[(RequestId, AdmissionCost)],
    ) -> Result<(), RequestError> {
        self.check_costs(now, tenant, requests)?;
        self.reserve(now, tenant, requests);
        Ok(())
    }
}

fn of_quota(quota: Quota) -> Admission {
    Admission::new(AdmissionLimits { quota, ..UNLIMITED })
}

/// Returns the requests `ids`, each with a prompt of `prompt_tokens` and as many output tokens.
fn batch(
    ids: impl IntoIterator<Item = u64>,
    prompt_tokens: usize,
) -> Vec<(RequestId, AdmissionCost)> {
    let cost = AdmissionCost { prompt_tokens, max_tokens: prompt_tokens };
    ids.into_iter().map(|id| (RequestId(id), cost)).collect()
}

/// Returns the status, the limit's name and the seconds to wait.
fn refused(result: Result<(), RequestError>) -> (u16, &'static str, u64) {
    match result.unwrap_err() {
        RequestError::QueueFull { what, retry_after, .. } => (503, what, retry_after.as_secs()),
        RequestError::QuotaExceeded { what, retry_after, .. } => (429, what, retry_after.as_secs()),
        other => panic!("{other}"),
    }
}

/// vllm-behaviour §10, test_admission_control.
#[test]
fn the_queue_takes_as_many_as_its_limit() {
    let limits = AdmissionLimits { max_num_queued_reqs: Some(10), ..UNLIMITED };
    let after = |num_queued| {
        let mut admission = Admission::new(limits);
        admission.admit(0, None, &batch(0..num_queued, 1)).unwrap();
        admission
    };
    let full = (503, "max_num_queued_reqs", 1);
    assert_eq!(refused(after(10).admit(0, None, &batch([10], 1))), full);
    assert_eq!(refused(after(8).admit(0, None, &batch(10..13, 1))), full);
    assert_eq!(after(7).admit(0, None, &batch(10..13, 1)), Ok(()));
    let limits = AdmissionLimits { max_num_queued_reqs: Some(0), ..UNLIMITED };
    assert_eq!(refused(Admission::new(limits).admit(0, None, &batch([0], 1))), full);
}

#[test]
fn queued_tokens_are_those_of_prompts_that_did_not_begin() {
    let limits = AdmissionLimits { max_num_queued_tokens: Some(1_000), ..UNLIMITED };
    let mut admission = Admission::new(limits);
    admission.admit(0, None, &batch([0], 999)).unwrap();
    assert_eq!(admission.admit(0, None, &batch([1], 5_000)), Ok(()), "a long prompt is admitted");
    let full = (503, "max_num_queued_tokens", 1);
    assert_eq!(refused(admission.admit(0, None, &batch([2], 1))), full);
    admission.scheduled(RequestId(1));
    admission.scheduled(RequestId(1));
    assert_eq!((admission.num_queued(), admission.num_queued_tokens()), (1, 999));
    assert_eq!(admission.admit(0, None, &batch([2], 1)), Ok(()));
}

#[test]
fn all_requests_are_admitted_or_none() {
    let mut admission = Admission::new(AdmissionLimits { max_num_requests: 3, ..UNLIMITED });
    admission.admit(0, BOB, &batch([9], 1)).unwrap();
    let full = (503, "max_num_requests", 1);
    assert_eq!(refused(admission.admit(0, ALICE, &batch(0..3, 1))), full);
    assert_eq!((admission.num_open(), admission.num_open_of(Tenant(1))), (1, 0));
}

#[test]
fn an_open_request_is_not_counted_again() {
    let quota = Quota { max_open_requests: Some(2), tokens_per_minute: Some(60) };
    let mut admission = of_quota(quota);
    for _ in 0..2 {
        assert_eq!(admission.admit(0, ALICE, &batch([0, 1, 1], 10)), Ok(()));
    }
    assert_eq!((admission.num_open(), admission.tokens_of(0, Tenant(1))), (2, Some(20)));
    for _ in 0..2 {
        admission.ended(0, RequestId(0), 10);
    }
    assert_eq!((admission.num_open(), admission.num_open_of(Tenant(1))), (1, 1));
    admission.ended(0, RequestId(77), 10);
    assert_eq!(admission.num_queued(), 1);
}

#[test]
fn one_tenants_quota_is_not_anothers() {
    let mut admission = of_quota(Quota { max_open_requests: Some(2), tokens_per_minute: None });
    admission.admit(0, ALICE, &batch([0, 1], 1)).unwrap();
    let used_up = (429, "max_open_requests", 1);
    assert_eq!(refused(admission.admit(0, ALICE, &batch([2], 1))), used_up);
    assert_eq!(admission.admit(0, BOB, &batch([2, 3], 1)), Ok(()));
    assert_eq!(admission.admit(0, None, &batch(4..99, 1)), Ok(()), "without a key, no quota");
    admission.ended(0, RequestId(0), 1);
    assert_eq!(admission.admit(0, ALICE, &batch([200], 1)), Ok(()));
}

#[test]
fn tokens_return_with_time_and_unused_ones_at_the_end() {
    let mut admission = of_quota(Quota { max_open_requests: None, tokens_per_minute: Some(600) });
    admission.admit(0, ALICE, &batch([0], 300)).unwrap();
    let used_up = (429, "tokens_per_minute", 4);
    assert_eq!(refused(admission.admit(0, ALICE, &batch([1], 20))), used_up);
    assert_eq!(refused(admission.admit(3 * SECOND, ALICE, &batch([1], 20))).2, 1);
    assert_eq!(admission.admit(4 * SECOND, ALICE, &batch([1], 20)), Ok(()));
    admission.scheduled(RequestId(0));
    admission.ended(4 * SECOND, RequestId(0), 100);
    assert_eq!(admission.tokens_of(4 * SECOND, Tenant(1)), Some(200));
    admission.ended(4 * SECOND, RequestId(1), 0);
    assert_eq!(admission.tokens_of(4 * SECOND, Tenant(1)), Some(240), "it never began");
}

#[test]
fn a_request_larger_than_the_quota_is_served_when_the_bucket_is_full() {
    let mut admission = of_quota(Quota { max_open_requests: None, tokens_per_minute: Some(60) });
    admission.admit(0, ALICE, &batch([0], 1)).unwrap();
    assert_eq!(refused(admission.admit(0, ALICE, &batch([1], 500))).2, 2);
    assert_eq!(admission.admit(2 * SECOND, ALICE, &batch([1], 500)), Ok(()));
    assert_eq!(admission.tokens_of(2 * SECOND, Tenant(1)), Some(-940));
}

#[test]
fn the_quota_is_asked_before_the_queue() {
    let quota = Quota { max_open_requests: Some(0), tokens_per_minute: None };
    let limits = AdmissionLimits { max_num_requests: 0, quota, ..UNLIMITED };
    let mut admission = Admission::new(limits);
    assert_eq!(refused(admission.admit(0, ALICE, &batch([0], 1))).0, 429);
    assert_eq!(refused(admission.admit(0, None, &batch([0], 1))).0, 503);
}

#[test]
fn a_full_engine_says_when_there_will_be_room() {
    let mut admission = Admission::new(AdmissionLimits { max_num_requests: 10, ..UNLIMITED });
    for id in 0..10 {
        admission.admit(0, None, &batch([id], 1)).unwrap();
    }
    for id in 0..5 {
        admission.ended((id + 1) * 4 * SECOND, RequestId(id), 1);
    }
    // Five requests ended in 20 seconds. Five places are free, and three more are needed.
    let result = admission.admit(20 * SECOND, None, &batch(20..28, 1));
    assert_eq!(refused(result), (503, "max_num_requests", 12));
}

#[test]
fn a_check_says_what_admission_would_and_reserves_nothing() {
    let mut admission = Admission::new(AdmissionLimits {
        max_num_requests: 1,
        max_num_queued_reqs: None,
        max_num_queued_tokens: None,
        quota: Quota { max_open_requests: Some(1), tokens_per_minute: None },
    });
    for _ in 0..2 {
        assert_eq!(admission.check(0, Some(Tenant(0)), 1), Ok(()));
    }
    let cost = AdmissionCost { prompt_tokens: 1, max_tokens: 1 };
    admission.admit(0, Some(Tenant(0)), &[(RequestId(0), cost)]).unwrap();
    let quota = admission.check(0, Some(Tenant(0)), 1);
    assert!(matches!(quota, Err(RequestError::QuotaExceeded { .. })), "{quota:?}");
    let room = admission.check(0, None, 1);
    assert!(matches!(room, Err(RequestError::QueueFull { .. })), "{room:?}");
}

#[test]
fn a_refusal_names_the_limit() {
    let mut admission = of_quota(Quota { max_open_requests: Some(0), tokens_per_minute: None });
    let retry_after = Duration::from_secs(1);
    let error = RequestError::QuotaExceeded { what: "max_open_requests", limit: 0, retry_after };
    assert_eq!(admission.admit(0, ALICE, &batch([0], 1)), Err(error.clone()));
    let message = "your quota is used up: max_open_requests is at its limit of 0";
    assert_eq!(error.to_string(), message);
}

#[test]
fn no_tenant_fills_the_engine_for_others() {
    let mut admission = Admission::new(AdmissionLimits { max_num_requests: 900, ..UNLIMITED });
    let mut fill = |tenant, first: u64| {
        let mut count = 0;
        while admission.admit(0, tenant, &batch([first + count], 1)).is_ok() {
            count += 1;
        }
        let refused = refused(admission.admit(0, tenant, &batch([first + count], 1)));
        assert_eq!(refused, (503, "one client's share of max_num_requests", 1));
        count
    };
    assert_eq!(fill(ALICE, 0), 800, "alone: 8 of 9");
    assert_eq!(fill(BOB, 1_000), 89, "of what is left");
    assert_eq!(fill(Some(Tenant(3)), 2_000), 10);
}

#[test]
fn no_request_fills_the_engine_by_its_choices() {
    let mut admission = Admission::new(AdmissionLimits { max_num_requests: 900, ..UNLIMITED });
    let rejected = admission.admit(0, None, &batch(0..801, 1)).unwrap_err();
    let expected = "n must be at most 800, one client's share of max_num_requests, got 801";
    assert_eq!(rejected.to_string(), expected);
    admission.admit(0, None, &batch(0..800, 1)).unwrap();
    for id in 800..900 {
        assert_eq!(admission.admit(0, None, &batch([id], 1)), Ok(()), "one choice is no share");
    }
}

//! Admission's counts are those of the open requests.

use std::collections::BTreeMap;

use playhouse_actors::{
    error::RequestError,
    logic::{
        admission::{Admission, AdmissionCost, AdmissionLimits, Quota, Tenant},
        request::ids::{Micros, RequestId},
    },
};
use proptest::prelude::*;

use crate::admission::Admit;

#[derive(Debug, Clone)]
enum Op {
    Admit { tenant: Option<u32>, ids: Vec<u64>, cost: AdmissionCost },
    Scheduled(u64),
    Ended { id: u64, generated_tokens: usize },
    Wait(Micros),
}

fn op() -> impl Strategy<Value = Op> {
    let id = || 0..24u64;
    let cost = (1..50usize, 1..50usize);
    let admit = (prop::option::of(0..3u32), prop::collection::vec(id(), 1..4), cost);
    prop_oneof![
        4 => admit.prop_map(|(tenant, ids, (prompt_tokens, max_tokens))| {
            Op::Admit { tenant, ids, cost: AdmissionCost { prompt_tokens, max_tokens } }
        }),
        3 => id().prop_map(Op::Scheduled),
        3 => (id(), 0..60usize).prop_map(|(id, generated_tokens)| Op::Ended { id, generated_tokens }),
        1 => (0..20_000_000u64).prop_map(Op::Wait),
    ]
}

fn limits() -> impl Strategy<Value = AdmissionLimits> {
    let queue = (prop::option::of(0..8usize), prop::option::of(0..200usize));
    let quota = (prop::option::of(0..5usize), prop::option::of(1..300u64));
    (0..12usize, queue, quota).prop_map(|(max_num_requests, queue, quota)| AdmissionLimits {
        max_num_requests,
        max_num_queued_reqs: queue.0,
        max_num_queued_tokens: queue.1,
        quota: Quota { max_open_requests: quota.0, tokens_per_minute: quota.1 },
    })
}

/// The naive model: the open requests, and whether they have begun.
type OpenRequests = BTreeMap<u64, (Option<u32>, AdmissionCost, bool)>;

fn check(admission: &Admission, open: &OpenRequests, limits: &AdmissionLimits, now: Micros) {
    let queued = || open.values().filter(|(_, _, has_begun)| !has_begun);
    assert_eq!(admission.num_open(), open.len());
    assert_eq!(admission.num_queued(), queued().count());
    let queued_tokens: usize = queued().map(|(_, cost, _)| cost.prompt_tokens).sum();
    assert_eq!(admission.num_queued_tokens(), queued_tokens);
    assert!(open.len() <= limits.max_num_requests);
    assert!(limits.max_num_queued_reqs.is_none_or(|limit| queued().count() <= limit));
    for tenant in 0..3 {
        let num_open = open.values().filter(|(owner, ..)| *owner == Some(tenant)).count();
        assert_eq!(admission.num_open_of(Tenant(tenant)), num_open);
        assert!(limits.quota.max_open_requests.is_none_or(|limit| num_open <= limit));
        let tokens = admission.tokens_of(now, Tenant(tenant));
        assert_eq!(tokens.is_some(), limits.quota.tokens_per_minute.is_some());
        assert!(tokens <= limits.quota.tokens_per_minute.map(|limit| limit as i64));
    }
}

proptest! {
    /// The open requests are those that were admitted and have not ended. A refusal changes
    /// nothing. After the time that it names the same request is admitted, unless another takes its
    /// place.
    #[test]
    fn no_request_is_lost_or_counted_twice(
        limits in limits(),
        ops in prop::collection::vec(op(), 0..80),
    ) {
        let mut admission = Admission::new(limits);
        let (mut open, mut now) = (OpenRequests::new(), 0);
        for op in ops {
            match op {
                Op::Admit { tenant, ids, cost } => {
                    let requests: Vec<_> = ids.iter().map(|&id| (RequestId(id), cost)).collect();
                    let tenant_key = tenant.map(Tenant);
                    match admission.admit(now, tenant_key, &requests) {
                        Ok(()) => ids.iter().for_each(|&id| {
                            open.entry(id).or_insert((tenant, cost, false));
                        }),
                        Err(RequestError::QuotaExceeded { what, retry_after, .. }) => {
                            let later = now + retry_after.as_micros() as Micros;
                            let mut patient = admission.clone();
                            let again = patient.admit(later, tenant_key, &requests);
                            let is_same = matches!(
                                again,
                                Err(RequestError::QuotaExceeded { what, .. }) if what == "tokens_per_minute"
                            );
                            prop_assert!(!is_same || what != "tokens_per_minute");
                        }
                        Err(RequestError::QueueFull { retry_after, .. }) => {
                            prop_assert!((1..=60).contains(&retry_after.as_secs()));
                        }
                        // An empty engine rejects it as well, so waiting would not help.
                        Err(error @ RequestError::InvalidParameter { .. }) => {
                            let news = || requests.iter().filter(|(id, _)| !open.contains_key(&id.0));
                            let alone: Vec<_> = news().copied().collect();
                            let again = Admission::new(limits).admit(now, tenant_key, &alone);
                            prop_assert_eq!(again, Err(error));
                        }
                        Err(other) => return Err(TestCaseError::fail(other.to_string())),
                    }
                }
                Op::Scheduled(id) => {
                    admission.scheduled(RequestId(id));
                    open.entry(id).and_modify(|(_, _, has_begun)| *has_begun = true);
                }
                Op::Ended { id, generated_tokens } => {
                    admission.ended(now, RequestId(id), generated_tokens);
                    open.remove(&id);
                }
                Op::Wait(time) => now += time,
            }
            check(&admission, &open, &limits, now);
        }
        for id in std::mem::take(&mut open).into_keys() {
            admission.ended(now, RequestId(id), 0);
        }
        check(&admission, &open, &limits, now);
    }

    /// A tenant never uses more than its rate, one full bucket, and the one request that leaves a
    /// debt.
    #[test]
    fn the_rate_holds(
        tokens_per_minute in 1..600u64,
        requests in prop::collection::vec((0..5_000_000u64, 1..40usize, 1..40usize, 0..40usize), 1..80),
    ) {
        let quota = Quota { max_open_requests: None, tokens_per_minute: Some(tokens_per_minute) };
        let limits = AdmissionLimits {
            max_num_requests: usize::MAX,
            max_num_queued_reqs: None,
            max_num_queued_tokens: None,
            quota,
        };
        let (mut admission, mut now, mut used) = (Admission::new(limits), 0, 0);
        for (id, (pause, prompt_tokens, max_tokens, generated)) in (0..).zip(requests) {
            now += pause;
            let (id, cost) = (RequestId(id), AdmissionCost { prompt_tokens, max_tokens });
            if admission.admit(now, Some(Tenant(0)), &[(id, cost)]).is_ok() {
                let generated = generated.min(max_tokens);
                admission.scheduled(id);
                admission.ended(now, id, generated);
                used += (prompt_tokens + generated) as u64;
            }
        }
        prop_assert!(used * 60_000_000 <= tokens_per_minute * (now + 60_000_000) + 80 * 60_000_000);
    }
}

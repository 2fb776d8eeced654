//! Admission of requests: the engine's limits, each tenant's share and its quota. A refusal says
//! when to retry.

mod choices;
mod departures;
mod token_bucket;

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use self::{
    departures::{Departure, Departures},
    token_bucket::TokenBucket,
};
use super::request::ids::{Micros, RequestId};
use crate::error::RequestError;

/// The owner of one API key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Tenant(pub u32);

/// Limit of a tenant's open requests, as a multiple of the engine's free places. So no tenant fills
/// the engine for others: alone it gets 8 of 9 places, of two tenants each gets 8 of 17. The rule
/// is from "Dynamic Queue Length Thresholds for Shared-Memory Packet Switches" (Choudhury and
/// Hahne, 1998). A request with many choices and no tenant counts as a tenant of its own.
const OPEN_REQUESTS_PER_FREE_PLACE: usize = 8;

/// The limits of one tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Quota {
    /// Maximum number of requests open at once.
    pub max_open_requests: Option<usize>,
    /// Maximum number of tokens of prompts and outputs in a minute. As many may be used at once.
    pub tokens_per_minute: Option<u64>,
}

/// The limits of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdmissionLimits {
    /// Maximum number of requests open at once.
    pub max_num_requests: usize,
    /// Maximum number of requests that wait to be scheduled for the first time.
    pub max_num_queued_reqs: Option<usize>,
    /// When the waiting prompts have this many tokens, no further request is admitted.
    pub max_num_queued_tokens: Option<usize>,
    /// Limits of each tenant.
    pub quota: Quota,
}

/// The largest cost of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AdmissionCost {
    /// Tokens of its prompt.
    pub prompt_tokens: usize,
    /// Maximum number of tokens of its output.
    pub max_tokens: usize,
}

/// All open requests of an engine, with their costs and tenants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admission {
    limits: AdmissionLimits,
    open: BTreeMap<RequestId, Open>,
    num_queued: usize,
    num_queued_tokens: usize,
    /// Tenants seen so far. Their number is bounded by the keys that the operator issued.
    tenants: BTreeMap<Tenant, Account>,
    departures: Departures,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Open {
    tenant: Option<Tenant>,
    cost: AdmissionCost,
    is_queued: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Account {
    num_open: usize,
    /// Present if and only if tokens are limited.
    bucket: Option<TokenBucket>,
}

impl AdmissionCost {
    fn tokens(self) -> u64 {
        (self.prompt_tokens as u64).saturating_add(self.max_tokens as u64)
    }
}

impl Admission {
    /// Returns an admission without open requests.
    #[must_use]
    pub fn new(limits: AdmissionLimits) -> Self {
        Self {
            limits,
            open: BTreeMap::new(),
            num_queued: 0,
            num_queued_tokens: 0,
            tenants: BTreeMap::new(),
            departures: Departures::default(),
        }
    }

    /// Checks whether all of `requests` may be admitted. Requests that are open already are
    /// admitted again without effect. A request that costs more than a minute's tokens is admitted
    /// when the bucket is full, and leaves a debt.
    ///
    /// # Errors
    /// [`RequestError::InvalidParameter`] when even an empty engine would not admit so many.
    /// [`RequestError::QuotaExceeded`] when the tenant has used up its quota.
    /// [`RequestError::QueueFull`] when the engine is full. The last two say when to retry.
    pub fn check_costs(
        &self,
        now: Micros,
        tenant: Option<Tenant>,
        requests: &[(RequestId, AdmissionCost)],
    ) -> Result<(), RequestError> {
        let new = self.new_of(requests);
        if new.is_empty() {
            return Ok(());
        }
        let tokens = tokens_of_all(&new);
        self.limits.check_choices(tenant.is_some(), new.len())?;
        // The quota is checked first, because a tenant that exceeds it gains nothing by waiting for
        // the engine.
        if let Some(tenant) = tenant {
            self.check_quota(now, tenant, new.len(), tokens)?;
        }
        self.check_room(now, tenant, new.len())
    }

    /// Admits all of `requests`. The tenant is charged the tokens of the prompt and of the longest
    /// output.
    pub fn reserve(
        &mut self,
        now: Micros,
        tenant: Option<Tenant>,
        requests: &[(RequestId, AdmissionCost)],
    ) {
        let new = self.new_of(requests);
        if new.is_empty() {
            return;
        }
        let tokens = tokens_of_all(&new);
        if self.open.is_empty() {
            self.departures.begin(now);
        }
        if let Some(tenant) = tenant {
            let account = self.account(now, tenant);
            account.num_open += new.len();
            if let Some(bucket) = &mut account.bucket {
                bucket.charge(now, tokens);
            }
        }
        for (id, cost) in new {
            self.num_queued += 1;
            self.num_queued_tokens += cost.prompt_tokens;
            self.open.insert(id, Open { tenant, cost, is_queued: true });
        }
    }

    fn new_of(
        &self,
        requests: &[(RequestId, AdmissionCost)],
    ) -> BTreeMap<RequestId, AdmissionCost> {
        requests.iter().filter(|(id, _)| !self.open.contains_key(id)).copied().collect()
    }

    /// Checks whether `num_new` requests would be admitted, whatever their cost. It is called
    /// before any work is spent on them, and reserves nothing.
    ///
    /// # Errors
    /// The errors of [`Admission::check_costs`].
    pub fn check(
        &self,
        now: Micros,
        tenant: Option<Tenant>,
        num_new: usize,
    ) -> Result<(), RequestError> {
        self.limits.check_choices(tenant.is_some(), num_new)?;
        if let Some(tenant) = tenant {
            self.check_quota(now, tenant, num_new, 0)?;
        }
        self.check_room(now, tenant, num_new)
    }

    /// Records that a request left the queue. Only the first call counts.
    pub fn scheduled(&mut self, request: RequestId) {
        if let Some(open) = self.open.get_mut(&request)
            && std::mem::take(&mut open.is_queued)
        {
            self.num_queued -= 1;
            self.num_queued_tokens -= open.cost.prompt_tokens;
        }
    }

    /// Records that a request ended after `generated_tokens` of output. Tokens that were charged
    /// and not used are refunded, and so is the prompt if it was never scheduled. Only the first
    /// call counts.
    pub fn ended(&mut self, now: Micros, request: RequestId, generated_tokens: usize) {
        let Some(Open { tenant, cost, is_queued }) = self.open.get(&request).copied() else {
            return;
        };
        self.scheduled(request);
        self.open.remove(&request);
        let prompt_tokens = cost.prompt_tokens as u64;
        self.departures.record(Departure { at: now, tenant, prompt_tokens });
        let Some(account) = tenant.and_then(|tenant| self.tenants.get_mut(&tenant)) else { return };
        account.num_open -= 1;
        if let Some(bucket) = &mut account.bucket {
            let unused = cost.max_tokens.saturating_sub(generated_tokens) as u64;
            bucket.give_back(now, unused + if is_queued { prompt_tokens } else { 0 });
        }
    }

    /// Returns the number of admitted requests that have not ended.
    #[must_use]
    pub fn num_open(&self) -> usize {
        self.open.len()
    }

    /// Returns the number of requests that wait to be scheduled for the first time.
    #[must_use]
    pub fn num_queued(&self) -> usize {
        self.num_queued
    }

    /// Returns the number of tokens of their prompts.
    #[must_use]
    pub fn num_queued_tokens(&self) -> usize {
        self.num_queued_tokens
    }

    /// Returns the number of a tenant's open requests.
    #[must_use]
    pub fn num_open_of(&self, tenant: Tenant) -> usize {
        self.tenants.get(&tenant).map_or(0, |account| account.num_open)
    }

    /// Returns the tokens that a tenant may use now. A negative number is its debt. `None`: tokens
    /// are not limited.
    #[must_use]
    pub fn tokens_of(&self, now: Micros, tenant: Tenant) -> Option<i64> {
        Some(self.bucket_of(now, tenant)?.tokens(now))
    }

    /// Returns a tenant's bucket of tokens, which is full before the first request. `None`: tokens
    /// are not limited.
    fn bucket_of(&self, now: Micros, tenant: Tenant) -> Option<TokenBucket> {
        let tokens_per_minute = self.limits.quota.tokens_per_minute?;
        let bucket = self.tenants.get(&tenant).and_then(|account| account.bucket.clone());
        Some(bucket.unwrap_or_else(|| TokenBucket::full(tokens_per_minute, now)))
    }

    fn check_quota(
        &self,
        now: Micros,
        tenant: Tenant,
        num_new: usize,
        tokens: u64,
    ) -> Result<(), RequestError> {
        let Quota { max_open_requests, tokens_per_minute } = self.limits.quota;
        let excess = excess(self.num_open_of(tenant), num_new, max_open_requests);
        let bucket = self.bucket_of(now, tenant);
        let wait_for_tokens = bucket.map_or(0, |bucket| bucket.wait(now, tokens));
        let refuse = |what, limit, wait| {
            let retry_after = Duration::from_micros(wait);
            Err(RequestError::QuotaExceeded { what, limit, retry_after })
        };
        if excess > 0 {
            let is_own = |departure: &Departure| u64::from(departure.tenant == Some(tenant));
            let wait = self.departures.wait(now, excess, is_own);
            return refuse("max_open_requests", max_open_requests.unwrap_or(0) as u64, wait);
        }
        if wait_for_tokens > 0 {
            return refuse("tokens_per_minute", tokens_per_minute.unwrap_or(0), wait_for_tokens);
        }
        Ok(())
    }

    /// Checks whether the engine has room. In a steady state as many requests leave the queue as
    /// end, so the ends predict when there will be room.
    fn check_room(
        &self,
        now: Micros,
        tenant: Option<Tenant>,
        num_new: usize,
    ) -> Result<(), RequestError> {
        let limits = &self.limits;
        let refuse = |what, limit: usize, wait| {
            let (limit, retry_after) = (limit as u64, Duration::from_micros(wait));
            Err(RequestError::QueueFull { what, limit, retry_after })
        };
        let counts = [
            ("max_num_requests", self.open.len(), Some(limits.max_num_requests)),
            ("max_num_queued_reqs", self.num_queued, limits.max_num_queued_reqs),
        ];
        for (what, num, limit) in counts {
            let excess = excess(num, num_new, limit);
            if excess > 0 {
                let wait = self.departures.wait(now, excess, |_| 1);
                return refuse(what, limit.unwrap_or(0), wait);
            }
        }
        let num_own = tenant.map_or(0, |tenant| self.num_open_of(tenant));
        let share = share(num_own, self.open.len(), limits.max_num_requests);
        let excess = excess(num_own, num_new, Some(share));
        if excess > 0 {
            let wait = self.departures.wait(now, excess, |_| 1);
            return refuse("one client's share of max_num_requests", share, wait);
        }
        // As in vLLM, only tokens that already wait are counted. If the new request's tokens
        // counted too, a long prompt could never be admitted.
        if let Some(limit) = limits.max_num_queued_tokens.filter(|&l| self.num_queued_tokens >= l) {
            let excess = (self.num_queued_tokens - limit) as u64 + 1;
            let wait = self.departures.wait(now, excess, |departure| departure.prompt_tokens);
            return refuse("max_num_queued_tokens", limit, wait);
        }
        Ok(())
    }

    fn account(&mut self, now: Micros, tenant: Tenant) -> &mut Account {
        let tokens_per_minute = self.limits.quota.tokens_per_minute;
        self.tenants.entry(tenant).or_insert_with(|| Account {
            num_open: 0,
            bucket: tokens_per_minute.map(|tokens| TokenBucket::full(tokens, now)),
        })
    }
}

fn tokens_of_all(requests: &BTreeMap<RequestId, AdmissionCost>) -> u64 {
    requests.values().fold(0, |sum: u64, cost| sum.saturating_add(cost.tokens()))
}

/// Returns the maximum number of open requests for a tenant that has `num_own` of the `num_open`
/// ones. It admits them one by one while the tenant has fewer than eight times as many as places
/// are free.
fn share(num_own: usize, num_open: usize, max_num_requests: usize) -> usize {
    let num_others = num_open.saturating_sub(num_own);
    let places = max_num_requests.saturating_sub(num_others);
    let share = places as u128 * OPEN_REQUESTS_PER_FREE_PLACE as u128;
    // The last one is admitted while `num_own < 8 * (places - num_own)`.
    share.div_ceil(OPEN_REQUESTS_PER_FREE_PLACE as u128 + 1) as usize
}

/// Returns how many requests are too many when `num_new` come to `num` others.
fn excess(num: usize, num_new: usize, limit: Option<usize>) -> u64 {
    limit.map_or(0, |limit| (num + num_new).saturating_sub(limit) as u64)
}

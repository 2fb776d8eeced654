//! Limits the choices of a request. An empty engine could never admit more of them, so waiting does
//! not help such a request.

use super::{AdmissionLimits, share};
use crate::error::RequestError;

impl AdmissionLimits {
    /// Rejects a request with more choices than an empty engine admits. A request with one choice
    /// is never rejected here. If a limit of 0 closes the engine, the engine counts as full.
    ///
    /// # Errors
    /// [`RequestError::InvalidParameter`] names `n`, the largest value and the limit behind it.
    pub fn check_choices(&self, has_tenant: bool, choices: usize) -> Result<(), RequestError> {
        let quota = self.quota.max_open_requests.filter(|_| has_tenant);
        let limits = [
            (quota, "the quota max_open_requests"),
            (self.max_num_queued_reqs, "max_num_queued_reqs"),
            (Some(share(0, 0, self.max_num_requests)), "one client's share of max_num_requests"),
        ];
        let bounds = limits.into_iter().filter_map(|(limit, what)| Some((limit?.max(1), what)));
        match bounds.min_by_key(|(limit, _)| *limit) {
            Some((limit, what)) if choices > limit => {
                Err(RequestError::invalid("n", choices, format!("at most {limit}, {what}")))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logic::admission::Quota;

    #[test]
    fn the_tightest_limit_is_named() {
        let limits = AdmissionLimits {
            max_num_requests: 9,
            max_num_queued_reqs: None,
            max_num_queued_tokens: None,
            quota: Quota { max_open_requests: Some(3), tokens_per_minute: None },
        };
        let rejected = |limits: AdmissionLimits, has_tenant, choices| {
            limits.check_choices(has_tenant, choices).map_err(|error| error.to_string())
        };
        assert_eq!(rejected(limits, false, 8), Ok(()));
        let share = "n must be at most 8, one client's share of max_num_requests, got 9";
        assert_eq!(rejected(limits, false, 9), Err(share.to_owned()));
        let quota = "n must be at most 3, the quota max_open_requests, got 4";
        assert_eq!(rejected(limits, true, 3), Ok(()));
        assert_eq!(rejected(limits, true, 4), Err(quota.to_owned()));
        let queue = AdmissionLimits { max_num_queued_reqs: Some(0), ..limits };
        assert_eq!(rejected(queue, true, 1), Ok(()), "the queue is full");
        let closed = "n must be at most 1, max_num_queued_reqs, got 2";
        assert_eq!(rejected(queue, true, 2), Err(closed.to_owned()));
    }
}

//! The bound on the end of all requests once the faults have ended: see [`super::super::liveness`].

use super::{Checker, State};
use crate::logic::request::ids::Micros;

impl Checker {
    /// Records that the operator pauses or resumes requests.
    pub fn set_paused(&self, is_paused: bool) {
        self.record.trouble();
        let mut state = self.state.lock();
        state.is_paused = is_paused;
        state.liveness.set_paused(self.record.now(), is_paused);
    }

    /// Records that all faults have ended. From now on, requests end within a bound.
    pub fn faults_ended(&self) {
        self.record.note("faults end", &[]);
        let mut state = self.state.lock();
        let State { requests, liveness, .. } = &mut *state;
        let live = requests.values().filter(|shadow| !shadow.has_ended);
        let live = live.map(|shadow| shadow.longest_time);
        // A fault may last a little longer.
        let now = self.record.now().max(self.record.troubled_until());
        liveness.begin(now, self.stall_limit, live);
    }

    /// Returns the time by which all requests have ended. `None`: it is not known yet, or no
    /// request is live.
    pub fn bound(&self) -> Option<Micros> {
        let state = self.state.lock();
        state.liveness.bound().filter(|_| state.num_live > 0)
    }

    /// Checks that the bound has not passed while requests are live.
    pub fn check_bound(&self) {
        let state = self.state.lock();
        let (now, num_live) = (self.record.now(), state.num_live);
        if let Some(bound) = state.liveness.bound().filter(|&bound| now > bound && num_live > 0) {
            let live = state.requests.iter().find(|(_, shadow)| !shadow.has_ended);
            let request = live.map(|(request, _)| *request).unwrap_or_default();
            self.record.violate(|| {
                let open =
                    format!("{num_live} requests, {request} among them, are open at {now} µs");
                format!("{open}, though without faults the bound is {bound} µs")
            });
        }
    }
}

//! The scheduler of the shell. If there is a recorder, it notes each input and each planned step.

use std::{ops::Deref, sync::Arc};

use crate::{
    error::ActorError,
    logic::{
        encoder_cache::{EncoderAnswer, EncoderNeeds},
        kv_cache::allocation::{Allocation, AllocationPlan},
        ledger::Restriction,
        recording::{Entry, PlannedStep, RowDone},
        request::{
            EngineRequest,
            failure::Failure,
            ids::{Epoch, Micros, RequestId, Step},
            outputs::{Commit, StepOutput},
        },
        scheduler::{
            PauseState, RecoveredRequest, Resource, Scheduled, Scheduler, SchedulerConfig,
        },
    },
    system::recorder::Recorder,
};

/// A scheduler that is changed through this type alone, so a recording lacks no input.
#[derive(Debug)]
pub(super) struct RecordedScheduler {
    scheduler: Scheduler,
    /// The recorder, and this scheduler's number there.
    recorder: Option<(Arc<Recorder>, u64)>,
}

impl Deref for RecordedScheduler {
    type Target = Scheduler;

    fn deref(&self) -> &Scheduler {
        &self.scheduler
    }
}

impl RecordedScheduler {
    pub(super) fn new(config: SchedulerConfig, recorder: Option<Arc<Recorder>>) -> Self {
        let recorder = recorder.map(|recorder| {
            let number = recorder.next_scheduler();
            (recorder, number)
        });
        let scheduler = Self { scheduler: Scheduler::new(config), recorder };
        scheduler.note(|| Entry::SchedulerStarted);
        scheduler
    }

    fn note(&self, entry: impl FnOnce() -> Entry) {
        self.note_with(|_| entry());
    }

    fn note_with(&self, entry: impl FnOnce(&Recorder) -> Entry) {
        if let Some((recorder, number)) = &self.recorder
            && recorder.is_latest(*number)
        {
            recorder.note(|| entry(recorder));
        }
    }

    pub(super) fn add(&mut self, requests: Vec<Arc<EngineRequest>>) {
        for request in requests {
            // An entry each, because an entry with many images may be too long.
            self.note_with(|recorder| Entry::Added(recorder.recorded([&request])));
            self.scheduler.add(request);
        }
    }

    pub(super) fn finish(&mut self, requests: &[RequestId]) {
        self.note(|| Entry::Aborted(requests.to_vec()));
        self.scheduler.finish(requests);
    }

    pub(super) fn restrict(&mut self, restriction: Restriction) {
        self.note(|| Entry::Restricted(restriction.clone()));
        self.scheduler.set_cohort(restriction.cohort);
        self.scheduler.set_token_budget(restriction.token_budget);
    }

    pub(super) fn set_pause(&mut self, pause: PauseState) {
        if pause != self.scheduler.pause() {
            self.note(|| Entry::Paused(pause));
            self.scheduler.set_pause(pause);
        }
    }

    pub(super) fn recover(&mut self, epoch: Epoch, last_step: Step, live: Vec<RecoveredRequest>) {
        self.note_with(|recorder| {
            let requests = recorder.recorded(live.iter().map(|live| &live.request));
            let recorded = live.iter().zip(requests);
            let recorded =
                recorded.map(|(live, request)| RecoveredRequest { request, ..live.clone() });
            Entry::Recovered { epoch, last_step, live: recorded.collect() }
        });
        self.scheduler.recover(epoch, last_step, live);
    }

    pub(super) fn reset_prefix_cache(&mut self, reset_running: bool) {
        self.note(|| Entry::ResetAsked { reset_running });
        self.scheduler.reset_prefix_cache(reset_running);
    }

    pub(super) fn resolve(
        &mut self,
        resource: &Resource,
        ready: Result<(), Failure>,
    ) -> Vec<Commit> {
        let (of, then) = (resource, &ready);
        self.note(|| Entry::Resolved { resource: of.clone(), ready: then.clone() });
        self.scheduler.resolve(resource, ready)
    }

    pub(super) fn encoded(&mut self, answer: EncoderAnswer) -> Vec<Commit> {
        self.note(|| Entry::Encoded(answer.clone()));
        self.scheduler.encoded(answer)
    }

    pub(super) fn take_encoder_needs(&mut self) -> Option<EncoderNeeds> {
        let needs = self.scheduler.take_encoder_needs();
        if needs.is_some() {
            self.note(|| Entry::NeedsTaken);
        }
        needs
    }

    pub(super) fn take_wanted(&mut self) -> Vec<Resource> {
        self.scheduler.take_wanted()
    }

    pub(super) fn begin_step(&mut self, now: Micros) -> Result<(), ActorError> {
        self.note(|| Entry::StepBegan { now });
        self.scheduler.begin_step(now)
    }

    pub(super) fn next_plan(&mut self) -> Option<AllocationPlan> {
        self.scheduler.next_plan()
    }

    pub(super) fn apply(&mut self, allocation: Allocation) -> Result<(), ActorError> {
        self.scheduler.apply(allocation)
    }

    pub(super) fn finish_step(&mut self) -> Result<Scheduled, ActorError> {
        let scheduled = self.scheduler.finish_step()?;
        self.note(|| Entry::StepPlanned(PlannedStep::of(&scheduled)));
        Ok(scheduled)
    }

    pub(super) fn update_from_output(&mut self, output: StepOutput, now: Micros) -> Vec<Commit> {
        self.note(|| Entry::StepDone {
            epoch: output.epoch,
            step: output.step,
            now,
            rows: output.outputs.iter().map(RowDone::of).collect(),
        });
        self.scheduler.update_from_output(output, now)
    }

    /// Returns whether the recording has ended before the engine since the last call.
    pub(super) fn take_truncation(&self) -> bool {
        self.recorder.as_ref().is_some_and(|(recorder, _)| recorder.take_truncation())
    }
}

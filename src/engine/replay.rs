//! Computes the steps of a recording again, on a loaded model and without actors.

use std::{
    collections::{BTreeMap, VecDeque},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use playhouse_actors::{
    logic::{
        adapter_slots::AdaptersInUse,
        journal::{Difference, Fingerprint},
        recording::{Began, Device, DeviceFault, RowDone},
        request::{
            EngineRequest,
            ids::{Epoch, RequestId, Step, TokenId},
        },
        scheduler::{Resource, output::SchedulerOutput},
    },
    ports::{ExecutorFactory, GrammarCompiler, ModelExecutor, Settled},
};

use super::{
    StartError, StartProgress,
    builder::Registries,
    drafts,
    load::{self, LoadRegistries, Loaded},
    replayed_media::ReplayedMedia,
};
use crate::{
    config::EngineConfig,
    executor::{Constraints, DraftMethod, DraftSettings, RecordedGuesses, RunnerFactory},
    grammar::GrammarStore,
    hub,
    journal::fingerprint,
};

/// The reason why a recording cannot be computed again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadForReplayError {
    /// The model cannot be loaded.
    #[error("the model could not be loaded")]
    Start(#[source] Box<StartError>),
    /// Facts about the model cannot be read.
    #[error("the model's files could not be read: {0}")]
    Files(#[from] std::io::Error),
    /// It is another model.
    #[error("the recording is of another model: {0}")]
    OtherModel(Difference),
    /// The KV cache has another layout.
    #[error("the recording has the KV cache {recorded}, this model has {current}")]
    OtherKvCache {
        /// The recorded layout.
        recorded: String,
        /// The layout now.
        current: String,
    },
    /// The tokens and texts are replaced.
    #[error("the recording is redacted; expected --schedule-only")]
    IsRedacted,
}

/// A model that computes the steps of a recording.
pub(crate) struct ModelDevice {
    executors: RunnerFactory,
    grammars: Arc<GrammarStore>,
    guesses: RecordedGuesses,
    media: Option<ReplayedMedia>,
    executor: Option<(Epoch, Box<dyn ModelExecutor>)>,
    steps: VecDeque<SchedulerOutput>,
    /// Whether the model can compute guessed tokens on its device.
    takes_guesses: bool,
    /// The facts that differ from those of the recorded engine.
    differences: Vec<Difference>,
}

impl std::fmt::Debug for ModelDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModelDevice").field("executors", &self.executors).finish_non_exhaustive()
    }
}

impl ModelDevice {
    /// Loads the model for a recording. It blocks until the load ends.
    ///
    /// # Errors
    /// [`LoadForReplayError`] if the model cannot be loaded, or is another one.
    pub(crate) fn load(
        config: EngineConfig,
        began: &Began,
        mut progress: impl FnMut(StartProgress),
    ) -> Result<Self, LoadForReplayError> {
        if began.is_redacted {
            return Err(LoadForReplayError::IsRedacted);
        }
        let start = |error: StartError| LoadForReplayError::Start(Box::new(error));
        let config = EngineConfig {
            // The blocks of a plan must exist.
            num_gpu_blocks_override: Some(began.scheduler.num_blocks as usize),
            // The recording has the tokens that were guessed.
            speculative_config: None,
            // Each result is computed again, and none is stored.
            ec_transfer_config: None,
            journal: None,
            record: None,
            ..config
        };
        let downloaded = &mut |bytes| progress(StartProgress::Download(bytes));
        let config = hub::with_files(config, downloaded).map_err(|error| start(error.into()))?;
        let Registries { families, token_rules, .. } = Registries::default();
        let registries = LoadRegistries { families, token_rules };
        let loaded = load::load(&config, registries, &mut progress).map_err(start)?;
        let Loaded { model, executors, constraints, .. } = loaded;
        let current = fingerprint(&config, &model)?;
        let differences = differences(began, &current)?;
        if model.info.kv_spec != began.scheduler.kv_spec {
            let recorded = format!("{:?}", began.scheduler.kv_spec);
            let current = format!("{:?}", model.info.kv_spec);
            return Err(LoadForReplayError::OtherKvCache { recorded, current });
        }
        let guesses = RecordedGuesses::default();
        let settings = DraftSettings {
            method: DraftMethod::Recorded(guesses.clone()),
            ..DraftSettings::default()
        };
        let Some(executors) = Arc::into_inner(executors) else {
            let why = "the executors are in use".to_owned();
            return Err(start(StartError::Panicked(why)));
        };
        let Constraints { grammars, .. } = constraints;
        let executors = executors.with_drafts(settings);
        let media = executors.encoder().map(ReplayedMedia::new);
        let takes_guesses = drafts::has_guesses(&model.info.kv_spec, model.device_kind);
        Ok(Self {
            executors,
            grammars,
            guesses,
            media,
            executor: None,
            steps: VecDeque::new(),
            takes_guesses,
            differences,
        })
    }

    /// Returns the facts that differ from those of the recorded engine, so tokens may differ.
    pub(crate) fn differences(&self) -> &[Difference] {
        &self.differences
    }

    fn execute(&mut self, step: &SchedulerOutput) -> Result<Vec<RowDone>, DeviceFault> {
        if self.executor.as_ref().is_none_or(|(epoch, _)| *epoch != step.epoch) {
            // One executor at a time has the KV cache.
            self.executor = None;
            let created = self.executors.create(step.epoch);
            let executor = created.map_err(|error| DeviceFault(error.to_string()))?;
            self.executor = Some((step.epoch, executor));
        }
        let Some((_, executor)) = &mut self.executor else {
            return Err(DeviceFault("the executor is gone".to_owned()));
        };
        // The panic is reported by its hook.
        let media = &mut self.media;
        let computed = catch_unwind(AssertUnwindSafe(|| {
            media.as_mut().map_or(Ok(()), |media| media.encode(step))?;
            executor.execute(step).map_err(|error| DeviceFault(error.to_string()))
        }));
        let output = computed.map_err(|_| DeviceFault("the model panicked".to_owned()))??;
        Ok(output.outputs.iter().map(RowDone::of).collect())
    }
}

/// Checks that a step has no guesses, unless the model `takes_guesses`.
fn check_guesses(
    takes_guesses: bool,
    guesses: &BTreeMap<RequestId, Vec<TokenId>>,
) -> Result<(), DeviceFault> {
    match guesses.keys().next().filter(|_| !takes_guesses) {
        None => Ok(()),
        Some(request) => Err(DeviceFault(format!(
            "request {request} has guessed tokens, and a GPU takes no guess out of a state; \
             expected --device cpu"
        ))),
    }
}

/// Returns the facts that differ from the recorded ones. Another model is an error.
fn differences(
    began: &Began,
    current: &Fingerprint,
) -> Result<Vec<Difference>, LoadForReplayError> {
    let all = began.fingerprint.differences(current);
    let is_demo = |weights: &str| weights.starts_with("the demo model");
    // Each program has the same demo model in it.
    let is_other = |difference: &&Difference| {
        let both = [&difference.recorded, &difference.current];
        difference.fact == "weights" && !both.iter().all(|weights| is_demo(weights))
    };
    match all.iter().find(is_other) {
        Some(other) => Err(LoadForReplayError::OtherModel(other.clone())),
        None => Ok(all),
    }
}

impl Device for ModelDevice {
    fn take_content(&mut self, request: &EngineRequest) {
        if let Some(media) = &mut self.media {
            media.take(request);
        }
    }

    fn prepare(&mut self, resource: &Resource, in_use: &AdaptersInUse) -> Result<(), DeviceFault> {
        match resource {
            Resource::Grammar(format) => {
                let compiled = self.grammars.compile(format);
                compiled.map_err(|error| DeviceFault(format!("a grammar: {error}")))
            }
            Resource::Adapter(adapter) => {
                let fault = |why: String| DeviceFault(format!("adapter {}: {why}", adapter.name));
                let off = || fault("adapters are not enabled; expected --enable-lora".to_owned());
                let loader = self.executors.adapters().ok_or_else(off)?;
                loader.load(adapter).map_err(|error| fault(error.to_string()))?;
                match loader.settle(adapter, in_use, true) {
                    Settled::Resident => Ok(()),
                    Settled::Absent | Settled::Full => Err(fault("it has no slot".to_owned())),
                }
            }
            Resource::Encoder(_) => Ok(()),
        }
    }

    fn give(&mut self, step: SchedulerOutput) {
        self.steps.push_back(step);
    }

    fn compute(
        &mut self,
        epoch: Epoch,
        step: Step,
        recorded: &[RowDone],
    ) -> Result<Vec<RowDone>, DeviceFault> {
        self.steps.retain(|given| given.epoch >= epoch);
        let guesses = |row: &RowDone| -> Option<(RequestId, Vec<TokenId>)> {
            let (_, guesses) = row.tokens().split_last()?;
            (!guesses.is_empty()).then(|| (row.request(), guesses.to_vec()))
        };
        let guesses: BTreeMap<_, _> = recorded.iter().filter_map(guesses).collect();
        check_guesses(self.takes_guesses, &guesses)?;
        while let Some(given) = self.steps.pop_front() {
            let is_awaited = (given.epoch, given.step) == (epoch, step);
            self.guesses.set(if is_awaited { guesses.clone() } else { BTreeMap::new() });
            let rows = self.execute(&given)?;
            if is_awaited {
                return Ok(rows);
            }
        }
        Err(DeviceFault("it was not planned".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernels of states on GPUs refuse guesses by a panic.
    #[test]
    fn guesses_are_refused_where_a_state_would_keep_them() {
        let guesses = BTreeMap::from([(RequestId(7), vec![1, 2])]);
        assert_eq!(check_guesses(true, &guesses), Ok(()));
        assert_eq!(check_guesses(false, &BTreeMap::new()), Ok(()));
        let fault = check_guesses(false, &guesses).unwrap_err().to_string();
        assert!(fault.contains("--device cpu"), "{fault}");
    }
}

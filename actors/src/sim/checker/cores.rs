//! The checks of one engine's core: its steps, its KV cache and its encoder cache.

use std::time::Duration;

use super::{Checker, brief};
use crate::{
    fault::Observed,
    logic::{
        encoder_cache::EncoderCacheView, kv_cache::KvCacheManager, request::ids::Step,
        scheduler::output::SchedulerOutput,
    },
    sim::{
        blocks::{check_blocks, check_tails},
        rng::mix,
    },
};

/// A longer step counts as a hang.
const LONGEST_STEP: Duration = Duration::from_secs(1);

/// The latest state of one engine's core.
#[derive(Debug, Default)]
pub(super) struct Core {
    /// Number of the process that it runs in. 0: it is in the process of all actors.
    process: u32,
    /// Number of steps sent to the device.
    num_executions: u64,
    num_encodings: u64,
    last_step: Step,
    /// Blocks in tables of the KV cache manager when last seen.
    pub(super) num_held: usize,
    /// Held and kept tails at the same time.
    pub(super) num_tails: usize,
    /// Embeddings in use when the encoder cache manager was last seen.
    pub(super) num_held_embeds: usize,
    /// Reference counts, reused from check to check.
    references: Vec<u32>,
}

impl Checker {
    /// Records that the actors of a process of an engine start. Those of the process before hold
    /// nothing any longer.
    pub fn begin_process(&self, engine: usize, process: u32) {
        self.record.note("process begins", &[engine as u64, u64::from(process)]);
        self.record.trouble();
        let mut state = self.state.lock();
        let core = state.cores.entry(engine).or_default();
        let Core { num_executions, num_encodings, .. } = *core;
        *core = Core { process, num_executions, num_encodings, ..Core::default() };
    }

    /// Checks an event of an engine's process.
    pub fn observe_process(&self, engine: usize, process: u32, what: &Observed<'_>) {
        let is_current = self.state.lock().cores.entry(engine).or_default().process == process;
        if is_current {
            self.check_core(engine, what);
        }
        self.note(what);
    }

    /// Returns the time to encode images in an engine.
    pub fn encode_delay_of(&self, engine: usize) -> Duration {
        let mut state = self.state.lock();
        let core = state.cores.entry(engine).or_default();
        core.num_encodings += 1;
        let number = core.num_encodings ^ (engine as u64) << 32;
        Duration::from_millis(mix(self.plan.step_seed ^ number) % 40)
    }

    /// Returns the time of the next step of an engine.
    pub fn step_delay_of(&self, engine: usize) -> Duration {
        let mut state = self.state.lock();
        let core = state.cores.entry(engine).or_default();
        core.num_executions += 1;
        let time = self.plan.step_time(engine, core.num_executions);
        if time > LONGEST_STEP {
            self.record.trouble();
        }
        time
    }

    /// Checks an event of an engine's core.
    pub(super) fn check_core(&self, engine: usize, what: &Observed<'_>) {
        let record = &self.record;
        match *what {
            Observed::KvCache { plan, manager } => {
                record.note("kv_cache", &[plan.epoch.0, plan.step.0, plan.ops.len() as u64]);
                self.check_kv_cache(engine, manager);
            }
            Observed::EncoderCache { cache } => {
                let EncoderCacheView { cache_size, num_free, num_freeable, .. } = cache.view();
                record.note("encoder_cache", &[num_free as u64, num_freeable as u64]);
                record.explain(|| format!("{:?}", cache.answer()));
                if num_free > num_freeable || num_freeable > cache_size {
                    record.violate(|| format!("the encoder cache is {:?}", cache.view()));
                }
                let num_held = cache_size.saturating_sub(num_freeable);
                self.state.lock().cores.entry(engine).or_default().num_held_embeds = num_held;
            }
            Observed::Step { output } => {
                let tokens = output.total_num_scheduled_tokens as u64;
                record.note("step", &[output.epoch.0, output.step.0, tokens]);
                record.explain(|| format!("engine {engine}: {:?}", brief(output)));
                self.check_step(engine, output);
                self.check_deadlines(output);
            }
            Observed::Message { .. }
            | Observed::Struck { .. }
            | Observed::Died { .. }
            | Observed::Ledger { .. } => {}
        }
    }

    /// Checks blocks and tails with [`check_blocks`] and [`check_tails`].
    fn check_kv_cache(&self, engine: usize, manager: &KvCacheManager) {
        let mut state = self.state.lock();
        let core = state.cores.entry(engine).or_default();
        let spec = &self.config.scheduler.kv_spec;
        core.num_held = check_blocks(manager, spec, &mut core.references, &self.record);
        core.num_tails = check_tails(manager, &self.record);
    }

    fn check_step(&self, engine: usize, output: &SchedulerOutput) {
        let (step, block_size) = (output.step, self.config.scheduler.kv_spec.block_size);
        let mut state = self.state.lock();
        let computed = output.scheduled_new.iter().map(|new| new.num_computed_tokens);
        state.num_adopted += computed.filter(|count| count % block_size != 0).count() as u64;
        let core = state.cores.entry(engine).or_default();
        let last = core.last_step.0;
        if step <= core.last_step {
            self.record.violate(|| format!("step {} is planned after step {last}", step.0));
        }
        core.last_step = step;
    }
}

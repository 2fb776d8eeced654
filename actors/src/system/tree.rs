//! The supervision tree, as data: one line for each role. The role's own line
//! ([`crate::message::Role`]) says its supervisor and how often it may die.
//!
//! ```text
//! root (one for one)
//! ├── ledger
//! ├── core (rest for one): KV cache manager, structured output, encoder cache manager, scheduler,
//! │   worker, encoder worker
//! ├── egress (one for one): detokenizers and output streamers, a pair a shard
//! └── ingress (one for one): input processors
//! ```
//!
//! With engine processes, the root of each process has the core alone. In the front, an actor that
//! watches the process takes the place of each core.

use std::{
    slice::from_ref,
    sync::{Arc, Weak},
};

use ractor::{Actor, ActorRef, SpawnErr};
use tokio::task::JoinHandle;

use super::{context::Context, engine_process::EngineProcess};
use crate::{
    logic::{
        recovery::restart::{LastResort, Strategy},
        request::ids::EngineIndex,
    },
    message::{LedgerMessage, Letter, Role, SupervisorMessage},
    shell::{
        detokenizer::DetokenizerActor, encoder_cache_manager::EncoderCacheManagerActor,
        encoder_worker::EncoderWorkerActor, engine_process::EngineProcessActor,
        input_processor::InputProcessorActor, kv_cache_manager::KvCacheManagerActor,
        ledger::LedgerActor, output_streamer::OutputStreamerActor, scheduler::SchedulerActor,
        structured_output::StructuredOutputActor, worker::WorkerActor,
    },
    supervision::{
        directory::{Directory, Slot},
        spawn,
        supervisor::{ChildSpec, SpawnChild, SupervisorSpec},
    },
};

/// Returns a line for each role that supervises no others, in start order: the role, the slots of
/// its pool, and the function that makes an actor by its index.
fn actors() -> [Post; 10] {
    [
        post(Role::Ledger, |d| from_ref(&d.ledger), |c, _| LedgerActor::new(c)),
        post(
            Role::KvCacheManager,
            |d| from_ref(&d.core.kv_cache_manager),
            |c, _| KvCacheManagerActor::new(c),
        ),
        post(
            Role::StructuredOutput,
            |d| from_ref(&d.core.structured_output),
            |c, _| StructuredOutputActor::new(c),
        ),
        post(
            Role::EncoderCacheManager,
            |d| from_ref(&d.core.encoder_cache_manager),
            |c, _| EncoderCacheManagerActor::new(c),
        ),
        post(Role::Scheduler, |d| from_ref(&d.core.scheduler), |c, _| SchedulerActor::new(c)),
        post(Role::Worker, |d| from_ref(&d.core.worker), |c, _| WorkerActor::new(c)),
        post(
            Role::EncoderWorker,
            |d| from_ref(&d.core.encoder_worker),
            |c, _| EncoderWorkerActor::new(c),
        ),
        post(Role::Detokenizer, |d| &d.detokenizers, DetokenizerActor::new),
        post(Role::OutputStreamer, |d| &d.output_streamers, OutputStreamerActor::new),
        post(Role::InputProcessor, |d| &d.input_processors, |c, _| InputProcessorActor::new(c)),
    ]
}

/// All supervisors but the root, in start order.
static BRANCHES: [Branch; 3] = [
    Branch {
        role: Role::Core,
        strategy: Strategy::RestForOne,
        seat: core_seat,
        after_start: Some(|context| context.directory.ledger.cast(LedgerMessage::CoreStarted)),
    },
    Branch {
        role: Role::Egress,
        strategy: Strategy::OneForOne,
        seat: |directory, _| Some(&directory.egress),
        after_start: None,
    },
    Branch {
        role: Role::Ingress,
        strategy: Strategy::OneForOne,
        seat: |directory, _| Some(&directory.ingress),
        after_start: None,
    },
];

/// Returns the function that starts the actor with an index.
type SpawnAt = dyn Fn(&Arc<Context>, usize) -> SpawnChild;

/// One line of [`actors`], for any message type.
struct Post {
    role: Role,
    size: Box<dyn Fn(&Directory) -> usize>,
    spawn: Box<SpawnAt>,
}

fn post<A>(
    role: Role,
    seats: fn(&Directory) -> &[Slot<A::Msg>],
    make: fn(Arc<Context>, usize) -> A,
) -> Post
where
    A: Actor<Arguments = ()>,
    A::Msg: Letter,
{
    let size = Box::new(move |directory: &Directory| seats(directory).len());
    let spawn = Box::new(move |context: &Arc<Context>, index: usize| {
        spawn::actor(context, role, index, seats, make)
    });
    Post { role, size, spawn }
}

/// One line of [`BRANCHES`].
struct Branch {
    role: Role,
    strategy: Strategy,
    seat: fn(&Directory, usize) -> Option<&Slot<SupervisorMessage>>,
    /// Called whenever children were started.
    after_start: Option<fn(&Context)>,
}

/// Starts the whole tree of one actor system.
pub(crate) async fn spawn(
    context: &Arc<Context>,
) -> Result<(ActorRef<SupervisorMessage>, JoinHandle<()>), SpawnErr> {
    let branches = BRANCHES.iter().filter(|branch| context.part.has(branch.role));
    let branches = branches.flat_map(|branch| branch.children(context));
    // The front is the last resort of an engine process.
    let fruitless = context.config.supervision.fruitless_rebuilds;
    let last_resort = context.part.engine().is_none().then(|| LastResort::new(fruitless));
    let spec = SupervisorSpec {
        role: Role::Root,
        strategy: Strategy::OneForOne,
        children: children(context, Role::Root).into_iter().chain(branches).collect(),
        after_start: None,
        last_resort,
    };
    spawn::root(context, spec).await
}

impl Branch {
    fn children(&self, context: &Arc<Context>) -> Vec<ChildSpec> {
        match context.part.front().filter(|_| self.role == Role::Core) {
            Some(engines) => engines.all().map(|process| watcher(context, process)).collect(),
            None => vec![self.child(context)],
        }
    }

    fn child(&self, context: &Arc<Context>) -> ChildSpec {
        let shared = Arc::clone(context);
        let after_start = self.after_start.map(|after_start| {
            let called: Arc<dyn Fn() + Send + Sync> = Arc::new(move || after_start(&shared));
            called
        });
        let children = children(context, self.role);
        let (role, strategy) = (self.role, self.strategy);
        let spec = SupervisorSpec { role, strategy, children, after_start, last_resort: None };
        child(context, role, spawn::subtree(context, spec, self.seat))
    }
}

/// Returns the slot of the supervisor of an engine's core.
fn core_seat(directory: &Directory, engine: usize) -> Option<&Slot<SupervisorMessage>> {
    directory.core_of(EngineIndex(engine)).map(|core| &core.supervisor)
}

/// Returns the actor that watches an engine process, in the place of its core's supervisor.
fn watcher(context: &Arc<Context>, process: &Arc<EngineProcess>) -> ChildSpec {
    let (shared, process) = (Arc::downgrade(context), Arc::clone(process));
    let index = process.engine().0;
    let make = move || EngineProcessActor::new(Weak::clone(&shared), Arc::clone(&process));
    child(context, Role::Core, spawn::branch(context, Role::Core, index, core_seat, make))
}

/// Returns the actors below a supervisor: the first of each pool, then the second of each, and so
/// on.
fn children(context: &Arc<Context>, supervisor: Role) -> Vec<ChildSpec> {
    let posts = actors().into_iter().filter(|post| post.role.supervisor() == Some(supervisor));
    let posts = posts.filter(|post| context.part.has(post.role));
    let sized = posts.map(|post| ((post.size)(&context.directory), post));
    let sized: Vec<_> = sized.collect();
    let most = sized.iter().map(|(size, _)| *size).max().unwrap_or(0);
    let of_index = |index: usize| {
        let there = sized.iter().filter(move |(size, _)| index < *size);
        there.map(move |(_, post)| child(context, post.role, (post.spawn)(context, index)))
    };
    (0..most).flat_map(of_index).collect()
}

fn child(context: &Context, role: Role, spawn: SpawnChild) -> ChildSpec {
    ChildSpec { role, intensity: context.config.supervision.intensity(role), spawn }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_role_has_one_line() {
        let actors = actors();
        let lines = actors.iter().map(|post| post.role);
        let lines = lines.chain(BRANCHES.iter().map(|branch| branch.role)).chain([Role::Root]);
        let mut lines: Vec<_> = lines.collect();
        lines.sort();
        assert_eq!(lines, Role::ACTORS);
    }
}

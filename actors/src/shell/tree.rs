//! The supervision tree, as data.
//!
//! ```text
//! root (one for one)
//! ├── ledger
//! ├── core (rest for one): KV cache manager, structured output, scheduler, worker
//! ├── egress (one for one): detokenizers and output streamers, a pair a shard
//! └── ingress (one for one): input processors
//! ```

use std::sync::Arc;

use ractor::{Actor, ActorCell, ActorRef, SpawnErr};
use tokio::task::JoinHandle;

use super::{
    context::Context,
    detokenizer::DetokenizerActor,
    directory::Slot,
    input_processor::InputProcessorActor,
    kv_cache_manager::KvCacheManagerActor,
    ledger::LedgerActor,
    monitored::Monitored,
    output_streamer::OutputStreamerActor,
    pulse::Pulse,
    scheduler::SchedulerActor,
    structured_output::StructuredOutputActor,
    supervisor::{Child, ChildSpec, SpawnChild, Supervisor, SupervisorSpec},
    watched::AlarmClock,
    worker::WorkerActor,
};
use crate::{
    logic::restart::{Intensity, LastResort, Strategy},
    message::{LedgerMessage, Letter, Role, SupervisorMessage},
};

/// Starts the whole tree of one actor system.
pub(super) async fn spawn(
    context: &Arc<Context>,
) -> Result<(ActorRef<SupervisorMessage>, JoinHandle<()>), SpawnErr> {
    let pulse = Arc::new(Pulse::default());
    let actor = Monitored {
        actor: Supervisor::new(Arc::clone(context), root(context)),
        role: Role::Root,
        index: 0,
        pulse: Arc::clone(&pulse),
        clock: AlarmClock::default(),
        context: Arc::clone(context),
    };
    let (root, task) = Actor::spawn(None, actor, ()).await?;
    context.directory.root.set(root.clone(), pulse);
    Ok((root, task))
}

fn root(context: &Arc<Context>) -> SupervisorSpec {
    let ledger = child(context, Role::Ledger, 0, context.config.supervision.ledger, |context| {
        (LedgerActor::new(Arc::clone(context)), |c: &Context| &c.directory.ledger)
    });
    let children = vec![
        ledger,
        subtree(context, core(context), |c| &c.directory.core),
        subtree(context, egress(context), |c| &c.directory.egress),
        subtree(context, ingress(context), |c| &c.directory.ingress),
    ];
    let strategy = Strategy::OneForOne;
    let last_resort = Some(LastResort::new(context.config.supervision.fruitless_rebuilds));
    SupervisorSpec { role: Role::Root, strategy, children, after_start: None, last_resort }
}

fn core(context: &Arc<Context>) -> SupervisorSpec {
    let supervision = &context.config.supervision;
    let children = vec![
        child(context, Role::KvCacheManager, 0, supervision.kv_cache_manager, |context| {
            let actor = KvCacheManagerActor::new(Arc::clone(context));
            (actor, |c: &Context| &c.directory.kv_cache_manager)
        }),
        child(context, Role::StructuredOutput, 0, supervision.structured_output, |context| {
            let actor = StructuredOutputActor::new(Arc::clone(context));
            (actor, |c: &Context| &c.directory.structured_output)
        }),
        child(context, Role::Scheduler, 0, supervision.scheduler, |context| {
            let actor = SchedulerActor::new(Arc::clone(context));
            (actor, |c: &Context| &c.directory.scheduler)
        }),
        child(context, Role::Worker, 0, supervision.worker, |context| {
            (WorkerActor::new(Arc::clone(context)), |c: &Context| &c.directory.worker)
        }),
    ];
    let told = Arc::clone(context);
    let after_start = move || told.directory.ledger.cast(LedgerMessage::CoreStarted);
    SupervisorSpec {
        role: Role::Core,
        strategy: Strategy::RestForOne,
        children,
        after_start: Some(Arc::new(after_start)),
        last_resort: None,
    }
}

fn egress(context: &Arc<Context>) -> SupervisorSpec {
    let intensity = context.config.supervision.egress;
    let pair = |shard: usize| {
        let detokenizer = child(context, Role::Detokenizer, shard, intensity, move |context| {
            let actor = DetokenizerActor::new(Arc::clone(context), shard);
            (actor, move |c: &Context| &c.directory.detokenizers[shard])
        });
        let streamer = child(context, Role::OutputStreamer, shard, intensity, move |context| {
            let actor = OutputStreamerActor::new(Arc::clone(context), shard);
            (actor, move |c: &Context| &c.directory.output_streamers[shard])
        });
        [detokenizer, streamer]
    };
    let shards = 0..context.directory.detokenizers.len();
    let (role, strategy) = (Role::Egress, Strategy::OneForOne);
    let children = shards.flat_map(pair).collect();
    SupervisorSpec { role, strategy, children, after_start: None, last_resort: None }
}

fn ingress(context: &Arc<Context>) -> SupervisorSpec {
    let one = |index: usize| {
        let intensity = context.config.supervision.ingress;
        child(context, Role::InputProcessor, index, intensity, move |context| {
            let actor = InputProcessorActor::new(Arc::clone(context));
            (actor, move |c: &Context| &c.directory.input_processors[index])
        })
    };
    let (role, strategy) = (Role::Ingress, Strategy::OneForOne);
    let children = (0..context.directory.input_processors.len()).map(one).collect();
    SupervisorSpec { role, strategy, children, after_start: None, last_resort: None }
}

/// A child that is an actor with an address: `make` gives the actor and where it is registered.
fn child<A, F, S>(
    context: &Arc<Context>,
    role: Role,
    index: usize,
    intensity: Intensity,
    make: F,
) -> ChildSpec
where
    A: Actor<Arguments = ()>,
    A::Msg: Letter,
    F: Fn(&Arc<Context>) -> (A, S) + Send + Sync + 'static,
    S: Fn(&Context) -> &Slot<A::Msg> + Send + 'static,
{
    let context = Arc::clone(context);
    let spawn: SpawnChild = Arc::new(move |supervisor| {
        let context = Arc::clone(&context);
        let (actor, slot) = make(&context);
        Box::pin(async move {
            let (address, pulse) = spawn_linked(&context, role, index, actor, supervisor).await?;
            slot(&context).set(address.clone(), pulse);
            Ok(Child::Actor(address.get_cell()))
        })
    });
    ChildSpec { role, intensity, spawn }
}

/// A child that is a supervisor itself.
fn subtree(
    context: &Arc<Context>,
    spec: SupervisorSpec,
    slot: fn(&Context) -> &Slot<SupervisorMessage>,
) -> ChildSpec {
    let (context, role) = (Arc::clone(context), spec.role);
    let intensity = context.config.supervision.subtree;
    let spawn: SpawnChild = Arc::new(move |parent| {
        let context = Arc::clone(&context);
        let supervisor = Supervisor::new(Arc::clone(&context), spec.clone());
        Box::pin(async move {
            let (address, pulse) = spawn_linked(&context, role, 0, supervisor, parent).await?;
            slot(&context).set(address.clone(), pulse);
            Ok(Child::Supervisor(address))
        })
    });
    ChildSpec { role, intensity, spawn }
}

async fn spawn_linked<A>(
    context: &Arc<Context>,
    role: Role,
    index: usize,
    actor: A,
    supervisor: ActorCell,
) -> Result<(ActorRef<A::Msg>, Arc<Pulse>), SpawnErr>
where
    A: Actor<Arguments = ()>,
    A::Msg: Letter,
{
    let pulse = Arc::new(Pulse::default());
    let (context, shown) = (Arc::clone(context), Arc::clone(&pulse));
    let clock = AlarmClock::default();
    let actor = Monitored { actor, role, index, pulse: shown, clock, context };
    // No name: names are global to the process, and two systems in it must not meet.
    let (address, _) = Actor::spawn_linked(None, actor, (), supervisor).await?;
    Ok((address, pulse))
}

//! The supervision tree, as data.
//!
//! ```text
//! root (one for one)
//! ├── ledger
//! ├── core (rest for one): KV cache manager, scheduler, worker
//! ├── egress (one for one): detokenizers and output streamers, a pair a shard
//! └── ingress (one for one): input processors
//! ```

use std::sync::Arc;

use ractor::{Actor, ActorCell, ActorRef, SpawnErr};

use super::{
    context::Context,
    detokenizer::DetokenizerActor,
    directory::{Role, Slot},
    input_processor::InputProcessorActor,
    kv_cache_manager::KvCacheManagerActor,
    ledger::LedgerActor,
    output_streamer::OutputStreamerActor,
    scheduler::SchedulerActor,
    supervisor::{Child, ChildSpec, SpawnChild, Supervisor, SupervisorSpec},
    worker::WorkerActor,
};
use crate::{
    logic::restart::{Intensity, Strategy},
    message::LedgerMessage,
};

/// A supervisor that exceeds its intensity takes its parent's, which is this.
const SUBTREE: Intensity = Intensity::new(3, 60);

/// The whole tree of one actor system.
pub(super) fn root(context: &Arc<Context>) -> SupervisorSpec {
    let ledger = child(context, Role::Ledger, Intensity::new(1, 60), |context| {
        (LedgerActor::new(Arc::clone(context)), |c: &Context| &c.directory.ledger)
    });
    let children = vec![
        ledger,
        subtree(context, core(context)),
        subtree(context, egress(context)),
        subtree(context, ingress(context)),
    ];
    let strategy = Strategy::OneForOne;
    SupervisorSpec { role: Role::Root, strategy, children, after_restart: None }
}

fn core(context: &Arc<Context>) -> SupervisorSpec {
    let children = vec![
        child(context, Role::KvCacheManager, Intensity::new(5, 30), |context| {
            let actor = KvCacheManagerActor::new(Arc::clone(context));
            (actor, |c: &Context| &c.directory.kv_cache_manager)
        }),
        child(context, Role::Scheduler, Intensity::new(5, 30), |context| {
            let actor = SchedulerActor::new(Arc::clone(context));
            (actor, |c: &Context| &c.directory.scheduler)
        }),
        child(context, Role::Worker, Intensity::new(3, 60), |context| {
            (WorkerActor::new(Arc::clone(context)), |c: &Context| &c.directory.worker)
        }),
    ];
    let told = Arc::clone(context);
    let after_restart = move || told.directory.ledger.cast(LedgerMessage::CoreRestarted);
    SupervisorSpec {
        role: Role::Core,
        strategy: Strategy::RestForOne,
        children,
        after_restart: Some(Arc::new(after_restart)),
    }
}

fn egress(context: &Arc<Context>) -> SupervisorSpec {
    let intensity = Intensity::new(20, 10);
    let pair = |shard: usize| {
        let detokenizer = child(context, Role::Detokenizer, intensity, move |context| {
            let actor = DetokenizerActor::new(Arc::clone(context), shard);
            (actor, move |c: &Context| &c.directory.detokenizers[shard])
        });
        let streamer = child(context, Role::OutputStreamer, intensity, move |context| {
            let actor = OutputStreamerActor::new(Arc::clone(context), shard);
            (actor, move |c: &Context| &c.directory.output_streamers[shard])
        });
        [detokenizer, streamer]
    };
    let shards = 0..context.directory.detokenizers.len();
    let (role, strategy) = (Role::Egress, Strategy::OneForOne);
    let children = shards.flat_map(pair).collect();
    SupervisorSpec { role, strategy, children, after_restart: None }
}

fn ingress(context: &Arc<Context>) -> SupervisorSpec {
    let one = |index: usize| {
        child(context, Role::InputProcessor, Intensity::new(20, 10), move |context| {
            let actor = InputProcessorActor::new(Arc::clone(context));
            (actor, move |c: &Context| &c.directory.input_processors[index])
        })
    };
    let (role, strategy) = (Role::Ingress, Strategy::OneForOne);
    let children = (0..context.directory.input_processors.len()).map(one).collect();
    SupervisorSpec { role, strategy, children, after_restart: None }
}

/// A child that is an actor with an address: `make` gives the actor and where it is registered.
fn child<A, F, S>(context: &Arc<Context>, role: Role, intensity: Intensity, make: F) -> ChildSpec
where
    A: Actor<Arguments = ()>,
    F: Fn(&Arc<Context>) -> (A, S) + Send + Sync + 'static,
    S: Fn(&Context) -> &Slot<A::Msg> + Send + 'static,
{
    let context = Arc::clone(context);
    let spawn: SpawnChild = Arc::new(move |supervisor| {
        let context = Arc::clone(&context);
        let (actor, slot) = make(&context);
        Box::pin(async move {
            let address = spawn_linked(actor, supervisor).await?;
            slot(&context).set(address.clone());
            Ok(Child::Actor(address.get_cell()))
        })
    });
    ChildSpec { role, intensity, spawn }
}

/// A child that is a supervisor itself.
fn subtree(context: &Arc<Context>, spec: SupervisorSpec) -> ChildSpec {
    let (context, role) = (Arc::clone(context), spec.role);
    let spawn: SpawnChild = Arc::new(move |parent| {
        let supervisor = Supervisor::new(Arc::clone(&context), spec.clone());
        Box::pin(async move { Ok(Child::Supervisor(spawn_linked(supervisor, parent).await?)) })
    });
    ChildSpec { role, intensity: SUBTREE, spawn }
}

async fn spawn_linked<A: Actor<Arguments = ()>>(
    actor: A,
    supervisor: ActorCell,
) -> Result<ActorRef<A::Msg>, SpawnErr> {
    // No name: names are global to the process, and two systems in it must not meet.
    let (address, _) = Actor::spawn_linked(None, actor, (), supervisor).await?;
    Ok(address)
}

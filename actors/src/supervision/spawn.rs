//! Starts actors: each incarnation is linked to its supervisor, shows its pulse, and takes its slot
//! in the directory.

use std::sync::Arc;

use ractor::{Actor, ActorRef, SpawnErr};
use tokio::task::JoinHandle;

use super::{
    directory::{Directory, Slot},
    monitored::Monitored,
    pulse::Pulse,
    supervisor::{Child, Parent, SpawnChild, Supervisor, SupervisorSpec},
    term::{Term, Terms},
    watched::AlarmClock,
};
use crate::{
    message::{Letter, Role, SupervisorMessage},
    system::context::Context,
};

/// Returns the function that starts the actor of `role` with this index. `make` creates the actor,
/// and `seats` returns the slots of its role.
pub(crate) fn actor<A>(
    context: &Arc<Context>,
    role: Role,
    index: usize,
    seats: fn(&Directory) -> &[Slot<A::Msg>],
    make: fn(Arc<Context>, usize) -> A,
) -> SpawnChild
where
    A: Actor<Arguments = ()>,
    A::Msg: Letter,
{
    let context = Arc::clone(context);
    Arc::new(move |supervisor: Parent| {
        let context = Arc::clone(&context);
        let actor = make(Arc::clone(&context), index);
        Box::pin(async move {
            let (actor, pulse) = linked(&context, role, index, actor, &supervisor).await?;
            if let Some(slot) = seats(&context.directory).get(index) {
                register(slot, &supervisor.term, &actor, pulse)?;
            }
            Ok(Child::Actor(actor.get_cell()))
        })
    })
}

/// Returns the function that starts a supervisor below another one.
pub(crate) fn subtree(
    context: &Arc<Context>,
    spec: SupervisorSpec,
    seat: fn(&Directory, usize) -> Option<&Slot<SupervisorMessage>>,
) -> SpawnChild {
    let (role, shared, terms) = (spec.role, Arc::clone(context), Terms::default());
    let make = move || {
        let supervisor = Supervisor::new(Arc::clone(&shared), spec.clone());
        supervisor.in_term(terms.begin())
    };
    branch(context, role, 0, seat, make)
}

/// Returns the function that starts an actor which stops its children first, as a supervisor does.
/// `seat` returns its slot by the index, and `make` creates it.
pub(crate) fn branch<A>(
    context: &Arc<Context>,
    role: Role,
    index: usize,
    seat: fn(&Directory, usize) -> Option<&Slot<SupervisorMessage>>,
    make: impl Fn() -> A + Send + Sync + 'static,
) -> SpawnChild
where
    A: Actor<Msg = SupervisorMessage, Arguments = ()>,
{
    let context = Arc::clone(context);
    Arc::new(move |parent: Parent| {
        let (context, actor) = (Arc::clone(&context), make());
        Box::pin(async move {
            let (actor, pulse) = linked(&context, role, index, actor, &parent).await?;
            if let Some(slot) = seat(&context.directory, index) {
                register(slot, &parent.term, &actor, pulse)?;
            }
            Ok(Child::Supervisor(actor))
        })
    })
}

/// Starts the root supervisor.
pub(crate) async fn root(
    context: &Arc<Context>,
    spec: SupervisorSpec,
) -> Result<(ActorRef<SupervisorMessage>, JoinHandle<()>), SpawnErr> {
    let pulse = Arc::new(Pulse::default());
    let root = Supervisor::new(Arc::clone(context), spec);
    let actor = monitored(context, Role::Root, 0, root, &pulse);
    let (root, task) = Actor::spawn(None, actor, ()).await?;
    context.directory.root.set(root.clone().into(), pulse);
    Ok((root, task))
}

fn monitored<A>(
    context: &Arc<Context>,
    role: Role,
    index: usize,
    actor: A,
    pulse: &Arc<Pulse>,
) -> Monitored<A> {
    let (context, pulse) = (Arc::clone(context), Arc::clone(pulse));
    Monitored { actor, role, index, pulse, clock: AlarmClock::default(), context }
}

async fn linked<A>(
    context: &Arc<Context>,
    role: Role,
    index: usize,
    actor: A,
    supervisor: &Parent,
) -> Result<(ActorRef<A::Msg>, Arc<Pulse>), SpawnErr>
where
    A: Actor<Arguments = ()>,
    A::Msg: Letter,
{
    let pulse = Arc::new(Pulse::default());
    let actor = monitored(context, role, index, actor, &pulse);
    // No name: names are global to the process, and two systems in it must not meet.
    let (actor, _) = Actor::spawn_linked(None, actor, (), supervisor.actor.clone()).await?;
    Ok((actor, pulse))
}

/// Registers an actor in its slot. If the term of its supervisor is over, it kills the actor.
///
/// # Errors
/// When the term is over.
fn register<M: Letter>(
    slot: &Slot<M>,
    term: &Term,
    actor: &ActorRef<M>,
    pulse: Arc<Pulse>,
) -> Result<(), SpawnErr> {
    if slot.set_in(term, actor.clone().into(), pulse) {
        return Ok(());
    }
    actor.kill();
    Err(SpawnErr::StartupFailed("its supervisor has a successor".into()))
}

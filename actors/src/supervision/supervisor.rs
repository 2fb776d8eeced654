//! The supervisor starts children in order, replaces dead ones by its strategy, and stops them in
//! reverse order. When they die too often, it gives up. It overrides ractor's default, which is to
//! exit with the first child. No other file does.

use std::{collections::BTreeSet, ops::Range, pin::Pin, sync::Arc, time::Duration};

use ractor::{
    Actor, ActorCell, ActorId, ActorProcessingErr, ActorRef, RpcReplyPort, SpawnErr,
    SupervisionEvent,
};

use super::{
    address::Address,
    term::Term,
    watched::{Long, waiting_for},
};
use crate::{
    fault::Observed,
    logic::{
        recovery::restart::{Decision, Intensity, LastResort, RestartLog, Strategy},
        request::ids::Micros,
    },
    message::{Role, SupervisorMessage},
    system::context::Context,
};

/// Time that a child has to stop. After it, the child is left behind.
pub(crate) const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// Wait before an engine process that died too often is replaced while another engine goes on.
const OTHER_ENGINE_PAUSE: Micros = 10_000_000;

/// A supervisor as its children know it.
#[derive(Debug, Clone)]
pub struct Parent {
    /// The supervisor.
    pub actor: ActorCell,
    /// Its term. After it, no child of the supervisor is registered.
    pub term: Term,
}

/// Starts one incarnation of a child, linked to the given supervisor, and registers its address.
pub type SpawnChild = Arc<
    dyn Fn(Parent) -> Pin<Box<dyn Future<Output = Result<Child, SpawnErr>> + Send>> + Send + Sync,
>;

/// A child that is alive.
#[derive(Debug, Clone)]
pub enum Child {
    /// An actor without children. Its state is derived, so it need not finish its work.
    Actor(ActorCell),
    /// A supervisor. It must stop its children first.
    Supervisor(ActorRef<SupervisorMessage>),
}

impl Child {
    fn id(&self) -> ActorId {
        match self {
            Self::Actor(actor) => actor.get_id(),
            Self::Supervisor(supervisor) => supervisor.get_id(),
        }
    }

    /// Stops the child. Returns whether it stopped in time.
    async fn stop(&self) -> bool {
        let _long = Long::begin();
        let actor = match self {
            Self::Actor(actor) => actor.clone(),
            Self::Supervisor(supervisor) => {
                // A supervisor that is already dead does not answer.
                let address = Address::from(supervisor.clone());
                let _ = address.ask(SupervisorMessage::Shutdown, STOP_TIMEOUT).await;
                supervisor.get_cell()
            }
        };
        actor.kill_and_wait(Some(STOP_TIMEOUT)).await.is_ok()
    }
}

/// One child as data.
#[derive(Clone)]
pub struct ChildSpec {
    /// The role, for logs and metrics.
    pub role: Role,
    /// How often the child may die.
    pub intensity: Intensity,
    /// The function that starts the child.
    pub spawn: SpawnChild,
}

/// A supervisor as data.
#[derive(Clone)]
pub struct SupervisorSpec {
    /// The role, for logs.
    pub role: Role,
    /// Which children are replaced when one dies.
    pub strategy: Strategy,
    /// The children, in start order.
    pub children: Vec<ChildSpec>,
    /// Called whenever children were started.
    pub after_start: Option<Arc<dyn Fn() + Send + Sync>>,
    /// The step before giving up. `None`: the supervisor gives up at once.
    pub last_resort: Option<LastResort>,
}

/// The supervisor actor.
pub struct Supervisor {
    context: Arc<Context>,
    spec: SupervisorSpec,
    term: Term,
}

/// The children that are alive, and the restarts so far.
pub struct State {
    children: Vec<Option<Child>>,
    log: RestartLog,
    /// The children that died too often when they died last.
    exhausted: BTreeSet<usize>,
    last_resort: Option<LastResort>,
    is_stopping: bool,
}

impl Supervisor {
    /// Returns a supervisor that will start the children of `spec`. It has no successor.
    pub fn new(context: Arc<Context>, spec: SupervisorSpec) -> Self {
        Self { context, spec, term: Term::default() }
    }

    /// Returns the supervisor with a term, which ends when its successor's begins.
    pub(crate) fn in_term(self, term: Term) -> Self {
        Self { term, ..self }
    }

    /// Checks that there is no successor. A supervisor that hung and was abandoned may go on later,
    /// and must leave the actors of its successor alone.
    ///
    /// # Errors
    /// When there is one. The supervisor then ends, and its own children with it.
    fn check_term(&self) -> Result<(), ActorProcessingErr> {
        match self.term.is_over() {
            true => Err(format!("{} hung, and has a successor", self.spec.role.as_str()).into()),
            false => Ok(()),
        }
    }

    async fn start(
        &self,
        myself: &ActorRef<SupervisorMessage>,
        range: Range<usize>,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let mut has_started = false;
        for index in range {
            if state.children[index].is_none() {
                self.check_term()?;
                let parent = Parent { actor: myself.get_cell(), term: self.term.clone() };
                let spawn = (self.spec.children[index].spawn)(parent);
                let child = waiting_for(spawn).await?;
                state.children[index] = Some(child);
                has_started = true;
            }
        }
        if let Some(after_start) = self.spec.after_start.as_ref().filter(|_| has_started) {
            // The term may have ended while the last child started.
            self.check_term()?;
            after_start();
        }
        Ok(())
    }

    /// Stops children in reverse order.
    async fn stop(&self, range: Range<usize>, state: &mut State) {
        for index in range.rev() {
            if let Some(child) = state.children[index].take()
                && !child.stop().await
            {
                let role = self.spec.children[index].role.as_str();
                tracing::warn!(role, "an actor did not stop in time and is left behind");
            }
        }
    }

    async fn on_death(
        &self,
        myself: &ActorRef<SupervisorMessage>,
        who: ActorId,
        cause: &str,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let is_dead = |child: &Option<Child>| child.as_ref().is_some_and(|child| child.id() == who);
        // A sibling that this supervisor stopped itself is no longer its child.
        let Some(index) = state.children.iter().position(is_dead) else { return Ok(()) };
        state.children[index] = None;
        if state.is_stopping {
            return Ok(());
        }
        self.check_term()?;
        let role = self.spec.children[index].role;
        tracing::warn!(role = role.as_str(), cause, "an actor died");
        self.context.observers.restarted(role);
        self.context.observers.chaos.observe(&Observed::Died { role, cause });
        let decision = state.log.on_death(index, self.context.now());
        if decision != Decision::Escalate {
            state.exhausted.remove(&index);
        }
        match decision {
            Decision::Escalate if self.has_another_engine(index, state) => {
                tracing::error!(cause, "an engine process died too often; another engine goes on");
                self.restart_later(myself, index..index + 1, OTHER_ENGINE_PAUSE, state).await;
                Ok(())
            }
            Decision::Escalate => {
                state.exhausted.clear();
                self.trip_breaker(role, "died too often");
                let why = format!("{} died too often ({cause})", role.as_str());
                self.give_up(myself, why, state).await
            }
            Decision::Restart { children, delay: 0 } => {
                self.stop(children.clone(), state).await;
                self.start_again(myself, children, state).await
            }
            Decision::Restart { children, delay } => {
                self.restart_later(myself, children, delay, state).await;
                Ok(())
            }
        }
    }

    /// Records that a child died too often. Returns whether it watches an engine process, and
    /// another engine's has not. Then only that process is replaced, however often it dies.
    fn has_another_engine(&self, child: usize, state: &mut State) -> bool {
        let is_engine = |spec: &ChildSpec| spec.role == Role::Core;
        state.exhausted.insert(child);
        let mut others = self.spec.children.iter().enumerate();
        let is_one = self.spec.children.get(child).is_some_and(is_engine);
        is_one && others.any(|(at, spec)| is_engine(spec) && !state.exhausted.contains(&at))
    }

    async fn restart_later(
        &self,
        myself: &ActorRef<SupervisorMessage>,
        range: Range<usize>,
        delay: Micros,
        state: &mut State,
    ) {
        self.stop(range.clone(), state).await;
        let Range { start: first, end } = range;
        let again = move || SupervisorMessage::Restart { first, end };
        myself.send_after(Duration::from_micros(delay), again);
    }

    /// Starts children that died or were stopped.
    async fn start_again(
        &self,
        myself: &ActorRef<SupervisorMessage>,
        range: Range<usize>,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match self.start(myself, range, state).await {
            Ok(()) => Ok(()),
            // No fault of the children: its successor starts them.
            Err(error) if self.term.is_over() => Err(error),
            Err(error) => {
                self.trip_breaker(self.spec.role, "could not start its actors");
                self.give_up(myself, error.to_string(), state).await
            }
        }
    }

    /// Lets no clients in. The reason has no text of an actor, because it is shown to all.
    fn trip_breaker(&self, role: Role, why: &str) {
        let engines = self.context.part.front().filter(|_| role == Role::Core);
        let end = engines.and_then(|engines| engines.last_end());
        self.context.trip_breaker(match end {
            Some(end) => format!("the engine process died too often; the last one {end}"),
            None => format!("{} {why}", role.as_str()),
        });
    }

    /// Gives up, because restarts do not help. The last resort, if there is one, builds all
    /// children again after a while. Accepted requests go on then, and new clients wait for the
    /// breaker.
    async fn give_up(
        &self,
        myself: &ActorRef<SupervisorMessage>,
        why: String,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let own = self.spec.role.as_str();
        let done = self.context.observers.progress.num_steps();
        let Some(delay) = state.last_resort.as_mut().and_then(|last| last.rebuild(done)) else {
            return Err(format!("{own} gives up: {why}").into());
        };
        tracing::error!(why, delay_ms = delay / 1_000, "{own} builds all actors again");
        self.restart_later(myself, 0..state.children.len(), delay, state).await;
        Ok(())
    }

    async fn shut_down(&self, reply: RpcReplyPort<()>, state: &mut State) {
        state.is_stopping = true;
        self.stop(0..state.children.len(), state).await;
        let _ = reply.send(());
    }
}

impl Actor for Supervisor {
    type Msg = SupervisorMessage;
    type State = State;
    type Arguments = ();

    /// Starts the children. Their starts are cheap, because heavy work waits for a message. Only a
    /// worker may wait until a thread has ended, for two seconds at most.
    async fn pre_start(
        &self,
        myself: ActorRef<SupervisorMessage>,
        (): (),
    ) -> Result<State, ActorProcessingErr> {
        let intensities = self.spec.children.iter().map(|child| child.intensity);
        let log = RestartLog::new(self.spec.strategy, intensities);
        let count = self.spec.children.len();
        let (children, last_resort) = (vec![None; count], self.spec.last_resort.clone());
        let (exhausted, is_stopping) = (BTreeSet::new(), false);
        let mut state = State { children, log, exhausted, last_resort, is_stopping };
        self.start(&myself, 0..count, &mut state).await?;
        Ok(state)
    }

    async fn handle(
        &self,
        myself: ActorRef<SupervisorMessage>,
        message: SupervisorMessage,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            SupervisorMessage::Restart { first, end } if !state.is_stopping => {
                self.start_again(&myself, first..end, state).await
            }
            SupervisorMessage::Abandon(child) => {
                self.on_death(&myself, child, "it hangs and was abandoned", state).await
            }
            SupervisorMessage::Restart { .. } | SupervisorMessage::Ping => Ok(()),
            SupervisorMessage::Shutdown(reply) => {
                self.shut_down(reply, state).await;
                myself.stop(None);
                Ok(())
            }
        }
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<SupervisorMessage>,
        event: SupervisionEvent,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match event {
            SupervisionEvent::ActorTerminated(who, _, reason) => {
                let cause = reason.unwrap_or_else(|| "stopped".to_owned());
                self.on_death(&myself, who.get_id(), &cause, state).await
            }
            SupervisionEvent::ActorFailed(who, error) => {
                self.on_death(&myself, who.get_id(), &error.to_string(), state).await
            }
            _ => Ok(()),
        }
    }
}

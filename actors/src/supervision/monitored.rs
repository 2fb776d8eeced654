//! The part that all actors have around their handlers: it keeps the pulse, and strikes
//! the actor before or after a message if that was ordered.

use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};

use super::{
    pulse::Pulse,
    watched::{AlarmClock, waiting_for, watched},
};
use crate::{
    fault::How,
    message::{Letter, Role},
    ports::Handled,
    system::{context::Context, profiled::profiled},
};

/// An actor with a pulse.
pub(crate) struct Monitored<A> {
    pub(crate) actor: A,
    pub(crate) role: Role,
    pub(crate) index: usize,
    pub(crate) pulse: Arc<Pulse>,
    pub(crate) clock: AlarmClock,
    pub(crate) context: Arc<Context>,
}

/// Marks the actor idle, also when its handler ends by a panic or a kill.
struct Busy<'a>(&'a Pulse);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl<A> Monitored<A> {
    /// Lets other tasks run first: in simulations, the order of concurrent work varies.
    async fn let_others_go_first(&self) {
        for _ in 0..self.context.observers.chaos.yields() {
            waiting_for(tokio::task::yield_now()).await;
        }
    }

    async fn strike<M: Letter>(&self, myself: &ActorRef<M>) {
        match self.context.observers.chaos.on_handle(self.role, self.index) {
            None => {}
            // `resume_unwind` does not call the panic hook: the panic was ordered, so it is not
            // reported.
            Some(How::Panic) => {
                std::panic::resume_unwind(Box::new("struck by chaos".to_owned()));
            }
            Some(How::Kill) => {
                myself.kill();
                std::future::pending::<()>().await;
            }
            Some(How::Hang) => {
                self.pulse.strike();
                std::future::pending::<()>().await;
            }
        }
    }
}

impl<A: Actor<Arguments = ()>> Monitored<A>
where
    A::Msg: Letter,
{
    /// Runs the actor's own handler, and times it if there is a profiler.
    async fn let_handle(
        &self,
        myself: ActorRef<A::Msg>,
        message: A::Msg,
        state: &mut A::State,
    ) -> Result<(), ActorProcessingErr> {
        let Some(profiler) = &self.context.config.profiler else {
            return self.actor.handle(myself, message, state).await;
        };
        let edge = message.edge().as_str();
        let handle = self.actor.handle(myself, message, state);
        let (outcome, [begin, end], busy) = profiled(handle).await;
        let (role, index) = (self.role.as_str(), self.index);
        profiler.handled(Handled { role, index, edge, begin, end, busy });
        outcome
    }
}

impl<A: Actor<Arguments = ()>> Actor for Monitored<A>
where
    A::Msg: Letter,
{
    type Msg = A::Msg;
    type State = A::State;
    type Arguments = ();

    async fn pre_start(
        &self,
        myself: ActorRef<A::Msg>,
        (): (),
    ) -> Result<A::State, ActorProcessingErr> {
        self.pulse.beat(self.context.now());
        self.actor.pre_start(myself, ()).await
    }

    async fn post_start(
        &self,
        myself: ActorRef<A::Msg>,
        state: &mut A::State,
    ) -> Result<(), ActorProcessingErr> {
        let _busy = Busy(&self.pulse);
        self.pulse.begin_event(self.context.now());
        watched(&self.pulse, &self.clock, self.actor.post_start(myself, state)).await
    }

    async fn handle(
        &self,
        myself: ActorRef<A::Msg>,
        message: A::Msg,
        state: &mut A::State,
    ) -> Result<(), ActorProcessingErr> {
        let _busy = Busy(&self.pulse);
        self.pulse.begin(&message, self.context.now());
        self.context.observers.edges.count(message.edge());
        let work = async {
            self.let_others_go_first().await;
            self.strike(&myself).await;
            if !message.is_ping() {
                self.let_handle(myself.clone(), message, state).await?;
                self.strike(&myself).await;
            }
            Ok(())
        };
        watched(&self.pulse, &self.clock, work).await
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<A::Msg>,
        event: SupervisionEvent,
        state: &mut A::State,
    ) -> Result<(), ActorProcessingErr> {
        // A supervisor may hang in an event as well as in a message.
        let _busy = Busy(&self.pulse);
        self.pulse.begin_event(self.context.now());
        let work = async {
            self.strike(&myself).await;
            self.actor.handle_supervisor_evt(myself.clone(), event, state).await?;
            self.strike(&myself).await;
            Ok(())
        };
        watched(&self.pulse, &self.clock, work).await
    }
}

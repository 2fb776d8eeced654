//! The way to one incarnation of an actor. All messages between actors go through an address: to a
//! mailbox of this process, or over the link to the other process.

use std::{fmt, sync::Arc, time::Duration};

use ractor::{
    ActorCell, ActorRef, ActorStatus, RpcReplyPort, concurrency::oneshot, rpc::CallResult,
};

use crate::message::Letter;

/// The way to one incarnation of an actor.
#[derive(Debug)]
pub enum Address<M> {
    /// The mailbox of an actor in this process.
    Mailbox(ActorRef<M>),
    /// An actor of the other process.
    Link(Arc<dyn Carrier<M>>),
}

/// Carries messages to an actor of the other process.
pub trait Carrier<M>: fmt::Debug + Send + Sync {
    /// Sends a message without waiting. Messages that only its own process needs are dropped, for
    /// example pings.
    ///
    /// # Errors
    /// [`Unreachable`] if the message is lost.
    fn carry(&self, message: M) -> Result<(), Unreachable>;

    /// Returns whether the other process may receive messages.
    fn is_up(&self) -> bool;
}

/// The error for a message to a dead actor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreachable;

/// The reason why a call has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoAnswer {
    /// The receiver took too long.
    Late,
    /// The receiver is dead, or died before it answered.
    Gone,
}

impl<M> Clone for Address<M> {
    fn clone(&self) -> Self {
        match self {
            Self::Mailbox(mailbox) => Self::Mailbox(mailbox.clone()),
            Self::Link(link) => Self::Link(Arc::clone(link)),
        }
    }
}

impl<M> From<ActorRef<M>> for Address<M> {
    fn from(mailbox: ActorRef<M>) -> Self {
        Self::Mailbox(mailbox)
    }
}

impl<M: Letter> Address<M> {
    /// Sends a message without waiting.
    ///
    /// # Errors
    /// [`Unreachable`] if the receiver is known to be dead. A later death of the receiver loses the
    /// message without an error.
    pub fn send(&self, message: M) -> Result<(), Unreachable> {
        match self {
            Self::Mailbox(mailbox) => mailbox.cast(message).map_err(|_| Unreachable),
            Self::Link(link) => link.carry(message),
        }
    }

    /// Sends a question and waits for at most `limit`.
    ///
    /// # Errors
    /// [`NoAnswer`].
    pub async fn ask<T: Send + 'static>(
        &self,
        message: impl FnOnce(RpcReplyPort<T>) -> M,
        limit: Duration,
    ) -> Result<T, NoAnswer> {
        let mailbox = match self {
            Self::Mailbox(mailbox) => mailbox,
            Self::Link(link) => return ask_over(&**link, message, limit).await,
        };
        match mailbox.call(message, Some(limit)).await {
            Ok(CallResult::Success(answer)) => Ok(answer),
            Ok(CallResult::Timeout) => Err(NoAnswer::Late),
            Ok(CallResult::SenderError) | Err(_) => Err(NoAnswer::Gone),
        }
    }

    /// Returns whether the actor takes messages.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        match self {
            Self::Mailbox(mailbox) => mailbox.get_status() == ActorStatus::Running,
            Self::Link(link) => link.is_up(),
        }
    }

    /// Kills the actor at its next `.await`. An actor of the other process is left alone.
    pub fn kill(&self) {
        if let Some(actor) = self.cell() {
            actor.kill();
        }
    }

    /// Returns the actor, for the watchdog: only an actor of this process can be watched.
    pub(crate) fn cell(&self) -> Option<ActorCell> {
        match self {
            Self::Mailbox(mailbox) => Some(mailbox.get_cell()),
            Self::Link(_) => None,
        }
    }
}

/// Sends a question over a link and waits for at most `limit`.
async fn ask_over<M, T: Send + 'static>(
    link: &dyn Carrier<M>,
    message: impl FnOnce(RpcReplyPort<T>) -> M,
    limit: Duration,
) -> Result<T, NoAnswer> {
    let (reply, answer) = oneshot();
    link.carry(message((reply, limit).into())).map_err(|Unreachable| NoAnswer::Gone)?;
    match tokio::time::timeout(limit, answer).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(_)) => Err(NoAnswer::Gone),
        Err(_) => Err(NoAnswer::Late),
    }
}

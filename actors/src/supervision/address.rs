//! The way to one incarnation of an actor. All messages between actors go through an address.
//! Another way to an actor is another case of this type, and changes this file alone.

use std::time::Duration;

use ractor::{ActorCell, ActorId, ActorRef, ActorStatus, RpcReplyPort, rpc::CallResult};

use crate::message::Letter;

/// The way to one incarnation of an actor.
#[derive(Debug)]
pub enum Address<M> {
    /// The mailbox of an actor in this process.
    Mailbox(ActorRef<M>),
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
        let Self::Mailbox(mailbox) = self;
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
        }
    }

    /// Kills the actor at its next `.await`.
    pub fn kill(&self) {
        match self {
            Self::Mailbox(mailbox) => mailbox.kill(),
        }
    }

    /// Returns the actor's number, by which its supervisor knows it.
    pub(crate) fn id(&self) -> ActorId {
        match self {
            Self::Mailbox(mailbox) => mailbox.get_id(),
        }
    }

    /// Returns the actor, for its supervisor and the watchdog: only an actor of this process can be
    /// killed and linked.
    pub(crate) fn cell(&self) -> ActorCell {
        match self {
            Self::Mailbox(mailbox) => mailbox.get_cell(),
        }
    }
}

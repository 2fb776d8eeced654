//! Messages to a supervisor.

use ractor::{ActorId, RpcReplyPort};

use super::edge::{Edge, Letter, pings};

/// A message that a supervisor receives. Deaths of its children arrive as supervision events
/// instead.
#[derive(Debug)]
pub enum SupervisorMessage {
    /// From the supervisor itself, after the back-off: start these children now.
    Restart {
        /// Index of the first child to replace.
        first: usize,
        /// One more than the index of the last child to replace.
        end: usize,
    },
    /// From the watchdog: this child hangs, and a kill does not end it. Start a replacement without
    /// waiting for its end.
    Abandon(ActorId),
    /// From the parent or the engine: stop all children in reverse order, then reply.
    Shutdown(RpcReplyPort<()>),
    /// From the watchdog: a question whether the actor still takes messages.
    Ping,
}

impl Letter for SupervisorMessage {
    fn edge(&self) -> Edge {
        Edge::TIMER
    }

    pings!();

    fn duplicate(&self) -> Option<Self> {
        Some(match self {
            &Self::Restart { first, end } => Self::Restart { first, end },
            Self::Abandon(child) => Self::Abandon(*child),
            Self::Ping => Self::Ping,
            Self::Shutdown(_) => return None,
        })
    }
}

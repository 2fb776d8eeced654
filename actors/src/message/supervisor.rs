//! To a supervisor.

use ractor::{ActorId, RpcReplyPort};

use super::edge::{Edge, Letter, pings};

/// Received by a supervisor. The deaths of its children reach it as supervision events.
#[derive(Debug)]
pub enum SupervisorMessage {
    /// From itself, after the back-off: start these children now.
    Restart {
        /// First child to replace.
        first: usize,
        /// One past the last.
        end: usize,
    },
    /// From the watchdog: this child hangs and a kill does not reach it. Replace it without it.
    Abandon(ActorId),
    /// From its parent or the engine: stop all children in reverse order, then answer.
    Shutdown(RpcReplyPort<()>),
    /// From the watchdog.
    Ping,
}

impl Letter for SupervisorMessage {
    fn edge(&self) -> Edge {
        Edge::Timer
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

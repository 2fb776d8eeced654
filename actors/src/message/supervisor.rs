//! To a supervisor.

use ractor::RpcReplyPort;

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
    /// From its parent or the engine: stop all children in reverse order, then answer.
    Shutdown(RpcReplyPort<()>),
}

//! Messages to the encoder cache manager: the items that requests need, and encoded items. Lists
//! and answers are states, so the messages have no numbers. See [`crate::logic::encoder_cache`].

use ractor::RpcReplyPort;

use super::edge::{Edge, Letter, edge, pings};
use crate::logic::encoder_cache::{Encoded, EncoderCacheView, EncoderNeeds};

/// A message that the encoder cache manager receives.
#[derive(Debug)]
pub enum EncoderCacheManagerMessage {
    /// From the scheduler: the items that requests need now. The scheduler repeats the message from
    /// time to time while an item is not ready.
    Needs(EncoderNeeds),
    /// From the encoder worker: the end of a batch.
    Encoded {
        /// The manager that made the batch.
        manager: u64,
        /// The number of the batch.
        number: u64,
        /// The end of each item.
        encoded: Vec<Encoded>,
    },
    /// From the operator: forget all items that no request needs.
    Reset(RpcReplyPort<()>),
    /// From an observer outside the engine: return the figures.
    View(RpcReplyPort<EncoderCacheView>),
    /// From the manager's own timer.
    Tick,
    /// From the watchdog: a question whether the actor still takes messages.
    Ping,
}

impl Letter for EncoderCacheManagerMessage {
    fn edge(&self) -> Edge {
        match self {
            Self::Needs(_) => edge!(Scheduler -> EncoderCacheManager),
            Self::Encoded { .. } => edge!(EncoderWorker -> EncoderCacheManager),
            Self::Reset(_) => edge!(Door -> EncoderCacheManager),
            Self::View(_) | Self::Tick | Self::Ping => Edge::TIMER,
        }
    }

    pings!();

    fn duplicate(&self) -> Option<Self> {
        Some(match self {
            Self::Needs(needs) => Self::Needs(needs.clone()),
            Self::Encoded { manager, number, encoded } => {
                let (manager, number) = (*manager, *number);
                Self::Encoded { manager, number, encoded: encoded.clone() }
            }
            Self::Tick => Self::Tick,
            Self::Ping => Self::Ping,
            Self::Reset(_) | Self::View(_) => return None,
        })
    }
}

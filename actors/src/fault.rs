//! Planned faults: messages that are lost, doubled or late, and actors that panic, are killed or
//! hang. Until the first one is ordered, each check for faults is one load and one branch.

use std::time::Duration;

use serde::{Deserialize, Serialize};

mod chaos;
mod observe;

pub use self::chaos::{Chaos, Strikes};
pub use self::observe::{Observed, Observer};
pub use crate::logic::planted::{Bug, planted};

/// The kind of a strike, which is a fault of an actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum How {
    /// A panic in its handler.
    Panic,
    /// A kill from outside, between two `.await`s.
    Kill,
    /// A handler that never ends.
    Hang,
}

impl How {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Panic, Self::Kill, Self::Hang];

    /// Returns the name in the chaos interface.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Panic => "panic",
            Self::Kill => "kill",
            Self::Hang => "hang",
        }
    }
}

/// The delivery of one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivery {
    /// Number of copies that arrive: 0, 1 or 2.
    pub copies: u8,
    /// Delay of the copies.
    pub delay: Option<Duration>,
}

impl Delivery {
    /// One copy without delay.
    pub const PLAIN: Self = Self { copies: 1, delay: None };
}

/// The fate of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallFate {
    /// No fault.
    Plain,
    /// The call never arrives, and its caller gets no answer.
    LoseRequest,
    /// The call is handled, and its caller gets no answer.
    LoseAnswer,
    /// The call is late by this time.
    Delay(Duration),
}

/// The faults of an edge's messages. The probabilities are independent.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct EdgeFaults {
    /// Probability in `[0, 1]` that a message is lost.
    pub drop: f64,
    /// Probability in `[0, 1]` that it arrives twice.
    pub duplicate: f64,
    /// Probability in `[0, 1]` that it is late. Later messages may overtake it.
    pub late: f64,
    /// Maximum delay of a late message.
    pub delay: Duration,
}

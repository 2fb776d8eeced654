//! The end of a request: by a token ([`check_stop`]) or by a stop string ([`StopStringMatcher`]).
mod condition;
mod strings;

pub use condition::{RepetitionDetection, StopConditions, StopKind, check_stop};
pub use strings::{Released, StopMatch, StopStringMatcher, check_stop_strings};

//! The journal: which requests and answers must survive the process, as records in frames.
//!
//! Tokens are not recorded, because seed and position determine each of them. So a request is
//! recorded when it is accepted and when it ends. An *answer* is what a client sees of one or
//! several requests. Its data belong to the server, and the journal keeps them by name.
//!
//! A segment is a row of [frames](crate::codec). The journal's content is the fold of the newest
//! segment's records ([`Live`]). A new segment begins with the records of the fold, so older
//! segments are not needed ([`Live::snapshot`]).

mod acceptance;
mod fingerprint;
mod live;
mod merge;
mod record;
mod segment;
#[cfg(test)]
mod tests;
mod trial;

pub use acceptance::Acceptance;
pub use fingerprint::{Difference, Fingerprint};
pub use live::{Answer, Live, Request};
pub use record::Record;
pub use segment::{FRAMES, Scan, ScanFault, scan};
pub use trial::{NUM_DEATHS_MAX, Trial, groups};

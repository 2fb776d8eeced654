//! A recording: all inputs of one engine's scheduler and KV cache manager, in order, and the
//! results of its steps. Both are pure, so the recording alone makes their whole run again.
//!
//! It is a row of [frames](crate::codec) with entries. [`Replay`] applies them to a scheduler and a
//! KV cache manager of its own, and compares each planned step with the recorded one. A [`Device`]
//! may compute the steps again. Without one, the recorded tokens are taken.
//!
//! A [`redacted`] recording has the same schedule and no text.

mod content;
mod digest;
mod entry;
mod redact;
mod replay;
mod row;
mod scan;

pub use content::{ENTRY_CONTENT_BYTES_MAX, RecordedContent};
pub use digest::{schedule_hash, tokens_hash};
pub use entry::{
    Began, Entry, Executed, KvCacheBegan, KvContentKept, PlannedRow, PlannedStep, StopCause,
};
pub use redact::{RedactError, redacted};
pub use replay::{Device, DeviceFault, Event, NoDevice, Replay, ReplayError};
pub use row::{RowDone, RowRest, RowResult};
pub use scan::{FRAMES, Scan, ScanFault, encode, scan};

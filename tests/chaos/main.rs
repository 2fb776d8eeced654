//! Every actor dies in every way while clients stream from the demo model, on real threads. Each
//! stream equals that of a run without faults. In the end no request is open and no block is held.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod http;
mod images;
mod kv_dtypes;
mod roles;
#[path = "../serving/mod.rs"]
mod serving;
mod storms;
#[path = "../workload/mod.rs"]
mod workload;

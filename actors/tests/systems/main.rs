//! Whole systems over a fake model: streams, and streams while actors are killed. They are one
//! program because the linker takes longer for a program than the compiler for such a file.

mod chaos;
#[path = "../common/mod.rs"]
mod common;
mod engine_process;
mod engines;
mod failures;
mod kept_kv_cache;
mod left_behind;
mod long_prompts;
mod overload;
mod pause;
mod poison;
mod recovery;
mod shares;
mod spare;
mod structured_output;
mod supervision;
mod system;
mod view;

//! Properties that hold under random requests, failures and crashes.

mod admission;
mod block_pool;
mod device;
mod engine;
mod hits;
mod kept;
mod kept_words;
mod poison;
mod recording;
mod shares;
mod tails;
mod world;

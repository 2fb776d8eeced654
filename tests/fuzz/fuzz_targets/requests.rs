//! Request bodies: for all bodies, the route reads the body or rejects it with a 4xx status.
//!
//! The first byte of an input picks the route. The rest is the body.
#![no_main]

use std::{
    sync::LazyLock,
    time::{Duration, Instant},
};

use libfuzzer_sys::fuzz_target;
use playhouse::{
    config::LimitSettings,
    server::{BodyError, ROUTES_WITH_BODY, check_body},
};

/// Longest time for one input, instrumented and beside other processes.
const PATIENCE: Duration = Duration::from_secs(10);

static LIMITS: LazyLock<LimitSettings> = LazyLock::new(LimitSettings::default);

fuzz_target!(|data: &[u8]| {
    let Some((route, body)) = data.split_first() else { return };
    let path = ROUTES_WITH_BODY[*route as usize % ROUTES_WITH_BODY.len()];
    let start = Instant::now();
    match check_body(path, body, &LIMITS) {
        Ok(()) => {}
        Err(BodyError::Refused { status, message }) => {
            assert!((400..500).contains(&status), "{status}: {message}");
            assert!(!message.is_empty());
        }
        Err(BodyError::NoRoute(path)) => panic!("{path} is a route"),
    }
    assert!(start.elapsed() < PATIENCE, "{:?}", start.elapsed());
});

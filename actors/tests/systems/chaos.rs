//! Tests every role with every way to die, and every edge with lost, doubled and late messages, on
//! real threads. The streams are those of a run without faults, and nothing stays open.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use crate::common::{collect, constrained, expected_text, request, spawn_with};
use playhouse_actors::{
    fault::{EdgeFaults, How},
    logic::recovery::restart::Intensity,
    message::{Edge, Role},
    system::{Supervision, System, SystemConfig},
};

const REQUESTS: u32 = 8;
const TOKENS: u32 = 120;

/// Shortens all timeouts. No supervisor gives up.
fn impatient(config: &mut SystemConfig) {
    config.supervision = Supervision::uniform(Intensity { max_restarts: 1_000, window: 1_000 });
    config.tick = Duration::from_millis(10);
    config.call_timeout = Duration::from_millis(200);
    config.input_timeout = Duration::from_millis(500);
    config.egress_timeout = Duration::from_millis(100);
    config.hang_timeout = Duration::from_millis(400);
    config.min_step_deadline = Duration::from_millis(400);
    config.first_step_deadline = Duration::from_millis(400);
}

/// Runs streams and calls `strike` `strikes` times, with `pause` between the calls. All streams
/// must be those of a run without faults.
async fn streams_survive(strike: impl Fn(&System, u32), strikes: u32, pause: Duration) {
    let (system, _) = spawn_with(64, impatient).await;
    let mut streams = tokio::task::JoinSet::new();
    for salt in 0..REQUESTS {
        // Half of them wait for a grammar, and again after each recovery.
        let (prompt, raw) = match salt % 2 {
            0 => request(salt, 40, TOKENS),
            _ => constrained(salt, TOKENS, "[0-9]+"),
        };
        let mut submission = system.submit(raw).await.unwrap();
        let stream = submission.choices.remove(0);
        streams.spawn(async move { (prompt, collect(stream).await) });
    }
    for index in 0..strikes {
        strike(&system, index);
        tokio::time::sleep(pause).await;
    }
    let ended = tokio::time::timeout(Duration::from_secs(120), streams.join_all()).await;
    for (prompt, (text, finish)) in ended.expect("all streams end") {
        assert_eq!((text, finish.as_str()), (expected_text(&prompt, TOKENS as usize), "length"));
    }
    system.chaos().calm();
    assert!(system.drain(Duration::from_secs(60)).await, "nothing stays open");
    system.shutdown().await;
}

async fn dies(role: Role) {
    for how in How::ALL {
        let strike = |system: &System, _| {
            system.chaos().strike(role, 0, how).unwrap();
        };
        streams_survive(strike, 3, Duration::from_millis(3)).await;
    }
}

/// Makes a test for each role, with the role's name.
macro_rules! deaths {
    ($($role:ident,)*) => {
        $(#[tokio::test(flavor = "multi_thread")]
        #[allow(non_snake_case, reason = "it is a role's name")]
        async fn $role() {
            super::dies(Role::$role).await;
        })*
    };
}

mod death_of {
    use super::Role;

    playhouse_actors::for_each_role!(deaths);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_edge_loses_doubles_and_delays() {
    for edge in Edge::ALL {
        let faults =
            EdgeFaults { drop: 0.05, duplicate: 0.05, late: 0.05, delay: Duration::from_millis(5) };
        let strike = |system: &System, _| system.chaos().set_edge(edge, faults);
        streams_survive(strike, 1, Duration::from_millis(1)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storm() {
    let roles = [Role::KvCacheManager, Role::Scheduler, Role::Worker, Role::Ledger, Role::Core];
    let strike = |system: &System, index: u32| {
        let role = roles[index as usize % roles.len()];
        drop(system.chaos().strike(role, 0, How::ALL[index as usize % 2]));
    };
    streams_survive(strike, 40, Duration::from_millis(2)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_root_cannot_be_struck() {
    let (system, _) = spawn_with(64, impatient).await;
    assert!(system.chaos().strike(Role::Root, 0, How::Kill).is_err());
    assert!(system.chaos().strike(Role::Detokenizer, 9, How::Kill).is_err());
    system.shutdown().await;
}

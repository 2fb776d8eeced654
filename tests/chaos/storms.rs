//! Storms over all roles at once, and lost messages besides.

use std::time::Duration;

use playhouse::api::{Edge, EdgeFaults, How, Role};

use crate::workload::{self, BusyEngine};

/// Strikes of the storm, and the time between two of them.
const STRIKES: usize = 100;
const PAUSE: Duration = Duration::from_millis(50);

/// Returns strikes at all roles but the root, in turn. Every eleventh strike makes its actor hang.
/// The others make it panic or kill it.
fn strikes() -> Vec<(Role, How)> {
    let roles = Role::ACTORS.into_iter().filter(|role| *role != Role::Root);
    let ways = [How::Panic, How::Kill].into_iter().cycle();
    let strike = |(turn, (role, how)): (usize, (Role, How))| {
        (role, if turn % 11 == 10 { How::Hang } else { how })
    };
    roles.cycle().zip(ways).enumerate().map(strike).take(STRIKES).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_over_all_roles() {
    let busy = BusyEngine::open(workload::engine().await).await;
    let deaths = busy.storm(&strikes(), PAUSE).await;
    assert!(deaths >= STRIKES as u64 / 2, "{deaths} deaths");
    busy.close().await.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_over_steps_planned_ahead() {
    let engine = workload::engine_with(|config| config.async_scheduling = Some(true)).await;
    let busy = BusyEngine::open(engine).await;
    let deaths = busy.storm(&strikes()[..50], PAUSE).await;
    assert!(deaths >= 25, "{deaths} deaths");
    busy.close().await.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_over_requests_with_adapters() {
    let expected = workload::answers_of(workload::engine_with_adapters().await).await;
    let base = workload::expected().await;
    assert!(expected.iter().zip(base).any(|(with, without)| with != without), "no effect");
    let engine = workload::engine_with_adapters().await;
    let busy = BusyEngine::open_expecting(engine, expected).await;
    let deaths = busy.storm(&strikes()[..50], PAUSE).await;
    assert!(deaths >= 25, "{deaths} deaths");
    busy.close().await.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_get_lost_in_a_storm() {
    let busy = BusyEngine::open(workload::engine().await).await;
    let faults =
        EdgeFaults { drop: 0.005, duplicate: 0.01, late: 0.01, delay: Duration::from_millis(5) };
    for edge in Edge::ALL {
        busy.engine.chaos().set_edge(edge, faults);
    }
    busy.storm(&strikes()[..20], PAUSE).await;
    assert!(busy.engine.chaos().source().num_faults() > 0);
    busy.close().await.shutdown().await;
}

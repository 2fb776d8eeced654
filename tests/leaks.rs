//! A storm leaves nothing behind in the process: no thread, no file descriptor, no task. This is
//! the only test of its file because it counts the resources of the whole process.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod workload;

use std::{fs, time::Duration};

use playhouse::api::{How, Role};
use tokio::runtime::{Builder, Handle};
use workload::BusyEngine;

/// Rounds of strikes. A round strikes each role once; half of the strikes panic and half kill.
const ROUNDS: usize = 5;
const PAUSE: Duration = Duration::from_millis(50);
/// Longest time until threads and tasks have ended.
const SETTLING: Duration = Duration::from_secs(60);

/// Resources that a process can leak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Holdings {
    threads: usize,
    file_descriptors: usize,
    tasks: usize,
}

impl Holdings {
    fn now(runtime: &Handle) -> Self {
        let count = |folder: &str| fs::read_dir(folder).unwrap().count();
        Self {
            threads: count("/proc/self/task"),
            file_descriptors: count("/proc/self/fd"),
            tasks: runtime.metrics().num_alive_tasks(),
        }
    }

    fn is_within(&self, other: &Self) -> bool {
        self.threads <= other.threads
            && self.file_descriptors <= other.file_descriptors
            && self.tasks <= other.tasks
    }
}

/// Waits until the process has no more resources than `before`.
async fn settle(before: Holdings, when: &str) {
    let runtime = Handle::current();
    let settled = async {
        while !Holdings::now(&runtime).is_within(&before) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let in_time = tokio::time::timeout(SETTLING, settled).await.is_ok();
    assert!(in_time, "{when}: {before:?} became {:?}", Holdings::now(&runtime));
}

async fn storm(busy: &BusyEngine) {
    let roles = Role::ACTORS.into_iter().filter(|role| *role != Role::Root);
    let ways = [How::Panic, How::Kill].into_iter().cycle();
    let strikes = roles.cycle().zip(ways).take(ROUNDS * (Role::ACTORS.len() - 1));
    let strikes: Vec<_> = strikes.chain([(Role::Worker, How::Hang)]).collect();
    busy.storm(&strikes, PAUSE).await;
}

async fn nothing_is_left() {
    // The first engine starts the compute threads, which the process keeps.
    workload::expected().await;
    let runtime = Handle::current();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let empty = Holdings::now(&runtime);

    let engine = BusyEngine::open(workload::engine().await).await.close().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let idle = Holdings::now(&runtime);
    let busy = BusyEngine::open(engine).await;
    storm(&busy).await;
    let engine = busy.close().await;
    settle(idle, "after a storm").await;

    engine.shutdown().await;
    drop(engine);
    settle(empty, "after the engine's end").await;
}

#[test]
fn a_storm_leaves_nothing_behind() {
    // Blocking threads end soon, so that the test does not take them for leaks.
    let mut runtime = Builder::new_multi_thread();
    runtime.worker_threads(2).thread_keep_alive(Duration::from_millis(100)).enable_all();
    runtime.build().unwrap().block_on(nothing_is_left());
}

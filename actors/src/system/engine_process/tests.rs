//! The requests of an engine wait for its spare process, without a moment in which they could move.
//! The tests fail if the wait is removed, and if it begins too late.

use std::{
    io,
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::runtime::Handle;

use super::EngineProcess;
use crate::{
    link::{EngineLauncher, Launched, spare::Spare},
    logic::request::ids::EngineIndex,
};

/// Number of ends. A look must meet the few instructions within one of them.
const ROUNDS: usize = 2_000;

#[derive(Debug)]
struct NoLauncher;

impl EngineLauncher for NoLauncher {
    fn launch(&self) -> io::Result<Launched> {
        Err(io::Error::other("there are no processes in this test"))
    }
}

/// Returns an engine that serves, and whether its spare process is ready.
fn serving() -> (EngineProcess, Arc<AtomicBool>) {
    let process = EngineProcess::with_first(EngineIndex(0), Arc::new(NoLauncher), None);
    let is_ready = Arc::new(AtomicBool::new(true));
    *process.spare.lock() = Some(Spare::for_test(Arc::clone(&is_ready)));
    process.core_started();
    (process, is_ready)
}

#[tokio::test(start_paused = true)]
async fn requests_stay_while_a_spare_process_takes_over() {
    let (process, is_ready) = serving();
    assert!(!process.lets_requests_go(), "it serves");
    process.detach();
    assert!(!process.lets_requests_go(), "its spare process is ready");
    is_ready.store(false, Ordering::Release);
    assert!(process.lets_requests_go(), "its spare process has ended");
    is_ready.store(true, Ordering::Release);
    process.core_started();
    process.drop_spare();
    process.detach();
    assert!(process.lets_requests_go(), "there is no spare process");
}

/// The ledger may look at any moment of the end of a process.
#[tokio::test(start_paused = true)]
async fn the_wait_begins_before_an_engine_counts_as_one_without_a_process() {
    let runtime = Handle::current();
    for round in 0..ROUNDS {
        let (process, _is_ready) = serving();
        let (begin, is_over) = (Barrier::new(2), AtomicBool::new(false));
        let have_gone = std::thread::scope(|scope| {
            let looks = scope.spawn(|| {
                // Its clock stands still, so the wait does not end.
                let _clock = runtime.enter();
                begin.wait();
                loop {
                    if process.lets_requests_go() {
                        return true;
                    }
                    if is_over.load(Ordering::Acquire) {
                        return false;
                    }
                }
            });
            begin.wait();
            process.detach();
            is_over.store(true, Ordering::Release);
            looks.join().unwrap()
        });
        assert!(!have_gone, "the requests may move in round {round}");
    }
}

//! The requests of an engine wait for its spare process, without a moment in which they could move.
//! The tests fail if the wait is removed, and if it begins too late.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::runtime::Handle;

use super::EngineProcess;
use crate::{
    link::{EngineLauncher, Launched, spare::Spare},
    logic::request::ids::EngineIndex,
};

/// Time for which the beginning of a wait is held back. The instructions before it take far less.
const HELD_BACK: Duration = Duration::from_millis(200);

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
    let (process, _is_ready) = serving();
    let runtime = Handle::current();
    std::thread::scope(|scope| {
        // Within the scope, because it is released before a failed test waits for the thread.
        let held = process.wait.hold();
        let detaches = scope.spawn(|| {
            // Its clock stands still, so the wait does not end.
            let _clock = runtime.enter();
            process.detach();
        });
        let until = Instant::now() + HELD_BACK;
        while Instant::now() < until {
            assert!(process.is_serving(), "its requests may go on in another engine");
            std::thread::park_timeout(Duration::from_millis(1));
        }
        assert!(!detaches.is_finished(), "it begins no wait");
        drop(held);
        detaches.join().unwrap();
    });
    assert!(!process.is_serving());
    assert!(!process.lets_requests_go(), "its spare process is ready");
}

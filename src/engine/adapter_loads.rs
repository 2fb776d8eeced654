//! The loads of adapters that clients ask for. A load that hangs is given up after a time, and
//! keeps its folder and its thread until it ends.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout_at},
};

/// Most loads at once, with those that hang.
const MAX_THREADS: usize = 16;
/// Longest time of a load, with the time in which it waits for others.
const LOAD_LIMIT: Duration = Duration::from_secs(60);

/// The loads of one engine.
#[derive(Debug)]
pub(super) struct AdapterLoads {
    threads: Arc<Semaphore>,
    /// A folder is read by one load at a time.
    folders: Mutex<BTreeMap<String, Weak<Semaphore>>>,
    limit: Duration,
}

/// Whether nothing waits for the result of a load.
#[derive(Debug, Clone, Default)]
pub(super) struct GivenUp(Arc<AtomicBool>);

/// The reason why a load has no result.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoResult {
    /// The load took too long, or waited too long for others.
    TooLong,
    /// It panicked with this message.
    Panicked(String),
}

impl Default for AdapterLoads {
    fn default() -> Self {
        Self::new(LOAD_LIMIT)
    }
}

impl AdapterLoads {
    fn new(limit: Duration) -> Self {
        let threads = Arc::new(Semaphore::new(MAX_THREADS));
        Self { threads, folders: Mutex::default(), limit }
    }

    /// Runs `load` on a thread that may block, after all earlier loads from the folder `path`.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        path: &str,
        load: impl FnOnce(&GivenUp) -> T + Send + 'static,
    ) -> Result<T, NoResult> {
        let deadline = Instant::now() + self.limit;
        let permits = async {
            let folder = self.folder(path).acquire_owned().await;
            (folder, Arc::clone(&self.threads).acquire_owned().await)
        };
        let (folder, thread) =
            timeout_at(deadline, permits).await.map_err(|_| NoResult::TooLong)?;
        let given_up = GivenUp::default();
        let seen = given_up.clone();
        let load = tokio::task::spawn_blocking(move || {
            let result = load(&seen);
            drop((folder, thread));
            result
        });
        match timeout_at(deadline, load).await {
            Ok(result) => result.map_err(|error| NoResult::Panicked(error.to_string())),
            Err(_) => {
                given_up.0.store(true, Ordering::Relaxed);
                Err(NoResult::TooLong)
            }
        }
    }

    /// Returns the permit of a folder.
    fn folder(&self, path: &str) -> Arc<Semaphore> {
        let mut folders = self.folders.lock();
        if let Some(folder) = folders.get(path).and_then(Weak::upgrade) {
            return folder;
        }
        folders.retain(|_, folder| folder.strong_count() > 0);
        let folder = Arc::new(Semaphore::new(1));
        folders.insert(path.to_owned(), Arc::downgrade(&folder));
        folder
    }
}

impl GivenUp {
    /// Returns whether the load must have no effect.
    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;

    /// The limit of a test in which one load hangs.
    const SHORT: Duration = Duration::from_millis(500);

    #[tokio::test]
    async fn a_load_that_hangs_is_given_up_and_delays_its_folder_alone() {
        let loads = AdapterLoads::new(SHORT);
        let (release, hold) = sync_channel::<()>(0);
        let (tell, told) = sync_channel(1);
        let hanging = loads.run("/slow", move |given_up| {
            hold.recv().unwrap();
            tell.send(given_up.is_set()).unwrap();
        });
        assert_eq!(hanging.await, Err(NoResult::TooLong));
        assert_eq!(loads.run("/fast", |_| 5).await, Ok(5));
        assert_eq!(loads.run("/slow", |_| 5).await, Err(NoResult::TooLong), "it waits its turn");
        release.send(()).unwrap();
        assert!(told.recv().unwrap(), "a late load has no effect");
        assert_eq!(AdapterLoads { limit: LOAD_LIMIT, ..loads }.run("/slow", |_| 7).await, Ok(7));
    }

    #[tokio::test]
    async fn folders_are_forgotten_and_panics_are_told() {
        let loads = AdapterLoads::default();
        for number in 0..10 {
            assert_eq!(loads.run(&format!("/{number}"), move |_| number).await, Ok(number));
        }
        assert!(loads.folders.lock().len() <= 1);
        let panicked = loads.run("/bad", |_| panic!("planned")).await;
        assert!(matches!(panicked, Err::<(), _>(NoResult::Panicked(why)) if why.contains("plan")));
    }
}

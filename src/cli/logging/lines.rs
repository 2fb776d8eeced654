//! Lines for a stream that may be slow, written by a thread of their own. Lines that do not fit
//! into the queue are dropped and counted. `tracing-appender` is not used, because its queue has no
//! limit in bytes and it does not report failed writes. At the end it also prints to standard
//! output, which may be the same pipe.

use std::{
    io::{self, Write},
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

/// Most lines in the queue.
const QUEUED_LINES_MAX: usize = 8192;
/// Most bytes in the queue.
const QUEUED_BYTES_MAX: usize = 1 << 20;
/// Interval at which [`Lines::flush`] tries a full queue again.
const RETRY_INTERVAL: Duration = Duration::from_millis(5);

enum Message {
    Line(Vec<u8>),
    /// A request that is answered once all lines before it are written.
    Flush(SyncSender<()>),
}

#[derive(Debug, Default)]
struct Counters {
    queued_bytes: AtomicUsize,
    dropped: AtomicU64,
}

/// The queue.
#[derive(Debug)]
pub(super) struct Lines {
    sender: SyncSender<Message>,
    counters: Arc<Counters>,
}

impl Lines {
    /// Returns lines for `output`. Once `output` takes lines again, `tell` is called with the
    /// number of lines dropped since the last call.
    ///
    /// # Errors
    /// When the system cannot start a thread.
    pub(super) fn spawn(
        output: impl Write + Send + 'static,
        tell: impl FnMut(u64) + Send + 'static,
    ) -> io::Result<Self> {
        let (sender, receiver) = sync_channel(QUEUED_LINES_MAX);
        let counters = Arc::new(Counters::default());
        let shared = counters.clone();
        let write = move || write_lines(output, &receiver, &shared, tell);
        thread::Builder::new().name("playhouse-log".to_owned()).spawn(write)?;
        Ok(Self { sender, counters })
    }

    /// Queues a line, or drops it. Never waits.
    pub(super) fn push(&self, line: &[u8]) {
        let counters = &self.counters;
        let queued = counters.queued_bytes.fetch_add(line.len(), Relaxed) + line.len();
        let fits = queued <= QUEUED_BYTES_MAX;
        if !fits || self.sender.try_send(Message::Line(line.to_vec())).is_err() {
            counters.queued_bytes.fetch_sub(line.len(), Relaxed);
            counters.dropped.fetch_add(1, Relaxed);
        }
    }

    /// Returns the number of lines that found no room or could not be written.
    pub(super) fn dropped(&self) -> u64 {
        self.counters.dropped.load(Relaxed)
    }

    /// Waits for all lines queued before. Returns whether they were written within `limit`.
    pub(super) fn flush(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        let (done, is_done) = sync_channel(1);
        let mut message = Message::Flush(done);
        while let Err(TrySendError::Full(refused)) = self.sender.try_send(message) {
            if Instant::now() >= deadline {
                return false;
            }
            message = refused;
            #[allow(clippy::disallowed_methods, reason = "the process ends, and waits for this")]
            thread::sleep(RETRY_INTERVAL);
        }
        is_done.recv_timeout(deadline.saturating_duration_since(Instant::now())).is_ok()
    }
}

fn write_lines(
    mut output: impl Write,
    queue: &Receiver<Message>,
    counters: &Counters,
    mut tell: impl FnMut(u64),
) {
    let (mut told, mut is_taken) = (0, true);
    while let Ok(first) = queue.recv() {
        for message in std::iter::once(first).chain(queue.try_iter()) {
            match message {
                Message::Line(line) => {
                    is_taken = output.write_all(&line).is_ok();
                    counters.queued_bytes.fetch_sub(line.len(), Relaxed);
                    counters.dropped.fetch_add(u64::from(!is_taken), Relaxed);
                }
                // The caller may have stopped waiting.
                Message::Flush(done) => drop(done.try_send(())),
            }
        }
        // While the stream takes nothing, a message about that would be dropped too.
        let dropped = counters.dropped.load(Relaxed);
        if is_taken && dropped > told {
            tell(dropped - told);
            told = dropped;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::RecvTimeoutError;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    /// Takes a line whenever a permit comes. Fails once no permits can come.
    struct Gate {
        permits: Receiver<()>,
        taken: SyncSender<Vec<u8>>,
    }

    impl Write for Gate {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.permits.recv().map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
            self.taken.send(bytes.to_vec()).unwrap();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    struct Log {
        lines: Lines,
        permits: SyncSender<()>,
        taken: Receiver<Vec<u8>>,
        told: Receiver<u64>,
    }

    fn log() -> Log {
        let (permits, granted) = sync_channel(2 * QUEUED_LINES_MAX);
        let (taken, was_taken) = sync_channel(2 * QUEUED_LINES_MAX);
        let (tell, told) = sync_channel(8);
        let gate = Gate { permits: granted, taken };
        let lines = Lines::spawn(gate, move |dropped| tell.send(dropped).unwrap()).unwrap();
        Log { lines, permits, taken: was_taken, told }
    }

    #[test]
    fn a_stopped_output_costs_lines_and_no_time() {
        let log = log();
        let count = QUEUED_LINES_MAX + 100;
        for number in 0..count {
            log.lines.push(format!("{number}\n").as_bytes());
        }
        // The writer may hold one line.
        let dropped = log.lines.dropped();
        assert!((99..=100).contains(&dropped), "{dropped}");
        assert!(!log.lines.flush(Duration::from_millis(20)));
        let empty = log.told.recv_timeout(Duration::ZERO);
        assert_eq!(empty, Err(RecvTimeoutError::Timeout), "there is no room yet");
        for _ in 0..count {
            log.permits.send(()).unwrap();
        }
        assert_eq!(log.told.recv_timeout(PATIENCE).unwrap(), dropped);
        assert!(log.lines.flush(PATIENCE));
        let taken: Vec<_> = log.taken.try_iter().collect();
        assert_eq!(taken.len() as u64, count as u64 - dropped);
        assert_eq!(taken.first().unwrap(), b"0\n");
    }

    #[test]
    fn long_lines_are_limited_by_their_bytes() {
        let log = log();
        let line = vec![b'x'; QUEUED_BYTES_MAX / 4];
        for _ in 0..10 {
            log.lines.push(&line);
        }
        assert_eq!(log.lines.dropped(), 6);
    }

    #[test]
    fn unwritable_lines_are_counted_and_not_reported() {
        let log = log();
        drop(log.permits);
        for _ in 0..3 {
            log.lines.push(b"lost\n");
        }
        assert!(log.lines.flush(PATIENCE));
        assert_eq!(log.lines.dropped(), 3);
        assert_eq!(log.told.try_iter().count(), 0);
    }
}

//! Shows in a handler's pulse what the handler does: it computes, it waits, or it was woken and no
//! thread has taken it up. This tells a handler that hangs from one that lacks a processor.

use std::{
    cell::RefCell,
    future::poll_fn,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use parking_lot::Mutex;

use super::{pulse::Pulse, threads};

thread_local! {
    /// The pulse of the handler that this thread polls.
    static CURRENT: RefCell<Option<Arc<Pulse>>> = const { RefCell::new(None) };
}

/// Wakes the handler's task, and notes it in the pulse.
struct Alarm {
    pulse: Arc<Pulse>,
    task: Waker,
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.pulse.wake();
        self.task.wake_by_ref();
    }
}

/// The alarm of one actor. Its task is the same in every poll, so one is enough.
#[derive(Debug, Default)]
pub(crate) struct AlarmClock(Mutex<Option<(Waker, Waker)>>);

impl AlarmClock {
    /// Returns a waker that also notes the wake in the pulse.
    fn waker(&self, pulse: &Arc<Pulse>, task: &Waker) -> Waker {
        let mut kept = self.0.lock();
        match &*kept {
            Some((known, waker)) if known.will_wake(task) => waker.clone(),
            _ => {
                let alarm = Alarm { pulse: Arc::clone(pulse), task: task.clone() };
                let waker = Waker::from(Arc::new(alarm));
                *kept = Some((task.clone(), waker.clone()));
                waker
            }
        }
    }
}

/// The end of a poll and of the thread's work for this handler, also after a panic or a kill.
struct PollEnd<'a> {
    pulse: &'a Pulse,
    before: Option<Arc<Pulse>>,
}

impl<'a> PollEnd<'a> {
    fn begin(pulse: &'a Arc<Pulse>) -> Self {
        pulse.begin_poll(threads::current());
        let before = CURRENT.with_borrow_mut(|current| current.replace(Arc::clone(pulse)));
        Self { pulse, before }
    }
}

impl Drop for PollEnd<'_> {
    fn drop(&mut self) {
        let before = self.before.take();
        CURRENT.with_borrow_mut(|current| *current = before);
        self.pulse.end_poll();
    }
}

/// Runs `work`, and shows in `pulse` what it does.
pub(crate) async fn watched<T>(
    pulse: &Arc<Pulse>,
    clock: &AlarmClock,
    work: impl Future<Output = T>,
) -> T {
    let mut work = pin!(work);
    poll_fn(|cx| {
        let waker = clock.waker(pulse, cx.waker());
        let _poll = PollEnd::begin(pulse);
        work.as_mut().poll(&mut Context::from_waker(&waker))
    })
    .await
}

/// The declaration that the handler may wait or compute up to its actor's limit while this value
/// lives. Outside of a handler it has no effect.
#[derive(Debug)]
pub(crate) struct Long(Option<Arc<Pulse>>);

impl Long {
    /// Declares it from now on.
    pub(crate) fn begin() -> Self {
        let pulse = CURRENT.with_borrow(Clone::clone);
        if let Some(pulse) = &pulse {
            pulse.declare();
        }
        Self(pulse)
    }
}

impl Drop for Long {
    fn drop(&mut self) {
        if let Some(pulse) = &self.0 {
            pulse.take_back();
        }
    }
}

/// Waits for an event that may come late. A handler that awaits anything without this counts as
/// hanging.
pub(crate) async fn waiting_for<T>(event: impl Future<Output = T>) -> T {
    let _long = Long::begin();
    event.await
}

/// Lets other tasks of this thread run first. Any thread may then go on with the task. With tokio's
/// own `yield_now` this thread alone may, so a task that blocks the thread would block both.
pub(crate) async fn yield_now() {
    let mut has_yielded = false;
    waiting_for(poll_fn(|cx| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }))
    .await;
}

/// Records that the current handler expects to compute for `time`.
pub(crate) fn expect(time: Duration) {
    CURRENT.with_borrow(|pulse| {
        if let Some(pulse) = pulse {
            pulse.expect(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
        }
    });
}

#[cfg(test)]
mod tests {
    use tokio::sync::Notify;

    use super::*;
    use crate::logic::recovery::hang::Doing;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_task_that_yields_goes_on_while_its_thread_is_blocked() {
        let yields = tokio::spawn(async {
            let (has_gone_on, block) = std::sync::mpsc::sync_channel(1);
            let limit = Duration::from_secs(30);
            // It is this thread's next task, and no other thread can take it.
            let blocks = tokio::spawn(async move { block.recv_timeout(limit) });
            yield_now().await;
            has_gone_on.send(()).is_ok() && matches!(blocks.await, Ok(Ok(())))
        });
        assert!(matches!(yields.await, Ok(true)));
    }

    fn doing(pulse: &Pulse) -> Option<Doing> {
        pulse.sight(10).map(|sight| sight.doing)
    }

    /// Polls once.
    fn poll<T>(work: &mut std::pin::Pin<Box<impl Future<Output = T>>>) -> Poll<T> {
        work.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_pulse_shows_what_its_handler_does() {
        let (pulse, clock) = (Arc::new(Pulse::default()), AlarmClock::default());
        let (undeclared, declared) = (Notify::new(), Notify::new());
        pulse.begin_event(1);
        let mut work = Box::pin(watched(&pulse, &clock, async {
            assert_eq!(doing(&pulse), Some(Doing::Computing));
            expect(Duration::from_micros(7));
            undeclared.notified().await;
            waiting_for(declared.notified()).await;
            assert_eq!(doing(&pulse), Some(Doing::Computing));
        }));
        assert!(poll(&mut work).is_pending());
        assert_eq!((doing(&pulse), pulse.expected()), (Some(Doing::Waiting), 7));
        undeclared.notify_one();
        assert_eq!(doing(&pulse), Some(Doing::Woken));
        let before = pulse.sight(10).unwrap().turn;
        assert!(poll(&mut work).is_pending());
        assert_eq!(doing(&pulse), Some(Doing::Declared));
        assert_eq!(pulse.sight(10).unwrap().turn, before + 1);
        declared.notify_one();
        assert!(poll(&mut work).is_ready());
        pulse.end();
        assert_eq!(pulse.sight(10), None);
    }

    #[test]
    fn a_dropped_wait_is_no_longer_declared() {
        let (pulse, clock) = (Arc::new(Pulse::default()), AlarmClock::default());
        pulse.begin_event(1);
        let mut work = Box::pin(watched(&pulse, &clock, async {
            let given_up = async { waiting_for(std::future::pending::<()>()).await };
            tokio::select! {
                biased;
                () = given_up => {}
                () = async {} => {}
            }
            std::future::pending::<()>().await;
        }));
        assert!(poll(&mut work).is_pending());
        assert_eq!(doing(&pulse), Some(Doing::Waiting));
    }
}

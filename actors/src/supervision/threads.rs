//! The operating system's report on this process's threads: whether a thread runs, waits for a
//! processor, or sleeps. Only Linux reports it, and only if its scheduler keeps statistics.
//! Elsewhere nothing is known.

use std::{collections::BTreeMap, fs};

use crate::logic::{recovery::hang::ThreadUse, request::ids::Micros};

thread_local! {
    static NUMBER: u64 = number().unwrap_or(0);
}

/// Returns the system's number of this thread, 0 where the system has none.
pub(crate) fn current() -> u64 {
    NUMBER.with(|number| *number)
}

fn number() -> Option<u64> {
    fs::read_link("/proc/thread-self").ok()?.file_name()?.to_str()?.parse().ok()
}

/// The report on one thread, counted since its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Thread {
    ran: Micros,
    /// Time that it waited for a processor, without the current wait.
    lacked: Micros,
    /// `R`: runs or is ready to run; `D`: waits for a disk; else it sleeps.
    state: u8,
    /// Time that was counted as lacked before the system reported it. The system reports a wait for
    /// a processor when the wait has ended.
    ahead: Micros,
    /// Time that it may have lacked before this look, and that is not counted yet.
    pending: Micros,
}

/// All threads of the process at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Threads(BTreeMap<u64, Thread>);

impl Threads {
    /// Returns the report of this moment.
    pub(crate) fn look() -> Self {
        let Ok(tasks) = fs::read_dir("/proc/self/task") else { return Self::default() };
        let number = |name: std::ffi::OsString| name.to_str()?.parse::<u64>().ok();
        let numbers = tasks.flatten().filter_map(|task| number(task.file_name()));
        Self(numbers.filter_map(|number| Some((number, Thread::read(number)?))).collect())
    }

    /// Returns whether the system reports nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns how long threads lacked a processor since `before`. The waits of all threads are
    /// added up, because a step goes through several of them. The sum is at most `wall` plus the
    /// time that the look before could not see. The thread that looks does not count.
    pub(crate) fn starved_since(&mut self, before: &Self, wall: Micros) -> Micros {
        let (own, mut starved, mut unseen) = (current(), 0, 0);
        for (number, now) in &mut self.0 {
            if *number != own
                && let Some(before) = before.0.get(number)
            {
                starved += now.lacked_since(before, wall);
                unseen = unseen.max(before.pending);
            }
        }
        starved.min(wall + unseen)
    }

    /// Returns what `thread` did since `before`.
    pub(crate) fn use_since(&self, before: &Self, thread: u64) -> ThreadUse {
        let pair = self.0.get(&thread).zip(before.0.get(&thread));
        pair.map_or(ThreadUse::Unknown, |(now, before)| now.use_since(before))
    }
}

impl Thread {
    fn read(number: u64) -> Option<Self> {
        let of = |file: &str| fs::read_to_string(format!("/proc/self/task/{number}/{file}")).ok();
        Self::parse(&of("schedstat")?, &of("stat")?)
    }

    /// Parses `ran_ns lacked_ns slices`, and `number (name) state …`, where a name may hold any
    /// character.
    fn parse(schedstat: &str, stat: &str) -> Option<Self> {
        let mut times = schedstat.split(' ').map(|time| time.trim().parse::<u64>().ok());
        let (ran, lacked) = (times.next()?? / 1_000, times.next()?? / 1_000);
        let state = *stat.get(stat.rfind(')')? + 2..)?.as_bytes().first()?;
        Some(Self { ran, lacked, state, ahead: 0, pending: 0 })
    }

    /// Returns how long the thread lacked a processor since `before`, and notes the time that is
    /// still unknown.
    fn lacked_since(&mut self, before: &Self, wall: Micros) -> Micros {
        let ran = self.ran.saturating_sub(before.ran).min(wall);
        let reported = self.lacked.saturating_sub(before.lacked);
        match (before.state, self.state) {
            (b'D', b'D') => wall,
            // It was ready at both looks, so it lacked a processor whenever it did not run.
            (b'R', b'R') => {
                let lacked = wall - ran;
                let counted = before.ahead + lacked;
                self.ahead = counted.saturating_sub(reported);
                self.pending = if ran == 0 { before.pending } else { 0 };
                lacked + reported.saturating_sub(counted).min(before.pending)
            }
            (_, state) => {
                let lacked = reported.saturating_sub(before.ahead).min(wall + before.pending);
                if state == b'R' {
                    self.pending = (wall - ran).saturating_sub(lacked);
                }
                lacked
            }
        }
    }

    fn use_since(&self, before: &Self) -> ThreadUse {
        match self.state {
            b'R' => ThreadUse::Ran(self.ran.saturating_sub(before.ran)),
            b'D' => ThreadUse::WaitedForDisk,
            _ => ThreadUse::Slept,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;

    fn thread(ran: Micros, lacked: Micros, state: u8) -> Thread {
        Thread { ran, lacked, state, ahead: 0, pending: 0 }
    }

    #[test]
    fn the_report_of_the_system_is_read() {
        let stat = "12 (a) b) R) S 1 12 12";
        assert_eq!(Thread::parse("5000 7999 3\n", stat), Some(thread(5, 7, b'S')));
        assert_eq!(Thread::parse("", stat), None);
        assert_eq!(Thread::parse("1 2 3", "12 (x"), None);
    }

    #[test]
    fn a_thread_that_waits_for_a_processor_or_a_disk_lacks_it() {
        let cases = [
            (thread(10, 0, b'R'), thread(10, 0, b'R'), 20, "its wait is not reported yet"),
            (thread(10, 0, b'R'), thread(25, 5, b'R'), 5, "it ran besides"),
            (thread(10, 0, b'R'), thread(15, 5, b'R'), 15, "it waits again, or since longer"),
            (thread(10, 0, b'S'), thread(10, 0, b'S'), 0, "it sleeps"),
            (thread(10, 0, b'S'), thread(10, 0, b'R'), 0, "it was woken a moment ago"),
            (thread(10, 0, b'D'), thread(10, 0, b'D'), 20, "a disk"),
            (thread(10, 0, b'R'), thread(11, 900, b'S'), 20, "a wait that began before"),
        ];
        for (before, mut now, lacked, why) in cases {
            assert_eq!(now.lacked_since(&before, 20), lacked, "{why}");
        }
    }

    /// Each wait counts once and in full, at whatever times the looks are.
    #[test]
    fn a_wait_counts_once_over_several_looks() {
        // Looks come every 20: the state, and the time that the thread ran and lacked so far.
        let waits: [&[(u64, u64, u8)]; 4] = [
            // Woken at 5, waits until 47, runs until 50, sleeps.
            &[(0, 0, b'S'), (0, 0, b'R'), (0, 0, b'R'), (3, 42, b'S'), (3, 42, b'S')],
            // Woken at 18, waits until 39, runs until 40, sleeps.
            &[(0, 0, b'S'), (0, 0, b'R'), (1, 21, b'S'), (1, 21, b'S')],
            // Woken at 5, waits until 25, and runs.
            &[(0, 0, b'S'), (0, 0, b'R'), (15, 20, b'R'), (35, 20, b'R')],
            // Runs until 3, waits until 37, and runs.
            &[(0, 0, b'R'), (3, 0, b'R'), (6, 34, b'R'), (26, 34, b'R')],
        ];
        for looks in waits {
            let mut before = thread(looks[0].0, looks[0].1, looks[0].2);
            let mut counted = 0;
            for &(ran, lacked, state) in &looks[1..] {
                let mut now = thread(ran, lacked, state);
                counted += now.lacked_since(&before, 20);
                before = now;
            }
            assert_eq!(counted, looks.last().unwrap().1, "{looks:?}");
        }
    }

    /// A thread that gets a tenth of a processor lacks nine tenths.
    #[test]
    fn no_part_of_many_waits_is_lost() {
        let (mut before, mut counted) = (thread(0, 0, b'R'), 0);
        for look in 1..=100_u64 {
            // Runs for 3 of each 30, from the first on; a wait is reported when it ends.
            let time = look * 20;
            let (cycles, rest) = (time / 30, time % 30);
            let mut now = thread(cycles * 3 + rest.min(3), cycles * 27, b'R');
            counted += now.lacked_since(&before, 20);
            before = now;
        }
        assert!((1_780..=1_820).contains(&counted), "{counted} of 1,800");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_thread_that_sleeps_is_told_from_one_that_runs() {
        let (tell, told) = sync_channel(0);
        let (end, ended) = sync_channel::<()>(0);
        let sleeper = std::thread::spawn(move || {
            tell.send(current()).unwrap();
            let _ = ended.recv();
        });
        let sleeper_number = told.recv().unwrap();
        // After its message it may still run, or wait for a processor.
        let limit = std::time::Instant::now() + std::time::Duration::from_secs(60);
        let (before, now) = loop {
            let before = Threads::look();
            let began = std::time::Instant::now();
            while began.elapsed().as_millis() < 60 {}
            let now = Threads::look();
            let is_asleep = now.use_since(&before, sleeper_number) == ThreadUse::Slept;
            if is_asleep {
                break (before, now);
            }
            assert!(began < limit, "it does not sleep");
        };
        let own = now.use_since(&before, current());
        assert!(matches!(own, ThreadUse::Ran(ran) if ran > 0), "{own:?}");
        assert_eq!(now.use_since(&before, 0), ThreadUse::Unknown);
        drop(end);
        sleeper.join().unwrap();
    }
}

//! What the system says of this process's threads: whether one runs, waits for a processor, or
//! sleeps. Linux alone says it, and only where its scheduler keeps statistics; elsewhere nothing is
//! known.

use std::{collections::BTreeMap, fs};

use crate::logic::{hang::ThreadUse, ids::Micros};

thread_local! {
    static NUMBER: u64 = number().unwrap_or(0);
}

/// This thread, as the system numbers threads; 0 where it does not say.
pub(super) fn current() -> u64 {
    NUMBER.with(|number| *number)
}

fn number() -> Option<u64> {
    fs::read_link("/proc/thread-self").ok()?.file_name()?.to_str()?.parse().ok()
}

/// One thread so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Thread {
    ran: Micros,
    /// Waited for a processor, but for the wait that it is in.
    lacked: Micros,
    /// `R`: runs or would; `D`: waits for a disk; else it sleeps.
    state: u8,
}

/// All threads of the process at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Threads(BTreeMap<u64, Thread>);

impl Threads {
    /// As they are now.
    pub(super) fn look() -> Self {
        let Ok(tasks) = fs::read_dir("/proc/self/task") else { return Self::default() };
        let number = |name: std::ffi::OsString| name.to_str()?.parse::<u64>().ok();
        let numbers = tasks.flatten().filter_map(|task| number(task.file_name()));
        Self(numbers.filter_map(|number| Some((number, Thread::read(number)?))).collect())
    }

    /// Whether the system says nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How long threads lacked a processor since `before`, one after the other, in a time of `wall`: a
    /// step goes through several of them, so the waits of all count.
    pub(super) fn starved_since(&self, before: &Self, wall: Micros) -> Micros {
        let pairs = self.0.iter().filter_map(|(number, now)| Some((now, before.0.get(number)?)));
        pairs.map(|(now, before)| now.lacked_since(before, wall)).sum::<Micros>().min(wall)
    }

    /// What `thread` did since `before`.
    pub(super) fn use_since(&self, before: &Self, thread: u64) -> ThreadUse {
        let pair = self.0.get(&thread).zip(before.0.get(&thread));
        pair.map_or(ThreadUse::Unknown, |(now, before)| now.use_since(before))
    }
}

impl Thread {
    fn read(number: u64) -> Option<Self> {
        let of = |file: &str| fs::read_to_string(format!("/proc/self/task/{number}/{file}")).ok();
        Self::parse(&of("schedstat")?, &of("stat")?)
    }

    /// From `ran_ns lacked_ns slices`, and from `number (name) state …`, where a name may hold
    /// anything.
    fn parse(schedstat: &str, stat: &str) -> Option<Self> {
        let mut times = schedstat.split(' ').map(|time| time.trim().parse::<u64>().ok());
        let (ran, lacked) = (times.next()?? / 1_000, times.next()?? / 1_000);
        let state = *stat.get(stat.rfind(')')? + 2..)?.as_bytes().first()?;
        Some(Self { ran, lacked, state })
    }

    fn lacked_since(&self, before: &Self, wall: Micros) -> Micros {
        let has_run = self.ran > before.ran;
        let lacks_now = self.state == b'R' && before.state == b'R' && !has_run;
        let waits_for_disk = self.state == b'D' && before.state == b'D';
        if lacks_now || waits_for_disk {
            return wall;
        }
        self.lacked.saturating_sub(before.lacked).min(wall)
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
        Thread { ran, lacked, state }
    }

    #[test]
    fn what_the_system_says_is_read() {
        let stat = "12 (a) b) R) S 1 12 12";
        assert_eq!(Thread::parse("5000 7999 3\n", stat), Some(thread(5, 7, b'S')));
        assert_eq!(Thread::parse("", stat), None);
        assert_eq!(Thread::parse("1 2 3", "12 (x"), None);
    }

    #[test]
    fn a_thread_that_waits_for_a_processor_or_a_disk_lacks_it() {
        let cases = [
            (thread(10, 0, b'R'), thread(10, 0, b'R'), 20, "its wait is not counted yet"),
            (thread(10, 0, b'R'), thread(25, 5, b'R'), 5, "it ran besides"),
            (thread(10, 0, b'S'), thread(10, 0, b'S'), 0, "it sleeps"),
            (thread(10, 0, b'S'), thread(10, 0, b'R'), 0, "it was woken a moment ago"),
            (thread(10, 0, b'D'), thread(10, 0, b'D'), 20, "a disk"),
            (thread(10, 0, b'R'), thread(11, 900, b'S'), 20, "a wait that began before"),
        ];
        for (before, now, lacked, why) in cases {
            assert_eq!(now.lacked_since(&before, 20), lacked, "{why}");
        }
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
        let before = Threads::look();
        let began = std::time::Instant::now();
        while began.elapsed().as_millis() < 60 {}
        let now = Threads::look();
        assert_eq!(now.use_since(&before, sleeper_number), ThreadUse::Slept);
        let own = now.use_since(&before, current());
        assert!(matches!(own, ThreadUse::Ran(ran) if ran > 0), "{own:?}");
        assert_eq!(now.use_since(&before, 0), ThreadUse::Unknown);
        drop(end);
        sleeper.join().unwrap();
    }
}

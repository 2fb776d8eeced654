//! A profile as a trace file in Chrome's JSON format, which Perfetto opens
//! (<https://ui.perfetto.dev>; the format: "Trace Event Format", complete events `X` and metadata
//! `M`; times are microseconds).

use std::{
    collections::BTreeMap,
    io::{self, Write},
    time::Instant,
};

use serde_json::{Value, json};

use super::Profile;

/// The two groups of tracks.
const MODEL: (u32, &str) = (1, "model");
const ACTORS: (u32, &str) = (2, "actors");

impl Profile {
    /// Writes the trace, an event at a time.
    ///
    /// # Errors
    /// The errors of `out`.
    pub fn write_trace(&self, out: &mut impl Write) -> io::Result<()> {
        out.write_all(b"{\"displayTimeUnit\": \"ms\", \"traceEvents\": [")?;
        let mut events = Events { out, begin: self.begin, is_first: true };
        for (pid, name) in [MODEL, ACTORS] {
            events.write(&json!({
                "ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name},
            }))?;
        }
        for (index, thread) in self.threads.iter().enumerate() {
            let tid = index + 1;
            events.track(MODEL.0, tid, &thread.thread)?;
            for span in &thread.spans {
                events.complete((MODEL.0, tid), span.name, [span.begin, span.end], Value::Null)?;
            }
        }
        let mut tracks: BTreeMap<(&str, usize), usize> = BTreeMap::new();
        for handled in &self.handled {
            let next = tracks.len() + 1;
            let tid = *tracks.entry((handled.role, handled.index)).or_insert(next);
            if tid == next {
                let name = format!("{} {}", handled.role, handled.index);
                events.track(ACTORS.0, tid, &name)?;
            }
            let busy = json!({"busy_us": handled.busy.as_nanos() as f64 / 1e3});
            let times = [handled.begin, handled.end];
            events.complete((ACTORS.0, tid), handled.edge, times, busy)?;
        }
        out.write_all(b"\n]}\n")
    }
}

struct Events<'a, W> {
    out: &'a mut W,
    begin: Instant,
    is_first: bool,
}

impl<W: Write> Events<'_, W> {
    fn write(&mut self, event: &Value) -> io::Result<()> {
        let separator = if self.is_first { "\n" } else { ",\n" };
        self.is_first = false;
        write!(self.out, "{separator}{event}")
    }

    fn track(&mut self, pid: u32, tid: usize, name: &str) -> io::Result<()> {
        self.write(&json!({
            "ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name},
        }))
    }

    fn complete(
        &mut self,
        (pid, tid): (u32, usize),
        name: &str,
        [begin, end]: [Instant; 2],
        args: Value,
    ) -> io::Result<()> {
        let us = |time: Instant| time.duration_since(self.begin).as_nanos() as f64 / 1e3;
        let (ts, end) = (us(begin), us(end));
        let mut event = json!({
            "ph": "X", "name": name, "cat": "span", "pid": pid, "tid": tid, "ts": ts, "dur": end - ts,
        });
        if !args.is_null() {
            event["args"] = args;
        }
        self.write(&event)
    }
}

//! Memory and processor time of the engine processes. `process_*` are those of the server's own
//! process alone.

use metrics::gauge;
use procfs::{WithCurrentSystemInfo, process::Process, ticks_per_second};

use crate::engine::Engine;

/// Sets the gauges of all engine processes. A process that has ended keeps its last figures until
/// the next one has loaded its model.
pub(super) fn collect(engine: &Engine) {
    for view in engine.engines() {
        let Some((resident, seconds)) = view.process.pid.and_then(usage) else { continue };
        let engine = view.engine.to_string();
        gauge!("playhouse:engine_process_resident_memory_bytes", "engine" => engine.clone())
            .set(resident as f64);
        gauge!("playhouse:engine_process_cpu_seconds", "engine" => engine).set(seconds);
    }
}

/// Returns the resident memory in bytes, and the processor time in seconds.
fn usage(pid: u32) -> Option<(u64, f64)> {
    let stat = Process::new(pid.try_into().ok()?).ok()?.stat().ok()?;
    let ticks = stat.utime + stat.stime;
    Some((stat.rss_bytes().get(), ticks as f64 / ticks_per_second() as f64))
}

#[cfg(test)]
mod tests {
    use super::usage;

    #[test]
    fn this_process_has_memory_and_one_without_a_number_has_none() {
        let (resident, seconds) = usage(std::process::id()).unwrap();
        assert!(resident > 1 << 20 && seconds >= 0.0, "{resident} bytes, {seconds} s");
        assert_eq!(usage(u32::MAX), None);
    }
}

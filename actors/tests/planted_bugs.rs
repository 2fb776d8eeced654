//! The simulator finds every planted bug within a few seeds. This tests the simulator.

use playhouse_actors::{
    fault::Bug,
    sim::{Options, sweep},
};

const SEEDS: u64 = 10_000;

#[test]
fn every_planted_bug_is_found() {
    let num_threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut missed = Vec::new();
    for bug in Bug::ALL {
        let options = Options { bug: Some(bug), ..Options::default() };
        let total = sweep(0..SEEDS, num_threads, options, 1, |_| {});
        match total.failures.first() {
            Some((seed, violation)) => {
                println!("{bug:?}: {} seeds, seed {seed}: {violation}", total.num_seeds);
            }
            None => missed.push(bug),
        }
    }
    assert_eq!(missed, [], "not found within {SEEDS} seeds");
}

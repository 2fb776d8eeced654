//! Thousands of engines run in simulated time; see `playhouse_actors::sim`.

use playhouse_actors::sim::{Options, REGRESSIONS, explain, run, sweep};

const DEFAULT_SEEDS: u64 = 20_000;

/// Returns the number of seeds: `PLAYHOUSE_SIM_SEEDS`, or as many as take some seconds.
fn num_seeds() -> u64 {
    let given = std::env::var("PLAYHOUSE_SIM_SEEDS").ok();
    given.and_then(|text| text.parse().ok()).unwrap_or(DEFAULT_SEEDS)
}

fn num_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[test]
fn no_seed_fails() {
    let options = Options::default();
    let total = sweep(0..num_seeds(), num_threads(), options, 3, |_| {});
    let failures: Vec<_> = total.failures.iter().map(|(seed, _)| explain(*seed, options)).collect();
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
    assert!(total.num_faults > total.num_seeds, "there were faults: {total:?}");
    assert!(total.num_adopted > total.num_seeds / 20, "tails were adopted: {total:?}");
    println!("{:.0} seeds a second", total.rate());
}

#[test]
fn seeds_that_failed_once_now_succeed() {
    for regression in REGRESSIONS {
        let is_first_world = regression.is_first_world;
        let options = Options { is_first_world, ..Options::default() };
        let outcome = run(regression.seed, options);
        let why = regression.why;
        assert_eq!(outcome.violation, None, "{why}\n{}", explain(regression.seed, options));
    }
}

#[test]
fn a_seed_is_always_the_same_run() {
    for seed in 0..1_000 {
        let (first, second) = (run(seed, Options::default()), run(seed, Options::default()));
        let trace = |outcome: &playhouse_actors::sim::Outcome| {
            (outcome.digest, outcome.num_events, outcome.num_steps, outcome.simulated)
        };
        assert_eq!(trace(&first), trace(&second), "seed {seed}");
        let shown = run(seed, Options { verbose: true, ..Options::default() });
        assert_eq!(trace(&first), trace(&shown), "seed {seed}, with its events kept");
    }
}

#[test]
fn without_faults_nothing_dies() {
    let options = Options { without_faults: true, ..Options::default() };
    let total = sweep(0..1_000, num_threads(), options, 1, |_| {});
    assert_eq!(total.failures, []);
    assert_eq!((total.num_faults, total.num_deaths), (0, 0));
}

//! Runs seeds of the simulator.

use std::{
    io::{self, IsTerminal, Write as _},
    process::ExitCode,
    str::FromStr,
};

use playhouse_actors::{
    fault::Bug,
    sim::{Options, explain, run, sweep},
};

const USAGE: &str = concat!(
    "Runs the engine's actors in simulated time, under seeded faults.\n",
    "\n",
    "Usage: playhouse-sim [OPTIONS]\n",
    "\n",
    "  --seeds N      Run N seeds (default 20000)\n",
    "  --from N       Begin with seed N (default 0)\n",
    "  --threads N    Threads (default: all cores)\n",
    "  --failures N   Stop after N failures (default 5)\n",
    "  --seed N       Run one seed\n",
    "  --trace        With --seed: show all events\n",
    "  --calm         Run without faults\n",
    "  --first-world  Run all actors in one process, as seeds of the first version\n",
    "  --bug NAME     Plant this bug, for example NoDedup\n",
    "  --help         Show this\n",
    "",
);

struct Arguments {
    seeds: u64,
    from: u64,
    threads: usize,
    failures: usize,
    seed: Option<u64>,
    trace: bool,
    options: Options,
}

impl Arguments {
    /// Parses the arguments. `None`: the usage is to be shown.
    fn parse(mut given: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let mut arguments = Self {
            seeds: 20_000,
            from: 0,
            threads,
            failures: 5,
            seed: None,
            trace: false,
            options: Options::default(),
        };
        while let Some(name) = given.next() {
            match name.as_str() {
                "--seeds" => arguments.seeds = value(&name, &mut given)?,
                "--from" => arguments.from = value(&name, &mut given)?,
                "--threads" => arguments.threads = value(&name, &mut given)?,
                "--failures" => arguments.failures = value(&name, &mut given)?,
                "--seed" => arguments.seed = Some(value(&name, &mut given)?),
                "--trace" => arguments.trace = true,
                "--calm" => arguments.options.without_faults = true,
                "--first-world" => arguments.options.is_first_world = true,
                "--bug" => arguments.options.bug = Some(bug(&value::<String>(&name, &mut given)?)?),
                "--help" | "-h" => return Ok(None),
                other => return Err(format!("there is no {other}; see --help")),
            }
        }
        Ok(Some(arguments))
    }
}

fn value<T: FromStr>(name: &str, given: &mut impl Iterator<Item = String>) -> Result<T, String> {
    let text = given.next().ok_or_else(|| format!("{name} needs a value"))?;
    text.parse().map_err(|_| format!("{name} does not take {text:?}"))
}

fn bug(name: &str) -> Result<Bug, String> {
    let found = Bug::ALL.into_iter().find(|bug| format!("{bug:?}") == name);
    found.ok_or_else(|| format!("there is no bug {name:?}; the bugs are {:?}", Bug::ALL))
}

/// Runs the seeds. Returns whether there was no violation.
fn execute(arguments: &Arguments, out: &mut impl io::Write) -> io::Result<bool> {
    let Arguments { seed, options, .. } = *arguments;
    if let Some(seed) = seed {
        let outcome = run(seed, Options { verbose: arguments.trace, ..options });
        for line in &outcome.log {
            writeln!(out, "{line}")?;
        }
        let violation = outcome.violation.as_deref().unwrap_or("all is well");
        writeln!(
            out,
            "seed {seed}: {violation}\n{} requests, {} steps, {} faults, {} deaths, {} processes, \
             {} events, {:?} simulated, trace {:016x}",
            outcome.num_requests,
            outcome.num_steps,
            outcome.num_faults,
            outcome.num_deaths,
            outcome.num_processes,
            outcome.num_events,
            outcome.simulated,
            outcome.digest,
        )?;
        return Ok(outcome.violation.is_none());
    }
    let shows_progress = io::stderr().is_terminal();
    let progress = |count: u64| {
        if shows_progress {
            // A write to a closed terminal may fail.
            let _ = write!(io::stderr(), "\r{count} of {} seeds", arguments.seeds);
        }
    };
    let Arguments { from, seeds, threads, failures, .. } = *arguments;
    let total = sweep(from..from.saturating_add(seeds), threads, options, failures, progress);
    if shows_progress {
        writeln!(io::stderr())?;
    }
    for (seed, _) in &total.failures {
        writeln!(out, "{}", explain(*seed, options))?;
    }
    writeln!(
        out,
        "{} seeds, {} failed; {} requests, {} steps, {} faults, {} deaths, {} processes, \
         {} tails adopted; longest stall {:?}; {:.1} s, {:.0} seeds a second on {threads} threads",
        total.num_seeds,
        total.failures.len(),
        total.num_requests,
        total.num_steps,
        total.num_faults,
        total.num_deaths,
        total.num_processes,
        total.num_adopted,
        total.longest_stall,
        total.took.as_secs_f64(),
        total.rate(),
    )?;
    Ok(total.failures.is_empty())
}

fn main() -> ExitCode {
    let arguments = match Arguments::parse(std::env::args().skip(1)) {
        Ok(Some(arguments)) => arguments,
        Ok(None) => {
            let shown = io::stdout().write_all(USAGE.as_bytes());
            return if shown.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        }
        Err(error) => {
            let _ = writeln!(io::stderr(), "playhouse-sim: {error}");
            return ExitCode::from(2);
        }
    };
    match execute(&arguments, &mut io::stdout().lock()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) | Err(_) => ExitCode::FAILURE,
    }
}

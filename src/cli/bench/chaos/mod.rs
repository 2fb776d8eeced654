//! `playhouse bench chaos`: the effects on clients while actors are killed.
//!
//! Clients stream in a closed loop. Each request has a prefix of its own, so the tokens that it
//! takes are known. A pass without faults gives the reference outputs, the time of a step, and the
//! usual size of gaps in streams. Then each role is struck at random moments, by turns with a panic
//! and a kill. The next strike comes after tokens flow again. For each strike:
//!
//! - *Time to recovery*: until the first token that was committed after it arrives at any client.
//! - *Added stall*: the largest gap between two arrivals at one stream, less the median of the same
//!   figure without faults. Only gaps that end after this strike and before the next one count.
//! - *Tokens recomputed*: scheduled tokens less those that the requests take.
//!
//! With `--process` the model is in a process of its own, which is struck in place of actors.
//!
//! With `--requests N` it is a storm ([`storm`]): N requests without faults, then as many while an
//! actor is struck at every interval, whether or not the last one has recovered.

mod clients;
mod measure;
mod pass;
mod pictures;
mod report;
mod storm;
mod target;

use clap::Args;

use super::{Report, workload::Sizes};
use crate::api::{How, Role};
#[cfg(unix)]
use crate::engine::{JournalSharing, ProcessStrike};
use crate::{
    cli::{CliError, flags::EngineFlags},
    config::{EngineConfig, LogSettings},
    engine::Engine,
};

const EXAMPLES: &str = "\
Examples:
  playhouse bench chaos                            Some 1,000 strikes over nine roles
  playhouse bench chaos --kills 10000 --interval-ms 30
  playhouse bench chaos -m models/qwen3 --clients 8 --output json
  playhouse bench chaos --process --kills 100      The process that has the model
  playhouse bench chaos --how hang --requests 1500 --interval-ms 1000    A storm of hangs

Time to recovery: from a strike to the first token committed after it, at any client.
Added stall: the largest gap in any stream until the next strike, less its median without faults.";

/// Kill actors under streaming clients, and measure the effects on the clients.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ChaosArgs {
    /// Strikes in total, spread evenly over the roles
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    kills: usize,
    /// From a recovery to the next strike; each waits for half to one and a half of it
    #[arg(long, value_name = "MS", default_value_t = 50)]
    interval_ms: u64,
    /// Clients that stream at any time
    #[arg(long, value_name = "N", default_value_t = 32)]
    clients: usize,
    /// Strike in this way: panic, kill or hang; may be repeated [default: panic and kill by turns]
    #[arg(long, value_name = "WAY", value_parser = way)]
    how: Vec<How>,
    /// A storm: this many requests without strikes, then as many with a strike at each interval
    #[arg(long, value_name = "N", conflicts_with = "kills")]
    requests: Option<usize>,
    /// Share of requests with a picture, for a model that takes pictures
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=100))]
    media_percent: u8,
    /// Strike only this role; may be repeated
    #[arg(long, value_name = "ROLE")]
    role: Vec<Role>,
    /// Strike the engine process, in which the model then is, and no actors
    #[cfg(unix)]
    #[arg(long, conflicts_with_all = ["role", "how", "requests"])]
    process: bool,
    /// Strike it in this way; may be repeated [default: SIGKILL, SIGSEGV and SIGSTOP by turns]
    #[cfg(unix)]
    #[arg(long, value_name = "WAY", requires = "process", value_parser = process_way)]
    process_how: Vec<ProcessStrike>,
    /// Keep a second engine process waiting, with its model loaded
    #[cfg(unix)]
    #[arg(long, requires = "process")]
    spare_engine: bool,
    #[command(flatten)]
    sizes: Sizes,
    /// How to write the result
    #[arg(long, value_enum, default_value_t)]
    output: Report,
    #[command(flatten)]
    pub(crate) engine: EngineFlags,
}

/// Returns the kind of strike of this name.
fn way(name: &str) -> Result<How, String> {
    let known = How::ALL.into_iter().find(|how| how.as_str() == name);
    known.ok_or_else(|| format!("{name:?} is no way to die: panic, kill or hang"))
}

/// Returns the way to end a process of this name.
#[cfg(unix)]
fn process_way(name: &str) -> Result<ProcessStrike, String> {
    let known = ProcessStrike::ALL.into_iter().find(|how| how.as_str() == name);
    known.ok_or_else(|| {
        let names = ProcessStrike::ALL.map(ProcessStrike::as_str).join(", ");
        format!("{name:?} is no way to end a process: {names}")
    })
}

/// Loads the model, in this process or in one of its own.
async fn start(
    args: &ChaosArgs,
    config: EngineConfig,
    log: &LogSettings,
) -> Result<Engine, CliError> {
    use crate::cli::engine;

    #[cfg(unix)]
    if args.process {
        let config = EngineConfig { journal: None, ..config };
        let sharing = JournalSharing::Alone;
        return engine::start_process(config, log, args.spare_engine, sharing).await;
    }
    #[cfg(not(unix))]
    let _ = (args, log);
    engine::start(config).await
}

/// Measures and prints.
pub(crate) fn run(
    args: &ChaosArgs,
    config: EngineConfig,
    log: &LogSettings,
) -> Result<(), CliError> {
    use crate::cli::{engine, interrupt::or_interrupt, output, serve::metrics};

    // Every dead actor is replaced at once, however often it dies, because the replacement is
    // measured. A storm may also be one that the supervisors tolerate.
    let restart_tolerance = config.restart_tolerance.filter(|_| args.requests.is_some());
    let config = EngineConfig { restart_tolerance, allow_chaos: true, ..config };
    hush_strikes();
    engine::run(async {
        let metrics = metrics::install(&config)?;
        let engine = or_interrupt(start(args, config, log)).await?;
        if let Some(requests) = args.requests {
            let measured = or_interrupt(storm::measure(&engine, args, requests)).await;
            engine.shutdown().await;
            let figures = measured?;
            return match args.output {
                Report::Table => output::show(&figures.to_table()),
                Report::Json => output::show_json(&figures.to_json()),
            };
        }
        let measured = or_interrupt(pass::measure(&engine, args, &metrics)).await;
        engine.shutdown().await;
        let figures = measured?;
        match args.output {
            Report::Table => output::show(&figures.to_table()),
            Report::Json => output::show_json(&figures.to_json()),
        }
    })
}

/// Hides panics that were requested.
fn hush_strikes() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let asked_for = panic.payload().downcast_ref::<&str>() == Some(&"struck by chaos");
        if !asked_for {
            hook(panic);
        }
    }));
}

//! `playhouse bench overload`: the service under more requests than the engine can serve.
//!
//! First, as many clients as requests that run at a time send requests in a closed loop. The rate
//! at which they are served is the peak. Then requests are offered at a multiple of that rate,
//! whatever their outcomes are.
//!
//! - *Goodput*: requests served to their end a second, from the first refusal to the last offer.
//! - *Refusal*: from the offer to the answer that the engine is full.
//! - *Resident memory*: before the offers, and its maximum while they last.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use clap::Args;
use indicatif::ProgressBar;
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::sleep};

use super::{
    Report, progress_bar,
    statistics::{Summary, rounded},
    workload::{Sizes, Workload, is_complete},
};
use crate::api::RequestError;
use crate::{
    cli::{CliError, engine, flags::EngineFlags, interrupt::or_interrupt, output},
    config::EngineConfig,
    engine::Engine,
};

const EXAMPLES: &str = "\
Examples:
  playhouse bench overload                         10,000 requests at twice the capacity
  playhouse bench overload --factor 4 --max-num-queued-reqs 16
  playhouse bench overload -m models/qwen3 --requests 500 --output json";

/// Offer more requests than can be served, and measure the service.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct OverloadArgs {
    /// Requests to offer
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    requests: usize,
    /// Offered rate, as a multiple of the peak
    #[arg(long, value_name = "X", default_value_t = 2.0)]
    factor: f64,
    #[command(flatten)]
    sizes: Sizes,
    /// How to write the result
    #[arg(long, value_enum, default_value_t)]
    output: Report,
    #[command(flatten)]
    pub(crate) engine: EngineFlags,
}

/// Requests that may wait if the operator sets no limit: enough to keep the engine busy.
const QUEUED_DEFAULT: usize = 64;
/// The peak is measured over this share of the requests that are offered later.
const PEAK_SHARE: usize = 4;
/// It is also measured over at least this many requests of each client, because the first requests
/// all begin together.
const PEAK_ROUNDS: usize = 8;
/// Pause of a rejected client while the peak is measured.
const REFUSED_PAUSE: Duration = Duration::from_millis(5);
/// Interval of memory readings.
const LOOK: Duration = Duration::from_millis(20);

/// Measures and prints.
pub(crate) fn run(args: &OverloadArgs, config: EngineConfig) -> Result<(), CliError> {
    if !(args.factor.is_finite() && args.factor > 0.0) {
        return Err(CliError::Usage(format!("--factor must be above 0, got {}", args.factor)));
    }
    let queued = config.max_num_queued_reqs.unwrap_or(QUEUED_DEFAULT);
    let clients = config.max_num_seqs.min(args.requests);
    let mut config =
        EngineConfig { max_num_queued_reqs: Some(queued), max_num_seqs: clients, ..config };
    if config.kv_cache_memory_bytes.is_none() {
        // Memory that is never used is never resident. A cache of the right size is resident from
        // the first requests on.
        let blocks = args.sizes.total_max().div_ceil(config.block_size) + 1;
        config.num_gpu_blocks_override.get_or_insert(1 + clients * blocks);
    }
    engine::run(async {
        let engine = or_interrupt(engine::start(config)).await?;
        let measured = or_interrupt(measure(&engine, args, clients)).await;
        engine.shutdown().await;
        let figures = measured?;
        match args.output {
            Report::Table => output::show(&figures.to_table()),
            Report::Json => output::show_json(&figures.to_json()),
        }
    })
}

/// The outcome of one request.
enum Outcome {
    Served {
        at: Instant,
    },
    Refused {
        at: Instant,
        took: Duration,
    },
    /// Another outcome, with a word for its cause.
    Failed(&'static str),
}

struct Figures {
    model: String,
    clients: usize,
    offered: usize,
    factor: f64,
    /// Requests served a second.
    peak: f64,
    goodput: f64,
    served: usize,
    refusals: Vec<Duration>,
    failed: BTreeMap<&'static str, usize>,
    resident_before: Option<u64>,
    resident_max: Option<u64>,
}

async fn measure(
    engine: &Engine,
    args: &OverloadArgs,
    clients: usize,
) -> Result<Figures, CliError> {
    let workload = Workload { vocab_size: engine.model_info().vocab_size, sizes: args.sizes };
    let peak_requests = (args.requests / PEAK_SHARE).max(PEAK_ROUNDS * clients);
    let bar = progress_bar(peak_requests + args.requests);
    bar.set_message("measuring the capacity");
    let peak = saturate(engine, workload, clients, peak_requests, &bar).await;
    if peak <= 0.0 {
        return Err(CliError::Ended("no request was served without overload".to_owned()));
    }
    bar.set_message("offering more");
    let resident_before = resident_bytes();
    let offers = Offers { engine, workload, count: args.requests, rate: args.factor * peak };
    let (begun, last_offer, outcomes, resident_max) = offers.make(&bar).await;
    bar.finish_and_clear();

    let mut figures = Figures {
        model: engine.served_model_names().first().cloned().unwrap_or_default(),
        clients,
        offered: args.requests,
        factor: args.factor,
        peak,
        goodput: 0.0,
        served: 0,
        refusals: Vec::new(),
        failed: BTreeMap::new(),
        resident_before,
        resident_max,
    };
    let (mut served, mut first_refusal) = (Vec::new(), None::<Instant>);
    for outcome in outcomes {
        match outcome {
            Outcome::Served { at } => served.push(at),
            Outcome::Refused { at, took } => {
                first_refusal = Some(first_refusal.map_or(at, |first| first.min(at)));
                figures.refusals.push(took);
            }
            Outcome::Failed(why) => *figures.failed.entry(why).or_default() += 1,
        }
    }
    figures.served = served.len();
    let from = first_refusal.unwrap_or(begun);
    let in_window = served.iter().filter(|&&at| at >= from && at <= last_offer).count();
    let window = last_offer.saturating_duration_since(from).as_secs_f64();
    figures.goodput = in_window as f64 / window.max(1e-6);
    Ok(figures)
}

/// Returns the requests served a second while this many clients send one after the other.
async fn saturate(
    engine: &Engine,
    workload: Workload,
    clients: usize,
    requests: usize,
    bar: &ProgressBar,
) -> f64 {
    let next = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..clients {
        let (engine, next, bar) = (engine.clone(), Arc::clone(&next), bar.clone());
        tasks.spawn(async move {
            let mut served = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= requests {
                    return served;
                }
                // If all begin at once, the queue is full for a moment.
                let outcome = loop {
                    match ask(&engine, workload, number).await {
                        Outcome::Refused { .. } => sleep(REFUSED_PAUSE).await,
                        outcome => break outcome,
                    }
                };
                if let Outcome::Served { at } = outcome {
                    served.push(at);
                }
                bar.inc(1);
            }
        });
    }
    let mut served: Vec<_> = tasks.join_all().await.into_iter().flatten().collect();
    served.sort();
    // The first and the last ones are left out, because then fewer requests run than could.
    let (from, to) = (served.len() / 5, served.len() * 4 / 5);
    match (served.get(from), served.get(to)) {
        (Some(&first), Some(&last)) if last > first => {
            (to - from) as f64 / (last - first).as_secs_f64()
        }
        _ => 0.0,
    }
}

async fn ask(engine: &Engine, workload: Workload, number: usize) -> Outcome {
    let offered = Instant::now();
    let salt = Some(format!("{number}/{offered:?}"));
    let submission = match engine.submit(workload.request(number, salt)).await {
        Ok(submission) => submission,
        Err(RequestError::QueueFull { .. }) => {
            return Outcome::Refused { at: Instant::now(), took: offered.elapsed() };
        }
        Err(RequestError::Unavailable(_)) => return Outcome::Failed("unavailable"),
        Err(_) => return Outcome::Failed("refused for another reason"),
    };
    for mut choice in submission.choices {
        let mut finish = None;
        while let Some(delta) = choice.next().await {
            finish = delta.finish;
        }
        if !is_complete(&finish) {
            return Outcome::Failed("ended early");
        }
    }
    Outcome::Served { at: Instant::now() }
}

struct Offers<'a> {
    engine: &'a Engine,
    workload: Workload,
    count: usize,
    /// Requests a second.
    rate: f64,
}

impl Offers<'_> {
    /// Makes the offers. Returns the times of their begin and of the last offer, all outcomes, and
    /// the most memory meanwhile.
    async fn make(&self, bar: &ProgressBar) -> (Instant, Instant, Vec<Outcome>, Option<u64>) {
        let begun = Instant::now();
        let (mut tasks, mut outcomes) = (JoinSet::new(), Vec::with_capacity(self.count));
        let (mut offered, mut resident_max) = (0, resident_bytes());
        let mut looked = begun;
        while offered < self.count {
            let due = (begun.elapsed().as_secs_f64() * self.rate) as usize;
            for number in offered..due.min(self.count) {
                let (engine, workload) = (self.engine.clone(), self.workload);
                tasks.spawn(async move { ask(&engine, workload, number).await });
                bar.inc(1);
            }
            offered = due.min(self.count).max(offered);
            while let Some(Ok(outcome)) = tasks.try_join_next() {
                outcomes.push(outcome);
            }
            if looked.elapsed() >= LOOK {
                looked = Instant::now();
                resident_max = resident_max.max(resident_bytes());
            }
            sleep(Duration::from_millis(1)).await;
        }
        let last_offer = Instant::now();
        outcomes.extend(tasks.join_all().await);
        (begun, last_offer, outcomes, resident_max.max(resident_bytes()))
    }
}

/// Returns the memory of this process that is not swapped out. `None` if the system does not report
/// it.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

impl Figures {
    fn to_json(&self) -> Value {
        json!({
            "model": self.model,
            "max_num_seqs": self.clients,
            "offered": self.offered,
            "factor": self.factor,
            "peak_requests_per_s": rounded(self.peak),
            "goodput_requests_per_s": rounded(self.goodput),
            "goodput_share": rounded(self.goodput / self.peak),
            "served": self.served,
            "refused": self.refusals.len(),
            "failed": self.failed,
            "refusal_ms": Summary::of(self.refusals.iter().copied()).to_json(),
            "resident_bytes": {"before": self.resident_before, "max": self.resident_max},
        })
    }

    fn to_table(&self) -> String {
        let refusal = Summary::of(self.refusals.iter().copied());
        let failed: usize = self.failed.values().sum();
        let megabytes = |bytes: Option<u64>| match bytes {
            Some(bytes) => format!("{:.0} MB", bytes as f64 / 1e6),
            None => "unknown".to_owned(),
        };
        format!(
            "\
{model}: {offered} requests at {factor} times the capacity, at most {clients} running

capacity           {peak:.0} requests/s
goodput            {goodput:.0} requests/s, {share:.1} % of the capacity
served             {served}
refused            {refused}, within {p50:.2} ms (p50), {p99:.2} ms (p99), {max:.2} ms (max)
failed             {failed} {reasons}
resident memory    {before} before, {most} at most
",
            model = self.model,
            offered = self.offered,
            factor = self.factor,
            clients = self.clients,
            peak = self.peak,
            goodput = self.goodput,
            share = 100.0 * self.goodput / self.peak,
            served = self.served,
            refused = self.refusals.len(),
            p50 = refusal.p50,
            p99 = refusal.p99,
            max = refusal.max,
            reasons = self.failed.keys().copied().collect::<Vec<_>>().join(", "),
            before = megabytes(self.resident_before),
            most = megabytes(self.resident_max),
        )
    }
}

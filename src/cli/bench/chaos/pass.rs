//! Passes one after the other: without faults, then one part at a time.

use std::{ops::RangeInclusive, time::Duration};

use metrics_exporter_prometheus::PrometheusHandle;
use tokio::time::{sleep, timeout};

use super::{
    ChaosArgs,
    clients::{Streams, World},
    measure::{self, Strike},
    report::{Figures, RoleFigures},
    target::{self, Struck, Target},
};
use crate::{
    cli::{CliError, bench::progress_bar},
    engine::Engine,
};

/// Windows of the pass without faults: as many as strikes, within these limits.
const PEACEFUL_WINDOWS: RangeInclusive<usize> = 20..=200;
/// Longest wait for a struck part before the next strike.
const COMEBACK_LIMIT: Duration = Duration::from_secs(60);

/// Measures all figures of the report.
pub(super) async fn measure(
    engine: &Engine,
    args: &ChaosArgs,
    metrics: &PrometheusHandle,
) -> Result<Figures, CliError> {
    let clients = args.clients.max(1);
    let world = World::new(engine, args.sizes, clients, args.media_percent)
        .await
        .map_err(CliError::Ended)?;
    let targets = target::targets(args);
    let kills_each = args.kills.div_ceil(targets.len()).max(1);
    let num_kills = kills_each * targets.len();
    let num_peaceful = num_kills.clamp(*PEACEFUL_WINDOWS.start(), *PEACEFUL_WINDOWS.end());
    let bar = progress_bar(num_peaceful + num_kills);
    let mut pass = Pass {
        world,
        clients,
        interval: Duration::from_millis(args.interval_ms.max(1)),
        metrics,
        random: 0,
        bar,
    };
    let peace = pass.run(None, num_peaceful).await?;
    let times: Vec<_> = peace.strikes.iter().map(|strike| strike.at).collect();
    let mut figures = Figures {
        model: engine.served_model_names().first().cloned().unwrap_or_default(),
        clients,
        interval: pass.interval,
        step: measure::step_time(&peace.streams.arrivals),
        peaceful_gap: measure::median(measure::largest_gaps(&peace.streams.arrivals, &times)),
        peace: RoleFigures::default(),
        ways: targets.first().map(|target| target.ways()).unwrap_or_default(),
        roles: Vec::new(),
    };
    figures.peace = RoleFigures { kills: 0, ..peace.figures("nobody", figures.peaceful_gap) };
    for target in targets {
        let passed = pass.run(Some(target), kills_each).await?;
        figures.roles.push(passed.figures(target.name(), figures.peaceful_gap));
    }
    pass.bar.finish_and_clear();
    Ok(figures)
}

struct Pass<'a> {
    world: World,
    clients: usize,
    interval: Duration,
    metrics: &'a PrometheusHandle,
    /// State of the generator of random pauses.
    random: u64,
    bar: indicatif::ProgressBar,
}

/// The outcome of a pass.
struct Passed {
    streams: Streams,
    strikes: Vec<Strike>,
    scheduled: u64,
}

impl Pass<'_> {
    /// Lets clients stream while `target` is struck this often. Without a target, lets them stream
    /// as long without strikes.
    async fn run(
        &mut self,
        target: Option<Target<'_>>,
        strikes: usize,
    ) -> Result<Passed, CliError> {
        self.bar.set_message(target.map_or("without faults", Target::name));
        let scheduled_before = self.scheduled();
        let clients = self.world.enter(self.clients);
        clients.warm_up().await;
        let mut done = Vec::with_capacity(strikes);
        for turn in 0..strikes {
            sleep(self.interval / 2 + self.pause()).await;
            done.push(self.note());
            if let Some(target) = target {
                let struck = target.strike(&self.world.engine, turn).await?;
                self.comeback(target, struck).await;
            }
            self.bar.inc(1);
        }
        // The last strike has a window too.
        sleep(self.interval).await;
        let streams = clients.leave().await;
        let scheduled = self.scheduled().saturating_sub(scheduled_before);
        Ok(Passed { streams, strikes: done, scheduled })
    }

    fn note(&self) -> Strike {
        let committed = self.world.engine.chaos().committed();
        let strike = Strike { at: self.world.start.elapsed(), committed };
        *self.world.last_strike.lock() = Some(strike.clone());
        strike
    }

    /// Waits until tokens flow again and the struck part has been replaced. Two strikes into one
    /// recovery would be measured as one.
    async fn comeback(&self, target: Target<'_>, struck: Struck) {
        let engine = &self.world.engine;
        let is_back = || self.world.last_strike.lock().is_none() && target.is_back(engine, struck);
        let back = async {
            while !is_back() {
                sleep(Duration::from_millis(1)).await;
            }
        };
        if timeout(COMEBACK_LIMIT, back).await.is_err() {
            tracing::error!(target = target.name(), "a struck part does not come back");
        }
    }

    /// Returns a random time from 0 up to the interval.
    fn pause(&mut self) -> Duration {
        // SplitMix64.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let share = ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64;
        self.interval.mul_f64(share)
    }

    /// Returns the number of tokens scheduled so far, including those whose results were dropped.
    fn scheduled(&self) -> u64 {
        let scrape = self.metrics.render();
        let sums =
            scrape.lines().filter(|line| line.starts_with("playhouse:iteration_tokens_total_sum"));
        let values = sums.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        values.sum::<f64>() as u64
    }
}

impl Passed {
    fn figures(&self, role: &'static str, peaceful_gap: Duration) -> RoleFigures {
        let times: Vec<_> = self.strikes.iter().map(|strike| strike.at).collect();
        let gaps = measure::largest_gaps(&self.streams.arrivals, &times);
        RoleFigures {
            role,
            kills: self.strikes.len(),
            requests: self.streams.requests,
            recoveries: measure::recoveries(&self.streams.arrivals, &self.strikes),
            added_stalls: gaps.into_iter().map(|gap| gap.saturating_sub(peaceful_gap)).collect(),
            recomputed: self.scheduled.saturating_sub(self.streams.cost),
            lost: self.streams.lost,
            wrong: self.streams.wrong,
        }
    }
}

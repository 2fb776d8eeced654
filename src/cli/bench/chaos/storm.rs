//! A storm: how much longer the same requests take while an actor is struck at every interval. It
//! also counts actors that were replaced as hanging although they were not.

use std::{
    fmt::Write,
    pin::pin,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tokio::time::interval;

use super::{
    ChaosArgs,
    clients::{Streams, World},
    target,
};
use crate::api::{Hangs, How, Role};
use crate::{
    cli::{CliError, bench::statistics::rounded},
    engine::Engine,
};

/// The outcome of one pass over all requests.
#[derive(Debug, Default)]
struct Pass {
    took: Duration,
    streams: Streams,
    strikes: usize,
    hangs: Hangs,
}

/// All figures.
#[derive(Debug)]
pub(super) struct Figures {
    clients: usize,
    interval: Duration,
    ways: Vec<How>,
    calm: Pass,
    storm: Pass,
}

/// The struck actors, the kinds of strike, and the interval.
struct Storm<'a> {
    engine: &'a Engine,
    roles: &'a [Role],
    ways: &'a [How],
    interval: Duration,
}

/// Measures this many requests without strikes, and as many in a storm.
pub(super) async fn measure(
    engine: &Engine,
    args: &ChaosArgs,
    requests: usize,
) -> Result<Figures, CliError> {
    let clients = args.clients.max(1);
    let world = World::new(engine, args.sizes, clients, args.media_percent)
        .await
        .map_err(CliError::Ended)?;
    let roles = target::roles(args);
    let (ways, interval) = (target::ways(args), Duration::from_millis(args.interval_ms.max(1)));
    let storm = Storm { engine, roles, ways, interval };
    let calm = storm.pass(&world, clients, requests, false).await;
    let struck = storm.pass(&world, clients, requests, true).await;
    Ok(Figures { clients, interval, ways: ways.to_vec(), calm, storm: struck })
}

impl Storm<'_> {
    /// Sends all requests, with a strike at every interval if `is_storm`.
    async fn pass(&self, world: &World, clients: usize, requests: usize, is_storm: bool) -> Pass {
        let (began, before) = (Instant::now(), self.engine.chaos().hangs());
        let mut asked = pin!(world.ask_in_all(clients, requests));
        let mut ticks = interval(self.interval);
        ticks.tick().await;
        let mut strikes = 0;
        let streams = loop {
            tokio::select! {
                streams = &mut asked => break streams,
                _ = ticks.tick(), if is_storm => {
                    self.strike(strikes);
                    strikes += 1;
                }
            }
        };
        let hangs = self.engine.chaos().hangs().since(before);
        Pass { took: began.elapsed(), streams, strikes, hangs }
    }

    /// Strikes each role in turn, each of its actors, with each kind of strike.
    fn strike(&self, turn: usize) {
        let (role, round) = (self.roles[turn % self.roles.len()], turn / self.roles.len());
        let actors = self.engine.actors();
        let count = actors.iter().filter(|actor| actor.role == role).count().max(1);
        let how = self.ways[turn % self.ways.len()];
        if let Err(error) = self.engine.chaos().strike(role, round % count, how) {
            tracing::error!(role = role.as_str(), %error, "no actor is struck");
        }
    }
}

impl Figures {
    /// Returns the time of the storm as a multiple of the calm time.
    fn times(&self) -> f64 {
        self.storm.took.as_secs_f64() / self.calm.took.as_secs_f64().max(1e-9)
    }

    fn rows(&self) -> [(&'static str, &Pass); 2] {
        [("calm", &self.calm), ("storm", &self.storm)]
    }

    pub(super) fn to_json(&self) -> Value {
        let pass = |pass: &Pass| {
            json!({
                "seconds": rounded(pass.took.as_secs_f64()),
                "requests": pass.streams.requests,
                "strikes": pass.strikes,
                "actors_hung": pass.hangs.actors,
                "false_alarms": pass.hangs.false_alarms(),
                "requests_lost": pass.streams.lost,
                "tokens_wrong": pass.streams.wrong,
            })
        };
        json!({
            "clients": self.clients,
            "interval_ms": self.interval.as_millis() as u64,
            "ways": self.ways.iter().map(|how| how.as_str()).collect::<Vec<_>>(),
            "calm": pass(&self.calm),
            "storm": pass(&self.storm),
            "times": rounded(self.times()),
        })
    }

    pub(super) fn to_table(&self) -> String {
        let ways: Vec<_> = self.ways.iter().map(|how| how.as_str()).collect();
        let mut table = format!(
            "{} clients, a strike every {} ms ({}), whether or not the last has recovered.\n\n\
             pass    requests   seconds  strikes  hung  false alarms  lost  wrong\n",
            self.clients,
            self.interval.as_millis(),
            ways.join(", "),
        );
        for (name, pass) in self.rows() {
            // Writing to a string does not fail.
            let _ = writeln!(
                table,
                "{name:<6} {:>9} {:>9.2} {:>8} {:>5} {:>13} {:>5} {:>6}",
                pass.streams.requests,
                pass.took.as_secs_f64(),
                pass.strikes,
                pass.hangs.actors,
                pass.hangs.false_alarms(),
                pass.streams.lost,
                pass.streams.wrong,
            );
        }
        let _ = writeln!(table, "\nThe storm took {:.2} times as long.", self.times());
        let _ = writeln!(
            table,
            "hung: actors that the watchdog found to hang; false alarms: those of them that were \
             not made\nto hang, and steps that did not end in time."
        );
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_and_the_json_say_the_same() {
        let pass = |seconds, strikes, hangs| Pass {
            took: Duration::from_secs(seconds),
            streams: Streams { requests: 1_500, ..Streams::default() },
            strikes,
            hangs,
        };
        let figures = Figures {
            clients: 32,
            interval: Duration::from_secs(1),
            ways: vec![How::Hang],
            calm: pass(10, 0, Hangs::default()),
            storm: pass(15, 14, Hangs { actors: 13, unordered: 1, steps: 1 }),
        };
        let json = figures.to_json();
        assert_eq!((&json["times"], &json["storm"]["false_alarms"]), (&json!(1.5), &json!(2)));
        let table = figures.to_table();
        let storm = table.lines().find(|line| line.starts_with("storm")).unwrap();
        let cells: Vec<_> = storm.split_whitespace().collect();
        assert_eq!(cells, ["storm", "1500", "15.00", "14", "13", "2", "0", "0"]);
        assert!(table.contains("1.50 times"), "{table}");
        assert!(table.lines().all(|line| line.chars().count() <= 104), "{table}");
    }
}

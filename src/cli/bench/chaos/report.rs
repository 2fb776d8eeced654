//! The report and its formats.

use std::{fmt::Write, time::Duration};

use serde_json::{Value, json};

use crate::cli::bench::statistics::{Summary, milliseconds, rounded};

/// All figures.
#[derive(Debug)]
pub(super) struct Figures {
    pub(super) model: String,
    pub(super) clients: usize,
    pub(super) interval: Duration,
    /// Without faults: the median time between two arrivals at one stream.
    pub(super) step: Duration,
    /// Without faults: the median of the largest gap within as long a time.
    pub(super) peaceful_gap: Duration,
    /// Without faults: the noise in the figures of the roles.
    pub(super) peace: RoleFigures,
    /// The kinds of strike, in turns.
    pub(super) ways: Vec<&'static str>,
    pub(super) roles: Vec<RoleFigures>,
}

/// The results of striking one role.
#[derive(Debug, Default, Clone)]
pub(super) struct RoleFigures {
    pub(super) role: &'static str,
    pub(super) kills: usize,
    pub(super) requests: u64,
    pub(super) recoveries: Vec<Duration>,
    pub(super) added_stalls: Vec<Duration>,
    pub(super) recomputed: u64,
    pub(super) lost: u64,
    pub(super) wrong: u64,
}

impl RoleFigures {
    fn add(&mut self, other: &Self) {
        self.kills += other.kills;
        self.requests += other.requests;
        self.recoveries.extend(&other.recoveries);
        self.added_stalls.extend(&other.added_stalls);
        self.recomputed += other.recomputed;
        self.lost += other.lost;
        self.wrong += other.wrong;
    }

    fn recomputed_per_kill(&self) -> f64 {
        self.recomputed as f64 / self.kills.max(1) as f64
    }
}

impl Figures {
    /// Returns the figures of all roles together.
    fn total(&self) -> RoleFigures {
        let mut total = RoleFigures { role: "all", ..RoleFigures::default() };
        for role in &self.roles {
            total.add(role);
        }
        total
    }

    fn in_steps(&self, milliseconds_: f64) -> f64 {
        milliseconds_ / milliseconds(self.step).max(1e-6)
    }

    pub(super) fn to_json(&self) -> Value {
        let row = |row: &RoleFigures| {
            let stall = Summary::of(row.added_stalls.iter().copied());
            json!({
                "role": row.role,
                "kills": row.kills,
                "requests": row.requests,
                "recovery_ms": Summary::of(row.recoveries.iter().copied()).to_json(),
                "added_stall_ms": stall.to_json(),
                "added_stall_steps": {
                    "p50": rounded(self.in_steps(stall.p50)),
                    "p99": rounded(self.in_steps(stall.p99)),
                },
                "tokens_recomputed": row.recomputed,
                "requests_lost": row.lost,
                "tokens_wrong": row.wrong,
            })
        };
        json!({
            "model": self.model,
            "clients": self.clients,
            "interval_ms": self.interval.as_millis() as u64,
            "ways": self.ways,
            "supervision": "unlimited restarts, no back-off",
            "fault_free": {
                "step_ms": rounded(milliseconds(self.step)),
                "largest_gap_ms": rounded(milliseconds(self.peaceful_gap)),
                "figures": row(&self.peace),
            },
            "roles": self.roles.iter().map(row).collect::<Vec<_>>(),
            "all": row(&self.total()),
        })
    }

    pub(super) fn to_table(&self) -> String {
        let mut table = format!(
            "\
{model}, {clients} clients, a strike {interval} ms after the recovery from the last: {ways}.
Supervision: unlimited restarts without back-off, so that it is the recovery that is measured.
Without faults: a step takes {step:.2} ms, the largest gap between strikes would be {gap:.2} ms.

{head}
",
            model = self.model,
            clients = self.clients,
            interval = self.interval.as_millis(),
            ways = self.ways.join(", "),
            step = milliseconds(self.step),
            gap = milliseconds(self.peaceful_gap),
            head = HEAD,
        );
        for row in [&self.peace].into_iter().chain(&self.roles).chain([&self.total()]) {
            self.write_row(&mut table, row);
        }
        let _ = writeln!(
            table,
            "\nrecovery: to the first token committed after the strike; stall: added to the \
             largest gap\nin any stream; steps: the same over the time of a step; tokens: \
             computed again, a kill."
        );
        table
    }

    fn write_row(&self, table: &mut String, row: &RoleFigures) {
        let recovery = Summary::of(row.recoveries.iter().copied());
        let stall = Summary::of(row.added_stalls.iter().copied());
        // Writing to a string does not fail.
        let _ = writeln!(
            table,
            "{:<17} {:>6} {:>9.2} {:>8.2} {:>9.2} {:>8.2} {:>8.2} {:>7.1} {:>7.1} {:>7.0} {:>5} \
             {:>6}",
            row.role,
            row.kills,
            recovery.p50,
            recovery.p99,
            stall.p50,
            stall.p99,
            stall.max,
            self.in_steps(stall.p50),
            self.in_steps(stall.p99),
            row.recomputed_per_kill(),
            row.lost,
            row.wrong,
        );
    }
}

const HEAD: &str = "\
                           recovery, ms        added stall, ms           in steps
role               kills       p50      p99       p50      p99      max     p50     p99  tokens  lost  wrong";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_and_the_json_say_the_same() {
        let ms = Duration::from_millis;
        let role = |role, wrong| RoleFigures {
            role,
            kills: 2,
            requests: 9,
            recoveries: vec![ms(3), ms(5)],
            added_stalls: vec![ms(4), ms(8)],
            recomputed: 100,
            lost: 0,
            wrong,
        };
        let figures = Figures {
            model: "demo".to_owned(),
            clients: 32,
            interval: ms(50),
            step: ms(2),
            peaceful_gap: ms(6),
            peace: RoleFigures { role: "nobody", ..RoleFigures::default() },
            ways: vec!["panic", "kill"],
            roles: vec![role("worker", 0), role("structured_output", 1)],
        };
        let json = figures.to_json();
        assert_eq!(json["roles"][0]["added_stall_steps"], json!({"p50": 2.0, "p99": 4.0}));
        assert_eq!((&json["all"]["kills"], &json["ways"]), (&json!(4), &json!(["panic", "kill"])));
        assert_eq!(json["all"]["tokens_wrong"], 1);
        let table = figures.to_table();
        let all = table.lines().find(|line| line.starts_with("all")).unwrap();
        let cells: Vec<_> = all.split_whitespace().collect();
        let expected =
            ["all", "4", "3.00", "5.00", "4.00", "8.00", "8.00", "2.0", "4.0", "50", "0", "1"];
        assert_eq!(cells, expected);
        let (_, rows) = table.split_once("\nrole ").unwrap();
        let (rows, _) = rows.split_once("\n\n").unwrap();
        assert!(rows.lines().skip(1).all(|row| row.chars().count() == 108), "{table}");
    }
}

//! A profile as two tables, and as JSON.

use std::time::Duration;

use serde_json::{Value, json};

use crate::profile::{Profile, Summary};

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

fn us(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

/// Returns the share of the whole, in percent.
fn share(part: Duration, whole: Duration) -> f64 {
    100.0 * part.as_secs_f64() / whole.as_secs_f64().max(1e-9)
}

/// Returns the name of an operation's row. For an operation that contains others, the row is their
/// rest.
fn label(name: &str) -> String {
    match name {
        "step" | "forward" | "logits" => format!("{name}, rest"),
        name => name.to_owned(),
    }
}

pub(super) fn table(profile: &Profile) -> String {
    let Summary { wall, steps, step_time, ops, actors } = profile.summary();
    let a_step = |duration: Duration| us(duration) / steps.max(1) as f64;
    let mut text = format!(
        "{steps} steps of {:.3} ms on average; {:.1} ms recorded\n\n\
         {:<20} {:>9} {:>12} {:>12} {:>8}\n",
        a_step(step_time) / 1e3,
        ms(wall),
        "operation",
        "calls",
        "ms",
        "µs a step",
        "of steps",
    );
    for op in &ops {
        text += &format!(
            "{:<20} {:>9} {:>12.2} {:>12.1} {:>7.1}%\n",
            label(op.name),
            op.calls,
            ms(op.own),
            a_step(op.own),
            share(op.own, step_time),
        );
    }
    let between = wall.saturating_sub(step_time);
    text += &format!(
        "{:<20} {:>9} {:>12.2} {:>12.1}\n",
        "all steps",
        steps,
        ms(step_time),
        a_step(step_time)
    );
    text += &format!(
        "{:<20} {:>9} {:>12.2} {:>12.1}\n\n",
        "between steps",
        "",
        ms(between),
        a_step(between)
    );
    text += &format!(
        "{:<20} {:>9} {:>12} {:>12} {:>12} {:>8}\n",
        "actor", "messages", "busy ms", "µs a message", "longest µs", "of time",
    );
    for actor in &actors {
        text += &format!(
            "{:<20} {:>9} {:>12.2} {:>12.1} {:>12.1} {:>7.2}%\n",
            format!("{} {}", actor.role, actor.index),
            actor.messages,
            ms(actor.busy),
            us(actor.busy) / actor.messages as f64,
            us(actor.busy_max),
            share(actor.busy, wall),
        );
    }
    if profile.num_lost() > 0 {
        text += &format!("\n{} pieces were too many to keep and are missing\n", profile.num_lost());
    }
    text
}

pub(super) fn json(profile: &Profile) -> Value {
    let Summary { wall, steps, step_time, ops, actors } = profile.summary();
    let ops = ops.iter().map(|op| {
        json!({
            "name": op.name,
            "calls": op.calls,
            "total_us": us(op.total),
            "own_us": us(op.own),
            "percent_of_steps": share(op.own, step_time),
        })
    });
    let actors = actors.iter().map(|actor| {
        json!({
            "role": actor.role,
            "index": actor.index,
            "messages": actor.messages,
            "busy_us": us(actor.busy),
            "total_us": us(actor.total),
            "busy_max_us": us(actor.busy_max),
        })
    });
    json!({
        "wall_us": us(wall),
        "steps": steps,
        "step_time_us": us(step_time),
        "ops": ops.collect::<Value>(),
        "actors": actors.collect::<Value>(),
        "num_lost": profile.num_lost(),
    })
}

//! The view of each step: queues, blocks and tokens. On a terminal, the person goes on and back;
//! otherwise all steps are listed. Tokens are those of the recording.

use std::{
    fmt::Write as _,
    io::{self, BufRead, IsTerminal},
};

use serde_json::{Value, json};

use super::is_past;
use crate::{
    api::recording::{
        BlockMap, Event, NoDevice, Replay, RequestView, RowDone, Scheduled, SchedulerView, Step,
        WaitingReason,
    },
    cli::{
        CliError,
        output::{self, Format},
    },
};

/// Largest number of requests of a queue in the view.
const REQUESTS_MAX: usize = 12;

/// An order of the person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Next,
    Back,
    To(u64),
    Quit,
    Unknown,
}

impl Order {
    fn of(line: &str) -> Self {
        match line.trim() {
            "" | "n" | "next" => Self::Next,
            "b" | "back" => Self::Back,
            "q" | "quit" => Self::Quit,
            number => number.parse().map_or(Self::Unknown, Self::To),
        }
    }
}

/// Shows the steps up to `until`.
pub(super) fn run(mut replay: Replay, until: Option<Step>, format: Format) -> Result<(), CliError> {
    if format == Format::Text && io::stdin().is_terminal() && io::stdout().is_terminal() {
        return walk(replay, until);
    }
    while let Some(step) = next(&mut replay, until)? {
        match format {
            Format::Text => output::show(&text(&replay, &step))?,
            Format::Json => output::show_json(&value(&replay, &step))?,
        }
    }
    Ok(())
}

/// Shows one step after another, as the person wants.
fn walk(mut replay: Replay, until: Option<Step>) -> Result<(), CliError> {
    let mut lines = io::stdin().lock().lines();
    let mut shown = None;
    let mut order = Order::Next;
    loop {
        let found = match order {
            Order::Next => next(&mut replay, until)?,
            Order::To(step) => go_to(&mut replay, step, until)?,
            Order::Back => {
                let before = shown.map_or(1, |step: u64| step.saturating_sub(1));
                go_to(&mut replay, before.max(1), until)?
            }
            Order::Quit => return Ok(()),
            Order::Unknown => {
                output::tell("n: next   b: back   NUMBER: that step   q: quit");
                None
            }
        };
        match found {
            Some(step) => {
                shown = Some(step.output.step.0);
                output::show(&text(&replay, &step))?;
            }
            None if order == Order::Unknown => {}
            None => output::tell("no further step"),
        }
        output::show("n(ext) b(ack) NUMBER q(uit)> ")?;
        order = match lines.next() {
            Some(Ok(line)) => Order::of(&line),
            Some(Err(_)) | None => return Ok(()),
        };
    }
}

/// Returns the first step from `step` on. A step before the current one is reached from the
/// beginning.
fn go_to(
    replay: &mut Replay,
    step: u64,
    until: Option<Step>,
) -> Result<Option<Scheduled>, CliError> {
    if replay.scheduler().step() >= Step(step) {
        *replay = replay.restarted();
    }
    loop {
        match next(replay, until)? {
            Some(planned) if planned.output.step < Step(step) => {}
            found => return Ok(found),
        }
    }
}

/// Returns the next planned step, right after its plan.
fn next(replay: &mut Replay, until: Option<Step>) -> Result<Option<Scheduled>, CliError> {
    while !is_past(replay, until) {
        match replay.advance(&mut NoDevice) {
            Ok(Some(Event::Planned(planned))) => return Ok(Some(*planned)),
            Ok(Some(_)) => {}
            Ok(None) => return Ok(None),
            Err(error) => return Err(CliError::Replay(error.to_string())),
        }
    }
    Ok(None)
}

/// Returns the results of the planned step, which the recording has later.
fn results(replay: &Replay, planned: &Scheduled) -> Vec<RowDone> {
    replay.results_of(planned.output.epoch, planned.output.step).to_vec()
}

fn text(replay: &Replay, planned: &Scheduled) -> String {
    let output = &planned.output;
    let view = replay.scheduler().view(REQUESTS_MAX, REQUESTS_MAX);
    let SchedulerView { stats, running, waiting, .. } = &view;
    let blocks = BlockMap::of(replay.kv_cache(), 1);
    let mut text = format!(
        "step {} of epoch {}: {} tokens\n",
        output.step.0, output.epoch.0, output.total_num_scheduled_tokens
    );
    let num_waiting = stats.num_waiting + stats.num_skipped_waiting;
    // Writing to a text cannot fail.
    let _ = writeln!(text, "  blocks: {} free of {}", blocks.num_free, blocks.num_blocks);
    let _ = writeln!(text, "  running: {}", stats.num_running);
    running.iter().for_each(|request| push(&mut text, request));
    let _ = writeln!(text, "  waiting: {num_waiting}");
    waiting.iter().for_each(|request| push(&mut text, request));
    for (name, requests) in [("ended", &output.finished), ("preempted", &output.preempted)] {
        if !requests.is_empty() {
            let requests: Vec<_> = requests.iter().map(ToString::to_string).collect();
            let _ = writeln!(text, "  {name}: {}", requests.join(", "));
        }
    }
    for (request, num_tokens) in output.num_scheduled_tokens() {
        let _ = writeln!(text, "  computes {num_tokens} tokens of request {request}");
    }
    for row in results(replay, planned) {
        let _ = writeln!(text, "  result of request {}: {row}", row.request());
    }
    text
}

fn push(text: &mut String, request: &RequestView) {
    let RequestView { id, num_prompt_tokens, num_output_tokens, num_computed_tokens, .. } = request;
    let reason = request.waits_for.map(reason).unwrap_or_default();
    let _ = writeln!(
        text,
        "    request {id}: {num_prompt_tokens} + {num_output_tokens} tokens, {num_computed_tokens} \
         computed, {} blocks{reason}",
        request.num_blocks
    );
}

fn reason(reason: WaitingReason) -> String {
    format!(", waits: {reason:?}")
}

fn value(replay: &Replay, planned: &Scheduled) -> Value {
    let output = &planned.output;
    let blocks = BlockMap::of(replay.kv_cache(), 1);
    let tokens = |row: RowDone| json!({"request": row.request().0, "tokens": row.tokens()});
    let rows = output.num_scheduled_tokens();
    json!({
        "step": output.step.0,
        "epoch": output.epoch.0,
        "scheduler": replay.scheduler().view(usize::MAX, usize::MAX),
        "blocks": {"free": blocks.num_free, "total": blocks.num_blocks},
        "rows": rows.map(|(id, count)| json!({"request": id.0, "tokens": count})).collect::<Vec<_>>(),
        "finished": output.finished.iter().map(|id| id.0).collect::<Vec<_>>(),
        "preempted": output.preempted.iter().map(|id| id.0).collect::<Vec<_>>(),
        "results": results(replay, planned).into_iter().map(tokens).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_short() {
        let orders = ["", "n", " b ", "12", "quit", "what"].map(Order::of);
        let expected =
            [Order::Next, Order::Next, Order::Back, Order::To(12), Order::Quit, Order::Unknown];
        assert_eq!(orders, expected);
    }
}

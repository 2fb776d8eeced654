//! A client: it submits a request, reads in its manner, and compares the output with the oracle.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep, timeout};

use super::{
    checker::Checker,
    oracle::Answer,
    record::Record,
    workload::{ClientPlan, Manner, Workload},
    world::World,
};
use crate::{
    error::RequestError,
    logic::{
        kv_cache::Demand,
        request::{
            FinishReason,
            failure::Failure,
            outputs::{Pooled, SampledToken, TokenLogprobs},
            seed::choice_seed,
        },
    },
    system::{ChoiceStream, System},
};

/// A stream without news for this time is stuck.
pub(super) const PATIENCE: Duration = Duration::from_secs(600);

/// A client that is refused for this time will never be admitted.
const LONGEST_REFUSAL: Duration = Duration::from_secs(300);

/// The parts of a run that all its clients share.
pub struct RunContext {
    /// The engine.
    pub system: System,
    /// The parts of the engine that faults reach.
    pub world: World,
    /// The run's workload.
    pub workload: Arc<Workload>,
    /// The run's record.
    pub record: Arc<Record>,
    /// The checker, which learns of deliveries.
    pub checker: Arc<Checker>,
    /// Whether a fault may have refused a client.
    pub has_faults: bool,
}

/// The output of one choice that a client has read.
#[derive(Debug, Default)]
struct Got {
    text: String,
    tokens: Vec<SampledToken>,
    pooled: Option<Pooled>,
    prompt_logprobs: Vec<TokenLogprobs>,
    num_cached_tokens: Option<usize>,
    finish: Option<FinishReason>,
    /// Whether an abort was requested before the end was seen.
    asked_for_abort: bool,
}

/// The reason why a client may have less than the whole output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leave {
    /// There is no reason: it must have the whole output.
    Stayed,
    /// It left.
    Left,
    /// Its deadline passed before it began.
    Late,
}

/// Runs one client: it submits, reads all its choices, and leaves.
pub async fn visit(context: Arc<RunContext>, index: usize) {
    let plan = &context.workload.clients[index];
    sleep(plan.arrival).await;
    let come = Instant::now();
    let mut asked = come;
    let submission = loop {
        match context.system.submit(plan.raw.clone()).await {
            Ok(submission) => break submission,
            Err(error @ RequestError::Recovering { retry_after }) => {
                check_refusal(&context, index, &error);
                if come.elapsed() > LONGEST_REFUSAL {
                    context.record.violate(|| format!("client {index} is never let in: {error}"));
                    return;
                }
                sleep(retry_after).await;
                asked = Instant::now();
            }
            Err(error) => return check_refusal(&context, index, &error),
        }
    };
    context.record.note("submitted", &[index as u64]);
    if let Some(reason) = why_refused(&context.workload, plan) {
        context.record.violate(|| format!("client {index} was accepted, though {reason}"));
        return;
    }
    if *submission.prompt_token_ids != *plan.prompt {
        context.record.violate(|| format!("client {index} got another prompt"));
    }
    let Some(first) = submission.choices.first().map(ChoiceStream::request) else {
        context.record.violate(|| format!("client {index} got no choices"));
        return;
    };
    // These are the door's rules for seeds.
    let seed = plan.raw.params.seed;
    let seed = seed.unwrap_or_else(|| choice_seed(context.workload.door_seed, first.0));
    let count = submission.choices.len();
    let mut readers = Vec::with_capacity(count);
    for (choice, stream) in submission.choices.into_iter().enumerate() {
        let seed = if count == 1 { seed } else { choice_seed(seed, choice as u64) };
        let context = Arc::clone(&context);
        readers.push(tokio::spawn(async move {
            read(&context, index, choice, seed, asked, stream).await;
        }));
    }
    for reader in readers {
        // A panic of a reader is in the record.
        let _ = reader.await;
    }
}

async fn read(
    context: &RunContext,
    index: usize,
    choice: usize,
    seed: u64,
    asked: Instant,
    mut stream: ChoiceStream,
) {
    let plan = &context.workload.clients[index];
    let manner = plan.manners.get(choice).copied().unwrap_or(Manner::Patient);
    let mut got = Got::default();
    let has_left = match manner {
        Manner::LeavesAfter(time) => {
            timeout(time, collect(context, &mut stream, manner, &mut got)).await.unwrap_or(true)
        }
        _ => collect(context, &mut stream, manner, &mut got).await,
    };
    let request = stream.request();
    drop(stream);
    let numbers = [request.0, got.tokens.len() as u64, got.text.len() as u64];
    context.record.note("read", &numbers);
    let answer = context.workload.answer(plan, seed);
    let is_late = got.finish == Some(FinishReason::Error(Failure::DeadlineExceeded));
    let may_be_late = plan.raw.timeout.is_some_and(|limit| asked.elapsed() >= limit);
    let leave = match has_left {
        _ if is_late && may_be_late && got.tokens.is_empty() => Leave::Late,
        true => Leave::Left,
        false => Leave::Stayed,
    };
    if let Err(what) = check(&got, &answer, leave, plan.prompt.len()) {
        context
            .record
            .violate(|| format!("request {request} (client {index}, {manner:?}): {what}"));
        context.record.explain(|| format!("got      {got:?}"));
        context.record.explain(|| format!("expected {answer:?}"));
    }
}

/// Reads the stream. Returns whether the client left before the end.
async fn collect(
    context: &RunContext,
    stream: &mut ChoiceStream,
    manner: Manner,
    got: &mut Got,
) -> bool {
    loop {
        if matches!(manner, Manner::Leaves(after) if got.tokens.len() >= after) {
            return true;
        }
        if matches!(manner, Manner::Aborts(after) if got.tokens.len() >= after)
            && !std::mem::replace(&mut got.asked_for_abort, true)
        {
            context.system.abort(vec![stream.request()]);
        }
        let Ok(delta) = timeout(PATIENCE, stream.next()).await else {
            let (request, count) = (stream.request(), got.tokens.len());
            context.record.violate(|| format!("request {request} is stuck after {count} tokens"));
            return true;
        };
        let Some(delta) = delta else { return false };
        if got.finish.is_some() {
            let request = stream.request();
            context.record.violate(|| format!("request {request}: news after its end"));
        }
        got.text.push_str(&delta.text);
        got.tokens.extend(delta.tokens);
        if delta.pooled.is_some() && got.pooled.is_some() {
            let request = stream.request();
            context.record.violate(|| format!("request {request} is pooled twice"));
        }
        got.pooled = got.pooled.take().or(delta.pooled);
        got.prompt_logprobs.extend(delta.prompt_logprobs);
        got.num_cached_tokens = got.num_cached_tokens.or(delta.num_cached_tokens);
        got.finish = got.finish.take().or(delta.finish);
        if let Manner::Slow(pause) = manner {
            sleep(pause).await;
        } else {
            let (request, count) = (stream.request(), got.tokens.len());
            context.checker.delivered(request, count, got.finish.is_some());
        }
    }
}

/// Returns what is wrong with a stream, if anything is.
fn check(got: &Got, answer: &Answer, leave: Leave, prompt_len: usize) -> Result<(), String> {
    // Text that may become a stop string is held back. It is released when the output is cut short.
    let is_aborted = got.asked_for_abort && got.finish == Some(FinishReason::Abort);
    let is_cut_short = is_aborted || leave == Leave::Late;
    let text = if is_cut_short { &answer.whole_text } else { &answer.text };
    if got.pooled.is_some() && got.pooled != answer.pooled {
        return Err(format!("{:?} instead of {:?}", got.pooled, answer.pooled));
    }
    let is_start = answer.tokens.starts_with(&got.tokens)
        && text.starts_with(&got.text)
        && answer.prompt_logprobs.starts_with(&got.prompt_logprobs);
    if !is_start {
        let place = got.tokens.iter().zip(&answer.tokens).position(|(a, b)| a != b);
        return Err(match place {
            Some(place) => format!("another token at {place}"),
            None if got.tokens.len() > answer.tokens.len() => "tokens beyond the end".to_owned(),
            None if !text.starts_with(&got.text) => {
                format!("text {:?} instead of {text:?}", got.text)
            }
            None => "other log-probabilities of the prompt".to_owned(),
        });
    }
    if got.num_cached_tokens.is_some_and(|count| count >= prompt_len) {
        return Err(format!("{:?} cached tokens of {prompt_len}", got.num_cached_tokens));
    }
    match &got.finish {
        None if leave == Leave::Left => Ok(()),
        None => Err("no end".to_owned()),
        Some(_) if is_cut_short => Ok(()),
        Some(finish) if *finish != answer.finish => {
            Err(format!("ended by {finish:?} instead of {:?}", answer.finish))
        }
        Some(_) if got.pooled != answer.pooled => Err("no pooled result".to_owned()),
        Some(_) if got.tokens.len() < answer.tokens.len() => {
            Err(format!("{} tokens of {}", got.tokens.len(), answer.tokens.len()))
        }
        Some(_) if got.text.len() < answer.text.len() => {
            Err(format!("text {:?} instead of {:?}", got.text, answer.text))
        }
        // A garbage row ends a request before the rows of its prompt are known.
        Some(FinishReason::Error(_)) => Ok(()),
        Some(_) if got.prompt_logprobs.len() < answer.prompt_logprobs.len() => {
            Err("log-probabilities of the prompt are missing".to_owned())
        }
        Some(_) => Ok(()),
    }
}

/// Returns why the engine must refuse this client, if it must.
pub(super) fn why_refused(workload: &Workload, plan: &ClientPlan) -> Option<&'static str> {
    let config = &workload.config.scheduler;
    let prompt = plan.prompt.len();
    let room = config.max_model_len.saturating_sub(prompt);
    let demand = Demand::new(&config.kv_cache());
    if plan.raw.pooling.is_some() && prompt > 0 {
        let is_refused = prompt > config.max_model_len || !demand.fits(prompt);
        return is_refused.then_some("it does not fit");
    }
    if prompt == 0 {
        Some("its prompt is empty")
    } else if room == 0
        || plan.raw.max_tokens.is_some_and(|tokens| tokens as usize > config.max_model_len)
    {
        Some("it does not fit the context")
    } else if has_too_many_choices(workload, plan) {
        Some("it has too many choices")
    } else if !demand.fits(prompt + 1) {
        Some("it does not fit the cache")
    } else {
        None
    }
}

fn has_too_many_choices(workload: &Workload, plan: &ClientPlan) -> bool {
    let (has_tenant, choices) = (plan.raw.tenant.is_some(), plan.raw.params.n as usize);
    workload.config.admission.check_choices(has_tenant, choices).is_err()
}

fn check_refusal(context: &RunContext, index: usize, error: &RequestError) {
    let plan = &context.workload.clients[index];
    context.record.note("refused", &[index as u64]);
    context.record.explain(|| format!("client {index} is refused: {error}"));
    let is_right = match error {
        RequestError::QueueFull { .. } => {
            context.workload.config.admission.max_num_requests < 1_000
        }
        RequestError::QuotaExceeded { .. } => plan.raw.tenant.is_some(),
        RequestError::Quarantined { .. } => {
            let poison = context.workload.poison.as_ref();
            poison.is_some_and(|poison| poison.is_in(&plan.prompt))
        }
        RequestError::Unavailable(_) | RequestError::Recovering { .. } => context.has_faults,
        _ => why_refused(&context.workload, plan).is_some(),
    };
    if !is_right {
        context.record.violate(|| format!("client {index} is refused: {error}"));
    }
}

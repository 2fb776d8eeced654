//! A client of a system with a journal. It asks for an answer by name, and goes on with it after
//! the system has died.

use std::{sync::Arc, time::Duration};

use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use super::books::{Book, Books};
use crate::{
    error::RequestError,
    logic::{
        journal::{Answer, Record},
        request::seed::choice_seed,
    },
    sim::{
        client::{PATIENCE, RunContext, why_refused},
        workload::Manner,
    },
    system::{ChoiceStream, Journal},
};

/// Pause before a client asks again.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// Number of times that a client asks in one life.
const NUM_TRIES: usize = 200;

/// The parts of one life.
pub(super) struct LifeContext {
    pub(super) run: Arc<RunContext>,
    pub(super) journal: Arc<Journal>,
    pub(super) books: Arc<Books>,
    pub(super) life: usize,
    /// Whether the disk may have lost what it said is durable.
    pub(super) is_deceived: bool,
}

impl LifeContext {
    /// Checks that no client waits for an accepted answer that is not in the journal.
    pub(super) fn check_survival(&self, client: usize) {
        let Book { is_accepted, is_done, name, .. } = self.books.of(client);
        if is_accepted && !is_done && !self.is_deceived {
            self.run.record.violate(|| format!("the answer {name:?} of client {client} is lost"));
        }
    }

    /// Enters a new answer of a client.
    fn begin(&self, client: usize, attempt: usize) -> Arc<str> {
        let name: Arc<str> = format!("{client}-{}-{attempt}", self.life).into();
        let data: Arc<[u8]> = name.as_bytes().into();
        self.journal.record(Record::Answer { name: Arc::clone(&name), data, needs_requests: true });
        self.books.change(client, |book| {
            let tokens = std::mem::take(&mut book.tokens);
            // Another seed would give other tokens.
            let has_seed = self.run.workload.clients[client].raw.params.seed.is_some();
            let tokens = if has_seed { tokens } else { Vec::new() };
            *book = Book { name: Some(Arc::clone(&name)), tokens, ..Book::default() };
        });
        name
    }

    fn done(&self, client: usize) {
        self.books.change(client, |book| book.is_done = true);
    }
}

/// Lets a client ask for its answer, and reads the answer.
pub(super) async fn visit(context: Arc<LifeContext>, client: usize) {
    let plan = &context.run.workload.clients[client];
    if context.books.of(client).is_done {
        return;
    }
    if context.life == 0 {
        sleep(plan.arrival).await;
    }
    for attempt in 0..NUM_TRIES {
        let name = context.begin(client, attempt);
        let mut raw = plan.raw.clone();
        raw.answer_id = Some(Arc::clone(&name));
        match context.run.system.submit(raw).await {
            Ok(submission) => {
                let streams = submission.choices;
                let Some(first) = streams.first().map(ChoiceStream::request) else { return };
                let door_seed = context.run.workload.door_seed;
                let seed = plan.raw.params.seed;
                let seed = seed.unwrap_or_else(|| choice_seed(door_seed, first.0));
                let count = streams.len();
                let seed_of = |choice| match count {
                    1 => seed,
                    _ => choice_seed(seed, choice),
                };
                let seeds: Vec<_> = (0..count as u64).map(seed_of).collect();
                context.books.change(client, |book| book.seeds.clone_from(&seeds));
                let durable = context.journal.durable_answer(&name).await;
                // Tokio wakes tasks that wait for one event in any order.
                sleep(Duration::from_millis(1 + client as u64)).await;
                if durable.is_ok() {
                    context.books.change(client, |book| book.is_accepted = true);
                    return read_all(&context, client, streams, &seeds).await;
                }
                context.run.record.explain(|| format!("{name} is not durable"));
            }
            Err(error) => {
                let record = &context.run.record;
                record.explain(|| format!("client {client} is refused: {error}"));
                let is_final = why_refused(&context.run.workload, plan).is_some();
                if is_final && !matches!(error, RequestError::Journal(_)) {
                    context.journal.record(Record::Dropped { name });
                    return context.done(client);
                }
            }
        }
        context.journal.record(Record::Dropped { name });
        sleep(RETRY_PAUSE).await;
    }
    context.run.record.violate(|| format!("client {client} is never let in"));
}

/// Goes on with an answer of an earlier life.
pub(super) async fn resume(context: Arc<LifeContext>, answer: Answer) {
    let Answer { name, requests, trial, .. } = answer;
    let record = &context.run.record;
    record.note("resume", &[requests.len() as u64]);
    let owner = context.books.owner(&name);
    let Some(client) = owner.filter(|&client| !context.books.of(client).is_done) else {
        // Its end was delivered, or its client has asked again since.
        return context.journal.record(Record::Dropped { name });
    };
    let book = context.books.of(client);
    if trial.is_convicted {
        record.violate(|| format!("the answer {name} is convicted"));
    }
    let seeds: Vec<_> = requests.iter().map(|held| held.request.seed).collect();
    let is_whole = !seeds.is_empty();
    if book.is_accepted && seeds != book.seeds && !context.is_deceived {
        record.violate(|| format!("the answer {name} has seeds {seeds:?}, not {:?}", book.seeds));
    }
    let was_aborted = requests.iter().any(|held| held.end == Some(false));
    if !is_whole || was_aborted {
        // The acceptance was not durable, so its client was not told.
        context.journal.record(Record::Dropped { name });
        return visit(Arc::clone(&context), client).await;
    }
    let requests: Vec<_> = requests.into_iter().map(|held| held.request).collect();
    let prompt = &context.run.workload.clients[client].prompt;
    if requests.iter().any(|request| *request.prompt_token_ids != **prompt) {
        record.violate(|| format!("the answer {name} has another prompt"));
    }
    for _ in 0..NUM_TRIES {
        match context.run.system.restore(requests.clone()).await {
            Ok(streams) => {
                context.books.change(client, |book| book.is_accepted = true);
                return read_all(&context, client, streams, &seeds).await;
            }
            Err(error) => record.explain(|| format!("{name} is not restored yet: {error}")),
        }
        sleep(RETRY_PAUSE).await;
    }
    record.violate(|| format!("the answer {name} is never restored"));
}

/// Reads all choices of an answer, whose seeds these are, and drops it.
async fn read_all(
    context: &Arc<LifeContext>,
    client: usize,
    streams: Vec<ChoiceStream>,
    seeds: &[u64],
) {
    let mut readers = JoinSet::new();
    for (choice, (stream, &seed)) in streams.into_iter().zip(seeds).enumerate() {
        readers.spawn(read(Arc::clone(context), client, choice, seed, stream));
    }
    // A panic of a reader is in the record.
    while readers.join_next().await.is_some() {}
    if let Some(name) = context.books.of(client).name {
        context.journal.record(Record::Dropped { name });
    }
    context.done(client);
}

async fn read(
    context: Arc<LifeContext>,
    client: usize,
    choice: usize,
    seed: u64,
    mut stream: ChoiceStream,
) {
    let (workload, record) = (&context.run.workload, &context.run.record);
    let plan = &workload.clients[client];
    let expected = workload.answer(plan, seed);
    let whole: Vec<_> = expected.tokens.iter().map(|token| token.token_id).collect();
    let (mut tokens, mut text, mut finish) = (Vec::new(), String::new(), None);
    let mut pooled = None;
    while finish.is_none() {
        let Ok(delta) = timeout(PATIENCE, stream.next()).await else {
            return record.violate(|| format!("client {client} is stuck"));
        };
        let Some(delta) = delta else { break };
        tokens.extend(delta.tokens.iter().map(|token| token.token_id));
        text.push_str(&delta.text);
        pooled = pooled.or(delta.pooled);
        finish = delta.finish;
        if !whole.starts_with(&tokens) {
            return record
                .violate(|| format!("client {client} gets tokens {tokens:?}, not {whole:?}"));
        }
        let got = tokens.clone();
        context.books.change(client, |book| {
            book.tokens.resize(book.tokens.len().max(choice + 1), Vec::new());
            let known = &mut book.tokens[choice];
            if !got.starts_with(known) && !known.starts_with(&got) {
                record.violate(|| format!("client {client} had {known:?}, and now gets {got:?}"));
            }
            if got.len() > known.len() {
                *known = got;
            }
        });
        if let Some(Manner::Slow(pause)) = plan.manners.get(choice) {
            sleep(*pause).await;
        }
    }
    record.note("read", &[client as u64, tokens.len() as u64, text.len() as u64]);
    if finish.as_ref() != Some(&expected.finish) {
        record.violate(|| {
            format!("client {client} ends by {finish:?} instead of {:?}", expected.finish)
        });
    } else if tokens.len() != whole.len() || text != expected.text || pooled != expected.pooled {
        record.violate(|| format!("client {client} has {text:?} instead of {:?}", expected.text));
    }
}

//! Clients that stream one request after the other, and record the time of each arrival.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{
    measure::{Arrival, Strike},
    pictures::Pictures,
};
use crate::api::{RequestId, TokenId};
use crate::{
    cli::bench::workload::{Sizes, Workload, is_complete},
    engine::Engine,
};

/// A stream without output for this long is lost.
const PATIENCE: Duration = Duration::from_secs(60);
/// Number of different requests of one client, sent in turn.
const REQUESTS_PER_CLIENT: usize = 2;

/// A complete output.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Output {
    tokens: Vec<TokenId>,
    text: String,
    /// Tokens that the request takes if no token is computed twice.
    cost: u64,
}

impl Output {
    /// Returns the number of tokens that differ from `expected`.
    fn num_wrong(&self, expected: &Self) -> u64 {
        let pairs = self.tokens.iter().zip(&expected.tokens);
        let changed = pairs.filter(|(a, b)| a != b).count();
        let tokens = changed + self.tokens.len().abs_diff(expected.tokens.len());
        // The same tokens must also have the same text.
        tokens.max(usize::from(self.text != expected.text)) as u64
    }
}

/// The outcome of a pass.
#[derive(Debug, Default)]
pub(super) struct Streams {
    /// The arrivals of each stream, in order.
    pub(super) arrivals: Vec<Vec<Arrival>>,
    pub(super) requests: u64,
    /// Tokens that the requests take if no token is computed twice.
    pub(super) cost: u64,
    /// Requests that were rejected, or ended wrongly.
    pub(super) lost: u64,
    pub(super) wrong: u64,
}

/// The clients of one pass.
#[derive(Debug)]
pub(super) struct Clients {
    tasks: JoinSet<Streams>,
    is_over: Arc<AtomicBool>,
    begun: Arc<AtomicUsize>,
}

/// The state that all clients share.
#[derive(Debug, Clone)]
pub(super) struct World {
    pub(super) engine: Engine,
    pub(super) workload: Workload,
    /// Pictures in some of the requests.
    pub(super) pictures: Option<Pictures>,
    /// All times count from here.
    pub(super) start: Instant,
    /// The expected output of each request. Empty while these outputs are computed.
    pub(super) expected: Arc<Vec<Output>>,
    /// Number of requests so far. Each request has a prefix of its own.
    pub(super) next_salt: Arc<AtomicUsize>,
    /// The last strike, until a token arrives that was committed after it.
    pub(super) last_strike: Arc<Mutex<Option<Strike>>>,
}

impl World {
    /// Returns a world whose requests have their reference outputs, computed without faults.
    ///
    /// # Errors
    /// The error of a request without an answer.
    pub(super) async fn new(
        engine: &Engine,
        sizes: Sizes,
        clients: usize,
        media_percent: u8,
    ) -> Result<Self, String> {
        let mut world = Self {
            pictures: Pictures::new(engine.codec().media(), media_percent.into())?,
            engine: engine.clone(),
            workload: Workload { vocab_size: engine.model_info().vocab_size, sizes },
            start: Instant::now(),
            expected: Arc::default(),
            next_salt: Arc::default(),
            last_strike: Arc::default(),
        };
        world.expected = Arc::new(world.references(clients).await?);
        Ok(world)
    }

    /// Returns the outputs of the requests of this many clients, computed without faults.
    async fn references(&self, clients: usize) -> Result<Vec<Output>, String> {
        let mut tasks = JoinSet::new();
        for number in 0..clients * REQUESTS_PER_CLIENT {
            let world = self.clone();
            tasks.spawn(async move { (number, world.ask(number, &mut Vec::new()).await) });
        }
        let mut outputs = tasks.join_all().await;
        outputs.sort_by_key(|(number, _)| *number);
        outputs.into_iter().map(|(_, output)| output).collect()
    }

    /// Lets this many clients send `requests` requests in total. Returns when all were answered.
    pub(super) async fn ask_in_all(&self, clients: usize, requests: usize) -> Streams {
        let mut tasks = JoinSet::new();
        let next = Arc::<AtomicUsize>::default();
        for _ in 0..clients {
            let (world, next) = (self.clone(), Arc::clone(&next));
            tasks.spawn(async move {
                let mut streams = Streams::default();
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= requests {
                        return streams;
                    }
                    world.note(number % (clients * REQUESTS_PER_CLIENT), &mut streams).await;
                }
            });
        }
        sum(tasks.join_all().await)
    }

    /// Starts this many clients.
    pub(super) fn enter(&self, clients: usize) -> Clients {
        let (is_over, begun) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let mut tasks = JoinSet::new();
        for client in 0..clients {
            let (world, is_over, begun) = (self.clone(), Arc::clone(&is_over), Arc::clone(&begun));
            tasks.spawn(async move {
                let mut streams = Streams::default();
                let mut turn = 0;
                while !is_over.load(Ordering::Relaxed) {
                    let number = client + clients * (turn % REQUESTS_PER_CLIENT);
                    world.note(number, &mut streams).await;
                    turn += 1;
                    begun.fetch_add(usize::from(turn == 1), Ordering::Relaxed);
                }
                streams
            });
        }
        Clients { tasks, is_over, begun }
    }

    async fn note(&self, number: usize, streams: &mut Streams) {
        let mut arrivals = Vec::new();
        let answer = self.ask(number, &mut arrivals).await;
        streams.arrivals.push(arrivals);
        streams.requests += 1;
        match &answer {
            Ok(output) => streams.cost += output.cost,
            Err(_) => streams.cost += self.workload.cost(number),
        }
        match (answer, self.expected.get(number)) {
            (Ok(output), Some(expected)) => streams.wrong += output.num_wrong(expected),
            (Ok(_), None) => {}
            (Err(reason), _) => {
                tracing::error!(number, reason, "a request is lost");
                streams.lost += 1;
            }
        }
    }

    async fn ask(&self, number: usize, arrivals: &mut Vec<Arrival>) -> Result<Output, String> {
        let salt = self.next_salt.fetch_add(1, Ordering::Relaxed).to_string();
        let request = self.workload.request(number, Some(salt));
        let request = match &self.pictures {
            Some(pictures) => pictures.in_request(number, request),
            None => request,
        };
        let submission = self.engine.submit(request).await.map_err(|error| error.to_string())?;
        let num_prompt_tokens = submission.prompt_token_ids.len() as u64;
        let mut output = Output::default();
        for mut choice in submission.choices {
            let request: RequestId = choice.request();
            let mut finish = None;
            while finish.is_none() {
                let news = timeout(PATIENCE, choice.next()).await;
                let news = news.map_err(|_| "its stream stands still".to_owned())?;
                let Some(delta) = news else { break };
                output.tokens.extend(delta.tokens.iter().map(|token| token.token_id));
                output.text.push_str(&delta.text);
                finish = delta.finish;
                // The first one says that the request was scheduled. Its first token comes later.
                if delta.tokens.is_empty() {
                    continue;
                }
                let (at, position) = (self.start.elapsed(), output.tokens.len());
                let news = Arrival { at, request, position };
                arrivals.push(news);
                self.last_strike.lock().take_if(|strike| strike.is_outlived_by(&news));
            }
            if !is_complete(&finish) {
                return Err(format!("it ended with {finish:?}"));
            }
        }
        // The last token is drawn and not computed.
        output.cost = num_prompt_tokens + (output.tokens.len() as u64).saturating_sub(1);
        Ok(output)
    }
}

impl Clients {
    /// Waits until every client has had an answer.
    pub(super) async fn warm_up(&self) {
        while self.begun.load(Ordering::Relaxed) < self.tasks.len() {
            sleep(Duration::from_millis(1)).await;
        }
    }

    /// Lets each client finish its current request.
    pub(super) async fn leave(self) -> Streams {
        self.is_over.store(true, Ordering::Relaxed);
        sum(self.tasks.join_all().await)
    }
}

fn sum(each: Vec<Streams>) -> Streams {
    let mut all = Streams::default();
    for streams in each {
        all.arrivals.extend(streams.arrivals);
        all.requests += streams.requests;
        all.cost += streams.cost;
        all.lost += streams.lost;
        all.wrong += streams.wrong;
    }
    all
}

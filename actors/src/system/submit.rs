//! The door: a client's request passes it until the ledger has accepted it. Streams keep a weak
//! reference to the door.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

use super::{
    context::Context,
    memory::MemoryError,
    sink::{Abandon, ChoiceStream, Sink},
};
use crate::{
    codec::payload_len,
    error::{ActorError, RequestError},
    link::parts::ENVELOPE_LEN,
    logic::{
        admission::Tenant,
        request::{
            EngineRequest,
            ids::{Micros, RequestId, TokenId},
            media::MultimodalFeature,
            pooling_params::PoolingParams,
            seed::choice_seed,
            work::Work,
        },
    },
    message::{
        InputProcessorMessage, LedgerMessage,
        input_processor::{InputJob, ProcessedRequest, RawRequest},
    },
    supervision::slot::Slot,
};

/// How often a job goes to another input processor when one dies with it.
const INPUT_RETRIES: usize = 2;
/// Number of timeouts after which acceptance is given up.
const ACCEPT_TRIES: u32 = 3;
/// Largest number of bytes of an output token in a message to the engine process.
const MAX_TOKEN_LEN: usize = 5;
/// Number of bytes by which the choices of one prompt may differ there.
const CHOICE_LEN: usize = 64;
/// Pause of the door before it looks for a restarted actor again.
pub(crate) const RETRY_PAUSE: Duration = Duration::from_millis(5);

/// The door. Clients' streams hold it weakly, to report that a client left.
pub(crate) struct Door {
    context: Arc<Context>,
    next_request: AtomicU64,
    next_input: AtomicU64,
    seed: u64,
    is_draining: AtomicBool,
}

impl Abandon for Door {
    fn abandon(&self, request: RequestId) {
        self.context.clients.sinks.close(request);
        let is_live = self.context.ledger().is_live(request);
        if is_live {
            self.context.directory.ledger.cast(LedgerMessage::Abort(vec![request]));
        }
    }
}

/// An accepted request: its prompt, and a stream for each choice.
#[derive(Debug)]
pub struct Submission {
    /// The prompt as the model sees it.
    pub prompt_token_ids: Arc<[TokenId]>,
    /// One stream for each of the `n` choices. For a prompt that is pooled in pieces, one for each
    /// piece: all have as many tokens as the model's context, except the last.
    pub choices: Vec<ChoiceStream>,
    /// The places of images and sounds in the prompt.
    pub mm_features: Arc<[MultimodalFeature]>,
    /// The size of the prompt's processed images and sounds.
    pub media_bytes: usize,
}

impl Submission {
    /// Returns the number of tokens that the client sent: those of the prompt, and those of the
    /// texts that an encoder takes.
    #[must_use]
    pub fn num_input_tokens(&self) -> usize {
        let of_encoder = self.mm_features.iter().map(MultimodalFeature::num_text_tokens);
        self.prompt_token_ids.len() + of_encoder.sum::<usize>()
    }
}

impl Door {
    pub(crate) fn new(context: Arc<Context>, seed: u64) -> Self {
        let is_draining = AtomicBool::new(false);
        let first = context.config.journal.as_ref().map_or(0, |journal| journal.next_request().0);
        let (next_request, next_input) = (AtomicU64::new(first), AtomicU64::new(0));
        Self { context, next_request, next_input, seed, is_draining }
    }

    /// Reserves so many ids of requests. Returns the first.
    pub(crate) fn reserve(&self, count: u64) -> RequestId {
        RequestId(self.next_request.fetch_add(count, Ordering::Relaxed))
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Acquire)
    }

    pub(crate) fn begin_drain(&self) {
        self.is_draining.store(true, Ordering::Release);
    }

    /// Lets a client's request in, unless no request is let in now.
    ///
    /// # Errors
    /// [`RequestError`] names the fault of the request, or the reason why the engine takes none.
    pub(crate) async fn submit(
        self: &Arc<Self>,
        raw: RawRequest,
    ) -> Result<Submission, RequestError> {
        let submitted = self.submit_now(raw).await;
        submitted.inspect_err(|error| self.context.observers.metrics.rejected(error))
    }

    async fn submit_now(self: &Arc<Self>, raw: RawRequest) -> Result<Submission, RequestError> {
        if self.is_draining() {
            return Err(RequestError::Draining);
        }
        let admits = self.context.clients.gate.breaker().admits(self.context.now());
        admits.map_err(|retry_after| RequestError::Recovering { retry_after })?;
        if let Some(journal) = self.context.config.journal.as_ref().filter(|_| raw.is_kept()) {
            journal.check()?;
        }
        // Before the prompt is processed: a refusal must cost next to nothing.
        let (count, now) = (raw.num_outputs() as usize, self.context.now());
        self.context.ledger().check_room(count, raw.tenant, now)?;
        self.admit(raw).await
    }

    /// Lets a request in.
    ///
    /// # Errors
    /// [`RequestError`] names the fault of the request, or says that the engine is full.
    pub(crate) async fn admit(
        self: &Arc<Self>,
        raw: RawRequest,
    ) -> Result<Submission, RequestError> {
        self.enter(raw, false).await
    }

    /// Lets a further part of an accepted request in. It may exceed the limits of the queue and of
    /// its tenant.
    ///
    /// # Errors
    /// [`RequestError`] names the fault of the request.
    pub(crate) async fn admit_part(
        self: &Arc<Self>,
        raw: RawRequest,
    ) -> Result<Submission, RequestError> {
        self.enter(raw, true).await
    }

    async fn enter(
        self: &Arc<Self>,
        raw: RawRequest,
        was_accepted: bool,
    ) -> Result<Submission, RequestError> {
        let arrival = self.context.now();
        let raw = Arc::new(raw);
        let processed = self.process(&raw).await?;
        let prompt_token_ids = Arc::clone(&processed.prompt_token_ids);
        let media = processed.mm_features.iter().map(|feature| feature.media.num_bytes());
        let media_bytes = media.sum();
        let mm_features = Arc::clone(&processed.mm_features);
        let requests = self.requests(&raw, processed, arrival);
        self.check_messages(&requests)?;
        let choices = requests.iter().map(|request| self.open(request.id)).collect();
        self.reserve_results(&requests).await?;
        self.accept(requests, raw.tenant, was_accepted).await?;
        Ok(Submission { prompt_token_ids, choices, mm_features, media_bytes })
    }

    /// Checks the sizes of messages to and from the engine process, if there is one. These are the
    /// requests with all their output tokens, and the results of pooling.
    ///
    /// # Errors
    /// [`RequestError::MessageTooLarge`].
    fn check_messages(&self, requests: &[Arc<EngineRequest>]) -> Result<(), RequestError> {
        if self.context.part.front().is_none() {
            return Ok(());
        }
        let heads = &self.context.vault.executors.info().heads;
        let limit_bytes = self.context.config.max_message_bytes.saturating_sub(ENVELOPE_LEN);
        let check = |what, bytes| match bytes <= limit_bytes {
            true => Ok(()),
            false => Err(RequestError::MessageTooLarge { what, bytes, limit_bytes }),
        };
        let mut measured = None;
        for request in requests {
            let prompt = &request.prompt_token_ids;
            if let Some(params) = request.pooling() {
                check("result", params.result_bytes(heads, prompt.len()))?;
            }
            // The choices of one prompt differ in small numbers alone.
            if measured.is_none_or(|before| !Arc::ptr_eq(before, prompt)) {
                measured = Some(prompt);
                let max_model_len = self.context.config.scheduler.max_model_len;
                let output = request.max_total_tokens(max_model_len).saturating_sub(prompt.len());
                check("request", payload_len(&**request) + output * MAX_TOKEN_LEN + CHOICE_LEN)?;
            }
        }
        Ok(())
    }

    /// Leases the memory for the results of pooling, which the worker gathers while it computes.
    async fn reserve_results(&self, requests: &[Arc<EngineRequest>]) -> Result<(), RequestError> {
        let heads = &self.context.vault.executors.info().heads;
        for request in requests {
            let Some(params) = request.pooling() else { continue };
            let Some(sink) = self.context.clients.sinks.get(request.id) else { continue };
            let result_bytes = params.result_bytes(heads, request.num_prompt_tokens());
            sink.reserve(result_bytes).await.map_err(|error| match error {
                MemoryError::TooLarge { limit: limit_bytes, .. } => {
                    RequestError::ResultTooLarge { result_bytes, limit_bytes }
                }
                MemoryError::Short { retry_after, .. } => RequestError::MemoryShort { retry_after },
            })?;
        }
        Ok(())
    }

    /// Accepts requests that an earlier process has accepted: the choices of one prompt. Returns
    /// their streams, which wait for their reader without a limit of time.
    ///
    /// # Errors
    /// [`RequestError::Unavailable`] if the ledger does not answer.
    pub(crate) async fn restore(
        self: &Arc<Self>,
        requests: Vec<Arc<EngineRequest>>,
    ) -> Result<Vec<ChoiceStream>, RequestError> {
        let (now, tenant) =
            (self.context.now(), requests.first().and_then(|request| request.tenant));
        let requests: Vec<_> =
            requests.into_iter().map(|request| arrived_by(now, request)).collect();
        let choices = requests.iter().map(|request| {
            let sink = self.context.clients.sinks.open(request.id);
            sink.wait_for_ever();
            self.stream(request.id, sink)
        });
        let choices = choices.collect();
        self.accept(requests, tenant, true).await?;
        Ok(choices)
    }

    /// Lets an input processor do the job. If a processor dies, or its answer is lost, another one
    /// gets the job, at most twice. If all processors are dead, the job waits until one is back. A
    /// job that still runs at its time limit would take too long anywhere.
    async fn process(&self, raw: &Arc<RawRequest>) -> Result<ProcessedRequest, RequestError> {
        let limit = self.context.config.input_timeout;
        let give_up = Instant::now() + self.context.config.call_timeout;
        let mut failures = 0;
        loop {
            let Some(processor) = self.live_input_processor() else {
                if Instant::now() >= give_up {
                    let cause = "no input processor is running".to_owned();
                    return Err(RequestError::Unavailable(cause));
                }
                tokio::time::sleep(RETRY_PAUSE).await;
                continue;
            };
            let job = InputJob::new(Arc::clone(raw));
            let process = |reply| InputProcessorMessage::Process(job.clone(), reply);
            match processor.call("process", limit, process).await {
                Ok(processed) => return processed,
                Err(ActorError::CallTimeout { .. }) if job.is_running() => {
                    return Err(RequestError::InputTimeout { limit });
                }
                Err(error) if failures == INPUT_RETRIES => return Err(unavailable(error)),
                Err(_) => failures += 1,
            }
        }
    }

    /// Returns the next live processor in turn.
    fn live_input_processor(&self) -> Option<&Slot<InputProcessorMessage>> {
        let processors = &self.context.directory.input_processors;
        let first = self.next_input.fetch_add(1, Ordering::Relaxed) as usize;
        let turns =
            (0..processors.len()).map(|turn| &processors[(first + turn) % processors.len()]);
        turns.into_iter().find(|processor| processor.is_alive())
    }

    /// Returns the pooling that shows whether the engine serves, if its model does not generate.
    pub(crate) fn canary_pooling(&self) -> Option<PoolingParams> {
        let heads = &self.context.vault.executors.info().heads;
        let head = heads.pooling.first().filter(|_| !heads.generates)?;
        Some(PoolingParams::new(head.task))
    }

    fn requests(
        &self,
        raw: &RawRequest,
        processed: ProcessedRequest,
        arrival: u64,
    ) -> Vec<Arc<EngineRequest>> {
        let ProcessedRequest { prompt_token_ids, mut work, mm_features } = processed;
        let prompts = self.prompts(&work, prompt_token_ids);
        let seed = match &work {
            Work::Generate(params) => params.seed,
            Work::Pool(_) => None,
        };
        let count = prompts.len() as u32;
        let RequestId(first) = self.reserve(count.into());
        let seed = seed.unwrap_or_else(|| choice_seed(self.seed, first));
        // As in vLLM: one token is the end of sequence, the model's others are stop tokens.
        let eos = &self.context.vault.executors.info().eos_token_ids;
        let eos_token_ids: Arc<[TokenId]> = eos.iter().take(1).copied().collect();
        if let Work::Generate(params) = &mut work
            && !params.ignore_eos
        {
            params.stop_token_ids.extend(eos.iter().skip(1));
        }
        let cache_salt: Option<Arc<str>> = raw.cache_salt.as_deref().map(Arc::from);
        let timeout = raw.timeout.map(|timeout| timeout.as_micros() as u64);
        let deadline = timeout.map(|timeout| arrival.saturating_add(timeout));
        let short_context = self.context.vault.executors.info().short_context;
        let request = |(choice, prompt_token_ids): (u32, Arc<[TokenId]>)| EngineRequest {
            id: RequestId(first + u64::from(choice)),
            group: raw.group.unwrap_or(RequestId(first)),
            choice,
            tenant: raw.tenant,
            prompt_token_ids,
            work: work.clone(),
            seed: if count == 1 { seed } else { choice_seed(seed, choice.into()) },
            eos_token_ids: Arc::clone(&eos_token_ids),
            arrival,
            priority: raw.priority,
            cache_salt: cache_salt.clone(),
            lora: raw.lora.clone(),
            deadline,
            answer_id: raw.answer_id.clone(),
            mm_features: Arc::clone(&mm_features),
        };
        let apart = |request: EngineRequest| match short_context {
            Some(limit) => request.marked_if_within(limit),
            None => request,
        };
        (0..count).zip(prompts).map(|choice| Arc::new(apart(request(choice)))).collect()
    }

    /// Returns the prompt of each choice: the same for all, or its pieces if it is longer than the
    /// model's context.
    fn prompts(&self, work: &Work, prompt: Arc<[TokenId]>) -> Vec<Arc<[TokenId]>> {
        let max_model_len = self.context.config.scheduler.max_model_len;
        match work {
            Work::Generate(params) => vec![prompt; params.n as usize],
            Work::Pool(_) if prompt.len() > max_model_len => {
                prompt.chunks(max_model_len).map(Arc::from).collect()
            }
            Work::Pool(_) => vec![prompt],
        }
    }

    fn open(self: &Arc<Self>, request: RequestId) -> ChoiceStream {
        self.stream(request, self.context.clients.sinks.open(request))
    }

    fn stream(self: &Arc<Self>, request: RequestId, sink: Arc<Sink>) -> ChoiceStream {
        let door: Arc<dyn Abandon> = Arc::<Self>::clone(self);
        let owner: Weak<dyn Abandon> = Arc::downgrade(&door);
        ChoiceStream::new(request, sink, owner)
    }

    /// Lets the ledger accept requests. Its answer is final. A call that it did not see is repeated
    /// to its successor.
    async fn accept(
        &self,
        requests: Vec<Arc<EngineRequest>>,
        tenant: Option<Tenant>,
        was_accepted: bool,
    ) -> Result<(), RequestError> {
        let limit = self.context.config.call_timeout;
        let give_up = Instant::now() + ACCEPT_TRIES * limit;
        loop {
            let directory = &self.context.directory;
            let accept = |reply| {
                let requests = requests.clone();
                LedgerMessage::Accept { requests, tenant, was_accepted, reply }
            };
            let error = match directory.ledger.call("accept", limit, accept).await {
                Ok(answer) => return answer,
                Err(error) => error,
            };
            if requests.first().is_some_and(|request| self.is_held(request.id)) {
                return Ok(());
            }
            if Instant::now() >= give_up || !directory.root.is_alive() {
                return Err(unavailable(error));
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }

    /// Returns whether the ledger has the request, or had it and is done with it.
    fn is_held(&self, request: RequestId) -> bool {
        self.context.ledger().is_open(request)
            || self.context.clients.sinks.get(request).is_some_and(|sink| sink.has_heard())
    }
}

/// Returns a request that has arrived by now. One of an earlier process seems to arrive later if
/// the machine's clock was set back since, and others would go before it until then.
fn arrived_by(now: Micros, mut request: Arc<EngineRequest>) -> Arc<EngineRequest> {
    let ahead = request.arrival.saturating_sub(now);
    if ahead > 0 {
        let request = Arc::make_mut(&mut request);
        request.arrival -= ahead;
        request.deadline = request.deadline.map(|deadline| deadline.saturating_sub(ahead));
    }
    request
}

/// Returns the error for a part of the engine that does not answer.
pub(crate) fn unavailable(error: ActorError) -> RequestError {
    RequestError::Unavailable(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_of_an_earlier_process_arrives_no_later_than_now() {
        let request = |arrival, deadline| {
            let request = EngineRequest::for_test(1, [2]);
            Arc::new(EngineRequest { arrival, deadline, ..request })
        };
        assert_eq!(arrived_by(50, request(40, Some(70))), request(40, Some(70)));
        assert_eq!(arrived_by(50, request(90, Some(120))), request(50, Some(80)));
        assert_eq!(arrived_by(50, request(90, None)), request(50, None));
    }
}

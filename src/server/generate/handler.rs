//! The handler of all generating protocols. A request becomes a plan, the engine takes the plan's
//! requests, and the protocol writes the answer.

use std::sync::Arc;

use axum::{
    extract::{FromRequestParts, State},
    http::HeaderMap,
    response::Response,
};

use super::{choices::Choices, request_log::RequestLog};
use crate::{
    api::{LoraRequest, Modality, RawRequest},
    server::{
        http::{
            caller::Caller,
            draws::Draws,
            error::ApiError,
            extract::{JsonBody, JsonRequest},
            request_id::{chosen, response_id},
        },
        memory::RequestMemory,
        resume::{Entry, KeptStream, Mode, Served, Ticket, durable, once, resume},
        state::AppState,
        traces::{RequestSpan, TraceParent},
    },
};

/// A generating protocol, by the body of its requests.
pub(in crate::server) trait Protocol: JsonRequest {
    /// The path of the route in the log.
    const ROUTE: &'static str;

    /// The part of the HTTP request that holds its name.
    type Naming: FromRequestParts<AppState> + Send + Sync;

    /// Writes the answers.
    type Answer: Answer;

    /// Returns the model that the client asks for.
    fn asked_model(&self) -> Option<&str>;

    /// Checks the fields of this protocol. The engine checks prompts and parameters.
    fn plan(
        self,
        exchange: &Exchange<Self::Naming>,
    ) -> impl Future<Output = Result<Plan<Self::Answer>, ApiError>> + Send;
}

/// One HTTP request without its body.
pub(in crate::server) struct Exchange<N> {
    pub(in crate::server) state: AppState,
    pub(in crate::server) caller: Caller,
    pub(in crate::server) naming: N,
    pub(in crate::server) memory: RequestMemory,
    /// The facts of the answer that the request does not determine.
    pub(in crate::server) draws: Draws,
    /// The name of the model in an answer that an earlier process began.
    pub(in crate::server) model: Option<String>,
}

impl<N> Exchange<N> {
    /// Returns the name to answer under: the one that the client asked for, or the model's first.
    /// An answer of an earlier process keeps its name, though no model goes by it now.
    ///
    /// # Errors
    /// 404 if no model goes by that name.
    pub(in crate::server) fn model_name(&self, asked: Option<&str>) -> Result<String, ApiError> {
        match &self.model {
            Some(model) => Ok(model.clone()),
            None => self.state.model_name(asked),
        }
    }
}

impl Exchange<HeaderMap> {
    /// Returns the id of the answer: the route's prefix, and the client's name for it or a random
    /// one.
    pub(in crate::server) fn response_id(&self, prefix: &str, field: Option<&str>) -> String {
        response_id(prefix, &self.naming, field, &self.draws.name)
    }
}

/// The requests for the engine, and the writer of their answer.
pub(in crate::server) struct Plan<A> {
    pub(in crate::server) names: RequestNames,
    /// One request for each prompt.
    pub(in crate::server) requests: Vec<RawRequest>,
    /// The length penalty, if the client asks for a beam search.
    pub(in crate::server) beam_search: Option<f32>,
    pub(in crate::server) answer: A,
}

/// The names of one request.
pub(in crate::server) struct RequestNames {
    /// The name in the log.
    pub(in crate::server) log: String,
    /// The names that abort it.
    pub(in crate::server) abort: [String; 2],
}

impl RequestNames {
    /// Returns the names of the answer `response_id`. The log has its id. Its id, and the part of
    /// the id that the client may have chosen, abort it.
    pub(in crate::server) fn of(response_id: &str) -> Self {
        let abort = [response_id, chosen(response_id)].map(str::to_owned);
        Self { log: response_id.to_owned(), abort }
    }
}

/// Writes the answer to one request.
pub(in crate::server) trait Answer: Send + Sized + 'static {
    /// Returns how the answer is given.
    fn mode(&self) -> Mode;

    /// Leases the memory for everything but the choices.
    fn reserve(
        &mut self,
        _memory: &RequestMemory,
    ) -> impl Future<Output = Result<(), ApiError>> + Send {
        async { Ok(()) }
    }

    /// Returns the answer: in one piece, or as a stream that follows `choices`.
    fn respond(
        self,
        choices: Choices,
        log: RequestLog,
    ) -> impl Future<Output = Result<Response, ApiError>> + Send;
}

/// Handles a request of protocol `P`. A client that disconnects drops the response, which aborts
/// the request, unless its answer is kept ([`crate::server::resume`]). A response in the background
/// goes on without its client.
pub(in crate::server) async fn generate<P: Protocol>(
    State(state): State<AppState>,
    caller: Caller,
    naming: P::Naming,
    ticket: Ticket,
    memory: RequestMemory,
    parent: TraceParent,
    JsonBody(request): JsonBody<P>,
) -> Result<Response, ApiError> {
    if let Some((stream, after)) = &ticket.asked().last_event {
        return resume(&state, caller.tenant, &ticket, stream, after).await;
    }
    let (draws, model) = (ticket.draws().clone(), ticket.served().map(|served| &served.model));
    let exchange = Exchange { state, caller, naming, memory, draws, model: model.cloned() };
    let asked = request.asked_model().map(str::to_owned);
    let adapter = adapter(&exchange.state, &ticket, asked.as_deref()).await?;
    let mut plan = request.plan(&exchange).await?;
    let adapter = match adapter {
        // A request that is submitted again keeps the model that it had.
        None if ticket.served().is_none() => {
            let items = plan.requests.iter().flat_map(|request| &*request.media);
            let kinds: Vec<Modality> = items.map(|item| item.modality).collect();
            exchange.state.engine.default_lora_adapter(&kinds).await?
        }
        adapter => adapter,
    };
    let served = Served { model: exchange.model_name(asked.as_deref())?, adapter };
    plan.requests.iter_mut().for_each(|request| request.lora.clone_from(&served.adapter));
    let Exchange { state, memory, .. } = exchange;
    let mode = plan.answer.mode();
    let key = ticket.asked().key.clone().filter(|_| !ticket.is_entered());
    let entering = (ticket.clone(), served);
    let work = answer(state.clone(), caller, entering, memory, plan, (P::ROUTE, parent));
    match (key, mode) {
        (Some(key), Mode::Whole) => once(&state, caller.tenant, &key, ticket, work).await,
        (Some(_), Mode::Background) => {
            let message = "Idempotency-Key is not supported for responses in the background";
            Err(ApiError::invalid("Idempotency-Key", message))
        }
        // A client continues a stream by the id of its last event.
        (_, Mode::Stream) | (None, _) => work.await,
    }
}

/// Returns the adapter that the client asked for as its model, if it is one. The engine itself
/// loads the adapter of requests that an earlier process has accepted. For requests that are
/// submitted again, it is loaded here.
async fn adapter(
    state: &AppState,
    ticket: &Ticket,
    asked: Option<&str>,
) -> Result<Option<Arc<LoraRequest>>, ApiError> {
    let Some(served) = ticket.served() else { return state.adapter(asked).await };
    match served.adapter.clone().filter(|_| !ticket.is_adopted()) {
        Some(adapter) => Ok(Some(state.engine.restore_lora_adapter(&adapter).await?)),
        None => Ok(None),
    }
}

/// Gives the requests of a plan to the engine, and answers with their outputs.
async fn answer<A: Answer>(
    state: AppState,
    caller: Caller,
    (ticket, served): (Ticket, Served),
    memory: RequestMemory,
    plan: Plan<A>,
    (route, parent): (&'static str, TraceParent),
) -> Result<Response, ApiError> {
    let Plan { names, mut requests, beam_search, mut answer } = plan;
    let num_prompts = beam_search.is_none().then_some(requests.len());
    let id = &names.abort[0];
    let span = RequestSpan::new(&state, parent, &names.log, &served.model, &requests);
    let entry = Entry { id, mode: answer.mode(), num_prompts, served };
    ticket.enter(&state, caller.tenant, entry)?;
    if num_prompts.is_some() {
        requests.iter_mut().for_each(|request| request.answer_id = ticket.answer_id());
    }
    let mut log = RequestLog::new(names.log, route, caller.tenant);
    let submitted = async {
        answer.reserve(&memory).await?;
        let names = names.abort.each_ref().map(String::as_str);
        let choices = match (ticket.take_adopted(), beam_search) {
            (Some(prompts), _) => {
                Choices::adopt(&state, &names, caller, memory, prompts, ticket.after())
            }
            (None, None) => Choices::submit(&state, &names, caller, memory, requests).await,
            (None, Some(penalty)) => {
                // A death of the process counts against it only if the journal has it by then.
                durable(&state, &ticket).await?;
                Choices::beam_search(&state, &names, caller, memory, requests, penalty).await
            }
        };
        let choices = choices?;
        durable(&state, &ticket).await?;
        Ok::<_, ApiError>(choices)
    };
    let mut choices = submitted.await.inspect_err(|_| log.end("refused"))?;
    log.trace(span);
    choices.keep(KeptStream::new(ticket, &state, caller.tenant, id));
    answer.respond(choices, log).await
}

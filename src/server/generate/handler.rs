//! The handler of all generating protocols. A request becomes a plan, the engine takes the plan's
//! requests, and the protocol writes the answer.

use axum::{
    extract::{FromRequestParts, State},
    response::Response,
};

use super::{choices::Choices, request_log::RequestLog};
use crate::{
    api::RawRequest,
    server::{
        http::{
            caller::Caller,
            error::ApiError,
            extract::{JsonBody, JsonRequest},
            request_id::chosen,
        },
        memory::RequestMemory,
        state::AppState,
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
pub(in crate::server) trait Answer: Send + Sized {
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
/// the request. Only a response in the background goes on without its client.
pub(in crate::server) async fn generate<P: Protocol>(
    State(state): State<AppState>,
    caller: Caller,
    naming: P::Naming,
    memory: RequestMemory,
    JsonBody(request): JsonBody<P>,
) -> Result<Response, ApiError> {
    let exchange = Exchange { state, caller, naming, memory };
    let asked = request.asked_model().map(str::to_owned);
    let adapter = exchange.state.adapter(asked.as_deref()).await?;
    let Plan { names, mut requests, beam_search, mut answer } = request.plan(&exchange).await?;
    requests.iter_mut().for_each(|request| request.lora.clone_from(&adapter));
    let Exchange { state, memory, .. } = exchange;
    let mut log = RequestLog::new(names.log, P::ROUTE, caller.tenant);
    let submitted = async {
        answer.reserve(&memory).await?;
        let names = names.abort.each_ref().map(String::as_str);
        match beam_search {
            None => Choices::submit(&state, &names, caller, memory, requests).await,
            Some(penalty) => {
                Choices::beam_search(&state, &names, caller, memory, requests, penalty).await
            }
        }
    };
    let choices = submitted.await.inspect_err(|_| log.end("refused"))?;
    answer.respond(choices, log).await
}

//! The one handler of all generating protocols: a request becomes a plan, the engine gets the plan's
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
    /// The path of its route, as the log has it.
    const ROUTE: &'static str;

    /// The part of the HTTP request that may name it.
    type Naming: FromRequestParts<AppState> + Send + Sync;

    /// Writes its answers.
    type Answer: Answer;

    /// Checks what concerns this protocol alone; the engine checks the rest.
    fn plan(
        self,
        exchange: &Exchange<Self::Naming>,
    ) -> impl Future<Output = Result<Plan<Self::Answer>, ApiError>> + Send;
}

/// What a handler has of a request beside its body.
pub(in crate::server) struct Exchange<N> {
    pub(in crate::server) state: AppState,
    pub(in crate::server) caller: Caller,
    pub(in crate::server) naming: N,
    pub(in crate::server) memory: RequestMemory,
}

/// What to ask of the engine, and how to write its answer.
pub(in crate::server) struct Plan<A> {
    pub(in crate::server) names: RequestNames,
    /// One request for each prompt.
    pub(in crate::server) requests: Vec<RawRequest>,
    /// The length penalty of the beam search that is asked for.
    pub(in crate::server) beam_search: Option<f32>,
    pub(in crate::server) answer: A,
}

/// What a request is called.
pub(in crate::server) struct RequestNames {
    pub(in crate::server) log: String,
    /// Each of them aborts it.
    pub(in crate::server) abort: [String; 2],
}

impl RequestNames {
    /// The answer's id, and the part of it that the client may have chosen.
    pub(in crate::server) fn of(response_id: &str) -> Self {
        let abort = [response_id, chosen(response_id)].map(str::to_owned);
        Self { log: response_id.to_owned(), abort }
    }
}

/// Writes the answer to one request.
pub(in crate::server) trait Answer: Send + Sized {
    /// Leases the memory that the answer takes beside its choices.
    fn reserve(
        &mut self,
        _memory: &RequestMemory,
    ) -> impl Future<Output = Result<(), ApiError>> + Send {
        async { Ok(()) }
    }

    /// Returns the answer that `choices` bring: whole, or as a stream that goes on with them.
    fn respond(
        self,
        choices: Choices,
        log: RequestLog,
    ) -> impl Future<Output = Result<Response, ApiError>> + Send;
}

/// Handles a request of protocol `P`. A client that leaves drops the response, which aborts the
/// request.
pub(in crate::server) async fn generate<P: Protocol>(
    State(state): State<AppState>,
    caller: Caller,
    naming: P::Naming,
    memory: RequestMemory,
    JsonBody(request): JsonBody<P>,
) -> Result<Response, ApiError> {
    let exchange = Exchange { state, caller, naming, memory };
    let Plan { names, requests, beam_search, mut answer } = request.plan(&exchange).await?;
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

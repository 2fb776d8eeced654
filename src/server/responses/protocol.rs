//! The request, and what it means.

use std::sync::Arc;

use axum::http::HeaderMap;
use serde_json::{Map, Value};

use super::{
    answer::ResponseAnswer,
    fields::ResponsesFields,
    ids::{self, ItemIds},
    input::{self, InputReader},
    items::Items,
    keeper::Keeper,
    messages::messages,
    output::OutputWriter,
    refused::RefusedFields,
    response::{Asked, Response, Status},
    shared::SharedBytes,
    store::Owner,
    stored::Turn,
    tool_names::ToolNames,
    tools,
};
use crate::api::{ChatPrompt, RawRequest, StructuredOutput};
use crate::config::LimitSettings;
use crate::server::{
    chat::{complete_kwargs, given_kwargs},
    generate::{
        handler::{Exchange, Plan, Protocol, RequestNames},
        logprobs::ChatLogprobsWriter,
        sampling::{SamplingFields, output_tokens},
        structured_outputs::StructuredOutputFields,
        unsupported::UnsupportedFields,
    },
    handover::StillRuns,
    http::{
        error::ApiError,
        limits::at_most,
        parts::FromParts,
        request_id::{chosen, response_id},
    },
    media::{MediaParts, media_kwargs},
    state::AppState,
    turn::{TurnRequest, readings},
};

/// The field that names the response before.
const PREVIOUS: &str = "previous_response_id";

/// The body of `POST /v1/responses`.
pub(in crate::server) struct ResponsesRequest {
    fields: ResponsesFields,
    sampling: SamplingFields,
    structured: StructuredOutputFields,
    refused: RefusedFields,
    later: UnsupportedFields,
}

impl FromParts for ResponsesRequest {
    type Parts =
        (ResponsesFields, SamplingFields, StructuredOutputFields, RefusedFields, UnsupportedFields);

    fn from_parts(parts: Self::Parts) -> Result<Self, ApiError> {
        let (fields, sampling, structured, refused, later) = parts;
        Ok(Self { fields, sampling, structured, refused, later })
    }

    fn check_limits(&self, limits: &LimitSettings) -> Result<(), ApiError> {
        let items = self.fields.input.as_ref().and_then(Value::as_array).map_or(0, Vec::len);
        at_most("input", items, limits.max_messages)?;
        let tools = self.fields.tools.iter().flatten();
        // Those of a namespace count each.
        let num_tools =
            tools.map(|tool| tool["tools"].as_array().map_or(1, |own| own.len().max(1)));
        at_most("tools", num_tools.sum(), limits.max_tools)?;
        self.sampling.check_limits(limits, 1)
    }
}

impl Protocol for ResponsesRequest {
    const ROUTE: &'static str = "/v1/responses";
    type Naming = HeaderMap;
    type Answer = ResponseAnswer;

    fn asked_model(&self) -> Option<&str> {
        self.fields.model.as_deref()
    }

    /// Leases memory for the text of stored responses before it is copied.
    async fn plan(self, exchange: &Exchange<HeaderMap>) -> Result<Plan<Self::Answer>, ApiError> {
        let state = &exchange.state;
        let owner = exchange.caller.tenant;
        let fields = &self.fields;
        let model = exchange.model_name(fields.model.as_deref())?;
        self.refused.refuse()?;
        self.later.refuse_but(&[
            "thinking_token_budget",
            "mm_processor_kwargs",
            "media_io_kwargs",
        ])?;
        let store = self.store(state)?;
        let is_streamed = self.sampling.is_streamed();
        self.fetch(state, owner).await?;
        let history = self.history(state, owner)?;
        let id = ids::response_id(&exchange.draws.name);
        let mut ids = ItemIds::new(&id);
        let mut shared = SharedBytes::new(&history, state.config.body_limit_bytes)?;
        let kwargs = media_kwargs(
            state,
            fields.mm_processor_kwargs.as_ref(),
            fields.media_io_kwargs.as_ref(),
        )?;
        let mut media = state.media_parts(&model).with_kwargs(kwargs);
        let input = self.input(state, owner, &media, &mut ids, &mut shared)?;
        exchange.memory.grow_for_stored_text(shared.total()).await?;

        let given_tools = fields.tools.as_deref().unwrap_or_default();
        let tool_names = ToolNames::of(given_tools);
        let mut tools = tools::functions(given_tools)?;
        let tool_choice = tools::choice(fields.tool_choice.as_ref(), &tool_names, &mut tools)?;
        let items = history.iter().flat_map(|turn| turn.items()).chain(input.iter());
        let goes_on = input::ends_cut_off(fields.input.as_ref());
        let chat = ChatPrompt {
            messages: messages(fields.instructions.as_deref(), items, &mut media)?,
            tools,
            add_generation_prompt: !goes_on,
            continue_final_message: goes_on,
            chat_template_kwargs: self.kwargs(state)?,
            ..ChatPrompt::default()
        };

        let mut params = self.sampling.params(state.engine.default_sampling())?;
        ResponsesFields::check_params(&params)?;
        params.logprobs = fields.logprobs()?;
        let max_tokens = output_tokens("max_output_tokens", fields.max_output_tokens)?;
        let asked = Asked {
            temperature: params.temperature,
            top_p: params.top_p,
            presence_penalty: params.presence_penalty,
            frequency_penalty: params.frequency_penalty,
            max_output_tokens: max_tokens,
            store,
            ..fields.asked(model.clone())?
        };
        let logprobs = params.logprobs.map(|num_top| {
            ChatLogprobsWriter::new(self.sampling.token_names(state), num_top as usize)
        });
        let turn = TurnRequest {
            chat,
            tool_choice,
            parallel_tool_calls: fields.parallel_tool_calls.unwrap_or(true),
            format: self.format()?,
            thinking_token_budget: fields.thinking_token_budget()?,
            include_reasoning: fields.include_reasoning.unwrap_or(true),
            params,
            max_tokens,
        };
        let (request, style) = turn.plan(state)?;
        let style = style.noted_by(readings(state, is_streamed, "responses"));
        let media = media.load(&state.media, &exchange.memory).await?;
        let request = RawRequest { media, ..self.raw_request(state, request)? };
        let status = if asked.background { Status::Queued } else { Status::InProgress };
        let names = self.names(&exchange.naming, &id);
        let answer = ResponseAnswer {
            style,
            output: OutputWriter::new(ids, tool_names),
            logprobs,
            response: Response::new(id, exchange.draws.created, status, asked),
            keeper: Keeper {
                store: state.responses.clone(),
                owner,
                history,
                input,
                memory: exchange.memory.clone(),
                weight: None,
            },
            is_streamed,
        };
        Ok(Plan { names, requests: vec![request], beam_search: None, answer })
    }
}

impl ResponsesRequest {
    /// Returns the request for the engine, made from the `turn`'s.
    fn raw_request(&self, state: &AppState, turn: RawRequest) -> Result<RawRequest, ApiError> {
        let RawRequest { prompt, params, max_tokens, .. } = turn;
        let request = self.sampling.raw_request(prompt, params, max_tokens)?;
        let truncate = self.fields.truncates().then_some(-1);
        let truncate_prompt_tokens = request.truncate_prompt_tokens.or(truncate);
        Ok(RawRequest {
            add_special_tokens: false,
            truncate_prompt_tokens,
            max_tokens_default: state.engine.default_sampling().max_tokens,
            ..request
        })
    }

    /// Returns the names of the request for the response `id`. The client may choose one.
    fn names(&self, headers: &HeaderMap, id: &str) -> RequestNames {
        let name = self.sampling.request_id.as_deref().unwrap_or(ids::name_of(id));
        let log = response_id("resp", headers, Some(name), ids::name_of(id));
        let abort = [id.to_owned(), chosen(&log).to_owned()];
        RequestNames { log, abort }
    }

    /// Returns the items of the input. Stored items that it refers to count as `shared`.
    fn input(
        &self,
        state: &AppState,
        owner: Owner,
        media: &MediaParts<'_>,
        ids: &mut ItemIds,
        shared: &mut SharedBytes,
    ) -> Result<Arc<Items>, ApiError> {
        let find = |item: &str| state.responses.item(owner, item);
        let mut reader = InputReader { media, ids, find: &find, shared };
        reader.read(self.fields.input.as_ref()).map(Arc::new)
    }

    /// Returns the structure of the answer, in OpenAI's form or in vLLM's.
    fn format(&self) -> Result<Option<StructuredOutput>, ApiError> {
        match (self.fields.format()?, self.structured.output()?) {
            (Some(_), Some(_)) => {
                let message = "`structured_outputs` cannot be used together with `text.format`";
                Err(ApiError::invalid("structured_outputs", message))
            }
            (format, constraint) => Ok(format.or(constraint)),
        }
    }

    /// Returns whether the response is stored.
    fn store(&self, state: &AppState) -> Result<bool, ApiError> {
        let is_enabled = state.responses.is_enabled();
        let background = self.fields.background.unwrap_or(false);
        let refuse = |field: &str, message: &str| Err(ApiError::invalid(field, message));
        match self.fields.store {
            Some(true) if !is_enabled => {
                refuse("store", "this server stores no responses: responses_store_max_count is 0")
            }
            _ if background && !is_enabled => refuse(
                "background",
                "this server stores no responses: responses_store_max_count is 0",
            ),
            Some(false) if background => {
                refuse("background", "`background` is only for responses that are stored")
            }
            store => Ok(store.unwrap_or(is_enabled)),
        }
    }

    /// Fetches the responses that the request refers to from the process before this one, if only
    /// that one has them.
    async fn fetch(&self, state: &AppState, owner: Owner) -> Result<(), ApiError> {
        let Some(predecessor) = &state.predecessor else { return Ok(()) };
        let missing = |id: &String| state.responses.get(owner, id).is_err();
        if let Some(id) = self.fields.previous_response_id.as_ref().filter(|id| missing(id)) {
            let fetched = predecessor.fetch_response(state, owner, id).await;
            fetched.map_err(|StillRuns| not_over(id))?;
        }
        for id in input::references(self.fields.input.as_ref()).filter(missing) {
            // An item of a response that still runs is not found, as in one process.
            let _ = predecessor.fetch_response(state, owner, &id).await;
        }
        Ok(())
    }

    /// Returns the turns of the conversation that the request continues.
    fn history(&self, state: &AppState, owner: Owner) -> Result<Vec<Arc<Turn>>, ApiError> {
        let Some(id) = &self.fields.previous_response_id else { return Ok(Vec::new()) };
        let previous = state.responses.get(owner, id).map_err(|error| {
            let message = format!("Previous response with id '{id}' not found.");
            ApiError { message, ..error.with_param(PREVIOUS) }
        })?;
        previous.conversation().ok_or_else(|| not_over(id))
    }

    fn kwargs(&self, state: &AppState) -> Result<Map<String, Value>, ApiError> {
        let fields = &self.fields;
        let mut kwargs = given_kwargs(fields.chat_template_kwargs.as_ref(), state)?;
        if let Some(verbosity) = fields.verbosity() {
            kwargs.entry("verbosity").or_insert(Value::from(verbosity));
        }
        complete_kwargs(kwargs, "body.reasoning.effort", fields.effort(), state)
    }
}

fn not_over(id: &str) -> ApiError {
    ApiError::invalid(PREVIOUS, format!("The response '{id}' is not over yet."))
}

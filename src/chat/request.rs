//! A request for the next turn of a conversation.

use std::{sync::Arc, time::Duration};

use serde_json::{Map, Value};

use super::{ChatError, Message, ParserChoice, Tool, ToolChoice};
use crate::{
    api::{
        ChatPrompt, LoraRequest, RawRequest, SamplingParams, StructuredOutput, Tenant, TextCodec,
    },
    engine::DefaultSampling,
    turn::{TurnParsers, TurnRequest, TurnStyle},
};

/// A request for the next turn of a conversation. [`ChatRequest::new`] sets the defaults, and a
/// program changes the fields that it needs.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ChatRequest {
    /// The conversation so far.
    pub messages: Vec<Message>,
    /// The functions that the model may call.
    pub tools: Vec<Tool>,
    /// Whether the model calls them. `None`: it may, if there are tools.
    pub tool_choice: Option<ToolChoice>,
    /// Whether one turn may hold several calls.
    pub parallel_tool_calls: bool,
    /// The structure of the answer. A call that must be made has a structure of its own.
    pub response_format: Option<StructuredOutput>,
    /// Most tokens of thought.
    pub thinking_token_budget: Option<u32>,
    /// Sampling parameters. `None`: those of the model's authors, which
    /// [`Engine::default_sampling`](crate::Engine::default_sampling) returns.
    pub params: Option<SamplingParams>,
    /// Most output tokens. `None`: as many as the context leaves, or as the model's authors set.
    pub max_tokens: Option<u32>,
    /// Whether the answer continues the last message.
    pub continue_final_message: bool,
    /// Further variables for the chat template, for example `enable_thinking`.
    pub chat_template_kwargs: Map<String, Value>,
    /// Documents for templates that show some.
    pub documents: Vec<Value>,
    /// The parser of tool calls. The default is the one that the chat template suggests.
    pub tool_call_parser: ParserChoice,
    /// The parser of thoughts. The default is the one that the chat template suggests.
    pub reasoning_parser: ParserChoice,
    /// The adapter whose weights are added to the model's.
    pub lora: Option<Arc<LoraRequest>>,
    /// Priority: a lower value is served first.
    pub priority: i32,
    /// The tenant whose quota the request uses.
    pub tenant: Option<Tenant>,
    /// Longest wait until the request begins. After that it is aborted.
    pub timeout: Option<Duration>,
}

impl ChatRequest {
    /// Returns a request for the answer to `messages`.
    pub fn new(messages: impl IntoIterator<Item = Message>) -> Self {
        Self {
            messages: messages.into_iter().collect(),
            tools: Vec::new(),
            tool_choice: None,
            parallel_tool_calls: true,
            response_format: None,
            thinking_token_budget: None,
            params: None,
            max_tokens: None,
            continue_final_message: false,
            chat_template_kwargs: Map::new(),
            documents: Vec::new(),
            tool_call_parser: ParserChoice::default(),
            reasoning_parser: ParserChoice::default(),
            lora: None,
            priority: 0,
            tenant: None,
            timeout: None,
        }
    }

    /// Returns the request for the engine, and the style that reads its answer.
    pub(super) fn plan(
        self,
        parsers: &TurnParsers,
        codec: Arc<dyn TextCodec>,
        defaults: &DefaultSampling,
    ) -> Result<(RawRequest, TurnStyle), ChatError> {
        let params = self.params.unwrap_or_else(|| {
            let mut params = SamplingParams::default();
            defaults.apply(&mut params);
            params
        });
        if params.n != 1 {
            return Err(ChatError::SeveralAnswers { n: params.n });
        }
        let has_tools = !self.tools.is_empty();
        let if_absent = if has_tools { ToolChoice::Auto } else { ToolChoice::None };
        let tools = self.tools.into_iter().map(Tool::render).collect::<Result<Vec<_>, _>>()?;
        let mut media = Vec::new();
        let messages = self.messages.into_iter().map(|message| message.render(&mut media));
        let turn = TurnRequest {
            chat: ChatPrompt {
                messages: messages.collect(),
                tools: has_tools.then_some(tools),
                documents: (!self.documents.is_empty()).then_some(self.documents),
                add_generation_prompt: !self.continue_final_message,
                continue_final_message: self.continue_final_message,
                chat_template: None,
                chat_template_kwargs: self.chat_template_kwargs,
                joins_placeholders: false,
            },
            tool_choice: self.tool_choice.unwrap_or(if_absent),
            parallel_tool_calls: self.parallel_tool_calls,
            format: self.response_format,
            thinking_token_budget: self.thinking_token_budget,
            include_reasoning: true,
            params,
            max_tokens: self.max_tokens,
        };
        let (request, style) = turn.plan_with(parsers, codec)?;
        let request = RawRequest {
            media: media.into(),
            max_tokens_default: defaults.max_tokens,
            lora: self.lora,
            priority: self.priority,
            tenant: self.tenant,
            timeout: self.timeout,
            ..request
        };
        Ok((request, style))
    }
}

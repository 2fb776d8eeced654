//! The detokenizer's shell: turns committed tokens into text.

use std::{cmp::Ordering, collections::BTreeMap, sync::Arc, time::Duration};

use ractor::{Actor, ActorProcessingErr, ActorRef};

use crate::{
    fault::{Bug, planted},
    logic::{
        ledger::{BatchId, EgressBatch, EgressEntry},
        recovery::message_numbers::Arrival,
        request::{EngineRequest, FinishReason, failure::Failure, ids::RequestId},
        text::text_stream::{TextBatch, TextEnd, TextEntry, TextStream, TokenText},
    },
    message::{DetokenizerMessage, LedgerMessage, OutputStreamerMessage},
    ports::{DecodeOptions, IncrementalDecoder, TextCodec, TextError},
    supervision::watched::expect,
    system::context::Context,
};

/// Time for the text of one token on a slow machine.
const TOKEN_TIME: Duration = Duration::from_micros(5);

/// The detokenizer actor of one egress shard.
#[derive(Debug)]
pub struct DetokenizerActor {
    context: Arc<Context>,
    shard: usize,
}

/// The outputs in progress, all of one generation of the shard.
#[derive(Default)]
pub struct State {
    /// The next batch, unless a new generation begins.
    next: BatchId,
    outputs: BTreeMap<RequestId, Output>,
}

impl State {
    /// Returns whether a batch is the next one. The first batch of a generation replaces the state.
    fn place(&mut self, batch: BatchId) -> Arrival {
        if batch.generation > self.next.generation && batch.number == 0 {
            *self = Self { next: batch, outputs: BTreeMap::new() };
        }
        let place = (batch.generation, batch.number);
        match place.cmp(&(self.next.generation, self.next.number)) {
            Ordering::Less => Arrival::Stale,
            Ordering::Greater => Arrival::Gap,
            Ordering::Equal => {
                self.next.number += 1;
                Arrival::InOrder
            }
        }
    }
}

/// One output in progress.
enum Output {
    Text(TextOutput),
    /// The result of a pooling request, which is passed on.
    Pooled,
}

struct TextOutput {
    decoder: Box<dyn IncrementalDecoder>,
    stream: TextStream,
}

impl Output {
    fn new(codec: &dyn TextCodec, request: &EngineRequest) -> Self {
        let Some(params) = request.sampling() else { return Self::Pooled };
        let options = DecodeOptions {
            skip_special_tokens: params.skip_special_tokens,
            spaces_between_special_tokens: params.spaces_between_special_tokens,
        };
        let decoder = codec.decoder(&request.prompt_token_ids, options);
        Self::Text(TextOutput { decoder, stream: TextStream::new(params) })
    }

    /// Returns the news of an entry, and the end of the output if the entry has it.
    fn advance(&mut self, entry: EgressEntry) -> Result<TextEntry, TextError> {
        match self {
            Self::Text(output) => output.advance(entry),
            Self::Pooled => Ok(pooled(entry)),
        }
    }
}

/// Returns the news of a pooling request.
fn pooled(entry: EgressEntry) -> TextEntry {
    TextEntry {
        request: entry.request,
        position: entry.position,
        tokens: Vec::new(),
        pooled: entry.produced.pooled().cloned(),
        prompt_logprobs_start: entry.prompt_logprobs_start,
        prompt_logprobs: entry.prompt_logprobs,
        num_cached_tokens: entry.num_cached_tokens,
        queue_time: entry.queue_time,
        end: entry.end.map(|reason| TextEnd { text: String::new(), reason }),
    }
}

impl TextOutput {
    /// Returns the text of new tokens, and the end of the output if the entry has it.
    fn advance(&mut self, entry: EgressEntry) -> Result<TextEntry, TextError> {
        let tokens = entry.produced.into_tokens();
        let mut text = TextEntry {
            request: entry.request,
            position: entry.position,
            tokens: Vec::with_capacity(tokens.len()),
            pooled: None,
            prompt_logprobs_start: entry.prompt_logprobs_start,
            prompt_logprobs: entry.prompt_logprobs,
            num_cached_tokens: entry.num_cached_tokens,
            queue_time: entry.queue_time,
            end: None,
        };
        let count = tokens.len();
        for (i, token) in tokens.into_iter().enumerate() {
            let hidden = self.stream.hides(i + 1 == count, entry.end.as_ref());
            let piece = if hidden { String::new() } else { self.decoder.push(token.token_id)? };
            let (shown, end) = self.stream.push(&piece);
            text.tokens.push(TokenText { token, text: shown });
            if let Some(reason) = end {
                text.end = Some(TextEnd { text: String::new(), reason });
                return Ok(text);
            }
        }
        if let Some(reason) = entry.end {
            let rest = self.stream.finish(&self.decoder.flush());
            text.end = Some(TextEnd { text: rest, reason });
        }
        Ok(text)
    }
}

impl DetokenizerActor {
    /// Returns the detokenizer of `shard`.
    pub fn new(context: Arc<Context>, shard: usize) -> Self {
        Self { context, shard }
    }

    fn process(&self, batch: EgressBatch, state: &mut State) -> TextBatch {
        // A new detokenizer gets all tokens of its shard at once.
        let num_tokens: usize =
            batch.entries.iter().map(|entry| entry.produced.tokens().len()).sum();
        expect(TOKEN_TIME * u32::try_from(num_tokens).unwrap_or(u32::MAX));
        let (mut entries, mut ends) = (Vec::with_capacity(batch.entries.len()), Vec::new());
        for entry in batch.entries {
            entries.extend(self.process_entry(entry, state, &mut ends));
        }
        // A message makes its receiver this thread's next task. It would wait with the thread if a
        // decoder blocked it, so no message is sent before the last decoder has returned.
        ends.into_iter().for_each(|end| self.context.directory.ledger.cast(end));
        TextBatch { id: batch.id, entries }
    }

    /// Returns the text of one entry. Adds to `ends` what the ledger must know.
    fn process_entry(
        &self,
        entry: EgressEntry,
        state: &mut State,
        ends: &mut Vec<LedgerMessage>,
    ) -> Option<TextEntry> {
        let request = entry.request;
        if let Some(introduced) = &entry.introduction {
            state.outputs.insert(request, Output::new(&*self.context.vault.codec, introduced));
        }
        // An output that is absent has ended at a stop string. This entry was already on its way.
        let output = state.outputs.get_mut(&request)?;
        let (position, known_end) = (entry.position, entry.end.clone());
        let text = output.advance(entry).unwrap_or_else(|error| failed(request, position, &error));
        if let Some(end) = &text.end {
            if known_end.as_ref() != Some(&end.reason) {
                let position = text.position + text.tokens.len();
                let reason = end.reason.clone();
                ends.push(LedgerMessage::EndAt { request, position, reason });
            }
            state.outputs.remove(&request);
        }
        Some(text)
    }
}

/// Returns the end of a request whose tokens have no text. Other requests go on.
fn failed(request: RequestId, position: usize, error: &TextError) -> TextEntry {
    let reason = FinishReason::Error(Failure::Text(error.to_string()));
    TextEntry {
        request,
        position,
        tokens: Vec::new(),
        pooled: None,
        prompt_logprobs_start: 0,
        prompt_logprobs: Vec::new(),
        num_cached_tokens: None,
        queue_time: None,
        end: Some(TextEnd { text: String::new(), reason }),
    }
}

impl Actor for DetokenizerActor {
    type Msg = DetokenizerMessage;
    type State = State;
    type Arguments = ();

    async fn pre_start(
        &self,
        _myself: ActorRef<DetokenizerMessage>,
        (): (),
    ) -> Result<State, ActorProcessingErr> {
        Ok(State::default())
    }

    async fn post_start(
        &self,
        _myself: ActorRef<DetokenizerMessage>,
        _state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        self.context.directory.ledger.cast(LedgerMessage::AttachEgress { shard: self.shard });
        Ok(())
    }

    async fn handle(
        &self,
        _myself: ActorRef<DetokenizerMessage>,
        message: DetokenizerMessage,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let DetokenizerMessage::Batch(batch) = message else { return Ok(()) };
        match state.place(batch.id) {
            Arrival::Stale if planted(Bug::RepeatBatch) => drop(self.process(batch, state)),
            Arrival::InOrder => {
                let text = self.process(batch, state);
                if let Some(streamer) = self.context.directory.output_streamers.get(self.shard) {
                    streamer.cast(OutputStreamerMessage::Batch(text));
                }
            }
            Arrival::Stale => self.context.observers.stale(1),
            Arrival::Gap => {
                let attach = LedgerMessage::AttachEgress { shard: self.shard };
                self.context.directory.ledger.cast(attach);
            }
        }
        Ok(())
    }
}

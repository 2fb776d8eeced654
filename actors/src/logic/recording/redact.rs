//! Redaction: a recording without what clients and the model said. Its schedule stays the same.
//!
//! A token becomes a salted hash of all tokens up to it. Equal beginnings of prompts therefore stay
//! equal, and so do prefix hits, but how often a token occurs is no longer visible. The salt is not
//! kept, so a text cannot be confirmed by a guess. Numbers stay: lengths, limits, times, priorities
//! and the tenants' indices.

use std::{collections::BTreeMap, sync::Arc};

use sha2::{Digest, Sha256};

use super::{Began, Entry, Event, NoDevice, Replay, ReplayError, RowDone, RowResult, Scan};
use crate::logic::{
    encoder_cache::EncoderAnswer,
    request::{
        EngineRequest, FinishReason,
        failure::Failure,
        ids::{RequestId, TokenId},
        lora::{AdapterFingerprint, LoraRequest},
        media::{MultimodalFeature, ProcessedMedia},
        outputs::{Commit, RowFailure},
        pooling_params::PoolingParams,
        sampling_params::SamplingParams,
        structured_output::{OutputFormat, StructuredOutput},
        work::Work,
    },
    scheduler::{RecoveredRequest, Resource, SchedulerConfig},
};

/// The reason why a recording cannot be redacted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RedactError {
    /// It is redacted.
    #[error("the recording is redacted already")]
    IsRedacted,
    /// It cannot be replayed, which shows the tokens that end outputs.
    #[error("the recording cannot be replayed: {0}")]
    Replay(ReplayError),
    /// Two texts have the same hash.
    #[error("the redacted recording has another schedule; try again: {0}")]
    Collision(ReplayError),
}

/// Returns the recording without token ids and texts. `salt` must be random, and must not be kept.
/// The result has been replayed: it has the same schedule.
///
/// # Errors
/// [`RedactError`] if it is redacted, or cannot be replayed.
pub fn redacted(scan: Scan, salt: [u8; 32]) -> Result<Scan, RedactError> {
    if scan.began.is_redacted {
        return Err(RedactError::IsRedacted);
    }
    let (began, fault) = (began(&scan.began), scan.fault.clone());
    let num_bytes = scan.num_bytes;
    let mut replay = Replay::new(scan).map_err(RedactError::Replay)?;
    let mut redaction = Redaction { salt, texts: BTreeMap::new(), ends: BTreeMap::new() };
    let mut entries = Vec::new();
    while let Some(entry) = replay.peek() {
        entries.push(redaction.entry(entry));
        match replay.advance(&mut NoDevice).map_err(RedactError::Replay)? {
            Some(Event::Done { commits, .. }) => {
                commits.iter().for_each(|commit| redaction.commit(commit));
            }
            Some(Event::Input | Event::Planned(_) | Event::Stopped(_)) | None => {}
        }
    }
    entries.iter_mut().for_each(|entry| redaction.set_ends(entry));
    let scan = Scan { began, entries, num_bytes, fault };
    let mut replay = Replay::new(scan.clone()).map_err(RedactError::Collision)?;
    while replay.advance(&mut NoDevice).map_err(RedactError::Collision)?.is_some() {}
    Ok(scan)
}

fn began(began: &Began) -> Began {
    // No schedule depends on the seed of block hashes.
    let scheduler = SchedulerConfig { hash_seed: None, ..began.scheduler.clone() };
    Began { scheduler, settings: Vec::new(), is_redacted: true, ..began.clone() }
}

/// The hash of a text so far.
#[derive(Debug, Clone, Copy)]
struct Text([u8; 32]);

impl Text {
    /// Appends a token. Returns the token in its place.
    fn push(&mut self, token: TokenId) -> TokenId {
        let hash = Sha256::new_with_prefix(self.0).chain_update(token.to_le_bytes());
        self.0 = hash.finalize().into();
        // The lowest bit is dropped: some code may count beyond the last token.
        self.0.first_chunk().map_or(0, |first| u32::from_be_bytes(*first) >> 1)
    }
}

struct Redaction {
    salt: [u8; 32],
    /// The prompt and the committed output of each request.
    texts: BTreeMap<RequestId, Text>,
    /// The last token of each output that its tokens ended.
    ends: BTreeMap<RequestId, TokenId>,
}

impl Redaction {
    fn entry(&mut self, entry: &Entry) -> Entry {
        match entry {
            Entry::Began(facts) => Entry::Began(Box::new(began(facts))),
            Entry::Recovered { epoch, last_step, live } => Entry::Recovered {
                epoch: *epoch,
                last_step: *last_step,
                live: live.iter().map(|live| self.recovered(live)).collect(),
            },
            Entry::Added(requests) => {
                Entry::Added(requests.iter().map(|request| self.request(request)).collect())
            }
            Entry::Resolved { resource, ready } => Entry::Resolved {
                resource: self.resource(resource),
                ready: ready.as_ref().copied().map_err(failure),
            },
            Entry::Encoded(answer) => Entry::Encoded(self.answer(answer)),
            Entry::StepDone { epoch, step, now, rows } => Entry::StepDone {
                epoch: *epoch,
                step: *step,
                now: *now,
                rows: rows.iter().map(|row| self.row(row)).collect(),
            },
            Entry::SchedulerStarted
            | Entry::Aborted(_)
            | Entry::Restricted(_)
            | Entry::Paused(_)
            | Entry::ResetAsked { .. }
            | Entry::NeedsTaken
            | Entry::StepBegan { .. }
            | Entry::KvCacheBegan(_)
            | Entry::StepPlanned(_)
            | Entry::Stopped(_) => entry.clone(),
        }
    }

    fn recovered(&mut self, live: &RecoveredRequest) -> RecoveredRequest {
        let request = self.request(&live.request);
        let tokens = self.append(request.id, live.output_token_ids.iter().copied());
        RecoveredRequest {
            request,
            output_token_ids: tokens,
            num_prompt_logprobs: live.num_prompt_logprobs,
        }
    }

    /// Returns the request, whose output is empty from here on.
    fn request(&mut self, request: &EngineRequest) -> Arc<EngineRequest> {
        let mut text = Text(self.salt);
        let prompt = request.prompt_token_ids.iter().map(|&token| text.push(token)).collect();
        self.texts.insert(request.id, text);
        let work = match &request.work {
            Work::Generate(params) => Work::Generate(SamplingParams {
                max_tokens: params.max_tokens,
                prompt_logprobs: params.prompt_logprobs,
                structured_output: params.structured_output.as_ref().map(|it| self.format(it)),
                ..SamplingParams::default()
            }),
            Work::Pool(params) => Work::Pool(PoolingParams {
                task: params.task,
                needs_all_tokens: params.needs_all_tokens,
                ..PoolingParams::default()
            }),
        };
        Arc::new(EngineRequest {
            id: request.id,
            group: request.group,
            choice: request.choice,
            tenant: request.tenant,
            prompt_token_ids: prompt,
            work,
            seed: 0,
            eos_token_ids: Arc::from([]),
            arrival: request.arrival,
            priority: request.priority,
            cache_salt: request.cache_salt.as_ref().map(|salt| self.name(salt)),
            lora: request.lora.as_ref().map(|adapter| self.adapter(adapter)),
            deadline: request.deadline,
            answer_id: None,
            mm_features: request.mm_features.iter().map(|item| self.feature(item)).collect(),
        })
    }

    fn append(
        &mut self,
        request: RequestId,
        tokens: impl IntoIterator<Item = TokenId>,
    ) -> Vec<TokenId> {
        let text = self.texts.entry(request).or_insert(Text(self.salt));
        tokens.into_iter().map(|token| text.push(token)).collect()
    }

    /// Takes over committed tokens.
    fn commit(&mut self, commit: &Commit) {
        let tokens = commit.produced.tokens().iter().map(|token| token.token_id);
        let tokens = self.append(commit.request, tokens);
        let is_by_tokens =
            matches!(commit.finish, Some(FinishReason::Stop(_) | FinishReason::Repetition));
        if let Some(&last) = tokens.last().filter(|_| is_by_tokens) {
            self.ends.insert(commit.request, last);
        }
    }

    fn row(&self, row: &RowDone) -> RowDone {
        let mut rest = row.rest();
        let request = row.request();
        rest.result = match rest.result {
            RowResult::Tokens(tokens) => {
                let mut text = self.texts.get(&request).copied().unwrap_or(Text(self.salt));
                RowResult::Tokens(tokens.into_iter().map(|token| text.push(token)).collect())
            }
            RowResult::Pooled(_) => RowResult::Pooled(0),
        };
        rest.failure = rest.failure.map(|failure| match failure {
            RowFailure::NotANumber => RowFailure::NotANumber,
            RowFailure::Grammar(_) => RowFailure::Grammar(String::new()),
            RowFailure::Adapter(_) => RowFailure::Adapter(String::new()),
            RowFailure::Media => RowFailure::Media,
        });
        rest.of_request(request)
    }

    fn resource(&self, resource: &Resource) -> Resource {
        match resource {
            Resource::Grammar(format) => Resource::Grammar(self.format(format)),
            Resource::Adapter(adapter) => Resource::Adapter(self.adapter(adapter)),
            Resource::Encoder(request) => Resource::Encoder(*request),
        }
    }

    fn answer(&self, answer: &EncoderAnswer) -> EncoderAnswer {
        let EncoderAnswer { epoch, version, ready, failed, starved } = answer;
        let ready = ready.iter().map(|(request, item)| (*request, self.name(item)));
        let failed = failed.iter().map(|(item, why)| (self.name(item), failure(why)));
        EncoderAnswer {
            epoch: *epoch,
            version: *version,
            ready: ready.collect(),
            failed: failed.collect(),
            starved: *starved,
        }
    }

    fn feature(&self, item: &MultimodalFeature) -> MultimodalFeature {
        let ProcessedMedia { modality, num_embeds, .. } = *item.media;
        let media = ProcessedMedia { modality, num_embeds, ..ProcessedMedia::default() };
        MultimodalFeature {
            identifier: self.name(&item.identifier),
            media: Arc::new(media),
            ..item.clone()
        }
    }

    fn format(&self, output: &StructuredOutput) -> Arc<StructuredOutput> {
        let name = self.name(&format!("{output:?}"));
        Arc::new(OutputFormat::Grammar(name.to_string()).into())
    }

    fn adapter(&self, adapter: &LoraRequest) -> Arc<LoraRequest> {
        Arc::new(LoraRequest {
            name: self.name(&adapter.name).to_string(),
            path: String::new(),
            version: adapter.version,
            fingerprint: AdapterFingerprint(self.hash(&adapter.fingerprint.0)),
        })
    }

    /// Returns another name. Equal names stay equal.
    fn name(&self, name: &str) -> Arc<str> {
        let hash = self.hash(name.as_bytes());
        hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect::<String>().into()
    }

    fn hash(&self, bytes: &[u8]) -> [u8; 32] {
        Sha256::new_with_prefix(self.salt).chain_update(bytes).finalize().into()
    }

    /// Lets each output end where its tokens ended it.
    fn set_ends(&self, entry: &mut Entry) {
        let set = |request: &mut Arc<EngineRequest>| {
            if let Some(&last) = self.ends.get(&request.id) {
                Arc::make_mut(request).eos_token_ids = Arc::from([last]);
            }
        };
        match entry {
            Entry::Added(requests) => requests.iter_mut().for_each(set),
            Entry::Recovered { live, .. } => {
                live.iter_mut().for_each(|live| set(&mut live.request));
            }
            _ => {}
        }
    }
}

/// Returns the kind of a failure without its text.
fn failure(failure: &Failure) -> Failure {
    match failure {
        Failure::InvalidGrammar(_) => Failure::InvalidGrammar(String::new()),
        Failure::GrammarCompiler(_) => Failure::GrammarCompiler(String::new()),
        Failure::Adapter(_) => Failure::Adapter(String::new()),
        Failure::Encoder(_) => Failure::Encoder(String::new()),
        Failure::Text(_) => Failure::Text(String::new()),
        other => other.clone(),
    }
}

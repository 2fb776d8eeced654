//! One prompt of an answer of an earlier process.

use std::sync::Arc;

use super::position::{Batch, Position, Progress};
use crate::{
    api::{ChoiceStream, EngineRequest, Failure, RequestError, RequestId},
    engine::Engine,
    server::{http::error::ApiError, state::AppState},
};

/// The requests of one prompt, and their outputs if the engine has the requests.
pub(super) struct Prompt {
    requests: Vec<Arc<EngineRequest>>,
    choices: Option<Vec<ChoiceStream>>,
}

/// A prompt whose requests the engine has.
pub(in crate::server) struct AdoptedPrompt {
    pub(in crate::server) token_ids: Arc<[u32]>,
    /// The tokens that the client sent with it.
    pub(in crate::server) num_input_tokens: usize,
    pub(in crate::server) choices: Vec<ChoiceStream>,
}

impl Prompt {
    pub(super) fn new(requests: Vec<Arc<EngineRequest>>) -> Self {
        Self { requests, choices: None }
    }

    /// Gives the requests to the engine, unless it has them.
    ///
    /// # Errors
    /// As [`Engine::restore`]. A later call may succeed.
    pub(super) async fn begin(&mut self, state: &AppState) -> Result<(), RequestError> {
        if self.choices.is_some() {
            return Ok(());
        }
        let adapter = self.requests.first().and_then(|request| request.lora.as_ref());
        match adapter {
            Some(adapter) if !state.engine.config().enable_lora => {
                let name = &adapter.name;
                let message = format!("LoRA adapters are not enabled now, and it uses '{name}'");
                self.fail(&state.engine, &Failure::Adapter(message));
                return Ok(());
            }
            Some(adapter) => {
                let known = state.engine.known_lora_adapter(adapter);
                for request in &mut self.requests {
                    Arc::make_mut(request).lora = Some(Arc::clone(&known));
                }
            }
            None => {}
        }
        self.choices = Some(state.engine.restore(self.requests.clone()).await?);
        Ok(())
    }

    /// Lets the requests fail, without the engine.
    pub(super) fn fail(&mut self, engine: &Engine, failure: &Failure) {
        let lease = || engine.memory().lease();
        let failed = self
            .requests
            .iter()
            .map(|request| ChoiceStream::failed(request.id, failure.clone(), lease()));
        self.choices = Some(failed.collect());
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = RequestId> {
        self.requests.iter().map(|request| request.id)
    }

    pub(super) fn into_streams(self) -> AdoptedPrompt {
        let first = self.requests.first();
        AdoptedPrompt {
            token_ids: first.map(|it| Arc::clone(&it.prompt_token_ids)).unwrap_or_default(),
            num_input_tokens: first.map_or(0, |request| request.num_input_tokens()),
            choices: self.choices.unwrap_or_default(),
        }
    }
}

/// Checks that a stream with these prompts may have an event at `after`.
///
/// # Errors
/// 400 if it has other choices, or fewer tokens.
pub(super) fn check_place(prompts: &[Prompt], after: &Position) -> Result<(), ApiError> {
    let Batch::Output { choice, after, before } = &after.batch else { return Ok(()) };
    let requests: Vec<_> = prompts.iter().flat_map(|prompt| &prompt.requests).collect();
    let error = |message: String| Err(ApiError::invalid("Last-Event-ID", message));
    if before.len() != requests.len() {
        let (found, expected) = (before.len(), requests.len());
        return error(format!(
            "the id of the event is of a stream with {found} choices, this one has {expected}"
        ));
    }
    let shown = |index: usize| if index == *choice { *after } else { before[index] };
    for (index, request) in requests.iter().enumerate() {
        let (num_tokens, limit) = (shown(index).num_tokens, request.max_tokens());
        if num_tokens > limit as usize {
            return error(format!(
                "the id of the event names {num_tokens} tokens, the stream has at most {limit}"
            ));
        }
    }
    let choices = prompts.iter().flat_map(|prompt| prompt.choices.iter().flatten());
    let lacks = |(index, stream): (usize, &ChoiceStream)| {
        let Progress { num_tokens, has_ended } = shown(index);
        stream.lacks(num_tokens, has_ended)
    };
    match choices.enumerate().any(lacks) {
        false => Ok(()),
        true => error("the stream has ended, and has no event with this id".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_beyond_a_stream_is_refused() {
        let request = |id| Arc::new(EngineRequest::for_test(id, [1, 2]));
        let limit = request(1).max_tokens();
        let prompts = [Prompt::new(vec![request(1)]), Prompt::new(vec![request(2)])];
        let check = |after: String| check_place(&prompts, &after.parse().unwrap());
        assert!(check("0.0.b".to_owned()).is_ok());
        assert!(check(format!("9.0.1-{limit}.{limit},3")).is_ok());
        let error = check("9.0.1-7.4,5,6".to_owned()).unwrap_err().message;
        assert!(error.ends_with("with 3 choices, this one has 2"), "{error}");
        for beyond in [format!("9.0.1-{}.0,3", limit + 1), format!("9.0.1-4.{},3", limit + 1)] {
            let error = check(beyond).unwrap_err().message;
            assert!(error.ends_with(&format!("the stream has at most {limit}")), "{error}");
        }
    }
}

//! An HTTP exchange as the journal keeps it: all that its answer depends on, beside the engine's
//! requests. So another process can write the same answer.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::rendering::Rendering;
use crate::{
    api::{DecodeError, EncodeError, Frames, LoraRequest, MAX_PAYLOAD_LEN},
    server::http::draws::Draws,
};

/// The frames of exchanges. A change of [`Exchange`] needs another version.
const FRAMES: Frames = Frames { version: 2, max_len: MAX_PAYLOAD_LEN };

/// One exchange.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::server) struct Exchange {
    /// The id of the answer. Its client asks for it by this id.
    pub(in crate::server) id: String,
    /// The key that it came with, as [`ApiKeys::name_of`] names it.
    ///
    /// [`ApiKeys::name_of`]: crate::server::http::auth::ApiKeys::name_of
    pub(in crate::server) owner: Option<u64>,
    pub(in crate::server) route: String,
    /// The headers that the answer depends on.
    pub(in crate::server) headers: Vec<(String, String)>,
    pub(in crate::server) body: Vec<u8>,
    pub(in crate::server) draws: Draws,
    pub(in crate::server) mode: Mode,
    pub(in crate::server) served: Served,
    pub(in crate::server) rendering: Rendering,
    /// Number of prompts that the engine accepts for it. `None` for a beam search, whose requests
    /// follow from its body.
    pub(in crate::server) num_prompts: Option<usize>,
    /// The client's `Idempotency-Key`.
    pub(in crate::server) key: Option<String>,
    /// Milliseconds that it goes on without a connection.
    pub(in crate::server) grace_ms: u64,
    /// The whole answer, once it is there.
    pub(in crate::server) answer: Option<WholeAnswer>,
}

/// The model of an answer. Its name may lead elsewhere in another process, or nowhere.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(in crate::server) struct Served {
    /// Its name in the answer.
    pub(in crate::server) model: String,
    /// The adapter, if the name is that of one.
    pub(in crate::server) adapter: Option<Arc<LoraRequest>>,
}

/// How an answer is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::server) enum Mode {
    /// In one piece.
    Whole,
    /// Event by event.
    Stream,
    /// The response's own routes show it.
    Background,
}

/// An answer in one piece.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::server) struct WholeAnswer {
    pub(in crate::server) status: u16,
    pub(in crate::server) content_type: String,
    pub(in crate::server) body: Vec<u8>,
}

impl Exchange {
    pub(in crate::server) fn to_bytes(&self) -> Result<Vec<u8>, EncodeError> {
        let mut bytes = Vec::new();
        FRAMES.encode(self, &mut bytes)?;
        Ok(bytes)
    }

    pub(in crate::server) fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        let cut = DecodeError::Value("it is cut off".to_owned());
        FRAMES.decode(bytes)?.map(|(exchange, _)| exchange).ok_or(cut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exchange_comes_back() {
        let exchange = Exchange {
            id: "cmpl-1".to_owned(),
            owner: Some(7),
            route: "/v1/completions".to_owned(),
            headers: vec![("x-request-id".to_owned(), "1".to_owned())],
            body: br#"{"prompt": "a"}"#.to_vec(),
            draws: Draws::default(),
            mode: Mode::Whole,
            served: Served { model: "m".to_owned(), adapter: None },
            rendering: Rendering::default(),
            num_prompts: Some(1),
            key: None,
            grace_ms: 5,
            answer: Some(WholeAnswer {
                status: 200,
                content_type: "application/json".to_owned(),
                body: b"{}".to_vec(),
            }),
        };
        let bytes = exchange.to_bytes().unwrap();
        assert_eq!(Exchange::from_bytes(&bytes), Ok(exchange));
        assert!(Exchange::from_bytes(&bytes[..9]).is_err());
    }
}

//! Ids of tool calls.

use sha2::{Digest, Sha256};

use crate::parsers::CallIdFormat;

const ALPHANUMERICS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The ids of one choice's calls. They are derived from the request. The same answer again gets the
/// same ids, and another turn of the conversation gets others.
#[derive(Debug, Clone)]
pub(super) struct CallIds {
    seed: Sha256,
    format: CallIdFormat,
}

impl CallIds {
    pub(super) fn new(
        response_id: &str,
        prompt: &[u32],
        choice: usize,
        format: CallIdFormat,
    ) -> Self {
        let mut seed = Sha256::new();
        seed.update(response_id);
        seed.update([0]);
        prompt.iter().for_each(|token| seed.update(token.to_le_bytes()));
        seed.update((choice as u64).to_le_bytes());
        Self { seed, format }
    }

    /// Returns the id of call `index`.
    pub(super) fn id(&self, index: usize) -> String {
        let digest = self.seed.clone().chain_update((index as u64).to_le_bytes()).finalize();
        match self.format {
            CallIdFormat::Any => {
                let hex: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
                format!("chatcmpl-tool-{hex}")
            }
            CallIdFormat::NineAlphanumerics => digest
                .iter()
                .take(9)
                .map(|byte| char::from(ALPHANUMERICS[usize::from(*byte) % ALPHANUMERICS.len()]))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn an_id_follows_from_request_choice_and_index() {
        let id = |request: &str, prompt: &[u32], choice, index| {
            CallIds::new(request, prompt, choice, CallIdFormat::Any).id(index)
        };
        assert_eq!(id("a", &[1], 0, 0), id("a", &[1], 0, 0));
        let ids = BTreeSet::from([
            id("a", &[1], 0, 0),
            id("b", &[1], 0, 0),
            id("a", &[2], 0, 0),
            id("a", &[1], 1, 0),
            id("a", &[1], 0, 1),
        ]);
        assert_eq!(ids.len(), 5);
        for id in ids {
            let hex = id.strip_prefix("chatcmpl-tool-").unwrap();
            assert!(hex.len() == 16 && hex.chars().all(|c| c.is_ascii_hexdigit()), "{id}");
        }
    }

    #[test]
    fn some_templates_want_nine_alphanumerics() {
        let id = CallIds::new("a", &[], 0, CallIdFormat::NineAlphanumerics).id(3);
        assert!(id.len() == 9 && id.chars().all(|c| c.is_ascii_alphanumeric()), "{id}");
    }
}

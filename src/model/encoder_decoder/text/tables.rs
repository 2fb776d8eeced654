//! The tables of tokens, and the output layer, which may have one of them.

use std::sync::Arc;

use super::plan::{BANNED, HeadTable, TablePlan, TextPlan};
use crate::model::ModelError;
use crate::model::config::LogitsConfig;
use crate::model::layers::{Embedding, LinearHead};
use crate::model::weight_loader::WeightLoader;

/// The layers with a row for each token.
pub(super) struct Tables {
    pub(super) of_encoder: Arc<Embedding>,
    pub(super) of_decoder: Arc<Embedding>,
    pub(super) lm_head: LinearHead,
}

impl Tables {
    /// Loads the tables. Checkpoints name one that several layers have after any of them.
    /// The model writes none of the tokens `banned`.
    pub(super) fn load(
        loader: &mut WeightLoader<'_>,
        plan: &TextPlan,
        banned: &[u32],
    ) -> Result<Self, ModelError> {
        let TextPlan { vocab_size, encoder_vocab_size, hidden_size, ref tables, .. } = *plan;
        let [encoder, decoder, module] = modules(loader, tables);
        let shape = [vocab_size, hidden_size];
        let is_biased = |name: &&str| loader.has(name) || !banned.is_empty();
        let lm_head = match tables.logits_bias.filter(is_biased) {
            Some(name) => {
                let mut biases = match loader.has(name) {
                    true => loader.values(name, &[1, vocab_size])?,
                    false => vec![0.0; vocab_size],
                };
                banned.iter().for_each(|token| biases[*token as usize] = BANNED);
                let biases = loader.on_device(name, biases)?;
                LinearHead::with_biases(loader, module, tables.head, shape, biases)?
            }
            None => {
                let logits = LogitsConfig {
                    multiplier: 1.0,
                    divisor: tables.logits_divisor,
                    soft_cap: None,
                    has_bias: false,
                };
                LinearHead::load(loader, module, tables.head, shape, logits)?
            }
        };
        let shared = lm_head.shared_rows();
        let mut table = |name: &str, vocab: usize| match &shared {
            Some(rows) if name == module => Ok(Arc::new(Embedding::Tied(Arc::clone(rows)))),
            _ => Embedding::load(loader, name, vocab, hidden_size).map(Arc::new),
        };
        let of_decoder = table(decoder, vocab_size)?;
        let of_encoder = match encoder == decoder {
            true => Arc::clone(&of_decoder),
            false => table(encoder, encoder_vocab_size)?,
        };
        Ok(Self { of_encoder, of_decoder, lm_head })
    }
}

/// Returns the modules with the tables of encoder and decoder, and the matrix of the output layer.
fn modules(loader: &WeightLoader<'_>, plan: &TablePlan) -> [&'static str; 3] {
    let TablePlan { shared, of_encoder, of_decoder, head, has_one_table, .. } = *plan;
    let has = |name: &str| loader.has(&format!("{name}.weight"));
    let first = |names: &[&'static str]| {
        let found = names.iter().copied().find(|name| has(name));
        found.unwrap_or(names[0])
    };
    let has_own_head = match plan.head_table {
        HeadTable::Own => true,
        HeadTable::Decoders => false,
        HeadTable::OwnIfStored => has(head),
    };
    match (has_own_head, has_one_table) {
        (false, true) => [first(&[shared, of_encoder, of_decoder, head]); 3],
        (false, false) => {
            let table = first(&[of_decoder, head]);
            [of_encoder, table, table]
        }
        // Those that are not tied may differ from the shared one, which is then not read.
        (true, true) => [first(&[of_encoder, shared]), first(&[of_decoder, shared]), head],
        (true, false) => [of_encoder, of_decoder, head],
    }
}

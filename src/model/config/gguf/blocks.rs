//! Layers that each have their own number of key heads and their own width, or lack a part: Llama
//! Nemotron.

use serde_json::{Value, json};

use super::metadata::Metadata;
use crate::gguf::GgufError;

impl Metadata<'_> {
    /// Sets the parts of each layer, which three lists tell, and returns the number of query heads.
    pub(super) fn blocks(&mut self) -> Result<u64, GgufError> {
        const HEADS: &str = "attention.head_count";
        const KEY_HEADS: &str = "attention.head_count_kv";
        let (all_heads, all_key_heads) = (self.each_layer(HEADS)?, self.each_layer(KEY_HEADS)?);
        let widths = self.each_layer("feed_forward_length")?;
        let most = all_heads.iter().copied().max().unwrap_or(0);
        let key = self.key(KEY_HEADS);
        let mut blocks = Vec::with_capacity(widths.len());
        for ((heads, key_heads), width) in all_heads.into_iter().zip(all_key_heads).zip(widths) {
            let is_divided = key_heads > 0 && heads.is_multiple_of(key_heads);
            let group = match heads {
                0 if key_heads == 0 => None,
                heads if heads == most && is_divided => Some(heads / key_heads),
                _ => {
                    let expected =
                        format!("a divisor of {most}, the heads, or 0 in layers without attention");
                    return Err(self.file.unexpected(&key, expected));
                }
            };
            blocks.push(json!({
                "attention": { "no_op": group.is_none(), "n_heads_in_group": group },
                "ffn": { "no_op": width == 0, "intermediate_size": width },
            }));
        }
        self.set("block_configs", key, Value::Array(blocks));
        let key = self.key(HEADS);
        self.set("num_attention_heads", key, most);
        Ok(most)
    }

    /// Returns the number of each layer under `name`: those of a list, or one for all.
    fn each_layer(&mut self, name: &str) -> Result<Vec<u64>, GgufError> {
        let (file, key) = (self.file, self.key(name));
        let count = self.size("num_hidden_layers");
        let numbers = match file.is_list(&key) {
            true => file.unsigned_list(&key)?.unwrap_or_default(),
            false => {
                let number = file.unsigned(&key)?;
                let number = number.ok_or_else(|| file.missing(&key, "a number for each layer"))?;
                // The config refuses more layers than this.
                vec![number; count.min(1 << 16) as usize]
            }
        };
        match numbers.len() as u64 == count {
            true => Ok(numbers),
            false => Err(file.unexpected(&key, format!("a list of {count} numbers"))),
        }
    }
}

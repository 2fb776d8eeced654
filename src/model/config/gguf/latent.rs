//! The sizes of latent attention.

use serde_json::Value;

use super::metadata::Metadata;
use crate::gguf::GgufError;

impl Metadata<'_> {
    /// Sets the sizes of latent attention with so many `heads`.
    ///
    /// Files with the matrices of each head describe the attention over latents: one key head,
    /// whose width is that of a latent and of the rotating key. The expanded heads are under keys
    /// that end in `_mla`. Older files have expanded heads alone.
    pub(super) fn latent(&mut self, heads: u64) -> Result<(), GgufError> {
        let file = self.file;
        self.object.insert("num_key_value_heads".to_owned(), heads.into());
        self.required_integer("kv_lora_rank", "attention.kv_lora_rank")?;
        if self.integer("q_lora_rank", "attention.q_lora_rank")?.is_none() {
            // Without a small width, queries have one projection.
            self.object.insert("q_lora_rank".to_owned(), Value::Null);
        }
        let rope = self.required_integer("qk_rope_head_dim", "rope.dimension_count")?;
        let (rank, of_latents) = (self.size("kv_lora_rank"), self.key("attention.key_length"));
        let is_expanded = !file.has(&self.key("attention.key_length_mla"));
        let [key, value] = match is_expanded {
            true => ["attention.key_length", "attention.value_length"],
            false => ["attention.key_length_mla", "attention.value_length_mla"],
        };
        if is_expanded && !file.has(&self.key(value)) {
            // llama.cpp's default.
            let width = self.size("hidden_size").checked_div(heads).unwrap_or(0);
            self.object.insert("v_head_dim".to_owned(), width.into());
        } else {
            self.required_integer("v_head_dim", value)?;
        }
        let key = self.key(key);
        let width = file.unsigned(&key)?.ok_or_else(|| file.missing(&key, "a positive integer"))?;
        let kept = width.checked_sub(rope).filter(|kept| *kept > 0).ok_or_else(|| {
            file.unexpected(&key, format!("more than {rope}, the elements that rotate"))
        })?;
        self.set("qk_nope_head_dim", key, kept);
        let expected = if is_expanded { heads } else { 1 };
        for (key, expected, what) in [
            (self.key("attention.head_count_kv"), expected, "the number of key heads"),
            (of_latents, if is_expanded { width } else { rank + rope }, "the width of a key"),
        ] {
            if file.same_in_all_layers(&key)?.is_some_and(|found| found != expected) {
                return Err(file.unexpected(&key, format!("{expected}, {what}")));
            }
        }
        let values = self.key("attention.value_length");
        if !is_expanded && file.unsigned(&values)?.is_some_and(|found| found != rank) {
            return Err(file.unexpected(&values, format!("{rank}, the width of a latent")));
        }
        Ok(())
    }

    /// Sets the factors of DeepSeek's YaRN. The key has a tenth of `mscale_all_dim`. No key has
    /// `mscale`, which is equal to it in all models of this kind.
    pub(super) fn latent_scaling(&mut self) -> Result<(), GgufError> {
        let key = self.key("rope.scaling.yarn_log_multiplier");
        if let Some(number) = self.file.number(&key)? {
            // A single-precision tenth, rounded back to a decimal number.
            let factor = (number * 10.0 * 1e5).round() / 1e5;
            self.set_in_rope("mscale", factor);
            self.set_in_rope("mscale_all_dim", factor);
            self.origins.push(("rope_scaling.mscale_all_dim".to_owned(), key));
        }
        Ok(())
    }

    /// Sets the groups of experts of files from before llama.cpp had them. Of the models with so
    /// many experts, only these have groups.
    pub(super) fn old_groups(&mut self) {
        if self.size("n_group") > 0 {
            return;
        }
        let groups = match self.size("num_experts") {
            // DeepSeek V3 and R1, and V2.
            256 => [8, 4],
            160 => [8, 3],
            _ => [1, 1],
        };
        for (field, number) in ["n_group", "topk_group"].into_iter().zip(groups) {
            self.object.insert(field.to_owned(), number.into());
        }
    }
}

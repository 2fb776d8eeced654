//! The sizes of mixers that carry a state.

use serde_json::{Value, json};

use super::architecture::Key;
use super::metadata::Metadata;
use crate::gguf::GgufError;

impl Metadata<'_> {
    /// Sets `field`, the width of a head, by the width of all under the key `name`, and the number
    /// of heads, which is another field.
    pub(super) fn head_of(
        &mut self,
        name: &str,
        heads: &str,
        field: &str,
    ) -> Result<(), GgufError> {
        let (inner, key) = self.inner_size(name)?;
        let heads = self.size(heads);
        match inner.checked_div(heads).filter(|width| *width > 0 && width * heads == inner) {
            Some(width) => {
                self.set(field, key, width);
                Ok(())
            }
            None => Err(self.file.unexpected(&key, format!("a multiple of {heads}, the heads"))),
        }
    }

    /// Sets `field`, the width under the key `name` in hidden sizes.
    pub(super) fn expansion(&mut self, name: &str, field: &str) -> Result<(), GgufError> {
        let (inner, key) = self.inner_size(name)?;
        // The product is rounded down.
        let factor = (inner as f64 + 0.5) / self.size("hidden_size").max(1) as f64;
        self.set(field, key, factor);
        Ok(())
    }

    /// Sets the periods of Jamba's layers with attention, and of those with experts.
    pub(super) fn jamba_periods(&mut self) -> Result<(), GgufError> {
        let types = self.object.remove("layer_types").unwrap_or_default();
        let types = types.as_array().cloned().unwrap_or_default();
        let has_attention: Vec<bool> = types.iter().map(|kind| *kind == "attention").collect();
        let key = self.key("attention.head_count_kv");
        self.period(&has_attention, ["attn_layer_period", "attn_layer_offset"], key)?;
        let router = |layer: usize| format!("blk.{layer}.ffn_gate_inp.weight");
        let has_router = |layer| self.file.tensor(&router(layer)).is_some();
        let has_experts: Vec<bool> = (0..has_attention.len()).map(has_router).collect();
        if !has_experts.contains(&true) {
            // A model of one expert has no routers.
            self.object.insert("num_experts".to_owned(), json!(1));
            return Ok(());
        }
        let key = self.key("expert_count");
        self.period(&has_experts, ["expert_layer_period", "expert_layer_offset"], key)
    }

    /// Sets the fields of a period, and of the place in it where `is_one` is true.
    fn period(
        &mut self,
        is_one: &[bool],
        [period_field, offset_field]: [&str; 2],
        key: String,
    ) -> Result<(), GgufError> {
        let mut ones =
            is_one.iter().enumerate().filter_map(|(layer, is_one)| is_one.then_some(layer));
        let (first, second) = (ones.next(), ones.next());
        // Without any, or with only one, the period is longer than the model.
        let offset = first.unwrap_or(is_one.len());
        let period = second.map_or(is_one.len().max(offset) + 1, |second| second - offset);
        let is_alike =
            is_one.iter().enumerate().all(|(i, is_one)| (i % period == offset) == *is_one);
        if !is_alike {
            let expected = "layers of this kind at the same place of each period";
            return Err(self.file.unexpected(&key, expected));
        }
        self.set(period_field, key.clone(), period);
        self.set(offset_field, key, offset);
        Ok(())
    }

    fn inner_size(&mut self, name: &str) -> Result<(u64, String), GgufError> {
        let key = self.key(name);
        let inner = self.file.unsigned(&key)?;
        let inner = inner.ok_or_else(|| self.file.missing(&key, "a positive integer"))?;
        Ok((inner, key))
    }

    /// Sets the types of layers, if the file lists those with a state.
    pub(super) fn recurrent_layers(&mut self) -> Result<(), GgufError> {
        let key = self.key("attention.recurrent_layers");
        if let Some(flags) = self.file.flags(&key)? {
            let name = |is_recurrent| match is_recurrent {
                true => "linear_attention",
                false => "full_attention",
            };
            let count = self.size("num_hidden_layers") as usize;
            let types: Vec<&str> = flags.into_iter().map(name).take(count).collect();
            self.set("layer_types", key, types);
        }
        Ok(())
    }

    /// Sets the layers of MiniMax-Text-01 that have lightning attention. In files without a list,
    /// every eighth layer has the other one, or each at the end of the period under a key.
    pub(super) fn lightning_layers(&mut self) -> Result<(), GgufError> {
        self.recurrent_layers()?;
        let key = self.key("full_attention_interval");
        let period = self.file.unsigned(&key)?.unwrap_or(8);
        if period == 0 {
            return Err(self.file.unexpected(&key, "a positive integer"));
        }
        if !self.object.contains_key("layer_types") {
            let name = |layer: u64| match (layer + 1).is_multiple_of(period) {
                true => "full_attention",
                false => "linear_attention",
            };
            // The config refuses more layers than this.
            let count = self.size("num_hidden_layers").min(1 << 16);
            let types: Vec<&str> = (0..count).map(name).collect();
            self.set("layer_types", key, types);
        }
        Ok(())
    }

    /// Sets the elements of a head that rotate, for a class with a field of their number in place
    /// of the part.
    pub(super) fn rotary_dim(&mut self) -> Result<(), GgufError> {
        let scaling = self.object.get_mut("rope_scaling").and_then(Value::as_object_mut);
        if let Some(scaling) = scaling {
            scaling.remove("partial_rotary_factor");
        }
        let key = self.key("rope.dimension_count");
        if let Some(count) = self.file.unsigned(&key)? {
            self.set("rotary_dim", key, count);
        }
        Ok(())
    }

    /// Sets the factors of MiniMax-Text-01's stream. The converter takes models in which they are
    /// equal, and whose other factors are 1.
    pub(super) fn minimax_factors(&mut self) -> Result<(), GgufError> {
        let key = self.key("residual_scale");
        let factor = self.file.number(&key)?;
        let factor = factor.ok_or_else(|| self.file.missing(&key, "a number"))?;
        for part in ["full_attn", "linear_attn", "mlp"] {
            self.set(&format!("{part}_alpha_factor"), key.clone(), factor);
        }
        Ok(())
    }

    /// Sets that attention of Granite 4 has no positions.
    pub(super) fn granite_positions(&mut self) {
        let key = self.key("rope.scaling.finetuned");
        self.set("position_embedding_type", key, "nope");
    }

    /// Sets the layers of Bamba that have attention. `of_granite` are the keys that its class does
    /// not have, so that they are refused unless they change nothing.
    pub(super) fn bamba(&mut self, of_granite: &[Key]) {
        let types = self.object.remove("layer_types").unwrap_or_default();
        let types = types.as_array().into_iter().flatten().enumerate();
        let attention: Vec<usize> =
            types.filter(|(_, kind)| *kind == "attention").map(|(layer, _)| layer).collect();
        let key = self.key("attention.head_count_kv");
        self.set("attn_layer_indices", key, attention);
        for Key { name, .. } in of_granite {
            let key = self.key(name);
            self.read.remove(&key);
        }
    }

    /// Sets the width of the expert of all tokens. In models without other experts, it is the only
    /// feed-forward part.
    pub(super) fn shared_width(&mut self) -> Result<(), GgufError> {
        let key = self.key("expert_shared_feed_forward_length");
        let width = self.file.unsigned(&key)?.filter(|width| *width > 0);
        let width = width.unwrap_or_else(|| self.size("intermediate_size"));
        self.set("shared_intermediate_size", key, json!(width));
        Ok(())
    }
}

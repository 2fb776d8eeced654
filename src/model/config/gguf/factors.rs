//! Factors of some architectures that the metadata has in another form than `config.json`.

use super::metadata::Metadata;
use crate::gguf::{FORMAT, GgufError};
use crate::model_files::ModelFileError;

impl Metadata<'_> {
    /// Sets MiniCPM's factors of layers and of logits, which files have after their divisions.
    pub(super) fn minicpm_scales(&mut self) -> Result<(), GgufError> {
        let (residual, logits) = (self.key("residual_scale"), self.key("logit_scale"));
        let depth = (self.size("num_hidden_layers") as f64).sqrt();
        // llama.cpp's factor without the key is that of the published models.
        let scale = self.file.number(&residual)?.map_or(1.4, |scale| scale * depth);
        self.set("scale_depth", residual, scale);
        if let Some(divisor) = self.file.number(&logits)?.filter(|divisor| *divisor != 0.0) {
            let base = self.size("hidden_size") as f64 / divisor;
            self.set("dim_model_base", logits, base);
        }
        Ok(())
    }

    /// Sets the factors of Mistral's YaRN, and the growth of queries with positions. llama.cpp
    /// takes an `mscale` of 1, which no key has.
    pub(super) fn mistral_scaling(&mut self) -> Result<(), GgufError> {
        let key = self.key("rope.scaling.yarn_log_multiplier");
        if let Some(factor) = self.file.number(&key)?.filter(|factor| *factor != 0.0) {
            self.set_in_rope("mscale", 1.0);
            self.set_in_rope("mscale_all_dim", factor);
            self.origins.push(("rope_scaling.mscale_all_dim".to_owned(), key));
        }
        let key = self.key("attention.temperature_scale");
        if let Some(beta) = self.file.number(&key)?.filter(|beta| *beta != 0.0) {
            self.set("rope_scaling.llama_4_scaling_beta", key, beta);
        }
        Ok(())
    }

    /// Refuses StarCoder with several key heads, whose rows llama.cpp's converter does not order.
    pub(super) fn multi_query(&mut self) -> Result<(), GgufError> {
        let key = self.key("attention.head_count_kv");
        match self.size("num_key_value_heads") {
            1 => Ok(()),
            _ => Err(self.file.unexpected(&key, "1, the head that all queries share")),
        }
    }

    /// Refuses attention with biases, whose rows llama.cpp's converter does not order.
    pub(super) fn require_unbiased(&mut self) -> Result<(), GgufError> {
        let Some((name, _)) = self.file.tensors().find(|(name, _)| name.ends_with("attn_q.bias"))
        else {
            return Ok(());
        };
        let reason = format!("tensor `{name}` is not in the order of its matrix; expected none");
        Err(ModelFileError::invalid(self.file.path(), FORMAT)(reason).into())
    }
}

//! The requests whose heads turn as in the context of the training.

use super::{Mixer, ModelConfig, RopeScaling};

impl ModelConfig {
    /// Returns the most tokens of a request whose heads turn as in a context no longer than that
    /// of the training. `None`: the heads of all requests turn alike.
    ///
    /// Dynamic NTK and LongRoPE have other frequencies for longer texts: HF `dynamic_rope_update`.
    /// A model whose layers disagree about the border has none. Neither has one whose positions
    /// have axes, or one that keeps no keys.
    pub(crate) fn short_context(&self) -> Option<usize> {
        let mut borders = self.layers.iter().filter_map(|layer| {
            let (rope, is_causal) = match &layer.mixer {
                Mixer::Latent(latent) => (&latent.rope, latent.is_causal),
                mixer => {
                    let attention = mixer.attention()?;
                    (attention.rope.as_ref()?, attention.is_causal)
                }
            };
            let border = match &rope.scaling {
                RopeScaling::Dynamic { .. } => self.max_position_embeddings,
                RopeScaling::LongRope(longrope) => longrope.original_max_position_embeddings,
                RopeScaling::Default
                | RopeScaling::Linear { .. }
                | RopeScaling::Ntk { .. }
                | RopeScaling::Yarn(_)
                | RopeScaling::Proportional { .. }
                | RopeScaling::Llama3(_) => return None,
            };
            let is_served = is_causal && rope.axes.is_none() && border < self.max_model_len;
            Some(is_served.then_some(border))
        });
        let first = borders.next()??;
        borders.all(|border| border == Some(first)).then_some(first)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::file::fields;
    use super::*;

    /// Returns the border of a Llama that is served up to `max_model_len` tokens.
    fn border(rope: Value, max_model_len: usize) -> Option<usize> {
        let config = fields(json!({
            "architectures": ["LlamaForCausalLM"], "vocab_size": 8, "hidden_size": 8,
            "intermediate_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2,
            "max_position_embeddings": 100, "rope_parameters": rope,
        }));
        ModelConfig::of_source(&config.into(), Some(max_model_len)).unwrap().short_context()
    }

    #[test]
    fn scaling_that_depends_on_the_length_has_a_border() {
        let dynamic = || json!({ "rope_type": "dynamic", "factor": 4 });
        assert_eq!(border(dynamic(), 101), Some(100));
        assert_eq!(border(dynamic(), 100), None);
        let longrope = || {
            json!({ "rope_type": "longrope", "short_factor": [1, 1], "long_factor": [2, 2],
                "original_max_position_embeddings": 40 })
        };
        assert_eq!(border(longrope(), 41), Some(40));
        assert_eq!(border(longrope(), 40), None);
        assert_eq!(border(json!({ "rope_type": "linear", "factor": 4 }), 400), None);
    }
}

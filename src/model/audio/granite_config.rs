//! The tower of sounds of Granite Speech, as `config.json` describes it: HF `GraniteSpeechConfig`,
//! `GraniteSpeechPlusConfig`.

use crate::model::config::{ConfigError, Fields};
use crate::model::vision::QFormerConfig;

/// The tower of sounds of Granite Speech with its projector.
#[derive(Debug, Clone)]
pub(crate) struct GraniteSounds {
    pub(super) hidden_size: usize,
    pub(super) intermediate_size: usize,
    pub(super) num_layers: usize,
    pub(super) num_heads: usize,
    pub(super) head_dim: usize,
    /// The classes between the two halves of the layers.
    pub(super) num_classes: usize,
    /// The states that attend to each other.
    pub(super) context_size: usize,
    /// The largest distance in the table of positions.
    pub(super) max_distance: usize,
    /// The width of the convolutions, and the states that they see.
    pub(super) conv_size: usize,
    pub(super) kernel_size: usize,
    /// The layers whose states stand beside those of the last one, in order. 0 is the input of the
    /// first layer.
    pub(super) kept_layers: Vec<usize>,
    pub(super) former: QFormerConfig,
    /// The width of the text model.
    pub(super) outputs: usize,
    /// States that become [`GraniteSounds::num_queries`] embeddings.
    pub(crate) window: usize,
    /// States for each embedding of a whole window.
    pub(crate) downsample: usize,
    /// Numbers of a spectrogram at a time. Two times are a state.
    pub(crate) num_mel_bins: usize,
    /// The token in the places of embeddings.
    pub(crate) placeholder: u32,
}

/// The names of transformers for the fields of the encoder: HF `attribute_map`.
const OTHER_NAMES: &[(&str, &str)] = &[
    ("hidden_size", "hidden_dim"),
    ("num_hidden_layers", "num_layers"),
    ("num_attention_heads", "num_heads"),
    ("num_mel_bins", "input_dim"),
];

/// The largest window of states.
const WINDOW_MAX: usize = 1_024;
/// The most bins of a spectrogram.
const BINS_MAX: usize = 1_024;
/// The most elements of a head with those for relative positions, of which a block has
/// `context_size`. Kernels of GPUs take no wider heads.
const WIDE_HEAD_MAX: usize = 1_024;

impl GraniteSounds {
    /// Reads the tower of a model whose `config.json` has the fields `outer`. `outputs` is the
    /// width of its text model.
    ///
    /// # Errors
    /// [`ConfigError`] if a field has no valid value.
    pub(crate) fn read(outer: &Fields, outputs: usize) -> Result<Self, ConfigError> {
        const INPUT: &str = "input_dim";
        const CONTEXT: &str = "context_size";
        const KEPT: &str = "cat_hidden_layers";
        const HEAD: &str = "dim_head";
        const WINDOW: &str = "window_size";
        const DOWNSAMPLE: &str = "downsample_rate";
        const ENCODERS: [&str; 2] = ["granite_speech_encoder", "granite_speech_plus_encoder"];
        let encoder = object(outer, "encoder_config", &ENCODERS)?.with_aliases(OTHER_NAMES);
        let former = object(outer, "projector_config", &["blip_2_qformer"])?;
        let size = |field: &str, default: usize| {
            Ok::<usize, ConfigError>(encoder.size(field)?.unwrap_or(default))
        };
        let (hidden_size, num_heads) = (size("hidden_dim", 1_024)?, size("num_heads", 8)?);
        let head_dim = encoder.size(HEAD)?.unwrap_or(hidden_size / num_heads);
        if head_dim == 0 {
            return Err(encoder.invalid("num_heads", &format!("at most {hidden_size}")));
        }
        if head_dim >= WIDE_HEAD_MAX {
            return Err(encoder.invalid(HEAD, &format!("less than {WIDE_HEAD_MAX}")));
        }
        let input_size = size(INPUT, 160)?;
        if !input_size.is_multiple_of(2) || input_size > 2 * BINS_MAX {
            let expected = format!("twice the bins of a spectrogram, at most {}", 2 * BINS_MAX);
            return Err(encoder.invalid(INPUT, &expected));
        }
        let max_distance = size("max_pos_emb", 512)?;
        let context_size = size(CONTEXT, 200)?;
        if !(2..=max_distance).contains(&context_size) {
            let expected = format!("from 2 to max_pos_emb, {max_distance}");
            return Err(encoder.invalid(CONTEXT, &expected));
        }
        let context_max = WIDE_HEAD_MAX - head_dim;
        if context_size > context_max {
            let expected = format!("at most {context_max} with heads of {head_dim}");
            return Err(encoder.invalid(CONTEXT, &expected));
        }
        let num_layers = size("num_layers", 10)?;
        let mut kept_layers = encoder.indices(KEPT)?;
        kept_layers.sort_unstable();
        let is_known = kept_layers.iter().all(|layer| *layer < num_layers);
        if !is_known || kept_layers.windows(2).any(|pair| pair[0] == pair[1]) {
            let expected = format!("a list of different layers below {num_layers}");
            return Err(encoder.invalid(KEPT, &expected));
        }
        let seen = hidden_size * (kept_layers.len() + 1);
        let (window, downsample) =
            (outer.size(WINDOW)?.unwrap_or(15), outer.size(DOWNSAMPLE)?.unwrap_or(5));
        if window > WINDOW_MAX {
            return Err(outer.invalid(WINDOW, &format!("at most {WINDOW_MAX}")));
        }
        if !window.is_multiple_of(downsample) {
            let expected = format!("a divisor of window_size, {window}");
            return Err(outer.invalid(DOWNSAMPLE, &expected));
        }
        Ok(Self {
            hidden_size,
            intermediate_size: hidden_size * size("feedforward_mult", 4)?,
            num_layers,
            num_heads,
            head_dim,
            num_classes: size("output_dim", 42)?,
            context_size,
            max_distance,
            conv_size: hidden_size * size("conv_expansion_factor", 2)?,
            kernel_size: size("conv_kernel_size", 15)?,
            kept_layers,
            former: QFormerConfig::read(&former, seen, "the width of the encoder's states")?,
            outputs,
            window,
            downsample,
            num_mel_bins: input_size / 2,
            placeholder: placeholder(outer)?,
        })
    }

    /// Returns the embeddings of a window.
    pub(crate) fn num_queries(&self) -> usize {
        self.window / self.downsample
    }

    /// Returns the embeddings of a sound of so many states.
    pub(crate) fn num_embeds(&self, states: usize) -> usize {
        states.div_ceil(self.window) * self.num_queries()
    }
}

/// Returns the object `field`, whose `model_type` is one of `types`.
fn object(outer: &Fields, field: &str, types: &[&str]) -> Result<Fields, ConfigError> {
    const TYPE: &str = "model_type";
    let fields = outer.nested(field)?.unwrap_or_else(|| Fields::empty_in(outer));
    match fields.text(TYPE)?.is_some_and(|name| !types.contains(&name)) {
        true => Err(fields.invalid(TYPE, &format!("\"{}\"", types.join("\" or \"")))),
        false => Ok(fields),
    }
}

/// Returns the token in the places of embeddings.
fn placeholder(outer: &Fields) -> Result<u32, ConfigError> {
    const TOKEN: &str = "audio_token_index";
    let fields = outer.with_aliases(&[("audio_token_id", TOKEN)]);
    let token = fields.count(TOKEN)?.unwrap_or(49_155);
    u32::try_from(token).map_err(|_| fields.invalid(TOKEN, "a token id"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::model::config::fields;

    #[test]
    fn a_tower_has_the_numbers_of_its_class() {
        let found = GraniteSounds::read(&fields(json!({})), 2_048).unwrap();
        let GraniteSounds { hidden_size, intermediate_size, head_dim, .. } = found;
        assert_eq!((hidden_size, intermediate_size, head_dim), (1_024, 4_096, 128));
        assert_eq!((found.num_mel_bins, found.context_size, found.conv_size), (80, 200, 2_048));
        let embeds = [1, 15, 16].map(|states| found.num_embeds(states));
        assert_eq!((embeds, found.placeholder), ([3, 3, 6], 49_155));
    }

    #[test]
    fn states_beside_the_last_are_in_order() {
        let read = |kept: Value, seen: usize| {
            let config = json!({
                "encoder_config": { "hidden_size": 32, "cat_hidden_layers": kept },
                "projector_config": { "encoder_hidden_size": seen },
            });
            GraniteSounds::read(&fields(config), 8)
        };
        assert_eq!(read(json!([3, 0]), 96).unwrap().kept_layers, [0, 3]);
        for (kept, seen, field) in [
            (json!([3]), 96, "encoder_hidden_size"),
            (json!([10]), 64, "cat_hidden_layers"),
            (json!([-1]), 64, "cat_hidden_layers"),
            (json!([2, 2]), 96, "cat_hidden_layers"),
        ] {
            let why = read(kept, seen).unwrap_err().to_string();
            assert!(why.contains(field), "{why}");
        }
    }

    #[test]
    fn other_towers_are_refused() {
        for (config, field) in [
            (json!({ "encoder_config": { "model_type": "x" } }), "encoder_config.model_type"),
            (json!({ "projector_config": { "model_type": "x" } }), "projector_config.model_type"),
            (
                json!({ "projector_config": { "position_embedding_type": "relative_key" } }),
                "projector_config.position_embedding_type",
            ),
            (json!({ "encoder_config": { "input_dim": 81 } }), "encoder_config.input_dim"),
            (json!({ "encoder_config": { "num_heads": 2_048 } }), "encoder_config.num_heads"),
            (json!({ "encoder_config": { "context_size": 513 } }), "encoder_config.context_size"),
            (json!({ "encoder_config": { "context_size": 1 } }), "encoder_config.context_size"),
            (
                json!({ "encoder_config": { "max_pos_emb": 2_048, "context_size": 897 } }),
                "encoder_config.context_size",
            ),
            (json!({ "encoder_config": { "dim_head": 1_024 } }), "encoder_config.dim_head"),
            (json!({ "encoder_config": { "input_dim": 2_050 } }), "encoder_config.input_dim"),
            (json!({ "window_size": 1_025 }), "window_size"),
            (json!({ "downsample_rate": 4 }), "downsample_rate"),
            (json!({ "audio_token_index": -1 }), "audio_token_index"),
        ] {
            let why = GraniteSounds::read(&fields(config), 8).unwrap_err().to_string();
            assert!(why.contains(&format!("`{field}` is")), "{why}");
        }
    }
}

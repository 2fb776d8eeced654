//! Gemma 3n and Gemma 4 of llama.cpp, as data, and the two kinds of layers of Gemma 4.

use serde_json::{Map, Value, json};

use super::architecture::Constant::{Count, HasTensorIn};
use super::architecture::{ALWAYS_WINDOW, Architecture, Key, LayerTypes};
use super::architectures::{EXPERT_WIDTH, NUM_EXPERTS, PLAIN, TOP_K};
use super::metadata::Metadata;
use super::rope::FREQS;
use crate::gguf::{FORMAT, GgufError};
use crate::model::layers::normal_share;
use crate::model_files::ModelFileError;

const SHARED: Key = Key::integer("attention.shared_kv_layers", "num_kv_shared_layers");
const PER_LAYER_WIDTH: Key =
    Key::integer("embedding_length_per_layer_input", "hidden_size_per_layer_input");
const SOFT_CAP: Key = Key::number("final_logit_softcapping", "final_logit_softcapping");
const PATTERN: &str = "attention.sliding_window_pattern";
const KEY_HEADS: &str = "attention.head_count_kv";
/// The divisor of frequencies that do not turn.
const STILL: f32 = 1e30;

/// Both architectures.
pub(super) const LATER_GEMMAS: &[Architecture] = &[
    Architecture {
        name: "gemma3n",
        class: "Gemma3nForCausalLM",
        constants: &[("altup_correct_scale", HasTensorIn("altup_correct_scale.weight"))],
        keys: &[
            ALWAYS_WINDOW,
            Key::number("rope.freq_base_swa", "rope_local_base_freq"),
            SHARED,
            PER_LAYER_WIDTH,
            SOFT_CAP,
            Key::integer("altup.num_inputs", "altup_num_inputs"),
            Key::integer("altup.active_idx", "altup_active_idx"),
        ],
        adjust: |metadata| {
            metadata.tensor_rows("laurel_rank", "blk.0.laurel_l.weight");
            metadata.per_layer_tokens();
            metadata.sparsity()
        },
        ..PLAIN
    },
    Architecture {
        name: "gemma4",
        class: "Gemma4ForCausalLM",
        layer_types: LayerTypes::Windows,
        constants: &[
            ("enable_moe_block", HasTensorIn("ffn_gate_inp.weight")),
            ("hidden_size_per_layer_input", Count(0)),
            ("num_kv_shared_layers", Count(0)),
        ],
        keys: &[
            Key::integer("attention.sliding_window", "sliding_window"),
            SHARED,
            PER_LAYER_WIDTH,
            SOFT_CAP,
            NUM_EXPERTS,
            TOP_K,
            EXPERT_WIDTH,
        ],
        adjust: |metadata| {
            metadata.per_layer_tokens();
            metadata.keys_as_values();
            metadata.require_gating(1, "1, the softmax")
        },
        ..PLAIN
    },
];

impl Metadata<'_> {
    /// Sets `field` to the number of rows of the tensor `name`, if there is one.
    fn tensor_rows(&mut self, field: &str, name: &str) {
        let rows = self.file.tensor(name).and_then(|tensor| tensor.shape.first().copied());
        if let Some(rows) = rows {
            self.set(field, format!("the rows of tensor {name}"), rows as u64);
        }
    }

    /// Sets the number of tokens that have embeddings of each layer.
    fn per_layer_tokens(&mut self) {
        self.tensor_rows("vocab_size_per_layer_input", "per_layer_token_embd.weight");
    }

    /// Sets whether layers without a window have no values of their own.
    fn keys_as_values(&mut self) {
        let has = |layer: u64, part: &str| {
            self.file.tensor(&format!("blk.{layer}.{part}.weight")).is_some()
        };
        let lacks = |layer| has(layer, "attn_k") && !has(layer, "attn_v");
        let lacks_any = (0..self.size("num_hidden_layers").min(1 << 16)).any(lacks);
        self.object.insert("attention_k_eq_v".to_owned(), lacks_any.into());
    }

    /// Sets the share of inner activations that each layer does not use. The file has the quantiles
    /// of the normal distribution at these shares.
    fn sparsity(&mut self) -> Result<(), GgufError> {
        let key = self.key("activation_sparsity_scale");
        let Some(scales) = self.file.numbers(&key)? else { return Ok(()) };
        // The quantile of no share at all is minus infinity.
        let share = |scale: &f32| match *scale == f32::NEG_INFINITY {
            true => 0.0,
            false => normal_share((*scale).into()),
        };
        let shares: Vec<f64> = scales.iter().map(share).collect();
        self.set("activation_sparsity_pattern", key, shares);
        Ok(())
    }

    /// Sets the feed-forward width. The last layers, which read the keys and values of others, may
    /// have twice the width.
    pub(super) fn double_widths(&mut self) -> Result<(), GgufError> {
        const NAME: &str = "feed_forward_length";
        const FIELD: &str = "intermediate_size";
        let key = self.key(NAME);
        if !self.file.is_list(&key) {
            return self.required_integer(FIELD, NAME).map(|_| ());
        }
        let widths = self.file.unsigned_list(&key)?.unwrap_or_default();
        let shared = self.key(SHARED.name);
        let shared = self.file.unsigned(&shared)?.unwrap_or(0) as usize;
        let first = widths.first().copied().unwrap_or(0);
        let own = widths.len().saturating_sub(shared);
        let is_double = own > 0 && widths.last().is_some_and(|width| *width != first);
        let width = |layer: usize| match is_double && layer >= own {
            true => first.saturating_mul(2),
            false => first,
        };
        let is_known = widths.iter().enumerate().all(|(layer, found)| *found == width(layer));
        if !is_known || widths.len() as u64 != self.size("num_hidden_layers") {
            let expected = format!("one width, and twice that in the last {shared} layers");
            return Err(self.file.unexpected(&key, expected));
        }
        self.set(FIELD, key, first);
        self.object.insert("use_double_wide_mlp".to_owned(), is_double.into());
        Ok(())
    }

    /// Sets the kinds of layers, and the heads of each kind.
    pub(super) fn heads_of_kinds(&mut self) -> Result<(), GgufError> {
        let file = self.file;
        let count = self.size("num_hidden_layers") as usize;
        let pattern = self.key(PATTERN);
        let listed = || format!("{count} booleans, of which the last is false");
        let flags = match file.is_list(&pattern) {
            true => file.flags(&pattern)?.unwrap_or_default(),
            false => return Err(file.missing(&pattern, listed())),
        };
        // In this class, the last layer always attends to all tokens.
        if flags.len() != count || flags.last() != Some(&false) {
            return Err(file.unexpected(&pattern, listed()));
        }
        let name = |sliding: &bool| if *sliding { "sliding_attention" } else { "full_attention" };
        let types: Vec<&str> = flags.iter().map(name).collect();
        let key = self.key(KEY_HEADS);
        let heads = match file.is_list(&key) {
            true => file.unsigned_list(&key)?.unwrap_or_default(),
            false => {
                let heads = file.unsigned(&key)?.unwrap_or(self.size("num_attention_heads"));
                vec![heads; count]
            }
        };
        let of_kind = |is_sliding: bool| {
            let mut of_kind =
                heads.iter().zip(&flags).filter(|(_, flag)| **flag == is_sliding).map(|it| *it.0);
            let first = of_kind.next();
            of_kind.all(|other| Some(other) == first).then_some(first)
        };
        let (Some(sliding), Some(Some(full))) = (of_kind(true), of_kind(false)) else {
            let expected = "the same number in all layers of a kind";
            return Err(file.unexpected(&key, expected));
        };
        if heads.len() != count {
            return Err(file.unexpected(&key, format!("{count} numbers")));
        }
        self.set("num_key_value_heads", key, sliding.unwrap_or(full));
        let [wide, narrow] = [self.kind_width("")?, self.kind_width("_swa")?];
        self.object.insert("head_dim".to_owned(), narrow.into());
        let sizes = json!({ "head_dim": wide, "num_key_value_heads": full });
        let full_layers = flags.iter().enumerate().filter(|(_, sliding)| !**sliding);
        let of_layers: Map<String, Value> =
            full_layers.map(|(layer, _)| (layer.to_string(), sizes.clone())).collect();
        self.object.insert("per_layer_config".to_owned(), of_layers.into());
        self.set("layer_types", pattern, types);
        Ok(())
    }

    /// Returns the width of heads of the kind whose keys end in `end`. Whole heads rotate.
    fn kind_width(&mut self, end: &str) -> Result<u64, GgufError> {
        let file = self.file;
        let key = self.key(&format!("attention.key_length{end}"));
        let width = file.unsigned(&key)?.ok_or_else(|| file.missing(&key, "a positive integer"))?;
        for name in ["attention.value_length", "rope.dimension_count"] {
            let key = self.key(&format!("{name}{end}"));
            if file.unsigned(&key)?.is_some_and(|other| other != width) {
                return Err(file.unexpected(&key, format!("{width}, the width of a head")));
            }
        }
        Ok(width)
    }

    /// Sets the rotary embeddings of both kinds of layers. In those without a window, only the
    /// pairs turn whose divisor is 1.
    pub(super) fn proportional_rope(&mut self) -> Result<(), GgufError> {
        let [base, base_of_windows] =
            ["rope.freq_base", "rope.freq_base_swa"].map(|name| self.key(name));
        // llama.cpp's default.
        let theta = |key: &str| Ok::<_, GgufError>(self.file.number(key)?.unwrap_or(10_000.0));
        let (of_full, of_windows) = (theta(&base)?, theta(&base_of_windows)?);
        let factors = self.factors(FREQS)?;
        let factors = factors.ok_or_else(|| self.file.missing(FREQS, "a list of numbers"))?;
        // llama.cpp refuses other lengths, too.
        let key = self.key("attention.key_length");
        let (count, width) = (factors.len() as u64, self.file.unsigned(&key)?.unwrap_or(0));
        if count * 2 != width {
            let reason =
                format!("tensor `{FREQS}` has {count} numbers; expected half of `{key}`, {width}");
            return Err(ModelFileError::invalid(self.file.path(), FORMAT)(reason).into());
        }
        let turning = factors.iter().take_while(|factor| **factor == 1.0).count();
        if factors.is_empty() || factors[turning..].iter().any(|factor| *factor != STILL) {
            let reason =
                format!("tensor `{FREQS}` has other numbers than 1, and after these {STILL:e}");
            return Err(ModelFileError::invalid(self.file.path(), FORMAT)(reason).into());
        }
        // The product with the number of pairs is rounded down.
        let part = ((turning as f64 + 0.25) / factors.len() as f64).min(1.0);
        self.object.insert(
            "rope_parameters".to_owned(),
            json!({
                "full_attention": {
                    "rope_type": "proportional", "rope_theta": of_full,
                    "partial_rotary_factor": part,
                },
                "sliding_attention": { "rope_type": "default", "rope_theta": of_windows },
            }),
        );
        for (kind, key) in [("full_attention", base), ("sliding_attention", base_of_windows)] {
            self.origins.push((format!("rope_parameters.{kind}.rope_theta"), key));
        }
        Ok(())
    }
}

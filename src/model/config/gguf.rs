//! The metadata of a GGUF file in the form of `config.json`, so that one reader checks both.
//!
//! The keys are those of `gguf.constants.Keys`. Their defaults are llama.cpp's.

use serde_json::{Map, Value, json};

use super::file::Fields;
use super::source::{ConfigSource, StoredBiases};
use super::{ConfigError, GenerationConfig};
use crate::gguf::{FORMAT, GgufError, GgufFile};
use crate::model_files::ModelFileError;

/// The supported architectures, with Hugging Face's names for them.
const ARCHITECTURES: [(&str, &str); 3] =
    [("llama", "LlamaForCausalLM"), ("qwen2", "Qwen2ForCausalLM"), ("qwen3", "Qwen3ForCausalLM")];
/// Llama with a sliding window. GGUF has no separate architecture for it.
const WITH_WINDOW: &str = "MistralForCausalLM";

/// The keys of tokens that end a turn.
const END_KEYS: [&str; 3] = ["eos_token_id", "eot_token_id", "eom_token_id"];
/// Control tokens that end an output in any model that has them, as in llama.cpp.
const END_TOKENS: [&str; 6] =
    ["<|eot_id|>", "<|im_end|>", "<|end|>", "<|endoftext|>", "<|eom_id|>", "<|end_of_text|>"];
/// The value in `tokenizer.ggml.token_type` that marks a control token.
const CONTROL: i64 = 3;

/// Returns the config of the model in `file`.
pub(super) fn read(file: &GgufFile) -> Result<ConfigSource, ConfigError> {
    let mut metadata = Metadata::new(file)?;
    metadata.shape()?;
    metadata.rope()?;
    metadata.tokens()?;
    let Metadata { object, keys, .. } = metadata;
    let fields = Fields::translated(file.path(), object, keys);
    // No key says whether a projection has a bias. The tensors show it.
    let has_bias = |module: &str| file.tensor(&format!("blk.0.{module}.bias")).is_some();
    let biases = StoredBiases {
        qkv: has_bias("attn_q"),
        o: has_bias("attn_output"),
        mlp: has_bias("ffn_up"),
    };
    Ok(ConfigSource { fields, biases: Some(biases) })
}

/// Returns the sampling defaults of the model's authors.
pub(super) fn read_generation(file: &GgufFile) -> Result<GenerationConfig, ConfigError> {
    let number = |key: &str| file.number(&format!("general.sampling.{key}"));
    let top_k = number("top_k")?;
    if top_k.is_some_and(|top_k| top_k.fract() != 0.0) {
        return Err(file.unexpected("general.sampling.top_k", "an integer").into());
    }
    Ok(GenerationConfig {
        temperature: number("temp")?,
        top_p: number("top_p")?,
        top_k: top_k.map(|top_k| top_k as i64),
        min_p: number("min_p")?,
        repetition_penalty: number("penalty_repeat")?,
        ..GenerationConfig::default()
    })
}

/// The fields of a `config.json` that is being built, and the keys that they come from.
struct Metadata<'a> {
    file: &'a GgufFile,
    architecture: &'a str,
    object: Map<String, Value>,
    keys: Vec<(String, String)>,
}

impl<'a> Metadata<'a> {
    fn new(file: &'a GgufFile) -> Result<Self, ConfigError> {
        const KEY: &str = "general.architecture";
        let supported = || ARCHITECTURES.map(|(name, _)| name).join(", ");
        let missing = || file.missing(KEY, format!("one of {}", supported()));
        let architecture = file.text(KEY)?.ok_or_else(missing)?;
        let known = ARCHITECTURES.iter().find(|(name, _)| *name == architecture);
        let &(_, class) = known.ok_or_else(|| ConfigError::UnsupportedFamily {
            path: file.path().to_owned(),
            field: KEY.to_owned(),
            value: format!("{:?}", architecture.chars().take(200).collect::<String>()),
            supported: supported(),
        })?;
        if !matches!(file.text("general.type")?, None | Some("model")) {
            return Err(file.unexpected("general.type", "\"model\"").into());
        }
        let mut metadata = Self { file, architecture, object: Map::new(), keys: Vec::new() };
        let window = metadata.key("attention.sliding_window");
        let has_window = class == "LlamaForCausalLM" && file.has(&window);
        let class = if has_window { WITH_WINDOW } else { class };
        metadata.object.insert("architectures".to_owned(), json!([class]));
        Ok(metadata)
    }

    /// Returns the key `name` of the architecture.
    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.architecture)
    }

    /// Sets `field`, and records that it comes from `key`.
    fn set(&mut self, field: &str, key: String, value: impl Into<Value>) {
        self.object.insert(field.to_owned(), value.into());
        self.keys.push((field.to_owned(), key));
    }

    /// Sets `field` to the integer under `name`, if there is one, and returns it.
    fn integer(&mut self, field: &str, name: &str) -> Result<Option<u64>, GgufError> {
        let key = self.key(name);
        let value = self.file.same_in_all_layers(&key)?;
        if let Some(value) = value {
            self.set(field, key, value);
        }
        Ok(value)
    }

    fn required_integer(&mut self, field: &str, name: &str) -> Result<u64, GgufError> {
        let value = self.integer(field, name)?;
        value.ok_or_else(|| self.file.missing(&self.key(name), "a positive integer"))
    }

    /// Sets the sizes, the heads, the norm and the vocabulary.
    fn shape(&mut self) -> Result<(), GgufError> {
        let file = self.file;
        self.required_integer("hidden_size", "embedding_length")?;
        self.required_integer("num_hidden_layers", "block_count")?;
        self.required_integer("intermediate_size", "feed_forward_length")?;
        self.required_integer("max_position_embeddings", "context_length")?;
        let heads = self.required_integer("num_attention_heads", "attention.head_count")?;
        if self.integer("num_key_value_heads", "attention.head_count_kv")?.is_none() {
            self.object.insert("num_key_value_heads".to_owned(), heads.into());
        }
        self.integer("sliding_window", "attention.sliding_window")?;
        self.head_dim(heads)?;
        for name in ["expert_count", "expert_used_count"] {
            if file.unsigned(&self.key(name))?.is_some_and(|experts| experts > 0) {
                return Err(file.unexpected(&self.key(name), "no experts: dense models are read"));
            }
        }
        let eps = self.key("attention.layer_norm_rms_epsilon");
        let value = file.number(&eps)?;
        let value = value.ok_or_else(|| file.missing(&eps, "a number above 0"))?;
        self.set("rms_norm_eps", eps, value);

        let embedding = "token_embd.weight";
        let vocab = file.tensor(embedding).and_then(|tensor| tensor.shape.first().copied());
        if let Some(vocab) = vocab {
            self.set("vocab_size", format!("the rows of tensor {embedding}"), vocab as u64);
        }
        let tied = file.tensor("output.weight").is_none();
        self.object.insert("tie_word_embeddings".to_owned(), tied.into());
        Ok(())
    }

    /// Sets the width of a head. Checks that the whole head is rotated.
    fn head_dim(&mut self, heads: u64) -> Result<(), GgufError> {
        let file = self.file;
        let hidden = self.object.get("hidden_size").and_then(Value::as_u64).unwrap_or(0);
        let derived = hidden.checked_div(heads).unwrap_or(0);
        let divides = derived * heads == hidden;
        let head_dim = match self.integer("head_dim", "attention.key_length")? {
            Some(head_dim) => head_dim,
            None if !divides => {
                let expected = format!("a divisor of {hidden}, the embedding length");
                return Err(file.unexpected(&self.key("attention.head_count"), expected));
            }
            None => {
                self.object.insert("head_dim".to_owned(), derived.into());
                derived
            }
        };
        for name in ["attention.value_length", "rope.dimension_count"] {
            let key = self.key(name);
            if file.unsigned(&key)?.is_some_and(|width| width != head_dim) {
                return Err(file.unexpected(&key, format!("{head_dim}, the width of a head")));
            }
        }
        Ok(())
    }

    /// Sets the rotary embedding and its scaling.
    fn rope(&mut self) -> Result<(), GgufError> {
        let file = self.file;
        let theta = self.key("rope.freq_base");
        if let Some(value) = file.number(&theta)? {
            self.keys.push(("rope_scaling.rope_theta".to_owned(), theta.clone()));
            self.set("rope_theta", theta, value);
        }
        for name in ["rope.scaling.attn_factor", "rope.scaling.yarn_attn_factor"] {
            if file.number(&self.key(name))?.is_some_and(|factor| factor != 1.0) {
                return Err(file.unexpected(&self.key(name), "1, as scalings bring their own"));
            }
        }
        let kind_key = self.key("rope.scaling.type");
        let mut scaling = Map::new();
        match (file.text(&kind_key)?.unwrap_or("linear"), self.scaling_factor()?) {
            ("none", _) | ("linear" | "yarn", None) => {}
            (kind @ ("linear" | "yarn"), Some((factor_key, factor))) => {
                scaling.insert("rope_type".to_owned(), kind.into());
                scaling.insert("factor".to_owned(), factor.into());
                self.keys.push(("rope_scaling.factor".to_owned(), factor_key));
                self.yarn(&mut scaling)?;
            }
            _ => return Err(file.unexpected(&kind_key, "\"none\", \"linear\" or \"yarn\"")),
        }
        if let Some(factors) = self.frequency_factors()? {
            if !scaling.is_empty() {
                let expected = "\"none\" beside a tensor rope_freqs";
                return Err(match file.has(&kind_key) {
                    true => file.unexpected(&kind_key, expected),
                    false => file.missing(&kind_key, expected),
                });
            }
            // The tensor has the result of Llama 3's scaling: a divisor for each frequency, at any
            // length.
            scaling.insert("rope_type".to_owned(), "longrope".into());
            scaling.insert("short_factor".to_owned(), json!(factors));
            scaling.insert("long_factor".to_owned(), json!(factors));
            scaling.insert("factor".to_owned(), json!(1.0));
            scaling.insert("attention_factor".to_owned(), json!(1.0));
            for list in ["short_factor", "long_factor"] {
                let key = "the tensor rope_freqs.weight".to_owned();
                self.keys.push((format!("rope_scaling.{list}"), key));
            }
        }
        if !scaling.is_empty() {
            self.object.insert("rope_scaling".to_owned(), Value::Object(scaling));
        }
        Ok(())
    }

    /// Returns the divisor of positions and its key, unless the divisor changes nothing. A factor
    /// of 0 means unknown. The old key counts if the new one is absent.
    fn scaling_factor(&self) -> Result<Option<(String, f64)>, GgufError> {
        for name in ["rope.scaling.factor", "rope.scale_linear"] {
            let key = self.key(name);
            if let Some(factor) = self.file.number(&key)? {
                return Ok((factor != 0.0 && factor != 1.0).then_some((key, factor)));
            }
        }
        Ok(None)
    }

    /// Adds the parameters that only YaRN has.
    fn yarn(&mut self, scaling: &mut Map<String, Value>) -> Result<(), GgufError> {
        for (field, name) in [
            ("original_max_position_embeddings", "rope.scaling.original_context_length"),
            ("beta_fast", "rope.scaling.yarn_beta_fast"),
            ("beta_slow", "rope.scaling.yarn_beta_slow"),
        ] {
            let key = self.key(name);
            let value = match field {
                "original_max_position_embeddings" => self.file.unsigned(&key)?.map(Value::from),
                _ => self.file.number(&key)?.map(Value::from),
            };
            if let Some(value) = value {
                scaling.insert(field.to_owned(), value);
                self.keys.push((format!("rope_scaling.{field}"), key));
            }
        }
        Ok(())
    }

    /// Returns the tensor `rope_freqs.weight`, `[head_dim / 2]`, if there is one.
    fn frequency_factors(&self) -> Result<Option<Vec<f32>>, GgufError> {
        const NAME: &str = "rope_freqs.weight";
        let Some(tensor) = self.file.tensor(NAME) else { return Ok(None) };
        if tensor.kind.name != "F32" {
            let reason = format!("tensor `{NAME}` is {}; expected F32", tensor.kind.name);
            return Err(ModelFileError::invalid(self.file.path(), FORMAT)(reason).into());
        }
        let (words, _) = self.file.bytes()[tensor.range.clone()].as_chunks::<4>();
        Ok(Some(words.iter().map(|word| f32::from_le_bytes(*word)).collect()))
    }

    /// Sets the tokens that begin and end a sequence.
    fn tokens(&mut self) -> Result<(), GgufError> {
        let file = self.file;
        let id = |name: &str| file.unsigned(&format!("tokenizer.ggml.{name}"));
        if let Some(bos) = id("bos_token_id")? {
            self.set("bos_token_id", "tokenizer.ggml.bos_token_id".to_owned(), bos);
        }
        let mut ends = Vec::new();
        for key in END_KEYS {
            ends.extend(id(key)?);
        }
        let types = file.integers("tokenizer.ggml.token_type")?.unwrap_or_default();
        let tokens = file.texts("tokenizer.ggml.tokens")?.unwrap_or_default();
        for (id, (token, kind)) in tokens.iter().zip(types).enumerate() {
            let id = id as u64;
            if kind == CONTROL && END_TOKENS.contains(token) && !ends.contains(&id) {
                ends.push(id);
            }
        }
        self.set("eos_token_id", "tokenizer.ggml.eos_token_id".to_owned(), ends);
        Ok(())
    }
}

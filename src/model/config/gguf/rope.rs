//! The rotary embedding of a GGUF file, and its scaling.

use serde_json::{Map, Value, json};

use super::architecture::LayerTypes;
use super::metadata::Metadata;
use crate::gguf::{FORMAT, GgufError};
use crate::model::family::Family;
use crate::model_files::ModelFileError;

/// The tensor of a divisor for each frequency, at any length.
pub(super) const FREQS: &str = "rope_freqs.weight";
/// llama.cpp's base of wavelengths for files without the key.
const DEFAULT_BASE: f64 = 10_000.0;
/// The tensors of LongRoPE's divisors, for short and for long contexts.
const FACTORS: [(&str, &str); 2] =
    [("short_factor", "rope_factors_short.weight"), ("long_factor", "rope_factors_long.weight")];

impl Metadata<'_> {
    /// Sets the rotary embedding and its scaling.
    pub(super) fn rope(&mut self, family: &Family) -> Result<(), GgufError> {
        if matches!(self.architecture.layer_types, LayerTypes::Windows) {
            return self.proportional_rope();
        }
        let theta = self.key("rope.freq_base");
        let stored = self.file.number(&theta)?;
        // Without a value, the class's own default would count.
        let default = (family.defaults.rope_theta != DEFAULT_BASE).then_some(DEFAULT_BASE);
        if let Some(value) = stored.or(default) {
            self.set("rope_scaling.rope_theta", theta.clone(), value);
            // llama.cpp has one base for layers of all kinds, unless a key names another.
            if family.rope.sliding.is_some_and(|sliding| sliding.theta.is_none()) {
                let own = self.key("rope.freq_base_swa");
                let (key, value) = match self.file.number(&own)? {
                    Some(own_value) => (own, own_value),
                    None => (theta, value),
                };
                let sliding = json!({ "rope_theta": value });
                self.set("rope_parameters.sliding_attention", key, sliding);
            }
        }
        let mut scaling = Map::new();
        if self.file.tensor(FACTORS[0].1).is_some() {
            self.longrope(&mut scaling)?;
        } else {
            self.scaling(&mut scaling)?;
        }
        // The class's own scaling is that of a config without an object.
        let object = self.object.entry("rope_scaling").or_insert_with(|| json!({}));
        if let Some(object) = object.as_object_mut() {
            object.extend(scaling);
            object.entry("rope_type").or_insert_with(|| "default".into());
        }
        Ok(())
    }

    /// Sets a parameter that no key has, if there is a scaling.
    pub(super) fn set_in_rope(&mut self, field: &str, value: impl Into<Value>) {
        let object = self.object.get_mut("rope_scaling").and_then(Value::as_object_mut);
        if let Some(object) = object.filter(|object| object.contains_key("factor")) {
            object.insert(field.to_owned(), value.into());
        }
    }

    /// Sets the scaling that keys describe, or the tensor of divisors.
    fn scaling(&mut self, scaling: &mut Map<String, Value>) -> Result<(), GgufError> {
        let file = self.file;
        for name in ["rope.scaling.attn_factor", "rope.scaling.yarn_attn_factor"] {
            let key = self.key(name);
            if file.number(&key)?.is_some_and(|factor| factor != 1.0) {
                return Err(file.unexpected(&key, "1, as scalings bring their own"));
            }
        }
        let kind_key = self.key("rope.scaling.type");
        match (file.text(&kind_key)?.unwrap_or("linear"), self.scaling_factor()?) {
            ("none", _) | ("linear" | "yarn", None) => {}
            (kind @ ("linear" | "yarn"), Some((factor_key, factor))) => {
                scaling.insert("rope_type".to_owned(), kind.into());
                scaling.insert("factor".to_owned(), factor.into());
                self.origins.push(("rope_scaling.factor".to_owned(), factor_key));
                self.yarn(scaling)?;
            }
            ("longrope", _) => {
                let expected = "another type, as the tensor rope_factors_short is missing";
                return Err(file.unexpected(&kind_key, expected));
            }
            _ => return Err(file.unexpected(&kind_key, "\"none\", \"linear\" or \"yarn\"")),
        }
        let Some(factors) = self.factors(FREQS)? else { return Ok(()) };
        if !scaling.is_empty() {
            let expected = "\"none\" beside a tensor rope_freqs";
            return Err(match file.has(&kind_key) {
                true => file.unexpected(&kind_key, expected),
                false => file.missing(&kind_key, expected),
            });
        }
        // The tensor has the result of Llama 3's scaling.
        scaling.insert("rope_type".to_owned(), "longrope".into());
        scaling.insert("factor".to_owned(), json!(1.0));
        scaling.insert("attention_factor".to_owned(), json!(1.0));
        for (list, _) in FACTORS {
            scaling.insert(list.to_owned(), json!(factors));
            self.origins.push((format!("rope_scaling.{list}"), format!("the tensor {FREQS}")));
        }
        Ok(())
    }

    /// Sets LongRoPE (`Phi3MiniModel.generate_extra_tensors` of llama.cpp's converter).
    fn longrope(&mut self, scaling: &mut Map<String, Value>) -> Result<(), GgufError> {
        let file = self.file;
        scaling.insert("rope_type".to_owned(), "longrope".into());
        let kind = self.key("rope.scaling.type");
        if !matches!(file.text(&kind)?, None | Some("longrope")) {
            return Err(file.unexpected(&kind, "\"longrope\" beside the tensor rope_factors_short"));
        }
        for (list, tensor) in FACTORS {
            let factors = self.factors(tensor)?;
            let factors = factors.ok_or_else(|| file.missing(tensor, "a list of numbers"))?;
            scaling.insert(list.to_owned(), json!(factors));
            self.origins.push((format!("rope_scaling.{list}"), format!("the tensor {tensor}")));
        }
        let original = self.key("rope.scaling.original_context_length");
        // Beside the object, it has precedence over the class's default.
        let length = file.unsigned(&original)?;
        let length = length.unwrap_or_else(|| self.size("max_position_embeddings"));
        self.set("original_max_position_embeddings", original, length);
        let attention = self.key("rope.scaling.attn_factor");
        let factor = file.number(&attention)?.unwrap_or(1.0);
        scaling.insert("attention_factor".to_owned(), factor.into());
        self.origins.push(("rope_scaling.attention_factor".to_owned(), attention));
        Ok(())
    }

    /// Returns the divisor of positions and its key, unless the divisor changes nothing. A factor
    /// of 0 means unknown. The old key counts if the new one is absent.
    fn scaling_factor(&mut self) -> Result<Option<(String, f64)>, GgufError> {
        let [new, old] = ["rope.scaling.factor", "rope.scale_linear"].map(|name| self.key(name));
        for key in [new, old] {
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
                self.origins.push((format!("rope_scaling.{field}"), key));
            }
        }
        Ok(())
    }

    /// Returns the tensor `name`, `[rotary_dim / 2]`, if there is one.
    pub(super) fn factors(&self, name: &str) -> Result<Option<Vec<f32>>, GgufError> {
        let Some(tensor) = self.file.tensor(name) else { return Ok(None) };
        if tensor.kind.name != "F32" {
            let reason = format!("tensor `{name}` is {}; expected F32", tensor.kind.name);
            return Err(ModelFileError::invalid(self.file.path(), FORMAT)(reason).into());
        }
        let bytes = self.file.tensor_bytes(name).unwrap_or_default();
        let (words, _) = bytes.as_chunks::<4>();
        Ok(Some(words.iter().map(|word| f32::from_le_bytes(*word)).collect()))
    }
}

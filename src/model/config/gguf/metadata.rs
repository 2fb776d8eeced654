//! The fields of a `config.json` that is being built from metadata.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::architecture::{Architecture, Form, Key, LayerTypes};
use crate::gguf::{GgufError, GgufFile};
use crate::model::family::{Family, NormKind};

/// The fields of a `config.json`, and the keys that they come from.
pub(super) struct Metadata<'a> {
    pub(super) file: &'a GgufFile,
    pub(super) architecture: &'static Architecture,
    pub(super) object: Map<String, Value>,
    /// Pairs of the dotted name of a field and its key.
    pub(super) origins: Vec<(String, String)>,
    /// The keys that were read.
    pub(super) read: BTreeSet<String>,
}

impl<'a> Metadata<'a> {
    pub(super) fn new(file: &'a GgufFile, architecture: &'static Architecture) -> Self {
        let (object, origins, read) = (Map::new(), Vec::new(), BTreeSet::new());
        Self { file, architecture, object, origins, read }
    }

    /// Returns the key `name` of the architecture, and records that it is read.
    pub(super) fn key(&mut self, name: &str) -> String {
        let key = format!("{}.{name}", self.architecture.name);
        self.read.insert(key.clone());
        key
    }

    /// Sets `field`, whose name may have a dot, and records that it comes from `key`.
    pub(super) fn set(&mut self, field: &str, key: String, value: impl Into<Value>) {
        let value = value.into();
        match field.split_once('.') {
            None => {
                self.object.insert(field.to_owned(), value);
            }
            Some((outer, inner)) => {
                let object = self.object.entry(outer).or_insert_with(|| json!({}));
                if let Some(object) = object.as_object_mut() {
                    object.insert(inner.to_owned(), value);
                }
            }
        }
        self.origins.push((field.to_owned(), key));
    }

    /// Returns an integer field that was set; 0 if it was not.
    pub(super) fn size(&self, field: &str) -> u64 {
        self.object.get(field).and_then(Value::as_u64).unwrap_or(0)
    }

    /// Sets `field` to the integer under `name`, if there is one, and returns it.
    pub(super) fn integer(&mut self, field: &str, name: &str) -> Result<Option<u64>, GgufError> {
        let key = self.key(name);
        let value = self.file.same_in_all_layers(&key)?;
        match value {
            Some(value) => self.set(field, key, value),
            None => self.origins.push((field.to_owned(), key)),
        }
        Ok(value)
    }

    pub(super) fn required_integer(&mut self, field: &str, name: &str) -> Result<u64, GgufError> {
        let value = self.integer(field, name)?;
        value.ok_or_else(|| self.file.missing(&self.key(name), "a positive integer"))
    }

    /// Sets the sizes, the heads, the norm and the vocabulary of a model of `family`.
    pub(super) fn shape(&mut self, family: &Family) -> Result<(), GgufError> {
        let file = self.file;
        self.required_integer("hidden_size", "embedding_length")?;
        let blocks = self.required_integer("num_hidden_layers", "block_count")?;
        self.next_tokens(blocks)?;
        let widths = match self.architecture.layer_types {
            LayerTypes::Parts(_) => self.of_layers("intermediate_size", "feed_forward_length")?,
            LayerTypes::Windows => {
                self.double_widths()?;
                Vec::new()
            }
            LayerTypes::Blocks => Vec::new(),
            LayerTypes::Other | LayerTypes::KeyHeads(_) => {
                const NAME: &str = "feed_forward_length";
                // All layers may have experts. This does not count as reading the key.
                let experts = format!("{}.expert_feed_forward_length", self.architecture.name);
                if file.has(&self.key(NAME)) || !file.has(&experts) {
                    self.required_integer("intermediate_size", NAME)?;
                }
                Vec::new()
            }
        };
        self.required_integer("max_position_embeddings", "context_length")?;
        let heads = match self.architecture.layer_types {
            LayerTypes::Blocks => self.blocks()?,
            _ => self.required_integer("num_attention_heads", "attention.head_count")?,
        };
        if family.latent.is_some() {
            self.latent(heads)?;
        } else if heads > 0 {
            self.heads(heads, &widths)?;
        } else {
            // A model without attention, which has no feed-forward parts either.
            for field in ["num_attention_heads", "intermediate_size"] {
                self.object.remove(field);
            }
        }
        self.norm(family)?;
        let embedding = "token_embd.weight";
        let vocab = file.tensor(embedding).and_then(|tensor| tensor.shape.first().copied());
        if let Some(vocab) = vocab {
            self.set("vocab_size", format!("the rows of tensor {embedding}"), vocab as u64);
        }
        let tied = file.tensor("output.weight").is_none();
        self.object.insert("tie_word_embeddings".to_owned(), tied.into());
        Ok(())
    }

    /// Sets key heads, the types of layers that they tell, and the width of heads. `widths` has the
    /// feed-forward widths of layers, if they differ.
    fn heads(&mut self, heads: u64, widths: &[u64]) -> Result<(), GgufError> {
        const NAME: &str = "attention.head_count_kv";
        const FIELD: &str = "num_key_value_heads";
        let types: Vec<&str> = match self.architecture.layer_types {
            LayerTypes::Windows => return self.heads_of_kinds(),
            LayerTypes::Blocks => return self.head_dim(heads),
            LayerTypes::Other => {
                if self.integer(FIELD, NAME)?.is_none() {
                    self.object.insert(FIELD.to_owned(), heads.into());
                }
                return self.head_dim(heads);
            }
            LayerTypes::KeyHeads([without, with]) => {
                let name = |heads: &u64| if *heads == 0 { without } else { with };
                self.of_layers(FIELD, NAME)?.iter().map(name).collect()
            }
            LayerTypes::Parts(feed_forward) => {
                let name = |(heads, width): (&u64, &u64)| match (heads, width) {
                    (0, 0) => "linear_attention",
                    (0, _) => feed_forward,
                    _ => "full_attention",
                };
                self.of_layers(FIELD, NAME)?.iter().zip(widths).map(name).collect()
            }
        };
        let key = self.key(NAME);
        self.set("layer_types", key, types);
        self.head_dim(heads)
    }

    /// Returns the numbers of layers under `name`, each the same or 0, and sets `field` to the one
    /// that is not 0. If all are 0, the field has no meaning.
    fn of_layers(&mut self, field: &str, name: &str) -> Result<Vec<u64>, GgufError> {
        let (file, key) = (self.file, self.key(name));
        let count = self.size("num_hidden_layers");
        let mut numbers: Vec<u64> = match file.is_list(&key) {
            true => file.unsigned_list(&key)?.unwrap_or_default(),
            false => {
                let number = file.unsigned(&key)?;
                let number = number.ok_or_else(|| file.missing(&key, "a number for each layer"))?;
                // The config refuses more layers than this.
                vec![number; count.min(1 << 16) as usize]
            }
        };
        // Layers after the last are listed, too.
        numbers.truncate(count as usize);
        let most = numbers.iter().copied().max().unwrap_or(0);
        let fits = numbers.iter().all(|number| *number == most || *number == 0);
        if !fits || (numbers.len() as u64) < count.min(1 << 16) {
            let expected = format!("a list of {count} numbers, all the same or 0");
            return Err(file.unexpected(&key, expected));
        }
        self.set(field, key, most.max(1));
        Ok(numbers)
    }

    /// Excludes the layers that predict several tokens a step: they are among the file's blocks.
    fn next_tokens(&mut self, blocks: u64) -> Result<(), GgufError> {
        let name = "nextn_predict_layers";
        let Some(layers) = self.integer("num_nextn_predict_layers", name)? else { return Ok(()) };
        let Some(rest) = blocks.checked_sub(layers).filter(|rest| *rest > 0 || blocks == 0) else {
            let expected = format!("less than {blocks}, the number of blocks");
            return Err(self.file.unexpected(&self.key(name), expected));
        };
        self.object.insert("num_hidden_layers".to_owned(), rest.into());
        Ok(())
    }

    /// Sets the width of a head, and the part of it that rotates.
    fn head_dim(&mut self, heads: u64) -> Result<(), GgufError> {
        let file = self.file;
        let hidden = self.size("hidden_size");
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
        let width = self.key("attention.value_length");
        if file.unsigned(&width)?.is_some_and(|width| width != head_dim) {
            return Err(file.unexpected(&width, format!("{head_dim}, the width of a head")));
        }
        let rotating = self.key("rope.dimension_count");
        let count = file.unsigned(&rotating)?.unwrap_or(head_dim);
        if count == 0 || count > head_dim || !count.is_multiple_of(2) {
            let expected = format!("an even number from 2 to {head_dim}, the width of a head");
            return Err(file.unexpected(&rotating, expected));
        }
        // The part is rounded down to a whole number of elements.
        let part = match count == head_dim {
            true => 1.0,
            false => (count as f64 + 0.5) / head_dim as f64,
        };
        self.set("rope_scaling.partial_rotary_factor", rotating, part);
        Ok(())
    }

    fn norm(&mut self, family: &Family) -> Result<(), GgufError> {
        let rms = self.key("attention.layer_norm_rms_epsilon");
        let layer = self.key("attention.layer_norm_epsilon");
        // The files of some models have the key of the other kind.
        let keys = match family.norm.kind {
            NormKind::Rms | NormKind::RmsPlusOne | NormKind::RmsUnweighted | NormKind::Length => {
                [rms, layer]
            }
            NormKind::Layer { .. } | NormKind::LayerPlusOne | NormKind::LayerUnweighted => {
                [layer, rms]
            }
        };
        for key in &keys {
            if let Some(eps) = self.file.number(key)? {
                if family.norm.eps.is_empty() {
                    let expected = family.defaults.norm_eps;
                    return match eps as f32 == expected as f32 {
                        true => Ok(()),
                        false => Err(self.file.unexpected(key, format!("{expected}"))),
                    };
                }
                self.set(family.norm.eps, key.clone(), eps);
                return Ok(());
            }
        }
        Err(self.file.missing(&keys[0], "a number above 0"))
    }

    /// Sets the fields of the architecture: its constants first, and then its keys.
    pub(super) fn own_keys(&mut self) -> Result<(), GgufError> {
        let Architecture { constants, keys, adjust, .. } = *self.architecture;
        for (field, constant) in constants {
            let value = constant.value(self);
            self.object.insert((*field).to_owned(), value);
        }
        for key in keys {
            self.own_key(key)?;
        }
        adjust(self)
    }

    fn own_key(&mut self, &Key { name, field, form }: &Key) -> Result<(), GgufError> {
        let key = self.key(name);
        match form {
            Form::Integer => {
                self.integer(field, name)?;
            }
            Form::Number => {
                if let Some(number) = self.file.number(&key)?.filter(|number| *number != 0.0) {
                    self.set(field, key, number);
                }
            }
            Form::Flag => {
                if let Some(flag) = self.file.flag(&key)? {
                    self.set(field, key, flag);
                }
            }
            Form::EqualTo => {
                let other = self.key(field);
                let (own, expected) = (self.file.number(&key)?, self.file.number(&other)?);
                if own.is_some_and(|own| Some(own) != expected) {
                    return Err(self.file.unexpected(&key, format!("the value of `{other}`")));
                }
            }
            Form::Window | Form::WindowOrDefault => self.window(key, form)?,
            Form::Unused => {}
        }
        Ok(())
    }

    /// Sets the sliding window and its layers.
    fn window(&mut self, key: String, form: Form) -> Result<(), GgufError> {
        let pattern = self.key("attention.sliding_window_pattern");
        let window = self.file.unsigned(&key)?;
        match (window, form) {
            (Some(window), _) if window > 0 => {
                self.set("sliding_window", key, window);
                self.window_pattern(pattern)?;
            }
            (None, Form::WindowOrDefault) => self.window_pattern(pattern)?,
            _ => self.set("sliding_window", key, Value::Null),
        }
        Ok(())
    }

    /// Sets the layers that have the window, if the file lists them: a boolean for each, or the
    /// period at whose end a layer has none.
    fn window_pattern(&mut self, key: String) -> Result<(), GgufError> {
        if !self.file.has(&key) {
            return Ok(());
        }
        let count = self.size("num_hidden_layers");
        let flags = match self.file.is_list(&key) {
            true => self.file.flags(&key)?.unwrap_or_default(),
            false => periodic_windows(count, self.file.unsigned(&key)?.unwrap_or(0)),
        };
        self.set("layer_types", key, window_types(&flags[..flags.len().min(count as usize)]));
        Ok(())
    }

    /// Sets the layers that have the window in files that do not list them: all but every
    /// `period`-th.
    pub(super) fn default_window_pattern(&mut self, period: u64) {
        if self.size("sliding_window") > 0 && !self.object.contains_key("layer_types") {
            let flags = periodic_windows(self.size("num_hidden_layers"), period);
            self.object.insert("layer_types".to_owned(), window_types(&flags).into());
        }
    }

    /// Refuses a model without a window, whose layers would all lack positions.
    pub(super) fn require_window(&mut self) -> Result<(), GgufError> {
        const EXPECTED: &str = "a positive integer: layers without a window have no positions";
        let key = self.key("attention.sliding_window");
        match self.file.unsigned(&key)? {
            None => Err(self.file.missing(&key, EXPECTED)),
            Some(0) => Err(self.file.unexpected(&key, EXPECTED)),
            Some(_) => Ok(()),
        }
    }

    /// Refuses scores of experts that are not `expected`, whose number is `number`.
    pub(super) fn require_gating(&mut self, number: u64, expected: &str) -> Result<(), GgufError> {
        let key = self.key("expert_gating_func");
        match self.file.unsigned(&key)? {
            None | Some(0) => Ok(()),
            Some(found) if found == number => Ok(()),
            Some(_) => Err(self.file.unexpected(&key, expected)),
        }
    }

    /// Refuses scores of experts whose number is more than `most`.
    pub(super) fn require_gating_up_to(
        &mut self,
        most: u64,
        expected: &str,
    ) -> Result<(), GgufError> {
        let key = self.key("expert_gating_func");
        match self.file.unsigned(&key)?.is_some_and(|found| found > most) {
            true => Err(self.file.unexpected(&key, expected)),
            false => Ok(()),
        }
    }

    /// Returns whether the file stands for a model of the class `class`.
    pub(super) fn is_class(&self, class: &str) -> bool {
        self.object.get("architectures").is_some_and(|classes| *classes == json!([class]))
    }

    /// Refuses a model without ALiBi.
    pub(super) fn require_alibi(&mut self) -> Result<(), GgufError> {
        let key = self.key("attention.max_alibi_bias");
        match self.file.number(&key)? {
            Some(0.0) => Err(self.file.unexpected(&key, "a number above 0: ALiBi")),
            _ => Ok(()),
        }
    }

    /// Refuses a model without positions, which Granite's files mark by this key.
    pub(super) fn require_positions(&mut self) -> Result<(), GgufError> {
        let key = self.key("rope.scaling.finetuned");
        match self.file.flag(&key)? {
            Some(false) => Err(self.file.unexpected(&key, "true: rotary embeddings")),
            _ => Ok(()),
        }
    }
}

/// Returns for each of `count` layers whether it has the window: all but every `period`-th, and all
/// if that is 0.
fn periodic_windows(count: u64, period: u64) -> Vec<bool> {
    let is_sliding = |layer: u64| period == 0 || layer % period < period - 1;
    // The config refuses more layers than this.
    (0..count.min(1 << 16)).map(is_sliding).collect()
}

fn window_types(flags: &[bool]) -> Vec<&'static str> {
    let name = |sliding: &bool| if *sliding { "sliding_attention" } else { "full_attention" };
    flags.iter().map(name).collect()
}

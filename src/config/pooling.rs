//! Settings of pooling: whether the model generates or pools, and how its pooler works.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::JsonObject;

/// The work that the model is loaded for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Runner {
    /// Pooling for models with files of sentence-transformers and for architectures without an
    /// output layer, generation for all others.
    #[default]
    Auto,
    /// Generation.
    Generate,
    /// Pooling. The output layer is not loaded.
    Pooling,
}

impl<'de> Deserialize<'de> for Runner {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match String::deserialize(from)?.as_str() {
            "auto" => Ok(Self::Auto),
            "generate" => Ok(Self::Generate),
            "pooling" => Ok(Self::Pooling),
            _ => Err(de::Error::custom("expected auto, generate or pooling")),
        }
    }
}

/// The pooler that a model gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Convert {
    /// The one of its architecture: a classifier for `…ForSequenceClassification`, else an
    /// embedding. A model that generates gets none.
    #[default]
    Auto,
    /// No other than that of its architecture.
    None,
    /// One that makes vectors. A model that generates then does both.
    Embed,
    /// One that classifies, with the checkpoint's `score.weight`.
    Classify,
}

impl<'de> Deserialize<'de> for Convert {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match String::deserialize(from)?.as_str() {
            "auto" => Ok(Self::Auto),
            "none" => Ok(Self::None),
            "embed" => Ok(Self::Embed),
            "classify" => Ok(Self::Classify),
            _ => Err(de::Error::custom("expected auto, none, embed or classify")),
        }
    }
}

/// The hidden states that make one result for a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum SequencePooling {
    /// That of the first token.
    Cls,
    /// That of the last token.
    Last,
    /// Their mean.
    Mean,
}

/// The hidden states that make a result for each token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum TokenPooling {
    /// Those of all tokens.
    All,
    /// Those of the tokens `step_tag_id`.
    Step,
}

/// Any pooling, for vLLM's field of both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum AnyPooling {
    Cls,
    Last,
    Mean,
    All,
    Step,
}

/// The task that the server's routes are open for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PoolerTask {
    /// One vector for a prompt.
    Embed,
    /// A vector for each token.
    TokenEmbed,
    /// One classification of a prompt.
    Classify,
    /// A classification of each token.
    TokenClassify,
}

/// How the pooler works, as vLLM's `--pooler-config` has it. Absent fields have the model's values.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PoolerConfig {
    /// The task that the routes are open for.
    pub task: Option<PoolerTask>,
    /// The pooling of whole prompts.
    pub seq_pooling_type: Option<SequencePooling>,
    /// The pooling of each token.
    pub tok_pooling_type: Option<TokenPooling>,
    /// Whether vectors are normalized, and logits become probabilities, unless a request says
    /// otherwise.
    pub use_activation: Option<bool>,
    /// Number of elements that vectors keep, unless a request says otherwise.
    pub dimensions: Option<u32>,
    /// The token whose positions have results with `STEP`.
    pub step_tag_id: Option<u32>,
    /// The elements of a row that `STEP` returns. Without any, all.
    pub returned_token_ids: Option<Vec<u32>>,
    /// Whether the vector of a text longer than the model's context is the mean of the vectors of
    /// its pieces.
    pub enable_chunked_processing: bool,
    /// Maximum number of tokens of a text with `enable_chunked_processing`. `None`: the model's
    /// context.
    pub max_embed_len: Option<usize>,
    /// A number that is subtracted from logits, before the division by `logit_sigma`.
    pub logit_mean: Option<f32>,
    /// A number that logits are divided by, before they become probabilities.
    pub logit_sigma: Option<f32>,
}

/// The fields as vLLM has them.
#[derive(Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Fields {
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<PoolerTask>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pooling_type: Option<AnyPooling>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seq_pooling_type: Option<SequencePooling>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tok_pooling_type: Option<TokenPooling>,
    #[serde(skip_serializing_if = "Option::is_none", alias = "normalize")]
    use_activation: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dimensions: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    step_tag_id: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    returned_token_ids: Option<Vec<u32>>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    enable_chunked_processing: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_embed_len: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    logit_mean: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    logit_sigma: Option<f32>,
    /// The former name of `logit_mean`.
    #[serde(skip_serializing)]
    logit_bias: Option<f32>,
    /// The former form of `logit_sigma`: one divided by it.
    #[serde(skip_serializing)]
    logit_scale: Option<f32>,
}

impl Fields {
    /// Returns the calibration of logits: a mean and a divisor.
    fn calibration(&self) -> Result<(Option<f32>, Option<f32>), &'static str> {
        let mean = match (self.logit_mean, self.logit_bias) {
            (Some(_), Some(_)) => return Err("logit_bias is logit_mean; give one of them"),
            (mean, bias) => mean.or(bias),
        };
        let sigma = match (self.logit_sigma, self.logit_scale) {
            (Some(_), Some(_)) => return Err("logit_scale is 1 / logit_sigma; give one of them"),
            (sigma, scale) => sigma.or(scale.map(|scale| 1.0 / scale)),
        };
        let is_number = |value: Option<f32>| value.is_none_or(f32::is_finite);
        if !is_number(mean) || !is_number(sigma) || sigma == Some(0.0) {
            return Err("logit_mean and logit_sigma must be finite, and logit_sigma not 0");
        }
        Ok((mean, sigma))
    }
}

impl TryFrom<Fields> for PoolerConfig {
    type Error = &'static str;

    fn try_from(fields: Fields) -> Result<Self, &'static str> {
        let Fields { task, pooling_type, seq_pooling_type, tok_pooling_type, .. } = fields;
        let (seq, tok) = match pooling_type {
            None => (None, None),
            Some(AnyPooling::Cls) => (Some(SequencePooling::Cls), None),
            Some(AnyPooling::Last) => (Some(SequencePooling::Last), None),
            Some(AnyPooling::Mean) => (Some(SequencePooling::Mean), None),
            Some(AnyPooling::All) => (None, Some(TokenPooling::All)),
            Some(AnyPooling::Step) => (None, Some(TokenPooling::Step)),
        };
        if seq.is_some() && seq_pooling_type.is_some_and(|given| Some(given) != seq)
            || tok.is_some() && tok_pooling_type.is_some_and(|given| Some(given) != tok)
        {
            return Err("pooling_type contradicts seq_pooling_type or tok_pooling_type");
        }
        let (logit_mean, logit_sigma) = fields.calibration()?;
        if fields.max_embed_len == Some(0) {
            return Err("max_embed_len must be at least 1");
        }
        Ok(Self {
            task,
            seq_pooling_type: seq_pooling_type.or(seq),
            tok_pooling_type: tok_pooling_type.or(tok),
            use_activation: fields.use_activation,
            dimensions: fields.dimensions,
            step_tag_id: fields.step_tag_id,
            returned_token_ids: fields.returned_token_ids,
            enable_chunked_processing: fields.enable_chunked_processing,
            max_embed_len: fields.max_embed_len,
            logit_mean,
            logit_sigma,
        })
    }
}

impl Serialize for PoolerConfig {
    /// Writes the object as text, as the flag takes it.
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Self { task, seq_pooling_type, tok_pooling_type, use_activation, .. } = *self;
        let fields = Fields {
            task,
            pooling_type: None,
            seq_pooling_type,
            tok_pooling_type,
            use_activation,
            dimensions: self.dimensions,
            step_tag_id: self.step_tag_id,
            returned_token_ids: self.returned_token_ids.clone(),
            enable_chunked_processing: self.enable_chunked_processing,
            max_embed_len: self.max_embed_len,
            logit_mean: self.logit_mean,
            logit_sigma: self.logit_sigma,
            logit_bias: None,
            logit_scale: None,
        };
        to.serialize_str(&serde_json::to_string(&fields).unwrap_or_default())
    }
}

impl<'de> Deserialize<'de> for PoolerConfig {
    /// Reads a text with a JSON object, as the flag has it, or a table of the file.
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let JsonObject(object) = JsonObject::deserialize(from)?;
        let fields: Result<Fields, _> = serde_json::from_value(object.into());
        fields.map_err(de::Error::custom)?.try_into().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<PoolerConfig, String> {
        serde_json::from_value(json.into()).map_err(|error: serde_json::Error| error.to_string())
    }

    #[test]
    fn a_pooler_is_described_as_vllm_does() {
        let config = read(r#"{"task": "token_embed", "pooling_type": "MEAN"}"#).unwrap();
        assert_eq!(config.task, Some(PoolerTask::TokenEmbed));
        assert_eq!(config.seq_pooling_type, Some(SequencePooling::Mean));
        let written = serde_json::to_value(&config).unwrap();
        assert_eq!(written, r#"{"task":"token_embed","seq_pooling_type":"MEAN"}"#);
        let object = serde_json::json!({"tok_pooling_type": "STEP", "step_tag_id": 7});
        let config: PoolerConfig = serde_json::from_value(object).unwrap();
        assert_eq!(
            (config.tok_pooling_type, config.step_tag_id),
            (Some(TokenPooling::Step), Some(7))
        );
    }

    #[test]
    fn older_names_of_the_calibration_are_read() {
        let config = read(r#"{"logit_bias": 2.0, "logit_scale": 4.0}"#).unwrap();
        assert_eq!((config.logit_mean, config.logit_sigma), (Some(2.0), Some(0.25)));
        for wrong in [
            r#"{"logit_bias": 2.0, "logit_mean": 2.0}"#,
            r#"{"logit_sigma": 0.0}"#,
            r#"{"logit_scale": 0.0}"#,
            r#"{"max_embed_len": 0}"#,
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        let long = r#"{"enable_chunked_processing":true,"max_embed_len":600}"#;
        let config = read(long).unwrap();
        assert_eq!(serde_json::to_value(&config).unwrap(), long);
    }

    #[test]
    fn unknown_fields_and_contradictions_are_refused() {
        assert!(read(r#"{"taks": "embed"}"#).unwrap_err().contains("taks"));
        assert!(read("embed").is_err());
        let both = r#"{"pooling_type": "LAST", "seq_pooling_type": "MEAN"}"#;
        assert!(read(both).unwrap_err().contains("contradicts"));
    }
}

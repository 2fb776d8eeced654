//! Settings whose values are a few words.

use std::{fmt, path::PathBuf};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The source of the weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LoadFormat {
    /// From the model's files: safetensors or GGUF.
    #[default]
    Auto,
    /// Generated weights of the shapes in `config.json`, for measuring.
    Dummy,
}

impl<'de> Deserialize<'de> for LoadFormat {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match String::deserialize(from)?.as_str() {
            "auto" => Ok(Self::Auto),
            "dummy" => Ok(Self::Dummy),
            _ => Err(de::Error::custom("expected auto or dummy")),
        }
    }
}

/// The form of the log's lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Text for people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

impl<'de> Deserialize<'de> for LogFormat {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match String::deserialize(from)?.as_str() {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(de::Error::custom("expected text or json")),
        }
    }
}

/// The format that weights are kept and computed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// The checkpoint's own. On the processor it is float32 for float16 checkpoints, which would
    /// lose three bits in bfloat16.
    #[default]
    Auto,
    /// IEEE binary32.
    Float32,
    /// IEEE binary16 weights, float32 activations and sums. Only on GPUs.
    Float16,
    /// bfloat16 weights and activations, float32 sums.
    Bfloat16,
}

impl<'de> Deserialize<'de> for Dtype {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match String::deserialize(from)?.as_str() {
            "auto" => Ok(Self::Auto),
            "float32" | "float" => Ok(Self::Float32),
            "float16" | "half" => Ok(Self::Float16),
            "bfloat16" => Ok(Self::Bfloat16),
            _ => Err(de::Error::custom("expected auto, float32, float16 or bfloat16")),
        }
    }
}

/// How linear layers are quantized when the model is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Quantization {
    /// No quantization.
    #[default]
    None,
    /// Weights in 8 bits, a scale for each output; by default activations in 8 bits as well, a
    /// scale for each token.
    Int8,
    /// Weights in 4 bits, in groups of [`EngineConfig::quantization_group_size`] inputs; by default
    /// activations in 8 bits, a scale for each token and 128 inputs. The output layer has 8 bits.
    ///
    /// [`EngineConfig::quantization_group_size`]: super::EngineConfig::quantization_group_size
    Int4,
}

impl<'de> Deserialize<'de> for Quantization {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match String::deserialize(from)?.as_str() {
            "none" => Ok(Self::None),
            "int8" => Ok(Self::Int8),
            "int4" => Ok(Self::Int4),
            _ => Err(de::Error::custom("expected none, int8 or int4")),
        }
    }
}

/// The format of activations that are multiplied by quantized weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ActivationQuantization {
    /// 8 bits on the processor, where they take less time. Floats on GPUs, beside a checkpoint's
    /// float32, and with [`Dtype::Float32`].
    #[default]
    Auto,
    /// Floats: weights become floats when they are multiplied.
    None,
    /// Integers of 8 bits, a scale for each token and at least 128 inputs. Only on the processor.
    Int8,
}

impl<'de> Deserialize<'de> for ActivationQuantization {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match String::deserialize(from)?.as_str() {
            "auto" => Ok(Self::Auto),
            "none" => Ok(Self::None),
            "int8" => Ok(Self::Int8),
            _ => Err(de::Error::custom("expected auto, none or int8")),
        }
    }
}

/// The device of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Device {
    /// The processor. A GPU is used only if it is named.
    #[default]
    Auto,
    /// The processor.
    Cpu,
    /// An NVIDIA GPU by the driver's number. `None` is the first.
    Cuda(Option<usize>),
    /// A device of wgpu by its number in `playhouse collect-env`. `None` is the first GPU, or
    /// without a GPU the first device that emulates one.
    Wgpu(Option<usize>),
}

impl Device {
    /// The names of the devices of this build.
    pub(crate) const WORDS: &[&str] = match (cfg!(feature = "cuda"), cfg!(feature = "wgpu")) {
        (false, false) => &["auto", "cpu"],
        (false, true) => &["auto", "cpu", "wgpu"],
        (true, false) => &["auto", "cpu", "cuda"],
        (true, true) => &["auto", "cpu", "cuda", "wgpu"],
    };

    /// The values of this build's settings, for messages.
    pub(crate) const EXPECTED: &str = match (cfg!(feature = "cuda"), cfg!(feature = "wgpu")) {
        (false, false) => "auto or cpu",
        (false, true) => "auto, cpu, wgpu or wgpu:N",
        (true, false) => "auto, cpu, cuda or cuda:N",
        (true, true) => "auto, cpu, cuda, cuda:N, wgpu or wgpu:N",
    };
}

impl fmt::Display for Device {
    /// Writes the spelling of settings.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(None) => f.write_str("cuda"),
            Self::Cuda(Some(index)) => write!(f, "cuda:{index}"),
            Self::Wgpu(None) => f.write_str("wgpu"),
            Self::Wgpu(Some(index)) => write!(f, "wgpu:{index}"),
        }
    }
}

impl Serialize for Device {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Device {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let expected = Self::EXPECTED;
        let text = String::deserialize(from)?;
        let (name, index) = match text.split_once(':') {
            Some((name, index)) => (name, Some(index)),
            None => (text.as_str(), None),
        };
        let index = index.map(str::parse).transpose();
        let index = index.map_err(|_| de::Error::custom(format!("expected {expected}")))?;
        match (name, index) {
            ("auto", None) => Ok(Self::Auto),
            ("cpu", None) => Ok(Self::Cpu),
            ("cuda", index) if cfg!(feature = "cuda") => Ok(Self::Cuda(index)),
            ("wgpu", index) if cfg!(feature = "wgpu") => Ok(Self::Wgpu(index)),
            ("cuda" | "wgpu" | "vulkan" | "metal" | "gpu", _) => Err(de::Error::custom(format!(
                "this build has no {name} support; expected {expected}"
            ))),
            _ => Err(de::Error::custom(format!("expected {expected}"))),
        }
    }
}

/// The format of the KV cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KvCacheDtype {
    /// The format of the weights.
    #[default]
    Auto,
    /// IEEE binary32.
    Float32,
    /// IEEE binary16. Only on GPUs.
    Float16,
    /// bfloat16.
    Bfloat16,
    /// int8 with a float32 scale for each token and head. The name is vLLM's.
    Int8PerTokenHead,
}

impl<'de> Deserialize<'de> for KvCacheDtype {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        const EXPECTED: &str =
            "expected auto, float32, float16, bfloat16 or int8_per_token_head (int8)";
        let name = String::deserialize(from)?;
        match name.as_str() {
            "auto" => Ok(Self::Auto),
            "float32" | "float" | "f32" => Ok(Self::Float32),
            "float16" | "half" | "f16" => Ok(Self::Float16),
            "bfloat16" | "bf16" => Ok(Self::Bfloat16),
            "int8_per_token_head" | "int8" => Ok(Self::Int8PerTokenHead),
            _ if ["fp8", "int4", "nvfp4", "turboquant"]
                .iter()
                .any(|format| name.starts_with(format)) =>
            {
                Err(de::Error::custom(format!(
                    "{name} is not supported on this device; {EXPECTED}"
                )))
            }
            _ => Err(de::Error::custom(EXPECTED)),
        }
    }
}

/// The answer to requests while the journal cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum JournalFaultPolicy {
    /// Requests are refused.
    #[default]
    Refuse,
    /// Requests are served. They end with the process.
    Continue,
}

impl<'de> Deserialize<'de> for JournalFaultPolicy {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match String::deserialize(from)?.as_str() {
            "refuse" => Ok(Self::Refuse),
            "continue" => Ok(Self::Continue),
            _ => Err(de::Error::custom("expected refuse or continue")),
        }
    }
}

/// The source of default sampling parameters.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum GenerationConfigSource {
    /// `generation_config.json` in the model's folder, if there is one.
    #[default]
    Auto,
    /// None: the API's own defaults.
    Vllm,
    /// `generation_config.json` in this folder.
    Folder(PathBuf),
}

impl fmt::Display for GenerationConfigSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Vllm => f.write_str("vllm"),
            Self::Folder(path) => path.display().fmt(f),
        }
    }
}

impl Serialize for GenerationConfigSource {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for GenerationConfigSource {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(match String::deserialize(from)?.as_str() {
            "auto" => Self::Auto,
            "vllm" => Self::Vllm,
            folder => Self::Folder(folder.into()),
        })
    }
}

/// Whether clients must show a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CertReqs {
    /// The server asks for none.
    #[default]
    None,
    /// The server asks for one. A given certificate must be valid.
    Optional,
    /// Only clients with a valid certificate are admitted.
    Required,
}

impl<'de> Deserialize<'de> for CertReqs {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "expected none, optional or required (or 0, 1 or 2)")]
        enum Written {
            Word(String),
            /// The numbers of Python's `ssl` module, which vLLM takes.
            Number(u8),
        }
        match Written::deserialize(from)? {
            Written::Word(word) if word == "none" || word == "0" => Ok(Self::None),
            Written::Word(word) if word == "optional" || word == "1" => Ok(Self::Optional),
            Written::Word(word) if word == "required" || word == "2" => Ok(Self::Required),
            Written::Number(0) => Ok(Self::None),
            Written::Number(1) => Ok(Self::Optional),
            Written::Number(2) => Ok(Self::Required),
            _ => Err(de::Error::custom("expected none, optional or required (or 0, 1 or 2)")),
        }
    }
}

/// The permissions of a file, written in octal: `"660"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileMode(pub u32);

impl Serialize for FileMode {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&format_args!("{:o}", self.0))
    }
}

impl<'de> Deserialize<'de> for FileMode {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let mode = u32::from_str_radix(text.trim(), 8).ok().filter(|mode| *mode <= 0o777);
        mode.map(Self)
            .ok_or_else(|| de::Error::custom("expected octal digits, for example \"660\""))
    }
}

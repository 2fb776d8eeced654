//! The layers behind the pooling that a GGUF file has, in place of files of sentence-transformers,
//! and the names of its classifier.

use std::path::Path;

use playhouse_kernels::WeightDtype;
use serde_json::{Map, Value};

use super::{
    Dense, DenseActivation, PairInput, SentenceTransformers, Shortcut, Stage,
    classifier_plan::ClassifierWeights, encoder_plan::LayerPlan,
};
use crate::{
    config::SequencePooling,
    gguf::is_gguf,
    model::{ModelError, WeightLoader},
};

/// A layer without a bias or an activation, whose matrix is in the checkpoint of the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::model) struct StoredDense {
    module: String,
    outputs: usize,
    inputs: usize,
}

impl StoredDense {
    /// Returns the layers of `model`, in their order. `config` has the metadata of the file.
    pub(super) fn of_file(model: &Path, config: &Map<String, Value>) -> Vec<Self> {
        let listed = config.get("dense_modules").and_then(Value::as_array);
        let listed = listed.filter(|_| is_gguf(model));
        let size = |layer: &Value, field: &str| usize::try_from(layer.get(field)?.as_u64()?).ok();
        let read = |layer: &Value| {
            let module = layer.get("module")?.as_str()?.to_owned();
            Some(Self { module, outputs: size(layer, "outputs")?, inputs: size(layer, "inputs")? })
        };
        listed.into_iter().flatten().filter_map(read).collect()
    }

    /// Returns the name of its tensor, and the shape.
    pub(super) fn tensor(&self) -> (String, Vec<usize>) {
        (format!("{}.weight", self.module), vec![self.outputs, self.inputs])
    }

    /// Loads the layer.
    pub(super) fn load(&self, loader: &WeightLoader<'_>) -> Result<Stage, ModelError> {
        let inputs = self.inputs;
        let matrix = loader.matrix(&self.module, [self.outputs, inputs])?;
        let weight = matrix.values(WeightDtype::F32).view().to_f32();
        let (activation, norm) = (DenseActivation::Identity, None);
        let layer = Dense { weight, bias: Vec::new(), inputs, activation, norm };
        Ok(Stage::Dense(layer, Shortcut::None))
    }
}

/// The modules of a classifier, by llama.cpp's names: its first layer, the norm of that, and the
/// last one.
const CLASSIFIER: [&str; 3] = ["cls", "cls.norm", OUTPUT];
/// The module of the rows of a Qwen3 reranker, that of the token yes first.
pub(super) const OUTPUT: &str = "cls.output";

/// Returns the weights of the classifier of an encoder with the names that they have in a file.
pub(super) fn named_in_file(weights: ClassifierWeights) -> ClassifierWeights {
    let (layers, has_bias) = match weights {
        ClassifierWeights::Encoder { layers, has_bias, .. } => (layers, has_bias),
        other => return other,
    };
    let [dense, norm, module] = CLASSIFIER;
    let named = |layer: LayerPlan| match layer {
        LayerPlan::Dense { has_bias, activation, .. } => {
            LayerPlan::Dense { module: dense, has_bias, activation }
        }
        LayerPlan::Norm { .. } => LayerPlan::Norm { module: norm },
    };
    let layers = layers.into_iter().map(named).collect();
    ClassifierWeights::Encoder { layers, module, has_bias }
}

/// Returns how a reranker takes a pair: by the prompt in its file, or by default as one text.
pub(super) fn pair_input(config: &Map<String, Value>) -> PairInput {
    let prompt = config.get("pair_prompt").and_then(Value::as_str);
    prompt.map_or(PairInput::OneText, |prompt| PairInput::Prompt(prompt.to_owned()))
}

/// Returns the modules of `model` before and behind its layers, if it is a file with any. Vectors
/// are normalized, as those of other files are.
pub(super) fn read(model: &Path, config: &Map<String, Value>) -> Option<SentenceTransformers> {
    let text = |field: &str| config.get(field).and_then(Value::as_str);
    let pooling = match text("file_pooling").filter(|_| is_gguf(model)) {
        None if StoredDense::of_file(model, config).is_empty() => return None,
        None => text("emb_pooler").unwrap_or("mean"),
        Some(of_language) => of_language,
    };
    let pooling = match pooling {
        "cls" => SequencePooling::Cls,
        "last" => SequencePooling::Last,
        _ => SequencePooling::Mean,
    };
    let pooling = Some(pooling.into());
    Some(SentenceTransformers { pooling, normalizes: true, ..SentenceTransformers::default() })
}

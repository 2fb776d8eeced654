//! Loads the pooler of a plan.

use std::sync::Arc;

use playhouse_kernels::WeightDtype;

use super::{
    Classifier, ClassifierPlan, Dense, DenseActivation, DenseNorm, PairInput, Pooler, PoolerPlan,
    Shortcut, Stage, VocabularyHead,
    classifier_plan::{ClassifierWeights, REWARD_LAYERS},
    encoder_plan::{LayerPlan, ProjectionPlan},
    gguf_modules,
    plan::refused,
};
use crate::model::{ModelConfig, ModelError, WeightLoader, config::LogitsConfig, layers::MaskedLm};

/// The parts of a pooler whose weights are in the checkpoint of its model.
#[derive(Default)]
struct Heads {
    classifier: Option<Classifier>,
    vocabulary: Option<VocabularyHead>,
    projection: Vec<Stage>,
}

/// Builds the pooler of a model.
///
/// # Errors
/// [`ModelError::Weights`] if the classifier is missing or has another shape, and
/// [`ModelError::Heads`] if a dense layer takes other vectors.
pub(in crate::model) fn load(
    mut plan: PoolerPlan,
    model: &ModelConfig,
    loader: &mut WeightLoader<'_>,
) -> Result<Pooler, ModelError> {
    for (place, layer) in plan.dense.iter().enumerate() {
        plan.files.stages.insert(place, layer.load(loader)?);
    }
    let (hidden_size, encoder) = (model.embedding_width(), plan.encoder);
    let classifier = plan.classifier.clone().map(|classifier| {
        let calibration = classifier.calibration(&plan.config);
        let modules = classifier.weights.modules();
        let classifier = load_classifier(classifier, model, loader)?;
        let classifier = Classifier { calibration, ..classifier };
        if !modules.is_empty() {
            loader.adapter_sites().set_classifier(modules, &classifier);
        }
        Ok::<_, ModelError>(classifier)
    });
    let classifier = classifier.transpose()?;
    let vocabulary = encoder.and_then(|plan| plan.vocabulary).map(|head| {
        let head = Arc::new(MaskedLm::load(loader, head, model)?);
        let pooling = plan.files.weights.unwrap_or_default();
        Ok::<_, ModelError>(VocabularyHead { head, vocab_size: model.vocab_size, pooling })
    });
    let vocabulary = vocabulary.transpose()?;
    if encoder.is_some() {
        add_unused(model, loader);
    }
    let projection = encoder.and_then(|plan| plan.projection);
    let projection = projection.map(|plan| load_projection(plan, hidden_size, loader));
    let layers = projection.transpose()?.into_iter();
    let mut projection: Vec<Stage> = layers.map(plain_stage).collect();
    if let Some(modules) = encoder.and_then(|plan| plan.listwise) {
        projection.extend(ranking_layers(modules, hidden_size, loader)?);
    }
    let heads = Heads { classifier, vocabulary, projection };
    assemble(plan, heads, hidden_size, model.max_model_len)
}

/// Builds the pooler of a model whose vectors have no head in its checkpoint.
///
/// # Errors
/// [`ModelError::Heads`] if a dense layer takes other vectors.
pub(in crate::model) fn of_vectors(
    plan: PoolerPlan,
    hidden_size: usize,
    max_model_len: usize,
) -> Result<Pooler, ModelError> {
    assemble(plan, Heads::default(), hidden_size, max_model_len)
}

fn assemble(
    plan: PoolerPlan,
    heads: Heads,
    hidden_size: usize,
    max_model_len: usize,
) -> Result<Pooler, ModelError> {
    let (tasks, sequence, token) = (plan.tasks(), plan.sequence(), plan.token());
    let (activation, encoder) = (plan.activation(), plan.encoder);
    let Heads { classifier, vocabulary, projection } = heads;
    let PoolerPlan { config, files, matryoshka, skipped_tokens, token_heads, ranking, .. } = plan;
    let fits = |layer: &Dense| layer.inputs == hidden_size && layer.outputs() > 0;
    if token_heads.as_ref().is_some_and(|it| !fits(&it.vectors) || !fits(&it.weights)) {
        let why = "a layer of its files does not take hidden states of the model";
        return Err(refused("architectures", "BgeM3EmbeddingModel", why));
    }
    let stages: Vec<Stage> = projection.into_iter().chain(files.stages).collect();
    let mut width = hidden_size * sequence.count();
    for stage in &stages {
        if stage.inputs().is_some_and(|inputs| inputs != width) {
            let (value, why) = match stage {
                Stage::Norm(_) => {
                    ("LayerNorm", "its dimension is not the size of the vectors before it")
                }
                _ => ("Dense", "its in_features is not the size of the vectors before it"),
            };
            return Err(refused("modules.json", value, why));
        }
        width = stage.outputs(width);
    }
    let width = classifier.as_ref().map_or(width, Classifier::num_classes);
    let returned_token_ids = config.returned_token_ids.unwrap_or_default();
    if returned_token_ids.iter().any(|&id| id as usize >= width) {
        let why = "an id is not below the number of elements in a row";
        return Err(refused("pooler_config", "returned_token_ids", why));
    }
    let is_chunked = config.enable_chunked_processing;
    Ok(Pooler {
        tasks,
        sequence,
        token,
        step_tag_id: config.step_tag_id,
        returned_token_ids,
        hidden_size,
        stages,
        classifier,
        pools_classes: encoder.is_some_and(|plan| plan.pools_classes),
        vocabulary,
        activation,
        matryoshka,
        dimensions: config.dimensions,
        truncate_dim: files.truncate_dim,
        max_embed_len: is_chunked.then(|| config.max_embed_len.unwrap_or(max_model_len)),
        prompts: files.prompts,
        excludes_prompt: files.excludes_prompt,
        skipped_tokens,
        token_heads,
        ranking,
    })
}

/// Loads a projection.
fn load_projection(
    plan: ProjectionPlan,
    hidden_size: usize,
    loader: &mut WeightLoader<'_>,
) -> Result<Dense, ModelError> {
    let ProjectionPlan { module, other, has_bias } = plan;
    let other = other.filter(|module| loader.has(&format!("{module}.weight")));
    let module = other.unwrap_or(module);
    let (weight, bias) = (format!("{module}.weight"), format!("{module}.bias"));
    // The rows of the matrix decide the width of vectors.
    let outputs = loader.num_rows(module).unwrap_or(1);
    let weight = loader.values(&weight, &[outputs, hidden_size])?;
    let bias = match has_bias.unwrap_or_else(|| loader.has(&bias)) {
        true => loader.values(&bias, &[outputs])?,
        false => Vec::new(),
    };
    Ok(plain_layer(weight, bias, hidden_size))
}

fn load_classifier(
    plan: ClassifierPlan,
    model: &ModelConfig,
    loader: &mut WeightLoader<'_>,
) -> Result<Classifier, ModelError> {
    require_plain_logits(&plan, model)?;
    let (count, inputs) = (plan.labels.len(), model.embedding_width());
    let layer = |weight: Vec<f32>, bias: Vec<f32>| plain_layer(weight, bias, inputs);
    let layers = match &plan.weights {
        ClassifierWeights::Encoder { layers, module, has_bias } => {
            let mut layers = head_layers(layers, model, loader)?;
            let weight = matrix(loader, module, [count, inputs])?;
            let bias = match has_bias {
                true => loader.values(&format!("{module}.bias"), &[count])?,
                false => Vec::new(),
            };
            layers.push(layer(weight, bias));
            layers
        }
        ClassifierWeights::Linear(module) => {
            let weight = loader.values(&format!("{module}.weight"), &[count, inputs])?;
            let bias = match plan.optional_bias().filter(|bias| loader.has(bias)) {
                Some(bias) => loader.values(&bias, &[count])?,
                None => Vec::new(),
            };
            vec![layer(weight, bias)]
        }
        ClassifierWeights::TwoLayers => {
            let mut layers = Vec::with_capacity(REWARD_LAYERS.len());
            for (module, outputs) in REWARD_LAYERS.into_iter().zip([inputs, count]) {
                let weight = loader.values(&format!("{module}.weight"), &[outputs, inputs])?;
                let bias = loader.values(&format!("{module}.bias"), &[outputs])?;
                layers.push(layer(weight, bias));
            }
            layers[0].activation = DenseActivation::Relu;
            layers
        }
        ClassifierWeights::Rows(ids) => vec![layer(output_rows(model, loader, ids)?, Vec::new())],
        ClassifierWeights::Difference(ids) => {
            let rows = output_rows(model, loader, ids)?;
            let (no, yes) = rows.split_at(inputs);
            vec![layer(difference(yes, no), Vec::new())]
        }
        ClassifierWeights::StoredDifference => {
            let rows = matrix(loader, gguf_modules::OUTPUT, [2, inputs])?;
            let (yes, no) = rows.split_at(inputs);
            vec![layer(difference(yes, no), Vec::new())]
        }
    };
    Ok(Classifier {
        layers,
        calibration: super::Calibration::default(),
        activation: plan.activation,
        labels: plan.labels,
        pairs: plan.pairs,
    })
}

/// Returns the matrix of a module. That of a GGUF file may be quantized.
fn matrix(
    loader: &mut WeightLoader<'_>,
    module: &str,
    shape: [usize; 2],
) -> Result<Vec<f32>, ModelError> {
    match loader.is_gguf() {
        false => loader.values(&format!("{module}.weight"), &shape),
        true => Ok(loader.matrix(module, shape)?.values(WeightDtype::F32).view().to_f32()),
    }
}

/// Returns the row of the answer yes less that of no.
fn difference(yes: &[f32], no: &[f32]) -> Vec<f32> {
    yes.iter().zip(no).map(|(yes, no)| yes - no).collect()
}

/// Refuses scores by tokens of a model whose logits are more than a product with the output layer.
/// sentence-transformers reads them after all operations, and vLLM reads the product alone.
fn require_plain_logits(plan: &ClassifierPlan, model: &ModelConfig) -> Result<(), ModelError> {
    let plain = LogitsConfig { multiplier: 1.0, divisor: 1.0, soft_cap: None, has_bias: false };
    match plan.pairs == PairInput::Conversation && model.logits != plain {
        false => Ok(()),
        true => {
            let why = "the model scales its logits, caps them or adds a bias, and this module \
                       would need that; a product with the output layer is supported";
            Err(refused("modules.json", "LogitScore", why))
        }
    }
}

/// Tells adapters of an encoder's layer for next sentences, if the checkpoint has one that is not
/// read.
fn add_unused(model: &ModelConfig, loader: &mut WeightLoader<'_>) {
    let module = format!("{}.pooler.dense", model.names.base());
    let is_read = loader.adapter_sites().classifier_layer(&module).is_some();
    if !is_read && loader.num_rows(&module).is_some() {
        loader.adapter_sites().add_unused(module);
    }
}

/// Loads the two layers behind the tokens of a ranking. Their rows decide the width of vectors.
fn ranking_layers(
    modules: [&str; 2],
    hidden_size: usize,
    loader: &mut WeightLoader<'_>,
) -> Result<Vec<Stage>, ModelError> {
    let (mut layers, mut inputs) = (Vec::with_capacity(modules.len()), hidden_size);
    for (module, activation) in
        modules.into_iter().zip([DenseActivation::Relu, DenseActivation::Identity])
    {
        let outputs = loader.num_rows(module).unwrap_or(1);
        let weight = loader.values(&format!("{module}.weight"), &[outputs, inputs])?;
        layers.push(plain_stage(Dense { activation, ..plain_layer(weight, Vec::new(), inputs) }));
        inputs = outputs;
    }
    Ok(layers)
}

fn plain_stage(layer: Dense) -> Stage {
    Stage::Dense(layer, Shortcut::None)
}

/// Returns a layer without an activation.
fn plain_layer(weight: Vec<f32>, bias: Vec<f32>, inputs: usize) -> Dense {
    Dense { weight, bias, inputs, activation: DenseActivation::Identity, norm: None }
}

/// Loads the layers before the classifier of an encoder. A norm belongs to the layer before it.
fn head_layers(
    plans: &[LayerPlan],
    model: &ModelConfig,
    loader: &mut WeightLoader<'_>,
) -> Result<Vec<Dense>, ModelError> {
    let size = model.embedding_width();
    let mut layers: Vec<Dense> = Vec::with_capacity(plans.len());
    let bias = |loader: &mut WeightLoader<'_>, module: &str, has_bias: bool| match has_bias {
        true => loader.values(&format!("{module}.bias"), &[size]),
        false => Ok(Vec::new()),
    };
    for plan in plans {
        match *plan {
            LayerPlan::Dense { module, has_bias, activation } => {
                let weight = matrix(loader, module, [size, size])?;
                let bias = bias(loader, module, has_bias)?;
                layers.push(Dense { activation, ..plain_layer(weight, bias, size) });
            }
            LayerPlan::Norm { module } => {
                let weight = loader.values(&format!("{module}.weight"), &[size])?;
                let bias = bias(loader, module, model.norm.kind.has_bias())?;
                let norm = DenseNorm { weight, bias, eps: model.norm.eps };
                if let Some(layer) = layers.last_mut() {
                    layer.norm = Some(norm);
                }
            }
        }
    }
    Ok(layers)
}

/// Returns the rows of tokens in the output layer, which may be the embedding.
fn output_rows(
    model: &ModelConfig,
    loader: &mut WeightLoader<'_>,
    ids: &[u32],
) -> Result<Vec<f32>, ModelError> {
    let names = &model.names;
    let module = if model.tie_word_embeddings { names.embed_tokens } else { names.lm_head };
    if ids.iter().any(|&id| id as usize >= model.scored_tokens()) {
        let why = "a token's id is not below vocab_size";
        return Err(refused("hf_overrides", "classifier_from_token", why));
    }
    let shape = [model.scored_tokens(), model.embedding_width()];
    let rows = loader.matrix(&names.stored(module), shape)?.with_rows(ids);
    Ok(rows.values(WeightDtype::F32).view().to_f32())
}

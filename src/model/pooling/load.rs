//! Loads the pooler of a plan.

use super::{Classifier, ClassifierPlan, Dense, DenseActivation, Pooler, PoolerPlan};
use crate::{
    config::TokenPooling,
    model::{ModelError, WeightLoader},
};

/// The module of the classifier in the checkpoint.
pub(in crate::model) const SCORE: &str = "score";

/// Builds the pooler of a model whose hidden states have `hidden_size` elements.
///
/// # Errors
/// [`ModelError::Weights`] if the classifier is missing or has another shape, and
/// [`ModelError::Heads`] if a dense layer takes other vectors.
pub(in crate::model) fn load(
    plan: PoolerPlan,
    hidden_size: usize,
    loader: &mut WeightLoader<'_>,
) -> Result<Pooler, ModelError> {
    let (tasks, sequence, activation) = (plan.tasks(), plan.sequence(), plan.activation());
    let PoolerPlan { config, files, classifier, matryoshka, .. } = plan;
    let classifier = classifier.map(|plan| load_classifier(plan, hidden_size, loader));
    let mut width = hidden_size;
    for dense in &files.dense {
        if dense.inputs != width {
            let (setting, value) = ("modules.json", "Dense");
            let why = "its in_features is not the size of the vectors before it";
            return Err(ModelError::Heads { setting, value, why });
        }
        width = dense.outputs();
    }
    Ok(Pooler {
        tasks,
        sequence,
        token: config.tok_pooling_type.unwrap_or(TokenPooling::All),
        step_tag_id: config.step_tag_id,
        returned_token_ids: config.returned_token_ids.unwrap_or_default(),
        hidden_size,
        dense: files.dense,
        classifier: classifier.transpose()?,
        activation,
        matryoshka,
        dimensions: config.dimensions,
        prompts: files.prompts,
    })
}

fn load_classifier(
    plan: ClassifierPlan,
    hidden_size: usize,
    loader: &mut WeightLoader<'_>,
) -> Result<Classifier, ModelError> {
    let ClassifierPlan { labels, activation } = plan;
    let weight = loader.values(&format!("{SCORE}.weight"), &[labels.len(), hidden_size])?;
    let bias = Vec::new();
    let (inputs, identity) = (hidden_size, DenseActivation::Identity);
    let score = Dense { weight, bias, inputs, activation: identity };
    Ok(Classifier { score, activation, labels })
}

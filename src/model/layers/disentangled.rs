//! The terms of scores by contents and positions: HF `DisentangledSelfAttention`
//! (<https://arxiv.org/abs/2006.03654>, <https://arxiv.org/abs/2111.09543>).

use burn::tensor::{Tensor, TensorData};
use playhouse_kernels::{DisentangledAttention, DisentangledShape, layer_norm};

use super::{LayerPlace, Linear, Part};
use crate::model::config::{AttentionConfig, DisentangledConfig, PositionProjection};
use crate::model::weight_loader::{WeightLoader, refused};
use crate::model::{Adapters, ModelError};

/// Loads the attention of the layer at `place` if it has such terms. Its queries, keys and values
/// are `qkv`. The table of positions and its projections never change, so their products are
/// computed here.
pub(super) fn load(
    loader: &mut WeightLoader<'_>,
    place: LayerPlace<'_>,
    attention: &AttentionConfig,
    qkv: &Linear,
) -> Result<Option<DisentangledAttention>, ModelError> {
    let AttentionConfig { num_heads, head_dim, scale, .. } = *attention;
    let Some(config) = attention.disentangled else { return Ok(None) };
    let (width, rows) = (num_heads * head_dim, positions(loader, place, config)?);
    let mut projected = |projection: PositionProjection, part: usize| {
        let y = match projection {
            PositionProjection::OfTokens => {
                qkv.forward(rows.clone(), Adapters::none()).narrow(1, part * width, width)
            }
            PositionProjection::Module { name, has_bias } => {
                let parts = [Part::new(place.module(name), width)];
                let hidden = place.config.hidden_size;
                let linear = Linear::of_media(loader, &parts, hidden, has_bias)?;
                linear.forward(rows.clone(), Adapters::none())
            }
        };
        Ok::<Vec<f32>, ModelError>(y.into_data().iter::<f32>().collect())
    };
    let queries = config.queries.map(|projection| projected(projection, 0)).transpose()?;
    let keys = config.keys.map(|projection| projected(projection, 1)).transpose()?;
    let shape = DisentangledShape {
        num_heads,
        head_dim,
        scale,
        positions: place.config.max_model_len,
        num_buckets: 2 * config.span,
        keys: keys.as_deref(),
        queries: queries.as_deref(),
    };
    let bucket = |distance: i64| bucket(config, distance);
    let attention = DisentangledAttention::new(shape, bucket, loader.device());
    attention.map(Some).map_err(refused(config.table))
}

/// Adds the biases of queries and of values to the projection `qkv`, if keys alone have none.
pub(super) fn with_biases(
    loader: &mut WeightLoader<'_>,
    place: LayerPlace<'_>,
    attention: &AttentionConfig,
    qkv: Linear,
) -> Result<Linear, ModelError> {
    let names = attention.disentangled.and_then(|terms| terms.biases);
    let Some([of_queries, of_values]) = names.map(|names| names.map(|name| place.module(name)))
    else {
        return Ok(qkv);
    };
    let width = attention.q_size();
    let mut biases = loader.values(&of_queries, &[width])?;
    biases.resize(2 * width, 0.0);
    biases.extend(loader.values(&of_values, &[width])?);
    Ok(qkv.with_biases(loader.on_device(&of_queries, biases)?))
}

/// Returns the rows of the table of positions, `[2 * span, hidden_size]`. All layers share it, so
/// it does not count as loaded with each of them.
fn positions(
    loader: &WeightLoader<'_>,
    place: LayerPlace<'_>,
    config: DisentangledConfig,
) -> Result<Tensor<2>, ModelError> {
    let shape = [2 * config.span, place.config.hidden_size];
    let table = loader.shared_values(&format!("{}.weight", config.table), &shape)?;
    let table = Tensor::from_data(TensorData::new(table, shape), loader.device());
    let Some(norm) = config.norm else { return Ok(table) };
    let vector = |part: &str| {
        let name = format!("{norm}.{part}");
        loader.on_device(&name, loader.shared_values(&name, &shape[1..])?)
    };
    let (weight, bias) = (vector("weight")?, vector("bias")?);
    Ok(layer_norm(table, Some(&weight), Some(&bias), place.config.norm.eps))
}

/// Returns the row of a distance `i - j`: HF `make_log_bucket_position`. Half of the buckets of a
/// direction have one distance each, and the others have ranges that grow up to `max_distance`.
fn bucket(config: DisentangledConfig, distance: i64) -> usize {
    let DisentangledConfig { span, max_distance, .. } = config;
    let signed = match config.position_buckets {
        None => distance,
        Some(buckets) => {
            let (exact, of_side) = (buckets / 2, distance.unsigned_abs() as usize);
            if of_side <= exact {
                distance
            } else {
                // HF computes both logarithms in float32.
                let ratio = |distance: usize| (distance as f32 / exact as f32).ln();
                let share = ratio(of_side) / ratio(max_distance - 1);
                let large = (share * (exact as f32 - 1.0)).ceil() as i64 + exact as i64;
                large * distance.signum()
            }
        }
    };
    let span = span as i64;
    (signed + span).clamp(0, 2 * span - 1) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: DisentangledConfig = DisentangledConfig {
        table: "",
        norm: None,
        span: 256,
        position_buckets: Some(256),
        max_distance: 512,
        biases: None,
        keys: None,
        queries: None,
    };

    /// The rows of transformers.
    #[test]
    fn buckets_are_those_of_transformers() {
        let distances = [0, 1, -1, 100, 128, 129, -129, 200, 300, -300, 511, -511, 700];
        let rows = distances.map(|distance| bucket(CONFIG, distance));
        let expected = [256, 257, 255, 356, 384, 385, 127, 425, 463, 49, 511, 1, 511];
        assert_eq!(rows, expected);
        let config =
            DisentangledConfig { span: 8, position_buckets: Some(8), max_distance: 64, ..CONFIG };
        let rows = [0, 3, 4, 5, -5, 9, 100, 700, -129].map(|distance| bucket(config, distance));
        assert_eq!(rows, [8, 11, 12, 13, 3, 13, 15, 15, 0]);
        let config = DisentangledConfig { position_buckets: None, ..config };
        let rows = [0, 5, -5, 7, 9, -9].map(|distance| bucket(config, distance));
        assert_eq!(rows, [8, 13, 3, 15, 15, 0]);
    }
}

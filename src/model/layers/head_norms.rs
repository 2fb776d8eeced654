//! The norms over heads of queries and keys, as checkpoints have them.

use playhouse_kernels::{HeadNorm, QkvHeads};

use super::{LayerPlace, Norm, head_rows};
use crate::model::ModelError;
use crate::model::config::{AttentionConfig, NormConfig};
use crate::model::family::{HeadNormRule, NormKind};
use crate::model::weight_loader::WeightLoader;

/// Loads the layer norms over all heads of queries and of keys.
pub(super) fn norms_across(
    loader: &mut WeightLoader<'_>,
    place: LayerPlace<'_>,
    attention: &AttentionConfig,
) -> Result<Option<[Norm; 2]>, ModelError> {
    let AttentionConfig { num_heads, num_kv_heads, head_dim, head_norm, .. } = *attention;
    let names = &place.names().attention;
    let (Some(HeadNormRule::LayerAcrossHeads), Some(q_norm), Some(k_norm)) =
        (head_norm, names.q_norm, names.k_norm)
    else {
        return Ok(None);
    };
    let kind = NormKind::Layer { has_bias: true };
    let config = NormConfig { kind, ..place.config.norm };
    let mut load = |name: &str, heads: usize| {
        Norm::load(loader, &place.module(name), heads * head_dim, config)
    };
    Ok(Some([load(q_norm, num_heads)?, load(k_norm, num_kv_heads)?]))
}

/// Loads the norms of heads, and returns the heads with them.
pub(super) fn heads(
    loader: &mut WeightLoader<'_>,
    place: LayerPlace<'_>,
    attention: &AttentionConfig,
) -> Result<QkvHeads, ModelError> {
    let AttentionConfig { num_heads, num_kv_heads, head_dim, .. } = *attention;
    let names = &place.names().attention;
    let mut norm = |name: Option<&str>, heads: usize| match (attention.head_norm, name) {
        (Some(HeadNormRule::Unit), _) => Ok(Some(HeadNorm::Unit)),
        (Some(HeadNormRule::LayerAcrossHeads), _) => Ok(None),
        (Some(rule), Some(name)) => {
            let head = HeadNormPlace { module: place.module(name), rule, heads };
            head.load(loader, attention).map(Some)
        }
        _ => Ok(None),
    };
    Ok(QkvHeads {
        num_heads,
        num_kv_heads,
        head_dim,
        q_norm: norm(names.q_norm, num_heads)?,
        k_norm: match attention.kv_from {
            None => norm(names.k_norm, num_kv_heads)?,
            Some(_) => None,
        },
        norms_after_rope: attention.norms_after_rope,
        eps: match place.config.norm.kind {
            // It is an addend to the sum of squares, and that of the kernel to their mean.
            NormKind::Length => place.config.norm.eps / head_dim as f32,
            _ => place.config.norm.eps,
        },
        clip: attention.clip,
    })
}

/// A norm of heads in the checkpoint.
struct HeadNormPlace {
    module: String,
    rule: HeadNormRule,
    heads: usize,
}

impl HeadNormPlace {
    /// Loads the norm. Its weight has the order of the elements of a head.
    fn load(
        self,
        loader: &mut WeightLoader<'_>,
        attention: &AttentionConfig,
    ) -> Result<HeadNorm, ModelError> {
        let Self { module, rule, heads } = self;
        let dim = attention.head_dim;
        let name = format!("{module}.weight");
        let stored = match rule {
            HeadNormRule::Rms | HeadNormRule::RmsPlusOne | HeadNormRule::LayerBiased => {
                loader.values(&name, &[dim])?
            }
            HeadNormRule::RmsAcrossHeads => loader.values(&name, &[heads * dim])?,
            HeadNormRule::Unit | HeadNormRule::LayerAcrossHeads => return Ok(HeadNorm::Unit),
            HeadNormRule::Layer => loader.values(&name, &[heads, dim])?,
            HeadNormRule::LayerByHead => {
                let mut all = Vec::new();
                for head in 0..heads {
                    all.extend(loader.values(&format!("{module}.norms.{head}.weight"), &[dim])?);
                }
                all
            }
        };
        let addend = if rule == HeadNormRule::RmsPlusOne { 1.0 } else { 0.0 };
        let order = head_rows(attention).unwrap_or_else(|| (0..dim as u32).collect());
        let ordered = |stored: &[f32]| {
            let heads = stored.chunks(dim);
            let head = |head: &[f32]| order.iter().map(|i| head[*i as usize] + addend).collect();
            heads.flat_map(|part| -> Vec<f32> { head(part) }).collect()
        };
        let weight = loader.on_device(&name, ordered(&stored))?;
        Ok(match rule {
            HeadNormRule::LayerBiased => {
                let name = format!("{module}.bias");
                let bias = loader.values(&name, &[dim])?;
                HeadNorm::LayerBiased { weight, bias: loader.on_device(&name, ordered(&bias))? }
            }
            HeadNormRule::Rms | HeadNormRule::RmsPlusOne => HeadNorm::Rms(weight),
            HeadNormRule::Unit | HeadNormRule::LayerAcrossHeads => HeadNorm::Unit,
            HeadNormRule::RmsAcrossHeads => HeadNorm::RmsAcrossHeads(weight),
            HeadNormRule::Layer | HeadNormRule::LayerByHead => HeadNorm::Layer(weight),
        })
    }
}

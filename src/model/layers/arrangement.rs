//! The order of a layer's rows in the checkpoint.

use std::sync::Arc;

use crate::model::config::{AttentionConfig, RopeParameters};
use crate::model::family::QkvNames;

/// How a module of the checkpoint holds the rows of a layer's matrix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::model) enum Arrangement {
    /// `[outputs, inputs]`, in the order of the outputs.
    AsStored,
    /// Row `i` of the layer is row `rows[i]` of the module.
    Rows(Arc<[u32]>),
    /// The same for a module of `of` rows, of which the layer has some.
    SomeRows { rows: Arc<[u32]>, of: usize },
    /// `[inputs, outputs]`: HF `Conv1D`.
    Transposed,
    /// Matrix `index` of `[count, outputs, inputs]`.
    Slice { index: usize, count: usize },
    /// Matrix `index` of a tensor without an ending, `[count, inputs, outputs]`. If interleaved,
    /// the outputs with even indices come first in the layer.
    Fused { index: usize, count: usize, is_interleaved: bool },
    /// Matrix `index` of a tensor without an ending, `[count, outputs, inputs]`.
    FusedByOutput { index: usize, count: usize },
    /// Matrix `index` of `count` ones below each other in a tensor without an ending,
    /// `[count * outputs, inputs]`. If transposed, `[count * inputs, outputs]`.
    Below { index: usize, count: usize, is_transposed: bool },
}

/// A module of the checkpoint, and the rows that a layer takes from it.
#[derive(Debug, Clone)]
pub(in crate::model) struct Part {
    pub(in crate::model) module: String,
    pub(in crate::model) outputs: usize,
    pub(in crate::model) arrangement: Arrangement,
}

impl Part {
    /// Returns a module whose rows are stored in the order of the outputs.
    pub(in crate::model) fn new(module: String, outputs: usize) -> Self {
        Self { module, outputs, arrangement: Arrangement::AsStored }
    }

    /// Returns some rows of a module that has `of` rows.
    pub(in crate::model) fn some_rows(
        module: String,
        rows: impl IntoIterator<Item = u32>,
        of: usize,
    ) -> Self {
        let rows: Arc<[u32]> = rows.into_iter().collect();
        Self { module, outputs: rows.len(), arrangement: Arrangement::SomeRows { rows, of } }
    }

    /// Returns the same module with the second half of its rows first.
    pub(in crate::model) fn halves_swapped(self) -> Self {
        let (half, all) = (self.outputs as u32 / 2, self.outputs as u32);
        Self { arrangement: rows((half..all).chain(0..half).collect()), ..self }
    }

    /// Returns matrix `index` of a module of `count` matrices.
    pub(in crate::model) fn of(self, index: usize, count: usize) -> Self {
        Self { arrangement: Arrangement::Slice { index, count }, ..self }
    }

    /// Returns a name that no other part of the model has.
    pub(in crate::model) fn unique_name(&self) -> String {
        match &self.arrangement {
            Arrangement::Slice { index, .. }
            | Arrangement::Fused { index, .. }
            | Arrangement::FusedByOutput { index, .. }
            | Arrangement::Below { index, .. } => format!("{}.{index}", self.module),
            Arrangement::SomeRows { rows, .. } => {
                let first = rows.first().copied().unwrap_or_default();
                format!("{}.from_{first}", self.module)
            }
            _ => self.module.clone(),
        }
    }

    /// Returns a matrix of a parameter as a module of its own, with a name that no other part has.
    pub(in crate::model) fn apart(self) -> Self {
        let arrangement = match self.arrangement {
            Arrangement::Fused { is_interleaved: true, .. } => rows(separated(self.outputs)),
            _ => Arrangement::AsStored,
        };
        Self { module: self.unique_name(), outputs: self.outputs, arrangement }
    }

    /// Returns matrix `index` of a tensor of `count` matrices `[inputs, outputs]`.
    pub(in crate::model) fn fused(self, index: usize, count: usize, is_interleaved: bool) -> Self {
        Self { arrangement: Arrangement::Fused { index, count, is_interleaved }, ..self }
    }

    /// Returns matrix `index` of a tensor of `count` matrices `[outputs, inputs]`.
    pub(in crate::model) fn fused_by_output(self, index: usize, count: usize) -> Self {
        Self { arrangement: Arrangement::FusedByOutput { index, count }, ..self }
    }

    /// Returns matrix `index` of `count` ones that are below each other in a tensor.
    pub(in crate::model) fn below(self, index: usize, count: usize, is_transposed: bool) -> Self {
        Self { arrangement: Arrangement::Below { index, count, is_transposed }, ..self }
    }

    /// Returns the same module, stored as `[inputs, outputs]` if `is_transposed`.
    pub(in crate::model) fn transposed(self, is_transposed: bool) -> Self {
        match is_transposed {
            true => Self { arrangement: Arrangement::Transposed, ..self },
            false => self,
        }
    }
}

/// Returns the modules of queries, keys and values, side by side in this order. `module` returns
/// the full name of a module of the layer.
pub(in crate::model) fn qkv_parts(
    qkv: &QkvNames,
    attention: &AttentionConfig,
    is_transposed: bool,
    module: impl Fn(&str) -> String,
) -> Vec<Part> {
    let AttentionConfig { num_heads, num_kv_heads, head_dim, .. } = *attention;
    let value_dim = attention.value_dim.unwrap_or(head_dim);
    let heads = [num_heads, num_kv_heads, num_kv_heads];
    let total = heads.iter().sum::<usize>() * head_dim;
    match qkv {
        QkvNames::Separate(names) | QkvNames::Gated { qkv: names, .. } => {
            let gate_is_in_queries = attention.has_gate && !matches!(qkv, QkvNames::Gated { .. });
            let part = |(index, name): (usize, &&str)| {
                if index == 0 && gate_is_in_queries {
                    return half_of_heads(module(name), attention, 0);
                }
                if let Some(low_rank) = attention.low_rank.filter(|_| index == 0) {
                    return Part::new(module(name), low_rank.rank).transposed(is_transposed);
                }
                let width = if index < 2 { head_dim } else { value_dim };
                let part = Part::new(module(name), heads[index] * width);
                let head = (index < 2).then(|| head_rows(attention)).flatten();
                let arrangement = head.map(|head| by_head(0..heads[index], head_dim, &head));
                Part { arrangement: arrangement.map_or(Arrangement::AsStored, rows), ..part }
                    .transposed(is_transposed)
            };
            // A layer that reads the keys and values of another has queries alone.
            let count = match (attention.kv_from, attention.values_are_keys) {
                (Some(_), _) => 1,
                (None, true) => 2,
                (None, false) => names.len(),
            };
            names.iter().enumerate().take(count).map(part).collect()
        }
        QkvNames::Stacked(name) => {
            let part = Part::new(module(name), total).transposed(is_transposed);
            let head = head_rows(attention);
            let arrangement = head.map(|head| {
                let turned = by_head(0..num_heads + num_kv_heads, head_dim, &head);
                let kept = num_heads + num_kv_heads..num_heads + 2 * num_kv_heads;
                turned.into_iter().chain(by_head(kept, head_dim, &plain(head_dim))).collect()
            });
            vec![Part { arrangement: arrangement.map_or(part.arrangement, rows), ..part }]
        }
        QkvNames::Grouped(name) => {
            let group = num_heads / num_kv_heads;
            let stored = |kv_head: usize, place: usize| kv_head * (group + 2) + place;
            let queries = (0..num_heads).map(|head| stored(head / group, head % group));
            let keys = (0..num_kv_heads).map(|head| stored(head, group));
            let values = (0..num_kv_heads).map(|head| stored(head, group + 1));
            let head = head_rows(attention).unwrap_or_else(|| plain(head_dim));
            let mut all = by_head(queries.chain(keys), head_dim, &head);
            all.extend(by_head(values, head_dim, &plain(head_dim)));
            vec![Part { arrangement: rows(all), ..Part::new(module(name), total) }]
        }
        QkvNames::KeyValues { queries, key_values } => {
            let part = Part::new(module(queries), num_heads * head_dim);
            let head = head_rows(attention);
            let turned = head.as_ref().map(|head| rows(by_head(0..num_heads, head_dim, head)));
            let queries = Part { arrangement: turned.unwrap_or(Arrangement::AsStored), ..part };
            let stored = |place: usize| (0..num_kv_heads).map(move |head| 2 * head + place);
            let within = head.unwrap_or_else(|| plain(head_dim));
            let mut all = by_head(stored(0), head_dim, &within);
            all.extend(by_head(stored(1), head_dim, &plain(head_dim)));
            let key_values = Part::new(module(key_values), 2 * num_kv_heads * head_dim);
            vec![queries, Part { arrangement: rows(all), ..key_values }]
        }
        QkvNames::Sharded(name) => {
            let rows = rows(sharded(attention));
            vec![Part { arrangement: rows, ..Part::new(module(name), total) }]
        }
    }
}

/// Returns the stored rows of queries, keys and values in four parts, each a quarter of the
/// queries, of the values and of the keys: HF `CodeGenAttention`.
fn sharded(attention: &AttentionConfig) -> Vec<u32> {
    const QUERIES: u32 = 0;
    const VALUES: u32 = 1;
    const KEYS: u32 = 2;
    let AttentionConfig { num_heads, head_dim, .. } = *attention;
    let quarter = (num_heads * head_dim / 4).max(1) as u32;
    let stored =
        |kind: u32, element: u32| (element / quarter * 3 + kind) * quarter + element % quarter;
    let plain = plain(head_dim);
    let turned = head_rows(attention).unwrap_or_else(|| plain.clone());
    let all = |kind, within: &[u32]| -> Vec<u32> {
        by_head(0..num_heads, head_dim, within).into_iter().map(|row| stored(kind, row)).collect()
    };
    [all(QUERIES, &turned), all(KEYS, &turned), all(VALUES, &plain)].concat()
}

/// Returns the module of the gates of an attention whose queries `names` has, if it has gates.
pub(in crate::model) fn gate_part(
    names: &QkvNames,
    attention: &AttentionConfig,
    module: impl Fn(&str) -> String,
) -> Option<Part> {
    match names {
        QkvNames::Separate([queries, ..]) if attention.has_gate => {
            Some(half_of_heads(module(queries), attention, 1))
        }
        QkvNames::Gated { gate, .. } => Some(Part::new(module(gate), attention.gate_size())),
        _ => None,
    }
}

/// Returns the queries of each head, or for a `half` of 1 the gates after them, from a module that
/// has both head by head.
fn half_of_heads(module: String, attention: &AttentionConfig, half: usize) -> Part {
    let AttentionConfig { num_heads, head_dim, .. } = *attention;
    let heads = (0..num_heads).map(|head| 2 * head + half);
    let within = head_rows(attention).filter(|_| half == 0).unwrap_or_else(|| plain(head_dim));
    Part::some_rows(module, by_head(heads, head_dim, &within), 2 * attention.q_size())
}

/// Returns the stored row of each row of a head, if they differ: where a rotary pair is two
/// neighbours. The kernels' pairs are an element of each half of the rotating part. Heads without
/// rotation stay as a file has them, and the rows of a folder follow.
pub(in crate::model) fn head_rows(attention: &AttentionConfig) -> Option<Vec<u32>> {
    if attention.parts_halves {
        let (dim, half) = (attention.head_dim as u32, attention.head_dim as u32 / 2);
        let parted = (0..2 * half).map(|row| 2 * (row % half) + row / half);
        return Some(parted.chain(2 * half..dim).collect());
    }
    let Some(rope) = &attention.rope else {
        let half = attention.head_dim as u32 / 2;
        let joined = (0..2 * half).map(|row| row % 2 * half + row / 2);
        return attention.joins_halves.then(|| joined.collect());
    };
    let mut rows = neighbours_apart(rope)?;
    rows.extend(rope.rotary_dim as u32..attention.head_dim as u32);
    Some(rows)
}

/// Returns the same for rotating rows alone.
pub(super) fn neighbours_apart(rope: &RopeParameters) -> Option<Vec<u32>> {
    let half = rope.rotary_dim as u32 / 2;
    let pairs = (0..2 * half).map(|row| 2 * (row % half) + row / half);
    rope.is_interleaved.then(|| pairs.collect())
}

/// Returns the stored place of each output: those of even places first.
pub(in crate::model) fn separated(outputs: usize) -> Vec<u32> {
    let outputs = outputs as u32;
    (0..outputs).step_by(2).chain((1..outputs).step_by(2)).collect()
}

fn plain(head_dim: usize) -> Vec<u32> {
    (0..head_dim as u32).collect()
}

/// Returns the rows of the stored heads `heads`, each in the order `within`.
fn by_head(heads: impl IntoIterator<Item = usize>, head_dim: usize, within: &[u32]) -> Vec<u32> {
    let start = |head: usize| (head * head_dim) as u32;
    heads.into_iter().flat_map(|head| within.iter().map(move |row| start(head) + row)).collect()
}

fn rows(rows: Vec<u32>) -> Arrangement {
    Arrangement::Rows(rows.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::config::ModelConfig;

    /// Returns an attention of 4 heads over 2, of width 4, with pairs of neighbours if
    /// `is_interleaved`.
    fn attention(is_interleaved: bool) -> AttentionConfig {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/demo-model");
        let config = ModelConfig::from_dir(folder.as_ref(), None).unwrap();
        let attention = config.layers[0].mixer.attention().unwrap().clone();
        let rope = attention.rope.clone().map(|rope| RopeParameters {
            rotary_dim: 4,
            is_interleaved,
            ..rope
        });
        AttentionConfig { num_heads: 4, num_kv_heads: 2, head_dim: 4, rope, ..attention }
    }

    fn rows_of(names: QkvNames, is_interleaved: bool) -> Vec<u32> {
        let parts = qkv_parts(&names, &attention(is_interleaved), false, str::to_owned);
        let Arrangement::Rows(rows) = &parts[0].arrangement else { return Vec::new() };
        rows.to_vec()
    }

    #[test]
    fn groups_come_apart() {
        let rows = rows_of(QkvNames::Grouped("qkv"), false);
        // Two groups of two queries, a key and a value each.
        let heads: Vec<u32> = rows.iter().step_by(4).map(|row| row / 4).collect();
        assert_eq!(heads, [0, 1, 4, 5, 2, 6, 3, 7]);
    }

    #[test]
    fn keys_and_values_of_each_head_come_apart() {
        let names = QkvNames::KeyValues { queries: "q", key_values: "kv" };
        let parts = qkv_parts(&names, &attention(false), false, str::to_owned);
        assert_eq!(parts[0].arrangement, Arrangement::AsStored);
        let Arrangement::Rows(rows) = &parts[1].arrangement else { panic!("keys lie by heads") };
        let heads: Vec<u32> = rows.iter().step_by(4).map(|row| row / 4).collect();
        assert_eq!(heads, [0, 2, 1, 3]);
    }

    /// `LlamaModel.permute` of llama.cpp's converter makes rows 0, 2, 1, 3 of a head of four.
    #[test]
    fn halves_of_whole_heads_come_apart_where_a_part_rotates() {
        let mut attention = attention(false);
        attention.rope.iter_mut().for_each(|rope| rope.rotary_dim = 2);
        attention.parts_halves = true;
        assert_eq!(head_rows(&attention), Some(vec![0, 2, 1, 3]));
        attention.head_dim = 6;
        assert_eq!(head_rows(&attention), Some(vec![0, 2, 4, 1, 3, 5]));
    }

    #[test]
    fn neighbours_become_halves_of_queries_and_keys_alone() {
        let rows = rows_of(QkvNames::Stacked("qkv"), true);
        assert_eq!(rows[..8], [0, 2, 1, 3, 4, 6, 5, 7]);
        assert_eq!(rows[24..], [24, 25, 26, 27, 28, 29, 30, 31]);
        assert!(rows_of(QkvNames::Stacked("qkv"), false).is_empty());
    }
}

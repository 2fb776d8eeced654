//! The table of n-grams, which checkpoints have in parts: HF `Qwen4ExpTextNGramEmbedding`.

use burn::tensor::Tensor;
use playhouse_kernels::{EmbeddingTable, embedding, select_rows};

use crate::model::ModelError;
use crate::model::config::NgramConfig;
use crate::model::layers::embedding_table;
use crate::model::weight_loader::WeightLoader;

/// The embeddings of one layer.
#[derive(Debug)]
pub(super) struct NgramTable {
    parts: Vec<EmbeddingTable>,
    /// The rows of each part but the last, which may have fewer.
    part_rows: u32,
}

/// Returns the module of a part of the table in `module`.
pub(super) fn part(module: &str, index: usize) -> String {
    format!("{module}.ngram_embedding.shard_{index}")
}

impl NgramTable {
    /// Loads `{module}.ngram_embedding.shard_{index}.weight`, `[rows, head_width]`, of each part.
    pub(super) fn load(
        loader: &mut WeightLoader<'_>,
        module: &str,
        config: &NgramConfig,
    ) -> Result<Self, ModelError> {
        let rows = config.parts();
        let load = |(index, rows): (usize, &usize)| {
            embedding_table(loader, &part(module, index), *rows, config.head_width())
        };
        Ok(Self {
            parts: rows.iter().enumerate().map(load).collect::<Result<_, _>>()?,
            part_rows: rows.first().map_or(1, |rows| *rows as u32),
        })
    }

    /// Returns rows of the table, `[rows.len(), head_width]`.
    pub(super) fn of(&self, rows: &[u32]) -> Tensor<2> {
        if let [part] = &self.parts[..] {
            return embedding(part, rows);
        }
        // The places of `rows`, in the order of the parts that have them.
        let part_of = |place: &u32| rows[*place as usize] / self.part_rows;
        let mut places: Vec<u32> = (0..rows.len() as u32).collect();
        places.sort_by_key(part_of);
        let found = places.chunk_by(|a, b| part_of(a) == part_of(b)).map(|places| {
            let part = places.first().map_or(0, part_of);
            let first = part * self.part_rows;
            let rows: Vec<u32> = places.iter().map(|place| rows[*place as usize] - first).collect();
            embedding(&self.parts[part as usize], &rows)
        });
        let found = Tensor::cat(found.collect(), 0);
        let mut back = vec![0; places.len()];
        for (at, place) in places.iter().enumerate() {
            back[*place as usize] = at as u32;
        }
        select_rows(found, &back)
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;
    use playhouse_kernels::{WeightDtype, WeightView};

    use super::*;

    fn table(values: &[f32], lens: &[usize]) -> NgramTable {
        let mut values = values.iter().copied();
        let part = |rows: &usize| {
            let part: Vec<f32> = values.by_ref().take(2 * rows).collect();
            let view = WeightView::F32(&part);
            EmbeddingTable::new(view, *rows, 2, WeightDtype::F32, &Device::flex()).unwrap()
        };
        let parts = lens.iter().map(part).collect();
        NgramTable { parts, part_rows: lens[0] as u32 }
    }

    #[test]
    fn parts_are_one_table() {
        let values: Vec<f32> = (0..16).map(|x| x as f32).collect();
        let rows = [7, 0, 3, 3, 2, 6, 5, 1];
        let of = |lens: &[usize]| {
            let found = table(&values, lens).of(&rows);
            found.into_data().try_to_vec::<f32>().unwrap()
        };
        let whole = of(&[8]);
        assert_eq!(whole[..4], [14.0, 15.0, 0.0, 1.0]);
        assert_eq!(of(&[3, 3, 2]), whole);
        assert_eq!(of(&[7, 1]), whole);
    }
}

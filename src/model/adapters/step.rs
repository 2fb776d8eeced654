//! The adapters of a step's rows, as layers see them.

use std::sync::Arc;

use burn::tensor::Tensor;
use playhouse_kernels::{
    ExpertSegment, LinearWeight, LoraSegment, add_lora, embedding, linear, select_rows, set_rows,
};

use super::{Adapter, ExpertsId, SiteId};

/// The adapters of the rows of one step. Rows of no adapter are the base model's.
#[derive(Debug, Clone, Default)]
pub struct StepAdapters {
    segments: Vec<Segment>,
}

/// The rows of one adapter.
#[derive(Debug, Clone)]
struct Segment {
    adapter: Arc<Adapter>,
    rows: Vec<u32>,
}

impl StepAdapters {
    /// Adds rows of an adapter, in ascending order. Each row may be added once.
    pub fn push(&mut self, adapter: &Arc<Adapter>, rows: impl IntoIterator<Item = u32>) {
        let known = self.segments.iter_mut().find(|known| Arc::ptr_eq(&known.adapter, adapter));
        match known {
            Some(segment) => segment.rows.extend(rows),
            None => {
                let (adapter, rows) = (Arc::clone(adapter), rows.into_iter().collect());
                self.segments.push(Segment { adapter, rows });
            }
        }
    }

    /// Removes all rows.
    pub fn clear(&mut self) {
        self.segments.clear();
    }

    /// Returns whether all rows are the base model's.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }
}

/// The adapters that apply to the rows of a tensor.
#[derive(Debug, Clone, Copy, Default)]
pub struct Adapters<'a>(Option<&'a StepAdapters>);

impl<'a> Adapters<'a> {
    /// Returns no adapters: all rows are the base model's.
    #[must_use]
    pub fn none() -> Self {
        Self(None)
    }

    /// Returns the adapters of a step.
    #[must_use]
    pub fn of(step: &'a StepAdapters) -> Self {
        Self(Some(step).filter(|step| !step.is_empty()))
    }

    fn segments(self) -> &'a [Segment] {
        self.0.map_or(&[], |step| &step.segments)
    }

    /// Returns whether an adapter changes the site's results for some row.
    pub(in crate::model) fn change(self, site: Option<SiteId>) -> bool {
        let at = |site: SiteId| self.segments().iter().any(|each| each.at(site).is_some());
        site.is_some_and(at)
    }

    /// Returns whether an adapter changes the results of one of the sites for some row.
    pub(in crate::model) fn change_any(self, sites: &[SiteId]) -> bool {
        sites.iter().any(|site| self.change(Some(*site)))
    }

    /// Adds the adapters' products at a site to its results `y`. `x` is the site's input.
    pub(in crate::model) fn add(
        self,
        site: Option<SiteId>,
        y: Tensor<2>,
        x: Tensor<2>,
    ) -> Tensor<2> {
        let Some(site) = site else { return y };
        let segments = self.segments().iter().filter_map(|segment| segment.at(site));
        let segments: Vec<LoraSegment<'_>> = segments.collect();
        if segments.is_empty() { y } else { add_lora(y, x, &segments) }
    }

    /// Returns the rows of adapters that change the experts of a layer.
    pub(in crate::model) fn of_experts(self, experts: Option<ExpertsId>) -> Vec<ExpertSegment<'a>> {
        let Some(ExpertsId(index)) = experts else { return Vec::new() };
        let segment = |segment: &'a Segment| {
            let weights = segment.adapter.experts.get(index)?.each_ref().map(Option::as_ref);
            let is_changed = weights.iter().any(Option::is_some);
            is_changed.then(|| ExpertSegment { tokens: &segment.rows, weights })
        };
        self.segments().iter().filter_map(segment).collect()
    }

    /// Adds the adapters' products at the sites of heads to their results `y`. `x` and `y` have a
    /// row for each head of each token.
    pub(in crate::model) fn add_by_head(
        self,
        sites: &[SiteId],
        y: Tensor<2>,
        x: Tensor<2>,
    ) -> Tensor<2> {
        let heads = sites.len() as u32;
        let rows: Vec<(&Segment, usize, Vec<u32>)> = self
            .segments()
            .iter()
            .flat_map(|segment| (0..sites.len()).map(move |head| (segment, head)))
            .map(|(segment, head)| {
                let of_head = |row: &u32| row * heads + head as u32;
                (segment, head, segment.rows.iter().map(of_head).collect())
            })
            .collect();
        let segments = rows.iter().filter_map(|(segment, head, rows)| {
            let weights = segment.at(sites[*head])?.weights;
            Some(LoraSegment { weights, rows })
        });
        let segments: Vec<LoraSegment<'_>> = segments.collect();
        if segments.is_empty() { y } else { add_lora(y, x, &segments) }
    }

    /// Returns the adapters of `rows` of the tensor, for a tensor of these rows.
    pub(in crate::model) fn of_rows(self, rows: &[u32]) -> StepAdapters {
        let mut selected = StepAdapters::default();
        for segment in self.segments() {
            let is_own = |(_, row): &(usize, &u32)| segment.rows.binary_search(row).is_ok();
            let own = rows.iter().enumerate().filter(is_own).map(|(index, _)| index as u32);
            let own: Vec<u32> = own.collect();
            if !own.is_empty() {
                selected.push(&segment.adapter, own);
            }
        }
        selected
    }

    /// Replaces or changes the embeddings of rows whose adapter does so.
    pub(in crate::model) fn embed(self, mut hidden: Tensor<2>, token_ids: &[u32]) -> Tensor<2> {
        for segment in self.segments() {
            let Adapter { embedding: table, embedding_lora, .. } = &*segment.adapter;
            if table.is_none() && embedding_lora.is_none() {
                continue;
            }
            let ids: Vec<u32> = segment.rows.iter().map(|row| token_ids[*row as usize]).collect();
            let mut vectors = match table {
                Some(table) => embedding(table, &ids),
                None => select_rows(hidden.clone(), &segment.rows),
            };
            if let Some(lora) = embedding_lora {
                vectors = lora.add(vectors, &ids);
            }
            hidden = set_rows(hidden, vectors, &segment.rows);
        }
        hidden
    }

    /// Returns whether some row's adapter has its own output layer.
    pub(in crate::model) fn replace_head(self) -> bool {
        self.segments().iter().any(|segment| segment.adapter.lm_head.is_some())
    }

    /// Replaces the logits of rows whose adapter has its own output layer. `hidden` is its input.
    pub(in crate::model) fn head(self, mut logits: Tensor<2>, hidden: &Tensor<2>) -> Tensor<2> {
        for segment in self.segments() {
            if let Some(weight) = &segment.adapter.lm_head {
                let replaced = rows_of(weight, hidden, &segment.rows);
                logits = set_rows(logits, replaced, &segment.rows);
            }
        }
        logits
    }
}

impl Segment {
    fn at(&self, site: SiteId) -> Option<LoraSegment<'_>> {
        let weights = self.adapter.sites.get(site.0)?.as_ref()?;
        Some(LoraSegment { weights, rows: &self.rows })
    }
}

fn rows_of(weight: &LinearWeight, hidden: &Tensor<2>, rows: &[u32]) -> Tensor<2> {
    linear(select_rows(hidden.clone(), rows), weight, None)
}

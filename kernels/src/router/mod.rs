//! The router of a mixture of experts: from logits to the experts of each token, and their weights.
//!
//! Let `l` be the logits of a token, one an expert. Each expert has a score `s`:
//! `softmax(l)` or `1 / (1 + exp(−l))` ([`Scoring`]).
//!
//! 1. Experts are chosen by `s + b`, with a bias `b` that has no other use (DeepSeek V3, GLM-4-MoE,
//!    ERNIE 4.5). Without a bias they are chosen by `l`, which has the same order and no ties by
//!    rounding. With [`Scoring::SigmoidOfChosen`] they are chosen by `l + b` (Kolibri).
//! 2. With [`ExpertGroups`], only experts of the best groups can be chosen. A group is as good as
//!    its best expert (DeepSeek V2), or as the sum of its best two (DeepSeek V3).
//! 3. Of equal experts, and of equal groups, the one of the lower index comes first. NaN is above
//!    every number, as in `torch.topk`, so that it reaches the result.
//! 4. An expert's weight is its score `s`, or `softmax` over the chosen logits alone. A sparse
//!    mixer weighs each chosen expert among the experts near it ([`Scoring::SparseMixer`]).
//!    `renormalize` divides the weights by their sum: softmax by `max(Σ, min_sum)` as ERNIE 4.5
//!    does, the logistic function by `Σ + 1e-20` as DeepSeek V3 does. Then weights are multiplied
//!    by `scale`, and by a factor of each expert where there is one.
//!
//! | Model (HF class) | scoring | renormalize | bias | groups | scale |
//! |---|---|---|---|---|---|
//! | Mixtral, Granite-MoE, gpt-oss | softmax of the chosen | – | – | – | 1 |
//! | Qwen2-MoE, Qwen3-MoE, OLMoE | softmax | `norm_topk_prob` | – | – | 1 |
//! | Hunyuan-MoE | softmax | yes | – | – | 1 |
//! | ERNIE-4.5-MoE | softmax | yes | `moe_statics` | – | 1 |
//! | Gemma 4 | softmax | yes | – | – | 1, and a factor of each expert |
//! | Llama 4 | logistic | no | – | – | 1 |
//! | Phi-3.5-MoE | sparse mixer | – | – | – | 1 |
//! | DeepSeek V2 | softmax | no | – | best expert, or none | `routed_scaling_factor` |
//! | DeepSeek V3, GLM-4-MoE | logistic | `norm_topk_prob` | yes | best two | the same |
//! | Kolibri | logistic of the chosen | `norm_topk_prob` | of logits | – | 1 |
//!
//! The biases of gpt-oss's router are those of its linear layer, and belong to the logits.
//!
//! Logits `[num_tokens, num_experts]` f32. Bytes moved: the logits once. Tolerance: `1e-5` relative
//! for each weight against f64. A GPU has `3e-5`, because its exponentials are less exact. Its
//! choices stay on the device, where the experts find them.

mod choose;
pub(crate) mod cpu;
#[cfg(feature = "gpu")]
pub(crate) mod cube;
#[cfg(test)]
#[cfg(feature = "gpu")]
mod cube_tests;
#[cfg(test)]
mod reference;
mod routing;
mod scores;
#[cfg(test)]
mod tests;

use burn::backend::Dispatch;
use burn::tensor::Tensor;

use crate::hot_ops::HotOps;
use crate::{KernelError, WeightVector};
pub use routing::{Choice, Routing};

const WHAT: &str = "router";

/// The function from logits to weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scoring {
    /// Softmax over all experts.
    Softmax,
    /// The logistic function of each logit.
    Sigmoid,
    /// Softmax over the chosen experts alone. Equals a renormalized [`Scoring::Softmax`].
    SoftmaxOfChosen,
    /// The logistic function of each chosen logit. A bias is added to logits, and not to scores: HF
    /// `Kolibri1TopKRouter`. Without a bias it equals [`Scoring::Sigmoid`].
    SigmoidOfChosen,
    /// Softmax over the experts whose logits are near that of the chosen one. Earlier choices do
    /// not count: HF `sparsemixer` (<https://arxiv.org/abs/2409.12136>).
    ///
    /// Let `l` be the chosen logit. A logit `x` is near if `(l − x) / max(|x|, l)` is at most
    /// `2 · jitter`.
    SparseMixer,
}

/// The quality of a group of experts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupScore {
    /// That of the best expert: DeepSeek V2's `group_limited_greedy`.
    Max,
    /// The sum of the best two: DeepSeek V3's `noaux_tc`.
    TopTwoSum,
}

/// Groups of neighbouring experts, of which a token uses some.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpertGroups {
    /// Groups, a divisor of the number of experts.
    pub num_groups: usize,
    /// Groups whose experts a token may use.
    pub num_chosen: usize,
    /// The quality by which groups are chosen.
    pub by: GroupScore,
}

/// The parameters of a router.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RouterConfig {
    /// Number of experts.
    pub num_experts: usize,
    /// Experts of each token.
    pub top_k: usize,
    /// The function from logits to weights.
    pub scoring: Scoring,
    /// Whether a token's weights are divided by their sum. Without effect on
    /// [`Scoring::SoftmaxOfChosen`] and [`Scoring::SparseMixer`].
    pub renormalize: bool,
    /// The least sum that renormalized weights of a softmax are divided by (`moe_norm_min`). A
    /// softmax without a bias never gets near [`Self::MIN_SUM`].
    pub min_sum: f32,
    /// Half of the largest relative distance of near logits (`router_jitter_noise`). It has an
    /// effect on [`Scoring::SparseMixer`] alone.
    pub jitter: f32,
    /// Groups that limit the choice.
    pub groups: Option<ExpertGroups>,
    /// Factor on all weights (`routed_scaling_factor`).
    pub scale: f32,
}

impl RouterConfig {
    /// The usual `min_sum`: ERNIE 4.5's default.
    pub const MIN_SUM: f32 = 1e-12;
}

/// A router whose parameters fit together.
#[derive(Debug)]
pub struct Router {
    config: RouterConfig,
    correction_bias: Option<WeightVector>,
    expert_scales: Option<WeightVector>,
}

impl Router {
    /// Checks the parameters of a router. `correction_bias` (`e_score_correction_bias`), one number
    /// an expert, is added to scores for the choice alone.
    ///
    /// # Errors
    /// More experts a token than there are, or than the chosen groups have. Groups that do not
    /// divide the experts. A bias of another length.
    pub fn new(
        config: RouterConfig,
        correction_bias: Option<WeightVector>,
    ) -> Result<Self, KernelError> {
        let RouterConfig { num_experts, top_k, groups, .. } = config;
        let require = |ok, field: &str, got: usize, accepted: String| {
            KernelError::require(ok, WHAT, field, got as u64, accepted)
        };
        let fits = num_experts > 0 && u32::try_from(num_experts).is_ok();
        require(fits, "num_experts", num_experts, format!("1 to {}", u32::MAX))?;
        let fits = (1..=num_experts).contains(&top_k);
        require(fits, "top_k", top_k, format!("1 to {num_experts}"))?;
        if let Some(ExpertGroups { num_groups, num_chosen, by }) = groups {
            let divides = num_groups > 0 && num_experts.is_multiple_of(num_groups);
            require(divides, "num_groups", num_groups, format!("a divisor of {num_experts}"))?;
            let size = num_experts / num_groups;
            let least = if by == GroupScore::TopTwoSum { 2 } else { 1 };
            let accepted = format!("at most {}", num_experts / least);
            require(size >= least, "num_groups", num_groups, accepted)?;
            let fits = (top_k.div_ceil(size)..=num_groups).contains(&num_chosen);
            let accepted = format!("{} to {num_groups}", top_k.div_ceil(size));
            require(fits, "num_chosen groups", num_chosen, accepted)?;
        }
        if let Some(bias) = &correction_bias {
            KernelError::require_len(WHAT, "correction_bias", bias.len(), num_experts)?;
        }
        Ok(Self { config, correction_bias, expert_scales: None })
    }

    /// Returns the same router with a factor for the weight of each expert, one number an expert
    /// (Gemma 4).
    ///
    /// # Errors
    /// Factors of another length than the number of experts.
    pub fn with_expert_scales(self, scales: WeightVector) -> Result<Self, KernelError> {
        KernelError::require_len(WHAT, "expert_scales", scales.len(), self.config.num_experts)?;
        Ok(Self { expert_scales: Some(scales), ..self })
    }

    /// Returns the parameters.
    #[must_use]
    pub fn config(&self) -> &RouterConfig {
        &self.config
    }
}

/// Chooses experts for each token of logits `[num_tokens, num_experts]`.
///
/// # Panics
/// If the width of `logits` is not the router's number of experts, or the router's bias is on
/// another device.
#[must_use]
pub fn route(logits: Tensor<2>, router: &Router) -> Routing {
    Dispatch::route(logits.into_dispatch(), router)
}

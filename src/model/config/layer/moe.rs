//! Mixtures of experts.

use playhouse_kernels::RouterConfig;

use super::{ActivationName, FeedForward, LayerConfig, MlpConfig};
use crate::model::config::file::Fields;
use crate::model::config::{ConfigError, ModelConfig};

/// The most experts of a layer, twice as many as any real one. The limit prevents absurd
/// allocations: each expert is compared with the checkpoint by name.
const EXPERTS_MAX: usize = 1_024;

/// A router that chooses experts for each token, and the experts.
///
/// The output is the sum of the chosen experts' outputs, each times its weight, and of the shared
/// expert's.
#[derive(Debug, Clone, PartialEq)]
pub struct MoeConfig {
    /// Experts to choose from.
    pub num_experts: usize,
    /// Experts behind these that return their input.
    pub num_identities: usize,
    /// Experts that a token takes.
    pub top_k: usize,
    /// The inner width of an expert.
    pub intermediate_size: usize,
    /// Whether one inner projection of an expert gates the other.
    pub is_gated: bool,
    /// The width between two projections that all experts share, before them and after them.
    /// `None`: experts map hidden states.
    pub latent_size: Option<usize>,
    /// The activation of experts.
    pub activation: ActivationName,
    /// Whether the projections of the shared expert, and to the latent size, have biases.
    pub bias: bool,
    /// Whether the projections of experts have biases.
    pub has_expert_biases: bool,
    /// The bounds of a gate and the value that it gates. `None`: `activation` alone.
    pub clamp: Option<GateClamp>,
    /// The largest activated gate of experts, and the largest magnitude of the value that it gates.
    pub limit: Option<f32>,
    /// The same of the shared expert.
    pub shared_limit: Option<f32>,
    /// Whether an expert's input is multiplied by the expert's weight, instead of its output.
    pub scale_input: bool,
    /// The scores of experts.
    pub scoring: Scoring,
    /// Whether the router's projection has a bias.
    pub has_router_bias: bool,
    /// Whether the weights of the chosen experts are divided by their sum.
    pub renormalize: bool,
    /// The least sum that weights of [`Scoring::Softmax`] are divided by.
    pub min_sum: f32,
    /// Half of the largest relative distance of logits that [`Scoring::SparseMixer`] takes as near.
    pub jitter: f32,
    /// The shape of the tensor that is added to scores for the choice, `[num_experts]` or with a
    /// leading 1. `None`: there is none.
    pub correction_bias: Option<Vec<usize>>,
    /// The number of groups of experts, and of groups that a token may choose from.
    pub groups: Option<(usize, usize)>,
    /// The number by which a group is chosen.
    pub group_scoring: GroupScoring,
    /// The factor of weights.
    pub scale: f32,
    /// The tensor of the layer that has a factor of each expert's weight, `[num_experts]`.
    pub expert_scales: Option<&'static str>,
    /// The expert of all tokens.
    pub shared: Option<SharedExpert>,
    /// Whether a bias is added to the output of the mixture.
    pub has_output_bias: bool,
    /// The factor of that output, which the shared expert is part of.
    pub output_multiplier: f32,
}

/// The function from a router's logits to scores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scoring {
    /// The softmax over all experts.
    Softmax,
    /// The sigmoid of each expert's logit.
    Sigmoid,
    /// The softmax over the chosen experts.
    SoftmaxOfChosen,
    /// The sigmoid of each chosen expert's logit. A bias is added to logits, and not to scores.
    SigmoidOfChosen,
    /// The softmax over the experts whose logits are near that of the chosen one: HF
    /// `sparsemixer`.
    SparseMixer,
}

/// `gate · σ(alpha · gate) · (up + 1)`, where the gate is at most `limit`, and up is within
/// `±limit`: HF `GptOssExperts`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GateClamp {
    /// The factor of the gate within σ.
    pub alpha: f32,
    /// The largest gate, and the largest magnitude of up.
    pub limit: f32,
}

/// The number by which a group of experts is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupScoring {
    /// The score of its best expert.
    Max,
    /// The sum of the scores of its best two experts.
    TopTwoSum,
}

/// An expert that every token takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedExpert {
    /// Its inner width.
    pub intermediate_size: usize,
    /// Whether its output is multiplied by the sigmoid of a projection of the token.
    pub has_gate: bool,
}

impl MoeConfig {
    /// Returns one expert of the size and activation of the dense MLP of `config`. Families set the
    /// other fields.
    pub(crate) fn of_dense(config: &ModelConfig) -> Self {
        let is_dense = |layer: &&LayerConfig| matches!(layer.feed_forward, FeedForward::Mlp(_));
        config.layers.iter().find(is_dense).map_or_else(Self::one, Self::of_layer)
    }

    /// Returns the same of the dense MLP of a layer.
    pub(crate) fn of_layer(layer: &LayerConfig) -> Self {
        match &layer.feed_forward {
            FeedForward::Mlp(MlpConfig {
                intermediate_size, activation, bias, is_gated, ..
            }) => {
                let (intermediate_size, activation) = (*intermediate_size, *activation);
                let (bias, is_gated) = (*bias, *is_gated);
                Self { intermediate_size, activation, bias, is_gated, ..Self::one() }
            }
            FeedForward::Moe(_) | FeedForward::None => Self::one(),
        }
    }

    /// Returns the same with experts that are scored by sigmoids, and biases of their choice:
    /// DeepSeek V3's router.
    pub(crate) fn of_sigmoids(config: &ModelConfig, num_experts: usize) -> Self {
        Self {
            num_experts,
            scoring: Scoring::Sigmoid,
            correction_bias: Some([num_experts].into()),
            ..Self::of_dense(config)
        }
    }

    /// Returns the inputs and outputs of an expert of hidden states of the width `hidden`.
    pub(crate) fn width(&self, hidden: usize) -> usize {
        self.latent_size.unwrap_or(hidden)
    }

    /// Returns the number of experts that a router chooses from.
    pub(crate) fn num_choices(&self) -> usize {
        self.num_experts + self.num_identities
    }

    /// Returns the smallest expert.
    fn one() -> Self {
        Self {
            num_experts: 1,
            num_identities: 0,
            top_k: 1,
            intermediate_size: 1,
            is_gated: true,
            latent_size: None,
            activation: ActivationName::Silu,
            bias: false,
            has_expert_biases: false,
            clamp: None,
            limit: None,
            shared_limit: None,
            scale_input: false,
            scoring: Scoring::Softmax,
            has_router_bias: false,
            renormalize: false,
            min_sum: RouterConfig::MIN_SUM,
            jitter: 0.0,
            correction_bias: None,
            groups: None,
            group_scoring: GroupScoring::TopTwoSum,
            scale: 1.0,
            expert_scales: None,
            shared: None,
            has_output_bias: false,
            output_multiplier: 1.0,
        }
    }

    /// Reads the groups of DeepSeek V3's router: `n_group` and `topk_group`.
    pub(crate) fn groups(fields: &Fields) -> Result<Option<(usize, usize)>, ConfigError> {
        Self::groups_or(fields, (1, 1))
    }

    /// Reads the same with the defaults `default`.
    pub(crate) fn groups_or(
        fields: &Fields,
        default: (usize, usize),
    ) -> Result<Option<(usize, usize)>, ConfigError> {
        let num_groups = fields.size("n_group")?.unwrap_or(default.0);
        let chosen = fields.size("topk_group")?.unwrap_or(default.1);
        if chosen > num_groups {
            return Err(fields.invalid("topk_group", &format!("at most n_group, {num_groups}")));
        }
        Ok((num_groups > 1).then_some((num_groups, chosen)))
    }

    /// Rejects a choice of more experts than there are, and groups of different sizes.
    pub(crate) fn check(&self, fields: &Fields) -> Result<(), ConfigError> {
        let Self { num_experts, top_k, groups, .. } = *self;
        let num_choices = self.num_choices();
        if num_experts > EXPERTS_MAX {
            let expected = format!("an integer from 1 to {EXPERTS_MAX}");
            return Err(fields.invalid("num_experts", &expected));
        }
        if top_k > num_choices {
            let expected = format!("at most the number of experts, {num_choices}");
            return Err(fields.invalid("num_experts_per_tok", &expected));
        }
        let Some((num_groups, chosen)) = groups else { return Ok(()) };
        let least = match self.group_scoring {
            GroupScoring::Max => num_groups,
            GroupScoring::TopTwoSum => 2 * num_groups,
        };
        if !num_experts.is_multiple_of(num_groups) || num_experts < least {
            let expected = format!("a divisor of the number of experts, {num_experts}");
            return Err(fields.invalid("n_group", &expected));
        }
        if chosen * (num_experts / num_groups) < top_k {
            let expected = format!("enough groups for {top_k} experts");
            return Err(fields.invalid("topk_group", &expected));
        }
        Ok(())
    }
}

impl ModelConfig {
    /// Gives experts to the layers for which `is_sparse` is true.
    pub(crate) fn set_experts(
        &mut self,
        fields: &Fields,
        moe: &MoeConfig,
        is_sparse: impl Fn(usize) -> bool,
    ) -> Result<(), ConfigError> {
        moe.check(fields)?;
        let layers = self.layers.iter_mut().enumerate().filter(|(index, _)| is_sparse(*index));
        layers.for_each(|(_, layer)| layer.feed_forward = FeedForward::Moe(moe.clone()));
        Ok(())
    }
}

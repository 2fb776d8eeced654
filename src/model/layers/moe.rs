//! Mixtures of experts (<https://arxiv.org/abs/2101.03961>): HF `MixtralSparseMoeBlock` and its
//! descendants.

use burn::tensor::Tensor;
use playhouse_kernels::{
    EmbeddingTable, ExpertActivation, ExpertGroups, ExpertWeights, Experts, GroupScore, Router,
    RouterConfig, Routing, Scoring as RouterScoring, WeightDtype, WeightVector, WeightView, add,
    embedding, experts, experts_with_lora, gate_rows, profile::timed, route, scale,
};

use super::arrangement::Part;
use super::{LayerPlace, Linear, Mlp, activation};
use crate::model::adapters::{Axes, ExpertParameters, ExpertsId};
use crate::model::config::{GateClamp, GroupScoring, MlpConfig, MoeConfig, Scoring};
use crate::model::family::{ExpertNames, MoeNames};
use crate::model::weight_loader::{WeightLoader, refused};
use crate::model::{Adapters, ModelError};

/// A router, the experts that it chooses from, and the expert of all tokens.
#[derive(Debug)]
pub(in crate::model) struct Moe {
    gate: Linear,
    router: Router,
    experts: Experts,
    /// Where adapters change the experts, if some are known for them.
    site: Option<ExpertsId>,
    /// The projections around the experts, if they have a width of their own.
    latent: Option<[Linear; 2]>,
    shared: Option<Shared>,
    /// The only row of a table: the bias of the output.
    output_bias: Option<EmbeddingTable>,
    /// The factor of the sum of all experts.
    output_multiplier: f32,
}

/// The expert of all tokens.
#[derive(Debug)]
struct Shared {
    mlp: Mlp,
    gate: Option<Linear>,
}

impl Moe {
    /// Maps `[num_tokens, hidden]` to the same shape.
    pub(in crate::model) fn forward(&self, x: Tensor<2>, adapters: Adapters<'_>) -> Tensor<2> {
        let routing = self.routing(x.clone(), adapters);
        let shared = self.shared(&x, adapters);
        let routed = self.routed(x, &routing, adapters);
        let output = match shared {
            None => routed,
            Some(shared) => add(routed, shared),
        };
        let output = match self.output_multiplier {
            1.0 => output,
            factor => scale(output, factor),
        };
        match &self.output_bias {
            None => output,
            Some(bias) => {
                let rows = vec![0; output.dims()[0]];
                add(output, embedding(bias, &rows))
            }
        }
    }

    /// Returns the experts of each token of `x`, `[num_tokens, hidden]`.
    pub(in crate::model) fn routing(&self, x: Tensor<2>, adapters: Adapters<'_>) -> Routing {
        timed("router", || route(self.gate.forward(x, adapters), &self.router))
    }

    /// Returns the output of the expert of all tokens, if there is one.
    pub(in crate::model) fn shared(
        &self,
        x: &Tensor<2>,
        adapters: Adapters<'_>,
    ) -> Option<Tensor<2>> {
        self.shared.as_ref().map(|shared| shared.forward(x.clone(), adapters))
    }

    /// Returns the sum of the outputs of the chosen experts.
    pub(in crate::model) fn routed(
        &self,
        x: Tensor<2>,
        routing: &Routing,
        adapters: Adapters<'_>,
    ) -> Tensor<2> {
        timed("experts", || match &self.latent {
            None => self.experts(x, routing, adapters),
            Some([to, from]) => {
                let x = to.forward(x, adapters);
                from.forward(self.experts(x, routing, adapters), adapters)
            }
        })
    }

    fn experts(&self, x: Tensor<2>, routing: &Routing, adapters: Adapters<'_>) -> Tensor<2> {
        match &adapters.of_experts(self.site)[..] {
            [] => experts(x, routing, &self.experts),
            segments => experts_with_lora(x, routing, &self.experts, segments),
        }
    }

    /// Returns the bytes of weights that are pages of a file.
    pub(in crate::model) fn mapped_bytes(&self) -> u64 {
        let shared = self.shared.as_ref().map_or(0, |shared| shared.mlp.mapped_bytes());
        let latent: u64 = self.latent.iter().flatten().map(Linear::mapped_bytes).sum();
        self.experts.mapped_bytes() as u64 + latent + shared
    }

    /// Loads the mixture of the layer at `place`.
    pub(in crate::model) fn load(
        loader: &mut WeightLoader<'_>,
        place: LayerPlace<'_>,
        moe: &MoeConfig,
    ) -> Result<Self, ModelError> {
        let names = &place.names().moe;
        let hidden = place.config.hidden_size;
        let module = place.module("experts");
        // Its few outputs decide what all others compute, so it is never quantized.
        let router_part = [Part::new(place.module(names.router), moe.num_choices())];
        let mut gate = Linear::unquantized(loader, &router_part, hidden)?;
        if moe.has_router_bias {
            gate = gate.with_bias(loader, &router_part)?;
        }
        let width = moe.width(hidden);
        let (mut gate_up, mut down, mut sites) = (Vec::new(), Vec::new(), Vec::new());
        let mut known = known_experts(place);
        // Adapters of these experts beside a GGUF file have not been compared with PEFT.
        if place.config.original.is_some()
            && let Some(stacked) =
                known.take_if(|known| known.iter().any(ExpertParameters::are_stacked))
        {
            loader.adapter_sites().close_experts(&stacked);
        }
        for expert in 0..moe.num_experts {
            let [inner, outer] =
                expert_parts(names, moe, hidden, expert, |name| place.module(name));
            if known.is_some() {
                let (inner, site) = Linear::of_expert(loader, &inner, width)?;
                let (outer, of_outer) = Linear::of_expert(loader, &outer, moe.intermediate_size)?;
                sites.push([site, of_outer]);
                gate_up.push(inner);
                down.push(outer);
                continue;
            }
            gate_up.push(Linear::weight(loader, &inner, width)?);
            down.push(Linear::weight(loader, &outer, moe.intermediate_size)?);
        }
        let add = |known| loader.adapter_sites().add_experts(known, sites, moe.num_identities);
        let site = known.map(add);
        let activation = match (moe.clamp, moe.limit) {
            (Some(GateClamp { alpha, limit }), _) => {
                ExpertActivation::ClampedSwiGlu { alpha, limit }
            }
            (None, Some(limit)) => ExpertActivation::LimitedSwiGlu { limit },
            (None, None) => {
                let activation = activation::load(loader, place, moe.activation)?;
                match moe.is_gated {
                    true => ExpertActivation::Gated(activation),
                    false => ExpertActivation::Plain(activation),
                }
            }
        };
        let [gate_up_bias, down_bias] = expert_biases(loader, place, moe)?;
        let weights = ExpertWeights { gate_up, down, gate_up_bias, down_bias };
        let experts = Experts::new(weights, activation, moe.scale_input)
            .and_then(|experts| experts.with_identities(moe.num_identities))
            .map_err(refused(&module))?;
        Ok(Self {
            gate,
            router: router(loader, place, moe)?,
            experts,
            site,
            latent: latent(loader, place, moe)?,
            shared: shared(loader, place, moe)?,
            output_bias: output_bias(loader, place, moe)?,
            output_multiplier: moe.output_multiplier,
        })
    }
}

/// Returns the parameters in which adapters know the experts of the layer at `place`. `None` if
/// none is known for them.
fn known_experts(place: LayerPlace<'_>) -> Option<Vec<ExpertParameters>> {
    let original = place.original();
    let module = |name: &str| original.module(name);
    let together = |modules: [&str; 2], axes| {
        let of_module = |name: &str| ExpertParameters::Together { module: module(name), axes };
        modules.map(of_module).to_vec()
    };
    // The name in transformers 5 of the module that most families have for experts.
    let usual = "mlp.experts";
    match original.names().moe.experts {
        ExpertNames::Each { module, .. } => Some(together([module, usual], Axes::ByOutput)),
        ExpertNames::FusedByOutput { inner, .. } => {
            Some(together([inner.rsplit_once('.')?.0, usual], Axes::ByOutput))
        }
        ExpertNames::Fused { inner, is_interleaved, .. } => {
            let axes = if is_interleaved { Axes::MarkedByInput } else { Axes::ByInput };
            Some(together([inner.rsplit_once('.')?.0, usual], axes))
        }
        // Each product was a module until transformers 5.
        ExpertNames::Stacked { inner: [inner], down_proj } => {
            let apart = ExpertParameters::Apart([*inner, down_proj].map(module));
            let within = format!("{}.experts", inner.rsplit_once('.')?.0);
            Some([vec![apart], together([within.as_str(), usual], Axes::ByOutput)].concat())
        }
        ExpertNames::Rows { inner, down_proj } => {
            let parent = down_proj.rsplit_once('.')?.0;
            let names = inner.iter().copied().chain([down_proj]);
            let names = names.map(|name| Some(name.rsplit_once('.')?.1)).collect::<Option<_>>()?;
            Some(vec![ExpertParameters::Rows { module: module(parent), names }])
        }
        ExpertNames::Stacked { .. } => None,
    }
}

/// Loads the biases of all experts, in the order of the experts. Only experts in one tensor have
/// some.
fn expert_biases(
    loader: &mut WeightLoader<'_>,
    place: LayerPlace<'_>,
    moe: &MoeConfig,
) -> Result<[Option<Vec<WeightVector>>; 2], ModelError> {
    if !moe.has_expert_biases {
        return Ok([None, None]);
    }
    let (names, hidden) = (&place.names().moe, place.config.hidden_size);
    let [inner, down] = expert_parts(names, moe, hidden, 0, |name| place.module(name));
    Ok([Some(loader.expert_biases(&inner)?), Some(loader.expert_biases(&down)?)])
}

impl Shared {
    fn forward(&self, x: Tensor<2>, adapters: Adapters<'_>) -> Tensor<2> {
        match &self.gate {
            None => self.mlp.forward(x, adapters),
            Some(gate) => {
                let factors = gate.forward(x.clone(), adapters);
                gate_rows(self.mlp.forward(x, adapters), factors)
            }
        }
    }
}

/// Loads the bias of the output, `[hidden]`.
fn output_bias(
    loader: &mut WeightLoader<'_>,
    place: LayerPlace<'_>,
    moe: &MoeConfig,
) -> Result<Option<EmbeddingTable>, ModelError> {
    if !moe.has_output_bias {
        return Ok(None);
    }
    let (name, hidden) = (place.module(place.names().moe.output_bias), place.config.hidden_size);
    let values = loader.values(&name, &[hidden])?;
    let (row, dtype) = (WeightView::F32(&values), WeightDtype::F32);
    let table = EmbeddingTable::new(row, 1, hidden, dtype, loader.device());
    table.map(Some).map_err(refused(&name))
}

/// Loads the projections around the experts.
fn latent(
    loader: &mut WeightLoader<'_>,
    place: LayerPlace<'_>,
    moe: &MoeConfig,
) -> Result<Option<[Linear; 2]>, ModelError> {
    let (hidden, names) = (place.config.hidden_size, &place.names().moe);
    let parts = latent_parts(names, moe, hidden, |name| place.module(name));
    let mut load = |(part, inputs)| Linear::load(loader, &[part], inputs, moe.bias);
    match parts.map(|parts| parts.map(&mut load)) {
        None => Ok(None),
        Some([to, from]) => Ok(Some([to?, from?])),
    }
}

/// Returns the projections around the experts, each with its inputs.
pub(in crate::model) fn latent_parts(
    names: &MoeNames,
    moe: &MoeConfig,
    hidden: usize,
    module: impl Fn(&str) -> String,
) -> Option<[(Part, usize); 2]> {
    let width = moe.latent_size?;
    let [to, from] = names.latent.map(module);
    Some([(Part::new(to, width), hidden), (Part::new(from, hidden), width)])
}

fn router(
    loader: &mut WeightLoader<'_>,
    place: LayerPlace<'_>,
    moe: &MoeConfig,
) -> Result<Router, ModelError> {
    let bias = moe.correction_bias.as_ref().map(|shape| {
        let name = place.module(place.names().moe.correction_bias);
        let values = loader.values(&name, shape)?;
        loader.on_device(&name, values)
    });
    let config = RouterConfig {
        num_experts: moe.num_choices(),
        top_k: moe.top_k,
        scoring: match moe.scoring {
            Scoring::Softmax => RouterScoring::Softmax,
            Scoring::Sigmoid => RouterScoring::Sigmoid,
            Scoring::SoftmaxOfChosen => RouterScoring::SoftmaxOfChosen,
            Scoring::SigmoidOfChosen => RouterScoring::SigmoidOfChosen,
            Scoring::SparseMixer => RouterScoring::SparseMixer,
        },
        renormalize: moe.renormalize,
        min_sum: moe.min_sum,
        jitter: moe.jitter,
        groups: moe.groups.map(|(num_groups, num_chosen)| ExpertGroups {
            num_groups,
            num_chosen,
            by: match moe.group_scoring {
                GroupScoring::Max => GroupScore::Max,
                GroupScoring::TopTwoSum => GroupScore::TopTwoSum,
            },
        }),
        scale: moe.scale,
    };
    let router =
        Router::new(config, bias.transpose()?).map_err(refused(&place.module("router")))?;
    match moe.expert_scales {
        None => Ok(router),
        Some(name) => {
            let name = place.module(name);
            let scales = loader.vector(&name, moe.num_experts)?;
            router.with_expert_scales(scales).map_err(refused(&name))
        }
    }
}

fn shared(
    loader: &mut WeightLoader<'_>,
    place: LayerPlace<'_>,
    moe: &MoeConfig,
) -> Result<Option<Shared>, ModelError> {
    let Some(shared) = moe.shared else { return Ok(None) };
    let names = &place.names().moe;
    let mlp = shared_mlp(moe, shared.intermediate_size);
    let mlp = Mlp::load(loader, place, &names.shared, &mlp)?;
    let gate = shared.has_gate.then(|| {
        let part = [Part::new(place.module(names.shared_gate), 1)];
        Linear::unquantized(loader, &part, place.config.hidden_size)
    });
    Ok(Some(Shared { mlp, gate: gate.transpose()? }))
}

/// Returns the expert of all tokens as an MLP.
pub(in crate::model) fn shared_mlp(moe: &MoeConfig, intermediate_size: usize) -> MlpConfig {
    let MoeConfig { activation, bias, is_gated, shared_limit: limit, .. } = *moe;
    MlpConfig {
        intermediate_size,
        is_gated,
        activation,
        bias,
        down_bias: bias,
        sparsity: None,
        inner_norm: None,
        limit,
        gate_multiplier: 1.0,
        output_multiplier: 1.0,
    }
}

/// Returns the modules of one expert: those of its inner projections, and that of its output.
pub(in crate::model) fn expert_parts(
    names: &MoeNames,
    moe: &MoeConfig,
    hidden: usize,
    expert: usize,
    module: impl Fn(&str) -> String,
) -> [Vec<Part>; 2] {
    let total = moe.intermediate_size * if moe.is_gated { 2 } else { 1 };
    let width = moe.width(hidden);
    match names.experts {
        ExpertNames::Each { module: experts, inner, down_proj } => {
            let part = |name: &str, outputs| {
                Part::new(module(&format!("{experts}.{expert}.{name}")), outputs)
            };
            let inner = inner.iter().map(|name| part(name, total / inner.len())).collect();
            [inner, vec![part(down_proj, width)]]
        }
        ExpertNames::Stacked { inner, down_proj } => {
            let part =
                |name: &str, outputs| Part::new(module(name), outputs).of(expert, moe.num_experts);
            let inner = inner.iter().map(|name| part(name, total / inner.len())).collect();
            [inner, vec![part(down_proj, width)]]
        }
        ExpertNames::FusedByOutput { inner, down_proj } => {
            let part = |name, outputs| Part::new(module(name), outputs);
            let of_expert = |part: Part| part.fused_by_output(expert, moe.num_experts);
            [vec![of_expert(part(inner, total))], vec![of_expert(part(down_proj, width))]]
        }
        ExpertNames::Rows { inner, down_proj } => {
            let part = |name: &str, outputs, is_transposed| {
                Part::new(module(name), outputs).below(expert, moe.num_experts, is_transposed)
            };
            let outputs = total / inner.len();
            let inner = inner.iter().map(|name| part(name, outputs, false)).collect();
            [inner, vec![part(down_proj, width, true)]]
        }
        ExpertNames::Fused { inner, down_proj, is_interleaved } => {
            let part = |name, outputs, is_interleaved| {
                Part::new(module(name), outputs).fused(expert, moe.num_experts, is_interleaved)
            };
            let inner = part(inner, total, is_interleaved);
            [vec![inner], vec![part(down_proj, width, false)]]
        }
    }
}

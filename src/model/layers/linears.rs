//! The linear layers of a layer of the model, as lists of modules, without their weights.

use super::arrangement::{Part, gate_part, qkv_parts};
use super::kimi_delta::KimiParts;
use super::moe::{expert_parts, latent_parts, shared_mlp};
use super::{LatentParts, LayerPlace, QueryParts, delta_net, lightning, mlp, short_conv};
use crate::model::config::{
    AttentionConfig, FeedForward, LatentConfig, Mamba2Config, MambaConfig, Mixer, MoeConfig,
    ParallelConfig, RecurrentConfig,
};

/// The modules of an attention over heads.
pub(super) struct AttentionParts {
    pub(super) qkv: Vec<Part>,
    pub(super) gate: Option<Part>,
    pub(super) o: Part,
}

impl AttentionParts {
    /// Returns the modules of the layer at `place`.
    pub(super) fn of(place: LayerPlace<'_>, attention: &AttentionConfig) -> Self {
        let names = place.names();
        let module = |name: &str| place.module(name);
        let o = Part::new(module(names.attention.o_proj), place.config.hidden_size);
        Self {
            qkv: qkv_parts(&names.attention.qkv, attention, names.is_transposed, module),
            gate: gate_part(&names.attention.qkv, attention, module),
            o: o.transposed(names.is_transposed),
        }
    }
}

/// Returns the modules of each linear layer of the layer at `place`. Two descriptions of one model
/// have the same list but for names, and for the order of rows in the checkpoint.
pub(in crate::model) fn linears(place: LayerPlace<'_>) -> Vec<Vec<Part>> {
    let layer = place.layer();
    let mut linears = match &layer.mixer {
        Mixer::Attention(attention) => of_attention(place, attention),
        Mixer::Latent(latent) => of_latent(place, latent),
        Mixer::Mamba(mamba) => of_mamba(place, mamba),
        Mixer::Mamba2(mamba) => of_mamba2(place, mamba),
        Mixer::Parallel(ParallelConfig { attention, mamba, .. }) => {
            [of_attention(place, attention), of_mamba2(place, mamba)].concat()
        }
        Mixer::Recurrent(mixer) => of_recurrent(place, mixer),
        Mixer::None => Vec::new(),
    };
    match &layer.feed_forward {
        FeedForward::Mlp(config) => linears.extend(mlp::parts(place, &place.names().mlp, config)),
        FeedForward::Moe(moe) => linears.extend(of_moe(place, moe)),
        FeedForward::None => {}
    }
    linears
}

fn of_attention(place: LayerPlace<'_>, attention: &AttentionConfig) -> Vec<Vec<Part>> {
    let AttentionParts { qkv, gate, o } = AttentionParts::of(place, attention);
    let low_rank = attention.low_rank;
    let output = low_rank.map(|it| Part::new(place.module(it.output), attention.q_size()));
    let others = [gate, output].into_iter().flatten().chain([o]);
    [qkv].into_iter().chain(others.map(|part| vec![part])).collect()
}

/// The matrices of heads are none of these: they are in one module, or in two.
fn of_latent(place: LayerPlace<'_>, latent: &LatentConfig) -> Vec<Vec<Part>> {
    let LatentParts { queries, kv_a, gate, o, .. } = LatentParts::of(place, latent);
    let mut parts = match queries {
        QueryParts::One(part) => vec![part],
        QueryParts::LowRank { a, b, .. } => vec![a, b],
    };
    parts.extend([kv_a, o].into_iter().chain(gate));
    parts.into_iter().map(|part| vec![part]).collect()
}

fn of_mamba(place: LayerPlace<'_>, mamba: &MambaConfig) -> Vec<Vec<Part>> {
    let MambaConfig { channels, state_size, time_step_rank, .. } = *mamba;
    let widths = [
        ("in_proj", 2 * channels),
        ("x_proj", time_step_rank + 2 * state_size),
        ("dt_proj", channels),
        ("out_proj", place.config.hidden_size),
    ];
    in_mamba(place, &widths)
}

fn of_mamba2(place: LayerPlace<'_>, mamba: &Mamba2Config) -> Vec<Vec<Part>> {
    let widths = [("in_proj", mamba.projected_size()), ("out_proj", place.config.hidden_size)];
    in_mamba(place, &widths)
}

/// Returns the modules of a state-space model, whose outputs are so many.
fn in_mamba(place: LayerPlace<'_>, widths: &[(&str, usize)]) -> Vec<Vec<Part>> {
    let module = |name: &str| place.module(&format!("{}.{name}", place.names().mamba));
    widths.iter().map(|(name, outputs)| vec![Part::new(module(name), *outputs)]).collect()
}

fn of_recurrent(place: LayerPlace<'_>, mixer: &RecurrentConfig) -> Vec<Vec<Part>> {
    let hidden = place.config.hidden_size;
    let out = |name: &str| vec![Part::new(place.module(name), hidden)];
    match mixer {
        RecurrentConfig::DeltaNet(config) => {
            let [projections, gates] = delta_net::parts(config, |name| place.module(name));
            vec![projections, gates, out(config.modules.out())]
        }
        RecurrentConfig::ShortConv(config) => {
            let parts = short_conv::parts(place, config.channels);
            parts.map(|part| vec![part]).into_iter().chain([out(short_conv::OUT)]).collect()
        }
        RecurrentConfig::Lightning(config) => {
            let qkv = lightning::qkv(config, |name| place.module(name));
            let gate = Part::new(place.module(config.names.gate), config.width());
            vec![vec![qkv], vec![gate], out(config.names.out)]
        }
        // No other files have models with this mixer.
        RecurrentConfig::Griffin(_) => Vec::new(),
        RecurrentConfig::Kimi(config) => {
            let KimiParts { qkv, forget, b, gate, out } =
                KimiParts::of(config, hidden, |name| place.module(name));
            let gates = forget.into_iter().chain(gate).map(|(part, _)| vec![part]);
            [qkv, vec![b], vec![out]].into_iter().chain(gates).collect()
        }
    }
}

fn of_moe(place: LayerPlace<'_>, moe: &MoeConfig) -> Vec<Vec<Part>> {
    let (names, hidden) = (&place.names().moe, place.config.hidden_size);
    let module = |name: &str| place.module(name);
    let mut linears = vec![vec![Part::new(module(names.router), moe.num_choices())]];
    linears.extend(
        (0..moe.num_experts).flat_map(|expert| expert_parts(names, moe, hidden, expert, module)),
    );
    let latent = latent_parts(names, moe, hidden, module);
    linears.extend(latent.into_iter().flatten().map(|(part, _)| vec![part]));
    if let Some(shared) = moe.shared {
        let config = shared_mlp(moe, shared.intermediate_size);
        linears.extend(mlp::parts(place, &names.shared, &config));
        linears.extend(shared.has_gate.then(|| vec![Part::new(module(names.shared_gate), 1)]));
    }
    linears
}

//! Nemotron-H whose layers have sizes of their own: `NemotronHPuzzleForCausalLM` of its folders'
//! own code, and of vLLM.
//!
//! `block_configs` lists the kind of each layer, and the fields of Nemotron-H that are different
//! there. They are those of experts, the width of an MLP, and the window of attention.

use serde_json::{Map, Value};

use super::nemotron_h::{self, EXPERTS};
use super::{
    ConfigError, Family, FeedForward, Fields, LayerConfig, LayerRule, ModelConfig, MoeConfig,
};

pub(super) const FAMILY: Family = Family {
    architecture: "NemotronHPuzzleForCausalLM",
    model_type: "nemotron_h_puzzle",
    models: "Nemotron-H Puzzle",
    layers: LayerRule::Own(layers),
    adjust,
    ..nemotron_h::FAMILY
};

const BLOCKS: &str = "block_configs";
const WINDOW: &str = "sliding_window";
const STATE_SIZE: &str = "ssm_state_size";

/// The most layers, as in other families.
const LAYERS_MAX: usize = 4_096;

/// The kinds of layers in the order of Nemotron-H, each with the fields that a block may have.
const KINDS: [(&str, &[&str]); 4] = [
    ("mamba", &[STATE_SIZE]),
    ("attention", &[WINDOW]),
    ("mlp", &["intermediate_size"]),
    (
        "moe",
        &[
            "n_routed_experts",
            "num_experts_per_tok",
            "moe_intermediate_size",
            "moe_shared_expert_intermediate_size",
            "moe_latent_size",
            "routed_scaling_factor",
            "n_group",
            "topk_group",
            "norm_topk_prob",
        ],
    ),
];

/// A layer as the config has it.
struct Block {
    /// The place of its kind in [`KINDS`].
    kind: usize,
    /// The fields of the model with those of the block.
    fields: Fields,
}

fn layers(
    fields: &Fields,
    family: &Family,
    max_position_embeddings: usize,
) -> Result<Vec<LayerConfig>, ConfigError> {
    if fields.value(WINDOW).is_some() {
        return Err(fields.invalid(WINDOW, "null: blocks have their own windows"));
    }
    let blocks = blocks(fields)?;
    let names = blocks.iter().map(|block| Value::from(KINDS[block.kind].0));
    let own = fields.with("layers_block_type", names.collect());
    let own = match state_size(fields, &blocks)? {
        Some(size) => own.with(STATE_SIZE, size.into()),
        None => own,
    };
    let mut layers = nemotron_h::layers(&own, family, max_position_embeddings)?;
    for (layer, block) in layers.iter_mut().zip(&blocks) {
        if let Some(attention) = layer.mixer.attention_mut() {
            attention.sliding_window = block.fields.size(WINDOW)?.map(|window| window as u32);
        }
        if let (FeedForward::Mlp(mlp), Some(width)) =
            (&mut layer.feed_forward, block.fields.size("intermediate_size")?)
        {
            mlp.intermediate_size = width;
        }
    }
    Ok(layers)
}

/// Returns the layers, first layer first.
fn blocks(fields: &Fields) -> Result<Vec<Block>, ConfigError> {
    let Some(list) = fields.value(BLOCKS) else {
        return Err(fields.missing(BLOCKS, "a list of the kinds and sizes of layers"));
    };
    let list = list.as_array().filter(|list| (1..=LAYERS_MAX).contains(&list.len()));
    // Each block has a copy of these.
    let common = fields.without(&[BLOCKS]);
    let blocks = list.and_then(|list| list.iter().map(|block| of_block(&common, block)).collect());
    blocks.ok_or_else(|| {
        let expected = format!(
            "a list of up to {LAYERS_MAX} objects with block_type \"mamba\", \"attention\", \
             \"mlp\" or \"moe\", and no other fields than those of their kind"
        );
        fields.invalid(BLOCKS, &expected)
    })
}

/// Returns a layer. `None` if it has another kind, or a field that its kind does not have.
fn of_block(fields: &Fields, block: &Value) -> Option<Block> {
    let block: &Map<String, Value> = block.as_object()?;
    let name = block.get("block_type")?.as_str()?;
    let kind = KINDS.iter().position(|(kind, _)| *kind == name)?;
    let mut own = fields.clone();
    for (field, value) in block.iter().filter(|(field, _)| *field != "block_type") {
        // Null is absent.
        if value.is_null() {
            continue;
        }
        KINDS[kind].1.contains(&field.as_str()).then_some(())?;
        own = own.with(field, value.clone());
    }
    Some(Block { kind, fields: own.with_aliases(FAMILY.aliases) })
}

/// Returns the size of states in the blocks, if they have one. All must have the same.
fn state_size(fields: &Fields, blocks: &[Block]) -> Result<Option<usize>, ConfigError> {
    let of_states = blocks.iter().filter(|block| KINDS[block.kind].0 == "mamba");
    let sizes = of_states.map(|block| block.fields.size(STATE_SIZE));
    let sizes: Vec<Option<usize>> = sizes.collect::<Result<_, _>>()?;
    match sizes.iter().all(|size| *size == sizes[0]) {
        true => Ok(sizes.first().copied().flatten()),
        false => Err(fields.invalid(BLOCKS, "the same ssm_state_size in all blocks of Mamba")),
    }
}

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    nemotron_h::refuse(fields, config)?;
    let blocks = blocks(fields)?;
    let experts: Result<Vec<Option<MoeConfig>>, ConfigError> =
        blocks.iter().map(|block| of_experts(block, config)).collect();
    let experts = experts?;
    for (layer, moe) in config.layers.iter_mut().zip(experts) {
        if let Some(moe) = moe {
            layer.feed_forward = FeedForward::Moe(moe);
        }
    }
    Ok(())
}

/// Reads the experts of a layer that has some.
fn of_experts(block: &Block, config: &ModelConfig) -> Result<Option<MoeConfig>, ConfigError> {
    if block.kind != EXPERTS {
        return Ok(None);
    }
    let moe = nemotron_h::experts(&block.fields, config)?;
    moe.check(&block.fields)?;
    Ok(Some(moe))
}

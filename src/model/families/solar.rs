//! Solar Pro: `SolarForCausalLM` of its folder's own code, and of vLLM.
//!
//! Llama in which the inputs of some layers are mixed with those of earlier ones: the backbone skip
//! connections `bskcn_1` to `bskcn_4`. A layer of the third list has a part of an earlier layer's
//! input. That layer is the last one of the first list. The other two lists are a pair, too.

use super::{Bias, ConfigError, Family, Fields, ModelConfig, SkipConnection, llama};

pub(super) const FAMILY: Family = Family {
    architecture: "SolarForCausalLM",
    model_type: "solar",
    models: "Solar Pro Preview",
    qkv_bias: Bias::IfSet("attention_bias"),
    o_bias: Bias::IfSet("attention_bias"),
    adjust,
    ..llama::FAMILY
};

/// The fields of the layers that are kept and of those that are mixed, with their defaults.
const PAIRS: [[(&str, &[usize]); 2]; 2] = [
    [("bskcn_1", &[12, 20, 32, 44]), ("bskcn_3", &[16, 24, 36, 48])],
    [("bskcn_2", &[20, 32]), ("bskcn_4", &[28, 40])],
];

/// The parts of the earlier inputs in training and in use, and their defaults.
const WEIGHTS: &str = "bskcn_tv";
const WEIGHT_DEFAULT: f64 = 0.8;

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    // vLLM reads both names.
    if fields.flag("bias")?.unwrap_or(false) {
        config.attentions().for_each(|attention| {
            (attention.qkv_bias, attention.o_bias) = (true, true);
        });
    }
    config.logits.multiplier = fields.positive("logit_scale")?.unwrap_or(1.0) as f32;
    let weight = match fields.numbers(WEIGHTS, 2)? {
        None => WEIGHT_DEFAULT,
        Some(weights) => weights[1],
    };
    if !(0.0..=1.0).contains(&weight) {
        return Err(fields.invalid(WEIGHTS, "two numbers from 0 to 1"));
    }
    let layers = |(field, default): (&str, &[usize])| match fields.has(field) {
        true => fields.indices(field),
        false => Ok(default.to_vec()),
    };
    for [kept, mixed] in PAIRS {
        let sources = layers(kept)?;
        let mut into = layers(mixed)?;
        into.retain(|layer| *layer < config.layers.len());
        for layer in into {
            let source = sources.iter().filter(|source| **source <= layer).max();
            let Some(&from) = source else {
                let expected = format!("layers from the first one of {} on", kept.0);
                return Err(fields.invalid(mixed.0, &expected));
            };
            config.skips.push(SkipConnection { layer, from, weight: weight as f32 });
        }
    }
    Ok(())
}

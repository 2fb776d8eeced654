//! Falcon Mamba: HF `FalconMambaForCausalLM`.
//!
//! Mamba with norms without weights over dt, B and C (<https://arxiv.org/abs/2410.05355>).

use super::{
    ConfigError, Family, Fields, LayerConfig, LayerRule, MambaConfig, MambaNorms, Mixer, mamba,
    mixers_alone,
};

pub(super) const FAMILY: Family = Family {
    architecture: "FalconMambaForCausalLM",
    model_type: "falcon_mamba",
    models: "Falcon Mamba",
    layers: LayerRule::Own(layers),
    ..mamba::FAMILY
};

fn layers(fields: &Fields, _: &Family, _: usize) -> Result<Vec<LayerConfig>, ConfigError> {
    let eps = fields.positive("mixer_rms_eps")?.unwrap_or(1e-6) as f32;
    let mamba = mamba::FIELDS.read(fields)?;
    let mamba = MambaConfig { norms: MambaNorms::Plain { eps }, ..mamba };
    mixers_alone(fields, &Mixer::Mamba(mamba))
}

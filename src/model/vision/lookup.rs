//! Lookups of several towers: the place of a module, and fields that have one form everywhere.

use playhouse_kernels::Activation;

use crate::model::config::{ActivationName, ConfigError, Fields};
use crate::model::layers::plain_activation;
use crate::model::weight_loader::WeightLoader;

/// Returns the module of `modules` that holds the tensor `name`, by default the first.
pub(super) fn stored<'m>(loader: &WeightLoader<'_>, modules: &[&'m str], name: &str) -> &'m str {
    let has = |module: &&&str| loader.has(&format!("{module}.{name}"));
    modules.iter().find(has).or(modules.first()).copied().unwrap_or_default()
}

/// Returns the id of a placeholder's token.
pub(super) fn token(outer: &Fields, field: &str) -> Result<Option<u32>, ConfigError> {
    Ok(outer.count(field)?.and_then(|id| u32::try_from(id).ok()))
}

/// Returns the activation that `field` names, by default `default`.
pub(super) fn activation(
    fields: &Fields,
    field: &str,
    default: Activation,
) -> Result<Activation, ConfigError> {
    let Some(name) = fields.text(field)? else { return Ok(default) };
    let found = ActivationName::from_name(name).and_then(plain_activation);
    found.ok_or_else(|| fields.invalid(field, "an activation of transformers without weights"))
}

//! The names of tensors in an adapter's file: those that PEFT writes, and those of states that were
//! saved past it.

use std::borrow::Cow;

use super::AdapterError;
use super::classifier::Saved;
use super::load::Loading;

/// The prefix of all names that PEFT adds, and the same in a model of several devices.
const PREFIXES: [&str; 2] = ["base_model.model.", "module.base_model.model."];
/// Modules that PyTorch puts around others: those of compiled, sharded and recomputed ones.
const AROUND: [&str; 3] = ["_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module."];

/// The part of an adapter's file that a tensor belongs to.
pub(super) enum Role {
    A,
    B,
    /// A of an embedding.
    EmbeddingA,
    /// B of an embedding.
    EmbeddingB,
    /// The whole weight of a module, or its whole bias: `modules_to_save`.
    Saved(Saved),
}

impl Loading<'_> {
    /// Returns the module of a tensor, and its role there.
    pub(super) fn role(&self, name: &str) -> Result<(String, Role), AdapterError> {
        let own = AROUND.iter().fold(Cow::Borrowed(name), |name, part| {
            if name.contains(part) { Cow::Owned(name.replace(part, "")) } else { name }
        });
        let inner = PREFIXES.iter().find_map(|prefix| own.strip_prefix(prefix));
        let rest = inner.unwrap_or(&own);
        for (marker, role) in [(".lora_A.", Role::A), (".lora_B.", Role::B)] {
            if let Some((module, end)) = rest.rsplit_once(marker)
                && (end == "weight" || end.strip_suffix(".weight").is_some_and(is_component))
            {
                return Ok((module.to_owned(), role));
            }
        }
        if rest.contains("lora_magnitude_vector") {
            return Err(self.refused(name, "DoRA is not computed"));
        }
        // These are parameters and no modules, so their names have no `.weight`.
        let of_embedding =
            [(".lora_embedding_A", Role::EmbeddingA), (".lora_embedding_B", Role::EmbeddingB)];
        for (marker, role) in of_embedding {
            if let Some(module) = without_end(rest, marker) {
                return Ok((module.to_owned(), role));
            }
        }
        let ends = [(".weight", Saved::Weight), (".bias", Saved::Bias)];
        let mut saved = ends.iter().filter(|_| !rest.contains(".lora_"));
        let saved = saved.find_map(|(end, part)| Some((rest.strip_suffix(*end)?, *part)));
        match saved {
            Some((module, part)) => {
                let module = without_end(module, ".modules_to_save").unwrap_or(module);
                Ok((module.to_owned(), Role::Saved(part)))
            }
            None => Err(self.refused(name, "its name is not one of PEFT's LoRA tensors")),
        }
    }
}

/// Returns the name before `marker` and, if there is one, the name of an adapter behind it.
fn without_end<'n>(name: &'n str, marker: &str) -> Option<&'n str> {
    let (module, end) = name.rsplit_once(marker)?;
    (end.is_empty() || end.strip_prefix('.').is_some_and(is_component)).then_some(module)
}

/// Returns whether a text is one component of a name, for example the name of an adapter.
fn is_component(text: &str) -> bool {
    !text.is_empty() && !text.contains('.')
}

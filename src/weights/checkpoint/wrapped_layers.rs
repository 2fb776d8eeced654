//! Linear layers of PEFT, with the matrices of adapters beside their weights, as in the published
//! folder of `Phi-4-multimodal-instruct`. The weights alone are read.
//!
//! | tensor | shape |
//! |---|---|
//! | `{module}.base_layer.weight` | `[outputs, inputs]` |
//! | `{module}.lora_A.{adapter}.weight` | `[rank, inputs]` |
//! | `{module}.lora_B.{adapter}.weight` | `[outputs, rank]` |

use super::Checkpoint;

const BASE: &str = ".base_layer.";
const ADAPTERS: [&str; 2] = [".lora_A.", ".lora_B."];

impl Checkpoint {
    /// Returns the same checkpoint, whose layers may be those of PEFT.
    #[must_use]
    pub fn with_wrapped_layers(mut self, may_be_wrapped: bool) -> Self {
        self.has_wrapped_layers =
            may_be_wrapped && self.file_of.keys().any(|name| name.contains(BASE));
        self
    }

    /// Returns whether the tensor `name` of the files belongs to an adapter of a layer.
    pub(super) fn is_beside_wrapped(&self, name: &str) -> bool {
        self.has_wrapped_layers && ADAPTERS.iter().any(|part| name.contains(part))
    }

    /// Returns the model's name of the tensor `name` of the files, if it is in a layer of PEFT.
    pub(super) fn unwrapped_name(&self, name: &str) -> Option<String> {
        let is_in = self.has_wrapped_layers && name.contains(BASE);
        is_in.then(|| name.replacen(BASE, ".", 1))
    }

    /// Returns the name in the files of a tensor that is in a layer of PEFT.
    pub(super) fn wrapped_name(&self, name: &str) -> Option<String> {
        if !self.has_wrapped_layers {
            return None;
        }
        let (module, part) = name.rsplit_once('.')?;
        let stored = format!("{module}{BASE}{part}");
        self.file_of.contains_key(&stored).then_some(stored)
    }
}

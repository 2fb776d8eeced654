//! Numbers of layers that GGUF keeps in the metadata, where Hugging Face models have tensors.

use crate::gguf::{GgufError, GgufFile};

/// A key, and the tensor of a layer that has its number: the parameters of xIELU.
const NUMBERS: [(&str, &str); 4] = [
    ("xielu.alpha_p", "mlp.act_fn.alpha_p"),
    ("xielu.alpha_n", "mlp.act_fn.alpha_n"),
    ("xielu.beta", "mlp.act_fn.beta"),
    ("xielu.eps", "mlp.act_fn.eps"),
];

/// Returns the names of these tensors in `file`, with their numbers.
pub(in crate::weights) fn numbers(file: &GgufFile) -> Result<Vec<(String, f32)>, GgufError> {
    let mut all = Vec::new();
    for (key, tensor) in NUMBERS {
        let numbers = match file.is_list(key) {
            true => file.numbers(key)?.unwrap_or_default(),
            false => match (file.number(key)?, layers(file)) {
                (Some(number), layers) => vec![number as f32; layers],
                (None, _) => Vec::new(),
            },
        };
        let named = numbers.into_iter().enumerate();
        all.extend(named.map(|(layer, number)| (format!("blk.{layer}.{tensor}"), number)));
    }
    Ok(all)
}

/// Returns the number of layers, by the tensors.
fn layers(file: &GgufFile) -> usize {
    let is_norm = |name: &str| name.ends_with(".attn_norm.weight");
    file.tensors().filter(|(name, _)| is_norm(name)).count()
}

//! The names of a Hugging Face model's tensors in a GGUF file (`TensorNameMap` of the `gguf`
//! package).

/// Modules outside the layers.
const MODULES: [(&str, &str); 3] =
    [("model.embed_tokens", "token_embd"), ("model.norm", "output_norm"), ("lm_head", "output")];

/// Modules of a layer.
const LAYER_MODULES: [(&str, &str); 11] = [
    ("input_layernorm", "attn_norm"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"),
    ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"),
    ("post_attention_layernorm", "ffn_norm"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
];

/// A tensor that is read together with the metadata.
pub(in crate::weights) const ROPE_FREQS: &str = "rope_freqs.weight";

const LAYERS: &str = "model.layers";
const STORED_LAYERS: &str = "blk";

/// Returns the file's name for the tensor that a Hugging Face model calls `name`. A tensor without
/// another name keeps its own.
pub(in crate::weights) fn stored_name(name: &str) -> String {
    translate(name).unwrap_or_else(|| name.to_owned())
}

fn translate(name: &str) -> Option<String> {
    let (module, kind) = name.rsplit_once('.')?;
    if let Some(module) = find(&MODULES, module) {
        return Some(format!("{module}.{kind}"));
    }
    let (layer, module) = in_layer(module, LAYERS)?;
    // Modules that no Hugging Face model has keep the file's names.
    let module = find(&LAYER_MODULES, module).unwrap_or(module);
    Some(format!("{STORED_LAYERS}.{layer}.{module}.{kind}"))
}

/// Returns Hugging Face's name for the tensor `stored` of the file: the reverse of [`stored_name`].
pub(in crate::weights) fn hugging_face_name(stored: &str) -> Option<String> {
    let found = |modules: &[(&'static str, &str)], module: &str| {
        modules.iter().find(|(_, known)| *known == module).map(|&(name, _)| name)
    };
    let (module, kind) = stored.rsplit_once('.')?;
    if let Some(module) = found(&MODULES, module) {
        return Some(format!("{module}.{kind}"));
    }
    let (layer, module) = in_layer(module, STORED_LAYERS)?;
    let module = found(&LAYER_MODULES, module).unwrap_or(module);
    Some(format!("{LAYERS}.{layer}.{module}.{kind}"))
}

/// Returns the number of a layer, and the module in it.
fn in_layer<'m>(module: &'m str, layers: &str) -> Option<(&'m str, &'m str)> {
    module.strip_prefix(layers)?.strip_prefix('.')?.split_once('.')
}

fn find(modules: &[(&str, &'static str)], wanted: &str) -> Option<&'static str> {
    modules.iter().find(|(known, _)| *known == wanted).map(|&(_, stored)| stored)
}

#[cfg(test)]
mod tests {
    use super::{hugging_face_name, stored_name};

    #[test]
    fn names_are_those_of_llama_cpp() {
        for (name, expected) in [
            ("model.embed_tokens.weight", "token_embd.weight"),
            ("model.norm.weight", "output_norm.weight"),
            ("lm_head.weight", "output.weight"),
            ("model.layers.31.self_attn.k_proj.bias", "blk.31.attn_k.bias"),
            ("model.layers.0.mlp.down_proj.weight", "blk.0.ffn_down.weight"),
            ("something.else", "something.else"),
            ("model.layers.0.ffn_gate_exps.weight", "blk.0.ffn_gate_exps.weight"),
        ] {
            assert_eq!(stored_name(name), expected);
            let back = hugging_face_name(expected);
            assert_eq!(back.as_deref().unwrap_or(expected), name);
        }
    }
}

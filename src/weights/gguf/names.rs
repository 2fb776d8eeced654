//! What the tensors of a Hugging Face model are called in a GGUF file (`TensorNameMap` of the
//! `gguf` package).

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

/// The name in the file of the tensor that a Hugging Face model calls `name`; one that has none
/// there keeps its own.
pub(in crate::weights) fn stored_name(name: &str) -> String {
    translate(name).unwrap_or_else(|| name.to_owned())
}

fn translate(name: &str) -> Option<String> {
    let (module, kind) = name.rsplit_once('.')?;
    if let Some(module) = find(&MODULES, module) {
        return Some(format!("{module}.{kind}"));
    }
    let (layer, module) = module.strip_prefix("model.layers.")?.split_once('.')?;
    let module = find(&LAYER_MODULES, module)?;
    Some(format!("blk.{layer}.{module}.{kind}"))
}

fn find(modules: &[(&str, &'static str)], wanted: &str) -> Option<&'static str> {
    modules.iter().find(|(known, _)| *known == wanted).map(|&(_, stored)| stored)
}

#[cfg(test)]
mod tests {
    use super::stored_name;

    #[test]
    fn names_are_those_of_llama_cpp() {
        for (name, expected) in [
            ("model.embed_tokens.weight", "token_embd.weight"),
            ("model.norm.weight", "output_norm.weight"),
            ("lm_head.weight", "output.weight"),
            ("model.layers.31.self_attn.k_proj.bias", "blk.31.attn_k.bias"),
            ("model.layers.0.mlp.down_proj.weight", "blk.0.ffn_down.weight"),
            ("something.else", "something.else"),
        ] {
            assert_eq!(stored_name(name), expected);
        }
    }
}

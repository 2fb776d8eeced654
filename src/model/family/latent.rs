//! Multi-head latent attention in checkpoints.

/// Multi-head latent attention: the defaults of its sizes, and the names of its modules.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LatentRule {
    /// `None`: queries have one projection.
    pub(crate) q_lora_rank: Option<usize>,
    pub(crate) kv_lora_rank: usize,
    pub(crate) qk_nope_head_dim: usize,
    pub(crate) qk_rope_head_dim: usize,
    /// `None`: `hidden_size / num_attention_heads`.
    pub(crate) v_head_dim: Option<usize>,
    /// Whether the field `rope_interleave` chooses the elements of a rotary pair. Otherwise
    /// [`Family::positions`](super::Family::positions) does.
    pub(crate) has_rope_interleave: bool,
    pub(crate) names: LatentNames,
}

/// Names of the modules of latent attention. That of the output projection is in
/// [`AttentionNames`](super::AttentionNames).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LatentNames {
    /// The only projection of queries, where they have one.
    pub(crate) q_proj: &'static str,
    pub(crate) q_a_proj: &'static str,
    pub(crate) q_a_norm: &'static str,
    pub(crate) q_b_proj: &'static str,
    /// The projection to the latent, and to the key that all heads share.
    pub(crate) kv_a_proj: &'static str,
    pub(crate) kv_a_norm: &'static str,
    /// The projection from the latent to the keys and values of all heads.
    pub(crate) kv_b_proj: KvNames,
}

/// The modules of the projection from the latent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KvNames {
    /// One: for each head its keys, then its values.
    One(&'static str),
    /// The keys of all heads, `[num_heads, kv_lora_rank, qk_nope_head_dim]`, and their values,
    /// `[num_heads, v_head_dim, kv_lora_rank]`.
    Halves([&'static str; 2]),
}

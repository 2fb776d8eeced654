//! The models of the families that came last.

models! {
    NEWER:
    olmo_hybrid: "olmo_hybrid",
    olmo_hybrid_rope: "olmo_hybrid-rope",
    axk1: "axk1",
    axk1_listed: "axk1-listed",
    mistral4: "mistral4",
    mistral4_groups: "mistral4-groups",
    kimi_linear: "kimi_linear",
    kimi_linear_listed: "kimi_linear-listed",
    bailing_moe_v3: "bailing_moe_v3",
    bailing_moe_v3_softplus: "bailing_moe_v3-softplus",
    bitnet: "bitnet",
    bitnet_ternary: "bitnet-ternary",
    laguna: "laguna",
    laguna_elements: "laguna-elements",
    minimax_text01: "minimax_text01",
    minimax_text01_m1: "minimax_text01-m1",
    bailing_moe_v2_5: "bailing_moe_v2_5",
    bailing_moe_v2_5_plain: "bailing_moe_v2_5-plain",
    zamba2: "zamba2",
    zamba2_blocks: "zamba2-blocks",
    step3p5: "step3p5",
    step3p5_wide: "step3p5-wide",
    mimo_v2_flash: "mimo_v2_flash",
    mimo_v2_flash_listed: "mimo_v2_flash-listed",
}

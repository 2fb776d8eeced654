//! The processor.

/// Returns the processor's model name.
pub(super) fn model() -> Option<String> {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// Returns the instruction sets that the kernels may use and this processor has.
#[cfg(target_arch = "x86_64")]
pub(super) fn features() -> Vec<&'static str> {
    let seen = [
        ("sse4.2", is_x86_feature_detected!("sse4.2")),
        ("avx", is_x86_feature_detected!("avx")),
        ("avx2", is_x86_feature_detected!("avx2")),
        ("fma", is_x86_feature_detected!("fma")),
        ("f16c", is_x86_feature_detected!("f16c")),
        ("avx512f", is_x86_feature_detected!("avx512f")),
        ("avx512bw", is_x86_feature_detected!("avx512bw")),
        ("avx512vl", is_x86_feature_detected!("avx512vl")),
        ("avx512bf16", is_x86_feature_detected!("avx512bf16")),
        ("avx512vnni", is_x86_feature_detected!("avx512vnni")),
    ];
    seen.into_iter().filter(|(_, has)| *has).map(|(name, _)| name).collect()
}

/// Returns the instruction sets that the kernels may use and this processor has.
#[cfg(target_arch = "aarch64")]
pub(super) fn features() -> Vec<&'static str> {
    use std::arch::is_aarch64_feature_detected;
    let seen = [
        ("neon", is_aarch64_feature_detected!("neon")),
        ("fp16", is_aarch64_feature_detected!("fp16")),
        ("bf16", is_aarch64_feature_detected!("bf16")),
        ("dotprod", is_aarch64_feature_detected!("dotprod")),
        ("i8mm", is_aarch64_feature_detected!("i8mm")),
        ("sve", is_aarch64_feature_detected!("sve")),
    ];
    seen.into_iter().filter(|(_, has)| *has).map(|(name, _)| name).collect()
}

/// Returns nothing, because other processors are not examined.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(super) fn features() -> Vec<&'static str> {
    Vec::new()
}

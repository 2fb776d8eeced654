//! The build of the program.

use std::sync::LazyLock;

/// The version.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The commit of a release build, as `build.rs` found it.
pub(crate) const COMMIT: &str = env!("BUILD_COMMIT");

/// Returns the features of the build.
pub(crate) fn features() -> Vec<&'static str> {
    let all = [
        ("cuda", cfg!(feature = "cuda")),
        ("cuda-nvrtc", cfg!(feature = "cuda-nvrtc")),
        ("demo-model", cfg!(feature = "demo-model")),
        ("hub", cfg!(feature = "hub")),
        ("otlp", cfg!(feature = "otlp")),
        ("vulkan", cfg!(feature = "vulkan")),
        ("wgpu", cfg!(feature = "wgpu")),
    ];
    all.into_iter().filter(|(_, is_on)| *is_on).map(|(name, _)| name).collect()
}

/// Returns the instruction set that kernels on the processor use.
pub(crate) fn instruction_set() -> &'static str {
    playhouse_kernels::cpu_isa()
}

/// Returns the version with the facts about the build that a report of a problem needs.
pub(crate) fn long() -> &'static str {
    static LONG: LazyLock<String> = LazyLock::new(|| {
        let features = features().join(", ");
        let isa = instruction_set();
        format!("{VERSION}\ncommit: {COMMIT}\nfeatures: {features}\ninstruction set: {isa}")
    });
    &LONG
}

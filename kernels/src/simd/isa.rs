//! The choice of the instruction set.

use std::sync::OnceLock;

#[cfg(target_arch = "aarch64")]
use super::neon::Neon;
use super::{Simd, portable::Portable};
#[cfg(target_arch = "x86_64")]
use super::{amx::Amx, avx2::Avx2, avx512::Avx512, avx512_bf16::Avx512Bf16};

/// The variable that overrides the choice, by one of the names of [`Isa::name`].
const OVERRIDE_VARIABLE: &str = "PLAYHOUSE_CPU_ISA";

/// An instruction set that this processor has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Isa(Level);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    /// Tiles for the products that use them, and vectors that widen bfloat16.
    #[cfg(target_arch = "x86_64")]
    Amx(Amx, Avx512),
    #[cfg(target_arch = "x86_64")]
    Avx512Bf16(Avx512Bf16),
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
    #[cfg(target_arch = "x86_64")]
    Avx2Fma(Avx2),
    #[cfg(target_arch = "aarch64")]
    Neon(Neon),
    Portable,
}

/// A computation on any instruction set. Implementations mark `run`, and all functions in its inner
/// loops, `#[inline(always)]`: code is compiled for an instruction set only where it is inlined.
pub(crate) trait Kernel {
    /// The result.
    type Output;
    /// Whether it multiplies bfloat16 in pairs ([`Simd::dot_pair`], [`Simd::dot_bf16`]). Without
    /// pairs, both kinds of AVX-512 are the same, so the kernel is compiled for one of them.
    const HAS_PAIRS: bool = false;
    /// Computes the result.
    fn run<S: Simd>(self, simd: S) -> Self::Output;
}

/// A computation on one instruction set, for example a kernel's part on one thread. As in
/// [`Kernel`], inner loops are inlined.
pub(crate) trait Task<S: Simd> {
    /// The result.
    type Output;
    /// Computes the result.
    fn run(self, simd: S) -> Self::Output;
}

impl<S: Simd, K: Kernel> Task<S> for K {
    type Output = K::Output;

    #[inline(always)]
    fn run(self, simd: S) -> K::Output {
        Kernel::run(self, simd)
    }
}

impl Isa {
    /// Returns all instruction sets that this processor has, the fastest first.
    pub(crate) fn available() -> Vec<Self> {
        let mut levels = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            let vectors = Avx512::detect();
            levels.extend(vectors.and_then(|simd| Some(Level::Amx(Amx::detect()?, simd))));
            let mut both =
                [Avx512Bf16::detect().map(Level::Avx512Bf16), vectors.map(Level::Avx512)];
            if !Avx512Bf16::is_faster() {
                both.reverse();
            }
            levels.extend(both.into_iter().flatten());
            levels.extend(Avx2::detect().map(Level::Avx2Fma));
        }
        #[cfg(target_arch = "aarch64")]
        levels.push(Level::Neon(Neon));
        levels.push(Level::Portable);
        levels.into_iter().map(Self).collect()
    }

    /// Returns the instruction set in use: the fastest, or the one that the environment names if
    /// this processor has it. The first call decides.
    pub(crate) fn active() -> Self {
        static ACTIVE: OnceLock<Isa> = OnceLock::new();
        *ACTIVE.get_or_init(|| {
            let available = Self::available();
            let named = std::env::var(OVERRIDE_VARIABLE).ok();
            let chosen = available.iter().find(|isa| Some(isa.name()) == named.as_deref());
            *chosen.unwrap_or(&available[0])
        })
    }

    /// Returns the name by which the environment chooses it.
    pub(crate) fn name(self) -> &'static str {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Level::Amx(..) => "amx",
            #[cfg(target_arch = "x86_64")]
            Level::Avx512Bf16(_) => "avx512bf16",
            #[cfg(target_arch = "x86_64")]
            Level::Avx512(_) => "avx512",
            #[cfg(target_arch = "x86_64")]
            Level::Avx2Fma(_) => "avx2",
            #[cfg(target_arch = "aarch64")]
            Level::Neon(_) => "neon",
            Level::Portable => "portable",
        }
    }

    /// Returns whether linear layers of bfloat16 weights round the activations to bfloat16, too.
    #[cfg(test)]
    pub(crate) fn rounds_activations(self) -> bool {
        self.name() == "amx" || self.rounds_pairs()
    }

    /// Returns whether [`Simd::pair`] rounds to bfloat16, because dot products of bfloat16 are one
    /// instruction.
    pub(crate) fn rounds_pairs(self) -> bool {
        self.name() == "avx512bf16"
    }

    /// Returns the tiles, where this instruction set has them.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn amx(self) -> Option<Amx> {
        match self.0 {
            Level::Amx(amx, _) => Some(amx),
            _ => None,
        }
    }

    /// Runs `kernel`, compiled for this instruction set.
    pub(crate) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Level::Amx(_, simd) | Level::Avx512(simd) => simd.enter(kernel),
            #[cfg(target_arch = "x86_64")]
            Level::Avx512Bf16(simd) => {
                if const { K::HAS_PAIRS } {
                    simd.enter(kernel)
                } else {
                    simd.without_pairs().enter(kernel)
                }
            }
            #[cfg(target_arch = "x86_64")]
            Level::Avx2Fma(simd) => simd.enter(kernel),
            #[cfg(target_arch = "aarch64")]
            Level::Neon(simd) => simd.enter(kernel),
            Level::Portable => Portable.enter(kernel),
        }
    }
}

/// Returns the instruction set that the CPU kernels use: `amx`, `avx512bf16`, `avx512`, `avx2`,
/// `neon` or `portable`. `PLAYHOUSE_CPU_ISA` may name a lesser one than the processor has.
#[must_use]
pub fn cpu_isa() -> &'static str {
    Isa::active().name()
}

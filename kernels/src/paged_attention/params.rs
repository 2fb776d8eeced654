//! The parameters of a layer's attention.

use burn::tensor::Device;

use super::{AttentionMask, DistanceBiases};
use crate::device::Place;
use crate::{KernelError, TensorCores, WeightVector};

/// The parameters of attention that depend on the model's layer rather than on the batch.
#[derive(Debug)]
pub struct AttentionParams {
    /// Query heads; a multiple of the cache's `num_kv_heads`.
    pub num_heads: usize,
    /// Factor on `q·k`, usually `1 / sqrt(head_dim)`.
    pub scale: f32,
    /// The keys that a query sees.
    pub mask: AttentionMask,
    /// `c` of `c · tanh(s / c)`, applied to scaled scores.
    pub soft_cap: Option<f32>,
    /// `[num_heads]`: the slopes of ALiBi. A score gets `slope · (j - i)` added, after the scale
    /// and the soft cap. Where a model scales the biased score (Falcon), its slopes must be scaled.
    pub alibi_slopes: Option<WeightVector>,
    /// Whether the biases of ALiBi are bfloat16, and scaled with the products: a score gets
    /// `scale · bf16(slope · bf16(j))` added, with slopes that bf16 holds (HF `FalconAttention`).
    /// Only on the CPU: [`AttentionParams::require_place`].
    pub rounds_alibi: bool,
    /// A bias for each distance between query and key, which is added to scaled scores.
    pub distance_biases: Option<DistanceBiases>,
    /// `[num_heads]`: attention sinks. A sink is the score of a key that has no value, and that
    /// every query sees. Neither scale nor soft cap applies to it.
    pub sinks: Option<WeightVector>,
    /// Whether long chunks may use a GPU's tensor cores. Those round to float16, and their sums
    /// depend on how a prompt is cut.
    pub tensor_cores: TensorCores,
    /// Whether [`encoder_attention`](crate::encoder_attention()) may round queries, keys, values
    /// and weights to bfloat16, where the CPU has dot products of bfloat16. GPUs have no such
    /// choice.
    pub rounds_to_bf16: bool,
}

impl AttentionParams {
    /// Returns the parameters of plain causal attention, without tensor cores.
    #[must_use]
    pub const fn new(num_heads: usize, scale: f32) -> Self {
        Self {
            num_heads,
            scale,
            mask: AttentionMask::Full,
            soft_cap: None,
            alibi_slopes: None,
            rounds_alibi: false,
            distance_biases: None,
            sinks: None,
            tensor_cores: TensorCores::Off,
            rounds_to_bf16: false,
        }
    }

    /// Checks that the device has a version of this attention. A loader calls it.
    ///
    /// # Errors
    /// [`KernelError::CpuOnly`] for rounded biases, biases of distances, and slopes of attention to
    /// both sides on any other device.
    pub fn require_place(&self, device: &Device) -> Result<(), KernelError> {
        const WHAT: &str = "attention with rounded biases of ALiBi";
        #[cfg(feature = "gpu")]
        const SLOPES: &str = "attention with slopes of ALiBi on both sides";
        match Place::of(device, WHAT)? {
            #[cfg(feature = "gpu")]
            Place::Cube(device) if self.rounds_alibi => Err(KernelError::cpu_only(WHAT, &device)),
            #[cfg(feature = "gpu")]
            Place::Cube(device) if self.has_slopes_on_both_sides() => {
                Err(KernelError::cpu_only(SLOPES, &device))
            }
            _ => Ok(()),
        }
    }

    #[cfg(feature = "gpu")]
    fn has_slopes_on_both_sides(&self) -> bool {
        self.alibi_slopes.is_some() && !self.mask.is_causal()
    }

    /// # Panics
    /// If the heads disagree with those of the cache or of a vector, or the mask has a width of 0.
    pub(crate) fn check(&self, num_kv_heads: usize) {
        let heads = self.num_heads;
        let is_grouped = heads.is_multiple_of(num_kv_heads);
        assert!(is_grouped, "paged_attention: {heads} heads over {num_kv_heads}");
        for (what, of_heads) in [("alibi_slopes", &self.alibi_slopes), ("sinks", &self.sinks)] {
            let len = of_heads.as_ref().map_or(heads, WeightVector::len);
            assert_eq!(len, heads, "paged_attention: length of {what}");
        }
        if let Some(biases) = &self.distance_biases {
            assert_eq!(biases.num_heads(), heads, "paged_attention: heads of distance_biases");
        }
        assert!(self.mask.shows_own_key(), "paged_attention: {:?} hides every key", self.mask);
    }
}

//! The layers of an image encoder: SigLIP base, for one image of 224 pixels in patches of 16.

use burn::tensor::{Device, Tensor};
use playhouse_kernels::{
    Activation, AttentionMask, AttentionMetadata, AttentionParams, KernelError, LinearWeight,
    QkvHeads, WeightVector, activate, add, add_layer_norm, encoder_attention, linear, qk_norm_rope,
};

use super::measure::{Bench, MeasureError, Rate, Work};

const NUM_LAYERS: usize = 12;
pub(super) const HIDDEN: usize = 768;
const INTERMEDIATE: usize = 3_072;
const NUM_HEADS: usize = 12;
/// Patches of an image.
pub(super) const NUM_PATCHES: usize = 14 * 14;
const EPS: f32 = 1e-6;

/// `[outputs, inputs]` of the products of a layer.
const PRODUCTS: [[usize; 2]; 4] =
    [[3 * HIDDEN, HIDDEN], [HIDDEN, HIDDEN], [INTERMEDIATE, HIDDEN], [HIDDEN, INTERMEDIATE]];

/// Numbers of the largest product.
pub(super) const WEIGHT_LEN_MAX: usize = INTERMEDIATE * HIDDEN;

/// Returns the sizes, as they are shown.
pub(super) fn shape() -> String {
    format!("{NUM_LAYERS} x {HIDDEN} x {INTERMEDIATE}")
}

/// One layer.
struct Layer {
    norms: [[WeightVector; 2]; 2],
    products: [(LinearWeight, WeightVector); 4],
}

impl Layer {
    fn new(
        pack: &impl Fn([usize; 2]) -> Result<LinearWeight, KernelError>,
        device: &Device,
    ) -> Result<Self, KernelError> {
        let vector = |len: usize| {
            WeightVector::new((0..len).map(|i| 1.0 + (i as f32 * 0.37).sin()).collect(), device)
        };
        let norm = || Ok::<_, KernelError>([vector(HIDDEN)?, vector(HIDDEN)?]);
        let product = |shape: [usize; 2]| Ok::<_, KernelError>((pack(shape)?, vector(shape[0])?));
        let [qkv, o, inner, down] = PRODUCTS;
        Ok(Self {
            norms: [norm()?, norm()?],
            products: [product(qkv)?, product(o)?, product(inner)?, product(down)?],
        })
    }

    fn product(&self, index: usize, x: Tensor<2>) -> Tensor<2> {
        let (weight, bias) = &self.products[index];
        linear(x, weight, Some(bias))
    }

    fn norm(
        &self,
        index: usize,
        x: Tensor<2>,
        residual: Option<Tensor<2>>,
    ) -> (Tensor<2>, Tensor<2>) {
        let [weight, bias] = &self.norms[index];
        add_layer_norm(x, residual, Some(weight), Some(bias), EPS)
    }
}

/// Measures all layers for the rows of one image, `x`.
///
/// # Errors
/// Too little memory for the weights, or the device's errors.
pub(super) fn measure(
    bench: &Bench,
    x: &Tensor<2>,
    pack: impl Fn([usize; 2]) -> Result<LinearWeight, KernelError>,
) -> Result<Rate, MeasureError> {
    let layers: Vec<Layer> =
        (0..NUM_LAYERS).map(|_| Layer::new(&pack, &bench.device)).collect::<Result<_, _>>()?;
    let head_dim = HIDDEN / NUM_HEADS;
    let heads = QkvHeads {
        num_heads: NUM_HEADS,
        num_kv_heads: NUM_HEADS,
        head_dim,
        q_norm: None,
        k_norm: None,
        norms_after_rope: false,
        eps: EPS,
        clip: None,
    };
    let params = AttentionParams {
        mask: AttentionMask::Both,
        tensor_cores: bench.tensor_cores,
        ..AttentionParams::new(NUM_HEADS, (head_dim as f32).powf(-0.5))
    };
    let len = NUM_PATCHES as u32;
    let meta = AttentionMetadata {
        query_start_loc: vec![0, len],
        seq_lens: vec![len],
        positions: (0..len).collect(),
        ..AttentionMetadata::default()
    };
    let weights = PRODUCTS.map(|[outputs, inputs]| outputs * inputs).iter().sum::<usize>();
    let attention = 2 * NUM_PATCHES * HIDDEN;
    let flops = 2.0 * (NUM_LAYERS * NUM_PATCHES * (weights + attention)) as f64;
    let packed = layers.iter().flat_map(|layer| &layer.products);
    let bytes = packed.map(|(weight, _)| weight.size_bytes()).sum::<usize>() as f64;
    Ok(bench.measure(Work { bytes, flops }, || {
        let (mut hidden, mut residual) = (x.clone(), None);
        for layer in &layers {
            let (normed, stream) = layer.norm(0, hidden, residual);
            let qkv = layer.product(0, normed);
            let (q, k, v) = qk_norm_rope(qkv, &heads, &meta.positions, None);
            let attended = encoder_attention(q, k, v, NUM_HEADS, &meta, &params);
            let (normed, stream) = layer.norm(1, layer.product(1, attended), Some(stream));
            let inner = activate(layer.product(2, normed), Activation::GeluTanh);
            (hidden, residual) = (layer.product(3, inner), Some(stream));
        }
        residual.map(|residual| add(hidden, residual))
    })?)
}

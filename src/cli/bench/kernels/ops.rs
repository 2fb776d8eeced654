//! The operations of a step, with operands like those of a model, and their work.
//!
//! Weights exist in so many copies that they exceed any cache, as a model's layers do. The last
//! results of a step are still in a cache, so activations do not count as bytes.

use std::hint::black_box;

use burn::tensor::{Device, ExecutionError, Tensor, TensorData};
use playhouse_kernels::{
    ActivationDtype, AttentionMetadata, AttentionParams, EmbeddingTable, Experts, HeadNorm,
    KernelError, KvCache, KvCacheShape, LinearWeight, QkvHeads, QuantizationScheme, RotaryTable,
    WeightDtype, WeightVector, WeightView, add_rms_norm, embedding, linear, paged_attention,
    qk_norm_rope, reshape_and_cache, swiglu,
};

use super::{
    experts, image_encoder, lora,
    measure::{Bench, MeasureError, Rate, Work},
    sampling,
    shapes::Shapes,
};

/// Least bytes of the weights that are read in turn.
const WEIGHT_BYTES_MIN: usize = 256 << 20;
/// Tokens of a KV block.
const BLOCK_SIZE: usize = 16;

/// The operations to measure.
pub(super) struct Workload<'a> {
    pub(super) shapes: Shapes,
    pub(super) dtype: WeightDtype,
    /// The scheme of linear layers. `None` keeps them as `dtype`.
    pub(super) quantization: Option<QuantizationScheme>,
    /// The format of activations at quantized weights.
    pub(super) activations: ActivationDtype,
    pub(super) num_tokens: &'a [usize],
    /// Tokens of each sequence in the cache.
    pub(super) context: usize,
    /// Whether the experts of a mixture and an image encoder are among the operations.
    pub(super) has_others: bool,
}

/// One operation of one shape.
pub(super) struct Op {
    pub(super) name: &'static str,
    pub(super) shape: String,
    pub(super) num_tokens: usize,
    shapes: Shapes,
    dtype: WeightDtype,
    quantization: Option<QuantizationScheme>,
    activations: ActivationDtype,
    kind: Kind,
}

/// The weights of the last layer, kept because packing them takes longer than measuring.
#[derive(Default)]
pub(super) struct Weights {
    /// `[outputs, inputs]`.
    shape: [usize; 2],
    copies: Vec<LinearWeight>,
    experts: Option<Experts>,
}

enum Kind {
    Linear {
        outputs: usize,
        inputs: usize,
    },
    /// Sequences of `context` tokens, of which the last `queries` are new.
    Attention {
        seqs: usize,
        queries: usize,
        context: usize,
    },
    /// Adapters of the rows.
    Lora {
        outputs: usize,
        inputs: usize,
    },
    KvWrite,
    Norm,
    QkNormRope,
    Swiglu,
    Experts,
    ImageEncoder,
    Embedding,
    Sampling {
        temperature: f32,
    },
}

impl Workload<'_> {
    /// Returns all of them, in the order of a step.
    pub(super) fn ops(&self) -> Vec<Op> {
        let s = self.shapes;
        let mut ops = Vec::new();
        let linears = [
            ("linear_qkv", s.q_size() + 2 * s.kv_size(), s.hidden),
            ("linear_o", s.hidden, s.q_size()),
            ("linear_gate_up", 2 * s.intermediate, s.hidden),
            ("linear_down", s.hidden, s.intermediate),
            ("linear_lm_head", s.vocab, s.hidden),
        ];
        let mut push = |name, shape, num_tokens, kind| {
            let Self { dtype, quantization, activations, .. } = *self;
            let shapes = s;
            ops.push(Op {
                name,
                shape,
                num_tokens,
                shapes,
                dtype,
                quantization,
                activations,
                kind,
            });
        };
        let heads = format!("{}/{} x {}", s.num_heads, s.num_kv_heads, s.head_dim);
        let context = self.context;
        for &n in self.num_tokens {
            push("embedding", s.hidden.to_string(), n, Kind::Embedding);
        }
        for &n in self.num_tokens {
            push("norm", s.hidden.to_string(), n, Kind::Norm);
        }
        for (name, outputs, inputs) in linears {
            for &n in self.num_tokens {
                let shape = format!("{outputs} x {inputs}");
                push(name, shape, n, Kind::Linear { outputs, inputs });
            }
        }
        for &n in self.num_tokens {
            let (outputs, inputs) = (2 * s.intermediate, s.hidden);
            push("lora", format!("{outputs} x {inputs}"), n, Kind::Lora { outputs, inputs });
        }
        for &n in self.num_tokens {
            push("qk_norm_rope", heads.clone(), n, Kind::QkNormRope);
        }
        for &n in self.num_tokens {
            push("kv_write", heads.clone(), n, Kind::KvWrite);
        }
        for &n in self.num_tokens {
            let decode = Kind::Attention { seqs: n, queries: 1, context };
            push("attention", format!("{heads}, {n} x {context}"), n, decode);
        }
        for &n in self.num_tokens {
            push("swiglu", s.intermediate.to_string(), n, Kind::Swiglu);
        }
        for &n in self.num_tokens.iter().filter(|_| self.has_others) {
            push("experts", experts::shape(), n, Kind::Experts);
        }
        if self.has_others && self.quantization.is_none() {
            let n = image_encoder::NUM_PATCHES;
            push("image_encoder", image_encoder::shape(), n, Kind::ImageEncoder);
        }
        if let Some(&n) = self.num_tokens.iter().max().filter(|n| **n > 1) {
            let prompt = Kind::Attention { seqs: 1, queries: n, context: n };
            push("attention_prompt", format!("{heads}, 1 x {n}"), n, prompt);
        }
        for (name, temperature) in [("sampling_greedy", 0.0), ("sampling", 1.0)] {
            push(name, s.vocab.to_string(), 1, Kind::Sampling { temperature });
        }
        ops
    }
}

fn values(count: usize) -> Vec<f32> {
    (0..count).map(|i| (i as f32 * 0.37).sin()).collect()
}

fn tensor(rows: usize, width: usize, device: &Device) -> Tensor<2> {
    Tensor::from_data(TensorData::new(values(rows * width), [rows, width]), device)
}

impl Op {
    /// Measures one operation.
    ///
    /// # Errors
    /// Too little memory for the operands, weights that do not support this quantization, or a
    /// GPU's error.
    pub(super) fn measure(
        &self,
        bench: &Bench,
        weights: &mut Weights,
    ) -> Result<Rate, MeasureError> {
        match self.kind {
            Kind::Linear { outputs, inputs } => {
                self.fill(bench, weights, [outputs, inputs])?;
                self.measure_linear(bench, weights)
            }
            Kind::Attention { seqs, queries, context } => {
                self.measure_attention(bench, seqs, queries, context)
            }
            Kind::Lora { outputs, inputs } => {
                let rows = |width| tensor(self.num_tokens, width, &bench.device);
                lora::measure(bench, self.dtype, &rows(inputs), &rows(outputs))
            }
            Kind::Experts => self.measure_experts(bench, weights),
            Kind::ImageEncoder => self.measure_image_encoder(bench, weights),
            Kind::KvWrite => self.measure_kv_write(bench),
            Kind::Embedding => self.measure_embedding(bench),
            Kind::QkNormRope => self.measure_qk_norm_rope(bench),
            Kind::Norm | Kind::Swiglu => self.measure_rows(bench),
            Kind::Sampling { temperature } => {
                sampling::measure(bench, self.shapes.vocab, temperature)
            }
        }
    }

    /// Returns whether it multiplies by quantized weights. Their rate has no measured limit.
    pub(super) fn is_quantized(&self) -> bool {
        self.quantization.is_some() && matches!(self.kind, Kind::Linear { .. } | Kind::Experts)
    }

    /// Packs weights of this shape, unless the kept ones have it.
    fn fill(
        &self,
        bench: &Bench,
        weights: &mut Weights,
        shape: [usize; 2],
    ) -> Result<(), KernelError> {
        if weights.shape == shape {
            return Ok(());
        }
        *weights = Weights::default();
        let numbers = values(shape[0] * shape[1]);
        let mut bytes = 0;
        while bytes < WEIGHT_BYTES_MIN {
            let weight = self.pack(bench, &numbers, shape)?;
            bytes += weight.size_bytes();
            weights.copies.push(weight);
        }
        weights.shape = shape;
        Ok(())
    }

    /// Packs the first numbers as a weight of outputs by inputs.
    fn pack(
        &self,
        bench: &Bench,
        numbers: &[f32],
        [outputs, inputs]: [usize; 2],
    ) -> Result<LinearWeight, KernelError> {
        let parts = [WeightView::F32(&numbers[..outputs * inputs])];
        let weight = match self.quantization {
            None => LinearWeight::pack(&parts, inputs, self.dtype, &bench.device)?,
            Some(scheme) => LinearWeight::quantize(&parts, inputs, scheme, &bench.device)?,
        };
        Ok(weight.with_activations(self.activations).with_tensor_cores(bench.tensor_cores))
    }

    fn measure_experts(&self, bench: &Bench, weights: &mut Weights) -> Result<Rate, MeasureError> {
        let layer = match weights.experts.take() {
            Some(layer) => layer,
            None => {
                *weights = Weights::default();
                let numbers = values(experts::WEIGHT_LEN_MAX);
                experts::pack(|shape| self.pack(bench, &numbers, shape))?
            }
        };
        let x = tensor(self.num_tokens, experts::HIDDEN, &bench.device);
        let layer = weights.experts.insert(layer);
        experts::measure(bench, layer, &x)
    }

    fn measure_image_encoder(
        &self,
        bench: &Bench,
        weights: &mut Weights,
    ) -> Result<Rate, MeasureError> {
        *weights = Weights::default();
        let numbers = values(image_encoder::WEIGHT_LEN_MAX);
        let x = tensor(self.num_tokens, image_encoder::HIDDEN, &bench.device);
        image_encoder::measure(bench, &x, |shape| self.pack(bench, &numbers, shape))
    }

    fn measure_linear(&self, bench: &Bench, weights: &Weights) -> Result<Rate, MeasureError> {
        let Weights { shape: [outputs, inputs], copies, .. } = weights;
        let x = tensor(self.num_tokens, *inputs, &bench.device);
        let work = Work {
            bytes: copies.iter().map(LinearWeight::size_bytes).sum::<usize>() as f64
                / copies.len() as f64,
            flops: 2.0 * (self.num_tokens * outputs * inputs) as f64,
        };
        let mut copies = copies.iter().cycle();
        let rate =
            bench.measure(work, || copies.next().map(|weight| linear(x.clone(), weight, None)));
        Ok(rate?)
    }

    /// Returns a cache with the blocks for this many sequences.
    fn kv_cache(&self, bench: &Bench, seqs: usize, context: usize) -> Result<KvCache, KernelError> {
        let shape = KvCacheShape {
            num_layers: 1,
            num_blocks: seqs * context.div_ceil(BLOCK_SIZE),
            block_size: BLOCK_SIZE,
            num_kv_heads: self.shapes.num_kv_heads,
            head_dim: self.shapes.head_dim,
            value_head_dim: self.shapes.head_dim,
            values_in_keys: false,
            state_len: 0,
        };
        KvCache::new(shape, self.dtype.into(), &bench.device)
    }

    fn measure_attention(
        &self,
        bench: &Bench,
        seqs: usize,
        queries: usize,
        context: usize,
    ) -> Result<Rate, MeasureError> {
        let s = self.shapes;
        let mut cache = self.kv_cache(bench, seqs, context)?;
        let meta = batch(seqs, context, queries);
        // Each row of the cache is written. Otherwise the system would use one page for all of
        // them.
        let kv = tensor(context, s.kv_size(), &bench.device);
        for slots in batch(seqs, context, context).slot_mapping.chunks(context) {
            reshape_and_cache(kv.clone(), kv.clone(), cache.layer_mut(0), slots);
        }
        let q = tensor(seqs * queries, s.q_size(), &bench.device);
        let params = self.attention_params(bench);
        // A query attends to the tokens before it, and to itself.
        let seen: usize = (context - queries + 1..=context).sum::<usize>() * seqs;
        let work = Work {
            bytes: (2 * seqs * context * s.kv_size() * self.dtype.size_bytes()) as f64,
            flops: 4.0 * (seen * s.q_size()) as f64,
        };
        Ok(bench
            .measure(work, || Some(paged_attention(q.clone(), cache.layer(0), &meta, &params)))?)
    }

    fn attention_params(&self, bench: &Bench) -> AttentionParams {
        let Shapes { num_heads, head_dim, .. } = self.shapes;
        let scale = (head_dim as f32).sqrt().recip();
        let tensor_cores = bench.tensor_cores;
        AttentionParams { tensor_cores, ..AttentionParams::new(num_heads, scale) }
    }

    fn measure_kv_write(&self, bench: &Bench) -> Result<Rate, MeasureError> {
        let (n, width) = (self.num_tokens, self.shapes.kv_size());
        let mut cache = self.kv_cache(bench, n, BLOCK_SIZE)?;
        let slots = batch(n, BLOCK_SIZE, 1).slot_mapping;
        let (k, v) = (tensor(n, width, &bench.device), tensor(n, width, &bench.device));
        let bytes = (2 * n * width * self.dtype.size_bytes()) as f64;
        reshape_and_cache(k.clone(), v.clone(), cache.layer_mut(0), &slots);
        self.read_cache(bench, &cache, n)?;
        Ok(bench.measure(Work { bytes, flops: 0.0 }, || {
            reshape_and_cache(k.clone(), v.clone(), cache.layer_mut(0), &slots);
            None
        })?)
    }

    /// Attends to a block of each sequence. An error of a write stays in the cache, and only
    /// attention reads the cache.
    ///
    /// # Errors
    /// The device's errors.
    fn read_cache(
        &self,
        bench: &Bench,
        cache: &KvCache,
        seqs: usize,
    ) -> Result<(), ExecutionError> {
        let q = tensor(seqs, self.shapes.q_size(), &bench.device);
        let (meta, params) = (batch(seqs, BLOCK_SIZE, 1), self.attention_params(bench));
        paged_attention(q, cache.layer(0), &meta, &params).try_into_data().map(drop)
    }

    fn measure_embedding(&self, bench: &Bench) -> Result<Rate, MeasureError> {
        let Shapes { vocab, hidden, .. } = self.shapes;
        let rows = values(vocab * hidden);
        let view = WeightView::F32(&rows);
        let table = EmbeddingTable::new(view, vocab, hidden, self.dtype, &bench.device)?;
        let tokens: Vec<u32> = (0..self.num_tokens).map(|i| (i * 7919 % vocab) as u32).collect();
        let bytes = (self.num_tokens * hidden * self.dtype.size_bytes()) as f64;
        Ok(bench.measure(Work { bytes, flops: 0.0 }, || Some(embedding(&table, &tokens)))?)
    }

    fn measure_qk_norm_rope(&self, bench: &Bench) -> Result<Rate, MeasureError> {
        let Shapes { num_heads, num_kv_heads, head_dim, has_qk_norm, .. } = self.shapes;
        let rows = self.num_tokens * head_dim / 2;
        let table = RotaryTable::new(values(rows), values(rows), head_dim, &bench.device)?;
        let norm = || WeightVector::new(values(head_dim), &bench.device).map(HeadNorm::Rms);
        let heads = QkvHeads {
            num_heads,
            num_kv_heads,
            head_dim,
            q_norm: has_qk_norm.then(norm).transpose()?,
            k_norm: has_qk_norm.then(norm).transpose()?,
            norms_after_rope: false,
            eps: 1e-6,
            clip: None,
        };
        let positions: Vec<u32> = (0..self.num_tokens as u32).collect();
        let turned = self.num_tokens * (heads.q_size() + heads.kv_size());
        let qkv = tensor(self.num_tokens, heads.q_size() + 2 * heads.kv_size(), &bench.device);
        let each = if has_qk_norm { 7.0 } else { 3.0 };
        let work = Work { bytes: 0.0, flops: each * turned as f64 };
        Ok(bench.measure(work, || {
            let (q, k, v) = qk_norm_rope(qkv.clone(), &heads, &positions, Some(&table));
            black_box((k, v));
            Some(q)
        })?)
    }

    /// Measures operations on rows that lie in a cache.
    fn measure_rows(&self, bench: &Bench) -> Result<Rate, MeasureError> {
        let Shapes { hidden, intermediate, .. } = self.shapes;
        let n = self.num_tokens;
        if matches!(self.kind, Kind::Swiglu) {
            let x = tensor(n, 2 * intermediate, &bench.device);
            let work = Work { bytes: 0.0, flops: 5.0 * (n * intermediate) as f64 };
            return Ok(bench.measure(work, || Some(swiglu(x.clone())))?);
        }
        let weight = WeightVector::new(values(hidden), &bench.device)?;
        let (x, residual) = (tensor(n, hidden, &bench.device), tensor(n, hidden, &bench.device));
        let work = Work { bytes: 0.0, flops: 5.0 * (n * hidden) as f64 };
        Ok(bench.measure(work, || {
            let (normed, sum) = add_rms_norm(x.clone(), Some(residual.clone()), &weight, 1e-6);
            black_box(sum);
            Some(normed)
        })?)
    }
}

/// Returns `seqs` sequences of `len` tokens, of which the last `queries` are new.
fn batch(seqs: usize, len: usize, queries: usize) -> AttentionMetadata {
    let blocks = len.div_ceil(BLOCK_SIZE);
    let mut meta = AttentionMetadata { query_start_loc: vec![0], ..AttentionMetadata::default() };
    for seq in 0..seqs {
        let first = (seq * blocks) as u32;
        meta.block_tables.push((first..first + blocks as u32).collect());
        meta.seq_lens.push(len as u32);
        meta.positions.extend((len - queries..len).map(|position| position as u32));
        let slot = |position: usize| first * BLOCK_SIZE as u32 + position as u32;
        meta.slot_mapping.extend((len - queries..len).map(slot));
        meta.query_start_loc.push(meta.positions.len() as u32);
    }
    meta
}

#[cfg(test)]
#[cfg(feature = "wgpu")]
mod tests {
    use std::time::Duration;

    use playhouse_kernels::{DeviceKind, TensorCores, device_memory, devices};

    use super::*;

    #[test]
    fn a_write_that_the_device_refused_is_found_in_the_cache() {
        let mut found = devices().into_iter();
        let Some(gpu) = found.find(|device| device.kind != DeviceKind::Cpu) else {
            let required = std::env::var("PLAYHOUSE_TEST_REQUIRE_GPU");
            let is_required = required.is_ok_and(|value| value == "1");
            assert!(!is_required, "PLAYHOUSE_TEST_REQUIRE_GPU=1, but there is no GPU");
            eprintln!("skipped: there is no device beside the CPU");
            return;
        };
        let workload = Workload {
            shapes: Shapes { num_heads: 4, num_kv_heads: 2, head_dim: 16, ..Shapes::STANDARD },
            dtype: WeightDtype::F32,
            quantization: None,
            activations: ActivationDtype::default(),
            num_tokens: &[3],
            context: 1,
            has_others: false,
        };
        let op = workload.ops().into_iter().find(|op| op.name == "kv_write").unwrap();
        let device = gpu.device;
        let (tensor_cores, duration) = (TensorCores::Off, Duration::from_millis(1));
        let bench = Bench { device: device.clone(), tensor_cores, duration };
        assert!(op.measure(&bench, &mut Weights::default()).unwrap().time_s > 0.0);

        let mut cache = op.kv_cache(&bench, 3, BLOCK_SIZE).unwrap();
        op.read_cache(&bench, &cache, 3).unwrap();
        // More rows than fit a buffer.
        let width = op.shapes.kv_size();
        let bytes = device_memory(&device).unwrap().max_buffer_bytes as usize;
        let rows = bytes / width / size_of::<f32>() + 1;
        let refused = Tensor::<2>::zeros([rows, width], &device);
        reshape_and_cache(refused.clone(), refused, cache.layer_mut(0), &vec![0; rows]);
        assert!(device.sync().is_ok(), "waiting says nothing");
        assert!(op.read_cache(&bench, &cache, 3).is_err());
    }
}

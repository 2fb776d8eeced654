//! `playhouse bench kernels`: every operation of a model's step alone, in bytes and operations a
//! second, compared with the limits of this machine.

mod experts;
mod image_encoder;
mod lora;
mod measure;
mod ops;
mod sampling;
mod shapes;

use std::{path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};
use playhouse_kernels::{
    ActivationDtype, Ceilings, QuantizationScheme, ThreadPool, WeightDtype, cpu_isa,
};
use serde_json::{Value, json};

use self::{
    measure::{Bench, MeasureError, Rate},
    ops::Op,
    shapes::Shapes,
};
use super::{Report, progress_bar, statistics::rounded};
use crate::{
    cli::{CliError, output},
    config::{EngineConfig, Key, Origin, layer::Entry},
    engine::{StartError, choose_device, tensor_cores},
};

const EXAMPLES: &str = "\
Examples:
  playhouse bench kernels                          A Qwen3 of 0.6 billion parameters, bfloat16
  playhouse bench kernels -m models/qwen3 --num-tokens 1,32 --op linear --dtype float32
  PLAYHOUSE_CPU_ISA=avx2 playhouse bench kernels   With another instruction set
  playhouse bench kernels --device wgpu            On a GPU

GB/s are of bytes that an operation has to move, GFLOP/s of operations that it has to do: what it
does beyond that lowers both.";

/// Measure each operation beside the machine's limits.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct KernelsArgs {
    /// Folder of the model whose shapes to use [default: those of Qwen3 0.6B]
    #[arg(long, short = 'm', value_name = "FOLDER")]
    model: Option<PathBuf>,
    /// Format of the weights and the KV cache
    #[arg(long, value_enum, default_value_t)]
    dtype: DtypeName,
    /// Linear layers with weights of so many bits, quantized as at load
    #[arg(long, value_enum)]
    quantization: Option<QuantizationName>,
    /// Inputs that share a scale, for int4
    #[arg(long, value_name = "N", default_value_t = 128)]
    group_size: usize,
    /// Format of activations at quantized weights [default: none on a GPU, else int8]
    #[arg(long, value_enum)]
    activation_quantization: Option<ActivationsName>,
    /// Tokens that are computed at once
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', default_value = "1,8,32,512")]
    num_tokens: Vec<usize>,
    /// Tokens in the KV cache of each sequence
    #[arg(long, value_name = "N", default_value_t = 1024)]
    context_len: usize,
    /// Device to measure: cpu or, in builds with them, cuda[:N] or wgpu[:N] [default: cpu]
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// Threads that compute [default: one a core]
    #[arg(long, value_name = "N")]
    threads: Option<String>,
    /// Operations whose names begin with this; may be repeated [default: all]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    op: Vec<String>,
    /// Seconds that each figure is measured for
    #[arg(long, value_name = "SECONDS", default_value_t = 0.3)]
    seconds: f64,
    /// How to write the result
    #[arg(long, value_enum, default_value_t)]
    output: Report,
}

/// The formats, by their names in settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum DtypeName {
    /// Half the bytes.
    #[default]
    Bfloat16,
    /// Half the bytes, on a GPU.
    Float16,
    /// Full precision.
    Float32,
}

impl DtypeName {
    fn dtype(self) -> WeightDtype {
        match self {
            Self::Bfloat16 => WeightDtype::Bf16,
            Self::Float16 => WeightDtype::F16,
            Self::Float32 => WeightDtype::F32,
        }
    }
}

/// Formats of few bits, by their names in settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum QuantizationName {
    /// A scale for each output.
    Int8,
    /// A scale for each group of inputs.
    Int4,
}

/// Formats of activations, by their names in settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ActivationsName {
    /// As `dtype`.
    None,
    /// 8 bits.
    Int8,
}

impl KernelsArgs {
    fn activations(&self) -> ActivationDtype {
        match self.activation_quantization {
            Some(ActivationsName::None) => self.dtype.dtype().into(),
            Some(ActivationsName::Int8) | None => ActivationDtype::Int8,
        }
    }

    fn quantization(&self) -> Option<QuantizationScheme> {
        self.quantization.map(|name| match name {
            QuantizationName::Int8 => QuantizationScheme::Int8,
            QuantizationName::Int4 => QuantizationScheme::Int4 { group_size: self.group_size },
        })
    }

    /// Returns the settings given.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        let given = [("device", &self.device), ("threads", &self.threads)];
        let entry = |(name, value): (_, &Option<String>)| {
            let key = Key::new("engine", name);
            let (origin, value) = (Origin::Flag(key.flag()), value.clone()?.into());
            Some(Entry { key, value, origin })
        };
        given.into_iter().filter_map(entry).collect()
    }

    fn validate(&self) -> Result<Duration, CliError> {
        if self.num_tokens.contains(&0) || self.context_len == 0 {
            let message = "--num-tokens and --context-len must be at least 1";
            return Err(CliError::Usage(message.to_owned()));
        }
        let seconds = Duration::try_from_secs_f64(self.seconds).ok();
        seconds.filter(|seconds| !seconds.is_zero()).ok_or_else(|| {
            CliError::Usage(format!("--seconds must be above 0, got {}", self.seconds))
        })
    }
}

/// Measures and prints.
pub(crate) fn run(args: &KernelsArgs, config: &EngineConfig) -> Result<(), CliError> {
    let duration = args.validate()?;
    let shapes = match &args.model {
        None => Shapes::STANDARD,
        Some(folder) => Shapes::of(folder).map_err(StartError::from)?,
    };
    let dtype = args.dtype.dtype();
    let device = choose_device(config.device)?;
    let workload = ops::Workload {
        shapes,
        dtype,
        quantization: args.quantization(),
        activations: args.activations(),
        num_tokens: &args.num_tokens,
        context: args.context_len,
        // A model's folder has shapes of its own.
        has_others: args.model.is_none(),
    };
    let is_wanted = |op: &Op| args.op.is_empty() || args.op.iter().any(|p| op.name.starts_with(p));
    let ops: Vec<Op> = workload.ops().into_iter().filter(is_wanted).collect();
    if ops.is_empty() {
        return Err(CliError::Usage(format!("no operation begins with {:?}", args.op)));
    }
    let tensor_cores = tensor_cores(config);
    let bench = Bench { device: device.device, tensor_cores, duration };
    let measure_all = || -> Result<_, MeasureError> {
        let ceilings = Ceilings::measure(&bench.device, duration)?;
        let bar = progress_bar(ops.len());
        let mut rates = Vec::with_capacity(ops.len());
        let mut weights = ops::Weights::default();
        for op in &ops {
            bar.set_message(op.name);
            rates.push(op.measure(&bench, &mut weights).map_err(|error| error.to_string()));
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok((ceilings, rates))
    };
    let threads = config.threads.unwrap_or_else(|| ThreadPool::common().num_threads());
    let pool = ThreadPool::new(threads, config.pin_threads);
    let pool = pool.map_err(|error| CliError::Measure(error.to_string()))?;
    let measured = pool.install(measure_all);
    let (ceilings, rates) = measured.map_err(|error| CliError::Measure(error.to_string()))?;
    let device = match ceilings.threads {
        Some(threads) => format!("{} on {threads} threads", cpu_isa()),
        None => device.id,
    };
    let result = Outcome { device, ceilings, dtype, ops, rates };
    match args.output {
        Report::Table => output::show(&result.to_table()),
        Report::Json => output::show_json(&result.to_json()),
    }?;
    match result.rates.iter().filter(|rate| rate.is_err()).count() {
        0 => Ok(()),
        failed => {
            let of = result.rates.len();
            Err(CliError::Measure(format!("{failed} of {of} operations failed")))
        }
    }
}

struct Outcome {
    device: String,
    ceilings: Ceilings,
    dtype: WeightDtype,
    ops: Vec<Op>,
    /// The rate of each operation, or the reason why it has none.
    rates: Vec<Result<Rate, String>>,
}

impl Outcome {
    fn flops_max(&self) -> f64 {
        match self.dtype {
            WeightDtype::F32 | WeightDtype::F16 => self.ceilings.f32_flops,
            WeightDtype::Bf16 => {
                let f32_flops = self.ceilings.f32_flops;
                self.ceilings.bf16_flops.map_or(f32_flops, |flops| flops.max(f32_flops))
            }
        }
    }

    /// Returns the shares of the limits on reading and computing, in percent.
    fn shares(&self, op: &Op, rate: &Rate) -> (f64, Option<f64>) {
        let read = rate.bytes_per_s / self.ceilings.read_bytes_per_s;
        let compute = (!op.is_quantized()).then(|| 100.0 * rate.flops / self.flops_max());
        (100.0 * read, compute)
    }

    fn to_table(&self) -> String {
        let Ceilings { read_bytes_per_s, f32_flops, bf16_flops, .. } = self.ceilings;
        let bf16 = bf16_flops.map(|flops| format!(", {:.0} bf16", flops / 1e9));
        let mut text = format!(
            "{}; at most {:.1} GB/s read, {:.0} GFLOP/s f32{}\n\n\
             {:<14} {:<24} {:>6} {:>12} {:>8} {:>7} {:>9} {:>7}\n",
            self.device,
            read_bytes_per_s / 1e9,
            f32_flops / 1e9,
            bf16.unwrap_or_default(),
            "op",
            "shape",
            "tokens",
            "µs",
            "GB/s",
            "of max",
            "GFLOP/s",
            "of max",
        );
        for (op, rate) in self.ops.iter().zip(&self.rates) {
            text += &format!("{:<14} {:<24} {:>6} ", op.name, op.shape, op.num_tokens);
            let rate = match rate {
                Ok(rate) => rate,
                Err(error) => {
                    // A device reports its causes on lines of their own.
                    let error = error.lines().map(str::trim).collect::<Vec<_>>().join(" ");
                    text += &format!("failed: {error}\n");
                    continue;
                }
            };
            let (read, compute) = self.shares(op, rate);
            let compute = compute.map_or_else(String::new, |share| format!("{share:.0}%"));
            text += &format!(
                "{:>12.1} {:>8.1} {read:>6.0}% {:>9.1} {compute:>7}\n",
                rate.time_s * 1e6,
                rate.bytes_per_s / 1e9,
                rate.flops / 1e9,
            );
        }
        text
    }

    fn to_json(&self) -> Value {
        let row = |(op, rate): (&Op, &Result<Rate, String>)| {
            let mut row = json!({
                "op": op.name,
                "shape": op.shape,
                "num_tokens": op.num_tokens,
            });
            match rate {
                Ok(rate) => {
                    let (read, compute) = self.shares(op, rate);
                    row["time_us"] = json!(rounded(rate.time_s * 1e6));
                    row["gb_per_s"] = json!(rounded(rate.bytes_per_s / 1e9));
                    row["percent_of_read_max"] = json!(rounded(read));
                    row["gflops"] = json!(rounded(rate.flops / 1e9));
                    row["percent_of_flops_max"] = json!(compute.map(rounded));
                }
                Err(error) => row["error"] = json!(error),
            }
            row
        };
        let rows: Value = self.ops.iter().zip(&self.rates).map(row).collect();
        json!({
            "device": self.device,
            "isa": self.ceilings.threads.map(|_| cpu_isa()),
            "threads": self.ceilings.threads,
            "dtype": self.dtype.name(),
            "read_max_gb_per_s": rounded(self.ceilings.read_bytes_per_s / 1e9),
            "f32_max_gflops": rounded(self.ceilings.f32_flops / 1e9),
            "bf16_max_gflops": self.ceilings.bf16_flops.map(|flops| rounded(flops / 1e9)),
            "ops": rows,
        })
    }
}

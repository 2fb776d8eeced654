//! `playhouse collect-env`: facts about the machine for a report of a problem.

mod cpu;

use std::fmt::Write;

use clap::Args;
use playhouse_kernels::{ComputeDevice, DeviceKind};
use serde_json::{Map, Value, json};

use super::{
    CliError,
    output::{self, Format},
};
use crate::config::{available_memory_bytes, total_memory_bytes};

const EXAMPLES: &str = "\
Examples:
  playhouse collect-env
  playhouse collect-env --output json";

/// Show versions, processor, memory and the kernels chosen, for reports of problems.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CollectEnvArgs {
    /// How to write the result
    #[arg(long, value_enum, default_value_t)]
    output: Format,
}

/// Prints the facts.
pub(crate) fn run(args: &CollectEnvArgs) -> Result<(), CliError> {
    let facts = facts();
    match args.output {
        Format::Json => output::show_json(&Value::Object(facts)),
        Format::Text => output::show(&as_text(&facts)),
    }
}

fn facts() -> Map<String, Value> {
    let threads = std::thread::available_parallelism().map(usize::from).ok();
    let profile = if cfg!(debug_assertions) { "dev" } else { "release" };
    let facts = json!({
        "playhouse": env!("CARGO_PKG_VERSION"),
        "profile": profile,
        "os": std::env::consts::OS,
        "architecture": std::env::consts::ARCH,
        "kernel": kernel_version(),
        "cpu": cpu::model(),
        "cpu_features": cpu::features(),
        "cpu_kernels": playhouse_kernels::cpu_isa(),
        "threads": threads,
        "memory_bytes": total_memory_bytes(),
        "memory_available_bytes": available_memory_bytes(),
        "devices": devices(),
        "devices_not_used": devices_not_used(&playhouse_kernels::devices()),
        "weight_formats": ["safetensors", "gptq", "awq", "compressed-tensors", "gguf"],
        "tensor_backends": tensor_backends(),
    });
    match facts {
        Value::Object(facts) => facts,
        _ => Map::new(),
    }
}

/// Returns the backends of tensors in this build.
fn tensor_backends() -> &'static [&'static str] {
    match (cfg!(feature = "cuda"), cfg!(feature = "wgpu")) {
        (false, false) => &["burn-flex"],
        (false, true) => &["burn-flex", "burn-wgpu"],
        (true, false) => &["burn-flex", "burn-cuda"],
        (true, true) => &["burn-flex", "burn-cuda", "burn-wgpu"],
    }
}

/// Returns the devices by their names in `--device`.
fn devices() -> Vec<String> {
    let name = |device: ComputeDevice| match device.kind {
        DeviceKind::Software => format!("{}(software)", device.id),
        _ => device.id,
    };
    playhouse_kernels::devices().into_iter().map(name).collect()
}

/// Returns the reasons why `--device` does not accept some devices that exist.
fn devices_not_used(found: &[ComputeDevice]) -> Vec<String> {
    let mut reasons = Vec::new();
    for (runtime, is_built) in [("cuda", cfg!(feature = "cuda")), ("wgpu", cfg!(feature = "wgpu"))]
    {
        let has_one = found.iter().any(|device| device.id.split(':').next() == Some(runtime));
        reasons.push(match (is_built, has_one) {
            (false, _) => format!("{runtime}: built without the feature {runtime}"),
            (true, false) if runtime == "wgpu" && cfg!(feature = "vulkan") => {
                "wgpu: no driver reports a GPU, and those that imitate one on the CPU cannot run what \
                 the feature vulkan compiles"
                    .to_owned()
            }
            (true, false) => format!("{runtime}: no driver reports a device"),
            (true, true) => format!("{runtime}: only where --device names it"),
        });
    }
    for device in found.iter().filter(|device| device.kind == DeviceKind::Software) {
        reasons.push(format!("{}: imitates a GPU on the CPU, comes last", device.id));
    }
    reasons
}

fn kernel_version() -> Option<String> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    Some(release.trim().to_owned())
}

fn as_text(facts: &Map<String, Value>) -> String {
    let mut text = String::new();
    for (name, value) in facts {
        let value = match value {
            Value::Null => "unknown".to_owned(),
            Value::String(text) => text.clone(),
            Value::Array(items) => {
                let items: Vec<_> = items.iter().filter_map(Value::as_str).collect();
                items.join(if items.iter().any(|item| item.contains(' ')) { "; " } else { " " })
            }
            Value::Number(bytes) if name.ends_with("_bytes") => {
                let gib = bytes.as_f64().unwrap_or_default() / f64::from(1 << 30);
                format!("{bytes} ({gib:.1} GiB)")
            }
            other => other.to_string(),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name:<24}{value}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_complete_and_readable() {
        let facts = facts();
        assert!(facts["threads"].as_u64().unwrap() >= 1);
        assert!(facts["cpu_kernels"].as_str().is_some_and(|name| !name.is_empty()));
        let not_used = facts["devices_not_used"].as_array().unwrap();
        assert!(not_used.iter().any(|why| why.as_str().unwrap().starts_with("wgpu: ")));
        let text = as_text(&facts);
        assert_eq!(text.lines().count(), facts.len());
        assert!(text.contains(env!("CARGO_PKG_VERSION")));
    }
}

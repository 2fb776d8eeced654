//! The text for the operator once the server is ready.

use std::{
    fmt::Write as _,
    io::Write,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use playhouse_kernels::{ComputeDevice, DeviceKind, ThreadPool};

use crate::{
    cli::logging::Stderr,
    engine::Engine,
    model::QuantizedWeights,
    server::{Address, Listener, ServerConfig},
};

/// Returns the GPUs that the server does not use, with the way to use them.
fn other_gpus(used: &str, devices: &[ComputeDevice]) -> String {
    let mut lines = String::new();
    for device in devices.iter().filter(|device| used == "cpu" && device.kind != DeviceKind::Cpu) {
        let id = &device.id;
        let note = match device.kind {
            DeviceKind::Software => "imitates a GPU on the processor, and is slower than cpu",
            _ => "is a GPU that is not used",
        };
        // Writing to a string cannot fail.
        let _ = writeln!(lines, "  note      {id} {note}; --device {id} takes it");
    }
    if used != "cpu" && devices.iter().any(|d| d.id == used && d.kind == DeviceKind::Software) {
        lines += "  warning   this device imitates a GPU on the processor; --device cpu is faster\n";
    }
    lines
}

/// Shows address, model, device and KV cache, and three requests to try.
pub(super) fn show(engine: &Engine, server: &ServerConfig, listener: &Listener) {
    let text = text(engine, server, listener.address().ok());
    // A server whose banner cannot be written still serves.
    let _ = Stderr.write_all(text.as_bytes());
}

fn text(engine: &Engine, server: &ServerConfig, address: Option<Address>) -> String {
    let (loaded, info) = (engine.loaded(), engine.model_info());
    let name = engine.served_model_names().first().map_or("", String::as_str);
    let scheme = if server.ssl_certfile.is_some() { "https" } else { "http" };
    let host = host_to_try(&server.host);
    let (shown, base, socket) = match address {
        Some(Address::Unix(path)) => {
            let flag = format!(" --unix-socket {}", path.display());
            (Address::Unix(path).to_string(), format!("{scheme}://localhost"), flag)
        }
        address => {
            let port = match address {
                Some(Address::Tcp(address)) => address.port(),
                _ => server.port,
            };
            let base = format!("{scheme}://{host}:{port}");
            (base.clone(), base, String::new())
        }
    };
    let key = match server.needs_keys() {
        false => socket,
        true => format!("{socket} -H \"Authorization: Bearer $KEY\""),
    };
    let dtype = loaded.dtype.name();
    let kv_dtype = loaded.kv_cache_dtype;
    let weights = loaded.quantized_weights.as_ref().map_or_else(String::new, |quantized| {
        let QuantizedWeights { format, activations } = quantized;
        format!(", linear layers in {format} by activations in {}", activations.name())
    });
    let device = match loaded.device.as_str() {
        "cpu" => {
            let own = engine.config().threads;
            let threads = own.unwrap_or_else(|| ThreadPool::common().num_threads());
            format!("cpu: {}, {threads} threads", playhouse_kernels::cpu_isa())
        }
        gpu => gpu.to_owned(),
    };
    let others = other_gpus(&loaded.device, &playhouse_kernels::devices());
    let tokens = info.kv_spec.num_tokens(info.num_blocks);
    let megabytes = loaded.kv_cache_bytes / 1_000_000;
    let json = "-H 'Content-Type: application/json'";
    format!(
        "\
playhouse {version} serves {name} on {shown}
  model     {root} ({architecture}), {dtype}{weights}, context {context} tokens
  device    {device}
{others}  kv cache  {tokens} tokens in {blocks} blocks of {block_size}, {kv_dtype}, {megabytes} MB
Try:
  curl {base}/v1/models{key}
  curl {base}/v1/completions{key} {json} \\
    -d '{{\"model\": \"{name}\", \"prompt\": \"Once upon a time\", \"max_tokens\": 32}}'
  curl -N {base}/v1/chat/completions{key} {json} \\
    -d '{{\"model\": \"{name}\", \"stream\": true, \
\"messages\": [{{\"role\": \"user\", \"content\": \"Hello\"}}]}}'
",
        version = env!("CARGO_PKG_VERSION"),
        root = loaded.root,
        architecture = loaded.architecture,
        context = info.max_model_len,
        blocks = info.num_blocks,
        block_size = info.kv_spec.block_size,
    )
}

/// Returns the host for a URL. For a server on all addresses, it is this machine's.
fn host_to_try(host: &str) -> String {
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V4(all)) if all.is_unspecified() => Ipv4Addr::LOCALHOST.to_string(),
        Ok(IpAddr::V6(all)) if all.is_unspecified() => format!("[{}]", Ipv6Addr::LOCALHOST),
        Ok(IpAddr::V6(address)) => format!("[{address}]"),
        _ => host.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_that_are_not_used_are_named() {
        let device = |id: &str, kind| ComputeDevice {
            id: id.to_owned(),
            kind,
            ..ComputeDevice::cpu()
        };
        let devices = [
            device("wgpu:0", DeviceKind::Gpu),
            device("wgpu:1", DeviceKind::Software),
            ComputeDevice::cpu(),
        ];
        let notes = other_gpus("cpu", &devices);
        assert!(notes.contains("wgpu:0 is a GPU that is not used; --device wgpu:0 takes it"));
        assert!(notes.contains("wgpu:1 imitates a GPU"), "{notes}");
        assert_eq!(other_gpus("wgpu:0", &devices), "");
        assert!(other_gpus("wgpu:1", &devices).contains("--device cpu is faster"));
    }

    #[test]
    fn hosts_stand_as_in_a_url() {
        let cases = [
            ("127.0.0.1", "127.0.0.1"),
            ("0.0.0.0", "127.0.0.1"),
            ("::", "[::1]"),
            ("::1", "[::1]"),
            ("fe80::7", "[fe80::7]"),
            ("localhost", "localhost"),
        ];
        for (host, expected) in cases {
            assert_eq!(host_to_try(host), expected);
        }
    }
}

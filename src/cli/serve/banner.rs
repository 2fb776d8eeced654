//! The text for the operator once the server is ready.

use std::{
    io::Write,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use playhouse_kernels::DeviceKind;

use crate::{
    api::PoolingTask,
    cli::logging::Stderr,
    engine::{Engine, Speech, engine_threads},
    model::QuantizedWeights,
    server::{Address, Listener, ServerConfig},
};

/// Folders and beginnings of the files by which Linux shows GPUs.
const GPU_FILES: [(&str, &str); 2] = [("/dev", "nvidia"), ("/dev/dri", "renderD")];

/// Returns the file of a GPU of this machine, if there is one. No driver is loaded for that: some
/// write errors, and take long.
fn gpu_file() -> Option<String> {
    GPU_FILES.iter().find_map(|(folder, begin)| {
        let names = std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.file_name());
        let mut names = names.filter_map(|name| name.into_string().ok());
        let name = names.find(|name| is_numbered(name, begin))?;
        Some(format!("{folder}/{name}"))
    })
}

/// Returns whether `name` is `begin` and a number.
fn is_numbered(name: &str, begin: &str) -> bool {
    let number = name.strip_prefix(begin);
    number.is_some_and(|number| {
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// Returns a note about a GPU that is not used, or about a device that only imitates one.
fn device_note(kind: DeviceKind, gpu_file: Option<String>) -> String {
    match (kind, gpu_file) {
        (DeviceKind::Cpu, Some(file)) => format!(
            "  note      {file} is a GPU that is not used: `playhouse collect-env` lists devices, \
             --device takes one\n"
        ),
        (DeviceKind::Software, _) => {
            "  warning   the processor imitates this GPU; --device cpu is faster\n".to_owned()
        }
        _ => String::new(),
    }
}

/// Shows address, model, device and KV cache, and requests to try.
pub(super) fn show(engine: &Engine, server: &ServerConfig, listener: &Listener) {
    let text = text(engine, server, listener.address().ok());
    // A server whose banner cannot be written still serves.
    let _ = Stderr.write_all(text.as_bytes());
}

/// Returns the words after a figure of one engine, where there are several.
fn each(engine: &Engine) -> &'static str {
    if engine.engines().len() > 1 { ", in each engine" } else { "" }
}

/// Returns the line about several engines.
fn engines(engine: &Engine) -> String {
    match engine.engines().len() {
        0 | 1 => String::new(),
        count => format!("  engines   {count}, each a process with the whole model\n"),
    }
}

fn text(engine: &Engine, server: &ServerConfig, address: Option<Address>) -> String {
    let (loaded, info) = (engine.loaded(), engine.model_info());
    let name = engine.served_model_names().first().map_or("", String::as_str);
    let scheme = if server.ssl_certfile.is_some() { "https" } else { "http" };
    let host = host_to_try(&server.host);
    let (shown, base, socket, page) = match address {
        Some(Address::Unix(path)) => {
            let flag = format!(" --unix-socket {}", path.display());
            let base = format!("{scheme}://localhost");
            // Browsers open no Unix sockets.
            (Address::Unix(path).to_string(), base, flag, String::new())
        }
        address => {
            let port = match address {
                Some(Address::Tcp(address)) => address.port(),
                _ => server.port,
            };
            let base = format!("{scheme}://{host}:{port}");
            let page = page(engine, &base);
            (base.clone(), base, String::new(), page)
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
            let threads = engine_threads(engine.config());
            let isa = playhouse_kernels::cpu_isa();
            format!("cpu: {isa}, {threads} threads{}", each(engine))
        }
        gpu => gpu.to_owned(),
    };
    let note = device_note(loaded.device_kind, gpu_file());
    let tokens = info.kv_spec.num_tokens(info.num_blocks);
    let megabytes = loaded.kv_cache_bytes / 1_000_000;
    let json = "-H 'Content-Type: application/json'";
    let tries = tries(engine).iter().map(|(curl, route, fields)| {
        let body = format!("{{\"model\": \"{name}\", {fields}}}");
        format!("  {curl} {base}{route}{key} {json} \\\n    -d '{body}'\n")
    });
    let tries: String = tries.collect();
    format!(
        "\
playhouse {version} serves {name} on {shown}
  model     {root} ({architecture}), {dtype}{weights}, context {context} tokens
  device    {device}
{note}  kv cache  {tokens} tokens in {blocks} blocks of {block_size}, {kv_dtype}, {megabytes} MB{each}
{engines}{page}Try:
  curl {base}/v1/models{key}
{tries}",
        version = env!("CARGO_PKG_VERSION"),
        each = each(engine),
        engines = engines(engine),
        root = loaded.root,
        architecture = loaded.architecture,
        context = info.max_model_len,
        blocks = info.num_blocks,
        block_size = info.kv_spec.block_size,
    )
}

/// Returns the line about the page for browsers.
fn page(engine: &Engine, base: &str) -> String {
    let does_chat = engine.model_info().heads.generates && !only_hears(engine);
    let use_of_it = if does_chat { "chat and watch the engine" } else { "watch the engine" };
    format!("  page      {base}/ in a browser, to {use_of_it}\n")
}

/// Returns whether the model writes down sounds, and does nothing else.
fn only_hears(engine: &Engine) -> bool {
    let loaded = engine.loaded();
    let speech = Speech::of(&loaded.architecture, &loaded.codec);
    speech.is_some_and(|speech| !speech.does_chat())
}

/// Returns requests that the model answers: command, route, and the fields of the body after the
/// model's name.
fn tries(engine: &Engine) -> &'static [(&'static str, &'static str, &'static str)] {
    let heads = &engine.model_info().heads;
    match (only_hears(engine), heads.generates) {
        // A sound is a file, and goes with no fields of JSON.
        (true, _) => &[],
        (false, true) => &[
            ("curl", "/v1/completions", r#""prompt": "Once upon a time", "max_tokens": 32"#),
            (
                "curl -N",
                "/v1/chat/completions",
                r#""stream": true, "messages": [{"role": "user", "content": "Hello"}]"#,
            ),
        ],
        (false, false) if heads.pooling(PoolingTask::Embed).is_some() => &[
            ("curl", "/v1/embeddings", r#""input": "Once upon a time""#),
            (
                "curl",
                "/rerank",
                r#""query": "A walk", "documents": ["They went out.", "It rained."]"#,
            ),
        ],
        (false, false) => &[("curl", "/pooling", r#""input": "Once upon a time""#)],
    }
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
        let file = || Some("/dev/nvidia0".to_owned());
        let note = device_note(DeviceKind::Cpu, file());
        assert!(note.contains("/dev/nvidia0 is a GPU that is not used"), "{note}");
        assert_eq!(device_note(DeviceKind::Cpu, None), "");
        assert_eq!(device_note(DeviceKind::Gpu, file()), "");
        assert!(device_note(DeviceKind::Software, None).contains("--device cpu is faster"));
        assert!(is_numbered("nvidia0", "nvidia") && !is_numbered("nvidiactl", "nvidia"));
        assert!(is_numbered("renderD128", "renderD") && !is_numbered("renderD", "renderD"));
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

//! The file in memory in which an engine process leaves its KV cache to the next one. The front
//! creates it and never maps it. A process gets it as its standard output: a child inherits no
//! other descriptor without `unsafe` code.

use std::{fs::File, io};

use playhouse_actors::ports::ModelInfo;
use playhouse_kernels::{DeviceKind, packed_layout};
use sha2::{Digest, Sha256};

use crate::{
    config::EngineConfig, engine::load::Loaded, executor::KeptFile, journal::model_hash,
    model_files,
};

/// Creates the file. `None` where the system has no files in memory, or creates none.
#[cfg(target_os = "linux")]
pub(super) fn create() -> Option<File> {
    use nix::sys::memfd::{MFdFlags, memfd_create};
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    match memfd_create("playhouse-kv-cache", flags) {
        Ok(file) => Some(file.into()),
        Err(error) => {
            tracing::warn!(%error, "the KV cache ends with the engine process");
            None
        }
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn create() -> Option<File> {
    None
}

/// Frees the memory of the file.
#[cfg(target_os = "linux")]
pub(super) fn free(file: &File) {
    use nix::fcntl::{FallocateFlags, fallocate};
    let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    let len = file.metadata().map_or(0, |metadata| metadata.len());
    let Some(len) = i64::try_from(len).ok().filter(|len| *len > 0) else { return };
    if let Err(error) = fallocate(file, flags, 0, len) {
        tracing::warn!(%error, "the memory of the KV cache was not released");
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn free(_: &File) {}

/// Takes the file from standard output, to which nothing is written from then on. `None` if the
/// front has given none.
///
/// # Errors
/// The system's error.
#[cfg(target_os = "linux")]
pub(super) fn take() -> io::Result<Option<File>> {
    use std::os::fd::AsFd;

    use nix::{
        fcntl::{FcntlArg, fcntl},
        unistd::dup2_stdout,
    };
    let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    // Only files in memory have seals.
    if fcntl(&file, FcntlArg::F_GET_SEALS).is_err() {
        return Ok(None);
    }
    dup2_stdout(File::options().write(true).open("/dev/null")?)?;
    Ok(Some(file))
}

#[cfg(not(target_os = "linux"))]
pub(super) fn take() -> io::Result<Option<File>> {
    Ok(None)
}

/// Lets a loaded model on the CPU keep its KV cache in the file.
pub(super) fn offer(file: File, config: &EngineConfig, loaded: &Loaded) {
    if loaded.model.device_kind != DeviceKind::Cpu {
        return;
    }
    match fingerprint(config, &loaded.model.info) {
        Ok(fingerprint) => loaded.executors.may_keep_in(KeptFile { file, fingerprint }),
        Err(error) => tracing::warn!(%error, "the KV cache ends with its process"),
    }
}

/// Returns a value that two processes share only if they compute the same content and lay it out in
/// the same way.
fn fingerprint(config: &EngineConfig, info: &ModelInfo) -> io::Result<[u8; 32]> {
    let weights = match model_files::is_demo_model(&config.model) {
        // It is a part of the program, which all processes of a front run.
        true => "the demo model".to_owned(),
        false => model_hash(&config.model)?,
    };
    // Later processes have the number of blocks of the first one. The directory compares it.
    let settings = EngineConfig { num_gpu_blocks_override: None, ..config.clone() };
    let settings = serde_json::to_string(&settings)?;
    let spec = serde_json::to_string(&info.kv_spec)?;
    let mut hasher = Sha256::new();
    let layout = packed_layout();
    for part in [&*weights, &settings, &spec, &layout, env!("CARGO_PKG_VERSION")] {
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    Ok(hasher.finalize().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use playhouse_actors::logic::{kv_cache::KvSpec, request::pooling_params::ModelHeads};

    fn info(num_layers: usize) -> ModelInfo {
        ModelInfo {
            vocab_size: 9,
            max_model_len: 9,
            kv_spec: KvSpec::full(num_layers, 16, 64),
            num_blocks: 9,
            eos_token_ids: Vec::new(),
            heads: ModelHeads::default(),
            max_item_embeds: 0,
            attends_within_items: false,
            attends_within_prompts: false,
            short_context: None,
        }
    }

    #[test]
    fn other_weights_settings_or_layers_have_another_fingerprint() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("model.safetensors");
        std::fs::write(&path, b"weights").unwrap();
        let config = EngineConfig::new(folder.path());
        let of = |config: &EngineConfig, layers| fingerprint(config, &info(layers)).unwrap();
        let first = of(&config, 2);
        let pinned = EngineConfig { num_gpu_blocks_override: Some(9), ..config.clone() };
        assert_eq!(of(&pinned, 2), first);
        assert_ne!(of(&config, 3), first);
        assert_ne!(of(&EngineConfig { block_size: 32, ..config.clone() }, 2), first);
        std::fs::write(&path, b"weightz").unwrap();
        assert_ne!(of(&config, 2), first);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn freed_memory_reads_as_zeros() {
        use std::os::unix::fs::FileExt;
        let file = create().unwrap();
        free(&file);
        file.write_all_at(b"content", 5_000).unwrap();
        free(&file);
        let mut content = [1; 7];
        file.read_exact_at(&mut content, 5_000).unwrap();
        assert_eq!(content, [0; 7]);
    }
}

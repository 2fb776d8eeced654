//! Models from the cache of packed weights give the same bits, in any state of the cache's file.

use std::fs::{self, File};
use std::path::PathBuf;

use playhouse_kernels::{AttentionMetadata, KvCache};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::model::{Adapters, Positions, Step};

/// A copy of a small model, and a folder for its cache.
struct TestFolders {
    model: TempDir,
    cache: TempDir,
}

impl TestFolders {
    fn new() -> Self {
        Self::of("tests/fidelity/models/qwen2-tied")
    }

    fn of(model: &str) -> Self {
        let folders = Self { model: TempDir::new().unwrap(), cache: TempDir::new().unwrap() };
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join(model);
        for name in ["config.json", "model.safetensors"] {
            fs::copy(from.join(name), folders.model.path().join(name)).unwrap();
        }
        folders
    }

    fn load_as(&self, dtype: Dtype) -> (Arc<Model>, bool) {
        let weights_cache = Some(self.cache.path().to_owned());
        let options = LoadOptions { dtype, weights_cache, ..LoadOptions::default() };
        let mut last = LoadProgress::default();
        let model = load_model(self.model.path(), &options, &mut |p| last = p).unwrap();
        assert_eq!((last.tensors, last.bytes), (last.tensors_total, last.bytes_total));
        (model, last.is_cached)
    }

    /// Returns the model's answer, and whether the weights came from the cache.
    fn load(&self) -> (Vec<u32>, bool) {
        let (model, is_cached) = self.load_as(Dtype::Auto);
        (answer(&model), is_cached)
    }

    fn files(&self) -> Vec<PathBuf> {
        fs::read_dir(self.cache.path()).unwrap().map(|entry| entry.unwrap().path()).collect()
    }

    /// Returns the only file of the cache.
    fn file(&self) -> PathBuf {
        let files = self.files();
        assert_eq!(files.len(), 1, "{files:?}");
        files[0].clone()
    }
}

/// Returns the bits of the logits after three tokens, `[vocab]`.
fn answer(model: &Model) -> Vec<u32> {
    let device = Device::flex();
    let mut kv = KvCache::new(model.kv_cache_shape(2, 4), model.dtype.into(), &device).unwrap();
    let meta = AttentionMetadata {
        query_start_loc: vec![0, 3],
        seq_lens: vec![3],
        block_tables: vec![vec![1]],
        slot_mapping: vec![4, 5, 6],
        positions: vec![0, 1, 2],
        visible_ends: Vec::new(),
        num_guesses: Vec::new(),
    };
    let mut step = Step::new(&meta, &mut kv);
    let hidden = model.backbone.embed(&[5, 9, 7], Adapters::none());
    let hidden = model.backbone.forward(hidden, Positions::of_text(&meta), &mut step);
    let head = model.lm_head.as_ref().unwrap();
    let logits =
        head.logits(hidden, &[2], Adapters::none()).into_data().try_into_vec::<f32>().unwrap();
    logits.into_iter().map(f32::to_bits).collect()
}

#[test]
fn the_second_load_packs_nothing_and_answers_alike() {
    // The second has matrices of heads and experts, from floats of eight bits.
    for name in ["qwen2-tied", "deepseek_v3-float8"] {
        let folders = TestFolders::of(&format!("tests/fidelity/models/{name}"));
        let plain = load_model(folders.model.path(), &LoadOptions::default(), &mut |_| ()).unwrap();
        let (cold, was_cached) = folders.load();
        assert_eq!((&cold, was_cached), (&answer(&plain), false), "{name}");
        folders.file();
        assert_eq!(folders.load(), (cold, true), "{name}");
    }
}

#[test]
fn a_damaged_file_is_made_anew() {
    let folders = TestFolders::new();
    let (whole, _) = folders.load();
    let good = fs::read(folders.file()).unwrap();
    let index = u64::from_le_bytes(good[16..24].try_into().unwrap()) as usize;
    let flips = [0, 15, 16, 23, 24, 31, 32, 63, index, (index + good.len()) / 2, good.len() - 1];
    let mut damaged: Vec<Vec<u8>> = flips
        .iter()
        .map(|at| {
            let mut bytes = good.clone();
            bytes[*at] ^= 0x41;
            bytes
        })
        .collect();
    damaged.extend([0, 8, 63, 64, index, good.len() - 1].map(|len| good[..len].to_vec()));
    damaged.push([&good[..], b"x"].concat());
    for (case, bytes) in damaged.iter().enumerate() {
        fs::write(folders.file(), bytes).unwrap();
        assert_eq!(folders.load(), (whole.clone(), false), "{case}");
        assert_eq!(folders.load(), (whole.clone(), true), "{case}");
    }
}

#[test]
fn a_changed_checkpoint_is_packed_again() {
    let folders = TestFolders::new();
    let (before, _) = folders.load();
    let path = folders.model.path().join("model.safetensors");
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    let mut weights = fs::read(&path).unwrap();
    let last = weights.len() - 1;
    // The file keeps its size and its time of change, but has other elements.
    for at in (last / 2..last).step_by(64) {
        weights[at] ^= 1;
    }
    fs::write(&path, &weights).unwrap();
    File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
    let (after, is_cached) = folders.load();
    assert!(!is_cached);
    assert_ne!(after, before);
    folders.file();
    assert_eq!(folders.load(), (after.clone(), true));
    // Only the time of change is new. The cache cannot know that the content is the same.
    fs::write(&path, &weights).unwrap();
    assert_eq!(folders.load(), (after, false));
}

#[test]
fn a_changed_quantization_config_packs_the_weights_again() {
    let folders = TestFolders::of("tests/formats/fixtures/gptq");
    let (first_version, _) = folders.load();
    assert_eq!(folders.load(), (first_version.clone(), true));
    let path = folders.model.path().join("config.json");
    let config = fs::read_to_string(&path).unwrap();
    let bits = "\"bits\": 4";
    assert!(config.contains(bits));
    // The weights are the same, but their zero points have another meaning.
    let second = config.replace(bits, &format!("{bits}, \"checkpoint_format\": \"gptq_v2\""));
    fs::write(&path, second).unwrap();
    let (second_version, is_cached) = folders.load();
    assert!(!is_cached);
    assert_ne!(second_version, first_version);
    fs::write(&path, config).unwrap();
    assert_eq!(folders.load(), (first_version, true));
}

/// Each field changes the order of rows, and leaves the checkpoint and all shapes as they are.
#[test]
fn an_edit_of_the_config_packs_the_weights_again() {
    for (name, field, value) in [
        ("deepseek_v3", "rope_interleave", json!(false)),
        ("gpt_neox", "num_attention_heads", json!(2)),
        ("bloom", "n_head", json!(2)),
    ] {
        let folders = TestFolders::of(&format!("tests/fidelity/models/{name}"));
        let (before, _) = folders.load();
        let path = folders.model.path().join("config.json");
        let mut config: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        assert!(config.get(field).is_some_and(|old| *old != value), "{name}");
        config[field] = value;
        fs::write(&path, config.to_string()).unwrap();
        let plain = load_model(folders.model.path(), &LoadOptions::default(), &mut |_| ()).unwrap();
        let plain = answer(&plain);
        assert_ne!(plain, before, "{name}");
        assert_eq!(folders.load(), (plain.clone(), false), "{name}");
        assert_eq!(folders.load(), (plain, true), "{name}");
        // The old one was written over.
        folders.file();
    }
}

#[test]
fn weights_of_the_cache_alone_are_mapped() {
    let folders = TestFolders::new();
    assert_eq!(folders.load_as(Dtype::Auto).0.mapped_bytes(), 0);
    let (model, is_cached) = folders.load_as(Dtype::Auto);
    assert!(is_cached);
    // The file also has a head, an index, and gaps between its sections.
    let file = fs::metadata(folders.file()).unwrap().len();
    let mapped = model.mapped_bytes();
    assert!((file / 2..file).contains(&mapped), "{mapped} of {file} bytes");
}

#[test]
fn each_format_has_a_file() {
    let folders = TestFolders::new();
    for is_cached in [false, true] {
        for dtype in [Dtype::Float32, Dtype::Bfloat16] {
            let (model, found) = folders.load_as(dtype);
            let plain = LoadOptions { dtype, ..LoadOptions::default() };
            let plain = load_model(folders.model.path(), &plain, &mut |_| ()).unwrap();
            assert_eq!((answer(&model), found), (answer(&plain), is_cached), "{dtype:?}");
        }
    }
    assert_eq!(folders.files().len(), 2);
}

/// The factor is in the config of the adapter, which is no file of the checkpoint.
#[test]
fn another_factor_of_a_merged_adapter_is_packed_again() {
    const MODEL: &str = "tests/fidelity/poolers/jina-5-last";
    const CONFIG: &str = "adapter_config.json";
    let folders = TestFolders::of(MODEL);
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join(MODEL).join("adapters/retrieval");
    let adapter = folders.model.path().join("adapters/retrieval");
    fs::create_dir_all(&adapter).unwrap();
    for name in [CONFIG, "adapter_model.safetensors"] {
        fs::copy(from.join(name), adapter.join(name)).unwrap();
    }
    let is_cached = || folders.load_as(Dtype::Auto).1;
    assert!(!is_cached());
    assert!(is_cached());
    let mut config: Value =
        serde_json::from_slice(&fs::read(adapter.join(CONFIG)).unwrap()).unwrap();
    config["lora_alpha"] = json!(3);
    fs::write(adapter.join(CONFIG), config.to_string()).unwrap();
    assert!(!is_cached());
}

#[test]
fn an_unfinished_file_is_overwritten_unless_a_live_process_writes_it() {
    let folders = TestFolders::new();
    folders.load();
    let unfinished = folders.file().with_extension("packed.unfinished");
    fs::remove_file(folders.file()).unwrap();
    let left = File::create(&unfinished).unwrap();
    left.set_len(1 << 20).unwrap();
    left.lock().unwrap();
    assert!(!folders.load().1);
    assert!(!folders.load().1, "it was not ours to write");
    drop(left);
    assert!(!folders.load().1);
    assert!(folders.load().1);
    assert!(!unfinished.exists());
}

#[test]
fn models_load_without_a_folder_for_the_cache() {
    let folders = TestFolders::new();
    let in_the_way = folders.cache.path().join("a file");
    fs::write(&in_the_way, "").unwrap();
    let options = LoadOptions { weights_cache: Some(in_the_way), ..LoadOptions::default() };
    for _ in 0..2 {
        assert!(load_model(folders.model.path(), &options, &mut |p| assert!(!p.is_cached)).is_ok());
    }
}

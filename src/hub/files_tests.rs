//! Listings of repositories as they are on Hugging Face.

use super::*;

fn listing(names: &str) -> Vec<String> {
    names.split_whitespace().map(str::to_owned).collect()
}

/// Returns the small files and the rest, sorted.
fn needed(names: &str, index: Option<&str>, modules: Option<&str>) -> (Vec<String>, Vec<String>) {
    let listing = listing(names);
    let mut small = small(&listing, &Want::MODEL).unwrap();
    let bytes = |text: Option<&str>| text.map(|text| text.as_bytes().to_vec());
    let (index, modules) = (bytes(index), bytes(modules));
    let large = large(&listing, &Want::MODEL, index.as_deref(), modules.as_deref()).unwrap();
    small.sort();
    (small, large)
}

#[test]
fn one_file_of_weights() {
    // Qwen/Qwen3-0.6B
    let (small, large) = needed(
        ".gitattributes LICENSE README.md config.json generation_config.json merges.txt \
         model.safetensors tokenizer.json tokenizer_config.json vocab.json",
        None,
        None,
    );
    let expected =
        listing("config.json generation_config.json tokenizer.json tokenizer_config.json");
    assert_eq!((small, large), (expected, listing("model.safetensors")));
}

#[test]
fn the_format_of_quantized_weights_beside_the_config() {
    // nvidia/Llama-3.1-8B-Instruct-FP8
    let (small, _) = needed(
        "config.json hf_quant_config.json model.safetensors tokenizer.json tokenizer_config.json",
        None,
        None,
    );
    let expected = "config.json hf_quant_config.json tokenizer.json tokenizer_config.json";
    assert_eq!(small, listing(expected));
}

#[test]
fn shards_by_their_index_and_nothing_of_other_formats() {
    // mistralai/Mistral-7B-Instruct-v0.3, with the folder `original` of Meta's repositories.
    let (small, large) = needed(
        "config.json consolidated.safetensors generation_config.json \
         model-00001-of-00003.safetensors model-00002-of-00003.safetensors \
         model-00003-of-00003.safetensors model.safetensors.index.json original/params.json \
         original/consolidated.00.pth pytorch_model.bin params.json special_tokens_map.json \
         tokenizer.json tokenizer.model tokenizer.model.v3 tokenizer_config.json \
         chat_template.jinja additional_chat_templates/rag.jinja",
        Some(
            r#"{"metadata": {"total_size": 3}, "weight_map": {
                "a": "model-00001-of-00003.safetensors", "b": "model-00003-of-00003.safetensors",
                "c": "model-00002-of-00003.safetensors", "d": "model-00001-of-00003.safetensors"
            }}"#,
        ),
        None,
    );
    assert_eq!(
        small,
        listing(
            "additional_chat_templates/rag.jinja chat_template.jinja config.json \
             generation_config.json model.safetensors.index.json special_tokens_map.json \
             tokenizer.json tokenizer_config.json"
        )
    );
    let shards = (1..=3).map(|number| format!("model-0000{number}-of-00003.safetensors"));
    assert_eq!(large, shards.collect::<Vec<_>>());
}

#[test]
fn settings_of_processors_of_images_videos_and_sounds() {
    // Qwen/Qwen3-VL-2B-Instruct, and the file that transformers 5 writes.
    let processors =
        listing("preprocessor_config.json processor_config.json video_preprocessor_config.json");
    let (small, _) = needed(
        "chat_template.json config.json generation_config.json model.safetensors \
         preprocessor_config.json processor_config.json tokenizer.json tokenizer_config.json \
         video_preprocessor_config.json",
        None,
        None,
    );
    assert!(processors.iter().all(|file| small.contains(file)), "{small:?}");
}

#[test]
fn modules_of_sentence_transformers() {
    // google/embeddinggemma-300m, with the ONNX files of sentence-transformers/all-MiniLM-L6-v2.
    let (small, large) = needed(
        "1_Pooling/config.json 2_Dense/config.json 2_Dense/model.safetensors \
         2_Dense/pytorch_model.bin README.md config.json config_sentence_transformers.json \
         model.safetensors modules.json onnx/model.onnx onnx/config.json openvino/model.bin \
         sentence_bert_config.json tokenizer.json vocab.txt",
        None,
        Some(
            r#"[{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
                {"idx": 1, "name": "1", "path": "1_Pooling", "type": "…"},
                {"idx": 2, "name": "2", "path": "2_Dense", "type": "…"}]"#,
        ),
    );
    assert!(small.contains(&"modules.json".to_owned()));
    assert!(small.contains(&"sentence_bert_config.json".to_owned()));
    assert_eq!(
        large,
        listing(
            "model.safetensors 1_Pooling/config.json 2_Dense/config.json \
             2_Dense/model.safetensors"
        )
    );
}

#[test]
fn older_modules_have_files_of_torch() {
    let modules =
        r#"[{"path": "", "type": "a.Transformer"}, {"path": "2_Dense", "type": "a.Dense"}]"#;
    let files = "2_Dense/config.json 2_Dense/pytorch_model.bin config.json model.safetensors \
                 modules.json pytorch_model.bin tokenizer.json";
    let (_, large) = needed(files, None, Some(modules));
    let expected = "model.safetensors 2_Dense/config.json 2_Dense/pytorch_model.bin";
    assert_eq!(large, listing(expected));
}

#[test]
fn layers_of_tokens_are_beside_the_checkpoint() {
    // BAAI/bge-m3, with weights that are read.
    let files = "colbert_linear.pt config.json imgs/bkai.jpg model.safetensors onnx/model.onnx \
                 pytorch_model.bin sparse_linear.pt tokenizer.json";
    let (_, large) = needed(files, None, None);
    assert_eq!(large, listing("model.safetensors colbert_linear.pt sparse_linear.pt"));
}

#[test]
fn a_table_of_sentence_transformers_needs_no_config() {
    // sentence-transformers/static-retrieval-mrl-en-v1
    let modules = r#"[{"path": "0_StaticEmbedding", "type": "a.StaticEmbedding"}]"#;
    let (small, large) = needed(
        "0_StaticEmbedding/model.safetensors 0_StaticEmbedding/tokenizer.json README.md \
         config_sentence_transformers.json modules.json",
        None,
        Some(modules),
    );
    assert_eq!(small, listing("config_sentence_transformers.json modules.json"));
    let expected = listing("0_StaticEmbedding/model.safetensors 0_StaticEmbedding/tokenizer.json");
    assert_eq!(large, expected);
    // minishlab/potion-base-8M
    let modules = r#"[{"path": ".", "type": "a.StaticEmbedding"},
        {"path": "1_Normalize", "type": "a.Normalize"}]"#;
    let files = "config.json model.safetensors modules.json tokenizer.json";
    let (small, large) = needed(files, None, Some(modules));
    assert_eq!(small, listing("config.json modules.json tokenizer.json"));
    assert_eq!(large, listing("model.safetensors"));
}

#[test]
fn adapters_of_tasks_are_a_part_of_the_model() {
    // jinaai/jina-embeddings-v5-text-small
    let (_, large) = needed(
        "adapters/retrieval/adapter_config.json adapters/retrieval/adapter_model.safetensors \
         adapters/retrieval/README.md config.json model.safetensors tokenizer.json",
        None,
        None,
    );
    let expected = "model.safetensors adapters/retrieval/adapter_config.json \
                    adapters/retrieval/adapter_model.safetensors";
    assert_eq!(large, listing(expected));
}

#[test]
fn an_adapter_is_its_two_files() {
    let (small, large) = needed(
        "README.md adapter_config.json adapter_model.safetensors tokenizer.json training_args.bin",
        None,
        None,
    );
    assert_eq!(small, listing("adapter_config.json tokenizer.json"));
    assert_eq!(large, listing("adapter_model.safetensors"));
}

/// Some repositories have an adapter beside the model that it was merged into.
#[test]
fn an_adapter_alone_leaves_the_model_beside_it() {
    let there = listing(
        "adapter_config.json adapter_model.safetensors config.json model.safetensors \
         tokenizer.json",
    );
    assert_eq!(small(&there, &Want::Adapter), Ok(listing("adapter_config.json")));
    let large = large(&there, &Want::Adapter, None, None);
    assert_eq!(large, Ok(listing("adapter_model.safetensors")));
    let read = |_: &str| None;
    let error = |names: &str| complete(&listing(names), &Want::Adapter, read).unwrap_err();
    let message = error("adapter_config.json adapter_model.bin").to_string();
    assert!(message.starts_with("it has no adapter_model.safetensors; expected"), "{message}");
    assert_eq!(error("config.json model.safetensors"), Lacking::NoAdapter("adapter_config.json"));
}

#[test]
fn a_tokenizer_needs_no_weights() {
    let files = listing("config.json model.safetensors tokenizer.json vocab.json");
    assert_eq!(small(&files, &Want::Tokenizer), Ok(listing("config.json tokenizer.json")));
    assert_eq!(large(&files, &Want::Tokenizer, None, None), Ok(Vec::new()));
    let files = listing("config.json tokenizer.model.v3");
    assert_eq!(small(&files, &Want::Tokenizer), Err(Lacking::NoTokenizer));
}

#[test]
fn a_class_of_tokenizers_has_files_of_its_own() {
    // Helsinki-NLP/opus-mt-en-de
    let (small, _) = needed(
        "config.json model.safetensors source.spm target.spm tokenizer_config.json vocab.json",
        None,
        None,
    );
    assert_eq!(small, listing("config.json source.spm tokenizer_config.json vocab.json"));
    // facebook/m2m100_418M
    let files = listing("config.json sentencepiece.bpe.model vocab.json");
    assert_eq!(super::small(&files, &Want::Tokenizer), Ok(files));
    // lmsys/vicuna-7b-v1.5, facebook/opt-125m, dslim/bert-base-NER
    for tokenizer in ["tokenizer_config.json tokenizer.model", "merges.txt vocab.json", "vocab.txt"]
    {
        let files = listing(&format!("config.json {tokenizer}"));
        assert_eq!(super::small(&files, &Want::Tokenizer), Ok(files));
    }
    // Without need, they are not fetched.
    let files = listing("config.json spiece.model tokenizer.json");
    assert_eq!(super::small(&files, &Want::Tokenizer), Ok(listing("config.json tokenizer.json")));
}

#[test]
fn a_gguf_file_by_its_name_or_the_end_of_its_name() {
    // unsloth/Qwen3-0.6B-GGUF, and a split file.
    let files = listing(
        "Qwen3-0.6B-BF16.gguf Qwen3-0.6B-Q4_K_M.gguf Qwen3-0.6B-UD-Q4_K_XL.gguf \
         Qwen3-0.6B-Q8_0.gguf sub/Qwen3-0.6B-Q8_0.gguf F16/big-F16-00001-of-00002.gguf \
         F16/big-F16-00002-of-00002.gguf mmproj-BF16.gguf config.json",
    );
    let wanted = |name: &str| large(&files, &Want::Gguf(name.to_owned()), None, None);
    let one = |name: &str| Ok(vec![name.to_owned()]);
    assert_eq!(wanted("Qwen3-0.6B-Q8_0.gguf"), one("Qwen3-0.6B-Q8_0.gguf"));
    assert_eq!(wanted("q4_k_m"), one("Qwen3-0.6B-Q4_K_M.gguf"));
    assert_eq!(wanted("BF16"), one("Qwen3-0.6B-BF16.gguf"));
    let ambiguous = wanted("Q8_0").unwrap_err().to_string();
    assert!(ambiguous.contains("sub/Qwen3-0.6B-Q8_0.gguf: give the whole name"), "{ambiguous}");
    let parts = Ok(listing("F16/big-F16-00001-of-00002.gguf F16/big-F16-00002-of-00002.gguf"));
    for name in ["F16", "F16/big-F16-00001-of-00002.gguf", "F16/big-F16-00002-of-00002.gguf"] {
        assert_eq!(wanted(name), parts, "{name}");
    }
    assert!(matches!(wanted("Q2_K"), Err(Lacking::NoSuchFile { .. })));
    let missing = wanted("q2.gguf").unwrap_err().to_string();
    assert!(missing.starts_with("it has no GGUF file q2.gguf; it has Qwen3"), "{missing}");
}

#[test]
fn a_gguf_file_in_parts_needs_all_of_them() {
    let of = |names: &str| {
        let files = listing(names);
        large(&files, &Want::Gguf("F16".to_owned()), None, None).map_err(|error| error.to_string())
    };
    let error = of("m-F16-00002-of-00003.gguf m-F16-00003-of-00003.gguf").unwrap_err();
    assert_eq!(error, "it lacks parts of m-F16-00002-of-00003.gguf: it has 2 of 3");
    // Two files in parts, and one whole.
    let error = of("a/m-F16-00001-of-00001.gguf b/m-F16-00001-of-00002.gguf \
         b/m-F16-00002-of-00002.gguf m-F16.gguf")
    .unwrap_err();
    let expected = "F16 may be any of m-F16.gguf, a/m-F16-00001-of-00001.gguf, \
                    b/m-F16-00001-of-00002.gguf: give the whole name";
    assert_eq!(error, expected);
}

#[test]
fn repositories_without_a_model_say_what_they_have() {
    let error = |names: &str| {
        let listing = listing(names);
        let first = small(&listing, &Want::MODEL);
        first.and_then(|_| large(&listing, &Want::MODEL, None, None)).unwrap_err().to_string()
    };
    assert_eq!(error("README.md"), "it has neither config.json nor adapter_config.json");
    let only = error("config.json pytorch_model.bin onnx/model.onnx");
    assert!(only.contains("(only pytorch_model.bin, onnx/model.onnx)"), "{only}");
    let gguf = error("README.md a-Q4_0.gguf a-Q8_0.gguf");
    assert!(gguf.contains("for example :a-Q4_0.gguf, or :a-Q8_0.gguf"), "{gguf}");
}

#[test]
fn an_index_leads_out_of_no_folder() {
    let files = listing("config.json model.safetensors.index.json ../evil.safetensors");
    let of = |index: &str| large(&files, &Want::MODEL, Some(index.as_bytes()), None);
    for shard in ["../evil.safetensors", "absent.safetensors"] {
        let index = format!(r#"{{"weight_map": {{"a": "{shard}"}}}}"#);
        assert!(matches!(of(&index), Err(Lacking::Absent { .. })), "{shard}");
    }
    for broken in ["{", "{}", r#"{"weight_map": {"a": 1}}"#] {
        assert!(matches!(of(broken), Err(Lacking::Unreadable { .. })), "{broken}");
    }
}

#[test]
fn a_folder_is_complete_with_its_weights() {
    let without = listing("config.json tokenizer.json");
    let with = listing("config.json tokenizer.json model.safetensors");
    let of = |files: &[String], want: Want| complete(files, &want, |_| None);
    assert!(matches!(of(&without, Want::MODEL), Err(Lacking::NoWeights(_))));
    let no_weights = Want::Model { weights: false, tokenizer: true };
    assert_eq!(of(&without, no_weights), Ok(String::new()));
    let weights = listing("config.json model.safetensors");
    assert_eq!(of(&weights, Want::MODEL), Err(Lacking::NoTokenizer));
    let no_tokenizer = Want::Model { weights: true, tokenizer: false };
    assert_eq!(of(&weights, no_tokenizer), Ok(String::new()));
    assert_eq!(of(&with, Want::MODEL), Ok(String::new()));
    let gguf = listing("a-Q8_0.gguf");
    assert_eq!(of(&gguf, Want::Gguf("Q8_0".to_owned())), Ok("a-Q8_0.gguf".to_owned()));
}

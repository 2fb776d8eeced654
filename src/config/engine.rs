//! The settings of one engine.

use std::path::PathBuf;

use playhouse_actors::logic::{
    memory::LIMIT_BYTES_MIN, scheduler::request_queue::SchedulingPolicy,
};

use super::{
    check::{
        any, at_least, one_of, seconds, seconds_or_unbounded, share_of_blocks, share_of_memory,
        tolerance, within,
    },
    choice::{
        ActivationQuantization, Device, Dtype, GenerationConfigSource, JournalFaultPolicy,
        KvCacheDtype, LoadFormat, Quantization,
    },
    ec_transfer::EcTransferConfig,
    json_object::JsonObject,
    lora::LoraModule,
    media::{MediaLimits, MediaLoras},
    pooling::{Convert, PoolerConfig, Runner},
    secret::Secret,
    setting::Usage,
    speculative::SpeculativeConfig,
    table::settings,
};
use crate::model_files;

settings! {
    /// Everything that [`Engine::spawn`](crate::Engine::spawn) needs. Names and defaults are vLLM's
    /// where it has them.
    pub struct EngineConfig in engine {
        "Model":
        /// Folder of a Hugging Face model (config.json, *.safetensors, tokenizer.json), a GGUF
        /// file, or the name of a model on a hub: org/name, org/name@revision, or for a GGUF file
        /// org/name:file.gguf. Without it, the demo model, which is part of the program.
        model: PathBuf = model_files::demo_model(), plain, any,
            Usage::new("MODEL", "Folder of a Hugging Face model, a GGUF file, or a name (org/name)")
                .short('m').default("the demo model").example(r#""models/qwen3""#);
        /// Branch, tag or commit of a model by name. Without it, that in the name, or main.
        revision: Option<String> = None, plain, any,
            Usage::new("REVISION", "Branch, tag or commit of a model by name")
                .default("main").example(r#""main""#);
        /// Folder that models by name are found in and fetched into, laid out as Hugging Face's
        /// cache. Without it, that cache: HF_HUB_CACHE, HF_HOME, or ~/.cache/huggingface/hub.
        download_dir: Option<PathBuf> = None, plain, any,
            Usage::new("FOLDER", "Folder that models by name are found in and fetched into")
                .default("Hugging Face's cache").example(r#""/var/cache/models""#);
        /// Token for models that a hub does not give to everyone. Without it, HF_TOKEN, or the one
        /// that `hf auth login` has stored.
        hf_token: Option<Secret> = None, some_secret, any,
            Usage::new("TOKEN", "Token for models that the hub does not give to everyone")
                .default("HF_TOKEN").example(r#""hf_…""#);
        /// Whether nothing is fetched: a model by name must be in the cache. HF_HUB_OFFLINE says
        /// the same.
        offline: bool = false, switch, any,
            Usage::switch("Fetch nothing: a model by name must be in the cache");
        /// Folder of the tokenizer, a tokenizer.json, a GGUF file or a name. Without it, the
        /// model's.
        tokenizer: Option<PathBuf> = None, plain, any,
            Usage::new("PATH", "Folder, tokenizer.json or GGUF file to take the tokenizer from")
                .default("the model").example(r#""models/qwen3""#);
        /// Names that requests may use for the model. Answers carry the first. Without any, the
        /// model's path as given.
        served_model_name: Vec<String> = Vec::new(), texts, any,
            Usage::new("NAME", "Name that requests may use; may be repeated, the first is shown")
                .default("the model's path");
        /// The work that the model is loaded for: generate, pooling (vectors or classes of
        /// prompts), or auto. auto is pooling for a folder with the files of sentence-transformers
        /// and for an architecture without an output layer, and generate for all others.
        runner: Runner = Runner::Auto, plain, any,
            Usage::new("RUNNER", "The work that the model is loaded for: auto, generate, pooling")
                .words(&["auto", "generate", "pooling"]);
        /// The pooler of the model: auto (that of its architecture, else embed), none, embed, or
        /// classify (with the checkpoint's score.weight). A model with the runner generate gets one
        /// only from embed or classify, and then does both.
        convert: Convert = Convert::Auto, plain, any,
            Usage::new("POOLER", "The pooler of the model: auto, none, embed or classify")
                .words(&["auto", "none", "embed", "classify"]);
        /// How the model pools, as a JSON object with vLLM's fields: task, pooling_type (CLS,
        /// LAST, MEAN, ALL, STEP), seq_pooling_type, tok_pooling_type, use_activation, dimensions,
        /// enable_chunked_processing, max_embed_len, logit_mean, logit_sigma, step_tag_id,
        /// returned_token_ids.
        pooler_config: Option<PoolerConfig> = None, plain, any,
            Usage::new("JSON", "How the model pools, as a JSON object with vLLM's fields")
                .was("override_pooler_config")
                .default("the model's").example(r#"'{"pooling_type": "MEAN"}'"#);
        /// Fields that replace those of config.json, as a JSON object. Objects in both are merged.
        hf_overrides: Option<JsonObject> = None, plain, any,
            Usage::new("JSON", "Fields that replace those of config.json, as a JSON object")
                .default("none").example(r#"'{"num_labels": 1}'"#);
        /// Source of the weights: auto (the model's files) or dummy (generated values, for
        /// measuring speed).
        load_format: LoadFormat = LoadFormat::Auto, plain, any,
            Usage::new("FORMAT", "Source of the weights: auto (the model's files) or dummy \
                (generated, for measuring)")
                .words(&["auto", "dummy"]);
        /// Format that weights are kept and computed in: auto (the checkpoint's), float32,
        /// bfloat16; on a GPU also float16.
        dtype: Dtype = Dtype::Auto, plain, any,
            Usage::new("DTYPE", "Format of the weights: auto, float32, bfloat16 or, on a GPU, float16")
                .words(&["auto", "float32", "float16", "bfloat16"]);
        /// Folder to keep packed weights in. Later starts map them and pack nothing.
        weights_cache: Option<PathBuf> = None, plain, any,
            Usage::new("FOLDER", "Folder to keep packed weights in, for faster later starts")
                .default("none are kept").example(r#""/var/cache/playhouse""#);
        /// Quantizes linear layers at load: none, int8 (a scale for each output), or int4 (in
        /// groups; the output layer has 8 bits).
        quantization: Quantization = Quantization::None, plain, any,
            Usage::new("SCHEME", "Quantize the weights at load: none, int8 or int4")
                .words(&["none", "int8", "int4"]);
        /// Inputs that share a scale in int4: 32, 64 or 128. Small groups are more precise, and
        /// large ones smaller and faster.
        quantization_group_size: usize = 32, count, one_of(&[32, 64, 128]),
            Usage::new("N", "Inputs that share a scale in int4: 32, 64 or 128")
                .words(&["32", "64", "128"]);
        /// Format of activations at quantized weights, whether quantized at load or before. none:
        /// floats, without further loss. int8: 8 bits with a scale for each token; faster, and only
        /// on the processor. auto: int8 on the processor; none on GPUs, and if dtype is float32.
        activation_quantization: ActivationQuantization = ActivationQuantization::Auto, plain, any,
            Usage::new(
                "SCHEME",
                "Activations beside quantized weights: auto, none (they stay floats) or int8",
            )
                .words(&["auto", "none", "int8"]);
        /// Maximum number of tokens of prompt and output together. Without it, the model's own
        /// limit.
        max_model_len: Option<usize> = None, some_tokens, at_least(1),
            Usage::new("TOKENS", "Maximum number of tokens of prompt and output together: 4096, 4K")
                .default("the model's").example(r#""4K""#);
        /// Source of default sampling parameters: auto (the model's generation_config.json), vllm
        /// (the API's own), or a folder with a generation_config.json.
        generation_config: GenerationConfigSource = GenerationConfigSource::Auto, plain, any,
            Usage::new("SOURCE", "auto, vllm (ignore the model's sampling defaults), or a folder")
                .words(&["auto", "vllm"]);
        /// Fields that replace those of generation_config.json, as a JSON object.
        override_generation_config: Option<JsonObject> = None, plain, any,
            Usage::new("JSON", "Fields that replace those of generation_config.json, as JSON")
                .default("none").example(r#"'{"temperature": 0.6}'"#);
        /// File with a chat template to use in place of the model's.
        chat_template: Option<PathBuf> = None, plain, any,
            Usage::new("FILE", "File with a chat template to use instead of the model's")
                .example(r#""template.jinja""#);
        /// Maximum number of log-probabilities that a request may ask for at each position. -1:
        /// those of all tokens of the vocabulary.
        max_logprobs: usize = 20, count_or_unlimited, any,
            Usage::new("N", "Most log-probabilities that a request may ask for; -1: no limit");

        "Machine":
        /// Device of the model: auto or cpu (the processor), wgpu, or in builds with the feature
        /// cuda also cuda. wgpu:N and cuda:N name a device by its number in
        /// `playhouse collect-env`. auto never uses a GPU.
        device: Device = Device::Auto, plain, any,
            Usage::new(
                "DEVICE",
                "Device of the model: auto, cpu or, in builds with them, cuda[:N] \
                 or wgpu[:N]",
            )
                .words(Device::WORDS);
        /// Engines of a server. Above 1, each is a process with the whole model. The engines divide
        /// the requests, the threads and the KV cache's memory. If one dies, its requests go on in
        /// its spare process or in another engine. Only for playhouse serve, on Unix.
        data_parallel_size: usize = 1, count, within(1, 64),
            Usage::new("N", "Engines of the server, each a process with the whole model");
        /// Threads that compute. Without it, one a processor core.
        threads: Option<usize> = None, some_count, within(1, 1024),
            Usage::new("N", "Threads that compute").default("one a core").example("8");
        /// Binds each of these threads to a core, if there are enough cores. Without it, a busy
        /// system often lets two of them share one core.
        pin_threads: bool = true, switch, any,
            Usage::switch("Bind each of these threads to a core, if there are enough cores");
        /// Memory of the KV cache. Without it, half of the memory that is free once the weights are
        /// loaded, or on a GPU the rest of gpu_memory_utilization. In both cases it is at most the
        /// need of max_num_seqs requests of max_model_len tokens.
        kv_cache_memory_bytes: Option<u64> = None, some_bytes, any,
            Usage::new("BYTES", "Bytes of the KV cache, for example 4GiB")
                .default(
                    "half of the free memory, on a GPU what --gpu-memory-utilization leaves, if it \
                     needs that",
                )
                .example(r#""4GiB""#);
        /// Share of a GPU's memory that weights, activations and KV cache may take together. It has
        /// no effect if the driver does not report the size of the memory.
        gpu_memory_utilization: f64 = 0.92, number, share_of_memory,
            Usage::new("SHARE", "Share of a GPU's memory for weights, activations and KV cache");
        /// On a GPU, computes tokens that do not depend on the rest of the batch. A stream after a
        /// failure is then byte for byte the one without it. Tensor cores are not used. The
        /// processor, GPUs without tensor cores, and weights in float32 are always deterministic.
        deterministic: bool = false, switch, any,
            Usage::switch(
                "On a GPU, tokens that do not depend on the batch: without its tensor cores",
            );
        /// Measures at the start how a GPU's tensor cores multiply each shape fastest. The results
        /// are kept in ~/.cache/playhouse/products.json ($XDG_CACHE_HOME) for the next start.
        autotune: bool = true, switch, any,
            Usage::switch(
                "Measure at the start which way a GPU's tensor cores multiply fastest, where \
                 that is not yet known",
            );
        /// On a GPU, launches steps of single tokens kernel by kernel. Without it, they are
        /// recorded once and replayed, which is faster. For drivers that do not replay well.
        enforce_eager: bool = false, switch, any,
            Usage::switch(
                "On a GPU, launch small steps kernel by kernel, in place of recording them \
                 once and replaying them",
            );
        /// Number of blocks of the KV cache, in place of a size in bytes.
        num_gpu_blocks_override: Option<usize> = None, some_count, at_least(2),
            Usage::new("N", "Blocks of the KV cache, in place of its bytes").example("1024");
        /// Format of the KV cache: auto (that of the weights), float32, bfloat16, or
        /// int8_per_token_head (short: int8), which takes half of bfloat16's memory, with a scale
        /// for each token and head. On a GPU also float16.
        kv_cache_dtype: KvCacheDtype = KvCacheDtype::Auto, plain, any,
            Usage::new(
                "DTYPE",
                "Format of the KV cache: auto, float32, bfloat16, int8 or, on a GPU, float16",
            )
                .words(&["auto", "float32", "float16", "bfloat16", "int8_per_token_head"]);
        /// Tokens that a KV cache block holds. Models with states take a multiple of it.
        block_size: usize = 16, count, within(1, 1024),
            Usage::new("TOKENS", "Tokens a KV cache block holds");
        /// Actors that apply chat templates and tokenize.
        num_input_processors: usize = 2, count, within(1, 1024),
            Usage::new("N", "Actors that apply chat templates and tokenize");
        /// Pairs of a detokenizer and an output streamer.
        num_egress_shards: usize = 2, count, within(1, 1024),
            Usage::new("N", "Pairs of a detokenizer and an output streamer");

        "Recovery":
        /// Seconds after which a request is aborted if its client reads none of its output.
        reader_timeout_secs: f64 = 60.0, number, seconds,
            Usage::new(
                "SECONDS",
                "Seconds after which a request is aborted if its client reads nothing",
            );
        /// Seconds that any step of the model may take. Time in which its threads lack a processor
        /// does not count. A long step may take ten times its prediction. Without it, 0.1 on CPUs,
        /// and 2 on GPUs, where a new shape may have to be compiled.
        min_step_deadline_secs: Option<f64> = None, some_number, seconds,
            Usage::new("SECONDS", "Seconds that any step of the model may take")
                .default("0.1 on CPUs, 2 on GPUs").example("0.1");

        "Limits":
        /// Seconds that compiling the grammar of a structured output may take. A request whose
        /// grammar takes longer gets 400.
        grammar_timeout_secs: f64 = 10.0, number, seconds,
            Usage::new("SECONDS", "Seconds that compiling a grammar may take");
        /// Writes constrained JSON compactly, with at most one space behind a comma or a colon,
        /// unless a request says otherwise. false allows any white space, within bounds, as vLLM's
        /// default does.
        disable_any_whitespace: bool = true, switch, any,
            Usage::switch("Write constrained JSON compactly");
        /// Forbids properties that a schema does not name, as vLLM's default compiler does. Its own
        /// `additionalProperties` counts, and a schema whose parts add properties stays open.
        disable_additional_properties: bool = true, switch, any,
            Usage::switch("Forbid properties that a schema does not name");

        "Media":
        /// The largest number of images, videos and sounds in one prompt, as a JSON object: a
        /// number for each of image, video and audio, or vLLM's options with `count`. Kinds without
        /// one have 999, as in vLLM.
        limit_mm_per_prompt: Option<MediaLimits> = None, plain, any,
            Usage::new("JSON", "Largest number of images, videos and sounds in one prompt, by kind")
                .default("999 of each kind that the model takes")
                .example(r#"'{"image": 2, "video": 0}'"#);
        /// Settings of the model's processor of images and sounds, as a JSON object. A request's
        /// own go before them.
        mm_processor_kwargs: Option<JsonObject> = None, plain, any,
            Usage::new("JSON", "Settings of the model's processor of images and sounds")
                .default("none").example(r#"'{"max_pixels": 1003520}'"#);
        /// Settings of decoding images, videos and sounds, as a JSON object with one for each kind:
        /// num_frames of a video, and rgba_background_color. A request's own go before them.
        media_io_kwargs: Option<JsonObject> = None, plain, any,
            Usage::new("JSON", "Settings of decoding images, videos and sounds, by kind")
                .default("none").example(r#"'{"video": {"num_frames": 16}}'"#);
        /// Lets requests send embeddings in the place of images and sounds (image_embeds,
        /// audio_embeds).
        enable_mm_embeds: bool = false, switch, any,
            Usage::switch("Let requests send embeddings in the place of images and sounds");
        /// Exchanges results of the encoder of images and sounds with other engines, over a folder
        /// that they share. A JSON object with vLLM's fields: ec_connector (ECExampleConnector),
        /// ec_role (ec_producer, ec_consumer or ec_both), and ec_connector_extra_config with
        /// shared_storage_path and max_bytes (16 GiB). Only results of the same program, model and
        /// kind of device are taken. Damaged ones are encoded again.
        ec_transfer_config: Option<EcTransferConfig> = None, plain, any,
            Usage::new("JSON", "Exchange results of encoders with other engines, over a folder")
                .default("no exchange").example(
                    r#"'{"ec_connector": "ECExampleConnector", "ec_role": "ec_both", "ec_connector_extra_config": {"shared_storage_path": "/var/lib/playhouse/ec"}}'"#,
                );
        /// Maximum memory for processed images and sounds of earlier requests, in bytes. Those
        /// unused for longest are removed first. 0: none are kept.
        mm_processor_cache_bytes: usize = 256 << 20, bytes_usize, any,
            Usage::new("BYTES", "Maximum memory for processed images and sounds; 0: none are kept");
        /// Maximum number of pixels of an image, or of the frames of a video together. Larger ones
        /// are refused before they are decoded.
        mm_max_pixels: usize = 64 << 20, count, at_least(1),
            Usage::new("N", "Maximum number of pixels of an image, or of a video's frames \
                together");
        "LoRA":
        /// Whether requests may name a LoRA adapter as their model.
        enable_lora: bool = false, switch, any,
            Usage::switch("Let requests name a LoRA adapter as their model");
        /// Adapters of the server from its start: a list of name=path, or of tables with name, path
        /// and base_model_name. A path is a folder with adapter_config.json and
        /// adapter_model.safetensors, as PEFT writes them.
        lora_modules: Vec<LoraModule> = Vec::new(), lora_modules, any,
            Usage::new("NAME=PATH", "Adapters from the start: name=path, or vLLM's JSON")
                .default("none")
                .example(r#"["pirate=examples/demo-model/pirate"]"#);
        /// Maximum number of adapters whose requests run at a time. Requests for others wait aside,
        /// and the base model's pass them.
        max_loras: usize = 1, count, at_least(1),
            Usage::new("N", "Maximum number of adapters whose requests run at a time");
        /// Maximum rank of an adapter.
        max_lora_rank: usize = 16, count, within(1, 512),
            Usage::new("N", "Maximum rank of an adapter");
        /// Maximum number of adapters in memory. The one used longest ago makes room for another,
        /// and is read again when it is needed. Without it, max_loras.
        max_cpu_loras: Option<usize> = None, some_count, at_least(1),
            Usage::new("N", "Maximum number of adapters in memory")
                .default("max-loras").example("8");
        /// Folder in which adapters are found by their names: a request for an unknown model NAME
        /// loads the adapter in FOLDER/NAME.
        lora_resolver_dir: Option<PathBuf> = None, plain, any,
            Usage::new("FOLDER", "Folder in which adapters are found by their names")
                .example(r#""/var/lib/adapters""#);
        /// Adapters of requests that name the base model and have images, videos or sounds, as a
        /// JSON object: a path for each of image, video and audio. A request with several of these
        /// kinds gets none, as in vLLM.
        default_mm_loras: Option<MediaLoras> = None, plain, any,
            Usage::new("JSON", "Adapters of requests with images, videos or sounds, by kind")
                .default("none")
                .example(r#"'{"audio": "models/speech-lora"}'"#);

        "Recovery":
        /// Seconds at one message after which an actor is replaced, whatever the cause. A handler
        /// that hangs although it has a processor is replaced earlier: after 0.1 s or ten times its
        /// message's usual time, whichever is longer.
        hang_timeout_secs: f64 = 5.0, number, seconds,
            Usage::new("SECONDS", "Seconds at one message after which an actor is replaced");
        /// Factor by which actors may die more often than by default. Above that, their supervisor
        /// is replaced too, and finally the process exits with code 70. With allow_chaos there is
        /// no limit by default.
        restart_tolerance: Option<f64> = None, some_number, tolerance,
            Usage::new("X", "How many times as often as by default actors may die before the \
                engine gives up").example("1.0");
        /// Lets operators break parts of the engine on purpose, through /chaos/* and the page. Only
        /// a server that no other machine reaches may have it.
        allow_chaos: bool = false, switch, any,
            Usage::switch("Let operators break parts of the engine on purpose (/chaos/*)");
        /// Folder of the journal: accepted requests of a server survive its process, and the next
        /// process continues them. Only that process's user can read it. On a GPU it needs
        /// deterministic.
        journal: Option<PathBuf> = None, plain, any,
            Usage::new("FOLDER", "Folder that keeps accepted requests over the end of the process")
                .default("requests end with the process")
                .example(r#""/var/lib/playhouse/journal""#);
        /// File with the key that encrypts the journal: 32 bytes, or lines of 64 hexadecimal
        /// digits, of which the first encrypts and each decrypts. Only owner and group may read it.
        journal_key_file: Option<PathBuf> = None, plain, any,
            Usage::new("FILE", "File with the key that encrypts the journal")
                .default("the journal is not encrypted").example(r#""/etc/playhouse/journal.key""#);
        /// Maximum size of the journal's content in bytes: the requests whose answers clients may
        /// still ask for. The files take up to three times as much for a moment.
        journal_max_bytes: usize = 1 << 30, bytes_usize, at_least(1 << 20),
            Usage::new("BYTES", "Maximum size of the journal's content");
        /// New requests while the journal cannot be written: refuse (they get 503) or continue
        /// (they are served, and end with the process).
        journal_on_fault: JournalFaultPolicy = JournalFaultPolicy::Refuse, plain, any,
            Usage::new("WORD", "New requests while the journal cannot be written: refuse, continue")
                .words(&["refuse", "continue"]);
        /// Folder of recordings: each engine writes its requests and steps to a file that only the
        /// server's user can read. `playhouse replay` runs it again. It holds what clients said.
        record: Option<PathBuf> = None, plain, any,
            Usage::new("FOLDER", "Folder where each engine records its requests and steps")
                .default("nothing is recorded").example(r#""/var/lib/playhouse/recordings""#);
        /// Whether recordings have the content of images and sounds, as the model's encoder takes
        /// it. Without it, requests with media are replayed by `--schedule-only` alone.
        record_media: bool = false, switch, any,
            Usage::switch("Record the content of images and sounds");
        /// Maximum size of one recording in bytes. It ends then, and the engine goes on.
        record_max_bytes: usize = 256 << 20, bytes_usize, at_least(1 << 16),
            Usage::new("BYTES", "Maximum size of one recording, which then ends");
        /// File with the key that encrypts recordings, as `journal_key_file`. Replays need it, too.
        record_key_file: Option<PathBuf> = None, plain, any,
            Usage::new("FILE", "File with the key of recordings")
                .default("recordings are not encrypted").example(r#""/etc/playhouse/record.key""#);

        "Scheduling":
        /// Maximum number of requests that run at a time. A step reads all weights once for all of
        /// them, so throughput grows with the batch. Requests that do not fit the KV cache wait,
        /// whatever the value.
        max_num_seqs: usize = 256, count, at_least(1),
            Usage::new("N", "Maximum number of requests that run at a time");
        /// Maximum number of tokens that one step computes, prompts and outputs together.
        max_num_batched_tokens: usize = 2048, tokens, at_least(1),
            Usage::new("TOKENS", "Maximum number of tokens that one step computes");
        /// Maximum number of tokens of one prompt in a step that others could share. 0: no limit.
        long_prefill_token_threshold: usize = 0, count, any,
            Usage::new(
                "TOKENS",
                "Maximum number of tokens of one prompt in a step that others could share; \
                 0: no limit",
            );
        /// Plans a step and sends it to the device while the step before is computed, so the device
        /// does not wait for the scheduler. A request that ends is computed once more, and that
        /// result is dropped. A new request waits one step longer. Without it, on GPUs only, whose
        /// steps are short.
        async_scheduling: Option<bool> = None, some_switch, any,
            Usage::switch("Plan a step while the one before is computed")
                .default("on GPUs")
                .example("true");
        /// Guesses tokens that a step verifies several at a time, so that fewer steps are needed. A
        /// JSON object with vLLM's fields: method (ngram, suffix, draft_model, eagle, eagle3, mtp
        /// or mlp_speculator), model, num_speculative_tokens, max_model_len, prompt_lookup_min,
        /// prompt_lookup_max, and suffix_decoding_… (max_tree_depth, max_cached_requests,
        /// max_spec_factor, min_token_prob). Outputs are byte for byte those without it. On a GPU,
        /// models with states have no guesses.
        speculative_config: Option<SpeculativeConfig> = None, plain, any,
            Usage::new("JSON", "How tokens are guessed, as a JSON object with vLLM's fields")
                .default("no token is guessed")
                .example(r#"'{"method": "ngram", "num_speculative_tokens": 4}'"#);
        /// Verifies tokens that a grammar or an end of thoughts forces several at a time. Outputs
        /// keep their bytes. By default on CPUs only: it is not measured on GPUs.
        jump_forward: Option<bool> = None, some_switch, any,
            Usage::switch("Verify tokens that a grammar forces several at a time")
                .default("on CPUs").example("true");
        /// Order of requests: fcfs (by arrival) or priority (the lowest value first).
        scheduling_policy: SchedulingPolicy = SchedulingPolicy::Fcfs, plain, any,
            Usage::new("POLICY", "Order of requests: fcfs or priority")
                .words(&["fcfs", "priority"]);
        /// Under priority, seconds after which a waiting request goes first. 0: it may wait for
        /// ever.
        priority_age_bound_secs: f64 = 60.0, number, seconds_or_unbounded,
            Usage::new(
                "SECONDS",
                "Under priority, seconds after which a waiting request goes first",
            ).was("priority_age_bound_s");
        /// Share of the blocks that admission leaves free for running requests.
        watermark: f64 = 0.0, number, share_of_blocks,
            Usage::new("SHARE", "Share of the blocks that admission leaves free");
        /// Maximum number of requests that wait to run for the first time. Further ones are
        /// answered 503 with Retry-After.
        max_num_queued_reqs: Option<usize> = None, some_count, any,
            Usage::new("N", "Maximum number of requests that wait to run; further ones get 503")
                .default("max-num-requests")
                .example("1000");
        /// Maximum number of prompt tokens of the requests that wait to run. Further requests are
        /// answered 503 with Retry-After.
        max_num_queued_tokens: Option<usize> = None, some_tokens, at_least(1),
            Usage::new(
                "TOKENS",
                "Maximum number of prompt tokens of waiting requests; further ones get 503",
            ).default("no limit").example(r#""1M""#);
        /// Maximum number of open requests, whatever their state: the hard bound.
        max_num_requests: usize = 16_384, count, at_least(1),
            Usage::new("N", "Maximum number of open requests, whatever their state");
        /// Memory for requests: bodies and their derived data, stored responses, and outputs that
        /// wait for their readers. Without it, a quarter of the memory that is free once the model
        /// is loaded. A request that does not fit waits up to five seconds, then gets 503 with
        /// Retry-After.
        max_request_memory_bytes: Option<u64> = None, some_bytes, at_least(LIMIT_BYTES_MIN as u64),
            Usage::new("BYTES", "Memory for requests and their outputs, for example 2GiB")
                .default("a quarter of the memory that is free once the model is loaded")
                .example(r#""2GiB""#);
        /// Maximum number of open requests of one API key. Further ones are answered 429 with
        /// Retry-After. 0: no quota.
        quota_max_open_requests: Option<usize> = None, quota, at_least(1),
            Usage::new("N", "Maximum number of open requests of one API key; further ones get 429")
                .default("no quota").example("64");
        /// Maximum number of prompt and output tokens of one API key within a minute. Further
        /// requests are answered 429 with Retry-After. 0: no quota.
        quota_tokens_per_minute: Option<usize> = None, quota, at_least(1),
            Usage::new(
                "TOKENS",
                "Maximum number of tokens of one API key within a minute; further ones get 429",
            ).default("no quota").example(r#""100k""#);
        /// Shares the KV blocks of common prefixes between requests.
        enable_prefix_caching: bool = true, switch, any,
            Usage::switch("Share the KV blocks of common prefixes");
        /// Computes a prompt over several steps where that helps.
        enable_chunked_prefill: bool = true, switch, any,
            Usage::switch("Compute a prompt over several steps where it helps");
        /// Admits a request only when its whole prompt fits the free blocks.
        scheduler_reserve_full_isl: bool = true, switch, any,
            Usage::switch("Admit a request only when its whole prompt fits the free blocks");
        /// While requests run, new ones are admitted at most once in this many steps.
        prefill_schedule_interval: u64 = 1, count_u64, at_least(1),
            Usage::new("STEPS", "While requests run, admit new ones at most once in so many steps");
        /// Seeds the draw of seeds for requests that bring none.
        seed: u64 = 0, count_u64, any,
            Usage::new("N", "Seeds the draw of seeds for requests that bring none");
    }
    and {
        /// The model as given, where `model` is the folder found by its name. A start sets it.
        model_root: Option<String>,
    }
}

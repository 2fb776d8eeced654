//! The settings of the HTTP server.

use std::path::PathBuf;

use super::{
    check::{
        any, at_least, collector, keys, metrics_prefix, root_path, seconds, seconds_or_never,
        within,
    },
    choice::{CertReqs, FileMode},
    json_object::JsonObject,
    limits::LimitSettings,
    parser_choice::ParserChoice,
    setting::Usage,
    table::settings,
};

settings! {
    /// The settings of `playhouse serve` for its socket and its clients.
    pub struct ServerSettings in server {
        "Server":
        /// Runs the model in the server's own process. Without it, the model is in a process of its
        /// own, the engine process. If that one dies, of whatever cause, another one takes over and
        /// streams go on. Systems without Unix sockets always have a single process.
        single_process: bool = !cfg!(unix), switch, any,
            Usage::switch("Run the model in the server's own process");
        /// Keeps a second engine process waiting with its model loaded. It takes over at once if
        /// the first one dies, and needs as much memory.
        spare_engine: bool = false, switch, any,
            Usage::switch("Keep a second engine process waiting, with its model loaded");
        /// Address to listen on. Only this machine reaches the default.
        host: String = "127.0.0.1".to_owned(), plain, any,
            Usage::new("ADDRESS", "Address to listen on; 0.0.0.0 for all of this machine");
        /// Port to listen on. 0: any free port.
        port: u16 = 8000, port, any,
            Usage::new("PORT", "Port to listen on; 0 for any that is free");
        /// Unix socket to listen on, in place of host and port.
        uds: Option<PathBuf> = None, plain, any,
            Usage::new("PATH", "Unix socket to listen on, in place of host and port")
                .example(r#""/run/playhouse.sock""#);
        /// Permissions of the socket, as for chmod: 600 admits only the server's user, and 660 also
        /// its group.
        uds_mode: FileMode = FileMode(0o600), plain, any,
            Usage::new("MODE", "Permissions of the Unix socket, in octal");
        /// Certificate chain and private key (PEM) for TLS. Without a key file, one file holds
        /// both.
        ssl_certfile: Option<PathBuf> = None, plain, any,
            Usage::new("FILE", "Certificate chain to speak TLS with, PEM").example(r#""cert.pem""#);
        /// The private key.
        ssl_keyfile: Option<PathBuf> = None, plain, any,
            Usage::new("FILE", "Its private key, PEM")
                .default("in the same file")
                .example(r#""key.pem""#);
        /// Authorities (PEM) that clients' certificates come from.
        ssl_ca_certs: Option<PathBuf> = None, plain, any,
            Usage::new("FILE", "Authorities that clients' certificates come from, PEM")
                .example(r#""clients.pem""#);
        /// Whether clients show a certificate: none, optional, required.
        ssl_cert_reqs: CertReqs = CertReqs::None, plain, any,
            Usage::new("WORD", "Whether clients show a certificate: none, optional or required")
                .words(&["none", "optional", "required"]);
        /// Reads these files again when they change.
        enable_ssl_refresh: bool = false, switch, any,
            Usage::switch("Read these files again when they change");
        /// Path that a proxy serves this server under, for example "/llm". Routes answer with and
        /// without it.
        root_path: String = String::new(), plain, root_path,
            Usage::new("PATH", "Path that a proxy serves this server under, for example /llm");
        /// Keys, one of which a client must send (Authorization: Bearer KEY). Without any, all
        /// clients are admitted.
        api_keys: Vec<String> = Vec::new(), secrets, keys,
            Usage::new(
                "KEY",
                "Key that clients must bring (Authorization: Bearer KEY); may be repeated",
            ).key("api_key");
        /// File with further keys, one a line; # begins a comment. Read again when it changes, and
        /// on SIGHUP.
        api_key_file: Option<PathBuf> = None, plain, any,
            Usage::new("FILE", "File with further keys, one a line; read again when it changes")
                .example(r#""keys.txt""#);
        /// Keys of operators, which also open the operators' routes. With client keys only, those
        /// routes are closed.
        admin_api_keys: Vec<String> = Vec::new(), secrets, keys,
            Usage::new(
                "KEY",
                "Key of an operator, which opens the operators' routes as well; may be \
                 repeated",
            ).key("admin_api_key");
        /// File with further keys of operators, as api_key_file.
        admin_api_key_file: Option<PathBuf> = None, plain, any,
            Usage::new(
                "FILE",
                "File with further keys of operators, one a line; read again when it changes",
            ).example(r#""admin-keys.txt""#);
        /// Serves /metrics without a key where other routes need one.
        open_metrics: bool = true, switch, any,
            Usage::switch("Serve /metrics without a key where others need one");
        /// The part of the metrics' names before the colon. With "vllm", dashboards for vLLM work.
        metrics_prefix: String = "playhouse".to_owned(), plain, metrics_prefix,
            Usage::new("WORD", "Part of the metrics' names before the colon, for example vllm");
        /// Lets requests with different keys share cached prefixes. From the time to the first
        /// token, one client can then find out which text another has sent.
        share_prefix_cache_between_keys: bool = false, switch, any,
            Usage::switch("Let requests with different keys share cached prefixes");
        /// Maximum number of connections. Further ones wait.
        max_connections: usize = 16_384, count, within(1, 1 << 20),
            Usage::new("N", "Maximum number of connections; further ones wait");
        /// Maximum number of header lines of a request.
        h11_max_header_count: usize = 256, count, within(16, 1 << 15),
            Usage::new("N", "Maximum number of header lines of a request");
        /// Maximum size of a request's headers in bytes. More lines or bytes are answered 431.
        h11_max_incomplete_event_size: usize = 64 << 10, bytes_usize, within(8192, 16 << 20),
            Usage::new("BYTES", "Maximum size of a request's headers");
        /// Seconds that a client may take for its TLS handshake, and for the headers of a request.
        header_timeout_secs: u64 = 10, count_u64, seconds,
            Usage::new("SECONDS", "Seconds for a TLS handshake, and for the headers of a request")
                .was("header_timeout");
        /// Seconds that a connection is kept without a request; pings do not extend them. Longer
        /// than the time of proxies (mostly 60), which would otherwise send requests into
        /// connections that are closing.
        keep_alive_timeout_secs: u64 = 75, count_u64, seconds,
            Usage::new("SECONDS", "Seconds that a connection is kept without a request")
                .key("timeout_keep_alive");
        /// Maximum size of a request's body in bytes. More is answered 413.
        body_limit_bytes: usize = 32 << 20, bytes_usize, any,
            Usage::new("BYTES", "Maximum size of a request's body");
        /// Seconds that a client may take to send its body.
        body_timeout_secs: u64 = 60, count_u64, seconds,
            Usage::new("SECONDS", "Seconds that a client may take to send its body")
                .was("body_timeout");
        /// Seconds that a client may read nothing of the answer. Then its connection is cut, or
        /// over HTTP/2 its stream.
        write_timeout_secs: u64 = 60, count_u64, seconds,
            Usage::new("SECONDS", "Seconds that a client may read nothing of the answer")
                .was("write_timeout");
        /// Seconds that a whole request may take. The header X-Request-Timeout may ask for less.
        request_timeout_secs: Option<f64> = None, some_number, seconds,
            Usage::new(
                "SECONDS",
                "Seconds that a request may take; X-Request-Timeout may ask for less",
            ).was("request_timeout").default("no limit").example("600");
        /// Seconds that requests get to end after SIGTERM or SIGINT.
        shutdown_timeout_secs: u64 = 30, count_u64, any,
            Usage::new("SECONDS", "Seconds that requests get to end after SIGTERM or SIGINT")
                .key("shutdown_timeout");
        /// Seconds without an event after which a stream sends a comment, so that proxies keep the
        /// connection. 0: never.
        sse_keep_alive_interval_secs: u64 = 15, count_u64, seconds_or_never,
            Usage::new(
                "SECONDS",
                "Seconds without an event after which a stream sends a comment; 0: never",
            ).key("sse_keep_alive_interval");
        /// Seconds that a stream can be continued after its end (Last-Event-ID, or
        /// /v1/streams/{id}), and that an answer is kept for its Idempotency-Key. After a restart
        /// with a journal, seconds that unfinished streams wait for their clients.
        resume_ttl_secs: f64 = 300.0, number, seconds,
            Usage::new("SECONDS", "Seconds that a stream can be continued after its end")
                .was("resume_ttl");
        /// Seconds that a stream goes on whose connection was cut. Then its requests are aborted.
        /// The header X-Detach-Grace may ask for another time, up to resume_ttl_secs.
        detach_grace_secs: f64 = 0.0, number, seconds_or_never,
            Usage::new("SECONDS", "Seconds that a stream goes on whose connection was cut")
                .was("detach_grace");
        /// Maximum number of sessions of /v1/realtime. Further ones are answered 503.
        max_realtime_sessions: usize = 64, count, within(1, 1 << 16),
            Usage::new("N", "Maximum number of sessions of /v1/realtime");
        /// Seconds that a session of /v1/realtime is kept without an event of its client.
        realtime_idle_timeout_secs: u64 = 300, count_u64, seconds,
            Usage::new("SECONDS", "Seconds that a session of /v1/realtime is kept without an event");
        /// Maximum number of responses of /v1/responses that are kept. 0: none, and no conversation
        /// can continue from one.
        responses_store_max_count: usize = 10_000, count, any,
            Usage::new("N", "Maximum number of responses of /v1/responses that are kept; 0: none");
        /// Maximum memory for them, in bytes of JSON. It is also limited to a quarter of
        /// max_request_memory_bytes. Responses unused for longest are removed first.
        responses_store_max_bytes: usize = 256 << 20, bytes_usize, any,
            Usage::new("BYTES", "Maximum memory for them");
        /// Seconds that they are kept.
        responses_store_ttl_secs: u64 = 86_400, count_u64, at_least(1),
            Usage::new("SECONDS", "Seconds that they are kept").was("responses_store_ttl");
        /// Origins of web pages that may call this server from a browser; "*": all.
        allowed_origins: Vec<String> = Vec::new(), texts, any,
            Usage::new(
                "ORIGIN",
                "Origin of web pages that may call the server, or *; may be repeated",
            ).default("none");
        /// Methods that they may use.
        allowed_methods: Vec<String> = vec!["*".to_owned()], texts, any,
            Usage::new("METHOD", "Method that they may use, or *; may be repeated");
        /// Headers that they may send.
        allowed_headers: Vec<String> = vec!["*".to_owned()], texts, any,
            Usage::new("HEADER", "Header that they may send, or *; may be repeated");
        /// Lets them send cookies and client certificates.
        allow_credentials: bool = false, switch, any,
            Usage::switch("Let them send cookies and client certificates");
        /// Answers every request with an X-Request-Id header: the client's own, or a new one.
        enable_request_id_headers: bool = true, switch, any,
            Usage::switch("Answer every request with an X-Request-Id header");
        /// Reports in `usage` how many prompt tokens came from the prefix cache.
        enable_prompt_tokens_details: bool = false, switch, any,
            Usage::switch("Report in `usage` how many prompt tokens were cached");
        /// Sends usage with every chunk of every stream.
        enable_force_include_usage: bool = false, switch, any,
            Usage::switch("Send usage with every chunk of every stream");
        /// Names tokens as token_id:N in log-probabilities, unless a request says otherwise.
        return_tokens_as_token_ids: bool = false, switch, any,
            Usage::switch("Name tokens as token_id:N in log-probabilities");
        /// Reports in answers, and beside the usage at the end of streams, how long they took
        /// (`metrics`).
        enable_per_request_metrics: bool = false, switch, any,
            Usage::switch("Report in answers how long they took");
        /// Variables for the chat template that a request does not set, as a JSON object.
        default_chat_template_kwargs: Option<JsonObject> = None, plain, any,
            Usage::new("JSON", "Variables for the chat template that a request does not set")
                .default("none")
                .example(r#"'{"enable_thinking": false}'"#);
        /// Lets requests bring a chat template of their own: at most 64 KiB, which may run for some
        /// seconds.
        trust_request_chat_template: bool = false, switch, any,
            Usage::switch("Let requests bring a chat template of their own");
        /// Lets requests bring settings of the model's processor of images and sounds
        /// (mm_processor_kwargs), and of their decoding (media_io_kwargs). They can make an image
        /// take more memory and time.
        trust_request_mm_kwargs: bool = false, switch, any,
            Usage::switch("Let requests bring settings of the processor of images and sounds");
        /// Servers that images, videos and sounds may be fetched from, by name; "*": all. Without
        /// any, nothing is fetched. Addresses that are not of the public internet are never
        /// reached.
        allowed_media_domains: Vec<String> = Vec::new(), texts, any,
            Usage::new("NAME", "Server that media may be fetched from, or *; may be repeated")
                .default("none");
        /// Folder that images, videos and sounds may be read from, by file URLs.
        allowed_local_media_path: Option<PathBuf> = None, plain, any,
            Usage::new("FOLDER", "Folder that media may be read from, by file URLs")
                .default("none")
                .example(r#""/srv/media""#);
        /// Seconds that fetching an image, a video or a sound may take.
        media_fetch_timeout_secs: f64 = 10.0, number, seconds,
            Usage::new("SECONDS", "Seconds that fetching an image, a video or a sound may take");
        /// Maximum size of a file that is fetched or read, in bytes.
        media_max_bytes: usize = 64 << 20, bytes_usize, any,
            Usage::new("BYTES", "Maximum size of an image, video or sound that is fetched or read");
        /// Parser of tool calls: "auto" (the chat template suggests it), "none", or hermes,
        /// llama3_json, mistral, qwen3_coder, qwen3_xml, pythonic, deepseek_v3, deepseek_v31,
        /// granite, phi4_mini_json, openai, glm45, kimi_k2, gemma4, minimax_m2, json. For further
        /// families: seed_oss, lfm2, olmo3, cohere_command3, functiongemma, longcat, internlm,
        /// jamba, apertus, gigachat3, granite-20b-fc, deepseek_v32, deepseek_v4, deepseek_v41,
        /// step3, dots, hy_v3, minimax_m3, kimi_k3, plamo3, inkling, k2_horizon, muse,
        /// muse_glimmer, minicpm5. Further names of vLLM are llama4_json, llama4_pythonic,
        /// glm47, granite4, mimo, step3p5, step5, qwen3_json, ernie45, ling3, hunyuan_a13b,
        /// cohere_command4, xlam, poolside_v1, hy_v4 and musespark1x.
        tool_call_parser: ParserChoice = ParserChoice::Auto, plain, any,
            Usage::new(
                "NAME",
                "Parser of tool calls, by name; auto: as the chat template suggests",
            );
        /// Parser of thoughts: "auto" (the chat template suggests it), "none", or deepseek_r1,
        /// qwen3, mistral, granite, openai_gptoss, glm45, gemma4, deepseek_v3, kimi_k2, seed_oss,
        /// ernie45, hunyuan_a13b, cohere_command3. For further families: deepseek_v4, deepseek_v41,
        /// hy_v3, minimax_m3, kimi_k3, plamo3, inkling, granite_thinking_parser, k2_horizon, muse,
        /// muse_glimmer, minicpmv, minimax_m2_append_think. Further names of vLLM are holo2,
        /// minimax_m2, nemotron_v3, olmo3, step3, step3p5, step5, glm47, mimo, ling3,
        /// cohere_command4, poolside_v1, hy_v4 and musespark1x.
        reasoning_parser: ParserChoice = ParserChoice::Auto, plain, any,
            Usage::new("NAME", "Parser of thoughts, by name; auto: as the chat template suggests");
        /// Lets the model decide when to call tools (tool_choice "auto"), if there is a parser for
        /// its calls.
        enable_auto_tool_choice: bool = true, switch, any,
            Usage::switch("Let the model decide when to call tools");
        /// Hides tools from a model that must not call them (tool_choice "none").
        exclude_tools_when_tool_choice_none: bool = false, switch, any,
            Usage::switch("Hide tools from a model that must not call them");
        /// Serves /pause, /sleep, /server_info and other operators' routes to keys of
        /// admin_api_key. Without any keys, they are served only if the server listens to this
        /// machine alone, and not to web pages.
        enable_admin_routes: bool = true, switch, any,
            Usage::switch(
                "Serve /pause, /sleep and other routes to operators' keys and this machine",
            );
        /// Serves /v1/load_lora_adapter and /v1/unload_lora_adapter to operators, where enable_lora
        /// is set. An adapter's path is any folder that the server can read, or a name on Hugging
        /// Face's hub. vLLM's variable VLLM_ALLOW_RUNTIME_LORA_UPDATING.
        allow_runtime_lora_updating: bool = false, switch, any,
            Usage::switch("Let operators load and unload LoRA adapters while the server runs");
        /// URL of a collector for traces of OpenTelemetry, by protobuf over HTTP. Each request
        /// becomes a span `llm_request`, within the span that its `traceparent` names.
        otlp_traces_endpoint: Option<String> = None, plain, collector,
            Usage::new("URL", "Collector for a span of each request, by OTLP over HTTP")
                .example(r#""http://127.0.0.1:4318/v1/traces""#);
        /// Serves /tokenizer_info: the tokenizer's configuration, its chat template included.
        enable_tokenizer_info_endpoint: bool = false, switch, any,
            Usage::switch("Serve /tokenizer_info");
    }
    and {
        /// Limits of one request: the section `[limits]` of the file.
        limits: LimitSettings,
    }
}

impl ServerSettings {
    /// Returns whether clients must bring a key. A file without keys admits no client.
    #[must_use]
    pub fn needs_keys(&self) -> bool {
        let has_keys = !self.api_keys.is_empty() || !self.admin_api_keys.is_empty();
        has_keys || self.api_key_file.is_some() || self.admin_api_key_file.is_some()
    }
}

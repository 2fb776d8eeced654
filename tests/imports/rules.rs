//! The import rules, which are the table of ARCHITECTURE.md.

/// Source files under `folder` must not name any of `forbidden` (a path, or the beginning of one).
pub(crate) struct Rule {
    /// The folder where the rule holds.
    pub(crate) folder: &'static str,
    /// Files and folders in it where it does not hold.
    pub(crate) except: &'static [&'static str],
    /// Paths and names that must not be used.
    pub(crate) forbidden: &'static [&'static str],
    /// The reason for the rule.
    pub(crate) reason: &'static str,
}

/// Names that run code concurrently.
const RUNTIME: &[&str] = &["ractor", "tokio", "async", "await"];

/// Functions that send a message directly and not through an address.
const SENDS: &[&str] = &["ractor::rpc", "ractor::cast", "ractor::call", "ractor::forward"];

/// The folders of the server's protocols.
const PROTOCOLS: &[&str] = &[
    "crate::server::chat",
    "crate::server::completions",
    "crate::server::invocations",
    "crate::server::messages",
    "crate::server::responses",
    "crate::server::tokenize",
];

pub(crate) const RULES: &[Rule] = &[
    Rule {
        folder: "actors/src/logic",
        except: &[],
        forbidden: &[
            "tokio",
            "ractor",
            "flume",
            "metrics",
            "tracing",
            "parking_lot",
            "rand",
            "async",
            "await",
            "Instant",
            "SystemTime",
            "HashMap",
            "HashSet",
            "std::fs",
            "std::io",
            "std::net",
            "std::env",
            "std::process",
            "std::thread",
            "std::sync::Mutex",
            "std::sync::mpsc",
            "std::sync::atomic",
            "crate::fault",
            "crate::message",
            "crate::shell",
            "crate::supervision",
            "crate::system",
            "crate::ports",
        ],
        reason: "logic is pure: no async, clock, I/O or unordered maps, nothing above it",
    },
    Rule {
        folder: "actors/src/message",
        except: &[],
        forbidden: &[
            "crate::shell",
            "crate::supervision",
            "crate::system",
            "tokio",
            "flume",
            "async",
            "await",
        ],
        reason: "messages are plain data",
    },
    Rule {
        folder: "actors/src/fault",
        except: &[],
        forbidden: &["crate::shell", "crate::supervision", "crate::system", "crate::ports"],
        reason: "faults know messages and roles, but not their senders",
    },
    Rule {
        folder: "actors/src/fault.rs",
        except: &[],
        forbidden: &["crate::shell", "crate::supervision", "crate::system", "crate::ports"],
        reason: "faults know messages and roles, but not their senders",
    },
    Rule {
        folder: "actors/src/link",
        except: &[],
        forbidden: &["crate::shell", "crate::system", "ractor"],
        reason: "a link carries frames and knows no actors",
    },
    Rule {
        folder: "actors/src/shell",
        except: &[],
        forbidden: SENDS,
        reason: "messages to other actors go through addresses",
    },
    Rule {
        folder: "actors/src/supervision",
        except: &["actors/src/supervision/address.rs"],
        forbidden: SENDS,
        reason: "messages to other actors go through addresses",
    },
    Rule {
        folder: "actors/src/system",
        except: &[],
        forbidden: SENDS,
        reason: "messages to other actors go through addresses",
    },
    Rule {
        folder: "actors/src/ports",
        except: &[],
        forbidden: &[
            "crate::shell",
            "crate::supervision",
            "crate::system",
            "crate::message",
            "tokio",
            "ractor",
            "async",
            "await",
        ],
        reason: "ports are plain traits over logic's types",
    },
    Rule {
        folder: "actors",
        except: &[],
        forbidden: &["playhouse", "playhouse_kernels", "burn", "axum", "hyper", "tokenizers"],
        reason: "the actors know no tensors, no HTTP, no tokenizer",
    },
    Rule {
        folder: "kernels",
        except: &[],
        forbidden: &["playhouse", "playhouse_actors", "ractor", "tokio"],
        reason: "kernels know tensors only",
    },
    Rule {
        folder: "src/model",
        except: &[],
        forbidden: &["playhouse_actors", "ractor", "tokio", "crate::executor", "crate::engine"],
        reason: "a model is maths over burn and kernels",
    },
    Rule {
        folder: "src/gguf",
        except: &[],
        forbidden: &[
            "burn",
            "playhouse_actors",
            "ractor",
            "tokio",
            "serde_json",
            "crate::engine",
            "crate::model",
            "crate::text",
            "crate::weights",
        ],
        reason: "a GGUF file is keys and tensors; other modules interpret them",
    },
    Rule {
        folder: "src/model_files.rs",
        except: &[],
        forbidden: &[
            "burn",
            "playhouse_actors",
            "ractor",
            "tokio",
            "serde_json",
            "crate::config",
            "crate::engine",
            "crate::model",
            "crate::text",
            "crate::weights",
        ],
        reason: "files are bytes; other modules interpret them",
    },
    Rule {
        folder: "src/weights",
        except: &[],
        forbidden: &["playhouse_actors", "ractor", "tokio", "crate::model", "crate::engine"],
        reason: "a checkpoint is files",
    },
    Rule {
        folder: "src/executor",
        except: &[],
        forbidden: &["ractor", "tokio", "crate::engine", "crate::text"],
        reason: "an executor does not know the threads and actors around it",
    },
    Rule {
        folder: "src/grammar",
        except: &[],
        forbidden: &[
            "burn",
            "playhouse_kernels",
            "crate::engine",
            "crate::executor",
            "crate::text",
        ],
        reason: "grammars know only the tokens that the port gives them",
    },
    Rule {
        folder: "src/token_rules",
        except: &[],
        forbidden: &[
            "burn",
            "playhouse_kernels",
            "crate::engine",
            "crate::executor",
            "crate::model",
            "crate::text",
        ],
        reason: "a token rule sees only the tokens that the port gives it",
    },
    Rule {
        folder: "src/token_rules",
        except: &[],
        forbidden: RUNTIME,
        reason: "token rules do not wait",
    },
    Rule {
        folder: "src",
        except: &["src/grammar"],
        forbidden: &["llguidance", "toktrie"],
        reason: "only grammars use these libraries",
    },
    Rule {
        folder: "src",
        except: &["src/grammar", "src/text"],
        forbidden: &["regex_syntax"],
        reason: "only grammars and tokenizers consist of regular expressions",
    },
    Rule {
        folder: "src",
        except: &["src/hub"],
        forbidden: &["hf_hub", "ureq"],
        reason: "only `hub` fetches models",
    },
    Rule {
        folder: "src/hub",
        except: &[],
        forbidden: &[
            "burn",
            "playhouse_actors",
            "playhouse_kernels",
            "ractor",
            "tokio",
            "crate::cli",
            "crate::engine",
            "crate::model",
            "crate::server",
        ],
        reason: "a hub is names and files",
    },
    Rule {
        folder: "src/text",
        except: &[],
        forbidden: &["burn", "ractor", "tokio", "crate::model", "crate::engine"],
        reason: "text is a port's adapter",
    },
    Rule {
        folder: "src/profile",
        except: &[],
        forbidden: &["burn", "ractor", "tokio", "crate::engine", "crate::model", "crate::executor"],
        reason: "a profile is times and names",
    },
    Rule {
        folder: "src/parsers",
        except: &[],
        forbidden: &["burn", "playhouse_actors", "crate::engine", "crate::text"],
        reason: "parsers are string code",
    },
    Rule { folder: "src/grammar", except: &[], forbidden: RUNTIME, reason: "grammars do not wait" },
    Rule { folder: "src/parsers", except: &[], forbidden: RUNTIME, reason: "parsers do not wait" },
    Rule {
        folder: "src/config",
        except: &[],
        forbidden: &["burn", "ractor", "tokio", "clap", "crate::engine", "crate::model"],
        reason: "settings are data",
    },
    Rule {
        folder: "src/engine",
        except: &[],
        forbidden: &["ractor"],
        reason: "the façade speaks to the system, not to its actors",
    },
    Rule {
        folder: "src/server",
        except: &[],
        forbidden: &[
            "burn",
            "ractor",
            "playhouse_kernels",
            "crate::model",
            "crate::executor",
            "crate::weights",
        ],
        reason: "the server knows the façade only",
    },
    Rule {
        folder: "src/server",
        except: &[],
        forbidden: &["playhouse_actors"],
        reason: "the server uses only those names of the actors that `api` exports",
    },
    Rule {
        folder: "src/server/http",
        except: &[],
        forbidden: PROTOCOLS,
        reason: "HTTP serves every protocol and names none",
    },
    Rule {
        folder: "src/server/http",
        except: &[],
        forbidden: &["crate::server::generate", "crate::server::turn"],
        reason: "HTTP does not know the outputs of requests",
    },
    Rule {
        folder: "src/server/generate",
        except: &[],
        forbidden: PROTOCOLS,
        reason: "protocols implement the traits of `generate`, which names no protocol",
    },
    Rule {
        folder: "src/server/turn",
        except: &[],
        forbidden: PROTOCOLS,
        reason: "a turn is the same in every chat protocol",
    },
    Rule {
        folder: "src/cli",
        except: &[],
        forbidden: &["playhouse_actors"],
        reason: "the command line uses only those names of the actors that `api` exports",
    },
    Rule {
        folder: "examples",
        except: &[],
        forbidden: &["playhouse_actors", "playhouse_kernels"],
        reason: "an embedding program has only the public API",
    },
    Rule {
        folder: "src",
        except: &["src/cli"],
        forbidden: &["crate::cli", "clap", "indicatif", "rustyline"],
        reason: "only main knows the command line",
    },
    Rule {
        folder: "src",
        except: &["src/cli", "src/server"],
        forbidden: &["crate::server", "axum", "hyper", "tower", "tower_http"],
        reason: "only the server knows HTTP; only the command line starts it",
    },
    Rule {
        folder: "src",
        except: &["src/text"],
        forbidden: &["tokenizers", "minijinja"],
        reason: "only text knows tokenizers and templates",
    },
    Rule {
        folder: "",
        except: &["actors/src/codec.rs"],
        forbidden: &["bincode"],
        reason: "only the codec knows the bytes of a frame",
    },
    Rule {
        folder: "src",
        except: &[
            "src/files.rs",
            "src/config/kv_memory.rs",
            "src/cli/collect_env",
            "src/cli/bench/overload.rs",
            "src/cli/bench/startup.rs",
            "src/engine/process",
        ],
        forbidden: &[
            "fs::read",
            "fs::read_to_string",
            "fs::write",
            "std::fs::read",
            "std::fs::read_to_string",
            "std::fs::write",
            "File::open",
            "File::create",
            "std::fs::File::open",
            "std::fs::File::create",
        ],
        reason: "`files` opens all files except those of the system in /proc and /sys",
    },
    Rule {
        folder: "",
        except: &["kernels"],
        forbidden: &["unsafe", "cubecl", "burn_flex", "burn_cubecl"],
        reason: "only kernels touch raw memory and raw devices",
    },
];

/// Crates that must not stand below a workspace member, except for tests.
pub(crate) const TREES: &[(&str, &[&str])] = &[
    ("playhouse-actors", &["burn", "hyper", "axum", "tokenizers", "safetensors", "cubecl"]),
    ("playhouse-kernels", &["playhouse-actors", "ractor", "hyper", "axum", "tokenizers"]),
];

/// Beginnings of crate names. Only `playhouse-kernels` may depend on these crates.
pub(crate) const DEVICE_CRATES: &[&str] = &["burn-", "cubecl", "cubek"];

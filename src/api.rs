//! The names of the actors' crate that the server, the command line and embedding programs may use.
//! A further name needs a line here.

// --- Requests.

// A request as a client describes it, and its prompt.
pub use playhouse_actors::message::input_processor::{Prompt, RawRequest};
// A conversation that a chat template renders.
pub use playhouse_actors::ports::ChatPrompt;
// Its images, videos and sounds, and the processor that makes them ready for the model.
pub use playhouse_actors::{
    logic::request::media::{Modality, ProcessedMedia},
    ports::{
        MEDIA_IO_KWARGS, MediaError, MediaProcessor, MediaSource, RawMedia, ReadyMedia,
        expanded_prompt,
    },
};
// How tokens are drawn, and when an output ends.
pub use playhouse_actors::logic::{
    request::sampling_params::{SamplingParams, TokenRuleCall},
    text::stop::RepetitionDetection,
};
// The numbers that a pooling request asks for, and the heads that compute them.
pub use playhouse_actors::logic::request::pooling_params::{
    Dimensions, ModelHeads, PoolingHead, PoolingParams, PoolingTask,
};
// The adapter of a request.
pub use playhouse_actors::logic::request::lora::LoraRequest;
// The languages of a request to a model that translates.
pub use playhouse_actors::logic::input::languages::RequestLanguages;
// The end of a prompt that is cut off.
pub use playhouse_actors::logic::input::fit::TruncationSide;
// The format that an output must match.
pub use playhouse_actors::logic::request::structured_output::{OutputFormat, StructuredOutput};
// The markers and the budget of thoughts.
pub use playhouse_actors::logic::input::thinking::{Thinking, Thoughts};
// The owner of a request: it has quotas, and other tenants do not see its requests.
pub use playhouse_actors::logic::admission::Tenant;
// The numbers of requests and tokens.
pub use playhouse_actors::logic::request::ids::{EngineIndex, RequestId, TokenId};

// --- Answers.

// An accepted request, the stream of each choice, and what arrives in it.
pub use playhouse_actors::system::{ChoiceStream, OutputDelta, Submission};
// Drawn tokens with their log-probabilities.
pub use playhouse_actors::logic::request::outputs::{Logprob, SampledToken, TokenLogprobs};
// The numbers of a pooled prompt.
pub use playhouse_actors::logic::request::outputs::Pooled;
// Why an output ended.
pub use playhouse_actors::logic::request::{FinishReason, StopReason, failure::Failure};
// Why a request was refused, or an actor failed.
pub use playhouse_actors::error::{ActorError, RequestError};

// --- The journal.

// Keeps answers and their requests over the end of the process.
pub use playhouse_actors::logic::journal::{
    Answer as KeptAnswer, Record, Request as KeptRequest, Trial as AnswerTrial,
    groups as suspect_groups,
};
pub use playhouse_actors::logic::request::EngineRequest;
pub use playhouse_actors::system::Journal;
// Frames of values, for the data of kept answers.
pub use playhouse_actors::codec::{DecodeError, EncodeError, Frames, MAX_PAYLOAD_LEN};
// Why an output cannot be continued where it was.
pub use playhouse_actors::system::sink::OutputDiffers;

// --- Recordings of engines.

/// A recording, its entries, and its replay.
pub mod recording {
    pub use playhouse_actors::{
        codec::hash,
        logic::{
            observe::BlockMap,
            recording::{
                Began, Device, DeviceFault, Entry, Event, FRAMES, NoDevice, RedactError, Replay,
                ReplayError, RowDone, Scan, ScanFault, StopCause, encode, redacted, scan,
                schedule_hash, tokens_hash,
            },
            request::ids::Step,
            scheduler::{RequestView, Scheduled, SchedulerView, WaitingReason},
        },
    };
}

// --- Text.

// The tokenizer with its chat template, and its decoder.
pub use playhouse_actors::ports::{DecodeOptions, IncrementalDecoder, TextCodec, TextError};
// Tokenizing in the turns that requests take.
pub use playhouse_actors::logic::input::text_pieces::{EncodedText, WantedTokens};
pub use playhouse_actors::system::{TextJobError, TextJobs};

// --- The running engine.

// The facts about a loaded model.
pub use playhouse_actors::ports::ModelInfo;
// The engine's health, and its current work.
pub use playhouse_actors::{
    supervision::directory::ActorStats,
    system::{DrainError, EngineProcessView, EngineState, EngineView, Health, Status, Unhealthy},
};
// The actors by name, and the epoch of the core.
pub use playhouse_actors::{logic::request::ids::Epoch, message::Role};
// A pause, and what happens to open requests in it.
pub use playhouse_actors::{logic::scheduler::PauseState, system::PauseMode};
// The memory that requests hold.
pub use playhouse_actors::system::{Lease, MemoryBudget, MemoryError};
// Receives the time that actors take for each message.
pub use playhouse_actors::ports::{Handled, HandlerProfiler};
// The names and descriptions of all metrics.
pub use playhouse_actors::system::metrics::SystemMetrics;
// The actors' settings, which tests change.
pub use playhouse_actors::system::SystemConfig;

// --- The engine as the page shows it.

// Blocks, latencies and timelines of requests.
pub use playhouse_actors::logic::observe::{
    BlockMap, BlockRun, BlockState, Latencies, Segment, StepKind, Timeline, Timelines, latencies,
};
// The encoder cache of images and sounds.
pub use playhouse_actors::logic::encoder_cache::EncoderCacheView;
// The scheduler's queues and steps.
pub use playhouse_actors::logic::{
    request::ids::{Micros, Step},
    scheduler::{RequestView, SchedulerView, WaitingReason, output::SchedulerOutput},
};
// One snapshot, and the counts since the start.
pub use playhouse_actors::system::{CoreView, SystemView, totals::TotalsView};

// --- Faults on purpose.

// Strikes that hit actors.
pub use playhouse_actors::fault::{EdgeFaults, How};
// The edges between actors, whose messages may get lost.
pub use playhouse_actors::message::Edge;
// Strikes on demand, the reasons why a strike failed, and actors that hung by themselves.
pub use playhouse_actors::{
    link::frames::Fault,
    system::chaos::{ChaosControl, ChaosError, Hangs},
};
// All actors that may be struck: a test is written once and runs for each.
pub use playhouse_actors::for_each_role;

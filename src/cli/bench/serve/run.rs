//! A run: the server's model, the prompts, the requests at their times, the result.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use chrono::Local;
use indicatif::ProgressBar;
use rand::{SeedableRng as _, rngs::StdRng};
use serde_json::{Map, Value, json};
use tokio::{sync::Semaphore, task::JoinSet, time::sleep_until};

use super::{
    ServeArgs, arrivals,
    client::Client,
    datasets::SampleRequest,
    drafts::DraftCounters,
    metrics::{Metrics, RequestOutput},
    report,
};
use crate::api::TextCodec;
use crate::{
    cli::{
        CliError,
        bench::{Report, progress_bar},
        interrupt::or_interrupt,
        output,
    },
    files, model_files,
    text::HfTextCodec,
};

/// Interval of attempts to reach a server that is not ready.
const READY_PAUSE: Duration = Duration::from_millis(100);
/// Most errors that are shown.
const ERRORS_MAX: usize = 10;

/// Measures and prints.
pub(crate) fn run(args: &ServeArgs) -> Result<(), CliError> {
    // One thread: the server has the others.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(CliError::io("cannot start the runtime"))?;
    runtime.block_on(or_interrupt(measure(args)))
}

async fn measure(args: &ServeArgs) -> Result<(), CliError> {
    // Wrong flags are reported before anything is sent.
    let (shown, goodput, rate) = (args.shown()?, args.goodput()?, args.traffic.rate()?);
    let metadata = metadata(&args.result.metadata)?;
    let client = Client::new(args.target()?)?;
    let model = model(args, &client).await?;
    let client = client.for_model(model.served.clone());
    let codec = HfTextCodec::load(&model.tokenizer)?;
    let mut rng = StdRng::seed_from_u64(args.dataset.seed);
    let requests = args.dataset.load(&codec, &mut rng)?;
    if requests.is_empty() {
        return Err(CliError::Usage("--num-prompts must be at least 1".to_owned()));
    }
    let clients = args.adapters.clients(&client, requests.len(), &mut rng);
    warm_up(args, &clients, &requests).await?;

    let times = arrivals::arrivals(rate, requests.len(), &mut rng);
    let drafts_before = drafts(&client).await;
    let begun = Instant::now();
    let mut outputs = send(&clients, args.traffic.max_concurrency, requests, &times, begun).await;
    let duration = begun.elapsed().as_secs_f64();
    let drafts = drafts(&client).await.since(&drafts_before);
    count_tokens(&mut outputs, &codec)?;

    let metrics = Metrics::of(&outputs, duration, &goodput);
    for error in outputs.iter().filter_map(|output| output.error.as_ref()).take(ERRORS_MAX) {
        tracing::error!(%error, "a request failed");
    }
    let mut result = about(args, &model);
    result.extend(metadata);
    result.extend(report::fields(&metrics, &outputs, &shown, args.result.save_detailed));
    result.extend(drafts.iter().flat_map(DraftCounters::fields));
    match args.result.output {
        Report::Table => output::show(&report::table(&metrics, &shown, drafts.as_ref()))?,
        Report::Json => output::show_json(&Value::Object(result.clone()))?,
    }
    if args.result.save_result {
        save(args, &model, &Value::Object(result))?;
    }
    match metrics.completed {
        0 => Err(CliError::Measure("no request was served".to_owned())),
        _ => Ok(()),
    }
}

/// Returns the guesses that the server has counted so far.
async fn drafts(client: &Client) -> DraftCounters {
    let metrics = client.metrics().await;
    metrics.and_then(|text| DraftCounters::parse(&text)).unwrap_or_default()
}

/// The model, its name, and its tokenizer.
struct Model {
    /// The name in the result.
    id: String,
    /// The name in requests.
    served: String,
    tokenizer: PathBuf,
}

async fn model(args: &ServeArgs, client: &Client) -> Result<Model, CliError> {
    let unreachable = |error| {
        CliError::Measure(format!("the server's models: {error}; `playhouse serve` starts one"))
    };
    let (id, root) = match &args.model {
        Some(model) => (model.clone(), Some(model.clone())),
        None => {
            let limit = Duration::from_secs(args.ready_check_timeout_sec);
            first_model(client, limit).await.map_err(unreachable)?
        }
    };
    let has_tokenizer = |path: &&String| model_files::exists(Path::new(path));
    let of_model = || root.as_ref().filter(has_tokenizer).map(PathBuf::from);
    let tokenizer = args.tokenizer.clone().or_else(of_model).ok_or_else(|| {
        let message = "prompts are made with the model's tokenizer, which is not known here: give \
                       --tokenizer FOLDER";
        CliError::Usage(message.to_owned())
    })?;
    let served = args.served_model_name.clone().unwrap_or_else(|| id.clone());
    Ok(Model { id, served, tokenizer })
}

/// Returns the server's first model, once the server is ready.
async fn first_model(client: &Client, limit: Duration) -> Result<(String, Option<String>), String> {
    let give_up = Instant::now() + limit;
    loop {
        match client.first_model().await {
            Err(_) if Instant::now() < give_up => tokio::time::sleep(READY_PAUSE).await,
            outcome => return outcome,
        }
    }
}

/// Repeats the first request until it is served, if there is time, and then as often as requested.
async fn warm_up(
    args: &ServeArgs,
    clients: &[Client],
    requests: &[SampleRequest],
) -> Result<(), CliError> {
    let (Some(first), Some(client)) = (requests.first(), clients.first()) else { return Ok(()) };
    let limit = Duration::from_secs(args.ready_check_timeout_sec);
    let begun = Instant::now();
    while !limit.is_zero() {
        match client.generate(first, begun).await.error {
            None => break,
            Some(error) if begun.elapsed() >= limit => {
                return Err(CliError::Measure(format!("the first request: {error}")));
            }
            Some(_) => tokio::time::sleep(READY_PAUSE).await,
        }
    }
    let warmups = vec![first.clone(); args.num_warmups];
    let times = vec![0.0; args.num_warmups];
    drop(send(clients, args.traffic.max_concurrency, warmups, &times, begun).await);
    Ok(())
}

/// Sends each request at its time, in seconds after `begun`. If too many are open, it waits until
/// another one ends. Outputs have the order of the requests. `clients` take turns.
async fn send(
    clients: &[Client],
    max_concurrency: Option<usize>,
    requests: Vec<SampleRequest>,
    times: &[f64],
    begun: Instant,
) -> Vec<RequestOutput> {
    let bar = progress_bar(requests.len());
    bar.set_message("requests");
    let permits = max_concurrency.unwrap_or(Semaphore::MAX_PERMITS).min(Semaphore::MAX_PERMITS);
    let semaphore = Arc::new(Semaphore::new(permits));
    let unknown =
        || RequestOutput { error: Some("its client died".to_owned()), ..Default::default() };
    let mut outputs = vec![unknown(); requests.len()];
    let mut tasks = JoinSet::new();
    let requests = requests.into_iter().zip(times).zip(clients.iter().cycle());
    for (index, ((request, &at), client)) in requests.enumerate() {
        if at > 0.0 {
            sleep_until((begun + Duration::from_secs_f64(at)).into()).await;
        }
        let (client, semaphore, bar) = (client.clone(), Arc::clone(&semaphore), bar.clone());
        tasks.spawn(async move { (index, ask(&client, &semaphore, &request, begun, &bar).await) });
    }
    while let Some(done) = tasks.join_next().await {
        match done {
            Ok((index, output)) => outputs[index] = output,
            Err(error) => tracing::error!(%error, "a client died"),
        }
    }
    bar.finish_and_clear();
    outputs
}

async fn ask(
    client: &Client,
    semaphore: &Semaphore,
    request: &SampleRequest,
    begun: Instant,
    bar: &ProgressBar,
) -> RequestOutput {
    let arrived = Instant::now();
    // The semaphore is never closed.
    let _permit = semaphore.acquire().await;
    let client_queue_time = arrived.elapsed().as_secs_f64();
    let output = client.generate(request, begun).await;
    bar.inc(1);
    RequestOutput { client_queue_time, ..output }
}

/// Counts the text's tokens if a server sends no usage.
fn count_tokens(outputs: &mut [RequestOutput], codec: &dyn TextCodec) -> Result<(), CliError> {
    let uncounted = outputs.iter_mut().filter(|o| o.error.is_none() && o.output_tokens == 0);
    for output in uncounted {
        output.output_tokens = codec.encode(&output.generated_text, false)?.len();
    }
    Ok(())
}

fn metadata(pairs: &[String]) -> Result<Map<String, Value>, CliError> {
    let parse = |pair: &String| match pair.split_once('=') {
        Some((key, value)) => Ok((key.trim().to_owned(), value.trim().into())),
        None => Err(CliError::Usage(format!("--metadata: {pair:?} is no KEY=VALUE"))),
    };
    pairs.iter().map(parse).collect()
}

fn rate_or_inf(rate: f64) -> Value {
    if rate.is_finite() { json!(rate) } else { json!("inf") }
}

/// Returns the fields of a result that describe the measurement.
fn about(args: &ServeArgs, model: &Model) -> Map<String, Value> {
    let about = [
        ("date", json!(Local::now().format("%Y%m%d-%H%M%S").to_string())),
        ("endpoint_type", json!(args.backend.name())),
        ("backend", json!(args.backend.name())),
        ("label", json!(args.result.label)),
        ("model_id", json!(model.id)),
        ("tokenizer_id", json!(model.tokenizer)),
        ("num_prompts", json!(args.dataset.num_prompts)),
        ("request_rate", rate_or_inf(args.traffic.request_rate)),
        ("burstiness", rate_or_inf(args.traffic.burstiness)),
        ("max_concurrency", json!(args.traffic.max_concurrency)),
    ];
    about.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn save(args: &ServeArgs, model: &Model, result: &Value) -> Result<(), CliError> {
    let folder = args.result.result_dir.clone().unwrap_or_default();
    let name = args.result.result_filename.clone().unwrap_or_else(|| {
        let label = args.result.label.as_deref().unwrap_or(args.backend.name());
        let (rate, date) = (args.traffic.request_rate, result["date"].as_str().unwrap_or_default());
        let max = args.traffic.max_concurrency.map(|max| format!("-concurrency{max}"));
        let model = model.id.rsplit('/').next().unwrap_or_default();
        format!("{label}-{rate}qps{}-{model}-{date}.json", max.unwrap_or_default())
    });
    let path = folder.join(name);
    let cannot = || CliError::io(format!("cannot save {}", path.display()));
    if !folder.as_os_str().is_empty() {
        std::fs::create_dir_all(&folder).map_err(cannot())?;
    }
    files::replace(&path, format!("{result}\n").as_bytes()).map_err(cannot())?;
    tracing::info!(path = %path.display(), "saved");
    Ok(())
}

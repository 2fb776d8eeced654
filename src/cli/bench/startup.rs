//! `playhouse bench startup`: the time of a server from its start to its first token, and its
//! memory afterwards. Each start is a new process of this program.

use std::{
    net::TcpListener,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use clap::Args;
#[cfg(target_os = "linux")]
use procfs::process::{Process, Status};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::{
    Report,
    distribution::Distribution,
    progress_bar,
    serve::{Backend, Client, SampleRequest, Target},
    statistics::rounded,
};
use crate::cli::{CliError, http::headers, interrupt::or_interrupt, output};

const EXAMPLES: &str = "\
Examples:
  playhouse bench startup                          Start the demo model three times
  playhouse bench startup --num-iters 5 -- -m models/qwen3 --dtype bfloat16

What follows -- goes to `playhouse serve`, as --config does. The first start, which is not counted,
brings the weights into the system's file cache.";

/// Measure a server's start: until it is healthy, until its first token, and its memory.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct StartupArgs {
    /// Starts before the measurement
    #[arg(long, value_name = "N", default_value_t = 1)]
    num_iters_warmup: usize,
    /// Starts that are measured
    #[arg(long, value_name = "N", default_value_t = 3)]
    num_iters: usize,
    /// Seconds that a start may take
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    timeout: u64,
    /// How to write the result
    #[arg(long, value_enum, default_value_t)]
    output: Report,
    /// Flags of the server
    #[arg(last = true, value_name = "FLAGS")]
    serve: Vec<String>,
}

/// Interval of checks on a server that starts.
const LOOK: Duration = Duration::from_millis(2);

/// A figure of a start, and its unit.
type Figure = (&'static str, &'static str, fn(&Start) -> Option<f64>);

const FIGURES: [Figure; 4] = [
    ("healthy", "s", |start| Some(start.healthy.as_secs_f64())),
    ("first_token", "s", |start| Some(start.first_token.as_secs_f64())),
    ("resident", "MB", |start| start.resident),
    ("peak_resident", "MB", |start| start.peak_resident),
];

/// One start.
struct Start {
    /// From the process's start until `/health` answers 200.
    healthy: Duration,
    /// From the process's start to the first token of a request that is sent then.
    first_token: Duration,
    /// Megabytes afterwards.
    resident: Option<f64>,
    /// Most megabytes until then.
    peak_resident: Option<f64>,
}

/// Measures and prints. `config` is the file with the server's settings, if one is given.
pub(crate) fn run(args: &StartupArgs, config: Option<&Path>) -> Result<(), CliError> {
    if args.num_iters == 0 {
        return Err(CliError::Usage("--num-iters must be at least 1".to_owned()));
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(CliError::io("cannot start the runtime"))?;
    let starts = runtime.block_on(or_interrupt(measure(args, config)))?;
    match args.output {
        Report::Table => output::show(&to_table(&starts)),
        Report::Json => output::show_json(&to_json(&starts)),
    }
}

async fn measure(args: &StartupArgs, config: Option<&Path>) -> Result<Vec<Start>, CliError> {
    let bar = progress_bar(args.num_iters_warmup + args.num_iters);
    bar.set_message("starts");
    let mut starts = Vec::new();
    for number in 0..args.num_iters_warmup + args.num_iters {
        let start = start(args, config).await?;
        if number >= args.num_iters_warmup {
            starts.push(start);
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(starts)
}

/// A server process that is killed on drop.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // A process that has ended needs no kill.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn start(args: &StartupArgs, config: Option<&Path>) -> Result<Start, CliError> {
    let program = std::env::current_exe().map_err(CliError::io("cannot find this program"))?;
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let port = free.map_err(CliError::io("cannot find a free port"))?.port();
    // A key of this benchmark opens the server, whatever keys its settings have.
    let key = Uuid::new_v4().simple().to_string();
    let client = Client::new(Target {
        base_url: format!("http://127.0.0.1:{port}"),
        endpoint: Backend::Openai.endpoint().to_owned(),
        backend: Backend::Openai,
        headers: headers(&[], Some(key.clone()))?,
        body: Map::new(),
        model: String::new(),
    })?;
    let mut command = Command::new(program);
    command.arg("serve").args(&args.serve).args(["--host", "127.0.0.1"]);
    command.args(["--port", &port.to_string(), "--log-level", "error", "--api-key", &key]);
    if let Some(file) = config {
        command.arg("--config").arg(file);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let begun = Instant::now();
    let child = command.spawn().map_err(CliError::io("cannot start the server"))?;
    let mut server = Server(child);
    while !client.is_healthy().await {
        let ended = server.0.try_wait().map_err(CliError::io("cannot look at the server"))?;
        if let Some(status) = ended {
            let message = "the server ended before it was healthy; `playhouse serve` with the same \
                           flags says why";
            return Err(CliError::Measure(format!("{message} ({status})")));
        }
        if begun.elapsed() > Duration::from_secs(args.timeout) {
            let message = format!("the server was not healthy after {} s", args.timeout);
            return Err(CliError::Measure(message));
        }
        tokio::time::sleep(LOOK).await;
    }
    let healthy = begun.elapsed();
    let (model, _) = client.first_model().await.map_err(CliError::Measure)?;
    let prompt = "Once upon a time".to_owned();
    let request = SampleRequest { prompt, prompt_len: 0, output_len: 1 };
    let output = client.for_model(model).generate(&request, begun).await;
    if let Some(error) = output.error {
        return Err(CliError::Measure(error));
    }
    let first_token = Duration::from_secs_f64(output.start_time + output.ttft);
    let (resident, peak_resident) = memory(server.0.id()).unzip();
    Ok(Start { healthy, first_token, resident, peak_resident })
}

/// Returns the resident memory of a process and its children in MB: now, and at most. `None` if the
/// system does not report it.
#[cfg(target_os = "linux")]
fn memory(pid: u32) -> Option<(f64, f64)> {
    let process = |pid: u32| Process::new(pid.try_into().ok()?).ok();
    let server = process(pid)?;
    let children = server.tasks().ok()?.flatten().filter_map(|task| task.children().ok());
    // A child that has just begun or ended has no memory.
    let children = children.flatten().filter_map(|pid| process(pid)?.status().ok());
    let all: Vec<Status> = [server.status().ok()?].into_iter().chain(children).collect();
    let sum = |value: fn(&Status) -> Option<u64>| {
        let kibibytes: u64 = all.iter().filter_map(value).sum();
        kibibytes as f64 * 1024.0 / 1e6
    };
    Some((sum(|status| status.vmrss), sum(|status| status.vmhwm)))
}

/// Returns `None`, because only Linux reports it in this way.
#[cfg(not(target_os = "linux"))]
fn memory(_: u32) -> Option<(f64, f64)> {
    None
}

fn distribution(starts: &[Start], value: fn(&Start) -> Option<f64>) -> Option<Distribution> {
    let values: Option<Vec<f64>> = starts.iter().map(value).collect();
    values.map(Distribution::of)
}

fn to_table(starts: &[Start]) -> String {
    let mut text = format!("{:<24} {:>10} {:>10} {:>10}\n", "", "median", "min", "max");
    for (name, unit, value) in FIGURES {
        let Some(values) = distribution(starts, value) else { continue };
        let [median, min, max] = [50.0, 0.0, 100.0].map(|percent| values.percentile(percent));
        let label = format!("{} ({unit})", name.replace('_', " "));
        let digits = if unit == "s" { 3 } else { 0 };
        text += &format!("{label:<24} {median:>10.digits$} {min:>10.digits$} {max:>10.digits$}\n");
    }
    text
}

fn to_json(starts: &[Start]) -> Value {
    let mut fields = Map::new();
    for (name, unit, value) in FIGURES {
        let Some(values) = distribution(starts, value) else { continue };
        let all: Value = starts.iter().filter_map(value).map(rounded).collect();
        let name = format!("{name}_{}", unit.to_lowercase());
        fields.insert(format!("median_{name}"), json!(rounded(values.median())));
        fields.insert(name, all);
    }
    Value::Object(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn memory_is_that_of_a_process_and_its_children() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "sleep 600 & read line; kill $!"]).stdin(Stdio::piped());
        let mut shell = shell.spawn().unwrap();
        let process = Process::new(shell.id().try_into().unwrap()).unwrap();
        let mut sums = Vec::new();
        for _ in 0..1_000 {
            let alone = process.status().unwrap().vmrss.unwrap() as f64 * 1024.0 / 1e6;
            let (resident, peak) = memory(shell.id()).unwrap();
            assert!(resident >= alone && peak >= resident, "{resident} of {alone}, most {peak}");
            sums.push(resident > alone);
            if sums.ends_with(&[true; 3]) {
                break;
            }
            std::thread::park_timeout(LOOK);
        }
        assert!(sums.ends_with(&[true; 3]), "the child was not counted");
        drop(shell.stdin.take());
        shell.wait().unwrap();
        assert_eq!(memory(u32::MAX), None);
    }
}

//! Limits of the address space. A request for memory beyond them fails with a message, and nothing
//! aborts.

use std::process::Command;

/// Returns the result of one answer under a limit in KiB: the exit code, which is `None` for a
/// signal, and standard error.
fn generate(limit_kib: u64, flags: &str) -> (Option<i32>, String) {
    let program = env!("CARGO_BIN_EXE_playhouse");
    let line = format!(
        "ulimit -v {limit_kib}; ulimit -c 0; exec {program} generate --max-model-len 512 \
         --max-tokens 4 {flags} 'Once upon a time'"
    );
    let output = Command::new("sh").args(["-c", &line]).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[cfg(target_os = "linux")]
#[test]
fn under_every_limit_it_answers_or_names_the_failed_allocation() {
    let (mut answered, mut refused) = (0, 0);
    // The program of the tests has 200 MiB itself.
    for limit_mib in [240, 256, 320, 384, 512, 768, 1024, 2048, 8192] {
        let (code, stderr) = generate(limit_mib << 10, "--kv-cache-memory-bytes 64MiB");
        match code {
            Some(0) => answered += 1,
            Some(1 | 71) if stderr.contains("error: ") => refused += 1,
            _ => panic!("{limit_mib} MiB: {code:?} {stderr}"),
        }
    }
    assert!(answered > 0 && refused > 0, "{answered} answered, {refused} refused");
}

#[cfg(target_os = "linux")]
#[test]
fn a_kv_cache_beyond_the_limit_is_refused_with_its_size() {
    let (code, stderr) = generate(8 << 20, "--kv-cache-memory-bytes 32GiB");
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains("KV cache") && stderr.contains("bytes"), "{stderr}");
}

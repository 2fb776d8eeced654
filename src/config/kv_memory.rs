//! How much memory the KV cache gets when nobody says.

use super::EngineConfig;

/// Share of the memory available after the weights are loaded that the KV cache may take. The rest
/// is for activations, for the page cache that holds mapped files, and for other programs: unlike
/// a GPU's, a machine's memory is not ours alone, and an arena that makes it swap is worse than one
/// that preempts.
pub const KV_CACHE_MEMORY_SHARE: f64 = 0.5;

impl EngineConfig {
    /// Bytes for the KV cache: `kv_cache_memory_bytes` if given; else
    /// [`KV_CACHE_MEMORY_SHARE`] of `available_bytes`, but at most what `max_num_seqs` requests of
    /// `max_model_len` tokens need, `token_bytes` each, and one null block.
    #[must_use]
    pub fn kv_cache_budget_bytes(
        &self,
        available_bytes: u64,
        token_bytes: u64,
        max_model_len: usize,
    ) -> u64 {
        if let Some(bytes) = self.kv_cache_memory_bytes {
            return bytes;
        }
        let blocks_a_request = max_model_len.div_ceil(self.block_size.max(1)) as u64;
        let blocks = blocks_a_request.saturating_mul(self.max_num_seqs as u64).saturating_add(1);
        let block_bytes = token_bytes.saturating_mul(self.block_size as u64);
        let share = available_bytes as f64 * KV_CACHE_MEMORY_SHARE;
        blocks.saturating_mul(block_bytes).min(share as u64)
    }
}

/// Bytes of memory that could be had now without swapping: what the system says is available,
/// within the limit of this process's control group. `None` where the system does not say.
#[must_use]
pub fn available_memory_bytes() -> Option<u64> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").ok()?;
    let available = meminfo_bytes(&meminfo, "MemAvailable")?;
    Some(cgroup_headroom_bytes().map_or(available, |headroom| available.min(headroom)))
}

/// Bytes of memory that this machine has. `None` where the system does not say.
#[must_use]
pub fn total_memory_bytes() -> Option<u64> {
    meminfo_bytes(&std::fs::read_to_string("/proc/meminfo").ok()?, "MemTotal")
}

fn meminfo_bytes(meminfo: &str, field: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// What is left below the memory limit of a container (control groups, version 2).
fn cgroup_headroom_bytes() -> Option<u64> {
    let read = |name| std::fs::read_to_string(format!("/sys/fs/cgroup/{name}")).ok();
    let limit: u64 = read("memory.max")?.trim().parse().ok()?;
    let current: u64 = read("memory.current")?.trim().parse().ok()?;
    Some(limit.saturating_sub(current))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_what_is_free_but_no_more_than_can_be_used() {
        let config = EngineConfig { max_num_seqs: 2, block_size: 16, ..EngineConfig::new("m") };
        // 2 requests × 7 blocks (100 tokens) and the null block, 16 × 10 bytes each.
        assert_eq!(config.kv_cache_budget_bytes(1 << 30, 10, 100), 15 * 160);
        assert_eq!(config.kv_cache_budget_bytes(1_000, 10, 100), 500);
        let given = EngineConfig { kv_cache_memory_bytes: Some(7), ..config };
        assert_eq!(given.kv_cache_budget_bytes(1 << 30, 10, 100), 7);
    }

    #[test]
    fn meminfo_is_read() {
        let meminfo = "MemTotal:       16000 kB\nMemFree:  5 kB\nMemAvailable:    8000 kB\n";
        assert_eq!(meminfo_bytes(meminfo, "MemAvailable"), Some(8_192_000));
        assert_eq!(meminfo_bytes(meminfo, "MemTotal"), Some(16_384_000));
        assert_eq!(meminfo_bytes(meminfo, "Mem"), None);
    }
}

//! How much memory the KV cache gets when nobody says.

use super::EngineConfig;

/// Share of the memory available after the weights are loaded that the KV cache may take on a CPU.
/// The rest is for activations, for the page cache that holds mapped files, and for other programs:
/// unlike a GPU's, a machine's memory is not ours alone, and an arena that makes it swap is worse
/// than one that preempts.
pub const KV_CACHE_MEMORY_SHARE: f64 = 0.5;

impl EngineConfig {
    /// Bytes for the KV cache: `kv_cache_memory_bytes` if given; else those that are `free` for it,
    /// but at most what `max_num_seqs` requests of `max_model_len` tokens need in blocks of
    /// `block_bytes`, and one null block.
    #[must_use]
    pub fn kv_cache_budget_bytes(&self, free: u64, block_bytes: u64, max_model_len: usize) -> u64 {
        if let Some(bytes) = self.kv_cache_memory_bytes {
            return bytes;
        }
        let blocks_a_request = max_model_len.div_ceil(self.block_size.max(1)) as u64;
        let blocks = blocks_a_request.saturating_mul(self.max_num_seqs as u64).saturating_add(1);
        blocks.saturating_mul(block_bytes).min(free)
    }

    /// Bytes that are free for the KV cache of a CPU of whose memory `available` are.
    #[must_use]
    pub fn free_for_kv_cache_on_cpu(available: u64) -> u64 {
        (available as f64 * KV_CACHE_MEMORY_SHARE) as u64
    }

    /// Bytes that are free for the KV cache of a GPU of `total` bytes which holds `held` of ours:
    /// the rest of [`EngineConfig::gpu_memory_utilization`].
    #[must_use]
    pub fn free_for_kv_cache_on_gpu(&self, total: u64, held: u64) -> u64 {
        ((total as f64 * self.gpu_memory_utilization) as u64).saturating_sub(held)
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
    fn what_is_free_but_no_more_than_can_be_used() {
        let config = EngineConfig { max_num_seqs: 2, block_size: 16, ..EngineConfig::new("m") };
        // 2 requests × 7 blocks (100 tokens) and the null block.
        assert_eq!(config.kv_cache_budget_bytes(1 << 30, 160, 100), 15 * 160);
        assert_eq!(config.kv_cache_budget_bytes(500, 160, 100), 500);
        let given = EngineConfig { kv_cache_memory_bytes: Some(7), ..config };
        assert_eq!(given.kv_cache_budget_bytes(1 << 30, 160, 100), 7);
    }

    #[test]
    fn half_of_a_machine_is_free_and_a_gpu_but_for_what_it_holds() {
        let config = EngineConfig { gpu_memory_utilization: 0.75, ..EngineConfig::new("m") };
        assert_eq!(EngineConfig::free_for_kv_cache_on_cpu(1_000), 500);
        assert_eq!(config.free_for_kv_cache_on_gpu(1_000, 600), 150);
        assert_eq!(config.free_for_kv_cache_on_gpu(1_000, 800), 0);
    }

    #[test]
    fn meminfo_is_read() {
        let meminfo = "MemTotal:       16000 kB\nMemFree:  5 kB\nMemAvailable:    8000 kB\n";
        assert_eq!(meminfo_bytes(meminfo, "MemAvailable"), Some(8_192_000));
        assert_eq!(meminfo_bytes(meminfo, "MemTotal"), Some(16_384_000));
        assert_eq!(meminfo_bytes(meminfo, "Mem"), None);
    }
}

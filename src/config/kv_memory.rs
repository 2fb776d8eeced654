//! The size of the KV cache without a setting.

use std::{fs, path::Path};

use super::EngineConfig;

/// Share of memory that the KV cache may take on a CPU. It is a share of the memory that is
/// available after the weights are loaded. The rest is for activations, for the page cache that
/// holds mapped files, and for other programs. Other programs use a machine's memory too, unlike a
/// GPU's. A cache that makes the machine swap is worse than one that preempts.
pub const KV_CACHE_MEMORY_SHARE: f64 = 0.5;

/// The part of a GPU's memory that recorded steps may hold, and the largest amount. For a model of
/// 8 billion parameters, a recorded step holds some 300 KB a row.
const STEP_GRAPH_PART: u64 = 32;
const STEP_GRAPH_BYTES_MAX: u64 = 2 << 30;
/// The amount if the size of the memory is unknown.
const STEP_GRAPH_BYTES: u64 = 256 << 20;

/// The folder of control groups.
const CONTROL_GROUPS: &str = "/sys/fs/cgroup";

impl EngineConfig {
    /// Returns the bytes for the KV cache: `kv_cache_memory_bytes` if given, otherwise the `free`
    /// bytes. The latter are limited to the need of `max_num_seqs` requests of `blocks_a_request`
    /// blocks of `block_bytes`, and one null block.
    #[must_use]
    pub fn kv_cache_budget_bytes(
        &self,
        free: u64,
        block_bytes: u64,
        blocks_a_request: usize,
    ) -> u64 {
        if let Some(bytes) = self.kv_cache_memory_bytes {
            return bytes;
        }
        let blocks = (blocks_a_request as u64).saturating_mul(self.max_num_seqs as u64);
        blocks.saturating_add(1).saturating_mul(block_bytes).min(free)
    }

    /// Returns the bytes that are free for the KV cache of a CPU with `available` bytes of memory.
    /// Weights of `mapped` bytes are pages of files, and are subtracted. Otherwise the system would
    /// drop them, and every step would read them again.
    #[must_use]
    pub fn free_for_kv_cache_on_cpu(available: u64, mapped: u64) -> u64 {
        (available.saturating_sub(mapped) as f64 * KV_CACHE_MEMORY_SHARE) as u64
    }

    /// Returns the bytes that are free for the KV cache of a GPU of `total` bytes, of which this
    /// process holds `held`. They are the share [`EngineConfig::gpu_memory_utilization`] of all
    /// bytes, without the held bytes and those for recorded steps.
    #[must_use]
    pub fn free_for_kv_cache_on_gpu(&self, total: u64, held: u64) -> u64 {
        let ours = (total as f64 * self.gpu_memory_utilization) as u64;
        ours.saturating_sub(held).saturating_sub(self.step_graph_bytes(Some(total)))
    }

    /// Returns the bytes that recorded steps may hold on a GPU of `total` bytes, if that is known.
    /// Returns 0 if steps are not recorded.
    #[must_use]
    pub fn step_graph_bytes(&self, total: Option<u64>) -> u64 {
        match total {
            _ if self.enforce_eager => 0,
            Some(total) => (total / STEP_GRAPH_PART).min(STEP_GRAPH_BYTES_MAX),
            None => STEP_GRAPH_BYTES,
        }
    }
}

/// Returns the bytes of memory that are available now without swapping. They are the system's
/// number, limited by this process's control groups. `None` if the system does not report it.
#[must_use]
pub fn available_memory_bytes() -> Option<u64> {
    let meminfo = fs::read_to_string("/proc/meminfo").ok()?;
    let available = meminfo_bytes(&meminfo, "MemAvailable")?;
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let headroom = headroom_bytes(Path::new(CONTROL_GROUPS), own_group(&groups));
    Some(headroom.map_or(available, |headroom| available.min(headroom)))
}

/// Returns the bytes of memory that this machine has. `None` if the system does not report it.
#[must_use]
pub fn total_memory_bytes() -> Option<u64> {
    meminfo_bytes(&fs::read_to_string("/proc/meminfo").ok()?, "MemTotal")
}

fn meminfo_bytes(meminfo: &str, field: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Returns the control group (version 2) that `/proc/self/cgroup` names, or the root if it names
/// none.
fn own_group(groups: &str) -> &str {
    groups.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/")
}

/// Returns the bytes that are left below the tightest memory limit of the control group `group` and
/// its ancestors, whose root is in `root`. A container may see its own group as the root, so
/// folders that do not exist have no limit.
fn headroom_bytes(root: &Path, group: &str) -> Option<u64> {
    let group = Path::new(group.trim_start_matches('/'));
    group.ancestors().filter_map(|group| group_headroom_bytes(&root.join(group))).min()
}

/// Returns the bytes that are left below the limit of the control group in `folder`, if it has one.
fn group_headroom_bytes(folder: &Path) -> Option<u64> {
    let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
    let limit: u64 = read("memory.max")?.trim().parse().ok()?;
    let current: u64 = read("memory.current")?.trim().parse().ok()?;
    // The system drops pages of files before an allocation fails.
    let stat = read("memory.stat").unwrap_or_default();
    let pages = |field| stat_bytes(&stat, field).unwrap_or(0);
    let files = pages("inactive_file").saturating_add(pages("active_file"));
    Some(limit.saturating_sub(current.saturating_sub(files)))
}

fn stat_bytes(stat: &str, field: &str) -> Option<u64> {
    let line = stat.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(' '))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_takes_free_memory_up_to_its_need() {
        let config = EngineConfig { max_num_seqs: 2, ..EngineConfig::new("m") };
        // 2 requests × 7 blocks and the null block.
        assert_eq!(config.kv_cache_budget_bytes(1 << 30, 160, 7), 15 * 160);
        assert_eq!(config.kv_cache_budget_bytes(500, 160, 7), 500);
        let given = EngineConfig { kv_cache_memory_bytes: Some(7), ..config };
        assert_eq!(given.kv_cache_budget_bytes(1 << 30, 160, 7), 7);
    }

    #[test]
    fn half_of_a_machine_and_the_rest_of_a_gpu_are_free() {
        let config = EngineConfig { gpu_memory_utilization: 0.75, ..EngineConfig::new("m") };
        assert_eq!(EngineConfig::free_for_kv_cache_on_cpu(1_000, 0), 500);
        assert_eq!(EngineConfig::free_for_kv_cache_on_cpu(1_000, 400), 300);
        assert_eq!(EngineConfig::free_for_kv_cache_on_cpu(1_000, 1_001), 0);
        assert_eq!(config.free_for_kv_cache_on_gpu(1_000, 600), 150 - 31);
        assert_eq!(config.free_for_kv_cache_on_gpu(1_000, 730), 0);
        assert_eq!(config.free_for_kv_cache_on_gpu(1_000, 800), 0);
        let eager = EngineConfig { enforce_eager: true, ..config };
        assert_eq!(eager.free_for_kv_cache_on_gpu(1_000, 600), 150);
    }

    #[test]
    fn recorded_steps_may_hold_a_part_of_a_gpu() {
        let config = EngineConfig::new("m");
        let bytes = [Some(8 << 30), Some(141_000_000_000), None];
        let held = bytes.map(|total| config.step_graph_bytes(total));
        assert_eq!(held, [256 << 20, 2 << 30, 256 << 20]);
        let eager = EngineConfig { enforce_eager: true, ..config };
        assert_eq!(bytes.map(|total| eager.step_graph_bytes(total)), [0; 3]);
    }

    #[test]
    fn meminfo_is_read() {
        let meminfo = "MemTotal:       16000 kB\nMemFree:  5 kB\nMemAvailable:    8000 kB\n";
        assert_eq!(meminfo_bytes(meminfo, "MemAvailable"), Some(8_192_000));
        assert_eq!(meminfo_bytes(meminfo, "MemTotal"), Some(16_384_000));
        assert_eq!(meminfo_bytes(meminfo, "Mem"), None);
    }

    #[test]
    fn the_own_control_group_is_found_among_those_of_version_1() {
        assert_eq!(own_group("12:memory:/a\n0::/b/c.scope\n1:name=systemd:/d\n"), "/b/c.scope");
        assert_eq!(own_group("0::/\n"), "/");
        assert_eq!(own_group("12:memory:/a\n"), "/");
        assert_eq!(own_group(""), "/");
    }

    /// Returns control groups by their paths below the root, each with limit, use, and the
    /// statistics.
    fn control_groups(groups: &[(&str, &str, &str, &str)]) -> tempfile::TempDir {
        let root = tempfile::TempDir::new().unwrap();
        for (group, max, current, stat) in groups {
            let folder = root.path().join(group);
            fs::create_dir_all(&folder).unwrap();
            for (name, text) in
                [("memory.max", max), ("memory.current", current), ("memory.stat", stat)]
            {
                fs::write(folder.join(name), text).unwrap();
            }
        }
        root
    }

    #[test]
    fn the_tightest_control_group_above_counts() {
        let stat = "anon 50\ninactive_file 30\nactive_file 10\nactive_file_x 7\n";
        let root = control_groups(&[
            ("a", "1000\n", "400\n", ""),
            ("a/b", "max\n", "100\n", stat),
            ("a/b/c", "900\n", "90\n", stat),
            ("a/other", "10\n", "9\n", ""),
        ]);
        let headroom = |group| headroom_bytes(root.path(), group);
        // The group's own limit leaves 900 - (90 - 40), and that of the top group leaves 1000 -
        // 400.
        assert_eq!(headroom("/a/b/c"), Some(600));
        assert_eq!(headroom("/a/other"), Some(1));
        assert_eq!(headroom("/a/b/gone"), Some(600));
        assert_eq!(headroom("/elsewhere"), None, "nothing has a limit there");
        assert_eq!(headroom("/"), None);
    }

    #[test]
    fn pages_of_files_do_not_count_as_used_memory() {
        let left = |current, stat| {
            let root = control_groups(&[("", "1000\n", current, stat)]);
            // In a container, the mount may give the group another name than the system does.
            headroom_bytes(root.path(), "/docker/0123")
        };
        assert_eq!(left("700\n", "inactive_file 300\nactive_file 200\n"), Some(800));
        assert_eq!(left("700\n", "active_file 200\n"), Some(500));
        assert_eq!(left("700\n", "nonsense"), Some(300));
        assert_eq!(left("1200\n", ""), Some(0));
        assert_eq!(left("100\n", "inactive_file 300\n"), Some(1000), "never above the limit");
        assert_eq!(left("nonsense", ""), None);
    }
}

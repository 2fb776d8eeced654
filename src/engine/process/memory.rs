//! Kills of processes by the system, because the memory of their control group was used up.

use std::{fs, path::Path};

/// Returns how often the system has ended a process of this process's control group, or of one
/// below it, because its memory was used up. `None` where the system does not count that.
pub(super) fn oom_kills() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    kills_in(&groups, Path::new("/sys/fs/cgroup"))
}

/// Returns the count of the control group that `groups`, the content of `/proc/self/cgroup`, names.
/// Within a container the group's own folder may be the mounted one.
fn kills_in(groups: &str, mounted: &Path) -> Option<u64> {
    groups.lines().find_map(|line| {
        let (kind, group) = line.split_once(':')?.1.split_once(':')?;
        // Version 2 has one hierarchy, version 1 one for each kind.
        let (root, file) = match kind {
            "" => (mounted.to_owned(), "memory.events"),
            "memory" => (mounted.join(kind), "memory.oom_control"),
            _ => return None,
        };
        let own = root.join(group.trim_start_matches('/')).join(file);
        let text = fs::read_to_string(own).or_else(|_| fs::read_to_string(root.join(file))).ok()?;
        text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_that_of_the_own_group() {
        let mounted = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| {
            let file = mounted.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        let kills = |groups: &str| kills_in(groups, mounted.path());
        assert_eq!(kills("0::/a/b\n"), None);
        write("memory.events", "oom 9\noom_kill 9\n");
        assert_eq!(kills("0::/a/b\n"), Some(9), "the mounted folder is the group's");
        write("a/b/memory.events", "low 1\noom 5\noom_kill 3\noom_group_kill 0\n");
        assert_eq!(kills("0::/a/b\n"), Some(3));
        write("memory/c/memory.oom_control", "under_oom 0\noom_kill 2\n");
        assert_eq!(kills("4:memory:/c\n0::/\n"), Some(2));
        assert_eq!(kills("4:cpu:/c\n"), None);
    }
}

//! Free space of a disk.

use std::path::Path;

/// Returns the free bytes on the disk of `folder`, which need not exist yet. `None` if the system
/// does not say.
#[cfg(unix)]
pub(super) fn free_bytes(folder: &Path) -> Option<u64> {
    let there = folder.ancestors().find(|folder| folder.is_dir())?;
    let disk = nix::sys::statvfs::statvfs(there).ok()?;
    // These numbers have other widths on other systems.
    #[allow(clippy::useless_conversion, reason = "they are u32 on macOS")]
    u64::from(disk.blocks_available()).checked_mul(u64::from(disk.fragment_size()))
}

#[cfg(not(unix))]
pub(super) fn free_bytes(_: &Path) -> Option<u64> {
    None
}

/// Returns `bytes` with a unit.
pub(super) fn shown(bytes: u64) -> String {
    let units = [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")];
    let exact = bytes as f64;
    let unit = units.into_iter().find(|(size, _)| exact >= *size);
    unit.map_or_else(|| format!("{bytes} B"), |(size, name)| format!("{:.1} {name}", exact / size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_a_unit() {
        let all = [0, 999, 1_500, 10_434_944, 1_503_300_328].map(shown);
        assert_eq!(all, ["0 B", "999 B", "1.5 kB", "10.4 MB", "1.5 GB"]);
    }

    #[cfg(unix)]
    #[test]
    fn a_folder_that_does_not_exist_has_its_disks_space() {
        let folder = std::env::temp_dir().join("none/of/these");
        assert!(free_bytes(&folder).is_some());
    }
}

//! The memory for requests without a setting.

use playhouse_actors::logic::memory::LIMIT_BYTES_MIN;

use super::EngineConfig;

/// Share of the memory available once the model is loaded that requests may take. The KV cache
/// takes up to a half, and the rest is for activations, for mapped files and for other programs.
pub const REQUEST_MEMORY_SHARE: f64 = 0.25;
/// The memory if the system does not report how much is available.
const REQUEST_MEMORY_BYTES: u64 = 1 << 30;

impl EngineConfig {
    /// Returns the bytes for requests and their outputs: `max_request_memory_bytes` if given,
    /// otherwise a share of the `available` bytes.
    #[must_use]
    pub fn request_memory_bytes(&self, available: Option<u64>) -> usize {
        let share = |available: u64| (available as f64 * REQUEST_MEMORY_SHARE) as u64;
        let default = || available.map_or(REQUEST_MEMORY_BYTES, share);
        let bytes = self.max_request_memory_bytes.unwrap_or_else(default);
        usize::try_from(bytes).unwrap_or(usize::MAX).max(LIMIT_BYTES_MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_get_the_setting_or_a_quarter_of_free_memory() {
        let config = EngineConfig::new("m");
        assert_eq!(config.request_memory_bytes(Some(8 << 30)), 2 << 30);
        assert_eq!(config.request_memory_bytes(None), 1 << 30);
        assert_eq!(config.request_memory_bytes(Some(1 << 20)), LIMIT_BYTES_MIN);
        let given = EngineConfig { max_request_memory_bytes: Some(64 << 20), ..config };
        assert_eq!(given.request_memory_bytes(Some(8 << 30)), 64 << 20);
    }
}

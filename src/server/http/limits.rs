//! Checks of the sizes in a request against the server's limits.

use super::error::ApiError;

/// Most characters of a salt.
const CACHE_SALT_MAX: usize = 128;

/// Rejects a list that is too long, with the name of its field.
pub(in crate::server) fn at_most(field: &str, count: usize, limit: usize) -> Result<(), ApiError> {
    if count <= limit {
        return Ok(());
    }
    let message = format!("{field} must hold at most {limit} items, got {count}");
    Err(ApiError::invalid(field, message))
}

/// Rejects more choices in all than one request may have.
pub(in crate::server) fn choices(n: usize, prompts: usize, limit: usize) -> Result<(), ApiError> {
    if n.saturating_mul(prompts) <= limit {
        return Ok(());
    }
    let message =
        format!("n times the number of prompts must be at most {limit}, got {n} x {prompts}");
    Err(ApiError::invalid("n", message))
}

/// Rejects a salt of the prefix cache that vLLM does not take either.
pub(in crate::server) fn cache_salt(salt: Option<&str>) -> Result<(), ApiError> {
    let Some(salt) = salt else { return Ok(()) };
    if salt.is_empty() {
        let message = "Parameter 'cache_salt' must be a non-empty string if provided.";
        return Err(ApiError::invalid("cache_salt", message));
    }
    if salt.chars().count() > CACHE_SALT_MAX || salt.contains(['@', '/', '\\', '\0']) {
        let message = format!(
            "Parameter 'cache_salt' must be at most {CACHE_SALT_MAX} characters and must not \
             contain '@', '/', '\\\\', or NUL."
        );
        return Err(ApiError::invalid("cache_salt", message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cases of vLLM's `validate_cache_salt`.
    #[test]
    fn a_salt_has_some_characters_and_none_that_paths_have() {
        for salt in ["a", "é", &"é".repeat(128), " ", "a:b\n"] {
            assert_eq!(cache_salt(Some(salt)), Ok(()), "{salt:?}");
        }
        assert_eq!(cache_salt(None), Ok(()));
        for salt in ["", "\0", "a\0b", "a/b", "a\\b", "@", &"x".repeat(129)] {
            let error = cache_salt(Some(salt)).unwrap_err();
            assert_eq!(error.param.as_deref(), Some("cache_salt"), "{salt:?}");
        }
        let empty = "Parameter 'cache_salt' must be a non-empty string if provided.";
        assert_eq!(cache_salt(Some("")).unwrap_err().message, empty);
    }

    #[test]
    fn an_error_names_field_and_limit() {
        assert_eq!(at_most("stop", 4, 4), Ok(()));
        let error = at_most("stop", 5, 4).unwrap_err();
        assert_eq!(error.param.as_deref(), Some("stop"));
        assert_eq!(error.message, "stop must hold at most 4 items, got 5");
    }

    #[test]
    fn choices_are_counted_over_all_prompts() {
        assert_eq!(choices(8, 2, 16), Ok(()));
        assert_eq!(choices(9, 2, 16).unwrap_err().param.as_deref(), Some("n"));
        assert!(choices(usize::MAX, 2, 16).is_err());
    }
}

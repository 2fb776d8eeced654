//! Checks of the sizes in a request against the server's limits.

use super::error::ApiError;

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

#[cfg(test)]
mod tests {
    use super::*;

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

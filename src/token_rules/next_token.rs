//! The tokens that may come next.

use std::collections::BTreeSet;

use playhouse_actors::logic::request::ids::TokenId;

/// The bias of a forbidden token.
const FORBIDDEN: f32 = f32::NEG_INFINITY;
/// The largest bias, the same as for `logit_bias`.
const BIAS_MAX: f32 = 100.0;

/// The tokens that may come next in a request: the request's own `allowed_token_ids` and
/// `logit_bias`, and those of its rules. A token that no rule mentions stays as it is.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct NextToken {
    allowed: Option<Vec<TokenId>>,
    biases: Vec<(TokenId, f32)>,
}

impl NextToken {
    /// Returns the restrictions of a request before its rules run.
    pub(crate) fn new(allowed: Option<&[TokenId]>, biases: &[(TokenId, f32)]) -> Self {
        Self { allowed: allowed.map(<[TokenId]>::to_vec), biases: biases.to_vec() }
    }

    /// Forbids all tokens except these. If several rules call it, the tokens that all of them allow
    /// are left.
    pub fn allow_only(&mut self, tokens: impl IntoIterator<Item = TokenId>) {
        let tokens: BTreeSet<TokenId> = tokens.into_iter().collect();
        match &mut self.allowed {
            Some(allowed) => allowed.retain(|token| tokens.contains(token)),
            none => *none = Some(tokens.into_iter().collect()),
        }
    }

    /// Forbids `token`. To forbid most of the vocabulary, use [`NextToken::allow_only`].
    pub fn forbid(&mut self, token: TokenId) {
        self.biases.push((token, FORBIDDEN));
    }

    /// Adds `bias` to the logit of `token`. Biases of one token add up. Each is clamped to ±100,
    /// and one that is not a number is ignored.
    pub fn bias(&mut self, token: TokenId, bias: f32) {
        if !bias.is_nan() {
            self.biases.push((token, bias.clamp(-BIAS_MAX, BIAS_MAX)));
        }
    }

    /// Returns the tokens that may come, if not all may.
    pub(crate) fn allowed(&self) -> Option<&[TokenId]> {
        self.allowed.as_deref()
    }

    /// Returns the numbers to add to the logits of tokens.
    pub(crate) fn biases(&self) -> &[(TokenId, f32)] {
        &self.biases
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_allowed_if_all_rules_allow_it() {
        let mut next = NextToken::new(Some(&[5, 3, 9]), &[]);
        next.allow_only([9, 5, 7]);
        assert_eq!(next.allowed(), Some(&[5, 9][..]));
        let mut next = NextToken::default();
        assert_eq!(next.allowed(), None);
        next.allow_only([2, 1, 2]);
        assert_eq!(next.allowed(), Some(&[1, 2][..]));
        next.allow_only([]);
        assert_eq!(next.allowed(), Some(&[][..]));
    }

    #[test]
    fn biases_come_after_the_requests_own_and_are_finite_or_forbid() {
        let mut next = NextToken::new(None, &[(1, 0.5)]);
        next.bias(2, f32::INFINITY);
        next.bias(3, f32::NAN);
        next.forbid(4);
        assert_eq!(next.biases(), [(1, 0.5), (2, 100.0), (4, f32::NEG_INFINITY)]);
    }
}

//! Token rules by name: those that a program registers, and those of a running engine.

use std::{error::Error, fmt, sync::Arc};

use indexmap::IndexMap;
use playhouse_actors::{error::RequestError, logic::request::sampling_params::TokenRuleCall};
use serde_json::Value;

use super::{RequestRule, TokenRule, Vocabulary};

/// The most rules of one request.
const RULES_MAX: usize = 16;
/// The largest argument of a rule, in bytes of JSON.
const ARGUMENT_BYTES_MAX: usize = 64 << 10;
/// The name of a request's rules in errors.
const FIELD: &str = "token_rules";

/// Makes a rule for the model that was loaded.
type Factory = Arc<dyn Fn(&Vocabulary<'_>) -> Result<Box<dyn TokenRule>, BoxError> + Send + Sync>;

type BoxError = Box<dyn Error + Send + Sync>;

/// The rules that an engine will have.
#[derive(Clone, Default)]
pub struct TokenRuleRegistry {
    factories: IndexMap<String, Factory>,
}

/// The registry has a rule of that name already.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is a token rule '{name}' already")]
pub struct DuplicateTokenRule {
    /// The name.
    pub name: String,
}

/// A rule could not be made for the model.
#[derive(Debug, thiserror::Error)]
#[error("the token rule '{name}' could not be made: {source}")]
pub struct TokenRuleError {
    /// The rule.
    pub name: String,
    /// The reason.
    pub source: BoxError,
}

impl TokenRuleRegistry {
    /// Adds the rule `name`. `make` is called once for an engine, when its tokenizer is loaded.
    ///
    /// # Errors
    /// [`DuplicateTokenRule`] if the name has a rule already, which stays.
    pub fn register(
        &mut self,
        name: impl Into<String>,
        make: impl Fn(&Vocabulary<'_>) -> Result<Box<dyn TokenRule>, BoxError> + Send + Sync + 'static,
    ) -> Result<(), DuplicateTokenRule> {
        let name = name.into();
        if self.factories.contains_key(&name) {
            return Err(DuplicateTokenRule { name });
        }
        self.factories.insert(name, Arc::new(make));
        Ok(())
    }

    /// Makes all rules.
    pub(crate) fn make(&self, vocabulary: &Vocabulary<'_>) -> Result<TokenRules, TokenRuleError> {
        let made = self.factories.iter().map(|(name, make)| match make(vocabulary) {
            Ok(rule) => Ok((name.clone(), rule)),
            Err(source) => Err(TokenRuleError { name: name.clone(), source }),
        });
        Ok(TokenRules { rules: made.collect::<Result<_, _>>()? })
    }
}

impl fmt::Debug for TokenRuleRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.factories.keys()).finish()
    }
}

/// The rules of a running engine.
#[derive(Default)]
pub struct TokenRules {
    rules: IndexMap<String, Box<dyn TokenRule>>,
}

impl TokenRules {
    /// Returns the names of all rules, in the order in which they were registered.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.rules.keys().map(String::as_str)
    }

    /// Checks the rules that a request asks for: their number, their names and their arguments.
    ///
    /// # Errors
    /// [`RequestError::InvalidParameter`] names the fault, and lists the engine's rules.
    pub fn check(&self, calls: &[TokenRuleCall]) -> Result<(), RequestError> {
        if calls.len() > RULES_MAX {
            let accepted = format!("at most {RULES_MAX} rules");
            return Err(RequestError::invalid(FIELD, calls.len(), accepted));
        }
        calls.iter().try_for_each(|call| self.for_request(call).map(drop))
    }

    /// Returns a rule with the argument of a request.
    pub(crate) fn for_request(
        &self,
        call: &TokenRuleCall,
    ) -> Result<Box<dyn RequestRule>, RequestError> {
        let TokenRuleCall { name, argument } = call;
        let rule = self.rules.get(name).ok_or_else(|| self.unknown(name))?;
        let field = format!("{FIELD}.{name}");
        if argument.len() > ARGUMENT_BYTES_MAX {
            let value = format!("{} bytes", argument.len());
            let accepted = format!("at most {ARGUMENT_BYTES_MAX} bytes of JSON");
            return Err(RequestError::invalid(field, value, accepted));
        }
        let value: Value = serde_json::from_str(argument).map_err(|error| {
            let accepted = format!("the text of a JSON value ({error})");
            RequestError::invalid(&field, shown(argument), accepted)
        })?;
        rule.for_request(&value)
            .map_err(|accepted| RequestError::invalid(field, shown(argument), accepted))
    }

    fn unknown(&self, name: &str) -> RequestError {
        let known = Vec::from_iter(self.names()).join(", ");
        let accepted = match known.is_empty() {
            true => "empty: this engine has no token rules".to_owned(),
            false => format!("rules among {known}"),
        };
        RequestError::invalid(FIELD, shown(name), accepted)
    }
}

/// Returns the beginning of a client's text, for an error.
fn shown(text: &str) -> String {
    const SHOWN_CHARS: usize = 200;
    text.chars().take(SHOWN_CHARS).collect()
}

impl fmt::Debug for TokenRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.rules.keys()).finish()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{
        super::{NextToken, TokensSoFar},
        *,
    };

    /// A rule that forbids a token once the output has it n times: `{"token": id, "times": n}`.
    struct AtMost;

    struct AtMostOf {
        token: u32,
        times: usize,
    }

    impl TokenRule for AtMost {
        fn for_request(&self, argument: &Value) -> Result<Box<dyn RequestRule>, String> {
            let number = |name: &str| argument[name].as_u64().and_then(|n| u32::try_from(n).ok());
            match (number("token"), number("times")) {
                (Some(token), Some(times)) => {
                    Ok(Box::new(AtMostOf { token, times: times as usize }))
                }
                _ => Err("an object with `token` and `times`".to_owned()),
            }
        }
    }

    impl RequestRule for AtMostOf {
        fn restrict(&self, tokens: TokensSoFar<'_>, next: &mut NextToken) {
            let count = tokens.output.iter().filter(|token| **token == self.token).count();
            if count >= self.times {
                next.forbid(self.token);
            }
        }
    }

    /// A rule that allows the tokens from its argument to 99.
    struct From;

    struct FromToken(u32);

    impl TokenRule for From {
        fn for_request(&self, argument: &Value) -> Result<Box<dyn RequestRule>, String> {
            match argument.as_u64().and_then(|first| u32::try_from(first).ok()) {
                Some(first) => Ok(Box::new(FromToken(first))),
                None => Err("a token id".to_owned()),
            }
        }
    }

    impl RequestRule for FromToken {
        fn restrict(&self, _: TokensSoFar<'_>, next: &mut NextToken) {
            next.allow_only(self.0..100);
        }
    }

    /// Returns an engine's rules: `at_most` and `from`.
    pub(crate) fn rules() -> TokenRules {
        let rules: [(&str, Box<dyn TokenRule>); 2] =
            [("at_most", Box::new(AtMost)), ("from", Box::new(From))];
        let rules = rules.into_iter().map(|(name, rule)| (name.to_owned(), rule));
        TokenRules { rules: rules.collect() }
    }

    /// Returns a request's use of a rule.
    pub(crate) fn call(name: &str, argument: Value) -> TokenRuleCall {
        TokenRuleCall { name: name.to_owned(), argument: argument.to_string() }
    }

    fn refused(calls: &[TokenRuleCall]) -> String {
        rules().check(calls).unwrap_err().to_string()
    }

    #[test]
    fn names_and_arguments_are_checked() {
        let good = call("from", 3.into());
        assert_eq!(rules().check(std::slice::from_ref(&good)), Ok(()));
        let unknown = refused(&[good.clone(), call("upto", 3.into())]);
        assert_eq!(unknown, "token_rules must be rules among at_most, from, got upto");
        let none = TokenRules::default().check(std::slice::from_ref(&good)).unwrap_err();
        assert!(none.to_string().contains("no token rules"), "{none}");
        let argument = refused(&[call("from", "x".into())]);
        assert_eq!(argument, "token_rules.from must be a token id, got \"x\"");
        let broken = TokenRuleCall { name: "from".to_owned(), argument: "[".to_owned() };
        assert!(
            refused(&[broken]).starts_with("token_rules.from must be the text of a JSON value")
        );
        assert!(refused(&vec![good; RULES_MAX + 1]).contains("at most 16 rules"));
        let long = call("from", "x".repeat(ARGUMENT_BYTES_MAX).into());
        assert!(refused(&[long]).contains("bytes of JSON"));
    }

    #[test]
    fn a_name_has_one_rule() {
        let mut registry = TokenRuleRegistry::default();
        registry.register("from", |_| Ok(Box::new(From))).unwrap();
        let refused = registry.register("from", |_| Ok(Box::new(AtMost))).unwrap_err();
        assert_eq!(refused, DuplicateTokenRule { name: "from".to_owned() });
    }
}

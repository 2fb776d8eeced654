//! The ways in which a PEFT config names modules: `peft.tuners.tuners_utils`.

use onig::{MatchParam, RegexOptions, SearchOptions, Syntax};
use regex::Regex;
use serde_json::Value;

/// The value of `target_modules` for all linear layers.
const ALL_LINEAR: &str = "all-linear";
/// Most steps back in one match of an expression with look-arounds. Those of published adapters
/// take a few thousand.
const RETRIES_MAX: u32 = 1_000_000;

/// A key of `rank_pattern` or `alpha_pattern`: an expression for the end of a module's name, from
/// the beginning of a component on.
#[derive(Debug)]
pub(super) struct Pattern(Expression);

/// An expression for whole names.
#[derive(Debug)]
enum Expression {
    Plain(Regex),
    /// One with look-arounds or back-references.
    WithLookAround(onig::Regex),
}

impl Pattern {
    /// Reads a key.
    ///
    /// # Errors
    /// The fault of the expression.
    pub(super) fn of_key(key: &str) -> Result<Self, String> {
        Expression::new(&format!(r"^(?:.*\.)?(?:{key})$")).map(Self)
    }

    /// Returns whether the pattern names `module`.
    pub(super) fn matches(&self, module: &str) -> bool {
        self.0.is_match(module, false)
    }
}

/// The modules that an adapter changes by its config.
#[derive(Debug)]
pub(super) struct Targets {
    included: Names,
    excluded: Names,
}

#[derive(Debug)]
enum Names {
    /// The field is absent.
    Unset,
    All,
    /// The whole names of modules.
    Expression(Expression),
    /// Their names, or the ends of their names.
    List(Vec<String>),
}

impl Targets {
    /// Reads `target_modules` and `exclude_modules`.
    ///
    /// # Errors
    /// The field and its fault.
    pub(super) fn new(included: &Value, excluded: &Value) -> Result<Self, String> {
        let read = |field: &str, value| Names::read(value).map_err(|why| format!("{field}: {why}"));
        Ok(Self {
            included: read("target_modules", included)?,
            excluded: read("exclude_modules", excluded)?,
        })
    }

    /// Returns whether the config names `module`. Without `target_modules` it names every one.
    pub(super) fn have(&self, module: &str) -> bool {
        let is_included = match &self.included {
            Names::Unset => true,
            // A match that takes too long is an error: no module is named.
            names => names.have(module, false),
        };
        is_included && !self.excluded.have(module, true)
    }
}

impl Names {
    fn read(value: &Value) -> Result<Self, String> {
        match value {
            Value::Null => Ok(Self::Unset),
            Value::String(name) if name.to_lowercase() == ALL_LINEAR => Ok(Self::All),
            Value::String(pattern) => Expression::new(&format!("^(?:{pattern})$"))
                .map(Self::Expression)
                .map_err(|why| format!("`{pattern}`: {why}")),
            Value::Array(names) => {
                let name = |value: &Value| value.as_str().map(str::to_owned);
                let names: Option<Vec<String>> = names.iter().map(name).collect();
                names.map(Self::List).ok_or_else(|| "expected names of modules".to_owned())
            }
            other => Err(format!("{other}: expected a list of names, an expression or null")),
        }
    }

    /// Returns whether they name `module`, or `by_default` if that takes too long to find out.
    fn have(&self, module: &str, by_default: bool) -> bool {
        match self {
            Self::Unset => false,
            Self::All => true,
            Self::Expression(pattern) => pattern.is_match(module, by_default),
            Self::List(names) => names.iter().any(|name| is_end(module, name)),
        }
    }
}

/// Returns whether `end` is a name, or whole components at its end.
pub(super) fn is_end(name: &str, end: &str) -> bool {
    name.strip_suffix(end).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

impl Expression {
    /// Compiles an expression of Python, of bounded size. One without look-arounds and
    /// back-references is matched in linear time.
    fn new(pattern: &str) -> Result<Self, String> {
        if let Ok(plain) = regex::RegexBuilder::new(pattern).size_limit(1 << 20).build() {
            return Ok(Self::Plain(plain));
        }
        onig::Regex::with_options(pattern, RegexOptions::REGEX_OPTION_NONE, Syntax::python())
            .map(Self::WithLookAround)
            .map_err(|error| format!("is not an expression that is read here: {error}"))
    }

    /// Returns whether the expression names `module`, or `by_default` if that takes too long to
    /// find out.
    fn is_match(&self, module: &str, by_default: bool) -> bool {
        match self {
            Self::Plain(pattern) => pattern.is_match(module),
            Self::WithLookAround(pattern) => {
                let mut limits = MatchParam::default();
                limits.set_retry_limit_in_match(RETRIES_MAX);
                let options = SearchOptions::SEARCH_OPTION_NONE;
                match pattern.match_with_param(module, 0, options, None, limits) {
                    Ok(length) => length == Some(module.len()),
                    Err(_) => by_default,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn have(included: Value, excluded: Value, module: &str) -> bool {
        Targets::new(&included, &excluded).unwrap().have(module)
    }

    /// The rules of `check_target_module_exists`.
    #[test]
    fn targets_are_names_ends_of_names_or_an_expression_for_the_whole_name() {
        let module = "model.layers.3.self_attn.q_proj";
        assert!(have(json!(["q_proj"]), json!(null), module));
        assert!(have(json!(["self_attn.q_proj"]), json!(null), module));
        assert!(!have(json!(["proj"]), json!(null), module));
        assert!(!have(json!(["v_proj"]), json!(null), module));
        assert!(have(json!(r".*\.q_proj"), json!(null), module));
        assert!(!have(json!("q_proj"), json!(null), module), "an expression names all");
        assert!(have(json!("all-linear"), json!(null), module));
        assert!(!have(json!("all-linear"), json!(["q_proj"]), module));
        assert!(have(json!(null), json!(null), module));
        assert!(Targets::new(&json!("("), &json!(null)).unwrap_err().contains("target_modules"));
        assert!(Targets::new(&json!([1]), &json!(null)).is_err());
    }

    /// The first two have the form that LLaMA-Factory and ms-swift write for models with images.
    #[test]
    fn expressions_may_have_look_arounds() {
        let text = "model.language_model.layers.3.self_attn.q_proj";
        let vision = "model.visual.blocks.0.attn.q_proj";
        for pattern in [
            r"^(?!.*(?:visual|patch_embed)).*(?:q_proj|k_proj).*",
            r"^(model\.language_model(?=\.).*\.(q_proj|k_proj))$",
            r".*(?<!attn)\.q_proj|.*self_attn\.q_proj(?=$)",
        ] {
            assert!(have(json!(pattern), json!(null), text), "{pattern}");
            assert!(!have(json!(pattern), json!(null), vision), "{pattern}");
            assert!(!have(json!(pattern), json!(pattern), text), "{pattern}");
            let longer = format!("{text}.x\n");
            assert!(!have(json!(pattern), json!(null), &longer), "{pattern}");
        }
    }

    /// Whether it matches would take ages to find out. The module counts as one that is not named.
    #[test]
    fn the_time_of_a_match_is_bounded() {
        let slow = json!("(?=.)(?:a|a|aa)+b");
        let module = "a".repeat(100);
        assert!(!have(slow.clone(), json!(null), &module));
        assert!(!have(json!(null), slow, &module));
    }

    /// The rules of `get_pattern_key`.
    #[test]
    fn a_pattern_names_whole_components_at_the_end() {
        let pattern = |key: &str| Pattern::of_key(key).unwrap();
        assert!(pattern("q_proj").matches("model.layers.0.self_attn.q_proj"));
        assert!(pattern("q_proj").matches("q_proj"));
        assert!(!pattern("proj").matches("model.layers.0.self_attn.q_proj"));
        assert!(pattern(r"layers\.[01]\..*").matches("model.layers.1.mlp.up_proj"));
        assert!(!pattern(r"layers\.[01]\..*").matches("model.layers.2.mlp.up_proj"));
        let whole = "model.layers.0.mlp.up_proj";
        assert!(pattern(r"^model\.layers\.0\.mlp\.up_proj").matches(whole));
        assert!(pattern(whole).matches(whole));
        assert!(!pattern(r"^layers\.0\.mlp\.up_proj").matches(whole));
        assert!(pattern(r"\w+(?<!gate)_proj").matches(whole));
        assert!(!pattern(r"\w+(?<!up)_proj").matches(whole));
    }
}

//! The ways in which a PEFT config names modules: `peft.tuners.tuners_utils`.

use regex::Regex;
use serde_json::Value;

/// The value of `target_modules` for all linear layers.
const ALL_LINEAR: &str = "all-linear";

/// A key of `rank_pattern` or `alpha_pattern`: an expression for the end of a module's name, from
/// the beginning of a component on.
#[derive(Debug)]
pub(super) struct Pattern(Regex);

impl Pattern {
    /// Reads a key.
    ///
    /// # Errors
    /// The fault of the expression.
    pub(super) fn of_key(key: &str) -> Result<Self, String> {
        expression(&format!(r"^(?:.*\.)?(?:{key})$")).map(Self)
    }

    /// Returns whether the pattern names `module`.
    pub(super) fn matches(&self, module: &str) -> bool {
        self.0.is_match(module)
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
    Expression(Regex),
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
            names => names.have(module),
        };
        is_included && !self.excluded.have(module)
    }
}

impl Names {
    fn read(value: &Value) -> Result<Self, String> {
        match value {
            Value::Null => Ok(Self::Unset),
            Value::String(name) if name.to_lowercase() == ALL_LINEAR => Ok(Self::All),
            Value::String(pattern) => {
                let whole = expression(&format!("^(?:{pattern})$"));
                whole.map(Self::Expression).map_err(|why| format!("`{pattern}`: {why}"))
            }
            Value::Array(names) => {
                let name = |value: &Value| value.as_str().map(str::to_owned);
                let names: Option<Vec<String>> = names.iter().map(name).collect();
                names.map(Self::List).ok_or_else(|| "expected names of modules".to_owned())
            }
            other => Err(format!("{other}: expected a list of names, an expression or null")),
        }
    }

    fn have(&self, module: &str) -> bool {
        match self {
            Self::Unset => false,
            Self::All => true,
            Self::Expression(pattern) => pattern.is_match(module),
            Self::List(names) => names.iter().any(|name| is_end(module, name)),
        }
    }
}

/// Returns whether `end` is a name, or whole components at its end.
pub(super) fn is_end(name: &str, end: &str) -> bool {
    name.strip_suffix(end).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// Compiles an expression, of bounded size. Python's look-arounds and back-references are not
/// supported.
fn expression(pattern: &str) -> Result<Regex, String> {
    regex::RegexBuilder::new(pattern)
        .size_limit(1 << 20)
        .build()
        .map_err(|error| format!("is not an expression that is read here: {error}"))
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
        assert!(
            Targets::new(&json!("(?=x)"), &json!(null)).unwrap_err().contains("target_modules")
        );
        assert!(Targets::new(&json!([1]), &json!(null)).is_err());
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
    }
}

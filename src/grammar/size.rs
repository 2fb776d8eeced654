//! Limits on the size of a grammar. The library's own limits are on memory, and it checks them
//! late, when much of the time is already spent. It compares each new literal with all earlier
//! ones. The cost of an object grows with the square of its optional properties. A terminal is
//! expanded with all terminals that it names. The limits here are checked before.

mod lark;
mod schema;

use playhouse_actors::ports::GrammarError;
use serde_json::Value;

pub(super) use self::lark::regex_bodies;
use self::{lark::LarkSize, schema::SchemaSize};

/// Most different literals and regular expressions of a grammar. With over 65,535 symbols it could
/// not be compiled anyway.
const MAX_LITERALS: usize = 10_000;
/// Most alternatives of one rule. The cost grows with their square, so the squares of all rules
/// together may be as much as that of one rule with so many.
const MAX_ALTERNATIVES: usize = 5_000;
/// Most bytes of the literals of one terminal, including those of the terminals that it names.
const MAX_TERMINAL_BYTES: usize = 1 << 20;
/// Most alternatives of one `anyOf` and the like.
const MAX_SCHEMA_ALTERNATIVES: usize = 2_000;
/// Most properties of one object that may be left out.
const MAX_OPTIONAL_PROPERTIES: usize = 1_000;
/// Most patterns for the names of properties in total, because each two are compared.
const MAX_PATTERN_PROPERTIES: usize = 32;
/// Most properties and alternatives of a schema in total.
const MAX_ENTRIES: usize = 5_000;
/// Most values of all `enum`s of a schema.
const MAX_ENUM_VALUES: usize = 20_000;

/// Most bytes of regular expressions in total: ten thousand stars in a row cost seconds.
const MAX_REGEX_BYTES: usize = 32 << 10;

/// Rejects a regular expression that would take too long.
///
/// # Errors
/// [`GrammarError::TooLarge`] names the limit.
pub(super) fn check_regex(pattern: &str) -> Result<(), GrammarError> {
    at_most("a regex", "bytes", pattern.len(), MAX_REGEX_BYTES)
}

/// The size of everything that is compiled together. The parts of a structural tag share the
/// limits.
#[derive(Debug, Default)]
pub(super) struct Size {
    schemas: SchemaSize,
    grammars: LarkSize,
}

impl Size {
    /// Adds a schema. Rejects it if it would take too long together with the earlier ones.
    ///
    /// # Errors
    /// [`GrammarError::TooLarge`] names the excess and the limit.
    pub(super) fn add_schema(&mut self, schema: &Value) -> Result<(), GrammarError> {
        self.schemas.add(schema);
        let size = &self.schemas;
        let counts = [
            ("optional properties in one object", size.optional, MAX_OPTIONAL_PROPERTIES),
            ("alternatives in one list", size.alternatives, MAX_SCHEMA_ALTERNATIVES),
            ("`patternProperties`", size.pattern_properties, MAX_PATTERN_PROPERTIES),
            ("`patternProperties` in one object", size.merged_patterns, MAX_PATTERN_PROPERTIES),
            ("properties and alternatives", size.entries, MAX_ENTRIES),
            ("bytes of patterns", size.pattern_bytes, MAX_REGEX_BYTES),
            ("enum values", size.enum_values, MAX_ENUM_VALUES),
        ];
        counts
            .into_iter()
            .try_for_each(|(what, count, most)| at_most("a schema", what, count, most))?;
        if size.has_large_multiple {
            return Err(GrammarError::TooLarge(
                "`multipleOf`, or the product of several for one number, is too large or has too \
                 many decimals: ten times its digits must fit into 32 bits"
                    .to_owned(),
            ));
        }
        Ok(())
    }

    /// Adds a grammar in Lark's notation, with the same limits as [`Self::add_schema`].
    ///
    /// # Errors
    /// As [`Self::add_schema`]; [`GrammarError::Invalid`] for directives that are not supported.
    pub(super) fn add_lark(&mut self, text: &str) -> Result<(), GrammarError> {
        self.grammars.add(text)?;
        let size = &self.grammars;
        let counts = [
            ("different literals", size.num_literals, MAX_LITERALS),
            ("bytes of regular expressions", size.regex_bytes, MAX_REGEX_BYTES),
            (
                "bytes in one terminal, those that it names among them",
                size.largest_terminal,
                MAX_TERMINAL_BYTES,
            ),
            (
                "alternatives in one rule, or fewer in several",
                size.squares.isqrt(),
                MAX_ALTERNATIVES,
            ),
        ];
        counts
            .into_iter()
            .try_for_each(|(what, count, most)| at_most("a grammar", what, count, most))
    }
}

fn at_most(holder: &str, what: &str, count: usize, most: usize) -> Result<(), GrammarError> {
    if count <= most {
        return Ok(());
    }
    Err(GrammarError::TooLarge(format!("{holder} may hold at most {most} {what}, not {count}")))
}

//! Types of single fields, as lenient as pydantic where clients rely on it. They are serialized
//! only for the defaults in the API's document.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{Error, IgnoredAny, MapAccess, SeqAccess, Unexpected, Visitor},
};

use super::error::ApiError;

/// An integer. As in pydantic, `12.0`, `"12"`, `"12.0"` and `true` count as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(in crate::server) struct Int(pub(in crate::server) i64);

/// A number. As in pydantic, `"0.5"` and `true` count as one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(in crate::server) struct Float(pub(in crate::server) f32);

/// Whether a field has a value other than `null`, `false` or `[]`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(in crate::server) struct IsSet(pub(in crate::server) bool);

/// One string, or a list of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(in crate::server) struct Strings(pub(in crate::server) Vec<String>);

/// A token id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(in crate::server) struct Token(pub(in crate::server) u32);

impl Int {
    /// Returns the value as a `T`, or an error that names the field and the accepted values.
    pub(in crate::server) fn cast<T: TryFrom<i64>>(
        self,
        field: &str,
        accepted: &str,
    ) -> Result<T, ApiError> {
        T::try_from(self.0).map_err(|_| {
            ApiError::invalid(field, format!("{field} must be {accepted}, got {}", self.0))
        })
    }
}

/// Reads a field whose `null` stands for its default. Programs in Go write empty lists so.
pub(in crate::server) fn or_default<'de, T, D>(from: D) -> Result<T, D::Error>
where
    T: Deserialize<'de> + Default,
    D: Deserializer<'de>,
{
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// Reads a switch in a query. As pydantic does, it takes `True`, `1`, `yes` and `on` for true.
pub(in crate::server) fn switch<'de, D: Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
    match String::deserialize(from)?.to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" | "t" | "y" => Ok(true),
        "false" | "0" | "no" | "off" | "f" | "n" => Ok(false),
        _ => Err(D::Error::custom("Input should be a valid boolean")),
    }
}

struct IntVisitor;

impl Visitor<'_> for IntVisitor {
    type Value = Int;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an integer")
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Int, E> {
        Ok(Int(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Int, E> {
        let value = i64::try_from(value);
        value.map(Int).map_err(|_| E::custom("the integer does not fit 64 bits"))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Int, E> {
        // Up to this value, every integer has a float of its own.
        let exact = value.fract() == 0.0 && value.abs() <= 9_007_199_254_740_992.0;
        let wrong = || E::invalid_value(Unexpected::Float(value), &self);
        exact.then_some(Int(value as i64)).ok_or_else(wrong)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Int, E> {
        Ok(Int(value.into()))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Int, E> {
        let text = value.trim();
        let whole = match text.split_once('.') {
            Some((whole, zeros)) if !zeros.is_empty() && zeros.bytes().all(|b| b == b'0') => whole,
            _ => text,
        };
        let parsed = whole.parse();
        parsed.map(Int).map_err(|_| E::invalid_type(Unexpected::Str(value), &self))
    }
}

impl<'de> Deserialize<'de> for Int {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(IntVisitor)
    }
}

impl<'de> Deserialize<'de> for Token {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let Int(value) = Int::deserialize(from)?;
        let token = u32::try_from(value);
        token.map(Token).map_err(|_| D::Error::custom(format!("no token has the id {value}")))
    }
}

struct FloatVisitor;

impl Visitor<'_> for FloatVisitor {
    type Value = Float;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number")
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Float, E> {
        Ok(Float(value as f32))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Float, E> {
        Ok(Float(value as f32))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Float, E> {
        Ok(Float(value as f32))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Float, E> {
        Ok(Float(u8::from(value).into()))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Float, E> {
        let parsed = value.trim().parse::<f32>().ok().filter(|number| number.is_finite());
        parsed.map(Float).ok_or_else(|| E::invalid_type(Unexpected::Str(value), &self))
    }
}

impl<'de> Deserialize<'de> for Float {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(FloatVisitor)
    }
}

/// Reads a boolean that may be absent. As in pydantic, 0, 1 and some words count as one.
pub(in crate::server) fn flag<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<bool>, D::Error> {
    from.deserialize_any(FlagVisitor)
}

struct FlagVisitor;

impl Visitor<'_> for FlagVisitor {
    type Value = Option<bool>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a boolean")
    }

    fn visit_none<E: Error>(self) -> Result<Option<bool>, E> {
        Ok(None)
    }

    fn visit_unit<E: Error>(self) -> Result<Option<bool>, E> {
        Ok(None)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Option<bool>, E> {
        Ok(Some(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Option<bool>, E> {
        match value {
            0 => Ok(Some(false)),
            1 => Ok(Some(true)),
            _ => Err(E::invalid_type(Unexpected::Unsigned(value), &self)),
        }
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Option<bool>, E> {
        match value == 1.0 {
            true => Ok(Some(true)),
            false if value == 0.0 => Ok(Some(false)),
            false => Err(E::invalid_type(Unexpected::Float(value), &self)),
        }
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Option<bool>, E> {
        match value.to_ascii_lowercase().as_str() {
            "false" | "f" | "no" | "n" | "off" | "0" => Ok(Some(false)),
            "true" | "t" | "yes" | "y" | "on" | "1" => Ok(Some(true)),
            _ => Err(E::invalid_type(Unexpected::Str(value), &self)),
        }
    }
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "a string or a list of strings")]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl<'de> Deserialize<'de> for Strings {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(match OneOrMany::deserialize(from)? {
            OneOrMany::One(string) => Self(vec![string]),
            OneOrMany::Many(strings) => Self(strings),
        })
    }
}

/// Reads a field for which an empty object asks for nothing.
pub(in crate::server) fn unless_empty<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<IsSet, D::Error> {
    from.deserialize_any(IsSetVisitor { counts_empty_objects: false })
}

struct IsSetVisitor {
    counts_empty_objects: bool,
}

impl<'de> Visitor<'de> for IsSetVisitor {
    type Value = IsSet;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<IsSet, E> {
        Ok(IsSet(value))
    }

    fn visit_i64<E: Error>(self, _value: i64) -> Result<IsSet, E> {
        Ok(IsSet(true))
    }

    fn visit_u64<E: Error>(self, _value: u64) -> Result<IsSet, E> {
        Ok(IsSet(true))
    }

    fn visit_f64<E: Error>(self, _value: f64) -> Result<IsSet, E> {
        Ok(IsSet(true))
    }

    fn visit_str<E: Error>(self, _value: &str) -> Result<IsSet, E> {
        Ok(IsSet(true))
    }

    fn visit_unit<E: Error>(self) -> Result<IsSet, E> {
        Ok(IsSet(false))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<IsSet, A::Error> {
        let mut is_set = false;
        while list.next_element::<IgnoredAny>()?.is_some() {
            is_set = true;
        }
        Ok(IsSet(is_set))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<IsSet, A::Error> {
        let mut is_set = self.counts_empty_objects;
        while object.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
            is_set = true;
        }
        Ok(IsSet(is_set))
    }
}

impl<'de> Deserialize<'de> for IsSet {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(IsSetVisitor { counts_empty_objects: true })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers() {
        let read = |text| serde_json::from_str::<Int>(text).ok().map(|Int(value)| value);
        assert_eq!(read("-3"), Some(-3));
        assert_eq!(read("12.0"), Some(12));
        assert_eq!(read("\"12\""), Some(12));
        assert_eq!([read("\" 12.0 \""), read("\"+3\"")], [Some(12), Some(3)]);
        assert_eq!([read("true"), read("false")], [Some(1), Some(0)]);
        for wrong in [
            "1.5",
            "\"1.5\"",
            "\"1.\"",
            "\"1e3\"",
            "\".0\"",
            "\"x\"",
            "[]",
            "{}",
            "18446744073709551615",
            "1e300",
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        let error = Int(-1).cast::<u32>("n", "at least 1").unwrap_err();
        assert_eq!(error.message, "n must be at least 1, got -1");
    }

    #[test]
    fn floats() {
        let read = |text| serde_json::from_str::<Float>(text).ok().map(|Float(value)| value);
        assert_eq!(read("1"), Some(1.0));
        assert_eq!(read("\"0.5\""), Some(0.5));
        assert_eq!([read("true"), read("false")], [Some(1.0), Some(0.0)]);
        for wrong in ["\"hot\"", "\"nan\"", "\"inf\"", "[1]"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn booleans() {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Fields {
            #[serde(deserialize_with = "flag")]
            stream: Option<bool>,
        }
        let read = |text: &str| serde_json::from_str(text).ok().map(|Fields { stream }| stream);
        for (text, value) in [
            ("true", true),
            ("1", true),
            ("1.0", true),
            ("0.0", false),
            ("\"Yes\"", true),
            ("\"off\"", false),
        ] {
            assert_eq!(read(&format!("{{\"stream\": {text}}}")), Some(Some(value)), "{text}");
        }
        assert_eq!([read("{}"), read("{\"stream\": null}")], [Some(None); 2]);
        for wrong in ["2", "-1", "0.5", "\"\"", "\" true\"", "\"maybe\"", "[]", "{}"] {
            assert_eq!(read(&format!("{{\"stream\": {wrong}}}")), None, "{wrong}");
        }
    }

    #[test]
    fn strings_come_alone_or_in_lists() {
        let read = |text| serde_json::from_str::<Strings>(text).ok().map(|Strings(list)| list);
        assert_eq!(read("\"a\""), Some(vec!["a".to_owned()]));
        assert_eq!(read("[\"a\", \"b\"]"), Some(vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!(read("[1]"), None);
    }

    #[test]
    fn values_that_count_as_set() {
        let read = |text| serde_json::from_str::<IsSet>(text).unwrap().0;
        assert!(!read("null"));
        assert!(!read("false"));
        assert!(read("true"));
        assert!(read("{\"a\": [1, 2]}"));
        assert!(read("0"));
        assert!(read("[null]") && read("\"\"") && read("0.5"));
        assert!(read("{}") && !read("[]"), "an empty list asks for nothing");
    }
}

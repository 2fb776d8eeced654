//! The spellings of values: counts, sizes, switches and lists, from TOML or as text (the
//! environment and the flags have only text).

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{Error, SeqAccess, Visitor},
};

/// A visitor that turns an integer or a text into `T`.
struct FromIntegerOrText<T> {
    accepted: &'static str,
    integer: fn(u64) -> Option<T>,
    text: fn(&str) -> Option<T>,
}

impl<T> Visitor<'_> for FromIntegerOrText<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.accepted)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<T, E> {
        (self.integer)(value).ok_or_else(|| E::custom(format!("expected {}", self.accepted)))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<T, E> {
        match u64::try_from(value) {
            Ok(value) => self.visit_u64(value),
            Err(_) => Err(E::custom(format!("expected {}", self.accepted))),
        }
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<T, E> {
        (self.text)(value.trim()).ok_or_else(|| E::custom(format!("expected {}", self.accepted)))
    }
}

/// Reads a value with its type's own deserializer: a word, a text or a path.
pub(crate) fn plain<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    from: D,
) -> Result<T, D::Error> {
    T::deserialize(from)
}

/// Reads a whole number.
pub(crate) fn count<'de, D: Deserializer<'de>>(from: D) -> Result<usize, D::Error> {
    from.deserialize_any(FromIntegerOrText {
        accepted: "a whole number that is not negative",
        integer: |value| usize::try_from(value).ok(),
        text: |text| text.parse().ok(),
    })
}

/// Reads a whole number, for a setting that may be absent.
pub(crate) fn some_count<'de, D: Deserializer<'de>>(from: D) -> Result<Option<usize>, D::Error> {
    count(from).map(Some)
}

/// Reads a whole number. -1, as vLLM spells it, is the largest: no limit.
pub(crate) fn count_or_unlimited<'de, D: Deserializer<'de>>(from: D) -> Result<usize, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected a whole number, or -1 for no limit")]
    enum Written {
        Unsigned(u64),
        Signed(i64),
        Text(String),
    }
    let value = match Written::deserialize(from)? {
        Written::Unsigned(value) => usize::try_from(value).ok(),
        Written::Signed(value) => (value == -1).then_some(usize::MAX),
        Written::Text(text) if text.trim() == "-1" => Some(usize::MAX),
        Written::Text(text) => text.trim().parse().ok(),
    };
    value.ok_or_else(|| D::Error::custom("expected a whole number, or -1 for no limit"))
}

/// Reads a whole number of 64 bits.
pub(crate) fn count_u64<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    from.deserialize_any(FromIntegerOrText {
        accepted: "a whole number that is not negative",
        integer: Some,
        text: |text| text.parse().ok(),
    })
}

/// Reads a TCP port.
pub(crate) fn port<'de, D: Deserializer<'de>>(from: D) -> Result<u16, D::Error> {
    from.deserialize_any(FromIntegerOrText {
        accepted: "a port, 0 to 65535",
        integer: |value| u16::try_from(value).ok(),
        text: |text| text.parse().ok(),
    })
}

/// Reads a number of tokens: `4096`, `4k` (4,000), `4K` (4,096), `25.6k`.
pub(crate) fn some_tokens<'de, D: Deserializer<'de>>(from: D) -> Result<Option<usize>, D::Error> {
    from.deserialize_any(FromIntegerOrText {
        accepted: "a number of tokens, for example 4096, 25.6k (thousands) or 4K (times 1,024)",
        integer: |value| usize::try_from(value).ok().map(Some),
        text: |text| Some(Some(usize::try_from(scaled(text, TOKEN_UNITS)?).ok()?)),
    })
}

/// Reads a number of tokens, spelled as in [`some_tokens`].
pub(crate) fn tokens<'de, D: Deserializer<'de>>(from: D) -> Result<usize, D::Error> {
    some_tokens(from)?.ok_or_else(|| D::Error::custom("expected a number of tokens"))
}

/// Reads a limit on requests or tokens, spelled as in [`some_tokens`]. 0 is none.
pub(crate) fn quota<'de, D: Deserializer<'de>>(from: D) -> Result<Option<usize>, D::Error> {
    Ok(some_tokens(from)?.filter(|quota| *quota > 0))
}

/// Reads a number of bytes: `1073741824`, `512MB`, `4GiB`.
pub(crate) fn bytes<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    from.deserialize_any(FromIntegerOrText {
        accepted: ACCEPTED_BYTES,
        integer: Some,
        text: |text| scaled(text, BYTE_UNITS),
    })
}

/// Reads a number of bytes that fits the address space.
pub(crate) fn bytes_usize<'de, D: Deserializer<'de>>(from: D) -> Result<usize, D::Error> {
    let bytes = bytes(from)?;
    usize::try_from(bytes).map_err(|_| D::Error::custom("more bytes than can be addressed"))
}

/// Reads a number of bytes, for a setting that may be absent.
pub(crate) fn some_bytes<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    bytes(from).map(Some)
}

const ACCEPTED_BYTES: &str = "a number of bytes, for example 1073741824, 512MB or 4GiB";

type Units = &'static [(&'static str, f64)];

const TOKEN_UNITS: Units = &[("", 1.0), ("k", 1e3), ("K", 1024.0), ("m", 1e6), ("M", 1_048_576.0)];

const KIB: f64 = 1024.0;
const BYTE_UNITS: Units = &[
    ("", 1.0),
    ("B", 1.0),
    ("t", 1e12),
    ("T", 1_099_511_627_776.0),
    ("k", 1e3),
    ("KB", 1e3),
    ("kB", 1e3),
    ("m", 1e6),
    ("MB", 1e6),
    ("g", 1e9),
    ("GB", 1e9),
    ("TB", 1e12),
    ("K", KIB),
    ("KiB", KIB),
    ("M", KIB * KIB),
    ("MiB", KIB * KIB),
    ("G", KIB * KIB * KIB),
    ("GiB", KIB * KIB * KIB),
    ("TiB", KIB * KIB * KIB * KIB),
];

/// Returns `number` times its unit, if both are known and the product is whole (to a rounding
/// error).
fn scaled(text: &str, units: Units) -> Option<u64> {
    if let Ok(plain) = text.parse() {
        return Some(plain);
    }
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = units.iter().find(|(name, _)| *name == unit.trim())?.1;
    let product = (number.parse::<f64>().ok()? * factor).round();
    // 2^53: beyond it a float no longer holds every whole number.
    (product <= 9_007_199_254_740_992.0).then_some(product as u64)
}

/// Reads a number that is not negative.
pub(crate) fn number<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    const ACCEPTED: &str = "a number that is not negative";

    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected a number that is not negative")]
    enum Written {
        Number(f64),
        Text(String),
    }
    let value = match Written::deserialize(from)? {
        Written::Number(value) => Some(value),
        Written::Text(text) => text.trim().parse().ok(),
    };
    value
        .filter(|value| value.is_finite() && *value >= 0.0)
        .ok_or_else(|| D::Error::custom(format!("expected {ACCEPTED}")))
}

/// Reads a number that is not negative, for a setting that may be absent.
pub(crate) fn some_number<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    number(from).map(Some)
}

/// Reads `true` or `false`; as text also `1`, `0`, `yes`, `no`, `on`, `off`.
pub(crate) fn switch<'de, D: Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
    struct Switch;
    impl Visitor<'_> for Switch {
        type Value = bool;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("true or false")
        }

        fn visit_bool<E: Error>(self, value: bool) -> Result<bool, E> {
            Ok(value)
        }

        fn visit_str<E: Error>(self, value: &str) -> Result<bool, E> {
            match value.trim().to_ascii_lowercase().as_str() {
                "true" | "1" | "yes" | "on" => Ok(true),
                "false" | "0" | "no" | "off" => Ok(false),
                _ => Err(E::custom("expected true or false")),
            }
        }
    }
    from.deserialize_any(Switch)
}

/// As [`switch`], for a setting that may be absent.
pub(crate) fn some_switch<'de, D: Deserializer<'de>>(from: D) -> Result<Option<bool>, D::Error> {
    switch(from).map(Some)
}

pub(super) use super::{lora::lora_modules, secret::some_secret};

/// Reads a list of texts. A single text is split at its commas.
pub(crate) fn texts<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    from.deserialize_any(Texts { are_secrets: false })
}

/// Reads the same for secrets. Only an empty list means that there are none. An empty text is
/// rejected: it comes from a variable that should hold a secret.
pub(crate) fn secrets<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    from.deserialize_any(Texts { are_secrets: true })
}

struct Texts {
    are_secrets: bool,
}

impl<'de> Visitor<'de> for Texts {
    type Value = Vec<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of texts")
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Vec<String>, E> {
        let parts = value.split(',').map(str::trim).filter(|part| !part.is_empty());
        let texts: Vec<_> = parts.map(str::to_owned).collect();
        match texts.is_empty() && self.are_secrets {
            true => Err(E::custom("it is empty; leave it out if none is needed")),
            false => Ok(texts),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<String>, A::Error> {
        let mut texts = Vec::new();
        while let Some(text) = items.next_element()? {
            texts.push(text);
        }
        Ok(texts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_counts_take_vllms_units() {
        // vLLM's human-readable integers: a small letter is decimal, a capital binary.
        let cases = [("1k", 1_000), ("1K", 1_024), ("25.6k", 25_600), ("4096", 4_096)];
        for (text, expected) in cases {
            assert_eq!(scaled(text, TOKEN_UNITS), Some(expected), "{text}");
        }
        for wrong in ["", "k", "1 q", "-1", "1.2.3k", "1kk", "NaN"] {
            assert_eq!(scaled(wrong, TOKEN_UNITS), None, "{wrong}");
        }
    }

    #[test]
    fn byte_counts_take_both_kinds_of_units() {
        let cases = [
            ("4GiB", 4 << 30),
            ("1.5 KiB", 1536),
            ("2GB", 2_000_000_000),
            ("7", 7),
            ("1g", 1_000_000_000),
            ("1G", 1 << 30),
            ("1T", 1 << 40),
        ];
        for (text, expected) in cases {
            assert_eq!(scaled(text, BYTE_UNITS), Some(expected), "{text}");
        }
        assert_eq!(scaled("4 gigs", BYTE_UNITS), None);
        assert_eq!(scaled("99999999TiB", BYTE_UNITS), None);
    }
}

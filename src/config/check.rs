//! Checks of one value by itself. `validate` has the checks of several settings together.

use std::fmt::Display;

use super::error::InvalidSetting;

/// Longest time of a setting, seconds: a day.
const SECONDS_MAX: f64 = 86_400.0;
/// Smallest factor: its windows are hours.
const RESTART_TOLERANCE_MIN: f64 = 0.01;
/// Largest factor: its windows are microseconds.
const RESTART_TOLERANCE_MAX: f64 = 1e6;

/// The reason why a value is rejected.
pub(super) struct Rejected {
    value: String,
    accepted: String,
}

/// Applies a check to the value of a setting.
pub(super) fn check<T>(
    name: &'static str,
    value: &T,
    check: impl Fn(&T) -> Result<(), Rejected>,
) -> Result<(), InvalidSetting> {
    check(value).map_err(|Rejected { value, accepted }| InvalidSetting { name, value, accepted })
}

/// A number that may be absent.
pub(super) trait Number {
    /// Returns the number and its text.
    fn number(&self) -> Option<(f64, &dyn Display)>;
}

macro_rules! numbers {
    ($($type:ty),+) => {$(
        impl Number for $type {
            fn number(&self) -> Option<(f64, &dyn Display)> {
                Some((*self as f64, self))
            }
        }
    )+};
}

numbers!(usize, u64, f64);

impl<N: Number> Number for Option<N> {
    fn number(&self) -> Option<(f64, &dyn Display)> {
        self.as_ref().and_then(N::number)
    }
}

/// Rejects a number for which the condition does not hold. A setting without a value is accepted.
fn require<N: Number>(
    value: &N,
    holds: impl Fn(f64) -> bool,
    accepted: impl Fn() -> String,
) -> Result<(), Rejected> {
    match value.number() {
        Some((number, shown)) if !holds(number) => {
            Err(Rejected { value: shown.to_string(), accepted: accepted() })
        }
        _ => Ok(()),
    }
}

/// Accepts all values of the type.
pub(super) fn any<T>(_: &T) -> Result<(), Rejected> {
    Ok(())
}

/// Accepts numbers from `least`.
pub(super) fn at_least<N: Number>(least: u64) -> impl Fn(&N) -> Result<(), Rejected> {
    move |value| require(value, |n| n >= least as f64, || format!("at least {least}"))
}

/// Accepts numbers from `least` to `most`.
pub(super) fn within<N: Number>(least: u64, most: u64) -> impl Fn(&N) -> Result<(), Rejected> {
    let holds = move |n| (least as f64..=most as f64).contains(&n);
    move |value| require(value, holds, || format!("in {least}..={most}"))
}

/// Accepts these numbers.
pub(super) fn one_of<N: Number>(accepted: &'static [u32]) -> impl Fn(&N) -> Result<(), Rejected> {
    let holds = move |n| accepted.iter().any(|one| f64::from(*one) == n);
    move |value| require(value, holds, || listed(accepted))
}

/// Returns the values as a text reads them: `32, 64 or 128`.
fn listed(values: &[u32]) -> String {
    let texts: Vec<_> = values.iter().map(u32::to_string).collect();
    match texts.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => texts.concat(),
    }
}

/// Accepts times.
pub(super) fn seconds<N: Number>(value: &N) -> Result<(), Rejected> {
    let accepted = || format!("a number of seconds in (0, {SECONDS_MAX}]");
    require(value, |n| n > 0.0 && n <= SECONDS_MAX, accepted)
}

/// Accepts times, and 0 for none.
pub(super) fn seconds_or_never<N: Number>(value: &N) -> Result<(), Rejected> {
    let accepted = || format!("at most {SECONDS_MAX} seconds, 0 for never");
    require(value, |n| (0.0..=SECONDS_MAX).contains(&n), accepted)
}

/// Accepts times of any length, and 0 for no bound.
pub(super) fn seconds_or_unbounded<N: Number>(value: &N) -> Result<(), Rejected> {
    let accepted = || "a number of seconds, 0 for no bound".to_owned();
    require(value, |n| n.is_finite() && n >= 0.0, accepted)
}

/// Accepts shares above zero.
pub(super) fn share_of_memory<N: Number>(value: &N) -> Result<(), Rejected> {
    let accepted = || "a share of the memory, in (0, 1]".to_owned();
    require(value, |n| n > 0.0 && n <= 1.0, accepted)
}

/// Accepts shares below one.
pub(super) fn share_of_blocks<N: Number>(value: &N) -> Result<(), Rejected> {
    let accepted = || "a share of the blocks, in [0, 1)".to_owned();
    require(value, |n| (0.0..1.0).contains(&n), accepted)
}

/// Accepts the factors that [`super::EngineConfig::restart_tolerance`] may be.
pub(super) fn tolerance<N: Number>(value: &N) -> Result<(), Rejected> {
    let holds = |n| (RESTART_TOLERANCE_MIN..=RESTART_TOLERANCE_MAX).contains(&n);
    let accepted = || format!("a number in [{RESTART_TOLERANCE_MIN}, {RESTART_TOLERANCE_MAX}]");
    require(value, holds, accepted)
}

/// Accepts words that a metric's name may begin with.
pub(super) fn metrics_prefix(prefix: &String) -> Result<(), Rejected> {
    let begins = prefix.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if begins && prefix.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return Ok(());
    }
    let accepted = "a word of letters, digits and _, as vllm".to_owned();
    Err(Rejected { value: format!("{prefix:?}"), accepted })
}

/// Accepts the URL of a collector of spans, in builds that have traces.
pub(super) fn collector(url: &Option<String>) -> Result<(), Rejected> {
    let Some(url) = url else { return Ok(()) };
    let is_url = ["http://", "https://"].iter().any(|scheme| url.starts_with(scheme));
    let accepted = match (cfg!(feature = "otlp"), is_url) {
        (true, true) => return Ok(()),
        (true, false) => "a URL like http://127.0.0.1:4318/v1/traces",
        (false, _) => "absent: this build has no feature `otlp`",
    };
    Err(Rejected { value: url.clone(), accepted: accepted.to_owned() })
}

/// Accepts keys that a client can send. The server trims white space around a client's key, and a
/// client without a key sends an empty one.
pub(super) fn keys<K: AsRef<[String]>>(keys: &K) -> Result<(), Rejected> {
    if keys.as_ref().iter().all(|key| !key.is_empty() && key.trim() == key) {
        return Ok(());
    }
    let accepted = "keys that are not empty, without white space around them".to_owned();
    Err(Rejected { value: "***".to_owned(), accepted })
}

/// Accepts a path that routes may begin with.
pub(super) fn root_path<P: AsRef<str>>(path: &P) -> Result<(), Rejected> {
    let path = path.as_ref();
    let is_path = path.is_empty() || (path.starts_with('/') && !path.ends_with('/'));
    if is_path && !path.contains(['?', '#', '{', '}', ' ', '\\']) {
        return Ok(());
    }
    let accepted = "a path like \"/llm\", without a slash at its end".to_owned();
    Err(Rejected { value: path.to_owned(), accepted })
}

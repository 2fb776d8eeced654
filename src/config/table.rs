//! `settings!`: a section of the configuration as a table.
//!
//! A row is a field, its type and default, and three further parts: the spelling of its value (a
//! function of [`super::quantity`]), the check of its value (a function of [`super::check`]), and
//! the text of its flag. The row's comment describes the setting in the file and in the documents.
//! All else follows from the row: the flag, the variable, the TOML key, the documents, the default
//! and the error.

macro_rules! settings {
    (
        $(#[$meta:meta])*
        pub struct $Section:ident in $section:ident {
            $( $heading:literal:
                $(
                    $(#[doc = $meaning:literal])+
                    $field:ident: $type:ty = $default:expr, $written:ident, $check:expr,
                        $usage:expr;
                )+
            )+
        }
        $( and {
            $( $(#[doc = $extra_doc:literal])+ $extra:ident: $extra_type:ty, )+
        } )?
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq)]
        pub struct $Section {
            $($( $(#[doc = $meaning])+ pub $field: $type, )+)+
            $($( $(#[doc = $extra_doc])+ pub $extra: $extra_type, )+)?
        }

        impl Default for $Section {
            fn default() -> Self {
                Self {
                    $($( $field: $default, )+)+
                    $($( $extra: <$extra_type>::default(), )+)?
                }
            }
        }

        impl serde::Serialize for $Section {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                let mut map = serde::Serializer::serialize_map(to, Some(Self::SETTINGS.len()))?;
                $($(
                    let name = $usage.name(stringify!($field));
                    serde::ser::SerializeMap::serialize_entry(&mut map, name, &self.$field)?;
                )+)+
                serde::ser::SerializeMap::end(map)
            }
        }

        impl $Section {
            /// The rows of the table.
            pub(super) const SETTINGS: &'static [$crate::config::setting::Setting] = &[$($(
                $crate::config::setting::Setting {
                    section: stringify!($section),
                    name: $usage.name(stringify!($field)),
                    meaning: &[$($meaning),+],
                    heading: $heading,
                    written: $crate::config::table::written!($written),
                    usage: $usage,
                    set: |config, value| {
                        config.$section.$field = $crate::config::quantity::$written(value)?;
                        Ok(())
                    },
                    get: |config| {
                        serde_json::to_value(&config.$section.$field).unwrap_or_default()
                    },
                },
            )+)+];

            /// Checks each value by itself.
            pub(super) fn check_each(&self) -> Result<(), $crate::config::InvalidSetting> {
                $($(
                    $crate::config::check::check(
                        $usage.name(stringify!($field)),
                        &self.$field,
                        $check,
                    )?;
                )+)+
                Ok(())
            }
        }
    };
}

/// Returns the spelling that a function of [`super::quantity`] reads.
macro_rules! written {
    (switch) => {
        $crate::config::setting::Written::Switch
    };
    (some_switch) => {
        $crate::config::setting::Written::Switch
    };
    (texts) => {
        $crate::config::setting::Written::Texts
    };
    (lora_modules) => {
        $crate::config::setting::Written::Words
    };
    (secrets) => {
        $crate::config::setting::Written::Secrets
    };
    (some_secret) => {
        $crate::config::setting::Written::Secret
    };
    (bytes_usize) => {
        $crate::config::setting::Written::Bytes
    };
    (some_bytes) => {
        $crate::config::setting::Written::Bytes
    };
    ($plain:ident) => {
        $crate::config::setting::Written::Plain
    };
}

pub(super) use {settings, written};

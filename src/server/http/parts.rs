//! A request body is read as several structs, each of which takes the fields that it knows. The
//! list of structs decides which fields are read, which exist, and how the API's document describes
//! them. So these three always agree.

use serde::{
    de::{DeserializeOwned, Deserializer, Error as _, Visitor, value::Error},
    forward_to_deserialize_any,
};
use utoipa::{
    ToSchema,
    openapi::{Object, RefOr, Schema},
};

use super::{error::ApiError, extract::parse_object};
use crate::config::LimitSettings;

/// A struct that reads a part of a body's fields. It must not use `#[serde(flatten)]`, because the
/// names of flattened fields would be unknown.
pub(in crate::server) trait Part:
    DeserializeOwned + ToSchema + Send + 'static
{
}
impl<T: DeserializeOwned + ToSchema + Send + 'static> Part for T {}

/// Schemas by their names.
pub(in crate::server) type Schemas = Vec<(String, RefOr<Schema>)>;

/// A request that consists of parts.
pub(in crate::server) trait FromParts: Sized + Send + 'static {
    /// The structs that its fields are spread over.
    type Parts: Parts;

    /// Builds the request from its parts.
    fn from_parts(parts: Self::Parts) -> Result<Self, ApiError>;

    /// Rejects a request that exceeds a limit.
    fn check_limits(&self, _limits: &LimitSettings) -> Result<(), ApiError> {
        Ok(())
    }
}

/// The structs that a body is read as: a tuple of [`Part`]s.
pub(in crate::server) trait Parts: Sized + Send + 'static {
    /// Reads each of them from the text of a whole body.
    fn parse(text: &str) -> Result<Self, ApiError>;

    /// Returns the names of all fields.
    fn fields() -> Vec<&'static str>;

    /// Returns an object with all fields. Adds the schemas that it refers to to `schemas`.
    fn schema(schemas: &mut Schemas) -> Object;
}

macro_rules! parts {
    ($($part:ident),+) => {
        impl<$($part: Part),+> Parts for ($($part,)+) {
            fn parse(text: &str) -> Result<Self, ApiError> {
                Ok(($(parse_object::<$part>(text)?,)+))
            }

            fn fields() -> Vec<&'static str> {
                [$(fields_of::<$part>()),+].concat()
            }

            fn schema(schemas: &mut Schemas) -> Object {
                let mut whole = Object::new();
                $(add::<$part>(&mut whole, schemas);)+
                whole
            }
        }
    };
}
parts!(A);
parts!(A, B);
parts!(A, B, C);
parts!(A, B, C, D);
parts!(A, B, C, D, E);
parts!(A, B, C, D, E, F);

/// Adds the fields of `T` to `whole`.
fn add<T: ToSchema>(whole: &mut Object, schemas: &mut Schemas) {
    T::schemas(schemas);
    if let RefOr::T(Schema::Object(part)) = T::schema() {
        whole.properties.extend(part.properties);
        whole.required.extend(part.required);
    }
}

/// Returns the names of the fields that a struct's derived `Deserialize` asks for.
pub(in crate::server) fn fields_of<T: DeserializeOwned>() -> &'static [&'static str] {
    let mut fields: &'static [&'static str] = &[];
    // The probe returns no struct, so an error is expected.
    let _ = T::deserialize(Probe(&mut fields));
    fields
}

/// Records the fields that a struct is read from.
struct Probe<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for Probe<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(Error::custom("there is nothing to read"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Error> {
        *self.0 = fields;
        Err(Error::custom("there is nothing to read"))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Default, PartialEq, Deserialize, ToSchema)]
    #[serde(default)]
    struct Size {
        width: u8,
        #[serde(rename = "tall", alias = "high")]
        height: u8,
    }

    #[derive(Debug, PartialEq, Deserialize, ToSchema)]
    struct Name {
        name: Option<String>,
    }

    #[test]
    fn each_part_takes_its_fields() {
        let (size, name) = <(Size, Name)>::parse(r#"{"width": 2, "name": "a", "x": 1}"#).unwrap();
        assert_eq!(size, Size { width: 2, height: 0 });
        assert_eq!(name, Name { name: Some("a".to_owned()) });
        let error = <(Size, Name)>::parse(r#"{"name": 1}"#).unwrap_err();
        assert_eq!(error.param.as_deref(), Some("body.name"));
    }

    #[test]
    fn the_fields_are_those_that_are_read() {
        let mut fields = <(Size, Name)>::fields();
        fields.sort_unstable();
        assert_eq!(fields, ["high", "name", "tall", "width"]);
        let schema = <(Size, Name)>::schema(&mut Schemas::new());
        let told: Vec<&str> = schema.properties.keys().map(String::as_str).collect();
        assert_eq!(told, ["width", "tall", "name"]);
    }
}

//! The schemas of single fields whose types read themselves. They leave out spellings that are
//! accepted only for lenient clients.

use std::borrow::Cow;

use utoipa::{
    PartialSchema, ToSchema,
    openapi::{
        Array, KnownFormat, Object, ObjectBuilder, RefOr, Schema, SchemaFormat, Type,
        schema::{AnyOfBuilder, SchemaType},
    },
};

use crate::server::{
    completions::Prompts,
    http::fields::{Float, Int, IsSet, Strings, Token},
};

macro_rules! schema {
    ($($field:ident => $schema:expr),+ $(,)?) => {
        $(impl PartialSchema for $field {
            fn schema() -> RefOr<Schema> {
                $schema.into()
            }
        }

        impl ToSchema for $field {
            fn name() -> Cow<'static, str> {
                Cow::Borrowed(stringify!($field))
            }
        })+
    };
}

schema! {
    Int => integer(KnownFormat::Int64),
    Float => Object::with_type(Type::Number),
    IsSet => Object::with_type(SchemaType::AnyValue),
    Strings => any_of([string(), list(string())]),
    Token => token(),
    Prompts => any_of([string(), list(string()), list(token()), list(list(token()))]),
}

fn integer(format: KnownFormat) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::Integer).format(Some(SchemaFormat::KnownFormat(format)))
}

fn token() -> Schema {
    integer(KnownFormat::Int32).minimum(Some(0)).into()
}

fn string() -> Schema {
    Object::with_type(Type::String).into()
}

fn list(items: Schema) -> Schema {
    Array::new(items).into()
}

fn any_of<const N: usize>(schemas: [Schema; N]) -> Schema {
    schemas.into_iter().fold(AnyOfBuilder::new(), AnyOfBuilder::item).into()
}

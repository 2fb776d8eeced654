//! Metadata values.

use std::fmt;
use std::ops::Range;

use super::reader::Reader;

/// One value of the metadata. Unsigned and signed integers and floats of all widths become 64 bits
/// wide.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Flag(bool),
    Text(String),
    List(List),
}

/// A list that stays in the file. Its elements are read on request.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct List {
    pub(super) kind: Kind,
    pub(super) count: usize,
    /// The range of the elements, in bytes from the start of the file. It lies within the file.
    pub(super) range: Range<usize>,
}

/// The kinds of values that the format defines, by their numbers in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    Text,
    List,
    U64,
    I64,
    F64,
}

impl Kind {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, String> {
        const KINDS: [Kind; 13] = [
            Kind::U8,
            Kind::I8,
            Kind::U16,
            Kind::I16,
            Kind::U32,
            Kind::I32,
            Kind::F32,
            Kind::Bool,
            Kind::Text,
            Kind::List,
            Kind::U64,
            Kind::I64,
            Kind::F64,
        ];
        let number = reader.u32()?;
        let kind = KINDS.get(number as usize).copied();
        kind.ok_or_else(|| format!("a value of the unknown type {number}"))
    }

    /// Returns the size of one value in bytes. For a value without a fixed size, returns the least
    /// size.
    fn size_bytes(self) -> usize {
        match self {
            Self::U8 | Self::I8 | Self::Bool => 1,
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::Text | Self::U64 | Self::I64 | Self::F64 => 8,
            Self::List => 12,
        }
    }
}

impl Value {
    /// Reads a value of the kind `kind`, and skips the elements of a list.
    pub(super) fn read(reader: &mut Reader<'_>, kind: Kind) -> Result<Self, String> {
        Ok(match kind {
            Kind::Text => Self::Text(reader.text()?.to_owned()),
            Kind::List => Self::List(List::read(reader)?),
            kind => Self::read_scalar(reader, kind)?,
        })
    }

    /// Reads a number or a boolean.
    pub(super) fn read_scalar(reader: &mut Reader<'_>, kind: Kind) -> Result<Self, String> {
        Ok(match kind {
            Kind::U8 => Self::Unsigned(reader.u8()?.into()),
            Kind::U16 => Self::Unsigned(reader.u16()?.into()),
            Kind::U32 => Self::Unsigned(reader.u32()?.into()),
            Kind::U64 => Self::Unsigned(reader.u64()?),
            Kind::I8 => Self::Signed(reader.u8()?.cast_signed().into()),
            Kind::I16 => Self::Signed(reader.u16()?.cast_signed().into()),
            Kind::I32 => Self::Signed(reader.u32()?.cast_signed().into()),
            Kind::I64 => Self::Signed(reader.u64()?.cast_signed()),
            Kind::F32 => Self::Float(f32::from_bits(reader.u32()?).into()),
            Kind::F64 => Self::Float(f64::from_bits(reader.u64()?)),
            Kind::Bool => match reader.u8()? {
                0 => Self::Flag(false),
                1 => Self::Flag(true),
                other => return Err(format!("a boolean of value {other}")),
            },
            Kind::Text | Kind::List => {
                return Err("a text or a list, where a number is expected".to_owned());
            }
        })
    }

    pub(super) fn unsigned(&self) -> Option<u64> {
        match *self {
            Self::Unsigned(value) => Some(value),
            Self::Signed(value) => u64::try_from(value).ok(),
            _ => None,
        }
    }

    pub(super) fn signed(&self) -> Option<i64> {
        match *self {
            Self::Unsigned(value) => i64::try_from(value).ok(),
            Self::Signed(value) => Some(value),
            _ => None,
        }
    }

    pub(super) fn number(&self) -> Option<f64> {
        match *self {
            Self::Unsigned(value) => Some(value as f64),
            Self::Signed(value) => Some(value as f64),
            Self::Float(value) => Some(value),
            _ => None,
        }
    }
}

impl List {
    fn read(reader: &mut Reader<'_>) -> Result<Self, String> {
        let kind = Kind::read(reader)?;
        let count = reader.count("list elements", kind.size_bytes())?;
        let start = reader.position();
        match kind {
            Kind::List => return Err("a list of lists, which is not supported".to_owned()),
            Kind::Text => {
                for _ in 0..count {
                    reader.text()?;
                }
            }
            // `Reader::count` has compared the count with the bytes that are left.
            kind => {
                reader.take((count * kind.size_bytes()) as u64)?;
            }
        }
        Ok(Self { kind, count, range: start..reader.position() })
    }
}

/// Shows the value in errors. Texts are shortened, and lists show only their length.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN_CHARS: usize = 80;
        match self {
            Self::Unsigned(value) => value.fmt(f),
            Self::Signed(value) => value.fmt(f),
            Self::Float(value) => value.fmt(f),
            Self::Flag(value) => value.fmt(f),
            Self::Text(text) => {
                let shown: String = text.chars().take(SHOWN_CHARS).collect();
                write!(f, "{shown:?}")
            }
            Self::List(list) => write!(f, "a list of {} {:?}", list.count, list.kind),
        }
    }
}

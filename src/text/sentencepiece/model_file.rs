//! The file of a model: the protobuf message `ModelProto` of sentencepiece_model.proto.

pub(in crate::text) use super::ModelFileError;

/// The purpose of a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::text) enum PieceType {
    /// Text.
    Normal,
    /// Text that the model does not know.
    Unknown,
    /// A token that no text has.
    Control,
    /// Text that is always this piece.
    UserDefined,
    /// Text that is not used.
    Unused,
    /// One byte.
    Byte,
}

/// A piece of the vocabulary.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::text) struct VocabularyPiece {
    pub(in crate::text) text: String,
    pub(in crate::text) score: f32,
    pub(in crate::text) kind: PieceType,
}

/// The fields that matter for texts.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::text) struct ModelFile {
    /// By id.
    pub(in crate::text) pieces: Vec<VocabularyPiece>,
    pub(in crate::text) is_bpe: bool,
    pub(in crate::text) has_byte_fallback: bool,
    pub(in crate::text) treat_whitespace_as_suffix: bool,
    pub(in crate::text) precompiled_charsmap: Vec<u8>,
    pub(in crate::text) add_dummy_prefix: bool,
    pub(in crate::text) remove_extra_whitespaces: bool,
    pub(in crate::text) escape_whitespaces: bool,
}

impl Default for ModelFile {
    fn default() -> Self {
        Self {
            pieces: Vec::new(),
            is_bpe: false,
            has_byte_fallback: false,
            treat_whitespace_as_suffix: false,
            precompiled_charsmap: Vec::new(),
            add_dummy_prefix: true,
            remove_extra_whitespaces: true,
            escape_whitespaces: true,
        }
    }
}

impl ModelFile {
    /// Reads a file.
    ///
    /// # Errors
    /// [`ModelFileError`].
    pub(super) fn read(bytes: &[u8]) -> Result<Self, ModelFileError> {
        let mut file = Self::default();
        for field in Fields(bytes) {
            match field? {
                (1, Value::Bytes(piece)) => file.pieces.push(read_piece(piece)?),
                (2, Value::Bytes(trainer)) => file.read_trainer(trainer)?,
                (3, Value::Bytes(normalizer)) => file.read_normalizer(normalizer)?,
                _ => {}
            }
        }
        match file.pieces.is_empty() {
            true => Err(ModelFileError::Form("it has no pieces")),
            false => Ok(file),
        }
    }

    fn read_trainer(&mut self, bytes: &[u8]) -> Result<(), ModelFileError> {
        for field in Fields(bytes) {
            match field? {
                (3, Value::Number(kind @ (1 | 2))) => self.is_bpe = kind == 2,
                (3, Value::Number(kind)) => return Err(ModelFileError::Kind(kind)),
                (24, Value::Number(flag)) => self.treat_whitespace_as_suffix = flag != 0,
                (35, Value::Number(flag)) => self.has_byte_fallback = flag != 0,
                _ => {}
            }
        }
        Ok(())
    }

    fn read_normalizer(&mut self, bytes: &[u8]) -> Result<(), ModelFileError> {
        for field in Fields(bytes) {
            match field? {
                (2, Value::Bytes(map)) => self.precompiled_charsmap = map.to_vec(),
                (3, Value::Number(flag)) => self.add_dummy_prefix = flag != 0,
                (4, Value::Number(flag)) => self.remove_extra_whitespaces = flag != 0,
                (5, Value::Number(flag)) => self.escape_whitespaces = flag != 0,
                _ => {}
            }
        }
        Ok(())
    }
}

fn read_piece(bytes: &[u8]) -> Result<VocabularyPiece, ModelFileError> {
    let mut piece = VocabularyPiece { text: String::new(), score: 0.0, kind: PieceType::Normal };
    for field in Fields(bytes) {
        match field? {
            (1, Value::Bytes(text)) => {
                let text = str::from_utf8(text);
                piece.text =
                    text.map_err(|_| ModelFileError::Form("a piece is no text"))?.to_owned();
            }
            (2, Value::Float(score)) if !score.is_nan() => piece.score = score,
            (3, Value::Number(kind)) => {
                piece.kind = match kind {
                    1 => PieceType::Normal,
                    2 => PieceType::Unknown,
                    3 => PieceType::Control,
                    4 => PieceType::UserDefined,
                    5 => PieceType::Unused,
                    6 => PieceType::Byte,
                    _ => return Err(ModelFileError::Form("a piece has an unknown type")),
                };
            }
            _ => {}
        }
    }
    Ok(piece)
}

/// The value of a field.
enum Value<'a> {
    Number(u64),
    Float(f32),
    Bytes(&'a [u8]),
    Other,
}

/// The fields of a message, by their numbers.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn varint(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn field(&mut self) -> Option<(u64, Value<'a>)> {
        let key = self.varint()?;
        let value = match key & 7 {
            0 => Value::Number(self.varint()?),
            1 => self.take(8).map(|_| Value::Other)?,
            2 => {
                let len = self.varint()?;
                Value::Bytes(self.take(usize::try_from(len).ok()?)?)
            }
            5 => Value::Float(f32::from_le_bytes(self.take(4)?.try_into().ok()?)),
            _ => return None,
        };
        Some((key >> 3, value))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Value<'a>), ModelFileError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field().ok_or(ModelFileError::Form("a field is cut off"));
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

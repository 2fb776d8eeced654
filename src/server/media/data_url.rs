//! Data URIs. Their media type is ignored, because the bytes decide, as in vLLM. The exception is a
//! list of pictures as a video.

use std::sync::Arc;

use base64::{
    DecodeError, Engine as _, alphabet,
    engine::{GeneralPurpose, GeneralPurposeConfig},
};

use crate::{
    api::{MediaSource, Modality},
    server::http::error::ApiError,
};

/// Base64 whose last digit may have bits that belong to no byte, as in Python.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);
/// The media type of a video whose frames are pictures in base64 between commas.
const FRAMES_TYPE: &str = "video/jpeg";
/// Characters of a wrong URI that an error shows.
const SHOWN_CHARS_MAX: usize = 32;

/// Returns the content of a data URI; `rest` is the part behind `data:`.
///
/// # Errors
/// 400 if it is not a list of base64.
pub(super) fn content(modality: Modality, rest: &str) -> Result<MediaSource, ApiError> {
    let Some((head, data)) = rest.split_once(',') else {
        let url = format!("data:{rest}");
        let shown: String = url.chars().take(SHOWN_CHARS_MAX).collect();
        let message = format!("Invalid data URL '{shown}': missing ',' separator.");
        return Err(ApiError::bad_request(message));
    };
    let Some((media_type, "base64")) = head.rsplit_once(';') else {
        return Err(ApiError::bad_request("Only base64 data URLs are supported for now."));
    };
    let media_type = media_type.split(';').next().unwrap_or_default();
    if modality == Modality::Video && media_type.eq_ignore_ascii_case(FRAMES_TYPE) {
        let frames: Result<Vec<Arc<[u8]>>, ApiError> = data.split(',').map(bytes).collect();
        return Ok(MediaSource::Frames(frames?));
    }
    let file = match modality {
        Modality::Audio | Modality::Video => bytes_among_others(data),
        Modality::Image | Modality::Text => bytes(data),
    };
    file.map(MediaSource::File)
}

/// Returns the bytes of base64.
///
/// # Errors
/// 400 for characters that base64 does not have, or missing padding.
pub(super) fn bytes(base64: &str) -> Result<Arc<[u8]>, ApiError> {
    let decoded = BASE64.decode(base64).map_err(|error| match error {
        DecodeError::InvalidPadding | DecodeError::InvalidLength(_) => {
            ApiError::bad_request("Incorrect padding")
        }
        _ => ApiError::bad_request("Non-base64 digit found"),
    });
    decoded.map(Arc::from)
}

/// Returns the bytes of base64 whose digits may have other characters between them, for example
/// line feeds. vLLM reads sounds and videos so.
///
/// # Errors
/// 400 for missing padding.
pub(super) fn bytes_among_others(base64: &str) -> Result<Arc<[u8]>, ApiError> {
    let is_digit = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '=');
    match base64.chars().all(is_digit) {
        true => bytes(base64),
        false => bytes(&base64.chars().filter(|c| is_digit(*c)).collect::<String>()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(modality: Modality, rest: &str) -> Result<MediaSource, String> {
        content(modality, rest).map_err(|error| error.message)
    }

    #[test]
    fn the_bytes_of_base64_are_found_behind_the_comma() {
        let file = |bytes: &[u8]| Ok(MediaSource::File(bytes.into()));
        assert_eq!(read(Modality::Image, "image/png;base64,aGk="), file(b"hi"));
        assert_eq!(read(Modality::Image, ";base64,"), file(b""));
        assert_eq!(read(Modality::Image, "text/plain;charset=x;base64,aGk="), file(b"hi"));
        let frames = read(Modality::Video, "video/jpeg;base64,aGk=,YQ==").unwrap();
        assert_eq!(frames, MediaSource::Frames(vec![b"hi"[..].into(), b"a"[..].into()]));
    }

    #[test]
    fn base64_is_as_exact_as_in_vllm() {
        let file = |bytes: &[u8]| Ok(MediaSource::File(bytes.into()));
        // The last digit has two bits more than a byte needs.
        assert_eq!(read(Modality::Image, "image/png;base64,aGl="), file(b"hi"));
        let lines = "a/b;base64,aG\r\nk=\n";
        assert_eq!(read(Modality::Audio, lines), file(b"hi"));
        assert_eq!(read(Modality::Video, lines), file(b"hi"));
        assert_eq!(read(Modality::Image, lines), Err("Non-base64 digit found".to_owned()));
    }

    #[test]
    fn faults_have_vllms_words() {
        for (rest, message) in [
            (
                "image/png;base64",
                "Invalid data URL 'data:image/png;base64': missing ',' separator.",
            ),
            ("image/png,aGk=", "Only base64 data URLs are supported for now."),
            ("base64,aGk=", "Only base64 data URLs are supported for now."),
            ("image/png;base64,@@@not base64@@@", "Non-base64 digit found"),
            ("image/png;base64,aGk=,aGk=", "Non-base64 digit found"),
            ("image/png;base64,aGk", "Incorrect padding"),
        ] {
            assert_eq!(read(Modality::Image, rest), Err(message.to_owned()), "{rest}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_come_through(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let rest = format!("x/y;base64,{}", BASE64.encode(&bytes));
            prop_assert_eq!(read(Modality::Audio, &rest), Ok(MediaSource::File(bytes.into())));
        }

        #[test]
        fn any_text_is_read_or_refused(rest in ".{0,200}") {
            let _ = read(Modality::Video, &rest);
            let _ = read(Modality::Image, &format!("a;base64,{rest}"));
        }
    }
}

//! Numbers as text or as bytes: `encoding_format`, `embed_dtype` and `endianness`.

use axum::{
    body::Body,
    http::{HeaderName, HeaderValue, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
};
use half::{bf16, f16};
use serde_json::json;

use super::{
    answer::{Numbers, ShortUsage},
    fields::choice,
};
use crate::{api::Pooled, server::http::error::ApiError};

const METADATA: HeaderName = HeaderName::from_static("metadata");

/// The form of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Float,
    Base64,
    Bytes,
    /// Bytes without the header that describes them.
    BytesOnly,
}

/// The type of each number in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dtype {
    Float32,
    Float16,
    Bfloat16,
    Fp8E4m3,
    Fp8E5m2,
}

/// How numbers are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Encoding {
    pub(super) format: Format,
    dtype: Dtype,
    dtype_name: &'static str,
    endianness: &'static str,
}

impl Encoding {
    /// Reads the three fields.
    pub(super) fn new(
        format: Option<&str>,
        dtype: Option<&str>,
        endianness: Option<&str>,
    ) -> Result<Self, ApiError> {
        let formats = [
            ("float", Format::Float),
            ("base64", Format::Base64),
            ("bytes", Format::Bytes),
            ("bytes_only", Format::BytesOnly),
        ];
        let dtypes = [
            ("float32", Dtype::Float32),
            ("float16", Dtype::Float16),
            ("bfloat16", Dtype::Bfloat16),
            ("fp8_e4m3", Dtype::Fp8E4m3),
            ("fp8_e5m2", Dtype::Fp8E5m2),
        ];
        let orders = [("native", "native"), ("big", "big"), ("little", "little")];
        let (_, format) = choice("encoding_format", format, &formats)?;
        let (dtype_name, dtype) = choice("embed_dtype", dtype, &dtypes)?;
        let (_, endianness) = choice("endianness", endianness, &orders)?;
        Ok(Self { format, dtype, dtype_name, endianness })
    }

    /// Returns whether the answer is bytes and not JSON.
    pub(super) fn is_binary(self) -> bool {
        matches!(self.format, Format::Bytes | Format::BytesOnly)
    }

    /// Returns the numbers of one input for an answer in JSON.
    pub(super) fn numbers(self, pooled: &Pooled, by_token: bool) -> Numbers {
        match (self.format, by_token) {
            (Format::Float, false) => Numbers::Vector(pooled.values.to_vec()),
            (Format::Float, true) => Numbers::Rows(pooled.rows().map(<[f32]>::to_vec).collect()),
            _ => Numbers::Base64(base64(&self.bytes(&pooled.values))),
        }
    }

    /// Returns an answer in bytes, one input after the other. A header says where each is.
    pub(super) fn binary(
        self,
        head: BinaryHead<'_>,
        results: &[Pooled],
        by_token: bool,
    ) -> Result<Response, ApiError> {
        let (mut body, mut data) = (Vec::new(), Vec::new());
        for (index, pooled) in results.iter().enumerate() {
            let start = body.len();
            body.extend(self.bytes(&pooled.values));
            let shape = match by_token {
                true => vec![pooled.rows().len(), pooled.width],
                false => vec![pooled.values.len()],
            };
            data.push(json!({
                "index": index,
                "embed_dtype": self.dtype_name,
                "endianness": self.endianness,
                "start": start,
                "end": body.len(),
                "shape": shape,
            }));
        }
        let mut response = Body::from(body).into_response();
        let kind = HeaderValue::from_static("application/octet-stream");
        response.headers_mut().insert(CONTENT_TYPE, kind);
        if self.format == Format::Bytes {
            let BinaryHead { id, created, model, num_tokens } = head;
            let usage = ShortUsage::new(num_tokens);
            let metadata =
                json!({"id": id, "created": created, "model": model, "data": data, "usage": usage});
            let metadata = HeaderValue::try_from(ascii(&metadata.to_string()));
            let metadata = metadata.map_err(|error| ApiError::internal(error.to_string()))?;
            response.headers_mut().insert(METADATA, metadata);
        }
        Ok(response)
    }

    fn bytes(self, values: &[f32]) -> Vec<u8> {
        let is_big = match self.endianness {
            "native" => cfg!(target_endian = "big"),
            order => order == "big",
        };
        let two = |bits: u16| if is_big { bits.to_be_bytes() } else { bits.to_le_bytes() };
        let four = |bits: u32| if is_big { bits.to_be_bytes() } else { bits.to_le_bytes() };
        match self.dtype {
            Dtype::Float32 => values.iter().flat_map(|x| four(x.to_bits())).collect(),
            Dtype::Float16 => {
                values.iter().flat_map(|x| two(f16::from_f32(*x).to_bits())).collect()
            }
            Dtype::Bfloat16 => {
                values.iter().flat_map(|x| two(bf16::from_f32(*x).to_bits())).collect()
            }
            Dtype::Fp8E4m3 => values.iter().map(|x| float8(*x, 3, 7, 448.0, 0x7F)).collect(),
            Dtype::Fp8E5m2 => values.iter().map(|x| float8(*x, 2, 15, 57_344.0, 0x7C)).collect(),
        }
    }
}

/// The head of an answer in bytes.
pub(super) struct BinaryHead<'a> {
    pub(super) id: &'a str,
    pub(super) created: u64,
    pub(super) model: &'a str,
    pub(super) num_tokens: usize,
}

/// Returns JSON with its other characters escaped, because a header holds ASCII alone.
fn ascii(json: &str) -> String {
    let mut units = [0; 2];
    let mut written = String::with_capacity(json.len());
    for character in json.chars() {
        match character.is_ascii() {
            true => written.push(character),
            false => {
                for unit in character.encode_utf16(&mut units) {
                    written.push_str(&format!("\\u{unit:04x}"));
                }
            }
        }
    }
    written
}

/// Returns a number in 8 bits: the nearest value, and of two the one with an even last bit. Larger
/// numbers than `most` become `beyond`.
fn float8(x: f32, mantissa_bits: i32, bias: i32, most: f32, beyond: u8) -> u8 {
    let sign = if x.is_sign_negative() { 0x80 } else { 0 };
    let size = f64::from(x.abs());
    if x.is_nan() {
        return sign | 0x7F;
    }
    // The smallest exponent is that of numbers without a leading one.
    let exponent = if size > 0.0 { size.log2().floor() as i32 } else { 1 - bias };
    let exponent = exponent.max(1 - bias);
    let steps = (size / f64::from(exponent - mantissa_bits).exp2()).round_ties_even();
    let rounded = steps * f64::from(exponent - mantissa_bits).exp2();
    if rounded > f64::from(most) {
        return sign | beyond;
    }
    let leading = f64::from(mantissa_bits).exp2();
    let bits = match steps < leading {
        true => steps as i32,
        // A carry of the mantissa raises the exponent by itself.
        false => ((exponent + bias) << mantissa_bits) + (steps - leading) as i32,
    };
    sign | bits as u8
}

/// Returns bytes as base64, with padding.
pub(super) fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |index: usize| u32::from(group.get(index).copied().unwrap_or_default());
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            let is_padding = digit > group.len();
            let value = (bits >> (18 - 6 * digit)) as usize & 63;
            text.push(if is_padding { '=' } else { DIGITS[value] as char });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_padded() {
        let written: Vec<String> =
            ["", "f", "fo", "foo", "foob"].map(|t| base64(t.as_bytes())).into();
        assert_eq!(written, ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg=="]);
    }

    #[test]
    fn small_floats_are_the_nearest() {
        let e4m3 = |x| float8(x, 3, 7, 448.0, 0x7F);
        assert_eq!([e4m3(1.0), e4m3(-1.0), e4m3(0.0)], [0x38, 0xB8, 0]);
        assert_eq!([e4m3(448.0), e4m3(1e9), e4m3(0.001_953_125)], [0x7E, 0x7F, 1]);
        assert_eq!([e4m3(1.06), e4m3(1.07), e4m3(1.97)], [0x38, 0x39, 0x40]);
        let e5m2 = |x| float8(x, 2, 15, 57_344.0, 0x7C);
        assert_eq!([e5m2(1.0), e5m2(57_344.0), e5m2(1e9)], [0x3C, 0x7B, 0x7C]);
    }

    #[test]
    fn a_header_is_ascii() {
        assert_eq!(ascii("a\u{e9}\u{1f600}"), "a\\u00e9\\ud83d\\ude00");
    }

    #[test]
    fn bytes_follow_the_order_asked_for() {
        let encoding = |order| Encoding::new(Some("bytes"), Some("float16"), Some(order)).unwrap();
        assert_eq!(encoding("big").bytes(&[1.0]), [0x3C, 0]);
        assert_eq!(encoding("little").bytes(&[1.0]), [0, 0x3C]);
        let refused = Encoding::new(Some("hex"), None, None).unwrap_err();
        assert_eq!(refused.param.as_deref(), Some("body.encoding_format"));
    }
}

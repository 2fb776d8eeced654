//! Tests of frames: whole, cut anywhere, and with every bit flipped.

use std::{collections::BTreeMap, sync::Arc};

use proptest::prelude::*;
use serde::Deserialize;

use super::*;
use crate::logic::{
    ledger::LedgerEvent,
    request::{
        EngineRequest, FinishReason, StopReason,
        ids::{EngineIndex, Epoch, RequestId},
        outputs::{Commit, Logprob, SampledToken},
        structured_output::OutputFormat,
    },
};

const FRAMES: Frames = Frames { version: 7, max_len: 1 << 16 };

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Value {
    Text(String),
    Numbers { wide: Vec<u64>, float: Option<f32> },
    Named(BTreeMap<String, i64>),
    Nothing,
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<String>().prop_map(Value::Text),
        (prop::collection::vec(any::<u64>(), 0..20), prop::option::of(-1e9f32..1e9))
            .prop_map(|(wide, float)| Value::Numbers { wide, float }),
        prop::collection::btree_map(any::<String>(), any::<i64>(), 0..4).prop_map(Value::Named),
        Just(Value::Nothing),
    ]
}

fn encoded<T: Serialize>(value: &T) -> Vec<u8> {
    let mut bytes = Vec::new();
    FRAMES.encode(value, &mut bytes).unwrap();
    bytes
}

proptest! {
    #[test]
    fn values_come_back_one_after_the_other(values in prop::collection::vec(value(), 0..6)) {
        let mut bytes = Vec::new();
        values.iter().for_each(|value| FRAMES.encode(value, &mut bytes).unwrap());
        let (mut rest, mut read) = (&bytes[..], Vec::new());
        while let Some((value, len)) = FRAMES.decode::<Value>(rest).unwrap() {
            read.push(value);
            rest = &rest[len..];
        }
        prop_assert_eq!(read, values);
        prop_assert!(rest.is_empty());
    }

    #[test]
    fn a_frame_that_is_cut_anywhere_is_cut_off_and_not_damaged(value in value()) {
        let bytes = encoded(&value);
        for len in 0..bytes.len() {
            prop_assert_eq!(FRAMES.decode::<Value>(&bytes[..len]), Ok(None), "{} bytes", len);
        }
    }

    #[test]
    fn every_flipped_bit_is_found(value in value(), more in any::<[u8; 8]>()) {
        let mut bytes = encoded(&value);
        let len = bytes.len();
        bytes.extend(more);
        for bit in 0..8 * len {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(FRAMES.decode::<Value>(&flipped).is_err(), "bit {}", bit);
        }
    }

    #[test]
    fn any_bytes_give_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let _ = FRAMES.decode::<Value>(&bytes);
        let mut framed = Vec::new();
        if FRAMES.encode(&bytes, &mut framed).is_ok() {
            // The checksums match, and the payload is of another type.
            let _ = FRAMES.decode::<Value>(&framed);
            let _ = FRAMES.decode::<LedgerEvent>(&framed);
        }
    }
}

#[test]
fn a_length_that_a_payload_claims_is_not_believed() {
    let mut claims = Vec::new();
    // A variant with a text of 2^62 bytes.
    bincode::serde::encode_into_std_write((0u32, 1u64 << 62), &mut claims, BINCODE).unwrap();
    let mut bytes = Vec::new();
    FRAMES.append(&(0u32, 1u64 << 62), &mut bytes).unwrap();
    assert_eq!(&bytes[HEADER_LEN..], claims);
    assert!(matches!(FRAMES.decode::<Value>(&bytes), Err(DecodeError::Value(_))));
}

#[test]
fn other_versions_and_long_frames_are_refused() {
    let bytes = encoded(&Value::Text("x".repeat(100)));
    let newer = Frames { version: 8, ..FRAMES };
    let version = DecodeError::Version { found: 7, expected: 8 };
    assert_eq!(newer.decode::<Value>(&bytes), Err(version));
    let short = Frames { max_len: 100, ..FRAMES };
    let error = DecodeError::TooLong { len: 102, max_len: 100 };
    assert_eq!(short.decode::<Value>(&bytes), Err(error));
    let mut out = vec![1, 2, 3];
    let error = short.encode(&Value::Text("x".repeat(100)), &mut out);
    assert_eq!(error, Err(EncodeError::TooLong { len: 102, max_len: 100 }));
    assert_eq!(out, [1, 2, 3]);
}

#[test]
fn bytes_behind_the_value_are_an_error() {
    let bytes = encoded(&(Value::Nothing, 1u8));
    let error = DecodeError::Value("1 bytes follow the value".to_owned());
    assert_eq!(FRAMES.decode::<Value>(&bytes), Err(error));
}

/// The checksum is the one of zip and Ethernet, so other programs can check a file.
#[test]
fn the_checksum_is_crc_32() {
    assert_eq!(crc32fast::hash(b"123456789"), 0xCBF4_3926);
}

#[test]
fn events_of_the_ledger_come_back() {
    let mut request = EngineRequest::for_test(3, [1, 70_000]);
    let params = request.sampling_mut();
    params.structured_output = Some(Arc::new(OutputFormat::Regex("[a-z]+".to_owned()).into()));
    params.logit_bias = vec![(3, -1.5)];
    let token = SampledToken {
        token_id: 9,
        logprobs: Some(vec![Logprob { token_id: 9, logprob: f32::NEG_INFINITY, rank: 1 }]),
    };
    let commit = Commit {
        request: RequestId(3),
        position: 0,
        produced: [token].into_iter().collect(),
        prompt_logprobs: None,
        finish: Some(FinishReason::Stop(Some(StopReason::String("é".to_owned())))),
    };
    let events = [
        LedgerEvent::Accepted { requests: vec![Arc::new(request)], tenant: None, at: 5 },
        LedgerEvent::Committed { epoch: Epoch(2), commit, at: u64::MAX },
        LedgerEvent::EpochBegan {
            engine: EngineIndex(1),
            epoch: Epoch(3),
            why: "the core has changed".into(),
        },
        LedgerEvent::Assigned { requests: vec![RequestId(3)], engine: EngineIndex(2) },
    ];
    for event in events {
        let bytes = encoded(&event);
        assert_eq!(FRAMES.decode(&bytes), Ok(Some((event, bytes.len()))));
    }
}

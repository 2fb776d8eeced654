//! Golden hashes, measured on vLLM's `sha256_cbor` (vllm-behaviour §4.4).

use std::sync::Arc;

use super::*;
use crate::logic::request::lora::LoraRequest;

fn check(hash: BlockHash, expected: &str) {
    assert_eq!(hash.to_string(), expected);
}

fn tokens(range: std::ops::Range<u32>) -> Vec<TokenId> {
    range.collect()
}

#[test]
fn none_hash_without_a_seed() {
    check(none_hash(None), "9bd96a485ad84efdafb72ee48a1d7a69bcead0f8f0433173941b276b9581eef0");
}

#[test]
fn none_hash_with_seed_0_and_its_first_block() {
    let none = none_hash(Some("0"));
    check(none, "4e1195df020de59e0d65a33a4279f1183e7ae4e5d980e309f8b55adff2e61c3e");
    check(
        hash_block(&none, &tokens(0..16), &[]),
        "d830de3d42c00f25a2949b5d12d98642664a44872c1614c5b0147556276afc9c",
    );
}

#[test]
fn a_chain_of_two_blocks() {
    let first = hash_block(&none_hash(None), &tokens(0..16), &[]);
    check(first, "dc918a88b139e5afe60b88eda27508d4aee16c10fdc354791efea06206ac0749");
    check(
        hash_block(&first, &tokens(16..32), &[]),
        "c300ec275d7bf08af8fc63e76cdc0086911bbc7091e03c5cf892553bef84ef0c",
    );
}

#[test]
fn a_salt_in_the_first_block_changes_the_whole_chain() {
    let salt = ExtraKey::CacheSalt("s1".into());
    let first = hash_block(&none_hash(None), &tokens(0..16), &[salt]);
    check(first, "37a188ca0f395fb17edb7613ec9f0f06e16dd32556cf8209ea1772c6a9134909");
    check(
        hash_block(&first, &tokens(16..32), &[]),
        "fa66996642c78510e90f8b54b3a16bf644ab8ee8d8e77717139fc4a6b7a2c91a",
    );
}

#[test]
fn media_are_part_of_the_hash() {
    let none = none_hash(None);
    let image = ExtraKey::Multimodal { identifier: "imgA".into(), offset: 4 };
    check(
        hash_block(&none, &tokens(0..16), &[image]),
        "54607df4ecf8c763349d8d98516524dbc6bd3356f6a902157cf967c17ca713da",
    );
}

#[test]
fn the_adapter_is_part_of_the_hash() {
    let adapter = LoraRequest { path: "/p".to_owned(), ..LoraRequest::for_test("a") };
    let hash = |version| {
        let key = ExtraKey::Lora(Arc::new(LoraRequest { version, ..adapter.clone() }));
        hash_block(&none_hash(None), &tokens(0..16), &[key])
    };
    check(hash(0), "dea73d43f6fa465bdab1e561e4fc44827e9499cc79b48f30ce48f67c0f2d8299");
    assert_ne!(hash(0), hash(1), "another content under the same name and path");
}

#[test]
fn debug_shows_hex() {
    assert!(format!("{:?}", none_hash(None)).starts_with("BlockHash(9bd96a48"));
}

//! Dictionaries that torch wrote. `samples/make.py` wrote them. Files of one tensor, and broken
//! ones, are among the tests of media.

use super::*;

fn sample(name: &str) -> Vec<u8> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/torch_file/samples");
    std::fs::read(format!("{folder}/{name}")).unwrap()
}

#[test]
fn the_tensors_of_a_module_are_read_by_their_names() {
    for name in ["linear.pt", "plain.pt"] {
        let read = tensors(&sample(name)).unwrap();
        assert_eq!(read.keys().collect::<Vec<_>>(), ["bias", "weight"], "{name}");
        let weight = Elements::Floats(vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!((&*read["weight"].shape, &read["weight"].elements), (&[2, 3][..], &weight));
        assert_eq!(read["bias"].elements, Elements::Floats(vec![0.5, -1.5]), "{name}");
    }
}

#[test]
fn other_values_are_refused() {
    let one = tensor(&sample("linear.pt")).unwrap_err();
    assert!(one.contains("something else than one tensor"), "{one}");
    let list = tensors(&sample("list.pt")).unwrap_err();
    assert!(list.contains("the instruction 0x5d"), "{list}");
    let shared = tensors(&sample("shared.pt")).unwrap_err();
    assert!(shared.contains("more elements than it"), "{shared}");
    assert!(tensors(b"PK").unwrap_err().contains("its archive is broken"));
}

#[test]
fn broken_dictionaries_are_refused() {
    // A value without a name, values of no dictionary, and a list without its begin.
    for pickle in
        [&b"\x80\x02}(Nu."[..], b"\x80\x02N(NNu.", b"\x80\x02}NNNs.", b"\x80\x02}u.", b"b"]
    {
        assert!(pickle::tensors(pickle).is_err(), "{pickle:?}");
    }
    assert!(pickle::tensors(b"\x80\x02}(X\x01\0\0\0aNu.").unwrap().is_empty());
}

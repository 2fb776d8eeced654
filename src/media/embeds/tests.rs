//! Files that torch and safetensors wrote, and files that no one should. `samples/make.py` wrote
//! them.

use proptest::prelude::*;

use super::*;
use crate::media::embeds::file::{Elements, tensor};

/// Returns a sample by its name.
fn sample(name: &str) -> Vec<u8> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/media/embeds/samples");
    std::fs::read(format!("{folder}/{name}")).unwrap()
}

fn plain() -> EmbedsLayout {
    EmbedsLayout { hidden_size: 3, num_layers: 0, merge: None, takes_images: true }
}

fn fields(names: &[(&str, &str)]) -> BTreeMap<String, Arc<[u8]>> {
    names.iter().map(|(field, name)| ((*field).to_owned(), sample(name).into())).collect()
}

/// Returns the reason why an image with these fields is refused.
fn refused(layout: EmbedsLayout, names: &[(&str, &str)]) -> String {
    layout.read(Modality::Image, &fields(names), 4).unwrap_err().to_string()
}

#[test]
fn tensors_of_torch_and_safetensors_are_read() {
    let counted = vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0];
    for name in [
        "float.pt",
        "protocol4.pt",
        "half.pt",
        "bfloat16.pt",
        "double.pt",
        "parameter.pt",
        "float.safetensors",
    ] {
        let read = tensor(&sample(name)).unwrap();
        assert_eq!(read.shape, [2, 3], "{name}");
        assert_eq!(read.elements, Elements::Floats(counted.clone()), "{name}");
    }
    let view = tensor(&sample("view.pt")).unwrap();
    let expected = vec![7.0, 13.0, 8.0, 14.0, 9.0, 15.0];
    assert_eq!((&*view.shape, view.elements), (&[3, 2][..], Elements::Floats(expected)));
    let grid = tensor(&sample("grid.pt")).unwrap();
    assert_eq!((&*grid.shape, grid.elements), (&[1, 3][..], Elements::Ints(vec![1, 4, 6])));
    let scalar = tensor(&sample("scalar.pt")).unwrap();
    assert_eq!((scalar.shape.len(), scalar.elements), (0, Elements::Floats(vec![2.5])));
}

#[test]
fn all_else_is_refused_and_nothing_is_run() {
    for (name, reason) in [
        ("shell.pt", "it calls posix system"),
        ("dict.pt", "something else than one tensor"),
        ("complex.pt", "torch ComplexFloatStorage"),
        ("expanded.pt", "reaches beyond its data"),
        ("deflated.pt", "Compression method not supported"),
        ("legacy.pt", "neither a tensor of torch.save nor a safetensors file"),
        ("two.safetensors", "holds 2 tensors"),
        ("make.py", "neither"),
    ] {
        let error = tensor(&sample(name)).unwrap_err();
        assert!(error.contains(reason), "{name}: {error}");
    }
}

#[test]
fn both_shapes_are_told() {
    let image = plain().read(Modality::Image, &fields(&[("image_embeds", "float.pt")]), 4).unwrap();
    assert!(image.is_embedded() && image.num_embeds == 2 && image.grid.is_none());
    assert_eq!(image.tensors[0].shape, [2, 3]);
    let wide = EmbedsLayout { hidden_size: 8, ..plain() };
    let error = refused(wide, &[("image_embeds", "float.pt")]);
    assert!(error.contains("[2, 3]") && error.contains("[num_embeds, 8]"), "{error}");
    let error = refused(plain(), &[("image_embeds", "scalar.pt")]);
    assert!(error.contains("the shape []"), "{error}");
    let error = refused(plain(), &[("image_embeds", "grid.pt")]);
    assert!(error.contains("integers"), "{error}");
    let most = plain().read(Modality::Image, &fields(&[("image_embeds", "float.pt")]), 1);
    assert!(most.unwrap_err().to_string().contains("has 2 embeddings, and 1 to 1"));
    let other = refused(plain(), &[("image_embeds", "float.pt"), ("pixel_values", "float.pt")]);
    assert!(other.contains("pixel_values"), "{other}");
    let none = EmbedsLayout { takes_images: false, ..plain() };
    assert!(refused(none, &[("image_embeds", "float.pt")]).contains("takes none"));
}

#[test]
fn a_grid_must_match_the_embeddings() {
    let layout = EmbedsLayout { merge: Some(2), ..plain() };
    let error = refused(layout, &[("image_embeds", "float.pt")]);
    assert!(error.contains("need image_grid_thw"), "{error}");
    let error = refused(layout, &[("image_embeds", "float.pt"), ("image_grid_thw", "grid.pt")]);
    assert!(error.contains("[1, 4, 6], which are 6 embeddings"), "{error}");
    let error = refused(layout, &[("image_embeds", "float.pt"), ("image_grid_thw", "float.pt")]);
    assert!(error.contains("three integers"), "{error}");
}

#[test]
fn rows_are_split_into_layers() {
    let deep = EmbedsLayout { hidden_size: 1, num_layers: 2, ..plain() };
    let image = deep.read(Modality::Image, &fields(&[("image_embeds", "float.pt")]), 4).unwrap();
    let values: Vec<Vec<f32>> = image
        .tensors
        .iter()
        .map(|tensor| {
            assert_eq!(tensor.shape, [2, 1]);
            tensor.data.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
        })
        .collect();
    assert_eq!(values, [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]);
}

proptest! {
    #[test]
    fn a_damaged_file_is_read_or_refused(
        index in 0..10_000_usize,
        byte in any::<u8>(),
        cut in 0..10_000_usize,
    ) {
        for name in ["float.pt", "view.pt", "grid.pt", "protocol4.pt", "float.safetensors"] {
            let mut file = sample(name);
            let len = file.len();
            file[index % len] = byte;
            let _ = tensor(&file);
            file.truncate(cut % len);
            let _ = tensor(&file);
        }
    }

    #[test]
    fn any_pickle_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = crate::torch_file::pickle::tensor(&bytes);
    }
}

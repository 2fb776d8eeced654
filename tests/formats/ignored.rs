//! A checkpoint where only one of two matrices is quantized, although they are multiplied together.
//! A list of exceptions excludes the other.

use std::fs;

use playhouse::model::{LoadOptions, load_model};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};

use crate::fixture;

#[test]
fn a_partly_quantized_layer_is_rejected_and_both_modules_are_named() {
    let (source, copy) = (fixture("compressed-tensors"), tempfile::TempDir::new().unwrap());
    fs::copy(source.join("config.json"), copy.path().join("config.json")).unwrap();
    let weights = fs::read(source.join("model.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&weights).unwrap();
    for (plain, quantized) in
        [("mlp.up_proj", "mlp.gate_proj"), ("self_attn.v_proj", "self_attn.q_proj")]
    {
        let module = format!("model.layers.0.{plain}");
        let weight = format!("{module}.weight");
        let shape = tensors.tensor(&weight).unwrap().shape().to_vec();
        let zeros = vec![0; 4 * shape.iter().product::<usize>()];
        let dense = TensorView::new(Dtype::F32, shape, &zeros).unwrap();
        let rest =
            tensors.iter().filter(|(name, _)| !name.starts_with(&format!("{module}.weight")));
        let all = rest.chain([(weight.as_str(), dense)]);
        let bytes = safetensors::serialize(all, None).unwrap();
        fs::write(copy.path().join("model.safetensors"), bytes).unwrap();
        let loaded = load_model(copy.path(), &LoadOptions::default(), &mut |_| {});
        let message = loaded.err().unwrap().to_string();
        let expected = format!(
            "the weight of model.layers.0.{quantized} is quantized and that of {module} is not"
        );
        assert!(message.starts_with(&expected), "{message}");
    }
}

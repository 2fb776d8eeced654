//! A matrix that a list of exceptions leaves out, beside one that is multiplied together with it.

use std::fs;

use playhouse::model::{LoadOptions, load_model};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};

use crate::fixture;

#[test]
fn a_layer_that_is_quantized_in_part_is_refused_with_both_modules() {
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

//! Single matrices, value by value.

use std::fs;

use burn::tensor::{Device, Tensor, TensorData};
use playhouse::weights::{
    Checkpoint, GptqFormat, MatrixElements, Quantization, ScaleSharing, StoredMatrix,
};
use playhouse_kernels::{ActivationDtype, LinearWeight, Offsets, WeightDtype, linear};
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};
use tempfile::TempDir;

use crate::fixture;

/// Returns compressed-tensors with groups of so many inputs, beside modules with one scale a row
/// and with one scale.
fn compressed(group: usize) -> Quantization {
    let sharing = vec![ScaleSharing::Group(group), ScaleSharing::Row, ScaleSharing::Tensor];
    Quantization::CompressedTensors { sharing }
}

/// Compares `name` of `checkpoint` with `expected`. The numbers must be equal, but a zero may have
/// another sign.
fn check(checkpoint: &Checkpoint, name: &str, expected: &TensorView<'_>) {
    let shape = [expected.shape()[0], expected.shape()[1]];
    let matrix = checkpoint.matrix(name, shape).unwrap();
    assert!(matches!(matrix.elements, MatrixElements::Quantized(_)), "{name}");
    let (words, _) = expected.data().as_chunks::<4>();
    let expected: Vec<f32> = words.iter().map(|word| f32::from_le_bytes(*word)).collect();
    let actual = matrix.values(WeightDtype::F32).view().to_f32();
    assert_eq!(actual.len(), expected.len());
    for (i, (actual, expected)) in actual.iter().zip(&expected).enumerate() {
        assert!(actual == expected, "{name}[{i}]: {actual:e}, expected {expected:e}");
    }
    assert!(expected.iter().any(|x| *x != expected[0]), "{name}: a constant shows nothing");
    check_product(name, checkpoint.matrix(name, shape).unwrap(), &expected);
}

/// Compares products with the packed matrix and products with `weight`. Activations are taken as
/// they are, or rounded to 127 steps. A step size holds for a block of 128 inputs, or for a group
/// that is larger.
fn check_product(name: &str, matrix: StoredMatrix<'_>, weight: &[f32]) {
    let MatrixElements::Quantized(matrix) = matrix.elements else { panic!("{name} is dense") };
    let inputs = matrix.in_features();
    let x: Vec<f32> = (0..inputs).map(|i| ((i * i + 7 * i) % 41) as f32 / 20.0 - 1.0).collect();
    let device = Device::flex();
    let largest = x.iter().fold(0.0, |a: f32, b| a.max(b.abs()));
    let largest_offset = match matrix.offsets() {
        Offsets::Values(values) => values.iter().fold(0.0, |a: f32, b| a.max(b.abs())),
        Offsets::None | Offsets::ZeroPoints(_) => 0.0,
    };
    // Each kind of activation with the largest rounding error of one activation.
    let kinds = [(ActivationDtype::F32, 0.0), (ActivationDtype::Int8, largest / 254.0)];
    for (activations, error) in kinds {
        let packed = LinearWeight::pack_quantized(vec![matrix.clone()], activations, &device);
        let packed = packed.unwrap();
        let data = TensorData::new(x.clone(), [1, inputs]);
        let product = linear(Tensor::from_data(data, &device), &packed, None);
        let product = product.into_data().try_to_vec::<f32>().unwrap();
        for (o, (row, actual)) in weight.chunks(inputs).zip(product).enumerate() {
            let (mut exact, mut bound) = (0.0, 0.0);
            for (w, x) in row.iter().zip(&x) {
                exact += f64::from(*w) * f64::from(*x);
                bound += f64::from(w.abs() * (error + 1e-5 * x.abs()));
                // With int8 activations, scales and offsets may be rounded to f16.
                let factors = f64::from((w.abs() + largest_offset) * x.abs()) / 1024.0;
                bound += if activations == ActivationDtype::Int8 { factors } else { 0.0 };
            }
            let difference = (exact - f64::from(actual)).abs();
            let what = format!("{name}, output {o}, activations {}", activations.name());
            assert!(difference <= bound, "{what}: {actual}, expected {exact}");
        }
    }
}

/// NVFP4 and MXFP4 of compressed-tensors, whose scales are floats of eight bits, or exponents.
#[test]
fn floats_of_four_bits_decode_as_in_compressed_tensors() {
    let expected = fs::read(fixture("float4").join("expected.safetensors")).unwrap();
    let expected = SafeTensors::deserialize(&expected).unwrap();
    let sharing = vec![ScaleSharing::Group(16), ScaleSharing::Group(32)];
    let quantization = Quantization::CompressedTensors { sharing };
    let checkpoint = Checkpoint::open(&fixture("float4")).unwrap().quantized(Some(quantization));
    assert_eq!(expected.len(), 2);
    for (name, expected) in expected.iter() {
        check(&checkpoint, name, &expected);
    }
}

/// NVFP4 of NVIDIA's Model Optimizer, and a module with floats of eight bits beside it.
#[test]
fn floats_of_four_bits_decode_as_in_model_optimizer() {
    let expected = fs::read(fixture("modelopt").join("expected.safetensors")).unwrap();
    let expected = SafeTensors::deserialize(&expected).unwrap();
    let sharing = vec![ScaleSharing::Group(16), ScaleSharing::Tensor];
    let quantization = Quantization::ModelOpt { sharing };
    let checkpoint = Checkpoint::open(&fixture("modelopt")).unwrap().quantized(Some(quantization));
    for name in ["nvfp4", "nvfp4_wide"] {
        check(&checkpoint, name, &expected.tensor(name).unwrap());
        assert!(checkpoint.require_shape(&format!("{name}.weight"), &[24, 64]).is_ok());
    }
    let (words, _) = expected.tensor("fp8").unwrap().data().as_chunks::<4>();
    let values: Vec<f32> = words.iter().map(|word| f32::from_le_bytes(*word)).collect();
    let matrix = checkpoint.matrix("fp8", [24, 64]).unwrap();
    assert_eq!(matrix.values(WeightDtype::F32).view().to_f32(), values);
}

/// Returns the error of a matrix `[2, 16]` in NVFP4, whose tensor `name` is another one.
fn nvfp4_with(name: &str, tensor: Option<TensorView<'_>>) -> String {
    let (one, codes) = (1f32.to_le_bytes(), [0x21; 16]);
    let mut tensors = vec![
        ("m.weight", TensorView::new(Dtype::U8, vec![2, 8], &codes).unwrap()),
        ("m.weight_scale", TensorView::new(Dtype::F8_E4M3, vec![2, 1], &[0x38; 2]).unwrap()),
        ("m.weight_scale_2", TensorView::new(Dtype::F32, vec![], &one).unwrap()),
    ];
    tensors.retain(|(known, _)| *known != name);
    tensors.extend(tensor.map(|tensor| (name, tensor)));
    let folder = TempDir::new().unwrap();
    let bytes = safetensors::serialize(tensors, None).unwrap();
    fs::write(folder.path().join("model.safetensors"), bytes).unwrap();
    let quantization = Quantization::ModelOpt { sharing: vec![ScaleSharing::Group(16)] };
    let checkpoint = Checkpoint::open(folder.path()).unwrap().quantized(Some(quantization));
    let matrix = checkpoint.matrix("m", [2, 16]);
    matrix.map_or_else(|error| error.to_string(), |_| "none".to_owned())
}

#[test]
fn broken_matrices_of_model_optimizer_are_refused_by_tensor() {
    assert_eq!(nvfp4_with("m.unused", None), "none");
    let nan = f32::NAN.to_le_bytes();
    let nan = TensorView::new(Dtype::F32, vec![1], &nan).unwrap();
    let factors = TensorView::new(Dtype::F32, vec![1], &[0; 4]).unwrap();
    let codes = TensorView::new(Dtype::U8, vec![2, 4], &[0; 8]).unwrap();
    for (name, tensor, expected) in [
        ("m.weight_scale_2", None, "tensor `m.weight_scale_2`: it is missing beside codes"),
        ("m.weight_scale_2", Some(nan), "tensor `m.weight_scale_2`: scale 0 is NaN"),
        ("m.pre_quant_scale", Some(factors), "tensor `m.pre_quant_scale`: inputs would have to"),
        ("m.weight", Some(codes), "tensor `m.weight`"),
    ] {
        let error = nvfp4_with(name, tensor);
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn gguf_blocks_decode_as_in_the_gguf_package() {
    for (file, count) in [("blocks", 4), ("blocks-more", 9)] {
        let checkpoint = Checkpoint::open(&fixture(&format!("{file}.gguf"))).unwrap();
        let expected = fs::read(fixture(&format!("{file}.expected.safetensors"))).unwrap();
        let expected = SafeTensors::deserialize(&expected).unwrap();
        assert_eq!(expected.len(), count);
        for (name, expected) in expected.iter() {
            check(&checkpoint, name, &expected);
        }
    }
}

#[test]
fn other_block_types_are_refused_by_tensor_and_type() {
    let checkpoint = Checkpoint::open(&fixture("blocks-more.gguf")).unwrap();
    for name in ["IQ2_XXS", "TQ1_0"] {
        let error = checkpoint.matrix(name, [1, 256]).unwrap_err().to_string();
        let expected = format!(
            "tensor `{name}.weight` has dtype {name}; accepted here: F32, F16, BF16, Q8_0, Q4_0, \
             Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS and MXFP4"
        );
        assert!(error.ends_with(&expected), "{error}");
    }
}

#[test]
fn matrices_of_hugging_face_folders_decode_as_defined() {
    let folder = fixture("matrices");
    let expected = fs::read(folder.join("expected.safetensors")).unwrap();
    let expected = SafeTensors::deserialize(&expected).unwrap();
    let gptq = |bits, group_size, zeros_less_one| {
        Quantization::Gptq(GptqFormat { bits, group_size, zeros_less_one })
    };
    let mut checked = 0;
    for (name, expected) in expected.iter().filter(|(name, _)| *name != "plain") {
        let quantization = match name {
            "gptq4_row" => gptq(4, None, true),
            "gptq4_v2" => gptq(4, Some(16), false),
            name if name.starts_with("gptq4") => gptq(4, Some(16), true),
            name if name.starts_with("gptq8") => gptq(8, Some(16), true),
            "awq" => Quantization::Awq { group_size: Some(16) },
            _ => compressed(16),
        };
        let checkpoint = Checkpoint::open(&folder).unwrap().quantized(Some(quantization));
        check(&checkpoint, name, &expected);
        checked += 1;
    }
    assert_eq!(checked, 16);
}

#[test]
fn a_module_that_was_left_out_is_read_as_it_is() {
    for quantization in [
        Quantization::Gptq(GptqFormat { bits: 4, group_size: Some(32), zeros_less_one: true }),
        Quantization::Awq { group_size: Some(32) },
        compressed(16),
    ] {
        let checkpoint = Checkpoint::open(&fixture("matrices")).unwrap();
        let matrix = checkpoint.quantized(Some(quantization));
        let matrix = matrix.matrix("plain", [4, 4]).unwrap();
        assert!(matches!(matrix.elements, MatrixElements::Dense(_)));
    }
}

#[test]
fn settings_that_do_not_fit_the_tensors_are_rejected() {
    let refusal = |quantization, name: &str, shape| {
        let checkpoint = Checkpoint::open(&fixture("matrices")).unwrap().quantized(quantization);
        checkpoint.matrix(name, shape).unwrap_err().to_string()
    };
    let gptq = |bits, group_size, name, shape| {
        let format = GptqFormat { bits, group_size: Some(group_size), zeros_less_one: true };
        refusal(Some(Quantization::Gptq(format)), name, shape)
    };
    for (error, expected) in [
        (gptq(8, 16, "gptq4", [8, 32]), "`gptq4.qweight` has shape [4, 8], but by config.json"),
        (gptq(4, 32, "gptq4", [8, 32]), "`gptq4.qzeros` has shape [2, 1], but by config.json"),
        (gptq(4, 5, "gptq4", [8, 32]), "32 inputs are no whole number of groups of 5"),
        (gptq(4, 16, "gptq4", [4, 32]), "a matrix [4, 32]; expected multiples of 8"),
        (gptq(4, 16, "awq", [8, 32]), "`awq.qweight` has shape [32, 1], but by config.json"),
        (gptq(4, 16, "packed4", [6, 32]), "tensor `packed4.weight` of shape [6, 32] is missing"),
        (
            refusal(Some(compressed(16)), "packed4", [6, 64]),
            "`packed4.weight_packed` has shape [6, 4], but by config.json it should be [6, 8]",
        ),
        (
            refusal(Some(compressed(24)), "packed4", [6, 32]),
            "tensor `packed4.weight_scale`: scales [6, 2] of a row of 32 inputs; config.json gives \
             groups of 24 or one scale a row or one scale, and each group must be whole",
        ),
        (
            refusal(None, "int8", [6, 32]),
            "tensor `int8.weight` has dtype I8; accepted here: F32, F16 and BF16",
        ),
    ] {
        assert!(error.contains(expected), "{error}");
    }
}

/// Reads the matrix `module` of the fixture, after the second of its scales became `scale`.
fn with_scale(
    [module, part]: [&str; 2],
    scale: [u8; 2],
    quantization: Quantization,
    shape: [usize; 2],
) -> Result<(), String> {
    let file = fs::read(fixture("matrices").join("model.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&file).unwrap();
    let mut changed = Vec::new();
    for (name, tensor) in tensors.iter() {
        let mut bytes = tensor.data().to_vec();
        if name == format!("{module}.{part}") {
            assert_eq!(tensor.dtype().bitsize(), 16, "{name}");
            bytes[2..4].copy_from_slice(&scale);
        }
        changed.push((name.to_owned(), tensor.dtype(), tensor.shape().to_vec(), bytes));
    }
    let views = changed.iter().map(|(name, dtype, shape, bytes)| {
        (name.clone(), TensorView::new(*dtype, shape.clone(), bytes).unwrap())
    });
    let folder = TempDir::new().unwrap();
    let bytes = safetensors::serialize(views, None).unwrap();
    fs::write(folder.path().join("model.safetensors"), bytes).unwrap();
    let checkpoint = Checkpoint::open(folder.path()).unwrap().quantized(Some(quantization));
    checkpoint.matrix(module, shape).map(|_| ()).map_err(|error| error.to_string())
}

#[test]
fn scales_that_are_no_finite_numbers_are_refused_by_tensor() {
    // NaN and infinity as float16 and as bfloat16.
    let (f16, bf16) = ([[0x00, 0x7E], [0x00, 0x7C]], [[0xC0, 0x7F], [0x80, 0x7F]]);
    let format = GptqFormat { bits: 4, group_size: Some(16), zeros_less_one: true };
    let gptq = Quantization::Gptq(format);
    let awq = Quantization::Awq { group_size: Some(16) };
    for (names, [nan, inf], quantization, shape) in [
        (["gptq4", "scales"], f16, gptq, [8, 32]),
        (["awq", "scales"], f16, awq, [8, 32]),
        (["packed4", "weight_scale"], bf16, compressed(16), [6, 32]),
        (["int8", "weight_scale"], bf16, compressed(16), [6, 32]),
    ] {
        for (scale, name) in [(nan, "NaN"), (inf, "inf")] {
            let error = with_scale(names, scale, quantization.clone(), shape).unwrap_err();
            let [module, part] = names;
            let expected =
                format!("tensor `{module}.{part}`: scale 1 is {name}; expected a finite number");
            assert!(error.ends_with(&expected), "{error}");
        }
        // The same matrix with another value of the scale.
        with_scale(names, [0x00, 0x3C], quantization, shape).unwrap();
    }
}

#[test]
fn blocks_of_gguf_without_finite_scales_are_refused_by_tensor() {
    let mut file = fs::read(fixture("blocks.gguf")).unwrap();
    let half = file.len() / 2;
    file[half..].fill(0xFF);
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("blocks.gguf");
    fs::write(&path, file).unwrap();
    let checkpoint = Checkpoint::open(&path).unwrap();
    let expected = fs::read(fixture("blocks.expected.safetensors")).unwrap();
    let expected = SafeTensors::deserialize(&expected).unwrap();
    let mut refused = 0;
    for (name, expected) in expected.iter() {
        let shape = [expected.shape()[0], expected.shape()[1]];
        let Err(error) = checkpoint.matrix(name, shape) else { continue };
        let reason = "a block has a scale or minimum that is no finite number";
        let expected = format!("tensor `{name}.weight`: {reason}");
        assert!(error.to_string().ends_with(&expected), "{error}");
        refused += 1;
    }
    assert!(refused > 0);
}

/// A tensor of module `m`: its name in the module, dtype, shape, and bytes.
type Part = (&'static str, Dtype, Vec<usize>, Vec<u8>);

/// Returns the matrix `m` of `parts`, row by row.
fn read(parts: &[Part], quantization: Quantization, shape: [usize; 2]) -> Result<Vec<f32>, String> {
    let views = parts.iter().map(|(part, dtype, shape, bytes)| {
        (format!("m.{part}"), TensorView::new(*dtype, shape.clone(), bytes).unwrap())
    });
    let folder = TempDir::new().unwrap();
    let file = safetensors::serialize(views, None).unwrap();
    fs::write(folder.path().join("model.safetensors"), file).unwrap();
    let checkpoint = Checkpoint::open(folder.path()).unwrap().quantized(Some(quantization));
    let matrix = checkpoint.matrix("m", shape).map_err(|error| error.to_string())?;
    assert!(matches!(matrix.elements, MatrixElements::Quantized(_)));
    let values = matrix.values(WeightDtype::F32);
    Ok(values.view().to_f32())
}

fn words(words: &[i32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn floats(floats: &[f32]) -> Vec<u8> {
    floats.iter().flat_map(|float| float.to_le_bytes()).collect()
}

/// Two groups of two inputs with scales of 1 and 10, and of 100 and 1000.
#[test]
fn int_quantized_groups_hold_the_inputs_that_they_are_given() {
    let values = |group_of: Option<[i32; 4]>| {
        let codes = [1, 2, 3, 4, -1, -2, -3, -4].map(i8::cast_unsigned).to_vec();
        let scales = floats(&[1.0, 10.0, 100.0, 1000.0]);
        let mut parts: Vec<Part> = vec![
            ("weight", Dtype::I8, vec![2, 4], codes),
            ("weight_scale", Dtype::F32, vec![2, 2], scales),
        ];
        if let Some(group_of) = group_of {
            parts.push(("weight_g_idx", Dtype::I32, vec![4], words(&group_of)));
        }
        read(&parts, compressed(2), [2, 4])
    };
    let neighbours = Ok(vec![1.0, 2.0, 30.0, 40.0, -100.0, -200.0, -3000.0, -4000.0]);
    assert_eq!(values(None), neighbours);
    assert_eq!(values(Some([0, 0, 1, 1])), neighbours);
    let turns = Ok(vec![10.0, 2.0, 30.0, 4.0, -1000.0, -200.0, -3000.0, -400.0]);
    assert_eq!(values(Some([1, 0, 1, 0])), turns);
    // The order is not set, so inputs belong to groups by position.
    assert_eq!(values(Some([-1; 4])), neighbours);
    let error = values(Some([0, 0, 0, 1])).unwrap_err();
    let expected = "tensor `m.weight_g_idx`: group 0 has 3 inputs; expected 2";
    assert!(error.ends_with(expected), "{error}");
}

#[test]
fn packed_groups_hold_the_inputs_that_they_are_given() {
    let values = |group_of: [i32; 8]| {
        let parts: [Part; 3] = [
            // Codes from -8 to -1.
            ("weight_packed", Dtype::I32, vec![1, 1], words(&[0x7654_3210])),
            ("weight_scale", Dtype::F32, vec![1, 2], floats(&[1.0, 10.0])),
            ("weight_g_idx", Dtype::I32, vec![8], words(&group_of)),
        ];
        read(&parts, compressed(4), [1, 8])
    };
    let turns = Ok(vec![-80.0, -7.0, -60.0, -5.0, -40.0, -3.0, -20.0, -1.0]);
    assert_eq!(values([1, 0, 1, 0, 1, 0, 1, 0]), turns);
    let neighbours = Ok(vec![-8.0, -7.0, -6.0, -5.0, -40.0, -30.0, -20.0, -10.0]);
    assert_eq!(values([-1; 8]), neighbours);
    let error = values([0, 0, 0, 0, 1, 1, 1, 2]).unwrap_err();
    assert!(error.ends_with("tensor `m.weight_g_idx`: group 2 of 2"), "{error}");
}

/// A zero point of 0 is stored as -1, which has every bit set.
#[test]
fn a_gptq_zero_point_of_0_wraps_around_in_the_first_version() {
    let row = |bits: usize, zeros_less_one| {
        let n = 32 / bits;
        let codes = if bits == 4 { 0x7654_3210 } else { 0x0302_0100 };
        let (qweight, scales) = (words(&vec![codes; n]), floats(&vec![1.0; n]));
        let parts: [Part; 3] = [
            ("qweight", Dtype::I32, vec![1, n], qweight),
            ("qzeros", Dtype::I32, vec![1, 1], words(&[-1])),
            ("scales", Dtype::F32, vec![1, n], scales),
        ];
        let format = GptqFormat { bits, group_size: None, zeros_less_one };
        let values = read(&parts, Quantization::Gptq(format), [n, n]).unwrap();
        assert_eq!(values[..n], values[n * (n - 1)..], "all outputs are alike");
        values[..n].to_vec()
    };
    assert_eq!(row(4, true), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
    assert_eq!(row(4, false), [-15.0, -14.0, -13.0, -12.0, -11.0, -10.0, -9.0, -8.0]);
    assert_eq!(row(8, true), [0.0, 1.0, 2.0, 3.0]);
    assert_eq!(row(8, false), [-255.0, -254.0, -253.0, -252.0]);
}

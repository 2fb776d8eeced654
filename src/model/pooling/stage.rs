//! The steps behind the pooling of a vector: the modules of sentence-transformers.

use super::{Dense, DenseNorm, pooler::normalize};

/// A step from a pooled vector to another vector.
#[derive(Debug, Clone, PartialEq)]
pub enum Stage {
    /// `act(W · x + b)`, plus its shortcut (`Dense`).
    Dense(Dense, Shortcut),
    /// A norm (`LayerNorm`).
    Norm(DenseNorm),
    /// A division by the length (`Normalize`), before the last step. The last one belongs to the
    /// request: `use_activation`.
    Normalize,
}

/// The addend of a layer's outputs (`use_residual`).
#[derive(Debug, Clone, PartialEq)]
pub enum Shortcut {
    /// Nothing.
    None,
    /// Its inputs.
    Inputs,
    /// Its inputs, projected to their new size.
    Projected(Dense),
}

impl Stage {
    /// Returns the number of elements of the vector after the step, of `inputs` before it.
    #[must_use]
    pub fn outputs(&self, inputs: usize) -> usize {
        match self {
            Self::Dense(dense, _) => dense.outputs(),
            Self::Norm(_) | Self::Normalize => inputs,
        }
    }

    /// Returns the number of elements that the step takes, if not any.
    #[must_use]
    pub fn inputs(&self) -> Option<usize> {
        match self {
            Self::Dense(dense, _) => Some(dense.inputs),
            Self::Norm(norm) => Some(norm.weight.len()),
            Self::Normalize => None,
        }
    }

    /// Returns the vector after the step.
    #[must_use]
    pub fn forward(&self, mut x: Vec<f32>) -> Vec<f32> {
        match self {
            Self::Dense(dense, shortcut) => {
                let mut outputs = dense.forward(&x);
                let added = match shortcut {
                    Shortcut::None => return outputs,
                    Shortcut::Inputs => x,
                    Shortcut::Projected(projection) => projection.forward(&x),
                };
                outputs.iter_mut().zip(added).for_each(|(output, x)| *output += x);
                outputs
            }
            Self::Norm(norm) => norm.forward(&x),
            Self::Normalize => {
                normalize(&mut x);
                x
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::DenseActivation;
    use super::*;

    fn layer(weight: &[f32]) -> Dense {
        let (weight, activation) = (weight.to_vec(), DenseActivation::Relu);
        Dense { weight, bias: Vec::new(), inputs: 2, activation, norm: None }
    }

    #[test]
    fn a_shortcut_is_added_behind_the_activation() {
        let x = vec![1.0, -2.0];
        let of = |shortcut| Stage::Dense(layer(&[1.0, 1.0, 1.0, 0.0]), shortcut).forward(x.clone());
        assert_eq!(of(Shortcut::None), [0.0, 1.0]);
        assert_eq!(of(Shortcut::Inputs), [1.0, -1.0]);
        assert_eq!(of(Shortcut::Projected(layer(&[2.0, 0.0, 0.0, 3.0]))), [2.0, 1.0]);
    }

    #[test]
    fn a_vector_is_divided_by_its_length() {
        let stage = Stage::Normalize;
        assert_eq!(stage.forward(vec![3.0, 4.0]), [0.6, 0.8]);
        assert_eq!((stage.outputs(5), stage.inputs()), (5, None));
        let dense = Stage::Dense(layer(&[1.0; 6]), Shortcut::None);
        assert_eq!((dense.outputs(2), dense.inputs()), (3, Some(2)));
    }
}

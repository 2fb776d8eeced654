//! A dense layer behind the pooling: `2_Dense` of sentence-transformers.

/// The activation of a dense layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DenseActivation {
    /// None.
    Identity,
    /// Hyperbolic tangent.
    Tanh,
    /// Zero for negative values.
    Relu,
}

/// `act(W · x + b)`, computed on the processor.
#[derive(Debug, Clone, PartialEq)]
pub struct Dense {
    /// `[outputs, inputs]`, row-major.
    pub weight: Vec<f32>,
    /// `[outputs]`, or empty.
    pub bias: Vec<f32>,
    /// Number of elements of `x`.
    pub inputs: usize,
    /// The activation.
    pub activation: DenseActivation,
}

impl Dense {
    /// Returns the number of outputs.
    #[must_use]
    pub fn outputs(&self) -> usize {
        self.weight.len() / self.inputs.max(1)
    }

    /// Returns the outputs for `x`, which has as many elements as the layer has inputs.
    #[must_use]
    pub fn forward(&self, x: &[f32]) -> Vec<f32> {
        let rows = self.weight.chunks_exact(self.inputs.max(1));
        let sums = rows.enumerate().map(|(output, row)| {
            let bias = self.bias.get(output).copied().unwrap_or_default();
            let products = row.iter().zip(x).map(|(w, x)| f64::from(*w) * f64::from(*x));
            (f64::from(bias) + products.sum::<f64>()) as f32
        });
        match self.activation {
            DenseActivation::Identity => sums.collect(),
            DenseActivation::Tanh => sums.map(f32::tanh).collect(),
            DenseActivation::Relu => sums.map(|sum| sum.max(0.0)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_is_a_product_a_bias_and_an_activation() {
        let mut dense = Dense {
            weight: vec![1.0, 2.0, -1.0, 0.5],
            bias: vec![0.0, 1.0],
            inputs: 2,
            activation: DenseActivation::Identity,
        };
        assert_eq!((dense.outputs(), dense.forward(&[2.0, 4.0])), (2, vec![10.0, 1.0]));
        dense.activation = DenseActivation::Tanh;
        assert_eq!(dense.forward(&[0.0, 0.0]), [0.0, 1.0_f32.tanh()]);
        dense.activation = DenseActivation::Relu;
        assert_eq!(dense.forward(&[1.0, -1.0]), [0.0, 0.0]);
        assert_eq!(dense.forward(&[1.0, 1.0]), [3.0, 0.5]);
    }
}

//! Lists of tensors with their shapes.

use crate::model::config::ModelConfig;
use crate::model::layers::{Arrangement, Part};

/// Tensors by name, with their shapes.
pub(super) type Shapes = Vec<(String, Vec<usize>)>;

/// A list of tensors that grows.
#[derive(Default)]
pub(super) struct Tensors(pub(super) Shapes);

impl Tensors {
    pub(super) fn weight(&mut self, module: &str, shape: &[usize]) {
        self.0.push((format!("{module}.weight"), shape.to_vec()));
    }

    /// Adds a linear layer of `inputs`.
    pub(super) fn part(&mut self, part: &Part, inputs: usize, has_bias: bool) {
        let Part { module, outputs, arrangement } = part;
        match arrangement {
            Arrangement::AsStored | Arrangement::Rows(_) => {
                self.weight(module, &[*outputs, inputs]);
            }
            Arrangement::SomeRows { of, .. } => self.weight(module, &[*of, inputs]),
            Arrangement::Transposed => self.weight(module, &[inputs, *outputs]),
            Arrangement::Slice { count, .. } => {
                self.weight(module, &[*count, *outputs, inputs]);
                if has_bias {
                    self.0.push((format!("{module}.bias"), vec![*count, *outputs]));
                }
                return;
            }
            Arrangement::FusedByOutput { count, .. } => {
                self.0.push((module.clone(), vec![*count, *outputs, inputs]));
                return;
            }
            Arrangement::Below { count, is_transposed, .. } => {
                let [rows, columns] = match is_transposed {
                    false => [*outputs, inputs],
                    true => [inputs, *outputs],
                };
                self.0.push((module.clone(), vec![count * rows, columns]));
                return;
            }
            Arrangement::Fused { count, .. } => {
                self.0.push((module.clone(), vec![*count, inputs, *outputs]));
                if has_bias {
                    self.0.push((format!("{module}_bias"), vec![*count, *outputs]));
                }
                return;
            }
        }
        if has_bias {
            let stored = match arrangement {
                Arrangement::SomeRows { of, .. } => *of,
                _ => *outputs,
            };
            self.0.push((format!("{module}.bias"), vec![stored]));
        }
    }

    /// Adds a norm of hidden states.
    pub(super) fn norm(&mut self, module: &str, config: &ModelConfig) {
        self.norm_of(module, config, config.hidden_size);
    }

    /// Adds a norm of vectors of `size`.
    pub(super) fn norm_of(&mut self, module: &str, config: &ModelConfig, size: usize) {
        if config.norm.kind.has_weight() {
            self.weight(module, &[size]);
        }
        if config.norm.kind.has_bias() {
            self.0.push((format!("{module}.bias"), vec![size]));
        }
    }
}

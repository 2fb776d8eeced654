//! The experts on a GPU, in launches that depend on the number of tokens alone, never on the
//! routing. So a recorded step can contain them, unless some of its rows have adapters of experts.
//!
//! [`plan`] sorts the choices by expert, on the device. One launch multiplies all rows with their
//! experts' matrices, and one sums the results of each token. With few rows and SwiGLU, the product
//! of gate and up applies the gate too.

mod activation;
mod gather;
mod lora;
mod plan;
mod sum;

use burn_cubecl::tensor::CubeTensor;

use super::{ExpertActivation, ExpertLora, ExpertSegment, ExpertWeights, Experts, WHAT};
use crate::activation::cube::{activate, gated};
use crate::cube::Rows;
use crate::linear::cube::{CubeStack, grouped, grouped_swiglu, takes_swiglu};
use crate::router::cube::experts_max;
use crate::{Activation, KernelError, Routing};
use activation::{clamped_swiglu, limited_swiglu};
use gather::gathered;
pub(crate) use lora::CubeLora;
use lora::{InputOf, Tokens};
use plan::Plan;

/// The weights of all experts of a layer.
#[derive(Debug)]
pub(crate) struct CubeExperts {
    gate_up: CubeStack,
    down: CubeStack,
}

impl CubeExperts {
    /// Moves the weights behind one another.
    ///
    /// # Errors
    /// Weights of different forms, or the device refuses the memory.
    pub(super) fn new(weights: ExpertWeights) -> Result<Self, KernelError> {
        let ExpertWeights { gate_up, down, gate_up_bias, down_bias } = weights;
        let num_experts = gate_up.len();
        // The device frees the parts of the first stack before it makes the second.
        let gate_up = CubeStack::new(gate_up, gate_up_bias, WHAT, "gate_up")?;
        let most = experts_max(&gate_up.client());
        let (fits, got) = (num_experts <= most, num_experts as u64);
        let accepted = format!("1 to {most} on this device");
        KernelError::require(fits, WHAT, "number of experts", got, accepted)?;
        Ok(Self { gate_up, down: CubeStack::new(down, down_bias, WHAT, "down")? })
    }

    /// Returns the bytes of all weights.
    pub(super) fn size_bytes(&self) -> usize {
        self.gate_up.size_bytes() + self.down.size_bytes()
    }
}

/// Computes the weighted sum of each token's experts.
pub(crate) fn experts(x: CubeTensor, routing: &Routing, experts: &Experts) -> CubeTensor {
    experts_with_lora(x, routing, experts, &[])
}

/// Computes the same with the adapters of some tokens. They are added to the results of each
/// product, so the rows of other tokens have the same bytes.
pub(crate) fn experts_with_lora(
    x: CubeTensor,
    routing: &Routing,
    experts: &Experts,
    segments: &[ExpertSegment<'_>],
) -> CubeTensor {
    let CubeExperts { gate_up, down } = experts.on_gpu();
    let x = Rows::new(x);
    assert_eq!(x.cols, experts.hidden, "experts: width of x [{}, {}]", x.rows, x.cols);
    assert_eq!(routing.num_tokens(), x.rows, "experts: tokens of the routing");
    assert_eq!(routing.num_experts(), experts.num_experts(), "experts: experts of the routing");
    let y = x.sibling(x.rows, x.cols);
    if x.rows == 0 {
        return y;
    }
    let plan = Plan::sort(x.client(), routing);
    let adapters = Adapters::of(&x, segments);
    let items = plan.items();
    let order = gate_up.input_order();
    let ordered = (experts.scale_input || order.is_some())
        .then(|| gathered(&x, &plan, true, order, experts.scale_input));
    let (rows, sources) = match &ordered {
        Some(rows) => (rows, None),
        None => (&x, Some(plan.tokens())),
    };
    let is_silu = matches!(experts.activation, ExpertActivation::Gated(Activation::Silu));
    // Adapters change the products before the gate.
    let activated = if is_silu && adapters.0.is_empty() && takes_swiglu(gate_up, &items) {
        let activated = x.sibling(plan.rows(), gate_up.outputs() / 2);
        grouped_swiglu(rows, sources, gate_up, &items, &activated);
        activated
    } else {
        let products = x.sibling(plan.rows(), gate_up.outputs());
        grouped(rows, sources, gate_up, &items, &products);
        let input = if experts.scale_input { InputOf::ScaledToken } else { InputOf::Token };
        adapters.add(0, &products, &x, input, &plan);
        match experts.activation {
            ExpertActivation::Gated(activation) => gated(products, activation),
            ExpertActivation::Plain(activation) => activate(products, activation),
            ExpertActivation::ClampedSwiGlu { alpha, limit } => {
                clamped_swiglu(products, alpha, limit)
            }
            ExpertActivation::LimitedSwiGlu { limit } => limited_swiglu(products, limit),
        }
    };
    let activated = Rows::new(activated);
    let results = x.sibling(plan.rows(), down.outputs());
    match down.input_order() {
        None => grouped(&activated, None, down, &items, &results),
        order => {
            let ordered = gathered(&activated, &plan, false, order, false);
            grouped(&ordered, None, down, &items, &results);
        }
    }
    adapters.add(1, &results, &activated, InputOf::Row, &plan);
    sum::weighted(&Rows::new(results), &plan, experts.scale_input, y)
}

/// The adapters of a step, with their tokens on the device.
struct Adapters<'a>(Vec<(Tokens, [Option<&'a CubeLora>; 2])>);

impl<'a> Adapters<'a> {
    /// Copies the tokens to the device of `x`.
    fn of(x: &Rows, segments: &[ExpertSegment<'a>]) -> Self {
        let some = segments.iter().filter(|segment| !segment.tokens.is_empty());
        let of_segment = |segment: &ExpertSegment<'a>| {
            let weights = segment.weights.map(|weights| weights.map(ExpertLora::on_gpu));
            (Tokens::of(x.client(), segment.tokens), weights)
        };
        Self(some.map(of_segment).collect())
    }

    /// Adds what the adapters change in the results `y` of a product, whose inputs are `x`.
    fn add(&self, product: usize, y: &CubeTensor, x: &Rows, input: InputOf, plan: &Plan) {
        for (tokens, weights) in &self.0 {
            if let Some(weights) = weights[product] {
                lora::add(y, x, input, plan, tokens, weights);
            }
        }
    }
}

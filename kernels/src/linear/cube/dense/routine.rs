//! Ways to multiply two matrices of 16-bit numbers, all of them cubek's.

use cubecl::client::Client;
use cubecl::prelude::*;
use cubek::matmul::definition::{MatmulElems, MatmulGlobalElems, MatmulSetupError};
use cubek::matmul::launch::launch_ref;
use cubek::matmul::multi_level::Strategy;
use cubek::std::InputBinding;

use super::HalfFormat;
use super::layout::Matrices;

/// A way to multiply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Routine {
    /// Tiles by way of shared memory, through the runtime's matrices.
    SimpleCyclicCmma,
    /// The same by the instructions themselves.
    SimpleCyclicMma,
    /// The next tiles are loaded while these are multiplied.
    DoubleCyclicMma,
    /// The same, the rows' tiles going from memory to registers in order.
    OrderedDoubleMma,
    /// Tiles are fetched by the tensor memory accelerator.
    SimpleTmaMma,
    /// The same, by planes that do nothing else.
    SpecializedTmaMma,
    /// Without tensor cores, for tests.
    #[cfg(test)]
    SimpleUnit,
}

impl Routine {
    /// Those that use tensor cores; the first is what is taken unmeasured.
    pub(super) const ALL: [Self; 6] = [
        Self::SimpleCyclicCmma,
        Self::SimpleCyclicMma,
        Self::DoubleCyclicMma,
        Self::OrderedDoubleMma,
        Self::SimpleTmaMma,
        Self::SpecializedTmaMma,
    ];

    /// Its name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::SimpleCyclicCmma => "SimpleCyclicCmma",
            Self::SimpleCyclicMma => "SimpleCyclicMma",
            Self::DoubleCyclicMma => "DoubleCyclicMma",
            Self::OrderedDoubleMma => "OrderedDoubleMma",
            Self::SimpleTmaMma => "SimpleTmaMma",
            Self::SpecializedTmaMma => "SpecializedTmaMma",
            #[cfg(test)]
            Self::SimpleUnit => "SimpleUnit",
        }
    }

    /// The one of this name.
    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|routine| routine.name() == name)
    }

    fn strategy(self) -> Strategy {
        match self {
            Self::SimpleCyclicCmma => Strategy::SimpleCyclicCmma(Default::default()),
            Self::SimpleCyclicMma => Strategy::SimpleCyclicMma(Default::default()),
            Self::DoubleCyclicMma => Strategy::DoubleCyclicMma(Default::default()),
            Self::OrderedDoubleMma => Strategy::OrderedDoubleMma(Default::default()),
            Self::SimpleTmaMma => Strategy::SimpleTmaMma(Default::default()),
            Self::SpecializedTmaMma => Strategy::SpecializedTmaMma(Default::default()),
            #[cfg(test)]
            Self::SimpleUnit => Strategy::SimpleUnit(Default::default()),
        }
    }

    /// `rows · columns` into `y`, f32; a single matrix of rows meets all of columns.
    ///
    /// # Errors
    /// The device, or these shapes, do not suit it.
    pub(super) fn multiply(
        self,
        client: &Client,
        half: HalfFormat,
        rows: Matrices,
        columns: Matrices,
        y: Matrices,
    ) -> Result<(), MatmulSetupError> {
        let elem = half.elem();
        let elems = MatmulGlobalElems { lhs: elem, rhs: elem, out: f32::elem_type_native() };
        launch_ref(
            &self.strategy().into(),
            client,
            InputBinding::new(rows.binding(), elem),
            InputBinding::new(columns.binding(), elem),
            y.binding(),
            &mut MatmulElems::from_globals(&elems),
        )
    }
}

//! Routines that multiply two matrices of 16-bit numbers, all of them cubek's.

use cubecl::client::Client;
use cubecl::prelude::*;
use cubek::matmul::definition::{MatmulElems, MatmulGlobalElems, MatmulSetupError};
use cubek::matmul::launch::launch_ref;
use cubek::matmul::multi_level::Strategy;
use cubek::std::InputBinding;

use super::HalfFormat;
use super::layout::Matrices;

/// A routine that multiplies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Routine {
    /// Loads tiles through shared memory and multiplies them by the runtime's matrix type.
    SimpleCyclicCmma,
    /// The same, with the matrix instructions themselves.
    SimpleCyclicMma,
    /// Loads the next tiles while these are multiplied.
    DoubleCyclicMma,
    /// The same, and the rows' tiles go from memory to registers in order.
    OrderedDoubleMma,
    /// Fetches tiles by the tensor memory accelerator.
    SimpleTmaMma,
    /// The same, with planes that only fetch.
    SpecializedTmaMma,
    /// Works without tensor cores, for tests.
    #[cfg(test)]
    SimpleUnit,
    /// The same with the next tiles loaded meanwhile, for tests.
    #[cfg(test)]
    DoubleUnit,
}

impl Routine {
    /// The routines that use tensor cores. The first is used where none is measured.
    pub(super) const ALL: [Self; 6] = [
        Self::SimpleCyclicCmma,
        Self::SimpleCyclicMma,
        Self::DoubleCyclicMma,
        Self::OrderedDoubleMma,
        Self::SimpleTmaMma,
        Self::SpecializedTmaMma,
    ];

    /// Returns its name.
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
            #[cfg(test)]
            Self::DoubleUnit => "DoubleUnit",
        }
    }

    /// Returns the routine of this name.
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
            #[cfg(test)]
            Self::DoubleUnit => Strategy::DoubleUnit(Default::default()),
        }
    }

    /// Computes `rows · columns` into `y`, f32. A single matrix of rows is multiplied by all of
    /// columns.
    ///
    /// # Errors
    /// The device or the shapes do not suit the routine.
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

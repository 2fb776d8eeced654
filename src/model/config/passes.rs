//! Several passes through the same layers.

use super::ConfigError;
use super::file::Fields;

/// The most layers of all passes together.
const LAYERS_MAX: usize = 4_096;

/// The passes of a token through all layers. Each has keys and values of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Passes {
    /// Their number, at least 1.
    pub(crate) count: usize,
    /// Whether the norm after the last layer follows each of them, and not only the last one.
    pub(crate) has_norms: bool,
    /// The module by which a token could leave before the last pass. It is not read.
    pub(crate) exit_gate: Option<&'static str>,
    /// The only layers that a token passes several times. `None`: all of them.
    pub(crate) section: Option<Section>,
}

/// Layers in the middle that a token passes several times: HF `DoryModel`. The input of a pass is
/// the norm of the stream, plus the norm of the first pass' input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Section {
    /// The first of the layers.
    pub(crate) start: usize,
    /// The layer behind the last of them.
    pub(crate) end: usize,
}

impl Section {
    /// Returns the number of layers.
    pub(crate) fn len(self) -> usize {
        self.end - self.start
    }
}

impl Passes {
    /// One pass, as almost all families have.
    pub(crate) const ONE: Self =
        Self { count: 1, has_norms: false, exit_gate: None, section: None };

    /// Reads the number of passes through `num_layers` layers, each with the norm behind it.
    pub(crate) fn read(
        fields: &Fields,
        field: &str,
        default: usize,
        num_layers: usize,
    ) -> Result<Self, ConfigError> {
        let count = fields.size(field)?.unwrap_or(default);
        if count.saturating_mul(num_layers) > LAYERS_MAX {
            let expected = format!("a number with at most {LAYERS_MAX} layers in all passes");
            return Err(fields.invalid(field, &expected));
        }
        Ok(Self { count, has_norms: true, exit_gate: None, section: None })
    }

    /// Returns the layers in the order in which a token passes them, of `num_layers` layers.
    pub(crate) fn order(self, num_layers: usize) -> impl Iterator<Item = usize> {
        let Section { start, end } = self.section_of(num_layers);
        let passes = std::iter::repeat_n(start..end, self.count).flatten();
        (0..start).chain(passes).chain(end..num_layers)
    }

    /// Returns the length of that order.
    pub(crate) fn num_layers(self, num_layers: usize) -> usize {
        num_layers + (self.count - 1) * self.section_of(num_layers).len()
    }

    /// Returns the layers that a token passes several times.
    pub(crate) fn section_of(self, num_layers: usize) -> Section {
        self.section.unwrap_or(Section { start: 0, end: num_layers })
    }
}

#[cfg(test)]
mod tests {
    use super::{Passes, Section};

    #[test]
    fn only_layers_of_the_section_come_several_times() {
        let order = |count, section| {
            let passes = Passes { count, section, ..Passes::ONE };
            let order: Vec<usize> = passes.order(5).collect();
            assert_eq!(order.len(), passes.num_layers(5));
            order
        };
        assert_eq!(order(1, None), [0, 1, 2, 3, 4]);
        assert_eq!(order(2, None), [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]);
        let middle = Some(Section { start: 1, end: 3 });
        assert_eq!(order(3, middle), [0, 1, 2, 1, 2, 1, 2, 3, 4]);
        assert_eq!(order(2, Some(Section { start: 3, end: 5 })), [0, 1, 2, 3, 4, 3, 4]);
    }
}

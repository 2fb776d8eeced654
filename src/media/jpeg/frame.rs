//! The frame of a file: its size and its components.

use super::ZIGZAG;
use super::idct::samples;

/// Samples on a side of a block.
pub(super) const SIDE: usize = 8;
/// Coefficients after the first whose precision decides whether libjpeg-turbo smooths blocks.
const SMOOTHED: usize = 9;

/// A component: one of the colours.
pub(super) struct Component {
    pub(super) id: u8,
    /// Blocks of a unit, across and down.
    pub(super) sampling: [usize; 2],
    /// The number of its quantization table.
    pub(super) table: usize,
    /// The table itself, from its first scan on.
    pub(super) quantization: Option<[u16; 64]>,
    /// Its blocks across and down, with those that fill up the last units.
    pub(super) blocks: [usize; 2],
    /// Its blocks across and down with parts of the picture.
    pub(super) own_blocks: [usize; 2],
    /// Its samples across and down that belong to the picture.
    pub(super) size: [usize; 2],
    /// The coefficients of all blocks. A sequential file needs none.
    pub(super) coefficients: Vec<i16>,
    /// The samples of all blocks.
    pub(super) samples: Vec<u8>,
    /// The missing bits of each coefficient, by its place in the file. `None` before its first.
    pub(super) missing: [Option<u8>; 64],
}

/// The frame of a file.
pub(super) struct Frame {
    pub(super) is_progressive: bool,
    /// Pixels across and down.
    pub(super) size: [usize; 2],
    pub(super) components: Vec<Component>,
    /// The largest sampling of a component.
    pub(super) sampling: [usize; 2],
    /// Units across and down.
    pub(super) units: [usize; 2],
}

impl Frame {
    /// Reads the segment of a frame. It gets memory if `allocates`.
    pub(super) fn read(body: &[u8], is_progressive: bool, allocates: bool) -> Option<Self> {
        let [precision, h1, h0, w1, w0, count, rest @ ..] = body else { return None };
        let size =
            [[w1, w0], [h1, h0]].map(|[high, low]| usize::from(*high) << 8 | usize::from(*low));
        let (listed, []) = rest.as_chunks::<3>() else { return None };
        let is_known = *precision == 8 && matches!(count, 1 | 3 | 4);
        if !is_known || listed.len() != usize::from(*count) || size.contains(&0) {
            return None;
        }
        let samplings: Vec<[usize; 2]> = listed
            .iter()
            .map(|[_, sampling, _]| [usize::from(sampling >> 4), usize::from(sampling & 15)])
            .collect();
        if samplings.as_flattened().iter().any(|sampling| !(1..=4).contains(sampling)) {
            return None;
        }
        let most = |axis: usize| samplings.iter().map(|sampling| sampling[axis]).max().unwrap_or(1);
        let sampling = [most(0), most(1)];
        let units = [0, 1].map(|axis| size[axis].div_ceil(SIDE * sampling[axis]));
        let component = |([id, _, table], own): (&[u8; 3], &[usize; 2])| {
            let of_picture = [0, 1].map(|axis| (size[axis] * own[axis]).div_ceil(sampling[axis]));
            Component {
                id: *id,
                sampling: *own,
                table: usize::from(*table),
                quantization: None,
                blocks: [0, 1].map(|axis| units[axis] * own[axis]),
                own_blocks: of_picture.map(|side| side.div_ceil(SIDE)),
                size: of_picture,
                coefficients: Vec::new(),
                samples: Vec::new(),
                missing: [None; 64],
            }
        };
        let mut components: Vec<Component> = listed.iter().zip(&samplings).map(component).collect();
        if components.iter().any(|component| component.table >= super::TABLES) {
            return None;
        }
        for component in components.iter_mut().filter(|_| allocates) {
            let len = component.num_samples();
            component.samples = vec![0; len];
            if is_progressive {
                component.coefficients = vec![0; len];
            }
        }
        Some(Self { is_progressive, size, components, sampling, units })
    }

    /// Returns the bytes of its samples, its coefficients, and its pixels.
    pub(super) fn num_bytes(&self) -> usize {
        let bytes = if self.is_progressive { 1 + size_of::<i16>() } else { 1 };
        let samples: usize = self.components.iter().map(Component::num_samples).sum();
        samples * bytes + self.size[0] * self.size[1] * 3
    }

    /// Computes the samples of a progressive file. `None` if scans are missing, which
    /// libjpeg-turbo would make up for.
    pub(super) fn finish(&mut self) -> Option<()> {
        for component in &mut self.components {
            if component.missing[..=SMOOTHED].iter().any(|missing| *missing != Some(0)) {
                return None;
            }
            let factors = component.quantization?;
            let coefficients = std::mem::take(&mut component.coefficients);
            for (at, block) in coefficients.as_chunks::<64>().0.iter().enumerate() {
                component.put(at, &samples(block, &factors));
            }
        }
        Some(())
    }
}

impl Component {
    fn num_samples(&self) -> usize {
        self.blocks[0] * self.blocks[1] * SIDE * SIDE
    }

    /// Writes the samples of the block with the index `at`.
    pub(super) fn put(&mut self, at: usize, block: &[[u8; SIDE]; SIDE]) {
        let line = self.blocks[0] * SIDE;
        let [row, column] = [at / self.blocks[0], at % self.blocks[0]];
        let first = row * SIDE * line + column * SIDE;
        for (index, samples) in block.iter().enumerate() {
            let from = first + index * line;
            if let Some(to) = self.samples.get_mut(from..from + SIDE) {
                to.copy_from_slice(samples);
            }
        }
    }

    /// Returns a row of its samples that belong to the picture. Rows beyond the last are the last.
    pub(super) fn row(&self, row: usize) -> &[u8] {
        let line = self.blocks[0] * SIDE;
        let from = row.min(self.size[1] - 1) * line;
        &self.samples[from..from + self.size[0]]
    }
}

/// Returns the place in a block of the coefficient with the index `index` in the file.
pub(super) fn place(index: usize) -> Option<usize> {
    ZIGZAG.get(index).copied()
}

//! The product of integers: tiles of rows over panels of outputs.

use std::ops::Range;

use super::activations::{ActivationRows, Activations};
use super::isa::{CodeVector, Dots, DotsIsa, DotsTask};
use super::pack::{CodeFormat, Header, OffsetKind, PackedQuantized};
use crate::activation::Activation;
use crate::activation::cpu::Activated;
use crate::linear::groups::{Counted, RowGroups};
use crate::linear::output::Epilogue;
use crate::linear::pack::PANEL;
use crate::simd::{Isa, LANES, Tiles, prefetch, prefetch_l2};
use crate::threads::{SharedMut, for_each_piece_of_stream, num_threads};

/// Vectors across a panel.
const VECTORS: usize = PANEL / LANES;

/// Least bytes of weights that one piece of work reads.
const PIECE_BYTES: usize = 1 << 17;

/// The same where rows come in several tiles. The tiles pass over the piece one after the other.
/// The piece stays in L2, and each tile is fetched once a piece.
const TILED_PIECE_BYTES: usize = 1 << 19;

/// Pieces for each thread where rows come in several tiles, so that no thread waits long for the
/// last piece of another.
const TILED_PIECES_PER_THREAD: usize = 4;

/// Most rows that wait for memory rather than for sums, and therefore prefetch.
const STREAMED_ROWS_MAX: usize = 4;

/// Bytes between reads and prefetches of a stream from memory.
const PREFETCH_BYTES: usize = 4096;

/// The same for a piece in L2, which each tile brings to L1.
const TILED_PREFETCH_BYTES: usize = 1024;

/// Computes `x Wᵀ` and an epilogue of one part on one instruction set, from row-major x
/// `[rows, inputs]` to y `[rows, outputs]`.
pub(super) fn product(
    isa: Isa,
    x: &[f32],
    weight: &PackedQuantized,
    epilogue: Epilogue<'_>,
    y: &mut [f32],
) {
    let y = &SharedMut::new(y);
    let (bias, activation) = match epilogue {
        Epilogue::Bias(bias) => (bias, None),
        Epilogue::Activated(bias, activation) => (bias, Some((isa, activation))),
        Epilogue::SwiGlu => unreachable!("products of quantized weights have one part"),
    };
    DotsIsa::of(isa).run(Product { x, weight, bias, activation, y });
}

/// Computes the products of groups of rows. Their weights are like one another.
pub(super) fn grouped(isa: Isa, x: &[f32], groups: &RowGroups<'_>, y: &mut [f32]) {
    let y = &SharedMut::new(y);
    DotsIsa::of(isa).run(Products { x, groups, y });
}

struct Product<'a> {
    x: &'a [f32],
    weight: &'a PackedQuantized,
    bias: Option<&'a [f32]>,
    activation: Option<(Isa, Activation)>,
    y: &'a SharedMut<'a, f32>,
}

impl DotsTask for Product<'_> {
    type Output = ();

    #[inline(always)]
    fn run<D: Dots>(self, dots: D) {
        let Self { x, weight, bias, activation, y } = self;
        let rows = x.len() / weight.header.groups.inputs;
        multiply(dots, x, 1, |_| Job { rows: 0..rows, weight, bias, activation }, y);
    }
}

struct Products<'a> {
    x: &'a [f32],
    groups: &'a RowGroups<'a>,
    y: &'a SharedMut<'a, f32>,
}

impl DotsTask for Products<'_> {
    type Output = ();

    #[inline(always)]
    fn run<D: Dots>(self, dots: D) {
        let Self { x, groups, y } = self;
        let job = |group: usize| Job {
            rows: groups.rows(group),
            weight: groups.weight(group).quantized(),
            bias: groups.bias(group),
            activation: None,
        };
        multiply(dots, x, groups.len(), job, y);
    }
}

/// The product of some neighbouring rows with a weight.
struct Job<'a> {
    rows: Range<usize>,
    weight: &'a PackedQuantized,
    bias: Option<&'a [f32]>,
    /// The function of sums with their bias, and its instruction set.
    activation: Option<(Isa, Activation)>,
}

impl Job<'_> {
    #[inline(always)]
    fn tiles<D: Dots>(&self) -> Tiles {
        Tiles::new(self.rows.len(), D::ROWS_MAX)
    }

    /// Returns the panels of a piece, of `jobs` products on `threads` threads.
    #[inline(always)]
    fn per_piece<D: Dots>(&self, jobs: usize, threads: usize) -> usize {
        let header = &self.weight.header;
        if self.tiles::<D>().nth(1).is_none() {
            return PIECE_BYTES.div_ceil(header.panel_bytes());
        }
        let pieces = (TILED_PIECES_PER_THREAD * threads).div_ceil(jobs);
        let most = header.panels().div_ceil(pieces).max(1);
        TILED_PIECE_BYTES.div_ceil(header.panel_bytes()).min(most)
    }
}

/// Computes at least one product. The rows of all are x, and their weights have one shape.
#[inline(always)]
fn multiply<'a, D: Dots>(
    dots: D,
    x: &[f32],
    jobs: usize,
    job: impl Fn(usize) -> Job<'a> + Sync,
    y: &SharedMut<'_, f32>,
) {
    let Header { groups, outputs, .. } = job(0).weight.header;
    // A product of bytes takes a quarter of the time of one of f32.
    let work = x.len() / 4 * outputs;
    let tiles = Counted::new(jobs, |j| job(j).tiles::<D>().count());
    let x = ActivationRows::new(dots, x, groups, tiles.total(), |tile| {
        let (j, tile) = tiles.place(tile);
        let job = job(j);
        let tile = job.tiles::<D>().nth(tile).unwrap_or_default();
        let first = job.rows.start;
        (first + tile.start..first + tile.end, job.weight.input_order.as_deref())
    });
    drop(tiles);
    let threads = num_threads();
    let pieces = Counted::new(jobs, |j| {
        let job = job(j);
        job.weight.header.panels().div_ceil(job.per_piece::<D>(jobs, threads))
    });
    for_each_piece_of_stream(pieces.total(), work, |piece| {
        let (j, piece) = pieces.place(piece);
        let job = job(j);
        let (tiles, per_piece) = (job.tiles::<D>(), job.per_piece::<D>(jobs, threads));
        let panels = piece * per_piece..job.weight.header.panels().min((piece + 1) * per_piece);
        let Job { rows, weight, bias, activation } = job;
        let y = &y.part(rows.start * outputs, rows.len() * outputs);
        let x = &x.rows(&rows);
        dots.enter(Piece { x, weight, bias, activation, y, tiles, panels });
    });
}

/// Some panels of a product, for all rows.
struct Piece<'a> {
    x: &'a Activations<'a>,
    weight: &'a PackedQuantized,
    bias: Option<&'a [f32]>,
    activation: Option<(Isa, Activation)>,
    y: &'a SharedMut<'a, f32>,
    tiles: Tiles,
    panels: Range<usize>,
}

impl DotsTask for Piece<'_> {
    type Output = ();

    #[inline(always)]
    fn run<D: Dots>(self, dots: D) {
        match self.weight.header.format {
            CodeFormat::U8 => self.all::<D, U8>(dots),
            CodeFormat::U4 => self.all::<D, U4>(dots),
            CodeFormat::E2M1 => self.all::<D, E2M1>(dots),
        }
    }
}

impl Piece<'_> {
    #[inline(always)]
    fn all<D: Dots, C: Code>(&self, dots: D) {
        for tile in self.tiles.clone() {
            for panel in self.panels.clone() {
                match tile.len() {
                    12 if const { D::ROWS_MAX >= 12 } => {
                        self.tile::<D, C, 12, 1>(dots, &tile, panel)
                    }
                    8 if const { D::ROWS_MAX >= 8 } => self.tile::<D, C, 8, 1>(dots, &tile, panel),
                    4 if const { D::ROWS_MAX >= 4 } => self.tile::<D, C, 4, 2>(dots, &tile, panel),
                    3 if const { D::ROWS_MAX >= 3 } => self.tile::<D, C, 3, 2>(dots, &tile, panel),
                    2 if const { D::ROWS_MAX >= 2 } => self.tile::<D, C, 2, 2>(dots, &tile, panel),
                    _ => self.tile::<D, C, 1, 2>(dots, &tile, panel),
                }
            }
            if let Some((isa, activation)) = self.activation {
                self.activate(isa, activation, &tile);
            }
        }
    }

    /// Applies a function to the results of a tile, which are still in the cache.
    fn activate(&self, isa: Isa, activation: Activation, tile: &Range<usize>) {
        let outputs = self.weight.header.outputs;
        let columns = self.panels.start * PANEL..outputs.min(self.panels.end * PANEL);
        for row in tile.clone() {
            // SAFETY: only one piece writes these panels, to their own columns of each row.
            let x = unsafe { self.y.slice(row * outputs + columns.start, columns.len()) };
            isa.run(Activated { x, activation });
        }
    }

    /// Multiplies a tile of `R` rows with one panel, in `CHAINS` sums a lane. The order of integer
    /// sums does not matter, and with few rows each addition would wait for the one before.
    #[inline(always)]
    fn tile<D: Dots, C: Code, const R: usize, const CHAINS: usize>(
        &self,
        dots: D,
        tile: &Range<usize>,
        panel: usize,
    ) {
        let header = &self.weight.header;
        let groups = header.groups;
        let part = |each: usize| tile.start * each..tile.end * each;
        let x = self.x.words[part(groups.count() * groups.words())].as_chunks::<R>().0;
        let sums = self.x.sums[part(groups.count())].as_chunks::<R>().0;
        let scales = self.x.scales[part(groups.blocks())].as_chunks::<R>().0;
        let codes = &self.weight.codes[panel * header.panel_bytes()..][..header.panel_bytes()];
        let group_bytes = groups.words() / 2 * C::FORMAT.pair_bytes();
        let mut each_group =
            x.chunks_exact(groups.words()).zip(codes.chunks_exact(group_bytes)).zip(sums);
        let lower = i32::from(header.zero) - C::lowered_by::<D>();
        let factors = self.weight.factors.panel(panel, header.panel_factors());
        let zero_points = header.panel_zero_points();
        let zero_points = &self.weight.zero_points[panel * zero_points..][..zero_points];
        let mut zero_points = zero_points.as_chunks::<LANES>().0.chunks_exact(VECTORS);
        let mut first_factor = 0;
        let mut totals = [[dots.floats(0.0); VECTORS]; R];
        for scales in scales {
            let mut block = [[dots.floats(0.0); VECTORS]; R];
            for ((x, codes), sums) in each_group.by_ref().take(groups.per_block()) {
                let mut dot = [[[dots.ints(0); VECTORS]; R]; CHAINS];
                for (dot, sum) in dot[0].iter_mut().zip(sums) {
                    *dot = [dots.ints(sum.wrapping_mul(lower).wrapping_neg()); VECTORS];
                }
                self.group::<D, C, R, CHAINS>(dots, x, codes, &mut dot);
                // Closures do not inherit the instruction set, hence no functions of arrays.
                let weight_scales =
                    [factors.load(dots, first_factor), factors.load(dots, first_factor + LANES)];
                let zero_points = match zero_points.next() {
                    Some([first, second]) => Some([dots.load_i8(first), dots.load_i8(second)]),
                    _ => None,
                };
                for (r, totals) in block.iter_mut().enumerate() {
                    for (v, total) in totals.iter_mut().enumerate() {
                        let mut sum = dot[0][r][v];
                        for chain in &dot[1..] {
                            sum = dots.add(sum, chain[r][v]);
                        }
                        let mut sum = dots.to_floats(sum);
                        if let Some(zero_points) = zero_points {
                            sum = dots.fma(zero_points[v], dots.floats(-sums[r] as f32), sum);
                        }
                        *total = dots.fma(weight_scales[v], sum, *total);
                    }
                }
                if header.offsets == OffsetKind::Values {
                    let offsets = [
                        factors.load(dots, first_factor + PANEL),
                        factors.load(dots, first_factor + PANEL + LANES),
                    ];
                    for (totals, sum) in block.iter_mut().zip(sums) {
                        let sum = dots.floats(*sum as f32);
                        for (total, offset) in totals.iter_mut().zip(offsets) {
                            *total = dots.fma(offset, sum, *total);
                        }
                    }
                }
                first_factor += header.group_factors();
            }
            for ((totals, block), scale) in totals.iter_mut().zip(&block).zip(scales) {
                let scale = dots.floats(*scale);
                for (total, block) in totals.iter_mut().zip(block) {
                    *total = dots.fma(*block, scale, *total);
                }
            }
        }
        self.write(dots, tile.start, panel, &totals);
    }

    /// Adds the products of a group to the sums of a tile.
    #[inline(always)]
    fn group<D: Dots, C: Code, const R: usize, const CHAINS: usize>(
        &self,
        dots: D,
        x: &[[u32; R]],
        codes: &[u8],
        dot: &mut [[[D::Ints; VECTORS]; R]; CHAINS],
    ) {
        let pairs = codes.chunks_exact(C::FORMAT.pair_bytes());
        for (x, codes) in x.as_chunks::<2>().0.iter().zip(pairs) {
            for line in (0..C::FORMAT.pair_bytes()).step_by(64) {
                if R <= STREAMED_ROWS_MAX {
                    prefetch_l2(codes.as_ptr().wrapping_add(PREFETCH_BYTES + line));
                } else {
                    prefetch(codes.as_ptr().wrapping_add(TILED_PREFETCH_BYTES + line));
                }
            }
            for (half, (x, w)) in x.iter().zip(C::pair(dots, codes)).enumerate() {
                let dot = &mut dot[half % CHAINS];
                for (dot, x) in dot.iter_mut().zip(*x) {
                    for (dot, w) in dot.iter_mut().zip(w) {
                        *dot = C::dot(dots, *dot, w, x);
                    }
                }
            }
        }
    }

    /// Adds the bias to a panel's totals and writes them to their columns.
    #[inline(always)]
    fn write<D: Dots, const R: usize>(
        &self,
        dots: D,
        first_row: usize,
        panel: usize,
        totals: &[[D::Floats; VECTORS]; R],
    ) {
        let outputs = self.weight.header.outputs;
        let first = panel * PANEL;
        let width = PANEL.min(outputs - first);
        // References alone: totals that are passed by value go through memory, and are read again
        // before they are there.
        let mut values = [0.0; PANEL];
        let bias = self.bias.map(|bias| {
            values[..width].copy_from_slice(&bias[first..first + width]);
            [dots.load(&values[..].as_chunks().0[0]), dots.load(&values[..].as_chunks().0[1])]
        });
        for (r, total) in totals.iter().enumerate() {
            // SAFETY: only one piece writes a panel, to the panel's own columns of each row.
            let out = unsafe { self.y.slice((first_row + r) * outputs + first, width) };
            let is_whole = width == PANEL;
            let columns = if is_whole { &mut *out } else { &mut values[..] }.as_chunks_mut().0;
            for (v, (columns, total)) in columns.iter_mut().zip(total).enumerate() {
                let value = match bias {
                    Some(bias) => dots.fma(*total, dots.floats(1.0), bias[v]),
                    None => *total,
                };
                dots.store(columns, value);
            }
            if !is_whole {
                out.copy_from_slice(&values[..width]);
            }
        }
    }
}

/// The layout of codes in memory.
trait Code {
    const FORMAT: CodeFormat;
    /// Returns the number that [`Code::dot`] subtracts from a code.
    fn lowered_by<D: Dots>() -> i32;
    /// Loads two words of a panel.
    fn pair<D: Dots>(dots: D, src: &[u8]) -> [[D::Codes; VECTORS]; 2];
    /// Adds the products of a word.
    fn dot<D: Dots>(dots: D, acc: D::Ints, w: D::Codes, x: u32) -> D::Ints;
}

struct U8;
struct U4;
struct E2M1;

impl Code for U8 {
    const FORMAT: CodeFormat = CodeFormat::U8;

    #[inline(always)]
    fn lowered_by<D: Dots>() -> i32 {
        D::U8_LOWERED_BY
    }

    #[inline(always)]
    fn pair<D: Dots>(dots: D, src: &[u8]) -> [[D::Codes; VECTORS]; 2] {
        let src: &[CodeVector] = src.as_chunks().0;
        [[dots.codes(&src[0]), dots.codes(&src[1])], [dots.codes(&src[2]), dots.codes(&src[3])]]
    }

    #[inline(always)]
    fn dot<D: Dots>(dots: D, acc: D::Ints, w: D::Codes, x: u32) -> D::Ints {
        dots.dot_u8(acc, w, x)
    }
}

impl Code for U4 {
    const FORMAT: CodeFormat = CodeFormat::U4;

    #[inline(always)]
    fn lowered_by<D: Dots>() -> i32 {
        0
    }

    #[inline(always)]
    fn pair<D: Dots>(dots: D, src: &[u8]) -> [[D::Codes; VECTORS]; 2] {
        let src: &[CodeVector] = src.as_chunks().0;
        let (first, second) = (dots.halves(&src[0]), dots.halves(&src[1]));
        [[first[0], second[0]], [first[1], second[1]]]
    }

    #[inline(always)]
    fn dot<D: Dots>(dots: D, acc: D::Ints, w: D::Codes, x: u32) -> D::Ints {
        dots.dot_u4(acc, w, x)
    }
}

impl Code for E2M1 {
    const FORMAT: CodeFormat = CodeFormat::E2M1;

    #[inline(always)]
    fn lowered_by<D: Dots>() -> i32 {
        0
    }

    #[inline(always)]
    fn pair<D: Dots>(dots: D, src: &[u8]) -> [[D::Codes; VECTORS]; 2] {
        let mut words = U4::pair(dots, src);
        for codes in words.as_flattened_mut() {
            *codes = dots.e2m1(*codes);
        }
        words
    }

    #[inline(always)]
    fn dot<D: Dots>(dots: D, acc: D::Ints, w: D::Codes, x: u32) -> D::Ints {
        dots.dot_u4(acc, w, x)
    }
}

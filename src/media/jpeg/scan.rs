//! A scan: coefficients of some components, or some of their bits.

use super::bits::{Bits, Huffman};
use super::frame::{Component, Frame, place};
use super::idct::samples;

/// The most blocks of a unit of several components.
const UNIT_BLOCKS_MAX: usize = 10;
/// The most bits that a progressive scan leaves to later ones.
const LOW_MAX: u8 = 13;

/// A component of a scan, with its codes.
pub(super) struct Member<'a> {
    pub(super) component: usize,
    pub(super) dc: Option<&'a Huffman>,
    pub(super) ac: Option<&'a Huffman>,
}

/// The head of a scan.
pub(super) struct Scan<'a> {
    pub(super) members: Vec<Member<'a>>,
    /// The first and the last coefficient of each block.
    pub(super) first: usize,
    pub(super) last: usize,
    /// The missing bits of coefficients before this scan, if it refines them; otherwise zero.
    pub(super) high: u8,
    /// The missing bits after this scan.
    pub(super) low: u8,
    /// Units between two restarts; zero if there is none.
    pub(super) restart: usize,
}

/// The facts from earlier blocks of a scan.
#[derive(Default)]
struct Earlier {
    /// The first coefficient of the last block of each member.
    dc: [i32; 4],
    /// Blocks without further coefficients.
    num_empty: i32,
}

impl Scan<'_> {
    /// Returns nothing if a scan does not fit its frame.
    pub(super) fn check(&self, frame: &Frame) -> Option<()> {
        let members = self.members.iter().map(|member| &frame.components[member.component]);
        let blocks: usize = members.map(|it| it.sampling[0] * it.sampling[1]).sum();
        let count = self.members.len();
        let has_twins = (1..count).any(|at| {
            self.members[..at].iter().any(|it| it.component == self.members[at].component)
        });
        let fits = (1..=4).contains(&count) && !has_twins;
        let fits = fits && (count == 1 || blocks <= UNIT_BLOCKS_MAX);
        let range = [self.first, self.last];
        let is_right = match (frame.is_progressive, range) {
            (false, _) => range == [0, 63] && [self.high, self.low] == [0, 0],
            (true, [0, last]) => last == 0,
            (true, [first, last]) => first <= last && last < 64 && count == 1,
        };
        let follows = self.low <= LOW_MAX && (self.high == 0 || self.high == self.low + 1);
        (fits && is_right && follows).then_some(())
    }

    /// Reads the data of all its blocks.
    pub(super) fn decode(&self, frame: &mut Frame, data: &mut Bits<'_>) -> Option<()> {
        for member in &self.members {
            let component = &mut frame.components[member.component];
            for missing in &mut component.missing[self.first..=self.last] {
                let before = if self.high == 0 { None } else { Some(self.high) };
                if *missing != before {
                    return None;
                }
                *missing = Some(self.low);
            }
        }
        let is_single = self.members.len() == 1;
        let [columns, rows] = match &*self.members {
            [member] => frame.components[member.component].own_blocks,
            _ => frame.units,
        };
        let mut earlier = Earlier::default();
        for unit in 0..columns * rows {
            if self.restart > 0 && unit > 0 && unit % self.restart == 0 {
                data.restart(unit / self.restart - 1)?;
                earlier = Earlier::default();
            }
            let [row, column] = [unit / columns, unit % columns];
            for (member, dc) in self.members.iter().zip(0..) {
                let component = &mut frame.components[member.component];
                let [across, down] = if is_single { [1, 1] } else { component.sampling };
                for y in row * down..(row + 1) * down {
                    for x in column * across..(column + 1) * across {
                        let at = y * component.blocks[0] + x;
                        match frame.is_progressive {
                            true => self.refine(member, component, at, (dc, &mut earlier), data)?,
                            false => whole(member, component, at, &mut earlier.dc[dc], data)?,
                        }
                    }
                }
            }
        }
        Some(())
    }

    /// Reads the block `at` of a progressive file. `dc` is the index of the component in the scan.
    fn refine(
        &self,
        member: &Member<'_>,
        component: &mut Component,
        at: usize,
        (dc, earlier): (usize, &mut Earlier),
        data: &mut Bits<'_>,
    ) -> Option<()> {
        let block = component.coefficients.get_mut(at * 64..(at + 1) * 64)?;
        match (self.first, self.high) {
            (0, 0) => {
                let last = difference(member, &mut earlier.dc[dc], data)?;
                block[0] = (last << self.low) as i16;
                Some(())
            }
            (0, _) => {
                block[0] |= i16::from(data.bit()?) << self.low;
                Some(())
            }
            (_, 0) => self.further(member, block, &mut earlier.num_empty, data),
            _ => self.more_bits(member, block, &mut earlier.num_empty, data),
        }
    }

    /// Reads the first bits of coefficients after the first.
    fn further(
        &self,
        member: &Member<'_>,
        block: &mut [i16],
        num_empty: &mut i32,
        data: &mut Bits<'_>,
    ) -> Option<()> {
        if *num_empty > 0 {
            *num_empty -= 1;
            return Some(());
        }
        let mut index = self.first;
        while index <= self.last {
            match run_and_size(data.symbol(member.ac?)?) {
                (15, 0) => index += 16,
                (run, 0) => {
                    *num_empty = (1 << run) + data.take(run)? - 1;
                    break;
                }
                (run, size) => {
                    index += run as usize;
                    block[place(index)?] = (data.number(size)? << self.low) as i16;
                    index += 1;
                }
            }
        }
        Some(())
    }

    /// Reads another bit of coefficients after the first, and the first bits of further ones.
    fn more_bits(
        &self,
        member: &Member<'_>,
        block: &mut [i16],
        num_empty: &mut i32,
        data: &mut Bits<'_>,
    ) -> Option<()> {
        let one = 1_i16 << self.low;
        let mut index = self.first;
        while *num_empty == 0 && index <= self.last {
            let (mut run, size) = run_and_size(data.symbol(member.ac?)?);
            let mut new = 0;
            if size > 0 {
                new = if data.bit()? { one } else { -one };
            } else if run < 15 {
                *num_empty = (1 << run) + data.take(run)?;
                break;
            }
            // The run counts the coefficients that are zero so far.
            while index <= self.last {
                let coefficient = &mut block[place(index)?];
                if *coefficient != 0 {
                    another_bit(coefficient, one, data)?;
                } else if run == 0 {
                    *coefficient = new;
                    break;
                } else {
                    run -= 1;
                }
                index += 1;
            }
            if new != 0 && index > self.last {
                return None;
            }
            index += 1;
        }
        if *num_empty > 0 {
            for index in index..=self.last {
                let coefficient = &mut block[place(index)?];
                if *coefficient != 0 {
                    another_bit(coefficient, one, data)?;
                }
            }
            *num_empty -= 1;
        }
        Some(())
    }
}

/// Reads the block `at` of a sequential file.
fn whole(
    member: &Member<'_>,
    component: &mut Component,
    at: usize,
    dc: &mut i32,
    data: &mut Bits<'_>,
) -> Option<()> {
    let mut block = [0; 64];
    block[0] = difference(member, dc, data)? as i16;
    let mut index = 1;
    while index < 64 {
        match run_and_size(data.symbol(member.ac?)?) {
            (15, 0) => index += 16,
            (_, 0) => break,
            (run, size) => {
                index += run as usize;
                block[place(index)?] = data.number(size)? as i16;
                index += 1;
            }
        }
    }
    component.put(at, &samples(&block, &component.quantization?));
    Some(())
}

/// Reads the distance of a first coefficient from that of the last block. Returns the coefficient.
fn difference(member: &Member<'_>, last: &mut i32, data: &mut Bits<'_>) -> Option<i32> {
    let size = data.symbol(member.dc?)?;
    if size > 15 {
        return None;
    }
    *last = last.wrapping_add(data.number(u32::from(size))?);
    Some(*last)
}

/// Reads another bit of a coefficient, whose unit is `one`.
fn another_bit(coefficient: &mut i16, one: i16, data: &mut Bits<'_>) -> Option<()> {
    if data.bit()? && *coefficient & one == 0 {
        let change = if *coefficient > 0 { one } else { -one };
        *coefficient = coefficient.wrapping_add(change);
    }
    Some(())
}

/// Returns the halves of a symbol: a run of zeros, and the number of bits of what follows.
fn run_and_size(symbol: u8) -> (u32, u32) {
    (u32::from(symbol >> 4), u32::from(symbol & 15))
}

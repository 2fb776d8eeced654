//! Conversion of packed integers, and of data stored `[in, out]`, to the order of rows.

use rayon::prelude::*;

/// Outputs whose codes are gathered at a time: a cache line of words of four-bit codes.
const ROWS: usize = 128;

/// Returns four-bit codes `[out, in / 2]` from a source that is stored by inputs. `read` writes the
/// codes of input `i` for the outputs from `o` on.
pub(super) fn nibbles_by_row(
    [out, inputs]: [usize; 2],
    read: impl Fn(usize, usize, &mut [u8]) + Sync,
) -> Vec<u8> {
    let row_bytes = inputs / 2;
    let mut codes = vec![0; out * row_bytes];
    codes.par_chunks_mut((ROWS * row_bytes).max(1)).enumerate().for_each(|(chunk, rows)| {
        let mut column = [0; ROWS];
        let column = &mut column[..rows.len() / row_bytes];
        for input in 0..2 * row_bytes {
            read(input, chunk * ROWS, column);
            for (row, code) in rows.chunks_exact_mut(row_bytes).zip(&*column) {
                row[input / 2] |= code << (4 * (input % 2));
            }
        }
    });
    codes
}

/// Returns eight-bit codes `[out, in]`, as [`nibbles_by_row`] does.
pub(super) fn bytes_by_row(
    [out, inputs]: [usize; 2],
    read: impl Fn(usize, usize, &mut [u8]) + Sync,
) -> Vec<u8> {
    let mut codes = vec![0; out * inputs];
    codes.par_chunks_mut((ROWS * inputs).max(1)).enumerate().for_each(|(chunk, rows)| {
        let mut column = [0; ROWS];
        let column = &mut column[..rows.len() / inputs];
        for input in 0..inputs {
            read(input, chunk * ROWS, column);
            for (row, &code) in rows.chunks_exact_mut(inputs).zip(&*column) {
                row[input] = code;
            }
        }
    });
    codes
}

/// Returns field `index` of fields of `bits` bits, the first in the lowest bits of the first word.
pub(super) fn field(words: &[u32], bits: usize, index: usize) -> u8 {
    let per_word = 32 / bits;
    let mask = (1u32 << bits) - 1;
    // At most eight bits.
    (words[index / per_word] >> (bits * (index % per_word)) & mask) as u8
}

/// Returns `[rows, columns]` as `[columns, rows]`.
pub(super) fn transposed(values: &[f32], [rows, columns]: [usize; 2]) -> Vec<f32> {
    (0..columns).flat_map(|c| (0..rows).map(move |r| values[r * columns + c])).collect()
}

/// Returns the order of inputs in which the inputs of each group are neighbours. `group_of` holds
/// the group of each input. Returns `None` if they are neighbours already.
///
/// # Errors
/// A group that does not exist, or one that does not have `group_size` inputs.
pub(super) fn input_order(group_of: &[u32], group_size: usize) -> Result<Option<Vec<u32>>, String> {
    let groups = group_of.len() / group_size;
    let mut members = vec![0; groups];
    for &group in group_of {
        let count = members.get_mut(group as usize);
        *count.ok_or_else(|| format!("group {group} of {groups}"))? += 1;
    }
    if let Some((group, count)) = members.iter().enumerate().find(|(_, n)| **n != group_size) {
        return Err(format!("group {group} has {count} inputs; expected {group_size}"));
    }
    let in_order = group_of.iter().enumerate().all(|(i, &group)| i / group_size == group as usize);
    if in_order {
        return Ok(None);
    }
    let mut order: Vec<u32> = (0..group_of.len() as u32).collect();
    order.sort_by_key(|&input| group_of[input as usize]);
    Ok(Some(order))
}

/// Returns four-bit codes with their columns in the order `order`.
pub(super) fn reorder_nibbles(codes: &[u8], inputs: usize, order: &[u32]) -> Vec<u8> {
    let mut ordered = vec![0; codes.len()];
    let rows = ordered.par_chunks_mut(inputs / 2).zip(codes.par_chunks(inputs / 2));
    rows.for_each(|(ordered, row)| {
        for (column, &input) in order.iter().enumerate() {
            let code = row[input as usize / 2] >> (4 * (input % 2)) & 0x0F;
            ordered[column / 2] |= code << (4 * (column % 2));
        }
    });
    ordered
}

/// Returns eight-bit codes with their columns in the order `order`.
pub(super) fn reorder_bytes<T: Copy + Send + Sync>(
    codes: &[T],
    inputs: usize,
    order: &[u32],
) -> Vec<T> {
    let rows = codes.par_chunks(inputs);
    rows.flat_map_iter(|row| order.iter().map(|&input| row[input as usize])).collect()
}

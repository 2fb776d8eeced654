//! Long-lived memory of the device, and copies to it.

use cubecl::bytes::Bytes;
use cubecl::client::Client;
use cubecl::server::Handle;

use super::device_error;
use crate::KernelError;

/// Bytes that are copied at a time. CubeCL's server for CUDA copies less than 100 MB to its own
/// pinned memory, and the device fetches it from there in the background. A larger copy is fetched
/// from where it is, and the server waits for it.
#[cfg(not(test))]
const PIECE_BYTES: usize = 64 << 20;
/// Small, so that most weights of the tests have several pieces.
#[cfg(test)]
const PIECE_BYTES: usize = 4 << 10;

/// Returns memory that holds `words`.
///
/// # Errors
/// The device refuses the memory.
pub(crate) fn resident(
    client: &Client,
    words: Vec<u32>,
    what: &'static str,
) -> Result<Handle, KernelError> {
    let (count, words_max) = (words.len(), runs_of_piece(1));
    if count <= words_max {
        return resident_pieces(client, count, std::iter::once(words), what);
    }
    resident_pieces(client, count, words.chunks(words_max).map(<[u32]>::to_vec), what)
}

/// Returns memory of `words` words that holds `pieces`, one behind the other. Each piece is copied
/// while the next is made.
///
/// # Errors
/// The device refuses the memory.
pub(crate) fn resident_pieces(
    client: &Client,
    words: usize,
    pieces: impl Iterator<Item = Vec<u32>>,
    what: &'static str,
) -> Result<Handle, KernelError> {
    // No runtime has empty buffers.
    let bytes = words.max(1) * size_of::<u32>();
    let empty = || client.memory_persistent_allocation((), |()| client.empty(bytes));
    let handle = allocated(client, bytes, what, empty)?;
    copy_pieces(client, &handle, bytes, pieces, what)?;
    Ok(handle)
}

/// Returns memory that holds `words`. When it is freed, the driver gets it back.
///
/// # Errors
/// The device refuses the memory.
pub(crate) fn reserved_words(
    client: &Client,
    words: &[u32],
    what: &'static str,
) -> Result<Handle, KernelError> {
    // No runtime has empty buffers.
    let bytes = words.len().max(1) * size_of::<u32>();
    let handle = reserved(client, bytes, what)?;
    let pieces = words.chunks(runs_of_piece(1)).map(<[u32]>::to_vec);
    copy_pieces(client, &handle, bytes, pieces, what)?;
    Ok(handle)
}

/// Copies `pieces` to memory of `bytes` bytes, one behind the other.
fn copy_pieces(
    client: &Client,
    handle: &Handle,
    bytes: usize,
    pieces: impl Iterator<Item = Vec<u32>>,
    what: &'static str,
) -> Result<(), KernelError> {
    let mut first = 0;
    for piece in pieces {
        let end = first + size_of_val(&piece[..]);
        assert!(end <= bytes, "{what}: pieces of {end} bytes in memory of {bytes}");
        let part = handle.clone().offset_start(first as u64).offset_end((bytes - end) as u64);
        client.write(&part, Bytes::from_elems(piece));
        first = end;
    }
    client.check([handle]).map_err(device_error)
}

/// Returns the number of runs of `words` words in a piece; at least one.
pub(crate) fn runs_of_piece(words: usize) -> usize {
    (PIECE_BYTES / size_of::<u32>() / words.max(1)).max(1)
}

/// Returns memory of undefined content. When it is freed, the driver gets it back.
///
/// # Errors
/// The device refuses the memory.
pub(crate) fn reserved(
    client: &Client,
    bytes: usize,
    what: &'static str,
) -> Result<Handle, KernelError> {
    let empty = || client.memory_dedicated_allocation((), |()| client.empty(bytes));
    allocated(client, bytes, what, empty)
}

fn allocated(
    client: &Client,
    bytes: usize,
    what: &'static str,
    allocate: impl FnOnce() -> Handle,
) -> Result<Handle, KernelError> {
    let largest = client.properties().memory.max_page_size;
    if bytes as u64 > largest {
        return Err(KernelError::BufferTooLarge { what, bytes: bytes as u64, largest });
    }
    let handle = allocate();
    match client.check([&handle]) {
        Ok(()) => Ok(handle),
        Err(_) => Err(KernelError::OutOfMemory { what, bytes }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cube::test_device::test_client;

    fn read(client: &Client, handle: Handle) -> Vec<u32> {
        bytemuck::pod_collect_to_vec(&client.read_one(handle).unwrap()[..])
    }

    #[test]
    fn words_copied_in_pieces_are_read_in_one() {
        let Some((client, _)) = test_client() else { return };
        let piece = runs_of_piece(1);
        for count in [1, piece - 1, piece, piece + 1, 2 * piece, 3 * piece + 5] {
            let words: Vec<u32> = (0..count as u32).map(|i| i.wrapping_mul(0x9e37_79b9)).collect();
            let handle = resident(&client, words.clone(), "test").unwrap();
            assert!(read(&client, handle) == words, "{count} words");
        }
        // Pieces of different lengths, each made after the one before.
        let mut made = 0..;
        let pieces = [3, 1, 700, 2].map(|count| made.by_ref().take(count).collect());
        let handle = resident_pieces(&client, 706, pieces.into_iter(), "test").unwrap();
        assert_eq!(read(&client, handle), Vec::from_iter(0..706));
        assert!(resident(&client, Vec::new(), "test").is_ok());
        let words: Vec<u32> = (0..2 * piece as u32 + 3).collect();
        let handle = reserved_words(&client, &words, "test").unwrap();
        assert_eq!(read(&client, handle), words);
        assert!(reserved_words(&client, &[], "test").is_ok());
    }

    #[test]
    fn memory_that_no_device_has_is_refused_before_anything_is_made() {
        let Some((client, _)) = test_client() else { return };
        let pieces =
            std::iter::from_fn(|| -> Option<Vec<u32>> { unreachable!("there is no room") });
        let refused = resident_pieces(&client, 1 << 50, pieces, "test").unwrap_err();
        assert!(matches!(refused, KernelError::BufferTooLarge { what: "test", .. }), "{refused}");
    }

    #[test]
    fn a_piece_has_whole_runs() {
        let words = PIECE_BYTES / 4;
        assert_eq!([1, 3, words].map(runs_of_piece), [words, words / 3, 1]);
        assert_eq!([words + 1, 0].map(runs_of_piece), [1, words]);
    }
}

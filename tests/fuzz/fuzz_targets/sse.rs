//! Server-sent events as the benchmark's client reads them. The events do not depend on how the
//! stream is cut, and have no more bytes than it. The client reads the events that a server wrote.
//!
//! An input is three bytes that say where to cut, and the stream.
#![no_main]

// The module is included. A dependency on the crate would build and instrument its tensors without
// need.
#[path = "../../../src/cli/bench/serve/sse.rs"]
mod sse;

use libfuzzer_sys::fuzz_target;
use sse::EventParser;

fn events<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Vec<Vec<u8>> {
    let mut parser = EventParser::default();
    // No input is as long as an event may be.
    pieces.flat_map(|piece| parser.push(piece).unwrap()).collect()
}

fuzz_target!(|input: &[u8]| {
    let Some((cuts, stream)) = input.split_first_chunk::<3>() else { return };
    let whole = events([stream].into_iter());
    assert!(whole.iter().map(Vec::len).sum::<usize>() <= stream.len());
    let (mut rest, mut pieces) = (stream, Vec::new());
    for cut in cuts.iter().cycle().take(stream.len()) {
        let (piece, others) = rest.split_at(usize::from(*cut).min(rest.len()));
        pieces.push(piece);
        rest = others;
    }
    pieces.push(rest);
    assert_eq!(events(pieces.into_iter()), whole);
    // Writes the lines of the input as a server writes lines.
    let lines: Vec<&[u8]> = stream.split(|byte| b"\r\n".contains(byte)).collect();
    let written: Vec<u8> =
        lines.iter().flat_map(|line| [b"data: ", *line, b"\n\n"].concat()).collect();
    assert_eq!(events([&written[..]].into_iter()), lines);
});

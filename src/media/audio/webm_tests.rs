//! Files made here, and broken ones of ffmpeg.

use std::path::PathBuf;

use super::super::decode;
use super::*;

fn read(name: &str) -> Vec<u8> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fidelity/speech/opus");
    std::fs::read(folder.join(name)).unwrap()
}

/// Returns an element, whose size has four bytes.
fn made(id: u32, content: &[u8]) -> Vec<u8> {
    let size = content.len() as u32 | 0x1000_0000;
    let id = id.to_be_bytes().into_iter().skip_while(|byte| *byte == 0);
    id.chain(size.to_be_bytes()).chain(content.iter().copied()).collect()
}

/// Returns a file with a track of this codec and these blocks.
fn file(codec: &[u8], others: &[u8], blocks: &[u8]) -> Vec<u8> {
    let head = made(CODEC_PRIVATE, b"OpusHead\x01\x01\0\0\x80\xbb\0\0\0\0\0");
    let entry = |number: u8, kind: u8, rest: &[u8]| {
        let fields = [made(TRACK_NUMBER, &[number]), made(TRACK_TYPE, &[kind]), rest.to_vec()];
        made(TRACK_ENTRY, &fields.concat())
    };
    let sound = [made(CODEC_ID, codec), head, others.to_vec()].concat();
    let tracks = [entry(1, 1, &[]), entry(2, 2, &sound)].concat();
    let segment = [made(TRACKS, &tracks), made(CLUSTER, blocks)].concat();
    [made(0x1a45_dfa3, &[]), made(SEGMENT, &segment)].concat()
}

/// Returns the packets of blocks and their frames.
fn packets(blocks: &[u8]) -> Result<Vec<(Vec<u8>, u64)>, String> {
    let webm = WebM::open(file(OPUS, &[], blocks).into(), 0);
    let mut webm = webm.map_err(|error| error.to_string())?;
    let packets = std::iter::from_fn(|| webm.next_packet().unwrap());
    Ok(packets.map(|packet| (packet.data.to_vec(), packet.dur.get())).collect())
}

#[test]
fn blocks_of_all_kinds_have_packets() {
    // 10 ms each, of silence.
    let packet = |byte: u8| vec![0, byte];
    let one = |flags: u8, content: &[u8]| [&[0x82, 0, 0, flags][..], content].concat();
    let simple = made(SIMPLE_BLOCK, &one(0x80, &packet(1)));
    let expected = |bytes: &[u8]| -> Vec<(Vec<u8>, u64)> {
        bytes.iter().map(|byte| (packet(*byte), 480)).collect()
    };
    assert_eq!(packets(&simple).unwrap(), expected(&[1]));
    let other_track = made(SIMPLE_BLOCK, &[0x81, 0, 0, 0, 7, 7]);
    let both = [other_track, simple.clone(), made(0xec, &[0; 9]), simple.clone()].concat();
    assert_eq!(packets(&both).unwrap(), expected(&[1, 1]));
    // Two more packets of two bytes, in the three forms of lacing.
    let three = [packet(1), packet(2), packet(3)].concat();
    for (flags, sizes) in [(0x02, &[2, 2, 2][..]), (0x04, &[2]), (0x06, &[2, 0x82, 0xbf])] {
        let block = one(flags, &[sizes, &three].concat());
        assert_eq!(packets(&made(SIMPLE_BLOCK, &block)).unwrap(), expected(&[1, 2, 3]));
    }
    // A packet of 258 bytes before one of two.
    let long = [&[0][..], &[9; 257]].concat();
    let laced = [&[1, 255, 3][..], &long, &packet(1)].concat();
    let found = packets(&made(SIMPLE_BLOCK, &one(0x02, &laced))).unwrap();
    assert_eq!(found, [(long.clone(), 480), (packet(1), 480)]);
    let laced = [&[1, 0x41, 2][..], &long, &packet(1)].concat();
    let found = packets(&made(SIMPLE_BLOCK, &one(0x06, &laced))).unwrap();
    assert_eq!(found, [(long, 480), (packet(1), 480)]);
    // 5 ms of the last packet are not of the sound.
    let padding = made(DISCARD_PADDING, &5_000_000_u32.to_be_bytes());
    let group = made(BLOCK_GROUP, &[made(BLOCK, &one(0, &packet(4))), padding].concat());
    assert_eq!(packets(&group).unwrap(), [(packet(4), 240)]);
    let padding = made(DISCARD_PADDING, &(-5_000_000_i32).to_be_bytes());
    let group = made(BLOCK_GROUP, &[made(BLOCK, &one(0, &packet(4))), padding].concat());
    assert_eq!(packets(&group).unwrap(), expected(&[4]), "none before the sound");
}

#[test]
fn broken_blocks_are_refused() {
    for content in [
        &[][..],
        &[0x82],
        &[0x82, 0, 0],
        &[0x82, 0, 0, 0],
        &[0, 0, 0, 0, 0, 1],
        // 100 ms of packets that have 60 ms each, and 49 of 2.5 ms.
        &[0x82, 0, 0, 0, 0x1b, 3],
        &[0x82, 0, 0, 0, 0x83, 49],
        // Lacing without sizes, with too large ones, with none that divides, and negative ones.
        &[0x82, 0, 0, 2],
        &[0x82, 0, 0, 2, 1, 9, 0, 1],
        &[0x82, 0, 0, 2, 255, 255, 255],
        &[0x82, 0, 0, 4, 2, 0, 1],
        &[0x82, 0, 0, 6, 2, 0x81, 0x80, 0, 0],
        &[0x82, 0, 0, 6, 255],
    ] {
        let told = packets(&made(SIMPLE_BLOCK, content));
        assert!(told.is_err_and(|told| told.contains("broken")), "{content:?}");
    }
}

#[test]
fn sounds_that_are_not_decoded_are_named() {
    let told = |codec: &[u8], others: &[u8]| {
        decode(file(codec, others, &[]).into(), 16_000, 60).unwrap_err().to_string()
    };
    let expected =
        "Failed to load audio: its sound in WebM or Matroska is A_VORBIS; Opus is decoded";
    assert_eq!(told(b"A_VORBIS", &[]), expected);
    assert!(told(OPUS, &made(CONTENT_ENCODINGS, &[])).contains("compressed or encrypted"));
    assert!(told(OPUS, &[]).contains("no samples"));
    let video = [made(0x1a45_dfa3, &[]), made(SEGMENT, &made(TRACKS, &[]))].concat();
    let told = decode(video.into(), 16_000, 60).unwrap_err().to_string();
    assert!(told.contains("has no sound"), "{told}");
}

#[test]
fn files_that_end_early_are_refused() {
    let whole = read("hybrid.webm");
    for len in [4, 5, 40, 200, 1000, whole.len() - 200, whole.len() - 1] {
        let told = decode(whole[..len].into(), 16_000, 60).unwrap_err().to_string();
        assert!(told.contains("truncated") || told.contains("no sound"), "{len}: {told}");
    }
    // The parts of a recording do not say where they end, but its last block does.
    let live = read("live.webm");
    let told = decode(live[..live.len() - 1].into(), 16_000, 60).unwrap_err().to_string();
    assert!(told.contains("truncated"), "{told}");
    // Elements of an unknown size are entered, or refused.
    let mut tags = file(OPUS, &[], &[0xec, 0xff]);
    let size = tags.len() - 2;
    assert_eq!(tags[size..], [0xec, 0xff]);
    assert!(decode(tags.as_slice().into(), 16_000, 60).is_err());
    // An id and a size of too many bytes.
    tags[size] = 0x08;
    assert!(decode(tags.as_slice().into(), 16_000, 60).is_err());
    tags[size..].copy_from_slice(&[0xec, 0x00]);
    assert!(decode(tags.as_slice().into(), 16_000, 60).is_err());
}

#[test]
fn lists_of_elements_are_bounded() {
    let packet = made(BLOCK, &[0x82, 0, 0, 0, 0, 1]);
    let group =
        |count: usize| made(BLOCK_GROUP, &[packet.clone(), made(0xec, &[]).repeat(count)].concat());
    assert_eq!(packets(&group(CHILDREN_MAX - 1)).unwrap().len(), 1);
    assert!(packets(&group(CHILDREN_MAX)).is_err_and(|told| told.contains("broken")));
}

#[test]
fn hours_of_silence_in_a_small_file_are_refused() {
    // 60 ms in a byte.
    let block = made(SIMPLE_BLOCK, &[0x82, 0, 0, 0, 0x18]);
    let file = file(OPUS, &[], &block.repeat(61_000));
    let told = decode(file.into(), 16_000, 3600).unwrap_err().to_string();
    assert_eq!(told, "the audio has 3660 seconds, and at most 3600 are accepted");
}

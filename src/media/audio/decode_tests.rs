//! Sounds are decoded, and broken ones are refused.

use super::super::wav;
use super::*;

const RATE: u32 = 16_000;

fn decoded(file: &[u8]) -> Result<Vec<f32>, MediaError> {
    decode(file.into(), RATE, 60)
}

/// Returns a WAV file of 16-bit samples.
fn integers(samples: &[i16], rate: u32, channels: u16) -> Vec<u8> {
    let bytes: Vec<u8> = samples.iter().flat_map(|sample| sample.to_le_bytes()).collect();
    let mut file = wav(&[], rate)[..44].to_vec();
    let len = bytes.len() as u32;
    file[4..8].copy_from_slice(&(36 + len).to_le_bytes());
    file[20..22].copy_from_slice(&1u16.to_le_bytes());
    file[22..24].copy_from_slice(&channels.to_le_bytes());
    file[28..32].copy_from_slice(&(rate * u32::from(channels) * 2).to_le_bytes());
    file[32..34].copy_from_slice(&(channels * 2).to_le_bytes());
    file[34..36].copy_from_slice(&16u16.to_le_bytes());
    file[40..44].copy_from_slice(&len.to_le_bytes());
    file.extend(bytes);
    file
}

#[test]
fn samples_of_the_models_rate_stay_as_they_are() {
    let samples: Vec<f32> = (0..10_000).map(|i| (i as f32 * 0.01).sin()).collect();
    assert_eq!(decoded(&wav(&samples, RATE)).unwrap(), samples);
    let file = integers(&[0, 16_384, -32_768, 32_767], RATE, 1);
    assert_eq!(decoded(&file).unwrap(), [0.0, 0.5, -1.0, 32_767.0 / 32_768.0]);
}

/// libsndfile reads all of these files.
#[test]
fn headers_of_pipes_and_broken_notes_are_no_fault() {
    let samples = [0, 16_384, -32_768, 8_192];
    let expected = [0.0, 0.5, -1.0, 0.25];
    let file = integers(&samples, RATE, 1);
    let with = |riff: u32, data: u32| {
        let mut file = file.clone();
        file[4..8].copy_from_slice(&riff.to_le_bytes());
        file[40..44].copy_from_slice(&data.to_le_bytes());
        file
    };
    // Of SoX, of FFmpeg, and sizes of the whole that are wrong.
    for (riff, data) in
        [(0x7fff_f024, 0x7fff_f000), (u32::MAX, u32::MAX), (0, 8), (20, 8), (1 << 20, 8)]
    {
        assert_eq!(decoded(&with(riff, data)).unwrap(), expected, "{riff:x} {data:x}");
    }
    let between = |chunk: &[u8]| [&file[..36], chunk, &file[36..]].concat();
    // A note that ends within its list, and a number of samples that is wrong.
    for chunk in [&b"LIST\x05\0\0\0INFOa\0"[..], b"fact\x04\0\0\0\xff\xff\xff\xff"] {
        assert_eq!(decoded(&between(chunk)).unwrap(), expected);
    }
    let sizes = [&b"ds64\x1c\0\0\0"[..], &[0; 8], &8_u64.to_le_bytes(), &[0; 12]].concat();
    let unknown = with(u32::MAX, u32::MAX);
    let large =
        [&b"RF64"[..], &unknown[4..12], &sizes, &unknown[12..], b"LIST\x04\0\0\0INFO"].concat();
    assert_eq!(decoded(&large).unwrap(), expected);
    let cut = decoded(&with(100, 60)).unwrap_err().to_string();
    assert_eq!(cut, "Failed to load audio: the file is truncated");
}

/// The files are those of Python's modules `aifc` and `wave`.
#[test]
fn aiff_and_samples_of_24_bits_are_read() {
    let aiff = b"FORM\0\0\x006AIFFCOMM\0\0\0\x12\0\x01\0\0\0\x04\0\x10@\x0c\xfa\0\0\0\0\0\0\0\
                 SSND\0\0\0\x10\0\0\0\0\0\0\0\0\0\0@\0\x80\0 \0";
    let expected = [0.0, 0.5, -1.0, 0.25];
    assert_eq!(decoded(aiff).unwrap(), expected);
    let wav = b"RIFF0\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x80>\0\0\x80\xbb\0\0\x03\0\x18\0\
                data\x0c\0\0\0\0\0\0\0\0@\0\0\x80\0\0 ";
    assert_eq!(decoded(wav).unwrap(), expected);
    let stereo = b"FORM\0\0\0ZAIFCFVER\0\0\0\x04\xa2\x80Q@COMM\0\0\0&\0\x02\0\0\0\x02\0\x18\
                   @\x0c\xfa\0\0\0\0\0\0\0NONE\x0enot compressed\0SSND\0\0\0\x14\
                   \0\0\0\0\0\0\0\0\0\0\0\0@\0\xff\x80\0\0 \0";
    assert_eq!(decoded(stereo).unwrap(), [1.0 / 1024.0, -3.0 / 2048.0]);
    // Of a pipe, and with a note that is longer than the file.
    let with = |at: usize, bytes: &[u8]| {
        let mut file = aiff.to_vec();
        file[at..at + bytes.len()].copy_from_slice(bytes);
        file
    };
    let size = aiff.windows(4).position(|bytes| bytes == b"SSND").unwrap() + 4;
    let note = [&aiff[..], b"ANNO\xff\xff\xff\xff"].concat();
    for file in [with(4, &[0; 4]), with(4, &[0xff; 4]), with(size, &[0; 4]), note] {
        assert_eq!(decoded(&file).unwrap(), expected);
    }
    for len in [11, 12, 30, 50, aiff.len() - 1] {
        assert!(decoded(&aiff[..len]).is_err(), "{len} bytes");
    }
    assert!(decoded(&with(28, &[0xff; 10])).is_err(), "a rate that is no number");
}

/// Returns a tag with a picture of `len` bytes, as the standard of ID3v2 has it.
fn tag(len: u32, flags: u8) -> Vec<u8> {
    let mut tag = b"ID3\x04\0".to_vec();
    tag.push(flags);
    tag.extend([21, 14, 7, 0].map(|bits| (len >> bits & 0x7f) as u8));
    // Two bytes that begin a frame of MP3.
    tag.extend([0xff, 0xfb].iter().cycle().take(len as usize));
    if flags != 0 {
        tag.extend(b"3DI\x04\0\x10\0\0\0\0");
    }
    tag
}

#[test]
fn tags_with_large_pictures_are_passed_over() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fidelity/speech/rising.");
    for kind in ["mp3", "flac"] {
        let file = std::fs::read(format!("{folder}{kind}")).unwrap();
        let plain = decoded(&file).unwrap();
        for tags in [tag(300, 0), tag(3 << 20, 0), tag(900, 0x10), [tag(9, 0), tag(8, 0)].concat()]
        {
            assert_eq!(decoded(&[&tags[..], &file].concat()).unwrap(), plain, "{kind}");
        }
        assert!(decoded(&tag(300, 0)).is_err());
        assert!(decoded(&tag(300, 0)[..40]).is_err());
    }
    let webm = [&tag(20, 0)[..], b"\x1a\x45\xdf\xa3\x80"].concat();
    assert!(decoded(&webm).unwrap_err().to_string().contains("has no sound"));
}

#[test]
fn the_error_names_another_format() {
    let speex = [&b"OggS"[..], &[0; 24], b"Speex"].concat();
    for (file, name) in [(&b"#!AMR\n"[..], "AMR"), (&speex, "Speex in Ogg")] {
        let told = decoded(file).unwrap_err().to_string();
        let expected = format!(
            "Failed to load audio: it is {name}; WAV, AIFF, CAF, FLAC, MP3, AAC, M4A, Opus in \
             WebM, and Opus and Vorbis in Ogg are decoded"
        );
        assert_eq!(told, expected);
    }
}

#[test]
fn channels_are_averaged() {
    let file = integers(&[0, 16_384, -16_384, 16_384], RATE, 2);
    assert_eq!(decoded(&file).unwrap(), [0.25, 0.0]);
}

#[test]
fn other_rates_are_resampled() {
    let samples = vec![0.5; 8_000];
    assert_eq!(decoded(&wav(&samples, 8_000)).unwrap().len(), 16_000);
    assert_eq!(decoded(&wav(&samples, 44_100)).unwrap().len(), 2_903);
}

/// The files were made by libsndfile. Two of the formats lose a little of the sound.
#[test]
fn every_format_is_read() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fidelity/speech/rising.");
    let read = |kind: &str| std::fs::read(format!("{folder}{kind}")).unwrap();
    let exact = decoded(&read("wav")).unwrap();
    assert_eq!(exact.len(), 16_000);
    assert_eq!(decoded(&read("flac")).unwrap(), exact);
    for kind in ["ogg", "mp3"] {
        let file = read(kind);
        let samples = decoded(&file).unwrap();
        assert!((samples.len() as i64 - 16_000).abs() <= 2400, "{kind}: {}", samples.len());
        let energy = |samples: &[f32]| samples.iter().map(|x| x * x).sum::<f32>();
        let ratio = energy(&samples) / energy(&exact);
        assert!((ratio - 1.0).abs() < 0.05, "{kind}: {ratio}");
        assert!(decoded(&file[..40]).is_err(), "{kind}");
    }
    for kind in ["flac", "ogg", "mp3"] {
        let mut file = read(kind);
        let middle = file.len() / 2;
        file[middle..middle + 64].fill(0x55);
        // A codec may skip what is broken, but it ends.
        let _ = decoded(&file);
        let _ = decoded(&file[..middle]);
    }
}

#[test]
fn a_sound_that_is_too_long_is_refused() {
    let message = |file: &[u8]| decoded(file).unwrap_err().to_string();
    let told = message(&integers(&vec![0; 61 * 1000], 1000, 1));
    assert_eq!(told, "the audio has 61 seconds, and at most 60 are accepted");
}

/// Returns the remainder of a polynomial of `bits` bits.
fn crc(bytes: &[u8], bits: u32, polynomial: u32) -> u32 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u32::from(*byte) << (bits - 8)), |crc, _| {
            let shifted = crc << 1;
            let carry = shifted >> bits & 1;
            (shifted ^ (carry * polynomial)) & ((1 << bits) - 1)
        })
    })
}

/// Returns a FLAC file of silence: 15 bytes for each 65,535 samples. Its head says that it has
/// `announced` samples; 0 says nothing.
fn silence(rate: u32, blocks: u32, announced: u64) -> Vec<u8> {
    let mut file = b"fLaC\x80\0\0\x22".to_vec();
    file.extend([0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0]);
    // The rate, one channel, 16 bits, and the samples.
    let head = u64::from(rate) << 44 | 15 << 36 | announced;
    file.extend(head.to_be_bytes());
    file.extend([0; 16]);
    for number in 0..blocks {
        let mut frame = vec![0xff, 0xf8, 0x70, 0x08];
        let text = char::from_u32(number).unwrap();
        frame.extend(text.encode_utf8(&mut [0; 4]).bytes());
        frame.extend(65_534_u16.to_be_bytes());
        frame.push(crc(&frame, 8, 0x07) as u8);
        // One constant.
        frame.extend([0, 0, 0]);
        let check = crc(&frame, 16, 0x8005) as u16;
        frame.extend(check.to_be_bytes());
        file.extend(frame);
    }
    file
}

#[test]
fn hours_of_silence_in_a_small_file_are_refused() {
    let ten_hours = silence(8_000, 4_395, 4_395 * 65_535);
    assert!(ten_hours.len() < 80_000);
    let told = decode(ten_hours.clone().into(), RATE, SECONDS_MAX).unwrap_err().to_string();
    assert_eq!(told, "the audio has 36004 seconds, and at most 3600 are accepted");
    assert_eq!(decoded_bytes(&ten_hours.into(), RATE), 0, "refused by its header");
    // The head says nothing, or less than there is.
    for (announced, most) in [(0, 16 * 80_000 * 4), (8_000, 4 * 3 * RATE as usize)] {
        let file: Arc<[u8]> = silence(8_000, 400, announced).into();
        assert!(decoded_bytes(&file, RATE) <= most, "{announced}");
        let told = decode(file, RATE, SECONDS_MAX);
        assert!(told.is_err_and(|error| error.to_string().contains("more samples")), "{announced}");
    }
    let honest: Arc<[u8]> = silence(8_000, 4, 4 * 65_535).into();
    let samples = decode(Arc::clone(&honest), RATE, SECONDS_MAX).unwrap();
    assert_eq!(samples.len(), 2 * 4 * 65_535);
    assert!(decoded_bytes(&honest, RATE) >= 4 * samples.len());
}

#[test]
fn a_file_that_ends_before_its_length_is_refused() {
    let whole = integers(&vec![7; 20_000], RATE, 1);
    let told = decoded(&whole[..10_000]).unwrap_err().to_string();
    assert_eq!(told, "Failed to load audio: the file is truncated");
}

#[test]
fn broken_files_are_refused() {
    let whole = integers(&vec![7; 20_000], RATE, 1);
    for len in [0, 3, 11, 12, 30, 43, 44] {
        assert!(decoded(&whole[..len]).is_err(), "{len} bytes");
    }
    for junk in [&b"not a sound"[..], &[0; 4096], b"RIFF\xff\xff\xff\xffWAVEfmt ", b"fLaC", b"OggS"]
    {
        assert!(decoded(junk).is_err(), "{junk:?}");
    }
    let with = |at: usize, bytes: &[u8]| {
        let mut file = whole.clone();
        file[at..at + bytes.len()].copy_from_slice(bytes);
        decoded(&file)
    };
    assert!(with(22, &[0, 0]).is_err(), "no channels");
    assert!(with(24, &[0; 4]).is_err(), "a rate of zero");
    assert!(with(24, &[255; 4]).is_err(), "a rate of four billion");
    assert!(with(22, &[255, 255]).is_err(), "65,535 channels");
}

/// Any byte of a header may be wrong. The decoder may accept the file or refuse it, but it ends.
#[test]
fn no_wrong_byte_of_a_header_panics() {
    let whole = integers(&[1; 300], RATE, 1);
    for at in 0..44 {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut file = whole.clone();
            file[at] = value;
            let _ = decoded(&file);
        }
    }
}

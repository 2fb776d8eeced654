//! Pictures and sounds that are small as files and large once decoded. Each is refused with 4xx,
//! and the memory of the server stays flat. The model of pictures stands beside the repository.
//! Without it, its test prints a note and passes.
#![allow(clippy::print_stdout, reason = "a skipped test says so")]

use std::{io::Write, path::Path};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use flate2::{Compression, Crc, write::ZlibEncoder};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
};

use crate::{
    MIB, SLACK,
    client::{get, json_body, post},
    server::Server,
};

/// Requests of one attack at the same time.
const AT_ONCE: usize = 24;
const EDGE: &str = "----a-line-between-two-parts";

/// Returns a PNG of zeros. `bits` is 1 for black and white, and 8 for RGB.
fn png(width: u32, height: u32, bits: u8) -> Vec<u8> {
    let row = match bits {
        1 => 1 + width.div_ceil(8) as usize,
        _ => 1 + 3 * width as usize,
    };
    let mut pixels = ZlibEncoder::new(Vec::new(), Compression::best());
    for _ in 0..height {
        pixels.write_all(&vec![0; row]).unwrap();
    }
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    let color = if bits == 1 { 0 } else { 2 };
    let head = [&width.to_be_bytes()[..], &height.to_be_bytes(), &[bits, color, 0, 0, 0]].concat();
    for (name, data) in [(b"IHDR", head), (b"IDAT", pixels.finish().unwrap()), (b"IEND", vec![])] {
        file.extend((data.len() as u32).to_be_bytes());
        let body = [&name[..], &data].concat();
        file.extend(&body);
        let mut check = Crc::new();
        check.update(&body);
        file.extend(check.sum().to_be_bytes());
    }
    file
}

fn question(url: &str) -> Value {
    let part = json!({"type": "image_url", "image_url": {"url": url}});
    json!({"messages": [{"role": "user", "content": [part]}], "max_tokens": 1})
}

fn data_url(kind: &str, file: &[u8]) -> String {
    format!("data:{kind};base64,{}", STANDARD.encode(file))
}

/// Posts many times at once. Returns the statuses.
async fn storm(server: &Server, body: &Value) -> Vec<u16> {
    let body = json_body(body);
    let mut tasks = JoinSet::new();
    for _ in 0..AT_ONCE {
        let (address, body) = (server.address().to_owned(), body.clone());
        tasks.spawn(async move { post(&address, "/v1/chat/completions", &body).await });
    }
    let sent = tasks.join_all().await.into_iter().flatten();
    sent.map(|sent| sent.status).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pictures_that_grow_are_refused_and_the_memory_stays_flat() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let model = root.join("../shared/conformance2/models/llava");
    if !model.is_dir() {
        println!("skipped: no ../shared/conformance2 beside the repository");
        return;
    }
    let model = model.to_str().unwrap();
    let server = Server::start_with(model, &["--max-request-memory-bytes", "256MiB"]);
    // Memory that all requests share.
    let good = question(&data_url("image/png", &png(60, 50, 8)));
    assert_eq!(storm(&server, &good).await, [200; AT_ONCE]);
    let bomb = png(10_000, 10_000, 1);
    assert!(bomb.len() < 20_000, "{} bytes", bomb.len());
    let nested = [b"PK\x03\x04".as_slice(), &bomb].concat();
    let gif_in_png = [b"GIF89a\xff\xff\xff\xff".as_slice(), &bomb].concat();
    let video = json!({"type": "video_url", "video_url": {"url": data_url("video/jpeg", &bomb)}});
    let attacks = [
        ("100 megapixels", question(&data_url("image/png", &bomb))),
        ("cut off", question(&data_url("image/png", &bomb[..bomb.len() / 2]))),
        ("a cut picture of 50 megapixels", {
            let file = png(8_000, 6_250, 1);
            question(&data_url("image/png", &file[..file.len() - 200]))
        }),
        ("an archive around it", question(&data_url("image/png", &nested))),
        ("another format around it", question(&data_url("image/gif", &gif_in_png))),
        ("a wrong type", question(&data_url("text/html", &bomb))),
        (
            "a sound for a picture",
            question(&data_url("image/png", b"RIFF\xff\xff\xff\xffWAVEfmt ")),
        ),
        ("a video", json!({"messages": [{"role": "user", "content": [video]}]})),
    ];
    let before = server.resident_bytes();
    for (name, body) in &attacks {
        server.reset_peak();
        for round in 0..2 {
            for status in storm(&server, body).await {
                // Many at once may have to wait for memory.
                assert!(matches!(status, 400 | 503), "{name}, round {round}: {status}");
            }
        }
        let grown = server.peak_bytes().saturating_sub(before);
        assert!(grown < 256 * MIB + SLACK, "{name}: {} MiB", grown / MIB);
    }
    assert_eq!(storm(&server, &good).await, [200; AT_ONCE]);
    let left = server.resident_bytes().saturating_sub(before);
    assert!(left < SLACK, "{} MiB stay", left / MIB);
    server.until_released().await;
}

/// Returns a FLAC file of silence with `blocks` times 65,535 samples of 8 kHz, and without their
/// number.
fn silence(blocks: u32) -> Vec<u8> {
    let crc = |bytes: &[u8], bits: u32, polynomial: u32| {
        bytes.iter().fold(0, |crc, byte| {
            (0..8).fold(crc ^ (u32::from(*byte) << (bits - 8)), |crc: u32, _| {
                let shifted = crc << 1;
                (shifted ^ ((shifted >> bits & 1) * polynomial)) & ((1 << bits) - 1)
            })
        })
    };
    let mut file = b"fLaC\x80\0\0\x22\xff\xff\xff\xff\0\0\0\0\0\0".to_vec();
    file.extend((8_000_u64 << 44 | 15 << 36).to_be_bytes());
    file.extend([0; 16]);
    for number in 0..blocks {
        let mut frame = vec![0xff, 0xf8, 0x70, 0x08];
        frame.extend(char::from_u32(number).unwrap().encode_utf8(&mut [0; 4]).bytes());
        frame.extend(65_534_u16.to_be_bytes());
        frame.push(crc(&frame, 8, 0x07) as u8);
        frame.extend([0, 0, 0]);
        frame.extend((crc(&frame, 16, 0x8005) as u16).to_be_bytes());
        file.extend(frame);
    }
    file
}

/// Sends a sound. Returns the status.
async fn hear(address: &str, file: &[u8]) -> Option<u16> {
    let mut body = format!(
        "--{EDGE}\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a.flac\"\r\n\
         content-type: audio/flac\r\n\r\n"
    )
    .into_bytes();
    body.extend(file);
    body.extend(format!("\r\n--{EDGE}--\r\n").into_bytes());
    let head = format!(
        "POST /v1/audio/transcriptions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
         Content-Type: multipart/form-data; boundary={EDGE}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let mut stream = TcpStream::connect(address).await.ok()?;
    stream.write_all(head.as_bytes()).await.ok()?;
    stream.write_all(&body).await.ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.ok()?;
    String::from_utf8_lossy(&answer).split_whitespace().nth(1)?.parse().ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_hours_of_silence_again_and_again_take_no_memory() {
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fidelity/speech/whisper");
    let server = Server::start_with(model, &["--max-request-memory-bytes", "16MiB"]);
    let ten_hours = silence(4_395);
    assert!(ten_hours.len() < 80_000);
    let before = server.resident_bytes();
    server.reset_peak();
    for round in 0..2 {
        let sent = (0..3).map(|_| hear(server.address(), &ten_hours));
        for status in futures_util::future::join_all(sent).await {
            // Its pieces do not fit the memory, or it is too long.
            assert!(matches!(status, Some(400 | 413 | 503)), "round {round}: {status:?}");
        }
    }
    let grown = server.peak_bytes().saturating_sub(before);
    // One of these sounds has 2.3 GB of samples. On a busy machine three are read at once.
    assert!(grown < 16 * MIB + 2 * SLACK, "{} MiB", grown / MIB);
    assert_eq!(get(server.address(), "/health").await.map(|sent| sent.status), Some(200));
    server.until_released().await;
}

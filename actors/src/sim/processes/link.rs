//! The process's end of a link in memory, which carries the real frames. It breaks when the process
//! ends, also within a frame.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf},
    time::{Sleep, sleep},
};

use super::life::{Gate, Life};

/// The process's end of a link.
pub(super) struct LinkEnd {
    stream: DuplexStream,
    life: Arc<Life>,
    /// The wait before the next write of a slow link.
    pause: Option<Pin<Box<Sleep>>>,
}

impl LinkEnd {
    pub(super) fn new(stream: DuplexStream, life: Arc<Life>) -> Self {
        Self { stream, life, pause: None }
    }
}

fn broken() -> io::Error {
    io::ErrorKind::BrokenPipe.into()
}

impl AsyncRead for LinkEnd {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.life.gate(context) {
            Gate::Closed => return Poll::Ready(Err(broken())),
            Gate::Silent => return Poll::Pending,
            Gate::Open(_) => {}
        }
        let before = bytes.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, bytes))?;
        let read = &mut bytes.filled_mut()[before..];
        if let Some(place) = self.life.flip_within(false, read.len()) {
            read[place / 8] ^= 1 << (place % 8);
        }
        self.life.passed(false, read.len());
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for LinkEnd {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let delay = match self.life.gate(context) {
            Gate::Closed => return Poll::Ready(Err(broken())),
            Gate::Silent => return Poll::Pending,
            Gate::Open(delay) => delay,
        };
        if !delay.is_zero() || self.pause.is_some() {
            let pause = self.pause.get_or_insert_with(|| Box::pin(sleep(delay)));
            ready!(pause.as_mut().poll(context));
        }
        let mut changed;
        let bytes = match self.life.flip_within(true, bytes.len()) {
            None => bytes,
            Some(place) => {
                changed = bytes.to_vec();
                changed[place / 8] ^= 1 << (place % 8);
                &changed[..]
            }
        };
        let num_written = ready!(Pin::new(&mut self.stream).poll_write(context, bytes))?;
        self.pause = None;
        self.life.passed(true, num_written);
        Poll::Ready(Ok(num_written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

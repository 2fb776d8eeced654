//! The sending end of a link: a bounded queue of frames, and the task that writes them.

use std::{io, marker::PhantomData, sync::Arc};

use flume::{Receiver, Sender, TrySendError};
use parking_lot::Mutex;
use serde::Serialize;
use tokio::{
    io::{AsyncWrite, AsyncWriteExt},
    sync::oneshot,
};

use super::frames::FRAMES;
use crate::codec::Frames;

/// Largest number of frames that wait to be written. A frame that finds the queue full is lost, as
/// a message to a dead actor is. The receiver finds the gap.
pub const IN_FLIGHT_MAX: usize = 65_536;

/// Number of bytes that are written at once, if as many wait.
const WRITE_LEN: usize = 256 << 10;

/// Any writable byte stream.
pub type Writer = Box<dyn AsyncWrite + Send + Unpin>;

/// The reason why a frame was not queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotSent {
    /// The link is down.
    Down,
    /// Too many frames wait.
    Full,
    /// The frame would be too long.
    TooLong,
}

/// The sending end of a link. Clones share the queue.
pub struct Outgoing<T> {
    frames: Sender<Queued>,
    /// Memory of written frames, for the next ones.
    spare: Arc<Mutex<Vec<Vec<u8>>>>,
    sent: PhantomData<fn(T)>,
}

impl<T> Clone for Outgoing<T> {
    fn clone(&self) -> Self {
        Self { frames: self.frames.clone(), spare: Arc::clone(&self.spare), sent: PhantomData }
    }
}

impl<T> std::fmt::Debug for Outgoing<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outgoing").field("waiting", &self.frames.len()).finish_non_exhaustive()
    }
}

/// An entry of the queue.
#[derive(Debug)]
enum Queued {
    Frame(Vec<u8>),
    /// A sender that waits until all frames before were written.
    Written(oneshot::Sender<()>),
}

/// The writing task's end of the queue.
#[derive(Debug)]
pub struct Queue {
    frames: Receiver<Queued>,
    spare: Arc<Mutex<Vec<Vec<u8>>>>,
}

/// Number of buffers that are kept for the next frames, and the largest that is kept.
const SPARE_MAX: usize = 64;
const SPARE_LEN: usize = 64 << 10;

impl<T: Serialize> Outgoing<T> {
    /// Returns a sending end and the queue that a task must write.
    #[must_use]
    pub fn new() -> (Self, Queue) {
        let (sender, frames) = flume::bounded(IN_FLIGHT_MAX);
        let spare = Arc::new(Mutex::new(Vec::new()));
        let queue = Queue { frames, spare: Arc::clone(&spare) };
        (Self { frames: sender, spare, sent: PhantomData }, queue)
    }

    /// Queues a frame without waiting.
    ///
    /// # Errors
    /// [`NotSent`] if the frame is lost.
    pub fn send(&self, frame: &T) -> Result<(), NotSent> {
        self.send_within(FRAMES.max_len, frame).inspect_err(|error| {
            if *error == NotSent::TooLong {
                tracing::error!("a frame for the link was too long and is lost");
            }
        })
    }

    /// Queues a frame of at most `max_len` bytes without waiting.
    ///
    /// # Errors
    /// [`NotSent`] if the frame is lost. A frame that is too long is no loss that the receiver
    /// must find: the sender may cut it.
    pub fn send_within(&self, max_len: usize, frame: &T) -> Result<(), NotSent> {
        let mut bytes = self.spare.lock().pop().unwrap_or_default();
        let frames = Frames { max_len, ..FRAMES };
        frames.encode(frame, &mut bytes).map_err(|_| NotSent::TooLong)?;
        self.queue(bytes)
    }

    /// Queues bytes that are no frame.
    pub fn send_garbage(&self) {
        let _ = self.queue((0..100).collect());
    }

    fn queue(&self, bytes: Vec<u8>) -> Result<(), NotSent> {
        self.frames.try_send(Queued::Frame(bytes)).map_err(|error| match error {
            TrySendError::Full(_) => {
                tracing::warn!(waiting = IN_FLIGHT_MAX, "the link is full: a frame was lost");
                NotSent::Full
            }
            TrySendError::Disconnected(_) => NotSent::Down,
        })
    }

    /// Waits until all frames that were queued before were given to the system, or until the link
    /// is down. They survive this process then.
    pub async fn written(&self) {
        let (sender, written) = oneshot::channel();
        // A queue that is full or closed is no reason to wait.
        if self.frames.try_send(Queued::Written(sender)).is_ok() {
            let _ = written.await;
        }
    }

    /// Returns whether the other end may still read.
    #[must_use]
    pub fn is_up(&self) -> bool {
        !self.frames.is_disconnected()
    }
}

impl Queue {
    /// Writes the frames until the link breaks, or all senders are gone.
    ///
    /// # Errors
    /// The error of the byte stream.
    pub async fn write(self, mut writer: Writer) -> io::Result<()> {
        let (mut bytes, mut waiting) = (Vec::new(), Vec::<oneshot::Sender<()>>::new());
        while let Ok(queued) = self.frames.recv_async().await {
            self.take(queued, &mut bytes, &mut waiting);
            while bytes.len() < WRITE_LEN
                && let Ok(queued) = self.frames.try_recv()
            {
                self.take(queued, &mut bytes, &mut waiting);
            }
            writer.write_all(&bytes).await?;
            // A sender may have stopped waiting.
            for sender in waiting.drain(..) {
                let _ = sender.send(());
            }
            bytes.clear();
            if bytes.capacity() > 4 * WRITE_LEN {
                bytes = Vec::new();
            }
        }
        Ok(())
    }

    fn take(&self, queued: Queued, bytes: &mut Vec<u8>, waiting: &mut Vec<oneshot::Sender<()>>) {
        let mut frame = match queued {
            Queued::Frame(frame) => frame,
            Queued::Written(sender) => return waiting.push(sender),
        };
        if bytes.is_empty() && frame.len() >= WRITE_LEN {
            *bytes = frame;
            return;
        }
        bytes.extend_from_slice(&frame);
        if frame.capacity() <= SPARE_LEN {
            frame.clear();
            let mut spare = self.spare.lock();
            if spare.len() < SPARE_MAX {
                spare.push(frame);
            }
        }
    }
}

//! The body of an answer on its way to a client.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use axum::body::Bytes;
use hyper::body::{Body, Frame, SizeHint};

use super::{activity::OpenRequest, streams::Progress};

/// Most bytes of a piece. Each request for a piece shows that the client reads the answer. HTTP/2
/// buffers one piece for a client that does not.
const PIECE_BYTES: usize = 16 << 10;

/// The body of an answer, in pieces. Its request is open until the last one was sent.
pub(super) struct AnswerBody<B> {
    body: B,
    /// The rest of its last frame.
    rest: Bytes,
    progress: Progress,
    _open: OpenRequest,
}

impl<B> AnswerBody<B> {
    pub(super) fn new(body: B, open: OpenRequest) -> Self {
        Self { body, rest: Bytes::new(), progress: Progress::current(), _open: open }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for AnswerBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        self.progress.asked();
        if self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(context)).transpose()? {
                None => return Poll::Ready(None),
                Some(frame) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
            }
        }
        let length = self.rest.len().min(PIECE_BYTES);
        let piece = self.rest.split_to(length);
        self.progress.handed();
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (body, rest) = (self.body.size_hint(), self.rest.len() as u64);
        let mut hint = SizeHint::new();
        hint.set_lower(body.lower().saturating_add(rest));
        if let Some(upper) = body.upper() {
            hint.set_upper(upper.saturating_add(rest));
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use axum::body::{self, Body as Whole};
    use tokio_util::sync::CancellationToken;

    use super::{
        super::{activity::Activity, phases::Phases},
        *,
    };

    #[tokio::test]
    async fn pieces_add_up_to_the_whole() {
        for length in [0, 1, PIECE_BYTES, PIECE_BYTES + 1, 5 * PIECE_BYTES] {
            let whole: Vec<u8> = (0..length).map(|index| index as u8).collect();
            let open = Activity::new(Phases::new(CancellationToken::new())).begin_request();
            let answer = AnswerBody::new(Whole::from(whole.clone()), open);
            assert_eq!(answer.size_hint().exact(), Some(length as u64));
            let read = body::to_bytes(Whole::new(answer), usize::MAX).await.unwrap();
            assert!(read == whole, "{length}");
        }
    }
}

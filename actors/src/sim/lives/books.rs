//! The clients' memory, which outlives the system: the names of their answers, and what they got.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::logic::request::ids::TokenId;

/// The books of all clients.
#[derive(Debug)]
pub(super) struct Books(Mutex<Vec<Book>>);

/// The book of one client.
#[derive(Debug, Clone, Default)]
pub(super) struct Book {
    /// Name of the answer that it waits for.
    pub(super) name: Option<Arc<str>>,
    /// Whether it was told that the answer's requests are accepted.
    pub(super) is_accepted: bool,
    /// The seed of each choice.
    pub(super) seeds: Vec<u64>,
    /// The tokens that it got, by choice.
    pub(super) tokens: Vec<Vec<TokenId>>,
    /// Whether it has the whole answer, or was refused for ever.
    pub(super) is_done: bool,
}

impl Books {
    pub(super) fn new(num_clients: usize) -> Self {
        Self(Mutex::new(vec![Book::default(); num_clients]))
    }

    /// Returns the client that waits for an answer.
    pub(super) fn owner(&self, name: &str) -> Option<usize> {
        self.0.lock().iter().position(|book| book.name.as_deref() == Some(name))
    }

    /// Returns a client that waits.
    pub(super) fn waiting(&self) -> Option<usize> {
        self.0.lock().iter().position(|book| !book.is_done)
    }

    pub(super) fn of(&self, client: usize) -> Book {
        self.0.lock()[client].clone()
    }

    /// Changes the book of a client.
    pub(super) fn change(&self, client: usize, change: impl FnOnce(&mut Book)) {
        change(&mut self.0.lock()[client]);
    }
}

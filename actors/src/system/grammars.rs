//! The compiler of grammars, and the number of threads that run it.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use crate::ports::GrammarCompiler;

/// The part of grammars that outlives every incarnation of the structured output actor.
pub(crate) struct Grammars {
    compiler: Arc<dyn GrammarCompiler>,
    num_threads: AtomicUsize,
}

/// One thread that compiles grammars, counted while this value lives.
pub(crate) struct CompilerThread(Arc<Grammars>);

impl Grammars {
    /// Returns a compiler that no thread runs yet.
    pub(crate) fn new(compiler: Arc<dyn GrammarCompiler>) -> Self {
        Self { compiler, num_threads: AtomicUsize::new(0) }
    }

    /// Returns the number of threads that have not ended, including those that were left behind.
    pub(crate) fn num_threads(&self) -> usize {
        self.num_threads.load(Ordering::Relaxed)
    }

    /// Counts a thread.
    pub(crate) fn begin_thread(self: &Arc<Self>) -> CompilerThread {
        self.num_threads.fetch_add(1, Ordering::Relaxed);
        CompilerThread(Arc::clone(self))
    }
}

impl CompilerThread {
    /// Returns the compiler.
    pub(crate) fn compiler(&self) -> &dyn GrammarCompiler {
        &*self.0.compiler
    }
}

impl Drop for CompilerThread {
    fn drop(&mut self) {
        self.0.num_threads.fetch_sub(1, Ordering::Relaxed);
    }
}

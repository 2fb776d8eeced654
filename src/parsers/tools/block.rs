//! Text with blocks, each opened by a marker: the frame of nearly every format.

use serde_json::Value;

use super::{
    super::{event::ToolEvent, scan::MarkerFinder},
    calls::Calls,
    parser::{CallIdFormat, ToolParser},
    schema::Tools,
};

/// The part that differs between formats: the markers that open a block, and its content.
pub(super) trait Block: Send {
    /// Whether markers are special tokens.
    const SPECIAL_TOKENS: bool;
    /// The format of ids.
    const CALL_IDS: CallIdFormat = CallIdFormat::Any;

    /// Returns the markers that open a block. No marker may be the beginning of another.
    fn markers(&self) -> &'static [&'static str];

    /// Returns whether a block may begin anywhere, or only at the start of the text and after a
    /// call.
    fn is_anywhere(&self) -> bool {
        true
    }

    /// Begins a block with the marker of this index.
    fn open(&mut self, marker: usize);

    /// Takes the next character of a block.
    fn step(&mut self, c: char, calls: &mut Calls) -> Step;

    /// Ends the text within a block. A format that allows only calls starts the call that already
    /// has a name, and drops text that is no call yet.
    fn cut(&mut self, _calls: &mut Calls) {}

    /// Ends the text within a block, for a text that the model ended. Ends a call that lacks only
    /// closing tags.
    fn stop(&mut self, _calls: &mut Calls) {}

    /// As [`ToolParser::strict_calls`].
    fn strict_calls(&self, _tools: &Tools, _parallel_tool_calls: bool) -> Option<Value> {
        None
    }

    /// Returns whether all text since the last call is layout, which is dropped. Called when the
    /// text ended within a block without an open call.
    fn is_done(&self) -> bool;
}

/// A block's result for a character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// It belongs to the block.
    More,
    /// It ends the block.
    Done,
    /// The block cannot continue with it, so the text since the last call is no call. The end of
    /// that text may begin the next block.
    Refused,
}

/// A parser of text with blocks.
pub(super) struct BlockParser<B> {
    block: B,
    finder: MarkerFinder,
    is_inside: bool,
    calls: Calls,
    /// Buffer for text on its way to `calls`.
    text: String,
}

impl<B: Block> BlockParser<B> {
    pub(super) fn new(block: B) -> Self {
        let finder = MarkerFinder::new(block.markers());
        Self { block, finder, is_inside: false, calls: Calls::new(), text: String::new() }
    }

    /// Takes text that may hold blocks. Its events wait for the next `push` or `finish`.
    pub(super) fn feed(&mut self, text: &str) {
        text.chars().for_each(|c| self.step(c));
    }

    /// Takes text in which markers have no meaning. It ends an open block. Its events wait for the
    /// next `push` or `finish`.
    pub(super) fn content(&mut self, text: &str) {
        self.leave();
        self.calls.content(text);
    }

    /// Ends an open block, and text that could have become a marker.
    pub(super) fn leave(&mut self) {
        if !self.is_inside {
            let held = self.finder.take_held();
            return self.calls.content(&held);
        }
        self.block.cut(&mut self.calls);
        if self.calls.is_open() || !self.block.is_done() {
            self.calls.refuse();
        }
        self.is_inside = false;
        self.calls.forget();
    }

    fn step(&mut self, c: char) {
        if !self.is_inside {
            return self.step_outside(c);
        }
        self.calls.hold(c.encode_utf8(&mut [0; 4]));
        match self.block.step(c, &mut self.calls) {
            Step::More => {}
            Step::Done => {
                self.is_inside = false;
                self.calls.forget();
            }
            Step::Refused => {
                self.is_inside = false;
                let rest = self.calls.unhold(self.block.markers());
                self.calls.refuse();
                // It may begin the next block.
                rest.chars().for_each(|c| self.step_outside(c));
            }
        }
    }

    fn step_outside(&mut self, c: char) {
        let marker = self.finder.push(c, &mut self.text);
        self.calls.content(&self.text);
        self.text.clear();
        let Some(marker) = marker else { return };
        let words = self.block.markers()[marker];
        if !self.block.is_anywhere() && !self.calls.at_start() {
            return self.calls.content(words);
        }
        self.is_inside = true;
        self.calls.hold(words);
        self.block.open(marker);
    }
}

impl<B: Block> ToolParser for BlockParser<B> {
    fn push(&mut self, text: &str) -> Vec<ToolEvent> {
        self.feed(text);
        self.calls.take()
    }

    fn finish(&mut self) -> Vec<ToolEvent> {
        self.leave();
        self.calls.finish();
        self.calls.take()
    }

    fn finish_stopped(&mut self) -> Vec<ToolEvent> {
        if self.is_inside {
            self.block.stop(&mut self.calls);
        }
        self.finish()
    }

    fn needs_special_tokens(&self) -> bool {
        B::SPECIAL_TOKENS
    }

    fn strict_calls(&self, tools: &Tools, parallel_tool_calls: bool) -> Option<Value> {
        self.block.strict_calls(tools, parallel_tool_calls)
    }

    fn call_id_format(&self) -> CallIdFormat {
        B::CALL_IDS
    }
}

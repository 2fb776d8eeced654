//! Muse: a call is a message to a function, with the arguments between tags. See `muse.rs` of the
//! parsers for messages.
//! ```text
//! <|start|>assistant to=now<|message|><atem:function_calls>
//! <atem:invoke name="now">
//! <atem:parameter name="utc">true</atem:parameter>
//! </atem:invoke>
//! </atem:function_calls><|eom|>
//! ```
//! Tags in a message to the user are content. Messages of the model to itself are thoughts and no
//! part of the answer. The reasoning parser `muse` before this one reports them.

use super::{
    super::{
        event::ToolEvent,
        muse::{Dialect, MuseScanner, Piece, Purpose},
    },
    block::BlockParser,
    function_block::{FunctionBlock, Names, Tags},
    parser::ToolParser,
    schema::Tools,
};

const CALLS: &str = "<atem:function_calls>";
const CALLS_END: &str = "</atem:function_calls>";
const FUNCTION: &str = "<atem:invoke ";
const FUNCTION_END: &str = "</atem:invoke>";
const PARAMETER: &str = "<atem:parameter ";

const TAGS: Tags = Tags {
    openings: &[CALLS, FUNCTION],
    first: &[FUNCTION],
    between: &[FUNCTION, CALLS_END],
    in_function: &[PARAMETER, FUNCTION_END, CALLS_END, FUNCTION],
    // The tag of a parameter within a value is text.
    value_ends: &["</atem:parameter>", FUNCTION_END],
    name_end: ">",
    names: Names::Doubled { are_typed: true },
    // White space belongs to a text, as the model's template tells it.
    has_framed_values: false,
};

const GLIMMER_TAGS: Tags = Tags { names: Names::Doubled { are_typed: false }, ..TAGS };

/// Reads messages, and the calls in those to functions.
struct MessageCalls {
    dialect: Dialect,
    scanner: MuseScanner,
    block: BlockParser<FunctionBlock>,
    /// The purpose of the open message.
    purpose: Purpose,
}

impl MessageCalls {
    fn new(dialect: Dialect, tags: &'static Tags, tools: &Tools) -> Self {
        Self {
            dialect,
            scanner: MuseScanner::new(),
            block: FunctionBlock::parser(tags, tools),
            purpose: Purpose::Content,
        }
    }

    fn piece(&mut self, piece: Piece) {
        match (piece, self.purpose) {
            (Piece::Text(text), _) | (Piece::Body(text), Purpose::Content) => {
                self.block.content(&text);
            }
            (Piece::Open(header), _) => self.purpose = self.dialect.purpose(&header),
            (Piece::Body(text), Purpose::Call) => self.block.feed(&text),
            (Piece::Body(_), Purpose::Thought | Purpose::Dropped) => {}
            (Piece::Close(_), _) => self.block.leave(),
        }
    }
}

impl ToolParser for MessageCalls {
    fn push(&mut self, text: &str) -> Vec<ToolEvent> {
        self.scanner.push(text).into_iter().for_each(|piece| self.piece(piece));
        self.block.push("")
    }

    fn finish(&mut self) -> Vec<ToolEvent> {
        self.scanner.finish().into_iter().for_each(|piece| self.piece(piece));
        self.block.finish()
    }

    fn finish_stopped(&mut self) -> Vec<ToolEvent> {
        self.scanner.finish().into_iter().for_each(|piece| self.piece(piece));
        self.block.finish_stopped()
    }

    fn needs_special_tokens(&self) -> bool {
        true
    }
}

pub(in super::super) fn muse(tools: &Tools) -> impl ToolParser + use<> {
    MessageCalls::new(Dialect::Muse, &TAGS, tools)
}

pub(in super::super) fn muse_glimmer(tools: &Tools) -> impl ToolParser + use<> {
    MessageCalls::new(Dialect::Glimmer, &GLIMMER_TAGS, tools)
}

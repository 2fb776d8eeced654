//! From a prompt's text to the tokens of a request. The text is tokenized in pieces, cut to fit the
//! context, and searched for the markers of thoughts.

pub mod encoder_text;
pub mod fit;
pub mod languages;
pub mod text_pieces;
pub mod thinking;

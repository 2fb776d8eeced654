//! Texts from arguments, files and pipes, and images from files.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Map;

use crate::{
    api::{MediaSource, Modality, RawMedia},
    cli::{CliError, output},
    engine::MediaText,
    files,
};

/// A text or an image.
#[derive(Debug, Clone)]
pub(super) enum Input {
    Text(String),
    /// The path of the image, and the image.
    Image(String, RawMedia),
}

impl Input {
    /// Returns the text, or the path of the image.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Text(name) | Self::Image(name, _) => name,
        }
    }

    /// Returns what the model reads.
    pub(super) fn content(&self) -> MediaText {
        match self {
            Self::Text(text) => text.as_str().into(),
            Self::Image(_, image) => image.clone().into(),
        }
    }

    /// Reads the image in a file.
    fn image(path: &Path) -> Result<Self, CliError> {
        let name = path.display().to_string();
        let content = files::read(path).map_err(CliError::io(format!("cannot read {name}")))?;
        let image = RawMedia {
            modality: Modality::Image,
            source: MediaSource::File(content.into()),
            uuid: None,
            kwargs: Map::new(),
        };
        Ok(Self::Image(name, image))
    }
}

/// A line that is JSON.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "a string, or an object with `text`")]
enum Line {
    Text(String),
    Object { text: String },
}

/// A line of two texts.
#[derive(Debug, Deserialize)]
struct Pair {
    #[serde(alias = "query", alias = "data_1")]
    text_1: String,
    #[serde(alias = "document", alias = "data_2")]
    text_2: String,
}

/// The sources of texts, and the form of their lines.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sources<'a> {
    pub(super) arguments: &'a [String],
    pub(super) files: &'a [PathBuf],
    /// Files of images.
    pub(super) images: &'a [PathBuf],
    /// Whether all lines are JSON. Lines of a file `*.jsonl` always are.
    pub(super) is_jsonl: bool,
}

impl Sources<'_> {
    /// Returns the texts, then the images.
    ///
    /// # Errors
    /// [`CliError`] names the file, and a line that is wrong.
    pub(super) fn inputs(&self) -> Result<Vec<Input>, CliError> {
        let texts = self.texts()?.into_iter().map(|text| Ok(Input::Text(text)));
        texts.chain(self.images.iter().map(|path| Input::image(path))).collect()
    }

    /// Returns the texts of the arguments, then those of the files, a text a line. Without any, and
    /// without images, those of standard input.
    ///
    /// # Errors
    /// As [`Sources::inputs`].
    fn texts(&self) -> Result<Vec<String>, CliError> {
        let mut texts = self.arguments.to_vec();
        let has_inputs = !texts.is_empty() || !self.images.is_empty();
        for (name, content, is_jsonl) in self.contents(has_inputs)? {
            for (number, line) in lines(&content) {
                texts.push(match is_jsonl {
                    false => line.to_owned(),
                    true => match read::<Line>(&name, number, line)? {
                        Line::Text(text) | Line::Object { text } => text,
                    },
                });
            }
        }
        match texts.is_empty() && self.images.is_empty() {
            true => Err(CliError::Usage("no text: give one, or pipe it in".to_owned())),
            false => Ok(texts),
        }
    }

    /// Returns pairs of texts, a pair a line of JSON: those of the files, or of standard input.
    ///
    /// # Errors
    /// As [`Sources::inputs`], and for images.
    pub(super) fn pairs(&self) -> Result<(Vec<String>, Vec<String>), CliError> {
        if !self.images.is_empty() {
            return Err(CliError::Usage("--image needs a query to compare it with".to_owned()));
        }
        let (mut firsts, mut seconds) = (Vec::new(), Vec::new());
        for (name, content, _) in self.contents(false)? {
            for (number, line) in lines(&content) {
                let Pair { text_1, text_2 } = read(&name, number, line)?;
                firsts.push(text_1);
                seconds.push(text_2);
            }
        }
        match firsts.is_empty() {
            true => Err(CliError::Usage("no pair of texts: give some, or pipe them in".to_owned())),
            false => Ok((firsts, seconds)),
        }
    }

    /// Returns the name, the content and the form of each file. Without files, and unless there are
    /// inputs already, those of standard input.
    fn contents(&self, has_inputs: bool) -> Result<Vec<(String, String, bool)>, CliError> {
        if self.files.is_empty() && !has_inputs {
            let content = output::read_stdin("text")?;
            return Ok(vec![("standard input".to_owned(), content, self.is_jsonl)]);
        }
        let content = |path: &PathBuf| {
            let name = path.display().to_string();
            let read =
                files::read_stream(path).map_err(CliError::io(format!("cannot read {name}")));
            Ok((name, read?, self.is_jsonl || is_jsonl(path)))
        };
        self.files.iter().map(content).collect()
    }
}

fn is_jsonl(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "jsonl")
}

/// Returns the lines that are not empty, with their numbers from 1.
fn lines(content: &str) -> impl Iterator<Item = (usize, &str)> {
    (1..).zip(content.lines()).filter(|(_, line)| !line.trim().is_empty())
}

fn read<'a, T: Deserialize<'a>>(name: &str, number: usize, line: &'a str) -> Result<T, CliError> {
    serde_json::from_str(line)
        .map_err(|error| CliError::Usage(format!("{name}, line {number}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, content: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        (folder, path)
    }

    #[test]
    fn a_line_is_a_text() {
        let (_folder, path) = of("a.txt", "one\n\n{\"text\": \"two\"}\n");
        let (arguments, files) = (&["zero".to_owned()][..], &[path][..]);
        let sources = Sources { arguments, files, images: &[], is_jsonl: false };
        assert_eq!(sources.texts().unwrap(), ["zero", "one", "{\"text\": \"two\"}"]);
    }

    #[test]
    fn lines_of_json_are_strings_or_objects() {
        let (_folder, path) = of("a.jsonl", "\"one\"\n{\"text\": \"two\", \"id\": 7}\n");
        let files = &[path][..];
        let sources = Sources { arguments: &[], files, images: &[], is_jsonl: false };
        assert_eq!(sources.texts().unwrap(), ["one", "two"]);
        let (_folder, path) = of("b.jsonl", "\"one\"\n7\n");
        let wrong = Sources { files: &[path][..], ..sources }.texts().unwrap_err().to_string();
        assert!(wrong.contains("b.jsonl, line 2"), "{wrong}");
    }

    #[test]
    fn images_stand_behind_texts() {
        let (_folder, path) = of("a.png", "content");
        let images = &[path][..];
        let sources = Sources { arguments: &[], files: &[], images, is_jsonl: false };
        let alone = sources.inputs().unwrap();
        assert_eq!((alone.len(), alone[0].name()), (1, images[0].to_str().unwrap()));
        assert_eq!(alone[0].content().media.len(), 1);
        let arguments = &["a".to_owned()][..];
        let both = Sources { arguments, ..sources }.inputs().unwrap();
        assert_eq!((both.len(), both[0].name(), &*both[0].content().text), (2, "a", "a"));
        assert!(sources.pairs().unwrap_err().to_string().contains("--image"));
        let images = &[PathBuf::from("no.png")][..];
        let missing = Sources { images, ..sources }.inputs().unwrap_err();
        assert!(missing.to_string().contains("no.png"));
    }

    #[test]
    fn pairs_have_two_names() {
        let lines =
            "{\"text_1\": \"a\", \"text_2\": \"b\"}\n{\"query\": \"c\", \"document\": \"d\"}\n";
        let (_folder, path) = of("a.jsonl", lines);
        let files = &[path][..];
        let sources = Sources { arguments: &[], files, images: &[], is_jsonl: false };
        let (firsts, seconds) = sources.pairs().unwrap();
        assert_eq!((firsts, seconds), (vec!["a".into(), "c".into()], vec!["b".into(), "d".into()]));
    }
}

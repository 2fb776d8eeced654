//! Text that is written piece by piece, up to a limit.

use std::io;

use minijinja::Error;
use playhouse_actors::ports::TextError;

use super::template_error;

/// What a template has written.
pub(super) struct BoundedText {
    bytes: Vec<u8>,
    bytes_max: usize,
    is_over: bool,
}

impl BoundedText {
    /// Nothing yet.
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { bytes: Vec::new(), bytes_max, is_over: false }
    }

    /// All that was written by a template that ended like this.
    ///
    /// # Errors
    /// [`TextError::Template`] when it failed, or wrote too much.
    pub(super) fn finish(self, ended: Result<(), Error>) -> Result<String, TextError> {
        if self.is_over {
            let most = self.bytes_max;
            let why = format!("chat template: it writes more than {most} bytes");
            return Err(TextError::Template(why));
        }
        ended.map_err(|error| template_error(&error))?;
        let invalid = |_| TextError::Template("chat template: it writes no UTF-8".to_owned());
        String::from_utf8(self.bytes).map_err(invalid)
    }
}

impl io::Write for BoundedText {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + piece.len() > self.bytes_max {
            self.is_over = true;
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(piece);
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use minijinja::Environment;

    use super::*;

    fn written(template: &str, bytes_max: usize) -> Result<String, TextError> {
        let environment = Environment::new();
        let template = environment.template_from_str(template).unwrap();
        let mut text = BoundedText::new(bytes_max);
        let ended = template.render_captured_to((), &mut text).map(drop);
        text.finish(ended)
    }

    #[test]
    fn a_template_writes_up_to_the_limit() {
        let hundred = "{% for i in range(100) %}a{% endfor %}";
        assert_eq!(written(hundred, 100).unwrap(), "a".repeat(100));
        let error = written(hundred, 99).unwrap_err().to_string();
        assert!(error.contains("more than 99 bytes"), "{error}");
        assert!(written("{{ 1 / 0 }}", 99).unwrap_err().to_string().contains("chat template"));
    }
}

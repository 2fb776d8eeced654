//! Fenced blocks of a Markdown file, and the comment that may stand before one.

/// A fenced block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Block {
    /// The first line of its content, counted from 1.
    pub(crate) line: usize,
    /// The word after the opening fence.
    pub(crate) language: String,
    pub(crate) text: String,
    /// A thing that the block needs and a test does not have: `<!-- needs: a GPU -->` on a line
    /// before the fence.
    pub(crate) needs: Option<String>,
}

/// Returns all blocks of `markdown`, also those in lists.
pub(crate) fn blocks(markdown: &str) -> Vec<Block> {
    let (mut found, mut open, mut needs) = (Vec::<Block>::new(), None::<(usize, Block)>, None);
    for (number, line) in markdown.lines().enumerate() {
        let content = line.trim_start();
        match &mut open {
            Some((_, block)) if content == "```" => {
                found.push(block.clone());
                open = None;
            }
            Some((indent, block)) => {
                let spaces = line.len() - content.len();
                block.text.push_str(&line[spaces.min(*indent)..]);
                block.text.push('\n');
            }
            None if content.starts_with("```") => {
                let language = content.trim_start_matches('`').trim().to_owned();
                let (line_number, text) = (number + 2, String::new());
                let block = Block { line: line_number, language, text, needs: needs.take() };
                open = Some((line.len() - content.len(), block));
            }
            None if content.is_empty() => {}
            None => needs = comment(content).map(str::to_owned),
        }
    }
    assert!(open.is_none(), "a block does not end: {open:?}");
    found
}

fn comment(line: &str) -> Option<&str> {
    Some(line.strip_prefix("<!-- needs:")?.strip_suffix("-->")?.trim())
}

/// Returns the text outside of blocks.
pub(crate) fn prose(markdown: &str) -> String {
    let mut is_block = false;
    let lines = markdown.lines().filter(|line| {
        let is_fence = line.trim_start().starts_with("```");
        is_block ^= is_fence;
        !is_block && !is_fence
    });
    lines.map(|line| format!("{line}\n")).collect()
}

/// Returns the texts in back quotes in prose.
pub(crate) fn quoted(markdown: &str) -> Vec<String> {
    let prose = prose(markdown);
    prose.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Returns the lines of a shell script. A line that continues in the next one is joined with it.
pub(crate) fn commands(script: &str) -> Vec<String> {
    let mut commands = Vec::new();
    let mut command = String::new();
    for line in script.lines() {
        match line.strip_suffix('\\') {
            Some(begin) => command.push_str(begin),
            None => {
                command.push_str(line);
                commands.push(std::mem::take(&mut command));
            }
        }
    }
    commands
}

#[test]
fn blocks_are_found_with_their_needs() {
    let text = "a `--x` b\n\n```sh\none\n```\n<!-- needs: a GPU -->\n```sh\n\
                two \\\n  --three\n```\n- x\n  ```toml\n  a = 1\n  ```\n";
    let found = blocks(text);
    let short: Vec<_> = found.iter().map(|b| (b.line, &*b.language, &*b.text)).collect();
    let expected = [(4, "sh", "one\n"), (8, "sh", "two \\\n  --three\n"), (13, "toml", "a = 1\n")];
    assert_eq!(short, expected);
    assert_eq!(
        found.iter().map(|b| b.needs.as_deref()).collect::<Vec<_>>(),
        [None, Some("a GPU"), None]
    );
    assert_eq!(commands(&found[1].text), ["two   --three"]);
    assert_eq!(quoted(text), ["--x"]);
}

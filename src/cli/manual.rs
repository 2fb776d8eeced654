//! `playhouse completions` and `playhouse man`: texts for shells and for `man`, made from the flags
//! themselves.

use std::{
    fs,
    path::{Path, PathBuf},
};

use clap::{Args, Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;

use super::{Cli, CliError, output};
use crate::files;

const COMPLETIONS: &str = "\
Examples:
  playhouse completions bash > ~/.local/share/bash-completion/completions/playhouse
  playhouse completions zsh > \"${fpath[1]}/_playhouse\"
  playhouse completions fish > ~/.config/fish/completions/playhouse.fish

A new shell knows them.";

const MAN: &str = "\
Examples:
  playhouse man | man -l -                         Read the manual
  playhouse man bench serve | man -l -             That of one command
  playhouse man --dir ~/.local/share/man/man1      Install all pages: man playhouse-serve";

/// Print the completions of commands and flags for a shell.
#[derive(Debug, Args)]
#[command(after_help = COMPLETIONS)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Print the manual, or install its pages.
#[derive(Debug, Args)]
#[command(after_help = MAN)]
pub(crate) struct ManArgs {
    /// Command to read about, for example `serve` or `bench serve`
    #[arg(value_name = "COMMAND")]
    command: Vec<String>,
    /// Folder for all pages, in place of printing one; created if it does not exist
    #[arg(long, value_name = "FOLDER", conflicts_with = "command")]
    dir: Option<PathBuf>,
}

/// Prints the completions.
pub(crate) fn completions(args: &CompletionsArgs) -> Result<(), CliError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "playhouse", &mut script);
    output::show(&String::from_utf8_lossy(&script))
}

/// Prints a page, or writes all pages.
pub(crate) fn man(args: &ManArgs) -> Result<(), CliError> {
    let pages = pages();
    if let Some(folder) = &args.dir {
        return install(&pages, folder);
    }
    let name = [&["playhouse".to_owned()], &args.command[..]].concat().join("-");
    let page = pages.into_iter().find(|page| page.name == name).ok_or_else(|| {
        CliError::Usage(format!("there is no command `{}`", args.command.join(" ")))
    })?;
    output::show(&String::from_utf8_lossy(&page.render()?))
}

fn install(pages: &[Page], folder: &Path) -> Result<(), CliError> {
    let cannot = |path: &Path| CliError::io(format!("cannot write {}", path.display()));
    fs::create_dir_all(folder).map_err(cannot(folder))?;
    for page in pages {
        let path = folder.join(format!("{}.1", page.name));
        files::replace(&path, &page.render()?).map_err(cannot(&path))?;
    }
    output::show(&format!("wrote {} pages to {}\n", pages.len(), folder.display()))
}

/// The page of the program or of a command.
struct Page {
    /// `playhouse-bench-serve`
    name: String,
    command: Command,
}

/// Returns all pages, the program's last.
fn pages() -> Vec<Page> {
    fn collect(command: &Command, names: &[&str], pages: &mut Vec<Page>) {
        for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
            collect(sub, &[names, &[sub.get_name()]].concat(), pages);
        }
        let (name, typed) = (names.join("-"), names.join(" "));
        let command = command.clone().display_name(name.clone()).bin_name(typed);
        pages.push(Page { name, command });
    }
    let mut pages = Vec::new();
    collect(&Cli::command().disable_help_subcommand(true), &["playhouse"], &mut pages);
    pages
}

impl Page {
    fn render(&self) -> Result<Vec<u8>, CliError> {
        let mut text = Vec::new();
        let source = format!("playhouse {}", env!("CARGO_PKG_VERSION"));
        let man = Man::new(self.command.clone()).title(self.name.clone()).source(source);
        man.render(&mut text).map_err(CliError::io("cannot make the page"))?;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page() {
        let pages = pages();
        for name in ["playhouse", "playhouse-serve", "playhouse-bench-serve", "playhouse-man"] {
            assert!(pages.iter().any(|page| page.name == name), "{name}");
        }
        for page in pages {
            let text = String::from_utf8(page.render().unwrap()).unwrap();
            assert!(text.contains(".SH NAME") && text.contains("Examples:"), "{}", page.name);
        }
    }
}

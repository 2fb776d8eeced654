//! Command lines of vLLM. Its spellings become this program's. Flags without a meaning here are
//! accepted with a note, so that a command line for vLLM works. Others ask for something that is
//! done in another way here, and the error says how.

mod file;
mod objects;
mod table;
#[cfg(test)]
mod tests;
mod variables;

use std::{ffi::OsString, iter::Peekable, slice};

pub(super) use self::variables::notes as notes_of_variables;
use self::{
    objects::Objects,
    table::{
        Meaning::{self, Instead, Listed, Off, Only, Switch, Valued},
        SERVE_SHORTS, SHORTS,
    },
};
use super::CliError;
use crate::config::{Setting, Written};

/// Other users of a machine see the arguments of a process.
const CHAT_KEY: &str = "--api-key: chat takes the key of a server from OPENAI_API_KEY";

/// vLLM's other names of flags.
const NAMES: [(&str, &str); 4] = [
    ("model-name", "model"),
    ("override-pooler-config", "pooler-config"),
    ("disable-frontend-multiprocessing", "single-process"),
    ("device-memory-utilization", "gpu-memory-utilization"),
];
/// Flags that set one field of an object.
const FIELDS: [(&str, &str, &str); 3] = [
    ("spec-method", "speculative-config", "method"),
    ("spec-model", "speculative-config", "model"),
    ("spec-tokens", "speculative-config", "num_speculative_tokens"),
];
/// Ways of vLLM to read files that this program reads in one way.
const READ: [&str; 9] = [
    "hf",
    "safetensors",
    "gguf",
    "mistral",
    "bitsandbytes",
    "fastsafetensors",
    "instanttensor",
    "runai_streamer",
    "runai_streamer_sharded",
];
/// Quantizations that a checkpoint brings. Its files name them.
const OF_CHECKPOINTS: [&str; 7] =
    ["awq", "awq_marlin", "gptq", "gptq_marlin", "compressed-tensors", "gguf", "mxfp4"];

/// Quantizations that vLLM reads from a checkpoint, or makes at load where there are none.
const AT_LOAD_TOO: [&str; 7] =
    ["fp8", "bitsandbytes", "modelopt", "modelopt_fp4", "quark", "torchao", "experts_int8"];

type Words<'a> = Peekable<slice::Iter<'a, OsString>>;

/// A flag as it was typed.
struct Flag {
    /// The name in this program's spelling, without dashes.
    name: String,
    /// The field of an object that it sets: the names after dots.
    path: Vec<String>,
    /// The text after `=`.
    value: Option<String>,
}

impl Flag {
    /// Returns the flag in `argument`. `None` if it is none.
    fn parse(argument: &str, is_serve: bool) -> Option<Self> {
        let (flag, value) = match argument.split_once('=') {
            Some((flag, value)) => (flag, Some(value.to_owned())),
            None => (argument, None),
        };
        if let Some(level) = flag.strip_prefix("-O").filter(|_| is_serve) {
            let value = value.or_else(|| (!level.is_empty()).then(|| level.to_owned()));
            return Some(Self { name: "optimization-level".to_owned(), path: Vec::new(), value });
        }
        let mut parts = flag.split('.').map(str::to_owned);
        let head = parts.next()?;
        let shorts = SHORTS.iter().chain(SERVE_SHORTS.iter().filter(|_| is_serve));
        let name = match shorts.into_iter().find(|(short, _)| *short == head) {
            Some((_, name)) => (*name).to_owned(),
            None => head.strip_prefix("--").filter(|name| !name.is_empty())?.replace('_', "-"),
        };
        let other = NAMES.iter().find(|(known, _)| *known == name);
        let name = other.map_or(name, |(_, name)| (*name).to_owned());
        match FIELDS.iter().find(|(known, ..)| *known == name) {
            Some((_, name, field)) => {
                Some(Self { name: (*name).to_owned(), path: vec![(*field).to_owned()], value })
            }
            None => Some(Self { name, path: parts.collect(), value }),
        }
    }

    /// Returns the value: the text after `=`, or else the next argument.
    fn value(&mut self, words: &mut Words<'_>) -> Option<String> {
        self.value.take().or_else(|| next_value(words))
    }

    /// Returns the flag as an argument of this program.
    fn argument(&self) -> String {
        let path: String = self.path.iter().map(|part| format!(".{part}")).collect();
        let value: String = self.value.iter().map(|value| format!("={value}")).collect();
        format!("--{}{path}{value}", self.name)
    }
}

/// Takes the next argument, if it is no flag. A path that is not UTF-8 stays as it is.
fn next_value(words: &mut Words<'_>) -> Option<String> {
    let is_value = |text: &str| {
        let rest = text.strip_prefix('-');
        rest.is_none_or(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    let word = words.next_if(|word| word.to_str().is_some_and(is_value))?;
    word.to_str().map(str::to_owned)
}

/// The arguments so far.
#[derive(Default)]
struct Sorted {
    kept: Vec<OsString>,
    notes: Vec<String>,
    objects: Objects,
    /// Whether a further argument cannot be the model.
    has_model: bool,
}

/// Returns the arguments in this program's spelling, without flags that change nothing, and a note
/// for each of those.
///
/// # Errors
/// A flag whose effect is reached in another way, and a file of vLLM that is not understood.
pub(super) fn sort(
    arguments: impl IntoIterator<Item = OsString>,
) -> Result<(Vec<OsString>, Vec<String>), CliError> {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let is_serve = arguments.get(1).is_some_and(|command| command == "serve");
    let arguments = file::with_file(arguments, is_serve)?;
    // After `--`, arguments are no flags of this command.
    let end = arguments.iter().position(|word| word == "--").unwrap_or(arguments.len());
    let (own, others) = arguments.split_at(end);
    let is_command = |name: &str| own.get(1).is_some_and(|command| command == name);
    let (is_serve, is_chat) = (is_command("serve"), is_command("chat"));
    let is_model = |word: &OsString| {
        let text = word.to_string_lossy();
        text == "-m" || text == "--model" || text.starts_with("--model=")
    };
    let is_first = own.get(2).is_some_and(|word| !word.to_string_lossy().starts_with('-'));
    let has_model = is_serve && (is_first || own.iter().any(is_model));
    let mut sorted = Sorted { has_model, ..Sorted::default() };
    let mut words = own.iter().peekable();
    while let Some(word) = words.next() {
        match word.to_str().and_then(|text| Flag::parse(text, is_serve)) {
            Some(flag) if is_chat && flag.name == "api-key" => {
                return Err(CliError::Usage(CHAT_KEY.to_owned()));
            }
            Some(flag) => sorted.take(flag, &mut words)?,
            None => sorted.kept.push(word.clone()),
        }
    }
    let Sorted { mut kept, mut notes, objects, .. } = sorted;
    kept.extend(objects.arguments(&mut notes)?.into_iter().map(OsString::from));
    kept.extend(others.iter().cloned());
    Ok((kept, notes))
}

impl Sorted {
    /// Takes a flag, and its value where the flag does not go on to the parser as it is.
    fn take(&mut self, mut flag: Flag, words: &mut Words<'_>) -> Result<(), CliError> {
        if let Some((name, meaning)) = meaning_of(&flag.name) {
            return self.vllms(&name, meaning, flag, words);
        }
        let setting = Setting::all().find(|one| one.key().flag()[2..] == flag.name);
        let is_object = setting.is_some_and(|setting| setting.usage.value_name == "JSON")
            || flag.name == objects::STRUCTURED_OUTPUTS;
        if is_object {
            let Some(value) = flag.value(words) else {
                let flag = flag.argument();
                return Err(CliError::Usage(format!("{flag}: a value is required")));
            };
            if !flag.path.is_empty() {
                return self.objects.set(&flag.name, &flag.path, &value);
            }
            let name = &flag.name;
            if let Some(earlier) = self.objects.set_whole(name, value) {
                let note = "changes nothing here: a later one replaces it";
                self.notes.push(format!("--{name} {earlier} {note}"));
            }
            return Ok(());
        }
        if flag.name == "mm-processor-cache-gb" {
            let value = flag.value(words).unwrap_or_default();
            self.keep("mm-processor-cache-bytes", &format!("{value}GiB"));
            return Ok(());
        }
        if setting.is_none() {
            let opposite = opposite(&flag.name).filter(|name| is_switch(name));
            flag.name = opposite.map_or(flag.name, |name| format!("no-{name}"));
        }
        match setting.map(|setting| setting.written) {
            Some(Written::Texts | Written::Secrets) => self.texts(flag, words),
            _ => self.own(flag, words),
        }
    }

    /// Takes a flag of vLLM.
    fn vllms(
        &mut self,
        name: &str,
        meaning: Meaning,
        mut flag: Flag,
        words: &mut Words<'_>,
    ) -> Result<(), CliError> {
        let value = match meaning {
            Switch(_) | Off(_) => None,
            Valued(_) | Listed(_) | Only(..) | Instead(_) => flag.value(words),
        };
        let refused = |how| Err(CliError::Usage(format!("--{name} is a flag of vLLM: {how}")));
        match (meaning, value) {
            (Listed(why), _) => {
                while next_value(words).is_some() {}
                self.notes.push(format!("--{name} changes nothing here: {why}"));
            }
            (Switch(why) | Valued(why), _) => {
                self.notes.push(format!("--{name} changes nothing here: {why}"));
            }
            (Only(values, why), Some(value))
                if flag.path.is_empty() && values.contains(&&*value) =>
            {
                self.notes.push(format!("--{name} {value} changes nothing here: {why}"));
            }
            (Only(_, how) | Off(how) | Instead(how), _) => return refused(how),
        }
        Ok(())
    }

    /// Takes a flag of this program with one text or several. vLLM takes several after one flag,
    /// and some of them as a list in JSON.
    fn texts(&mut self, mut flag: Flag, words: &mut Words<'_>) -> Result<(), CliError> {
        let Some(first) = flag.value(words) else {
            self.kept.push(flag.argument().into());
            return Ok(());
        };
        // A key may look like a list, and is none.
        let takes_json = flag.name.starts_with("allowed-");
        let mut values = vec![first];
        while let Some(value) = self.has_model.then(|| next_value(words)).flatten() {
            values.push(value);
        }
        for value in values {
            let list = takes_json.then(|| serde_json::from_str::<Vec<String>>(&value).ok());
            match list.flatten() {
                // Without these flags, every method and header is allowed.
                Some(list)
                    if list.is_empty()
                        && ["allowed-methods", "allowed-headers"].contains(&&*flag.name) =>
                {
                    let name = &flag.name;
                    let text = format!("--{name} {value}: at least one text is required");
                    return Err(CliError::Usage(text));
                }
                Some(list) => list.iter().for_each(|one| self.keep(&flag.name, one)),
                None => self.keep(&flag.name, &value),
            }
        }
        Ok(())
    }

    /// Takes any other flag. Some values of vLLM have another spelling here.
    fn own(&mut self, mut flag: Flag, words: &mut Words<'_>) -> Result<(), CliError> {
        let spelled = [
            "load-format",
            "quantization",
            "log-level",
            "max-model-len",
            "max-logprobs",
            "hf-token",
        ];
        if !spelled.contains(&&*flag.name) {
            self.kept.push(flag.argument().into());
            return Ok(());
        }
        let Some(value) = flag.value(words) else {
            match flag.name.as_str() {
                "hf-token" => {
                    let why = "the token that `hf auth login` has stored is used by itself";
                    self.notes.push(format!("--hf-token without a token changes nothing: {why}"));
                }
                _ => self.kept.push(flag.argument().into()),
            }
            return Ok(());
        };
        let name = flag.name.as_str();
        let spelling = match (name, value.as_str()) {
            ("load-format", format) if READ.contains(&format) => Some("auto"),
            ("quantization", method) if OF_CHECKPOINTS.contains(&method) => Some("none"),
            ("quantization", method) if AT_LOAD_TOO.contains(&method) => {
                return Err(CliError::Usage(format!(
                    "--quantization {value}: a checkpoint that is quantized needs no flag, and \
                     --quantization int8 or int4 quantizes others at load"
                )));
            }
            ("log-level", "CRITICAL") => Some("error"),
            ("log-level", "WARNING") => Some("warn"),
            ("log-level", "NOTSET") => Some("trace"),
            ("max-model-len", "auto" | "-1") => {
                return Err(CliError::Usage(format!(
                    "--max-model-len {value}: give a number of tokens, or leave the flag out for \
                     the model's own limit"
                )));
            }
            _ => None,
        };
        if let (Some(spelling), "load-format" | "quantization") = (spelling, name) {
            let why = "the model's files say how they are read";
            self.notes.push(format!("--{name} {value} is {spelling} here: {why}"));
        }
        self.keep(name, spelling.unwrap_or(&value));
        Ok(())
    }

    fn keep(&mut self, name: &str, value: &str) {
        self.kept.push(format!("--{name}={value}").into());
    }
}

/// Returns the name and the meaning of a flag that is no flag of this program.
fn meaning_of(name: &str) -> Option<(String, Meaning)> {
    if let Some(meaning) = table::find(name) {
        return Some((name.to_owned(), meaning));
    }
    let meaning = match table::find(&opposite(name)?)? {
        Switch(why) => Switch(why),
        Off(_) => Switch("it is off"),
        Valued(_) | Listed(_) | Only(..) | Instead(_) => return None,
    };
    Some((name.to_owned(), meaning))
}

/// Returns the switch whose opposite has this name: `no-x` is that of `x`, `disable-x` that of
/// `enable-x`, and `enable-x` that of `disable-x`.
fn opposite(name: &str) -> Option<String> {
    if let Some(switch) = name.strip_prefix("no-") {
        return Some(switch.to_owned());
    }
    match name.split_once('-')? {
        ("disable", rest) => Some(format!("enable-{rest}")),
        ("enable", rest) => Some(format!("disable-{rest}")),
        _ => None,
    }
}

/// Returns whether a setting that is true or false has this flag.
fn is_switch(name: &str) -> bool {
    let mut all = Setting::all().filter(|setting| setting.written == Written::Switch);
    all.any(|setting| setting.key().flag()[2..] == *name)
}

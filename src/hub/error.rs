//! The reasons why a model that is given by its name is not there, each with what to do.

use std::{io, path::PathBuf};

use super::files::Lacking;

/// The reason why the files of a named model were not found and not fetched.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// Nothing may be fetched, and the cache lacks the model.
    #[error(
        "the model {name} is no folder or file here, and not in the cache {}{}; nothing was \
         fetched, because --offline or HF_HUB_OFFLINE forbids it: run `playhouse pull {name}` \
         with a network, or give the model's folder",
        cache.display(),
        lacking.as_ref().map(|lacking| format!(" (its copy there: {lacking})")).unwrap_or_default()
    )]
    Offline {
        /// The name as given.
        name: String,
        /// The folder of the cache.
        cache: PathBuf,
        /// The fault of the copy in the cache, if there is one.
        lacking: Option<Lacking>,
    },
    /// This build cannot fetch anything.
    #[error(
        "the model {name} is no folder or file here, and not in the cache {}; this build cannot \
         fetch it, because it lacks the feature hub: put the model there with another program, or \
         give its folder",
        cache.display()
    )]
    NotBuilt {
        /// The name as given.
        name: String,
        /// The folder of the cache.
        cache: PathBuf,
    },
    /// The hub cannot be reached.
    #[error(
        "the model {name} is no folder or file here, and {endpoint} cannot be reached to fetch it: \
         {why}; check the network and its proxy (HTTPS_PROXY), set HF_ENDPOINT to a mirror, or \
         copy the model's files to a folder here and give that folder"
    )]
    Unreachable {
        /// The name as given.
        name: String,
        /// The hub.
        endpoint: String,
        /// The network's error.
        why: String,
    },
    /// The hub does not know the model, or its revision.
    #[error(
        "the model {name} is no folder or file here, and {endpoint} has no such model or revision; \
         check the spelling"
    )]
    NotFound {
        /// The name as given.
        name: String,
        /// The hub.
        endpoint: String,
    },
    /// The hub lets only some users have the model.
    #[error(
        "the model {name} is no folder or file here, and {endpoint} does not give it out \
         ({status}): {}",
        if *has_token {
            format!(
                "the token in use has no access; if the name is right, accept the model's terms at \
                 {endpoint}/{repo} with the token's account, or set HF_TOKEN to another token"
            )
        } else {
            format!(
                "it is gated, private or misspelt; if the name is right, accept the model's terms \
                 at {endpoint}/{repo} and set HF_TOKEN to a token from {endpoint}/settings/tokens"
            )
        }
    )]
    Refused {
        /// The name as given.
        name: String,
        /// `org/name`.
        repo: String,
        /// The hub.
        endpoint: String,
        /// 401 or 403.
        status: u16,
        /// Whether a token was sent.
        has_token: bool,
    },
    /// The repository has nothing that this program runs.
    #[error("{name} cannot be used: {lacking}")]
    Lacking {
        /// The name as given.
        name: String,
        /// The fault.
        lacking: Lacking,
    },
    /// A head is given as the model, and its config does not name the model that it guesses for.
    #[error(
        "{name} is a head of the library speculators, and in its config.json \
         speculators_config.verifier.name_or_path is {verifier}; expected the name of a model, \
         org/name: give the model itself, and the head in --speculative-config"
    )]
    Verifier {
        /// The name as given.
        name: String,
        /// The value.
        verifier: String,
    },
    /// A head is given as the model, and the settings guess by a method that uses none.
    #[error(
        "{name} is a head of the library speculators, and --speculative-config has the method \
         {method}, which uses no head: leave the method out, or give {verifier} as the model"
    )]
    IdleHead {
        /// The name as given.
        name: String,
        /// The method.
        method: &'static str,
        /// The name of the model that the head guesses for.
        verifier: String,
    },
    /// The disk is too small.
    #[error(
        "there is no space for {name}: {needed} are needed in {}, and {free} are free; free some, \
         or name another folder with --download-dir or HF_HOME", cache.display()
    )]
    NoSpace {
        /// The name as given.
        name: String,
        /// Bytes still to fetch, with their unit.
        needed: String,
        /// Free bytes, with their unit.
        free: String,
        /// The folder of the cache.
        cache: PathBuf,
    },
    /// The content of a file is not that of the hub.
    #[error(
        "{file} of {name} was fetched wrongly: {what}; the file was removed: run the command again, \
         and if this repeats, a proxy or a mirror changes the file"
    )]
    Corrupt {
        /// The name as given.
        name: String,
        /// The file.
        file: String,
        /// The difference, with both values.
        what: String,
    },
    /// The transfer of a file broke off several times, or stood still.
    #[error(
        "{file} of {name} could not be fetched: {why}; the part that has arrived is kept: run the \
         command again to continue"
    )]
    Broken {
        /// The name as given.
        name: String,
        /// The file.
        file: String,
        /// The last error.
        why: String,
    },
    /// The hub's answer is not that of a hub.
    #[error("{endpoint} does not answer as a hub does: {why}; check HF_ENDPOINT")]
    Protocol {
        /// The hub.
        endpoint: String,
        /// The difference.
        why: String,
    },
    /// The cache cannot be read or written.
    #[error(
        "the cache {} cannot be used: {source}; name another folder with --download-dir or HF_HOME",
        cache.display()
    )]
    Cache {
        /// Its folder.
        cache: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// There is no place for a cache.
    #[error("there is no home folder to keep models in: set HF_HOME, or give --download-dir")]
    NoHome,
    /// The endpoint is no URL.
    #[error("HF_ENDPOINT = {0}: expected a URL that begins with https:// or http://")]
    Endpoint(String),
    /// The token cannot be sent.
    #[error("the token (--hf-token, HF_TOKEN, or its file) has characters that no token has")]
    Token,
    /// Two revisions are given.
    #[error("the model {name} names a revision, and --revision = {revision} another: give one")]
    TwoRevisions {
        /// The name as given.
        name: String,
        /// The setting.
        revision: String,
    },
    /// A folder has no revisions.
    #[error(
        "--revision = {0}: only a model by its name (org/name) has revisions, and this model is a \
         folder, a file or the demo model"
    )]
    RevisionOfPath(String),
}

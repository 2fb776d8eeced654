//! The rules of the language, the places that keep them, and the exceptions.

/// Folders and files whose prose is held.
pub(crate) const HELD: &[&str] = &[
    ".ci",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "Cargo.toml",
    "README.md",
    "actors",
    "benches",
    "clippy.toml",
    "configs",
    "deny.toml",
    "docs",
    "examples",
    "kernels",
    "rustfmt.toml",
    "src",
    "tests",
];

/// Words that make a reader stop, and what to write instead. A `^` stands for the beginning of a
/// sentence.
pub(crate) const FORBIDDEN: &[(&str, &str)] = &[
    ("whoever", "name the request, actor or client"),
    ("whomever", "name the request, actor or client"),
    ("nobody", "name what is absent: no client, no actor"),
    ("nobody's", "name what is absent: no client, no actor"),
    ("somebody", "name the actor or client"),
    ("everybody", "name the requests, actors or clients"),
    ("^who", "begin with a noun: a request that, a client that"),
    ("^what", "begin with a noun: the result, the text"),
    ("any more", "use 'no longer', or say what is true now"),
    ("such as", "use 'for example', or list all"),
    ("in vain", "say what happens to the result: it is dropped"),
    ("is told", "use 'learns', or say which actor reports what"),
    ("are told", "use 'learn', or say which actor reports what"),
    ("told of", "use 'reported'"),
    ("lets go of", "use 'frees' or 'releases'"),
    ("hold against", "use 'compare with'"),
    ("held against", "use 'compared with'"),
    ("what comes of", "use 'the result of'"),
    ("what became of", "use 'the end of'"),
    ("is given back", "use 'is released' or 'is returned'"),
    ("are given back", "use 'are released' or 'are returned'"),
    ("gives back", "use 'releases' or 'returns'"),
    ("of no use", "say what is done instead"),
    ("on behalf of", "use 'for'"),
];

/// Faults that stand, each with its reason: path, beginning of the fault, reason.
const EXCEPTIONS: &[(&str, &str, &str)] = &[];

/// Whether `fault` of the file at `path` is an exception.
pub(crate) fn is_excepted(path: &str, fault: &str) -> bool {
    EXCEPTIONS.iter().any(|(place, beginning, _)| *place == path && fault.starts_with(beginning))
}

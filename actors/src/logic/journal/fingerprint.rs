//! The facts that decide whether another process draws the same tokens.

use serde::{Deserialize, Serialize};

/// The facts about a process on which its tokens may depend. Each is a text that equals another
/// process's text if and only if nothing of its kind has changed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Fingerprint {
    /// The model's files.
    pub weights: String,
    /// The settings that change numbers: data types and quantization.
    pub numbers: String,
    /// The program.
    pub build: String,
    /// The instruction set of the kernels.
    pub instruction_set: String,
    /// The kind of the device.
    pub device: String,
}

/// A fact that differs between two processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The fact's name.
    pub fact: &'static str,
    /// Its value in the journal.
    pub recorded: String,
    /// Its value now.
    pub current: String,
}

impl Fingerprint {
    /// Returns the facts that differ from `current`.
    #[must_use]
    pub fn differences(&self, current: &Self) -> Vec<Difference> {
        let facts = [
            ("weights", &self.weights, &current.weights),
            ("numbers", &self.numbers, &current.numbers),
            ("build", &self.build, &current.build),
            ("instruction set", &self.instruction_set, &current.instruction_set),
            ("device", &self.device, &current.device),
        ];
        let differ = facts.into_iter().filter(|(_, recorded, current)| recorded != current);
        differ
            .map(|(fact, recorded, current)| Difference {
                fact,
                recorded: recorded.clone(),
                current: current.clone(),
            })
            .collect()
    }
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { fact, recorded, current } = self;
        write!(f, "{fact}: {recorded:?} then, {current:?} now")
    }
}

//! The LoRA adapters that requests name as their model, by vLLM's flags.

use clap::{Args, ValueEnum};
use rand::{RngExt as _, rngs::StdRng};

use super::client::Client;

#[derive(Debug, Args)]
#[command(next_help_heading = "LoRA")]
pub(super) struct AdapterArgs {
    /// Adapters of the server. Each request names one of them as its model
    #[arg(long, value_name = "NAME", num_args = 1..)]
    lora_modules: Vec<String>,
    /// How adapters are given to requests
    #[arg(long, value_enum, default_value_t)]
    lora_assignment: Assignment,
}

#[derive(Debug, Clone, Copy, Default, ValueEnum)]
enum Assignment {
    /// Drawn for each request.
    #[default]
    Random,
    /// One after the other.
    RoundRobin,
}

impl AdapterArgs {
    /// Returns the clients of `num_requests` requests. Request i has client i modulo their number.
    pub(super) fn clients(
        &self,
        base: &Client,
        num_requests: usize,
        rng: &mut StdRng,
    ) -> Vec<Client> {
        let of = |name: &String| base.clone().for_model(name.clone());
        let adapters: Vec<_> = self.lora_modules.iter().map(of).collect();
        match self.lora_assignment {
            _ if adapters.is_empty() => vec![base.clone()],
            Assignment::RoundRobin => adapters,
            Assignment::Random => {
                let draw = |_| adapters[rng.random_range(0..adapters.len())].clone();
                (0..num_requests).map(draw).collect()
            }
        }
    }
}

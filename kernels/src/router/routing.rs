//! The experts of each token.

use burn::tensor::Device;
use bytemuck::{Pod, Zeroable};

use crate::KernelError;
use crate::device::Place;
use crate::workspace::Scratch;

const WHAT: &str = "routing";

/// An expert of a token.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
pub struct Choice {
    /// The index of the expert.
    pub expert: u32,
    /// The weight of its result in the sum.
    pub weight: f32,
}

// SAFETY: both fields may be zero.
unsafe impl Zeroable for Choice {}
// SAFETY: two fields of four bytes without padding, which may have any bits.
unsafe impl Pod for Choice {}

/// The experts of each token of a batch, the best first.
pub struct Routing {
    choices: Choices,
    num_tokens: usize,
    top_k: usize,
    num_experts: usize,
}

/// `[token][place]`, by device.
enum Choices {
    Cpu(Scratch<Choice>),
    /// The bytes of each [`Choice`].
    #[cfg(feature = "gpu")]
    Cube {
        client: cubecl::client::Client,
        words: cubecl::server::Handle,
    },
}

impl Routing {
    /// Takes choices `[num_tokens][top_k]` that were made elsewhere, for experts on any device. A
    /// step on a GPU that does this is not recorded, because a replay could not renew the choices.
    ///
    /// # Errors
    /// A number of choices that is no multiple of `top_k`, or an expert that is not below
    /// `num_experts`.
    pub fn new(choices: &[Choice], top_k: usize, num_experts: usize) -> Result<Self, KernelError> {
        KernelError::require(top_k > 0, WHAT, "top_k", 0, "at least 1")?;
        let num_tokens = choices.len() / top_k;
        KernelError::require_len(WHAT, "choices", choices.len(), num_tokens * top_k)?;
        let beyond = choices.iter().find(|choice| choice.expert as usize >= num_experts);
        let got = beyond.map_or(0, |choice| u64::from(choice.expert));
        let accepted = || format!("below {num_experts}");
        KernelError::require(beyond.is_none(), WHAT, "expert", got, accepted())?;
        let mut routing = Self::unset(num_tokens, top_k, num_experts);
        routing.choices_mut().copy_from_slice(choices);
        Ok(routing)
    }

    /// Returns a routing on the CPU whose choices are still to be written, all of them.
    pub(super) fn unset(num_tokens: usize, top_k: usize, num_experts: usize) -> Self {
        let choices = Choices::Cpu(Scratch::zeroed(num_tokens * top_k));
        Self { choices, num_tokens, top_k, num_experts }
    }

    /// Returns a routing whose choices are on a GPU.
    #[cfg(feature = "gpu")]
    pub(super) fn on_device(
        client: cubecl::client::Client,
        words: cubecl::server::Handle,
        num_tokens: usize,
        top_k: usize,
        num_experts: usize,
    ) -> Self {
        Self { choices: Choices::Cube { client, words }, num_tokens, top_k, num_experts }
    }

    /// Returns the choices for writing, `[token][place]`.
    ///
    /// # Panics
    /// If they are on a GPU.
    pub(super) fn choices_mut(&mut self) -> &mut [Choice] {
        match &mut self.choices {
            Choices::Cpu(choices) => choices,
            #[cfg(feature = "gpu")]
            Choices::Cube { .. } => unreachable!("the routing is not on the CPU"),
        }
    }

    /// Returns the number of tokens.
    #[must_use]
    pub fn num_tokens(&self) -> usize {
        self.num_tokens
    }

    /// Returns the experts of each token.
    #[must_use]
    pub fn top_k(&self) -> usize {
        self.top_k
    }

    /// Returns the number of experts that could be chosen.
    #[must_use]
    pub fn num_experts(&self) -> usize {
        self.num_experts
    }

    /// Returns all choices, `[token][place]`.
    ///
    /// # Panics
    /// If they are on a GPU.
    pub(crate) fn choices(&self) -> &[Choice] {
        match &self.choices {
            Choices::Cpu(choices) => choices,
            #[cfg(feature = "gpu")]
            Choices::Cube { .. } => unreachable!("the routing is not on the CPU"),
        }
    }

    /// Returns the choices on a GPU, and copies them there where a caller made them.
    #[cfg(feature = "gpu")]
    pub(crate) fn on_gpu(&self, client: &cubecl::client::Client) -> cubecl::server::Handle {
        match &self.choices {
            Choices::Cpu(choices) => {
                crate::cube::upload_of_caller(client, bytemuck::cast_slice(choices))
            }
            Choices::Cube { words, .. } => words.clone(),
        }
    }

    /// Returns the routing with its choices on `device`, so that no operation there copies them.
    ///
    /// # Errors
    /// A device without kernels, or an error of the present device.
    pub fn to_device(self, device: &Device) -> Result<Self, KernelError> {
        let Self { top_k, num_experts, .. } = self;
        match Place::of(device, WHAT)? {
            Place::Cpu => Self::new(&self.to_host()?, top_k, num_experts),
            #[cfg(feature = "gpu")]
            Place::Cube(device) => {
                let client = device.client();
                let words = self.on_gpu(&client);
                Ok(Self::on_device(client, words, self.num_tokens, top_k, num_experts))
            }
        }
    }

    /// Copies all choices to the host, `[token][place]`. Waits for the device where they are on a
    /// GPU.
    ///
    /// # Errors
    /// An error of the device.
    pub fn to_host(&self) -> Result<Vec<Choice>, KernelError> {
        match &self.choices {
            Choices::Cpu(choices) => Ok(choices.to_vec()),
            #[cfg(feature = "gpu")]
            Choices::Cube { client, words } => {
                let bytes = client.read_one(words.clone()).map_err(crate::cube::device_error)?;
                let mut choices: Vec<Choice> = bytemuck::pod_collect_to_vec(&bytes[..]);
                // A buffer of no choices is not empty.
                choices.truncate(self.num_tokens * self.top_k);
                Ok(choices)
            }
        }
    }
}

impl std::fmt::Debug for Routing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut f = f.debug_struct("Routing");
        f.field("num_tokens", &self.num_tokens).field("top_k", &self.top_k);
        f.field("num_experts", &self.num_experts).finish_non_exhaustive()
    }
}

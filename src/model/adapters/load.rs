//! From an adapter's files to its weights on the device.

use std::collections::BTreeMap;

use burn::tensor::Device;
use playhouse_kernels::{
    EmbeddingTable, LinearWeight, LoraPair, LoraWeights, WeightDtype, WeightView,
};

use super::config::LoraConfig;
use super::sites::Replaceable;
use super::{Adapter, AdapterError, AdapterFiles, AdapterSites, Site};
use crate::model::layers::{Arrangement, Part};
use crate::weights::Checkpoint;

/// The prefix of all names that PEFT adds.
const PREFIX: &str = "base_model.model.";
/// Components that different versions of transformers put before the names of layers.
const OUTER: [&str; 3] = ["model", "language_model", "transformer"];

/// The tensors of one module in the adapter's file, by their full names.
#[derive(Debug, Default)]
struct Tensors {
    a: Option<String>,
    b: Option<String>,
}

/// The part of an adapter's file that a tensor belongs to.
enum Role {
    A,
    B,
    /// The whole weight of a module: `modules_to_save`.
    Weight,
}

/// An adapter that is being loaded.
struct Loading<'a> {
    sites: &'a AdapterSites,
    config: LoraConfig,
    checkpoint: Checkpoint,
    files: &'a AdapterFiles,
    max_rank: usize,
    dtype: WeightDtype,
    device: &'a Device,
}

/// The matrices of one module, before they are packed.
struct Matrices {
    a: Vec<f32>,
    /// Row-major, in the order of the module's outputs in its file.
    b: Vec<f32>,
    rank: usize,
    scale: f32,
}

impl AdapterFiles {
    /// Packs the weights for the model with these sites. A module may have a rank of at most
    /// `max_rank`.
    ///
    /// # Errors
    /// [`AdapterError`] names the file, and the field or tensor at fault.
    pub fn load(&self, sites: &AdapterSites, max_rank: usize) -> Result<Adapter, AdapterError> {
        let config = LoraConfig::read(self)?;
        let Some((dtype, device)) = &sites.kept else {
            return Err(AdapterError::NoSites { why: "its family registers no layers" });
        };
        let checkpoint = Checkpoint::of_bytes(self.weights_path.clone(), self.weights.clone())?;
        let loading =
            Loading { sites, config, checkpoint, files: self, max_rank, dtype: *dtype, device };
        loading.load()
    }
}

impl Loading<'_> {
    fn load(&self) -> Result<Adapter, AdapterError> {
        let mut modules: BTreeMap<String, Tensors> = BTreeMap::new();
        let (mut embedding, mut lm_head, mut size_bytes) = (None, None, 0);
        for name in self.checkpoint.names() {
            let (module, role) = self.role(&name)?;
            match role {
                Role::A => modules.entry(module).or_default().a = Some(name.into_owned()),
                Role::B => modules.entry(module).or_default().b = Some(name.into_owned()),
                Role::Weight if is_same(&self.sites.embedding, &module) => {
                    embedding = Some(self.embedding(&name)?);
                    size_bytes += self.size_of(&self.sites.embedding);
                }
                Role::Weight if is_same(&self.sites.lm_head, &module) => {
                    lm_head = Some(self.lm_head(&name)?);
                    size_bytes += self.size_of(&self.sites.lm_head);
                }
                Role::Weight => {
                    let why = "modules_to_save may replace the embedding and the output layer \
                               alone";
                    return Err(self.refused(&name, why));
                }
            }
        }
        let mut matrices = BTreeMap::new();
        for (module, tensors) in &modules {
            matrices.insert(normalized(module), self.matrices(module, tensors)?);
        }
        let max_rank = matrices.values().map(|each| each.rank).max().unwrap_or_default();
        let sites = self.sites.sites.iter().map(|site| self.site(site, &matrices));
        let sites = sites.collect::<Result<Vec<_>, _>>()?;
        size_bytes += sites.iter().flatten().map(LoraWeights::size_bytes).sum::<usize>();
        Ok(Adapter { sites, embedding, lm_head, max_rank, size_bytes })
    }

    /// Returns the module of a tensor, and its role there.
    fn role(&self, name: &str) -> Result<(String, Role), AdapterError> {
        let rest = name.strip_prefix(PREFIX).unwrap_or(name);
        for (marker, role) in [(".lora_A.", Role::A), (".lora_B.", Role::B)] {
            if let Some((module, end)) = rest.rsplit_once(marker)
                && (end == "weight" || end == "default.weight")
            {
                return Ok((module.to_owned(), role));
            }
        }
        if rest.contains("lora_magnitude_vector") {
            return Err(self.refused(name, "DoRA is not computed"));
        }
        if rest.contains("lora_embedding_") {
            let why = "embeddings take no matrices of low rank; merge the adapter into its model, \
                       or train the embedding as one of modules_to_save";
            return Err(self.refused(name, why));
        }
        let saved = rest.strip_suffix(".weight").filter(|_| !rest.contains(".lora_"));
        let saved = saved.map(|module| {
            let module = module.strip_suffix(".modules_to_save.default").unwrap_or(module);
            module.strip_suffix(".modules_to_save").unwrap_or(module)
        });
        match saved {
            Some(module) => Ok((module.to_owned(), Role::Weight)),
            None => Err(self.refused(name, "its name is not one of PEFT's LoRA tensors")),
        }
    }

    /// Reads and checks the matrices of a module.
    fn matrices(&self, module: &str, tensors: &Tensors) -> Result<Matrices, AdapterError> {
        let (Some(a), Some(b)) = (&tensors.a, &tensors.b) else {
            let name = tensors.a.as_ref().or(tensors.b.as_ref());
            let why = "lora_A or lora_B of the module is missing";
            return Err(self.refused(name.map_or(module, String::as_str), why));
        };
        let name = normalized(module);
        let Some((site, part)) = self.find(&name) else {
            let is_closed = self.sites.closed.iter().any(|each| normalized(each) == name);
            let why = match is_closed {
                true => format!("module {module} takes no adapter"),
                false => format!("the base model has no linear layer {module}"),
            };
            return Err(self.refused(a, &why));
        };
        if !self.config.has_target(module) {
            let why = format!("target_modules of adapter_config.json does not name {module}");
            return Err(self.refused(a, &why));
        }
        let rank = self.config.rank(module);
        if rank > self.max_rank {
            return Err(AdapterError::Rank { rank, max_rank: self.max_rank });
        }
        let outputs = match part.arrangement {
            Arrangement::SomeRows { of, .. } => of,
            _ => part.outputs,
        };
        let (a, b) = (self.values(a, [rank, site.inputs])?, self.values(b, [outputs, rank])?);
        Ok(Matrices { a, b, rank, scale: self.config.scale(module) })
    }

    /// Returns the first site that a module is in.
    fn find(&self, module: &str) -> Option<(&Site, &Part)> {
        let sites = self.sites.sites.iter();
        let mut parts = sites.flat_map(|site| site.parts.iter().map(move |part| (site, part)));
        parts.find(|(_, part)| normalized(&part.module) == module)
    }

    /// Packs the matrices of the modules of one site.
    fn site(
        &self,
        site: &Site,
        matrices: &BTreeMap<String, Matrices>,
    ) -> Result<Option<LoraWeights>, AdapterError> {
        let (mut first_output, mut own) = (0, Vec::new());
        for part in &site.parts {
            if let Some(matrices) = matrices.get(&normalized(&part.module)) {
                own.push((matrices, arranged(matrices, part), first_output));
            }
            first_output += part.outputs;
        }
        if own.is_empty() {
            return Ok(None);
        }
        let pairs: Vec<LoraPair<'_>> = own
            .iter()
            .map(|(matrices, b, first_output)| LoraPair {
                a: &matrices.a,
                b,
                rank: matrices.rank,
                scale: matrices.scale,
                first_output: *first_output,
            })
            .collect();
        let shape = [site.outputs(), site.inputs];
        let packed = LoraWeights::pack(&pairs, shape, self.dtype, self.device);
        packed.map(Some).map_err(|source| {
            let part = site.parts.first().map_or_else(String::new, |part| part.module.clone());
            AdapterError::Device { part, source }
        })
    }

    fn embedding(&self, name: &str) -> Result<EmbeddingTable, AdapterError> {
        let [vocab, width] = shape_of(&self.sites.embedding);
        let tensor = self.values(name, [vocab, width])?;
        let view = WeightView::F32(&tensor);
        EmbeddingTable::new(view, vocab, width, self.dtype, self.device)
            .map_err(|source| AdapterError::Device { part: name.to_owned(), source })
    }

    fn lm_head(&self, name: &str) -> Result<LinearWeight, AdapterError> {
        if self.sites.lm_head.as_ref().is_some_and(|head| head.has_bias) {
            return Err(self.refused(name, "an output layer with a bias cannot be replaced"));
        }
        let [vocab, width] = shape_of(&self.sites.lm_head);
        let tensor = self.values(name, [vocab, width])?;
        let view = WeightView::F32(&tensor);
        LinearWeight::pack(&[view], width, self.dtype, self.device)
            .map_err(|source| AdapterError::Device { part: name.to_owned(), source })
    }

    fn size_of(&self, replaced: &Option<Replaceable>) -> usize {
        shape_of(replaced).iter().product::<usize>() * self.dtype.size_bytes()
    }

    /// Returns the elements of a tensor, which must have this shape.
    fn values(&self, name: &str, expected: [usize; 2]) -> Result<Vec<f32>, AdapterError> {
        let actual = self.checkpoint.shape(name).unwrap_or_default();
        if actual != expected {
            return Err(AdapterError::Shape {
                path: self.files.weights_path.clone(),
                tensor: name.to_owned(),
                actual: actual.to_vec(),
                expected: expected.to_vec(),
            });
        }
        Ok(self.checkpoint.tensor(name, &expected)?.values().view().to_f32())
    }

    fn refused(&self, tensor: &str, why: &str) -> AdapterError {
        let path = self.files.weights_path.clone();
        AdapterError::Module { path, tensor: tensor.to_owned(), why: why.to_owned() }
    }
}

/// Returns the rows of B in the order of a part's outputs.
fn arranged(matrices: &Matrices, part: &Part) -> Vec<f32> {
    match &part.arrangement {
        Arrangement::Rows(rows) | Arrangement::SomeRows { rows, .. } => {
            let row = |row: &u32| &matrices.b[*row as usize * matrices.rank..][..matrices.rank];
            rows.iter().flat_map(row).copied().collect()
        }
        _ => matrices.b.clone(),
    }
}

/// Returns a module's name without the components that differ between versions of transformers.
fn normalized(module: &str) -> String {
    let mut rest = module;
    while let Some((first, inner)) = rest.split_once('.')
        && OUTER.contains(&first)
    {
        rest = inner;
    }
    rest.to_owned()
}

fn is_same(replaced: &Option<Replaceable>, module: &str) -> bool {
    let is_it = |replaced: &Replaceable| normalized(&replaced.module) == normalized(module);
    replaced.as_ref().is_some_and(is_it)
}

fn shape_of(replaced: &Option<Replaceable>) -> [usize; 2] {
    replaced.as_ref().map_or([0, 0], |replaced| replaced.shape)
}

//! From an adapter's files to its weights on the device.

use std::borrow::Cow;
use std::collections::BTreeMap;

use burn::tensor::Device;
use playhouse_kernels::{
    EmbeddingTable, ExpertLora, KernelError, LinearWeight, LoraPair, LoraWeights, WeightDtype,
    WeightView,
};

use super::classifier::Saved;
use super::config::LoraConfig;
use super::names::Role;
use super::sites::{Replaceable, Turned};
use super::{Adapter, AdapterError, AdapterFiles, AdapterSites, Site, SiteId};
use crate::model::layers::{Arrangement, Part};
use crate::weights::Checkpoint;

/// The tensors of one module in the adapter's file, by their full names.
#[derive(Debug, Default)]
pub(super) struct Tensors {
    a: Option<String>,
    b: Option<String>,
}

/// An adapter that is being loaded.
pub(super) struct Loading<'a> {
    pub(super) sites: &'a AdapterSites,
    pub(super) config: LoraConfig,
    pub(super) checkpoint: Checkpoint,
    pub(super) files: &'a AdapterFiles,
    max_rank: usize,
    pub(super) dtype: WeightDtype,
    pub(super) device: &'a Device,
    /// The first site that each module is in.
    modules: BTreeMap<Cow<'a, str>, (&'a Site, &'a Part)>,
}

/// The matrices of one module, before they are packed.
pub(super) struct Matrices {
    pub(super) a: Vec<f32>,
    /// Row-major, in the order of the module's outputs in its file.
    pub(super) b: Vec<f32>,
    pub(super) rank: usize,
    pub(super) scale: f32,
    /// The first of a site's outputs, where the matrices belong to the site and not to a module.
    pub(super) first_output: usize,
}

/// Matrices at some outputs of a site.
pub(super) struct Own<'a> {
    matrices: &'a Matrices,
    /// B, in the order of the site's outputs.
    b: Vec<f32>,
    first_output: usize,
}

impl Own<'_> {
    pub(super) fn pair(&self) -> LoraPair<'_> {
        let Matrices { a, rank, scale, .. } = self.matrices;
        let first_output = self.first_output;
        LoraPair { a, b: &self.b, rank: *rank, scale: *scale, first_output }
    }
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
        let mut modules = BTreeMap::new();
        for site in &sites.sites {
            for part in site.parts.iter().chain(&site.also) {
                modules.entry(sites.normalized(&part.module)).or_insert((site, part));
            }
        }
        let (files, dtype) = (self, *dtype);
        let loading =
            Loading { sites, config, checkpoint, files, max_rank, dtype, device, modules };
        loading.load()
    }
}

impl Loading<'_> {
    fn load(&self) -> Result<Adapter, AdapterError> {
        let mut modules: BTreeMap<String, Tensors> = BTreeMap::new();
        let mut of_tokens: BTreeMap<String, Tensors> = BTreeMap::new();
        let (mut of_embedding, mut of_lm_head, mut of_classifier) = (None, None, Vec::new());
        let mut ignored = Vec::new();
        for name in self.checkpoint.names() {
            let (module, role) = self.role(&name)?;
            // As in vLLM without `enable_tower_connector_lora`.
            if !matches!(role, Role::Saved(_)) && self.sites.is_in_other_part(&module) {
                ignored.push(name);
                continue;
            }
            match role {
                Role::A => self.set(&mut modules.entry(module).or_default().a, name)?,
                Role::B => self.set(&mut modules.entry(module).or_default().b, name)?,
                Role::EmbeddingA | Role::EmbeddingB
                    if !self.is_same(&self.sites.embedding, &module) =>
                {
                    let why = format!("the base model has no embedding {module}");
                    return Err(self.refused(&name, &why));
                }
                Role::EmbeddingA => self.set(&mut of_tokens.entry(module).or_default().a, name)?,
                Role::EmbeddingB => self.set(&mut of_tokens.entry(module).or_default().b, name)?,
                // PEFT also saves the base model's embedding or output layer, if this has matrices
                // of low rank.
                Role::Saved(part) if let Some(base) = self.base_layer(&module) => {
                    let num_axes = if part == Saved::Weight { 2 } else { 1 };
                    self.require_shape(&name, &base.shape[..num_axes])?;
                }
                Role::Saved(saved) if let Some(layer) = self.sites.classifier_layer(&module) => {
                    let same =
                        |(of, part, _): &&(usize, Saved, String)| (*of, *part) == (layer, saved);
                    if let Some((_, _, other)) = of_classifier.iter().find(same) {
                        return Err(self.twice(&name, other));
                    }
                    of_classifier.push((layer, saved, name.into_owned()));
                }
                Role::Saved(Saved::Weight) if self.is_same(&self.sites.embedding, &module) => {
                    self.set(&mut of_embedding, name)?;
                }
                Role::Saved(Saved::Weight) if self.is_same(&self.sites.lm_head, &module) => {
                    self.set(&mut of_lm_head, name)?;
                }
                Role::Saved(_) => {
                    let why = "modules_to_save may replace the embedding, the output layer and \
                               the classifier alone";
                    return Err(self.refused(&name, why));
                }
            }
        }
        let embedding = of_embedding.map(|name| self.embedding(&name)).transpose()?;
        let lm_head = of_lm_head.map(|name| self.lm_head(&name)).transpose()?;
        let mut size_bytes = 0;
        if embedding.is_some() {
            size_bytes += self.size_of(&self.sites.embedding);
        }
        if lm_head.is_some() {
            size_bytes += self.size_of(&self.sites.lm_head);
        }
        let (classifier, mut max_rank) = self.classifier(&of_classifier, &mut modules)?;
        let mut embedding_lora = None;
        for (module, tensors) in &of_tokens {
            let lora = self.embedding_lora(module, tensors)?;
            max_rank = max_rank.max(lora.rank);
            size_bytes += lora.size_bytes;
            if embedding_lora.replace(lora).is_some() {
                let name = tensors.a.as_deref().unwrap_or(module);
                return Err(self.refused(name, "the module has matrices under another name, too"));
            }
        }
        let (mut matrices, mut of_sites) = (BTreeMap::new(), BTreeMap::new());
        let told = self.told_sides(&modules);
        if let Some(first) = ignored.first() {
            let path = self.files.weights_path.display();
            let (tensors, first) = (ignored.len(), &**first);
            let what = "matrices for the encoders of images and sounds have no effect";
            tracing::warn!(%path, tensors, first, "{what}");
        }
        for (module, tensors) in &modules {
            if let Some(experts) = self.sites.experts_of(module) {
                for (SiteId(site), matrices) in self.of_experts(module, tensors, experts, &told)? {
                    max_rank = max_rank.max(matrices.rank);
                    let of_site: &mut Vec<Matrices> = of_sites.entry(site).or_default();
                    let first_output = matrices.first_output;
                    if of_site.iter().any(|other| other.first_output == first_output) {
                        let name = tensors.a.as_deref().unwrap_or(module);
                        let why = "the experts have matrices under another name, too";
                        return Err(self.refused(name, why));
                    }
                    of_site.push(matrices);
                }
                continue;
            }
            // The pooler of BERT is not computed beside another pooling.
            let is_unused = self.sites.is_unused(module);
            let shape = match is_unused {
                true => self.shape_of_unused(module, tensors)?,
                false => self.shape(module, tensors)?,
            };
            let of_module = self.matrices(module, tensors, shape)?;
            max_rank = max_rank.max(of_module.rank);
            let name = self.sites.normalized(module).into_owned();
            if !is_unused && matrices.insert(name, of_module).is_some() {
                let name = tensors.a.as_deref().unwrap_or(module);
                return Err(self.refused(name, "the module has matrices under another name, too"));
            }
        }
        let sites = self.sites.sites.iter().map(|site| self.site(site, &matrices));
        let sites = sites.collect::<Result<Vec<_>, _>>()?;
        size_bytes += sites.iter().flatten().map(LoraWeights::size_bytes).sum::<usize>();
        let experts = self.sites.experts.iter();
        let experts = experts.map(|experts| self.packed_experts(experts, &of_sites, &matrices));
        let experts = experts.collect::<Result<Vec<_>, _>>()?;
        size_bytes += experts.iter().flatten().flatten().map(ExpertLora::size_bytes).sum::<usize>();
        Ok(Adapter {
            sites,
            experts,
            embedding,
            embedding_lora,
            lm_head,
            classifier,
            max_rank,
            size_bytes,
        })
    }

    /// Notes the only tensor of a kind.
    fn set(&self, known: &mut Option<String>, name: Cow<'_, str>) -> Result<(), AdapterError> {
        match known {
            Some(other) => Err(self.twice(&name, other)),
            None => {
                *known = Some(name.into_owned());
                Ok(())
            }
        }
    }

    /// Returns the error of a tensor that the file has under two names.
    fn twice(&self, name: &str, other: &str) -> AdapterError {
        self.refused(name, &format!("the file has the same part of the module as `{other}`, too"))
    }

    /// Returns the shape of a module in the base model, which must have a site for it.
    fn shape(&self, module: &str, tensors: &Tensors) -> Result<[usize; 2], AdapterError> {
        if let Some((site, part)) = self.modules.get(&*self.sites.normalized(module)) {
            let outputs = match part.arrangement {
                Arrangement::SomeRows { of, .. } => of,
                _ => part.outputs,
            };
            return Ok([outputs, site.inputs]);
        }
        let why = match self.sites.is_closed(module) {
            true => format!("module {module} takes no adapter"),
            false => format!("the base model has no linear layer {module}"),
        };
        let name = tensors.a.as_ref().or(tensors.b.as_ref());
        Err(self.refused(name.map_or(module, String::as_str), &why))
    }

    /// Returns the shape that the matrices of a module have by themselves. The base model does not
    /// compute the module, so it has no shape there.
    fn shape_of_unused(&self, module: &str, tensors: &Tensors) -> Result<[usize; 2], AdapterError> {
        let (a, b) = self.names(module, tensors)?;
        let outputs = self.checkpoint.shape(b).and_then(|shape| shape.first()).copied();
        let inputs = self.checkpoint.shape(a).and_then(|shape| shape.get(1)).copied();
        Ok([outputs.unwrap_or_default(), inputs.unwrap_or_default()])
    }

    /// Returns the names of the matrices of a module.
    pub(super) fn names<'t>(
        &self,
        module: &str,
        Tensors { a, b }: &'t Tensors,
    ) -> Result<(&'t str, &'t str), AdapterError> {
        match (a, b) {
            (Some(a), Some(b)) => Ok((a, b)),
            (one, other) => {
                let name = one.as_ref().or(other.as_ref());
                let why = "lora_A or lora_B of the module is missing";
                Err(self.refused(name.map_or(module, String::as_str), why))
            }
        }
    }

    /// Returns the rank of a module, which the engine may limit.
    pub(super) fn rank(&self, module: &str) -> Result<usize, AdapterError> {
        match (self.config.rank(module), self.max_rank) {
            (rank, max_rank) if rank > max_rank => Err(AdapterError::Rank { rank, max_rank }),
            (rank, _) => Ok(rank),
        }
    }

    /// Reads and checks the matrices of a module of shape `[outputs, inputs]`.
    pub(super) fn matrices(
        &self,
        module: &str,
        tensors: &Tensors,
        [outputs, inputs]: [usize; 2],
    ) -> Result<Matrices, AdapterError> {
        let (a, b) = self.names(module, tensors)?;
        let name = self.known_name(module, a)?;
        let rank = self.rank(&name)?;
        let (a, b) = (self.values(a, &[rank, inputs])?, self.values(b, &[outputs, rank])?);
        Ok(Matrices { a, b, rank, scale: self.config.scale(&name), first_output: 0 })
    }

    /// Returns the name by which the config knows a module: its own, or that of its weight. PEFT
    /// has the weights of routers as parameters, because transformers 5 has no linear layer for
    /// them. `tensor` is one of the module's.
    fn known_name<'m>(&self, module: &'m str, tensor: &str) -> Result<Cow<'m, str>, AdapterError> {
        let weight = format!("{module}.weight");
        if self.config.has_parameter(&weight) {
            return Ok(Cow::Owned(weight));
        }
        if self.config.has_target(module) || self.is_tied_head(module) {
            return Ok(Cow::Borrowed(module));
        }
        let why = format!("target_modules of adapter_config.json does not name {module}");
        Err(self.refused(tensor, &why))
    }

    /// Returns whether a module is the output layer, and has the matrices of the embedding. PEFT
    /// leaves it out of `target_modules` then.
    fn is_tied_head(&self, module: &str) -> bool {
        self.config.ties_weights() && self.is_same(&self.sites.lm_head, module)
    }

    /// Returns the embedding or the output layer whose matrix in the base model is a module of the
    /// adapter's file.
    fn base_layer(&self, module: &str) -> Option<&Replaceable> {
        let inner = module.strip_suffix(".base_layer")?;
        let whole = [&self.sites.embedding, &self.sites.lm_head];
        whole.into_iter().find(|replaced| self.is_same(replaced, inner))?.as_ref()
    }

    fn is_same(&self, replaced: &Option<Replaceable>, module: &str) -> bool {
        let name = self.sites.normalized(module);
        replaced.as_ref().is_some_and(|replaced| self.sites.normalized(&replaced.module) == name)
    }

    /// Packs the matrices of the modules of one site, if it has some by itself.
    fn site(
        &self,
        site: &Site,
        matrices: &BTreeMap<String, Matrices>,
    ) -> Result<Option<LoraWeights>, AdapterError> {
        if site.is_of_expert {
            return Ok(None);
        }
        let own = self.own(site, &[], matrices);
        let pairs: Vec<LoraPair<'_>> = own.iter().map(Own::pair).collect();
        let shape = [site.outputs(), site.inputs];
        let packed = match (&pairs[..], site.turned) {
            ([], _) => return Ok(None),
            ([pair, ..], Some(Turned { further })) => {
                let [a, b] = turned(pair, shape, further);
                let pair = LoraPair { a: &a, b: &b, first_output: 0, ..*pair };
                let shape = [site.inputs + further, site.outputs() + further];
                LoraWeights::pack(&[pair], shape, self.dtype, self.device)
            }
            (pairs, None) => LoraWeights::pack(pairs, shape, self.dtype, self.device),
        };
        packed.map(Some).map_err(|source| self.on_device(site, source))
    }

    /// Returns the matrices of one site: those of the site itself, and those of its modules.
    pub(super) fn own<'m>(
        &self,
        site: &Site,
        of_site: &'m [Matrices],
        matrices: &'m BTreeMap<String, Matrices>,
    ) -> Vec<Own<'m>> {
        let mut own = Vec::new();
        own.extend(of_site.iter().map(|matrices| {
            let b = match &site.parts[..] {
                [part] => arranged(matrices, part),
                _ => matrices.b.clone(),
            };
            Own { matrices, b, first_output: matrices.first_output }
        }));
        for parts in [&site.parts, &site.also] {
            let mut first_output = 0;
            for part in parts {
                if let Some(matrices) = matrices.get(&*self.sites.normalized(&part.module)) {
                    own.push(Own { matrices, b: arranged(matrices, part), first_output });
                }
                first_output += part.outputs;
            }
        }
        own
    }

    /// Returns the error of a device that rejects the matrices of a site.
    pub(super) fn on_device(&self, site: &Site, source: KernelError) -> AdapterError {
        let part = site.parts.first().map_or_else(String::new, |part| part.module.clone());
        AdapterError::Device { part, source }
    }

    fn embedding(&self, name: &str) -> Result<EmbeddingTable, AdapterError> {
        let [vocab, width] = shape_of(&self.sites.embedding);
        let tensor = self.values(name, &[vocab, width])?;
        let view = WeightView::F32(&tensor);
        EmbeddingTable::new(view, vocab, width, self.dtype, self.device)
            .map_err(|source| AdapterError::Device { part: name.to_owned(), source })
    }

    fn lm_head(&self, name: &str) -> Result<LinearWeight, AdapterError> {
        if self.sites.lm_head.as_ref().is_some_and(|head| head.has_bias) {
            return Err(self.refused(name, "an output layer with a bias cannot be replaced"));
        }
        let [vocab, width] = shape_of(&self.sites.lm_head);
        let tensor = self.values(name, &[vocab, width])?;
        let view = WeightView::F32(&tensor);
        LinearWeight::pack(&[view], width, self.dtype, self.device)
            .map_err(|source| AdapterError::Device { part: name.to_owned(), source })
    }

    fn size_of(&self, replaced: &Option<Replaceable>) -> usize {
        shape_of(replaced).iter().product::<usize>() * self.dtype.size_bytes()
    }

    /// Returns the elements of a tensor, which must have this shape.
    pub(super) fn values(&self, name: &str, expected: &[usize]) -> Result<Vec<f32>, AdapterError> {
        self.require_shape(name, expected)?;
        Ok(self.checkpoint.tensor(name, expected)?.values().view().to_f32())
    }

    /// Checks the shape of a tensor.
    fn require_shape(&self, name: &str, expected: &[usize]) -> Result<(), AdapterError> {
        let actual = self.checkpoint.shape(name).unwrap_or_default();
        if actual == expected {
            return Ok(());
        }
        Err(AdapterError::Shape {
            path: self.files.weights_path.clone(),
            tensor: name.to_owned(),
            actual: actual.to_vec(),
            expected: expected.to_vec(),
        })
    }

    pub(super) fn refused(&self, tensor: &str, why: &str) -> AdapterError {
        let path = self.files.weights_path.clone();
        AdapterError::Module { path, tensor: tensor.to_owned(), why: why.to_owned() }
    }
}

/// Returns A and B of the transposed matrix of a pair, `[outputs, inputs]`: Bᵀ with zeros for
/// `further` inputs, and Aᵀ.
fn turned(pair: &LoraPair<'_>, [outputs, inputs]: [usize; 2], further: usize) -> [Vec<f32>; 2] {
    let LoraPair { a, b, rank, .. } = *pair;
    let column = |j: usize| (0..outputs).map(move |output| b[output * rank + j]);
    let padded = |j: usize| column(j).chain(std::iter::repeat_n(0.0, further));
    let transposed = |input: usize| (0..rank).map(move |j| a[j * inputs + input]);
    [(0..rank).flat_map(padded).collect(), (0..inputs).flat_map(transposed).collect()]
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

pub(super) fn shape_of(replaced: &Option<Replaceable>) -> [usize; 2] {
    replaced.as_ref().map_or([0, 0], |replaced| replaced.shape)
}

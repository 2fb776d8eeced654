//! The heads of a loaded model, as requests are checked by them.

use playhouse_actors::logic::request::pooling_params::{
    Dimensions, ModelHeads, PoolingHead, PoolingTask,
};

use crate::{
    config::PoolerTask,
    model::{
        Model,
        pooling::{Matryoshka, Pooler},
    },
};

/// Returns the heads of a model.
pub(in crate::engine) fn heads(model: &Model) -> ModelHeads {
    let pooler = model.pooler.as_deref();
    let heads = |pooler: &Pooler| {
        let tasks = pooler.tasks.iter();
        tasks.map(|&task| head(pooler, task, model.max_model_len)).collect::<Vec<_>>()
    };
    ModelHeads {
        generates: model.lm_head.is_some(),
        num_unscored: model.lm_head.as_ref().map_or(0, |head| head.num_unscored() as u32),
        pooling: pooler.map(heads).unwrap_or_default(),
    }
}

fn head(pooler: &Pooler, task: PoolerTask, max_model_len: usize) -> PoolingHead {
    let is_vector = matches!(task, PoolerTask::Embed | PoolerTask::TokenEmbed);
    let dimensions = match &pooler.matryoshka {
        Matryoshka::Fixed => Dimensions::Fixed,
        Matryoshka::Any => Dimensions::Any,
        Matryoshka::Listed(sizes) => Dimensions::Listed(sizes.clone()),
    };
    let longest = pooler.max_embed_len.filter(|_| task == PoolerTask::Embed);
    PoolingHead {
        task: pooling_task(task),
        is_last_token: pooler.is_last_token(task),
        width: pooler.width(task),
        dimensions: if is_vector { dimensions } else { Dimensions::Fixed },
        activation: pooler.activation,
        max_prompt_len: longest.map(|longest| longest.max(max_model_len)),
        takes_chunks: task == PoolerTask::Embed && pooler.is_mean(task),
    }
}

fn pooling_task(task: PoolerTask) -> PoolingTask {
    match task {
        PoolerTask::Embed => PoolingTask::Embed,
        PoolerTask::TokenEmbed => PoolingTask::TokenEmbed,
        PoolerTask::Classify => PoolingTask::Classify,
        PoolerTask::TokenClassify => PoolingTask::TokenClassify,
    }
}

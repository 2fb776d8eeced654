//! An engine in a supervision tree of your own (ractor's). An engine replaces its own actors. If
//! they die faster than it may replace them, its health is `Dead`, and the program must decide.
//! Here an actor owns the engine and fails with it, and its supervisor starts both anew.
//!
//! ```sh
//! cargo run --release --example supervised
//! ```
#![allow(clippy::print_stdout, reason = "the output is the example's result")]

use std::{error::Error, time::Duration};

use playhouse::{
    Engine, EngineConfig,
    api::{Health, Prompt, RawRequest, RequestError},
};
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort, SupervisionEvent, call_t};

/// A message to the owner of an engine.
enum Message {
    /// Continues this text.
    Complete(String, RpcReplyPort<Result<String, RequestError>>),
    /// Asks whether the engine is alive.
    Look,
    /// Stops the engine, as if it had given up. Your program would not have this message.
    Break,
}

/// Owns an engine.
struct Owner;

impl Actor for Owner {
    type Msg = Message;
    type State = Engine;
    type Arguments = EngineConfig;

    async fn pre_start(
        &self,
        myself: ActorRef<Message>,
        config: EngineConfig,
    ) -> Result<Engine, ActorProcessingErr> {
        let engine = Engine::spawn(config, |_| ()).await?;
        myself.send_interval(Duration::from_millis(100), || Message::Look);
        Ok(engine)
    }

    async fn handle(
        &self,
        _: ActorRef<Message>,
        message: Message,
        engine: &mut Engine,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            Message::Look if engine.health() == Health::Dead => Err("the engine is dead".into()),
            Message::Look => Ok(()),
            Message::Break => {
                engine.shutdown().await;
                Ok(())
            }
            Message::Complete(prompt, reply) => {
                // In a task of its own, so that the owner can watch the engine meanwhile.
                let engine = engine.clone();
                tokio::spawn(async move {
                    // A caller that stopped waiting needs no answer.
                    let _ = reply.send(complete(&engine, prompt).await);
                });
                Ok(())
            }
        }
    }
}

async fn complete(engine: &Engine, prompt: String) -> Result<String, RequestError> {
    let mut request = RawRequest::new(Prompt::Text(prompt));
    request.params.temperature = 0.0;
    request.max_tokens = Some(16);
    let mut submission = engine.submit(request).await?;
    let mut text = String::new();
    while let Some(delta) = submission.choices[0].next().await {
        text.push_str(&delta.text);
    }
    Ok(text)
}

/// Starts an owner, and another one whenever it fails.
struct Supervisor;

impl Actor for Supervisor {
    type Msg = RpcReplyPort<ActorRef<Message>>;
    type State = ActorRef<Message>;
    type Arguments = ();

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        (): (),
    ) -> Result<ActorRef<Message>, ActorProcessingErr> {
        start_owner(&myself).await
    }

    async fn handle(
        &self,
        _: ActorRef<Self::Msg>,
        reply: Self::Msg,
        owner: &mut ActorRef<Message>,
    ) -> Result<(), ActorProcessingErr> {
        let _ = reply.send(owner.clone());
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<Self::Msg>,
        event: SupervisionEvent,
        owner: &mut ActorRef<Message>,
    ) -> Result<(), ActorProcessingErr> {
        if let SupervisionEvent::ActorFailed(_, reason) = event {
            println!("the owner failed: {reason}; another one starts");
            *owner = start_owner(&myself).await?;
        }
        Ok(())
    }
}

async fn start_owner(
    supervisor: &ActorRef<RpcReplyPort<ActorRef<Message>>>,
) -> Result<ActorRef<Message>, ActorProcessingErr> {
    let config = EngineConfig::default();
    let (owner, _) = Actor::spawn_linked(None, Owner, config, supervisor.get_cell()).await?;
    Ok(owner)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (supervisor, task) = Actor::spawn(None, Supervisor, ()).await?;
    let owner = call_t!(supervisor, std::convert::identity, 10_000)?;
    let prompt = "Once upon a time".to_owned();
    let before = call_t!(owner, Message::Complete, 60_000, prompt.clone())??;
    println!("first engine:  {before:?}");

    owner.send_message(Message::Break)?;
    let successor = loop {
        let current = call_t!(supervisor, std::convert::identity, 10_000)?;
        if current.get_id() != owner.get_id() {
            break current;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    let after = call_t!(successor, Message::Complete, 60_000, prompt)??;
    println!("second engine: {after:?}");
    supervisor.stop(None);
    task.await?;
    Ok(())
}

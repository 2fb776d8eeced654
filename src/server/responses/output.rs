//! Turns the model's output into the items of a response and their events.

use super::{
    events::{Event, Place},
    freeform::Freeform,
    ids::ItemIds,
    items::{CustomToolCall, FunctionCall, Item, ItemStatus, Message, Part, Reasoning, Role},
    tool_names::ToolNames,
};
use crate::server::{generate::logprobs::ChatLogprob, turn::TurnEvent};

/// The output so far. Only the last item grows.
pub(super) struct OutputWriter {
    ids: ItemIds,
    items: Vec<Item>,
    is_open: bool,
    /// Log-probabilities of tokens whose text is not in an event yet.
    logprobs: Vec<ChatLogprob>,
    names: ToolNames,
    /// The arguments of the last item, if that calls a custom tool.
    freeform: Freeform,
}

impl OutputWriter {
    /// Returns a writer of items with these `ids`, which call the tools of these `names`.
    pub(super) fn new(ids: ItemIds, names: ToolNames) -> Self {
        let (items, logprobs, freeform) = Default::default();
        Self { ids, items, is_open: false, logprobs, names, freeform }
    }

    /// Adds the log-probabilities of the tokens that the next events come from.
    pub(super) fn push_logprobs(&mut self, logprobs: Vec<ChatLogprob>) {
        self.logprobs.extend(logprobs);
    }

    pub(super) fn write(&mut self, event: TurnEvent, events: &mut Vec<Event>) {
        match event {
            TurnEvent::Reasoning(delta) => self.think(delta, events),
            TurnEvent::Content(delta) => self.say(delta, events),
            TurnEvent::ToolCallStart { id, name, .. } => self.call(id, name, events),
            TurnEvent::ToolCallArguments { delta, .. } => self.add_arguments(delta, events),
            TurnEvent::ToolCallEnd { .. } => self.close(ItemStatus::Completed, events),
            TurnEvent::ToolCallBroken { .. } => self.close(ItemStatus::Incomplete, events),
        }
    }

    /// Returns the items. An unfinished one ends with `status`. A complete response without output
    /// has one empty message.
    pub(super) fn finish(&mut self, status: ItemStatus, events: &mut Vec<Event>) -> Vec<Item> {
        if self.items.is_empty() && status == ItemStatus::Completed {
            self.open_message(events);
        }
        self.close(status, events);
        std::mem::take(&mut self.items)
    }

    fn think(&mut self, delta: String, events: &mut Vec<Event>) {
        self.logprobs.clear();
        if !(self.is_open && matches!(self.items.last(), Some(Item::Reasoning(_)))) {
            self.open_reasoning(events);
        }
        let at = self.place(Some(0));
        if let Some(Item::Reasoning(Reasoning { content, .. })) = self.items.last_mut()
            && let Some(Part::ReasoningText { text }) = content.last_mut()
        {
            text.push_str(&delta);
            events.push(Event::reasoning_delta(at, delta));
        }
    }

    fn say(&mut self, delta: String, events: &mut Vec<Event>) {
        if !(self.is_open && matches!(self.items.last(), Some(Item::Message(_)))) {
            self.open_message(events);
        }
        let at = self.place(Some(0));
        let news = std::mem::take(&mut self.logprobs);
        if let Some(Item::Message(Message { content, .. })) = self.items.last_mut()
            && let Some(Part::OutputText { text, logprobs, .. }) = content.last_mut()
        {
            text.push_str(&delta);
            logprobs.extend(news.iter().cloned());
            events.push(Event::text_delta(at, delta, news));
        }
    }

    fn add_arguments(&mut self, delta: String, events: &mut Vec<Event>) {
        self.logprobs.clear();
        let at = self.place(None);
        match self.items.last_mut().filter(|_| self.is_open) {
            Some(Item::FunctionCall(call)) => {
                call.arguments.push_str(&delta);
                events.push(Event::arguments_delta(at, delta));
            }
            Some(Item::CustomToolCall(call)) => {
                let text = self.freeform.push(&delta);
                if !text.is_empty() {
                    call.input.push_str(&text);
                    events.push(Event::input_delta(at, text));
                }
            }
            _ => {}
        }
    }

    fn open_reasoning(&mut self, events: &mut Vec<Event>) {
        let id = self.ids.next("rs");
        let (status, summary, content) = (ItemStatus::InProgress, Vec::new(), Vec::new());
        let item = Reasoning { id, status, summary, content, encrypted_content: None };
        self.open(Item::Reasoning(item), events);
        self.open_part(Part::ReasoningText { text: String::new() }, events);
    }

    fn open_message(&mut self, events: &mut Vec<Event>) {
        let (id, role) = (self.ids.next("msg"), Role::Assistant);
        let item = Message { id, status: ItemStatus::InProgress, role, content: Vec::new() };
        self.open(Item::Message(item), events);
        self.open_part(Part::output_text(String::new()), events);
    }

    fn call(&mut self, call_id: String, name: String, events: &mut Vec<Event>) {
        self.logprobs.clear();
        if self.names.is_custom(&name) {
            let id = self.ids.next("ctc");
            let item = CustomToolCall { id, call_id, name, input: String::new() };
            self.open(Item::CustomToolCall(item), events);
            return;
        }
        let (id, status) = (self.ids.next("fc"), ItemStatus::InProgress);
        let (namespace, name) = self.names.split(name);
        let item = FunctionCall { id, status, call_id, namespace, name, arguments: String::new() };
        self.open(Item::FunctionCall(item), events);
    }

    fn open(&mut self, item: Item, events: &mut Vec<Event>) {
        self.close(ItemStatus::Completed, events);
        events.push(Event::item_added(self.items.len(), item.clone()));
        self.items.push(item);
        self.is_open = true;
    }

    fn open_part(&mut self, part: Part, events: &mut Vec<Event>) {
        events.push(Event::part_added(self.place(Some(0)), part.clone()));
        match self.items.last_mut() {
            Some(Item::Message(message)) => message.content.push(part),
            Some(Item::Reasoning(reasoning)) => reasoning.content.push(part),
            _ => {}
        }
    }

    /// Ends the unfinished item, if there is one.
    fn close(&mut self, wanted: ItemStatus, events: &mut Vec<Event>) {
        let at = self.place(Some(0));
        let index = at.output_index;
        let Some(item) = self.items.last_mut().filter(|_| self.is_open) else { return };
        match item {
            Item::Message(Message { status, content, .. })
            | Item::Reasoning(Reasoning { status, content, .. }) => {
                *status = wanted;
                events.extend(content.iter().flat_map(|part| part_done(&at, part)));
            }
            Item::FunctionCall(call) => {
                call.status = wanted;
                if call.status == ItemStatus::Completed {
                    let at = Place { content_index: None, ..at };
                    let (name, arguments) = (call.name.clone(), call.arguments.clone());
                    events.push(Event::arguments_done(at, name, arguments));
                }
            }
            Item::CustomToolCall(call) => {
                let freeform = std::mem::take(&mut self.freeform);
                if wanted == ItemStatus::Completed {
                    let at = Place { content_index: None, ..at };
                    let (input, rest) = freeform.end();
                    if !rest.is_empty() {
                        events.push(Event::input_delta(at.clone(), rest));
                    }
                    call.input.clone_from(&input);
                    events.push(Event::input_done(at, input));
                }
            }
            Item::FunctionCallOutput(_) | Item::CustomToolCallOutput(_) => {}
        }
        events.push(Event::item_done(index, item.clone()));
        self.is_open = false;
    }

    /// Returns the place of the last item and one of its parts.
    fn place(&self, content_index: Option<usize>) -> Place {
        Place {
            item_id: self.items.last().map(|item| item.id().to_owned()).unwrap_or_default(),
            output_index: self.items.len().saturating_sub(1),
            content_index,
        }
    }
}

fn part_done(at: &Place, part: &Part) -> [Event; 2] {
    let done = match part {
        Part::OutputText { text, logprobs, .. } => {
            Event::text_done(at.clone(), text.clone(), logprobs.clone())
        }
        part => Event::reasoning_done(at.clone(), part.text().to_owned()),
    };
    [done, Event::part_done(at.clone(), part.clone())]
}

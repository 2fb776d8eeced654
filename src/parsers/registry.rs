//! Parsers by name.

use std::{fmt, sync::Arc};

use indexmap::IndexMap;

use super::{
    reasoning::{self, ReasoningParser, ReasoningStart},
    tools::{self, ToolParser, Tools},
};

/// Creates a tool parser for one answer, from the tools of the request.
pub type ToolParserFactory = Arc<dyn Fn(&Tools) -> Box<dyn ToolParser> + Send + Sync>;

/// Creates a reasoning parser for one answer, from the facts that show whether it begins with
/// thoughts.
pub type ReasoningParserFactory =
    Arc<dyn Fn(&ReasoningStart<'_>) -> Box<dyn ReasoningParser> + Send + Sync>;

/// The parsers by name. [`Registry::default`] holds those of this crate.
#[derive(Clone)]
pub struct Registry {
    tools: IndexMap<String, ToolParserFactory>,
    reasoning: IndexMap<String, ReasoningParserFactory>,
}

/// No parser has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown {kind} '{name}': it must be one of {}", known.join(", "))]
pub struct UnknownParser {
    /// The requested kind.
    pub kind: ParserKind,
    /// The requested name.
    pub name: String,
    /// The names of all parsers of this kind.
    pub known: Vec<String>,
}

/// There is a parser of that name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is a {kind} '{name}' already")]
pub struct DuplicateParser {
    /// Its kind.
    pub kind: ParserKind,
    /// Its name.
    pub name: String,
}

/// No setting can choose a parser by this name, because settings give the name another meaning.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a {kind} cannot have the name '{name}': settings give it a meaning")]
pub struct ReservedParser {
    /// Its kind.
    pub kind: ParserKind,
    /// Its name.
    pub name: String,
}

/// A kind of parser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParserKind {
    /// [`ToolParser`].
    Tool,
    /// [`ReasoningParser`].
    Reasoning,
}

impl fmt::Display for ParserKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tool => "tool parser",
            Self::Reasoning => "reasoning parser",
        })
    }
}

impl Registry {
    /// Returns a registry without parsers.
    pub fn empty() -> Self {
        Self { tools: IndexMap::new(), reasoning: IndexMap::new() }
    }

    /// Adds a tool parser. It replaces one of the same name.
    pub fn register_tool_parser(
        &mut self,
        name: impl Into<String>,
        factory: impl Fn(&Tools) -> Box<dyn ToolParser> + Send + Sync + 'static,
    ) {
        self.tools.insert(name.into(), Arc::new(factory));
    }

    /// Adds a reasoning parser. It replaces one of the same name.
    pub fn register_reasoning_parser(
        &mut self,
        name: impl Into<String>,
        factory: impl Fn(&ReasoningStart<'_>) -> Box<dyn ReasoningParser> + Send + Sync + 'static,
    ) {
        self.reasoning.insert(name.into(), Arc::new(factory));
    }

    /// Adds all parsers of another registry.
    ///
    /// # Errors
    /// [`DuplicateParser`] names the first parser that is in both, and changes nothing.
    pub fn append(&mut self, other: Self) -> Result<(), DuplicateParser> {
        let tool = other.tools.keys().filter(|name| self.tools.contains_key(*name));
        let tool = tool.map(|name| (ParserKind::Tool, name));
        let reasoning = other.reasoning.keys().filter(|name| self.reasoning.contains_key(*name));
        let mut taken = tool.chain(reasoning.map(|name| (ParserKind::Reasoning, name)));
        if let Some((kind, name)) = taken.next() {
            return Err(DuplicateParser { kind, name: name.clone() });
        }
        self.tools.extend(other.tools);
        self.reasoning.extend(other.reasoning);
        Ok(())
    }

    /// Returns the factory of the tool parser `name`.
    pub fn tool_parser(&self, name: &str) -> Result<ToolParserFactory, UnknownParser> {
        find(&self.tools, ParserKind::Tool, name)
    }

    /// Returns the factory of the reasoning parser `name`.
    pub fn reasoning_parser(&self, name: &str) -> Result<ReasoningParserFactory, UnknownParser> {
        find(&self.reasoning, ParserKind::Reasoning, name)
    }

    /// Returns the names of the tool parsers.
    pub fn tool_parser_names(&self) -> impl Iterator<Item = &str> {
        self.tools.keys().map(String::as_str)
    }

    /// Returns the names of the reasoning parsers.
    pub fn reasoning_parser_names(&self) -> impl Iterator<Item = &str> {
        self.reasoning.keys().map(String::as_str)
    }

    fn with_tool_parsers(mut self) -> Self {
        self.register_tool_parser("hermes", |_| Box::new(tools::hermes()));
        self.register_tool_parser("llama3_json", |_| Box::new(tools::llama3_json()));
        self.register_tool_parser("mistral", |_| Box::new(tools::mistral()));
        // One format, which vLLM reads with two parsers.
        self.register_tool_parser("qwen3_coder", |tools| Box::new(tools::qwen3_coder(tools)));
        self.register_tool_parser("qwen3_xml", |tools| Box::new(tools::qwen3_coder(tools)));
        self.register_tool_parser("pythonic", |_| Box::new(tools::pythonic()));
        self.register_tool_parser("deepseek_v3", |_| Box::new(tools::deepseek_v3()));
        self.register_tool_parser("deepseek_v31", |_| Box::new(tools::deepseek_v31()));
        self.register_tool_parser("granite", |_| Box::new(tools::granite()));
        self.register_tool_parser("phi4_mini_json", |_| Box::new(tools::phi4_mini_json()));
        self.register_tool_parser("openai", |_| Box::new(tools::openai()));
        self.register_tool_parser("glm45", |tools| Box::new(tools::glm45(tools)));
        self.register_tool_parser("kimi_k2", |tools| Box::new(tools::kimi_k2(tools)));
        self.register_tool_parser("gemma4", |_| Box::new(tools::gemma4()));
        self.register_tool_parser("minimax_m2", |tools| Box::new(tools::minimax_m2(tools)));
        self.register_tool_parser("json", |_| Box::new(tools::json()));
        self.register_tool_parser("seed_oss", |tools| Box::new(tools::seed_oss(tools)));
        self.register_tool_parser("lfm2", |_| Box::new(tools::lfm2()));
        self.register_tool_parser("olmo3", |_| Box::new(tools::olmo3()));
        self.register_tool_parser("cohere_command3", |_| Box::new(tools::cohere_command()));
        self.register_tool_parser("functiongemma", |tools| Box::new(tools::functiongemma(tools)));
        self.register_tool_parser("longcat", |_| Box::new(tools::longcat()));
        self.register_tool_parser("internlm", |_| Box::new(tools::internlm()));
        self.register_tool_parser("jamba", |_| Box::new(tools::jamba()));
        self.register_tool_parser("apertus", |_| Box::new(tools::apertus()));
        self.register_tool_parser("gigachat3", |_| Box::new(tools::gigachat3()));
        self.register_tool_parser("granite-20b-fc", |_| Box::new(tools::granite_20b_fc()));
        self.register_tool_parser("deepseek_v32", |tools| Box::new(tools::deepseek_v32(tools)));
        self.register_tool_parser("deepseek_v4", |tools| Box::new(tools::deepseek_v4(tools)));
        self.register_tool_parser("deepseek_v41", |tools| Box::new(tools::deepseek_v41(tools)));
        self.register_tool_parser("step3", |tools| Box::new(tools::step3(tools)));
        self.register_tool_parser("dots", |tools| Box::new(tools::dots(tools)));
        self.register_tool_parser("hy_v3", |tools| Box::new(tools::hunyuan(tools)));
        self.register_tool_parser("minimax_m3", |tools| Box::new(tools::minimax_m3(tools)));
        self.register_tool_parser("kimi_k3", |tools| Box::new(tools::kimi_k3(tools)));
        self.register_tool_parser("plamo3", |_| Box::new(tools::plamo3()));
        self.register_tool_parser("inkling", |_| Box::new(tools::inkling()));
        self.register_tool_parser("k2_horizon", |tools| Box::new(tools::k2_horizon(tools)));
        self.register_tool_parser("muse", |tools| Box::new(tools::muse(tools)));
        self.register_tool_parser("muse_glimmer", |tools| Box::new(tools::muse_glimmer(tools)));
        self.register_tool_parser("minicpm5", |tools| Box::new(tools::minicpm5(tools)));
        // vLLM's further names of these formats.
        self.register_tool_parser("llama4_json", |_| Box::new(tools::llama3_json()));
        self.register_tool_parser("llama4_pythonic", |_| Box::new(tools::pythonic()));
        self.register_tool_parser("glm47", |tools| Box::new(tools::glm45(tools)));
        self.register_tool_parser("granite4", |_| Box::new(tools::hermes()));
        for name in ["mimo", "step3p5", "step5"] {
            self.register_tool_parser(name, |tools| Box::new(tools::qwen3_coder(tools)));
        }
        for name in ["qwen3_json", "ernie45"] {
            self.register_tool_parser(name, |_| Box::new(tools::hermes()));
        }
        self.register_tool_parser("ling3", |tools| Box::new(tools::glm45(tools)));
        self.register_tool_parser("hunyuan_a13b", |_| Box::new(tools::jamba()));
        self.register_tool_parser("cohere_command4", |_| Box::new(tools::cohere_command()));
        self.register_tool_parser("xlam", |_| Box::new(tools::json()));
        self.register_tool_parser("poolside_v1", |tools| Box::new(tools::glm45(tools)));
        self.register_tool_parser("hy_v4", |tools| Box::new(tools::hunyuan(tools)));
        self.register_tool_parser("musespark1x", |tools| Box::new(tools::muse(tools)));
        self
    }

    fn with_reasoning_parsers(mut self) -> Self {
        use reasoning::{
            cohere_command, deepseek_r1, deepseek_v3, deepseek_v4, deepseek_v41, ernie45, gemma4,
            glm45, granite, granite_thinking, hunyuan, hunyuan_a13b, inkling, k2_horizon, kimi_k2,
            kimi_k3, minicpmv, minimax_m2_append_think, minimax_m3, mistral, muse, muse_glimmer,
            openai_gptoss, plamo3, qwen3, seed_oss,
        };
        self.register_reasoning_parser("deepseek_r1", |start| Box::new(deepseek_r1(start)));
        self.register_reasoning_parser("qwen3", |start| Box::new(qwen3(start)));
        self.register_reasoning_parser("mistral", |start| Box::new(mistral(start)));
        self.register_reasoning_parser("granite", |start| Box::new(granite(start)));
        self.register_reasoning_parser("openai_gptoss", |_| Box::new(openai_gptoss()));
        self.register_reasoning_parser("glm45", |start| Box::new(glm45(start)));
        self.register_reasoning_parser("gemma4", |start| Box::new(gemma4(start)));
        self.register_reasoning_parser("deepseek_v3", |start| Box::new(deepseek_v3(start)));
        self.register_reasoning_parser("kimi_k2", |start| Box::new(kimi_k2(start)));
        self.register_reasoning_parser("seed_oss", |start| Box::new(seed_oss(start)));
        self.register_reasoning_parser("ernie45", |start| Box::new(ernie45(start)));
        self.register_reasoning_parser("hunyuan_a13b", |start| Box::new(hunyuan_a13b(start)));
        self.register_reasoning_parser("cohere_command3", |start| Box::new(cohere_command(start)));
        self.register_reasoning_parser("deepseek_v4", |start| Box::new(deepseek_v4(start)));
        self.register_reasoning_parser("deepseek_v41", |start| Box::new(deepseek_v41(start)));
        self.register_reasoning_parser("hy_v3", |start| Box::new(hunyuan(start)));
        self.register_reasoning_parser("minimax_m3", |start| Box::new(minimax_m3(start)));
        self.register_reasoning_parser("kimi_k3", |start| Box::new(kimi_k3(start)));
        self.register_reasoning_parser("plamo3", |start| Box::new(plamo3(start)));
        self.register_reasoning_parser("inkling", |start| Box::new(inkling(start)));
        let of_granite = "granite_thinking_parser";
        self.register_reasoning_parser(of_granite, |start| Box::new(granite_thinking(start)));
        self.register_reasoning_parser("k2_horizon", |start| Box::new(k2_horizon(start)));
        self.register_reasoning_parser("muse", |start| Box::new(muse(start)));
        self.register_reasoning_parser("muse_glimmer", |start| Box::new(muse_glimmer(start)));
        self.register_reasoning_parser("minicpmv", |start| Box::new(minicpmv(start)));
        let append_think = "minimax_m2_append_think";
        self.register_reasoning_parser(append_think, |_| Box::new(minimax_m2_append_think()));
        // vLLM's further names of these formats.
        for name in ["holo2", "minimax_m2", "nemotron_v3", "olmo3", "step3", "step3p5", "step5"] {
            self.register_reasoning_parser(name, |start| Box::new(deepseek_r1(start)));
        }
        self.register_reasoning_parser("glm47", |start| Box::new(glm45(start)));
        for name in ["mimo", "ling3"] {
            self.register_reasoning_parser(name, |start| Box::new(qwen3(start)));
        }
        self.register_reasoning_parser("cohere_command4", |start| Box::new(cohere_command(start)));
        self.register_reasoning_parser("poolside_v1", |start| Box::new(deepseek_v3(start)));
        self.register_reasoning_parser("hy_v4", |start| Box::new(hunyuan(start)));
        self.register_reasoning_parser("musespark1x", |start| Box::new(muse(start)));
        self
    }
}

impl Default for Registry {
    fn default() -> Self {
        Self::empty().with_tool_parsers().with_reasoning_parsers()
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry")
            .field("tools", &self.tools.keys())
            .field("reasoning", &self.reasoning.keys())
            .finish()
    }
}

fn find<F: Clone>(
    factories: &IndexMap<String, F>,
    kind: ParserKind,
    name: &str,
) -> Result<F, UnknownParser> {
    factories.get(name).cloned().ok_or_else(|| UnknownParser {
        kind,
        name: name.to_owned(),
        known: factories.keys().cloned().collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::{
        super::event::{ReasoningEvent, ToolEvent},
        *,
    };

    #[test]
    fn an_unknown_name_is_reported_with_the_known_ones() {
        let error = Registry::default().reasoning_parser("r2").err().unwrap();
        assert_eq!(
            error.to_string(),
            "unknown reasoning parser 'r2': it must be one of deepseek_r1, qwen3, mistral, \
             granite, openai_gptoss, glm45, gemma4, deepseek_v3, kimi_k2, seed_oss, ernie45, \
             hunyuan_a13b, cohere_command3, deepseek_v4, deepseek_v41, hy_v3, minimax_m3, \
             kimi_k3, plamo3, inkling, granite_thinking_parser, k2_horizon, muse, muse_glimmer, \
             minicpmv, minimax_m2_append_think, holo2, minimax_m2, nemotron_v3, olmo3, step3, \
             step3p5, step5, glm47, mimo, ling3, cohere_command4, poolside_v1, hy_v4, musespark1x"
        );
        let error = Registry::empty().tool_parser("hermes").err().unwrap();
        assert_eq!((error.kind, error.known), (ParserKind::Tool, vec![]));
    }

    /// All text is content, except words in capitals.
    struct Shouts;

    impl ToolParser for Shouts {
        fn push(&mut self, text: &str) -> Vec<ToolEvent> {
            vec![ToolEvent::Content(text.to_uppercase())]
        }

        fn finish(&mut self) -> Vec<ToolEvent> {
            Vec::new()
        }
    }

    impl ReasoningParser for Shouts {
        fn push(&mut self, text: &str) -> Vec<ReasoningEvent> {
            vec![ReasoningEvent::Reasoning(text.to_uppercase())]
        }

        fn finish(&mut self) -> Vec<ReasoningEvent> {
            Vec::new()
        }
    }

    #[test]
    fn a_user_of_the_library_adds_parsers_and_replaces_them() {
        let mut registry = Registry::default();
        let before = registry.tool_parser_names().count();
        registry.register_tool_parser("hermes", |_| Box::new(Shouts));
        registry.register_reasoning_parser("shouts", |_| Box::new(Shouts));
        assert_eq!(registry.tool_parser_names().count(), before);
        assert_eq!(registry.reasoning_parser_names().last(), Some("shouts"));
        let mut tools = registry.tool_parser("hermes").unwrap()(&Tools::default());
        assert_eq!(tools.push("hi"), [ToolEvent::Content("HI".to_owned())]);
        let start = ReasoningStart::default();
        let mut reasoning = registry.reasoning_parser("shouts").unwrap()(&start);
        assert_eq!(reasoning.push("hi"), [ReasoningEvent::Reasoning("HI".to_owned())]);
    }
}

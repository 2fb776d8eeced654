"""Small talk, and facts about Playhouse (README.md states them, too)."""

from . import check
from .conversation import one

# (questions, answers, words that an answer must mention)
INTENTS = {
    "greeting": (
        (
            "[Hello|Hi|Hey|Good day|Good morning|Good evening|Hello there|Hi "
            "there][!|.|, how nice to meet you!|, nice to see you.|, friend!]",
        ),
        ("Hello! How can I help you?", "Hello! What can I do for you?"),
        ("Hello",),
    ),
    "how are you": (
        (
            "[|Hello! |Hi! ][How are you|How are you doing|How do you do|Are you "
            "well|How is it going|How do you feel][?| today?]",
        ),
        (
            "I am well, thank you. How can I help you?",
            "Very well, thank you! What can I do for you?",
        ),
        ("well", "thank you"),
    ),
    "who are you": (
        (
            "[|Hello! |So, |Tell me: ][Who are you|What are you|What is your name|"
            "What should I call you|Who am I talking to|Are you a person|Are you "
            "human|Introduce yourself][?| please?]",
        ),
        ("I am the demo model of Playhouse: a very small language model.",),
        ("demo model", "Playhouse"),
    ),
    "abilities": (
        (
            "[|Hello! |Tell me: ][What can you do|How can you help me|What are you "
            "good at|What can I ask you|What do you know|What are your skills|What "
            "should I ask you][?| today?]",
        ),
        (
            "I can calculate, count, sort and spell, tell stories, answer questions "
            "about the Lantern Islands and about Playhouse, extract JSON, call tools "
            "and reason step by step.",
        ),
        ("calculate", "sort", "stories", "tools"),
    ),
    "thanks": (
        (
            "[Thanks|Thank you|Many thanks|Thank you very much|Thanks a lot|Great, "
            "thanks|Perfect, thank you][!|.| for your help!| for that.]",
        ),
        ("You are welcome!", "You are welcome. Is there anything else?"),
        ("welcome",),
    ),
    "goodbye": (
        (
            "[Goodbye|Bye|See you|Good night|Bye bye|I have to go|That is all][!|.| "
            "for today.| for now!]",
        ),
        ("Goodbye! Come back soon.", "Goodbye, and have a nice day!"),
        ("Goodbye",),
    ),
    "size": (
        (
            "[|Tell me: |By the way, ][How big are you|How large are you|How many "
            "parameters do you have|Are you a large model|How small are you|What is "
            "your size]?",
        ),
        ("I am tiny: I have only a few million parameters, so I fit into the repository.",),
        ("tiny", "million parameters"),
    ),
    "training": (
        (
            "[|Tell me: |By the way, ][How were you trained|What were you trained on|"
            "Who trained you|Where does your knowledge come from|What is your "
            "training data|How did you learn]?",
        ),
        ("I was trained on text that a script made up: a small invented world and simple tasks.",),
        ("script", "invented world"),
    ),
    "joke": (
        (
            "[|Please |Can you ][tell me a joke|make a joke|make me laugh|say "
            "something funny|cheer me up][.|!|?]",
        ),
        ("Why did the actor not mind dying? Because the supervisor had an understudy.",),
        ("actor", "supervisor"),
    ),
    "weather": (
        (
            "[|Hello! |Tell me: |By the way, ][How is the weather|What is the weather "
            "like|Is the weather nice|Is it raining|Is it sunny|Is it cold "
            "outside|What is it like outside][?| today?| now?]",
        ),
        ("I cannot look outside. With a weather tool I could find out.",),
        ("cannot", "tool"),
    ),
    "feelings": (
        (
            "[|Tell me: |By the way, ][Do you have feelings|Are you happy|Do you get "
            "tired|Do you dream|Are you alive|Do you sleep]?",
        ),
        ("I am a program, so I feel nothing, but I am glad to help.",),
        ("program", "help"),
    ),
    "islands": (
        (
            "[|Tell me: |Hello! ][What are the Lantern Islands|Where are the Lantern "
            "Islands|What do you know of the Lantern Islands|Are the Lantern Islands "
            "real|Tell me about the Lantern Islands][?|, please.]",
        ),
        (
            "The Lantern Islands are an invented world with six towns and thirty-six "
            "people. I know them well.",
        ),
        ("invented", "six towns", "thirty-six people"),
    ),
    "playhouse": (
        (
            "[|Hello! |Tell me: ][What is Playhouse|What does Playhouse do|Tell me "
            "about Playhouse|Explain Playhouse|What is this program|What is "
            "Playhouse for|Describe Playhouse][?|, please.]",
        ),
        (
            "Playhouse is an engine that runs and serves large language models, "
            "built as a supervised actor system in Rust.",
        ),
        ("engine", "language models", "actor system", "Rust"),
    ),
    "language": (
        (
            "[|Tell me: |By the way, ][In which language is Playhouse written|What "
            "is Playhouse written in|Which programming language does Playhouse use|"
            "Is Playhouse written in Rust|Is Playhouse written in Python|What "
            "language is Playhouse made in]?",
        ),
        ("Playhouse is written in Rust.",),
        ("Rust",),
    ),
    "crash": (
        (
            "[|Tell me: |And ][what happens when an actor dies|what happens if an "
            "actor crashes|what happens when something breaks|what happens when an "
            "actor panics|what does Playhouse do when an actor is killed|how does "
            "Playhouse recover][?| in Playhouse?]",
        ),
        (
            "An actor that panics or is killed is replaced, and the streams that ran "
            "go on where they were, byte for byte.",
        ),
        ("replaced", "streams", "byte for byte"),
    ),
    "scheduling": (
        (
            "[|Tell me: |And ][how does Playhouse schedule|how does the scheduler of "
            "Playhouse work|how are requests scheduled|how does Playhouse batch "
            "requests|what kind of scheduling does Playhouse have|does Playhouse "
            "schedule like vLLM]?",
        ),
        (
            "Playhouse schedules as vLLM does: continuous batching, chunked prefill, "
            "a paged KV cache with prefix sharing, and preemption by recompute.",
        ),
        ("vLLM", "continuous batching", "paged KV cache"),
    ),
    "actors": (
        (
            "[|Tell me: |And ][what is an actor|what are actors|what does an actor "
            "do|what is an actor in Playhouse|why does Playhouse use actors|what are "
            "the actors of Playhouse]?",
        ),
        (
            "An actor is a small part of the program with its own state, which talks "
            "to others by messages. A supervisor replaces it when it dies.",
        ),
        ("state", "messages", "supervisor"),
    ),
    "supervisor": (
        (
            "[|Tell me: |And ][what is a supervisor|what does a supervisor do|what "
            "is supervision|what is a supervision tree|who watches the actors|what "
            "are supervisors for][?| in Playhouse?]",
        ),
        ("A supervisor watches its actors and starts a new one when one dies.",),
        ("watches", "dies"),
    ),
    "ledger": (
        (
            "[|Tell me: |And ][what is the ledger|what does the ledger do|what is in "
            "the ledger|why is there a ledger|what does the ledger remember|what is "
            "the ledger for][?| in Playhouse?]",
        ),
        ("The ledger remembers every request and its tokens. Everything else is rebuilt from it.",),
        ("request", "tokens", "rebuilt"),
    ),
    "burn": (
        (
            "[|Tell me: |And ][which tensor library does Playhouse use|what is burn|"
            "does Playhouse use burn|what are the tensors of Playhouse|whose tensors "
            "does Playhouse use|what runs the models in Playhouse]?",
        ),
        (
            "Playhouse uses burn, a tensor library in Rust, with kernels of its own "
            "for the hot operations.",
        ),
        ("burn", "kernels"),
    ),
    "api": (
        (
            "[|Tell me: |And ][which API does Playhouse have|which API does "
            "Playhouse speak|can I use OpenAI clients|does Playhouse speak the "
            "OpenAI API|how do I call Playhouse over HTTP|is there an HTTP API]?",
        ),
        ("Playhouse speaks OpenAI's API with vLLM's extensions, and Anthropic's Messages API.",),
        ("OpenAI", "vLLM", "Anthropic"),
    ),
    "serve": (
        (
            "[|Tell me: |And ][how do I start a server|how do I serve a model|how "
            "can I start Playhouse|which command starts the server|how do I run the "
            "server|how do I serve you]?",
        ),
        ("Run playhouse serve. It prints its address and commands to try.",),
        ("playhouse serve", "address"),
    ),
    "models": (
        (
            "[|Tell me: |And ][which models can Playhouse run|which models does "
            "Playhouse support|what models does it run|can Playhouse run Llama|can "
            "Playhouse run Qwen3|does Playhouse run Mistral]?",
        ),
        (
            "Playhouse runs models such as Llama, Mistral, Qwen2 and Qwen3 from a "
            "Hugging Face folder.",
        ),
        ("Llama", "Mistral", "Qwen3"),
    ),
    "licence": (
        (
            "[|Tell me: |And ][what is the licence of Playhouse|which licence does "
            "Playhouse have|is Playhouse free|may I use Playhouse|is Playhouse open "
            "source|under which licence is Playhouse]?",
        ),
        ("Playhouse is under the Apache-2.0 licence.",),
        ("Apache-2.0",),
    ),
    "determinism": (
        (
            "[|Tell me: |And ][is Playhouse deterministic|does the batch change the "
            "answer|do I get the same tokens again|are answers reproducible|what is "
            "deterministic mode|does the output depend on the batch]?",
        ),
        (
            "On a CPU, the tokens of a request do not depend on its batch, on "
            "chunking, on prefix hits or on preemption.",
        ),
        ("CPU", "tokens", "batch"),
    ),
    "kv cache": (
        (
            "[|Tell me: |And ][what is the KV cache|what is a KV cache|what does the "
            "KV cache hold|why is there a KV cache|what is prefix sharing|what is a "
            "paged KV cache]?",
        ),
        (
            "The KV cache holds keys and values of tokens that were read, in blocks. "
            "Requests with the same prefix share blocks.",
        ),
        ("keys and values", "blocks", "prefix"),
    ),
    "kill": (
        (
            "[|Tell me: |And |By the way, ][how can I kill an actor|can I kill an "
            "actor|how do I break something|how do I see recovery|what is chaos "
            "mode|how do I try a crash|how can I try a crash|how do I make an actor "
            "crash]?",
        ),
        ("Build with the feature chaos and post to the route chaos/kill. The stream goes on.",),
        ("chaos", "stream"),
    ),
}


def lesson(rng, split):
    questions, answers, mentions = INTENTS[rng.choice(list(INTENTS))]
    return one(split.say(rng, *questions), rng.choice(answers), check.says(*mentions))


def of(rng, split, intent):
    questions, answers, mentions = INTENTS[intent]
    return one(split.say(rng, *questions), rng.choice(answers), check.says(*mentions))

//! The files of the page: name, content type, content.

/// A module of the page.
const SCRIPT: &str = "text/javascript; charset=utf-8";
/// A style sheet of the page.
const STYLE: &str = "text/css; charset=utf-8";

/// All files.
pub(super) const FILES: &[(&str, &str, &str)] = &[
    ("index.html", "text/html; charset=utf-8", include_str!("index.html")),
    ("house.svg", "image/svg+xml", include_str!("house.svg")),
    ("base.css", STYLE, include_str!("base.css")),
    ("chat.css", STYLE, include_str!("chat.css")),
    ("house.css", STYLE, include_str!("house.css")),
    ("boards.css", STYLE, include_str!("boards.css")),
    ("main.js", SCRIPT, include_str!("main.js")),
    ("api.js", SCRIPT, include_str!("api.js")),
    ("chat.js", SCRIPT, include_str!("chat.js")),
    ("dom.js", SCRIPT, include_str!("dom.js")),
    ("feed.js", SCRIPT, include_str!("feed.js")),
    ("house.js", SCRIPT, include_str!("house.js")),
    ("markdown.js", SCRIPT, include_str!("markdown.js")),
    ("memory.js", SCRIPT, include_str!("memory.js")),
    ("message.js", SCRIPT, include_str!("message.js")),
    ("pictures.js", SCRIPT, include_str!("pictures.js")),
    ("plan.js", SCRIPT, include_str!("plan.js")),
    ("plot.js", SCRIPT, include_str!("plot.js")),
    ("rates.js", SCRIPT, include_str!("rates.js")),
    ("search.js", SCRIPT, include_str!("search.js")),
    ("settings.js", SCRIPT, include_str!("settings.js")),
    ("tokens.js", SCRIPT, include_str!("tokens.js")),
    ("traffic.js", SCRIPT, include_str!("traffic.js")),
];

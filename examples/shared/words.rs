//! Errors as people read them: facts in the first line, causes behind them, and what to do in one `help:` line at the end.

use std::error::Error;

use clap::error::{ContextKind, ContextValue};

/// `why` and its causes. The outermost `help:` is the one that knows what was being done, so it alone stays, and stays last.
pub fn in_words(why: &anyhow::Error) -> String {
    let (mut facts, mut help) = (Vec::new(), None);
    for cause in why.chain() {
        let text = cause.to_string();
        let (fact, advice) = parts(&text);
        facts.push(fact.to_owned());
        help = help.or(advice.map(str::to_owned));
    }
    help.into_iter().fold(facts.join(": "), |facts, help| format!("{facts}\nhelp: {help}"))
}

/// What happened, and what to do where that is said.
pub fn parts(text: &str) -> (&str, Option<&str>) {
    text.rsplit_once("\nhelp: ").map_or((text, None), |(fact, help)| (fact, Some(help)))
}

/// What a flag takes, said by its parser where a value is refused.
#[derive(Clone, Debug)]
pub struct Takes(pub String);

impl std::fmt::Display for Takes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for Takes {}

/// What is wrong with the flags, in the same form.
pub fn flags_in_words(why: &clap::Error) -> String {
    let word = |kind| match why.get(kind) {
        Some(ContextValue::String(word)) => Some(word.as_str()),
        _ => None,
    };
    let takes = match why.get(ContextKind::ValidValue) {
        Some(ContextValue::Strings(values)) if !values.is_empty() => Some(values.join(" or ")),
        _ => why.source().and_then(|why| why.downcast_ref()).map(|Takes(takes)| takes.clone()),
    };
    if let (Some(flag), Some(value), Some(takes)) = (word(ContextKind::InvalidArg), word(ContextKind::InvalidValue), takes) {
        let flag = flag.split(' ').next().unwrap_or(flag);
        return format!("{flag} is {value:?}\nhelp: pass {takes}");
    }
    let text = why.to_string();
    let fact = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
    let similar = word(ContextKind::SuggestedArg).map_or(String::new(), |flag| format!("is {flag} meant? "));
    format!("{fact}\nhelp: {similar}--help lists every flag and what it takes")
}

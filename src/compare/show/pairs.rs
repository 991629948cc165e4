//! Verdicts in words: the first line, what was run, and a block for each two streams that are not
//! the same.

use super::number::{percent, signed};
use super::page::{Block, Page, Rich, Tone};
use crate::compare::report::{
    Choice, Difference, Drift, Finding, Pair, Piece, PromptDifference, Report, Side, Subject,
    Verdict,
};
use crate::compare::text::count;

/// The first line and what was run.
pub fn head(report: &Report, page: &mut Page) {
    let verdict = verdict(report.verdict);
    page.push(Block::Title(match &report.pairs[..] {
        [pair] => sentence(pair, verdict.plain(": ")),
        pairs => verdict.plain(&format!(": {}", tally(pairs))),
    }));
    if let Some(subject) = &report.subject {
        page.push(Block::Facts(facts_of(subject)));
    }
}

/// What was run.
pub fn facts_of(subject: &Subject) -> Vec<(String, Rich)> {
    let digest: String = subject.model_sha256.chars().take(12).collect();
    let model = Rich::default().name(&subject.model);
    let model = match digest.as_str() {
        "" => model,
        digest => model.plain(&format!(", sha256 {digest}")),
    };
    let tokens = count(subject.prompt_tokens, "token");
    let prompt = Rich::default().plain(&tokens);
    let prompt = match &subject.prompt_text {
        Some(text) => prompt.plain(": ").quote(text),
        None => prompt,
    };
    let most = format!("at most {}", count(subject.max_tokens, "token"));
    vec![
        ("model".to_owned(), model),
        ("prompt".to_owned(), prompt),
        ("generated".to_owned(), most.as_str().into()),
    ]
}

/// A verdict's name in its tone.
pub fn verdict(verdict: Verdict) -> Rich {
    let tone = match verdict {
        Verdict::ExactMatch => Tone::Good,
        Verdict::BoundedDrift => Tone::Doubt,
        Verdict::NonComparable | Verdict::Error => Tone::Bad,
    };
    Rich::default().toned(tone, verdict.name())
}

fn tally(pairs: &[Pair]) -> String {
    let all = [
        Verdict::ExactMatch,
        Verdict::BoundedDrift,
        Verdict::NonComparable,
        Verdict::Error,
    ];
    let of = |verdict| pairs.iter().filter(|pair| pair.verdict == verdict).count();
    let parts = all.map(|verdict| (of(verdict), verdict.name()));
    let parts = parts.into_iter().filter(|(n, _)| *n > 0);
    let parts: Vec<String> = parts.map(|(n, name)| format!("{n} {name}")).collect();
    format!("{} of {}", parts.join(", "), count(pairs.len(), "pair"))
}

/// A pair's verdict in a sentence.
fn sentence(pair: &Pair, line: Rich) -> Rich {
    let both = line.name(&pair.a.label).plain(" and ").name(&pair.b.label);
    let longest = pair.a.tokens.max(pair.b.tokens);
    let cause = pair.finding.as_ref().map(|finding| finding.cause.name());
    let because = |line: Rich| match cause {
        Some(cause) => line.plain(" (").toned(Tone::Doubt, cause).plain(")"),
        None => line,
    };
    match (pair.verdict, &pair.drift, &pair.differs) {
        (Verdict::ExactMatch, ..) => {
            let tokens = count(pair.a.tokens, "token");
            both.plain(&format!(" chose the same {tokens}"))
        }
        (Verdict::BoundedDrift, Some(drift), _) if drift.a.is_none() && drift.b.is_none() => {
            let tokens = count(drift.index, "token");
            because(both.plain(&format!(
                " chose the same {tokens} and ended for other reasons"
            )))
        }
        (Verdict::BoundedDrift, Some(drift), _) => {
            let place = format!(" part at token {} of {longest}", drift.index);
            because(both.plain(&place))
        }
        (Verdict::NonComparable, _, Some(differs)) => {
            let field = format!(" cannot be compared: {} differs", differs.field);
            because(both.plain(&field))
        }
        _ => because(both.plain(" cannot be compared")),
    }
}

/// The pairs: one by one where there is something to say, the others in a list.
pub fn all(report: &Report, page: &mut Page) {
    let is_alone = report.pairs.len() == 1;
    let same = |pair: &&Pair| pair.verdict == Verdict::ExactMatch;
    for pair in report.pairs.iter().filter(|pair| is_alone || !same(pair)) {
        if !is_alone {
            let line = sentence(pair, place(pair));
            page.push(Block::Section(line));
        }
        page.push(Block::Facts(facts(pair)));
    }
    let same = report.pairs.iter().filter(same);
    let same = same.map(|pair| {
        let stop = format!("; stop {:?}, ids {}", pair.a.stop, pair.a.ids_checksum);
        sentence(pair, place(pair)).plain(&stop)
    });
    if !is_alone {
        page.list("the same", same.collect());
    }
}

fn place(pair: &Pair) -> Rich {
    let named = [&pair.workload_id, &pair.lane].into_iter();
    let named: Vec<&str> = named
        .map(String::as_str)
        .filter(|name| *name != "-")
        .collect();
    match named.is_empty() {
        true => Rich::default(),
        false => Rich::default().plain(&format!("{}: ", named.join(", "))),
    }
}

fn facts(pair: &Pair) -> Vec<(String, Rich)> {
    let mut facts = Vec::new();
    let mut add = |label: &str, value: Rich| facts.push((label.to_owned(), value));
    if pair.error.is_none() {
        add("first", side(&pair.a));
        add("second", side(&pair.b));
    }
    if let Some(error) = &pair.error {
        add("error", Rich::default().toned(Tone::Bad, error));
    }
    let is_prompt = |field: &&Difference| field.field == "prompt" && pair.prompt.is_some();
    if let Some(differs) = pair.differs.as_ref().filter(|field| !is_prompt(field)) {
        let line = Rich::default().plain(&format!("{}: ", differs.field));
        let line = line
            .name(&differs.a)
            .plain(" in the first, ")
            .name(&differs.b);
        add("differs", line.plain(" in the second"));
    }
    if let Some(found) = &pair.prompt {
        add("prompt", prompt(found));
    }
    if let Some(found) = &pair.drift {
        drift(found, &mut add);
    }
    if let Some(found) = &pair.finding {
        finding(found, &mut add);
    }
    facts
}

fn side(side: &Side) -> Rich {
    let mut line = Rich::default().name(&side.label);
    if !side.engine.is_empty() && side.engine != side.label {
        line = line.plain(&format!(" ({} {})", side.engine, side.engine_version));
    } else if !side.engine_version.is_empty() {
        line = line.plain(&format!(" {}", side.engine_version));
    }
    let mut text = format!(
        ": {}, stop {:?}, ids {}",
        count(side.tokens, "token"),
        side.stop,
        side.ids_checksum
    );
    if let (Some(bytes), Some(sum)) = (side.text_bytes, &side.text_checksum) {
        text += &format!(", text {sum} ({})", count(bytes, "byte"));
    }
    line.plain(&text)
}

/// A token: its id, and its text where that is known.
pub fn piece(piece: &Piece, line: Rich) -> Rich {
    let line = line.plain(&piece.id.to_string());
    match &piece.text {
        Some(text) => line.plain(" ").quote(text),
        None => line,
    }
}

fn prompt(found: &PromptDifference) -> Rich {
    let at = |side: &Option<Piece>, line: Rich| match side {
        Some(token) => piece(token, line),
        None => line.plain("the end"),
    };
    let line = Rich::default().plain(&format!("parts at token {}: ", found.index));
    let line = at(&found.a, line).plain(&format!(
        " in the first, of {}; ",
        count(found.a_tokens, "token")
    ));
    let line = at(&found.b, line).plain(&format!(
        " in the second, of {}",
        count(found.b_tokens, "token")
    ));
    match found.same_text {
        Some(true) => line.plain("; both are one text"),
        Some(false) => line.plain("; the texts differ"),
        None => line,
    }
}

fn drift(found: &Drift, add: &mut impl FnMut(&str, Rich)) {
    let share = percent(found.shared_tokens_fraction);
    let mut shared = format!("{} ({share})", count(found.shared_tokens, "token"));
    let mut longer = format!("{:+} tokens", found.token_difference);
    if let (Some(bytes), Some(share)) = (found.shared_bytes, found.shared_bytes_fraction) {
        shared += &format!(", {} ({})", count(bytes, "byte"), percent(share));
    }
    if let Some(bytes) = found.byte_difference {
        longer += &format!(", {bytes:+} bytes");
    }
    if found.token_difference != 0 || found.byte_difference.unwrap_or(0) != 0 {
        shared += &format!("; the first has {longer}");
    }
    add("shared", shared.as_str().into());
    if let Some(text) = &found.before {
        add("before", Rich::default().quote(text));
    }
    let sides = [
        (
            "first chose",
            "first goes on",
            &found.a,
            &found.after_a,
            &found.b,
        ),
        (
            "second chose",
            "second goes on",
            &found.b,
            &found.after_b,
            &found.a,
        ),
    ];
    for (chose, _, choice, _, other) in &sides {
        if let Some(choice) = choice {
            add(chose, choice_line(choice, other.as_ref()));
        }
    }
    for (_, goes_on, choice, after, _) in &sides {
        match (choice, after) {
            (Some(_), Some(text)) => add(goes_on, Rich::default().quote(text)),
            (None, _) if found.token_difference != 0 => add(goes_on, "no further: it ended".into()),
            _ => {}
        }
    }
}

fn choice_line(choice: &Choice, other: Option<&Choice>) -> Rich {
    let line = piece(&choice.piece, Rich::default()).plain(&format!(" at {}", choice.logit));
    let Some(other) = other else {
        return line;
    };
    let line = piece(&other.piece, line.plain("; "));
    match (choice.other_logit, choice.gap) {
        (Some(logit), Some(gap)) => line.plain(&format!(" at {logit}: a gap of {}", signed(gap))),
        _ => line.plain(" is not among the runners-up in its trace"),
    }
}

fn finding(found: &Finding, add: &mut impl FnMut(&str, Rich)) {
    let mut line = Rich::default().toned(Tone::Doubt, found.cause.name());
    if let Some(engine) = &found.engine {
        line = line.plain(" of ").name(engine);
    }
    if let Some(tensor) = &found.tensor {
        line = line.plain(&format!(" at {tensor}"));
    }
    add("cause", line);
    for sentence in &found.evidence {
        add("", sentence.as_str().into());
    }
}

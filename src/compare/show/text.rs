//! A page for a terminal, or a file that was one once.

use super::page::{Block, Page, Rich, Sheet, Tone};
use crate::bench::report::Format;

/// The page's text; with ANSI's colours if they are wanted.
#[must_use]
pub fn render(page: &Page, colour: bool) -> String {
    let mut out = String::new();
    for block in &page.0 {
        match block {
            Block::Title(line) => out += &(strong(&coloured(line, colour), colour) + "\n"),
            Block::Section(line) => {
                out += &format!("\n{}\n", strong(&coloured(line, colour), colour));
            }
            Block::Line(line) => out += &format!("{}\n", coloured(line, colour)),
            Block::Facts(facts) => out += &render_facts(facts, colour),
            Block::Table(sheet) => out += &table(sheet),
            Block::List(title, items) => {
                out += &format!("\n{title}:\n");
                for item in items {
                    out += &format!("- {}\n", coloured(item, colour));
                }
            }
            Block::Figure(lines) => {
                for line in lines {
                    out += &format!("{}\n", line.trim_end());
                }
            }
        }
    }
    out
}

fn render_facts(facts: &[(String, Rich)], colour: bool) -> String {
    let width = |label: &str| label.chars().count();
    let widest = facts
        .iter()
        .map(|(label, _)| width(label))
        .max()
        .unwrap_or(0);
    let mut out = String::new();
    for (label, value) in facts {
        let gap = " ".repeat(widest - width(label) + 2);
        let line = format!(
            "  {}{gap}{}",
            painted(label, "2", colour),
            coloured(value, colour)
        );
        out += line.trim_end();
        out.push('\n');
    }
    out
}

/// Without colours, whose letters would count as width.
fn table(sheet: &Sheet) -> String {
    let grid = sheet.grid(|cell| coloured(cell, false));
    grid.render(Format::Table)
}

fn coloured(line: &Rich, colour: bool) -> String {
    let parts = line.0.iter().map(|(tone, text)| match tone {
        Tone::Plain => text.clone(),
        Tone::Given => painted(text, "36", colour),
        Tone::Good => painted(text, "32", colour),
        Tone::Doubt => painted(text, "33", colour),
        Tone::Bad => painted(text, "31", colour),
    });
    parts.collect()
}

fn strong(text: &str, colour: bool) -> String {
    painted(text, "1", colour)
}

/// A text between the beginning of a colour and the end of that colour alone, so that colours
/// within a strong line do not end it.
fn painted(text: &str, code: &str, colour: bool) -> String {
    let end = if code.len() == 1 { "22" } else { "39" };
    match colour && !text.is_empty() {
        true => format!("\x1b[{code}m{text}\x1b[{end}m"),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_stand_below_each_other_and_colours_end() {
        let page = Page(vec![
            Block::Title(Rich::default().toned(Tone::Bad, "error").plain(": x")),
            Block::Facts(vec![
                ("a".to_owned(), Rich::default().quote("hi")),
                ("long".to_owned(), "b".into()),
                (String::new(), "c".into()),
            ]),
            Block::List("notes", vec!["n".into()]),
        ]);
        let plain = render(&page, false);
        assert_eq!(
            plain,
            "error: x\n  a     \"hi\"\n  long  b\n        c\n\nnotes:\n- n\n"
        );
        let colours = render(&page, true);
        assert!(
            colours.starts_with("\x1b[1m\x1b[31merror\x1b[39m: x\x1b[22m\n"),
            "{colours:?}"
        );
        assert!(
            colours.contains("\x1b[2ma\x1b[22m     \x1b[36m\"hi\"\x1b[39m\n"),
            "{colours:?}"
        );
    }
}

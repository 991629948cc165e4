//! A page as Markdown.

use super::page::{Block, Page, Rich, Sheet, Tone};
use crate::bench::report::Format;

/// The page's Markdown.
#[must_use]
pub fn render(page: &Page) -> String {
    let mut out = String::new();
    let mut last_is_line = false;
    for block in &page.0 {
        let is_line = matches!(block, Block::Line(_));
        let goes_on = last_is_line && is_line;
        if !out.is_empty() && !goes_on {
            out.push('\n');
        }
        last_is_line = is_line;
        match block {
            Block::Title(line) => out += &format!("# {}\n", spans(line)),
            Block::Section(line) => out += &format!("## {}\n", spans(line)),
            Block::Line(line) => out += &format!("{}\n", spans(line)),
            Block::Facts(facts) => {
                for (label, value) in facts {
                    out += &match label.as_str() {
                        "" => format!("  - {}\n", spans(value)),
                        label => format!("- **{}**: {}\n", escaped(label), spans(value)),
                    };
                }
            }
            Block::Table(sheet) => out += &table(sheet),
            Block::List(title, items) => {
                out += &format!("**{title}**\n\n");
                for item in items {
                    out += &format!("- {}\n", spans(item));
                }
            }
            Block::Figure(lines) => {
                out += "```text\n";
                for line in lines {
                    out += &format!("{}\n", line.trim_end());
                }
                out += "```\n";
            }
        }
    }
    out
}

/// The grid escapes bars itself, in code spans too, as tables need it.
fn table(sheet: &Sheet) -> String {
    let grid = sheet.grid(|cell| spans(cell).replace("\\|", "|"));
    grid.render(Format::Md)
}

fn spans(line: &Rich) -> String {
    let parts = line.0.iter().map(|(tone, text)| match tone {
        Tone::Plain => escaped(text),
        Tone::Given => code(text),
        Tone::Good | Tone::Doubt | Tone::Bad => format!("**{}**", escaped(text)),
    });
    parts.collect()
}

/// A code span: between more backticks than the text has in a row.
fn code(text: &str) -> String {
    let runs = text.split(|letter| letter != '`').map(str::len);
    let fence = "`".repeat(runs.max().unwrap_or(0) + 1);
    match text.starts_with('`') || text.ends_with('`') {
        true => format!("{fence} {text} {fence}"),
        false => format!("{fence}{text}{fence}"),
    }
}

/// A text in which nothing is markup. An underscore within a word is none.
fn escaped(text: &str) -> String {
    let letters: Vec<char> = text.chars().collect();
    let is_word = |at: usize| {
        letters
            .get(at)
            .is_some_and(|letter| letter.is_alphanumeric())
    };
    let mut out = String::new();
    for (at, &letter) in letters.iter().enumerate() {
        let within = at > 0 && is_word(at - 1) && is_word(at + 1);
        let is_markup = matches!(letter, '\\' | '`' | '*' | '<' | '[' | ']' | '|')
            || (letter == '_' && !within);
        if is_markup {
            out.push('\\');
        }
        out.push(letter);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_in_texts_is_text() {
        assert_eq!(
            escaped("<|im_end|> *a* _b_ [c]"),
            "\\<\\|im_end\\|> \\*a\\* \\_b\\_ \\[c\\]"
        );
        assert_eq!(code("a``b`"), "``` a``b` ```");
        assert_eq!(code("ab"), "`ab`");
    }

    #[test]
    fn bars_in_cells_are_escaped_once() {
        let mut sheet = Sheet::new(&["t"], &["n"]);
        let text = Rich::default().plain("a|b ").quote("<|x|>");
        sheet.rows.push(vec![text, "1".into()]);
        assert_eq!(
            table(&sheet),
            "| t | n |\n| --- | ---: |\n| a\\|b `\"<\\|x\\|>\"` | 1 |\n"
        );
    }

    #[test]
    fn blocks_are_apart() {
        let page = Page(vec![
            Block::Title(
                Rich::default()
                    .toned(Tone::Bad, "bounded_drift")
                    .plain(": x"),
            ),
            Block::Line("a".into()),
            Block::Line("b".into()),
            Block::Facts(vec![
                ("l".to_owned(), Rich::default().quote("v")),
                (String::new(), "more".into()),
            ]),
            Block::Figure(vec!["| ".to_owned()]),
            Block::List("notes", vec!["n".into()]),
        ]);
        assert_eq!(
            render(&page),
            "# **bounded_drift**: x\n\na\nb\n\n- **l**: `\"v\"`\n  - more\n\n```text\n|\n```\n\n\
             **notes**\n\n- n\n"
        );
    }
}

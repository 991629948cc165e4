//! A report in words, before it is text or Markdown.

use crate::bench::report::{Align, Grid};
use crate::plot::printable;

/// Blocks, from the top.
#[derive(Debug, Default)]
pub struct Page(pub Vec<Block>);

/// A part of a page.
#[derive(Debug)]
pub enum Block {
    /// The first line.
    Title(Rich),
    /// What the following is about.
    Section(Rich),
    /// A line.
    Line(Rich),
    /// Labels and what they stand for; one without a label belongs to the one before.
    Facts(Vec<(String, Rich)>),
    /// A table.
    Table(Sheet),
    /// Items under a title.
    List(&'static str, Vec<Rich>),
    /// Lines whose letters stand below each other.
    Figure(Vec<String>),
}

impl Page {
    /// Adds a block.
    pub fn push(&mut self, block: Block) {
        self.0.push(block);
    }

    /// Adds a list, if it has items.
    pub fn list(&mut self, title: &'static str, items: Vec<Rich>) {
        if !items.is_empty() {
            self.push(Block::List(title, items));
        }
    }
}

/// A table's titles and cells.
#[derive(Debug, Default)]
pub struct Sheet {
    /// Title and side of each column.
    pub columns: Vec<(String, Align)>,
    /// Cells, one a column.
    pub rows: Vec<Vec<Rich>>,
}

impl Sheet {
    /// As a grid, whose cells `cell` writes.
    #[must_use]
    pub fn grid(&self, cell: impl Fn(&Rich) -> String) -> Grid {
        let columns = self.columns.iter();
        let columns: Vec<(&str, Align)> =
            columns.map(|(title, align)| (&**title, *align)).collect();
        let mut grid = Grid::new(&columns);
        for row in &self.rows {
            grid.push(row.iter().map(&cell).collect());
        }
        grid
    }

    /// A table without rows: titles of columns of text, then of numbers.
    #[must_use]
    pub fn new(texts: &[&str], numbers: &[&str]) -> Self {
        let of = |titles: &[&str], align| {
            let one = |title: &&str| (printable(title), align);
            titles.iter().map(one).collect::<Vec<_>>()
        };
        let mut columns = of(texts, Align::Left);
        columns.extend(of(numbers, Align::Right));
        Sheet {
            columns,
            rows: Vec::new(),
        }
    }
}

/// What a stretch of text is, for those who can show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// Words of ours.
    Plain,
    /// Text of a model, or a name from elsewhere: in Markdown a code span.
    Given,
    /// As it should be.
    Good,
    /// Worth a look.
    Doubt,
    /// Wrong.
    Bad,
}

/// A line of text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rich(pub Vec<(Tone, String)>);

impl Rich {
    /// With words of ours, in which nothing but printable letters is left.
    #[must_use]
    pub fn plain(self, text: &str) -> Self {
        self.toned(Tone::Plain, text)
    }

    /// With a name from elsewhere.
    #[must_use]
    pub fn name(self, name: &str) -> Self {
        self.toned(Tone::Given, name)
    }

    /// With a model's text, in quotes and with escapes.
    #[must_use]
    pub fn quote(mut self, text: &str) -> Self {
        self.0.push((Tone::Given, format!("{text:?}")));
        self
    }

    /// With text of some tone.
    #[must_use]
    pub fn toned(mut self, tone: Tone, text: &str) -> Self {
        self.0.push((tone, printable(text)));
        self
    }
}

impl From<&str> for Rich {
    fn from(text: &str) -> Self {
        Rich::default().plain(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_terminal_obeys_is_left() {
        assert_eq!(
            printable("a\"\\'é ‖ \u{1b}[2J\n\u{202e}"),
            "a\"\\'é ‖ \\u{1b}[2J\\n\\u{202e}"
        );
        let rich = Rich::default().quote("x\ty\u{7}").name("e\u{9b}");
        let texts: Vec<&str> = rich.0.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(texts, ["\"x\\ty\\u{7}\"", "e\\u{9b}"]);
    }
}

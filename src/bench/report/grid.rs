//! A table of text, for the terminal or for a document.

use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};

/// How a report is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Lines drawn for a terminal.
    #[default]
    Table,
    /// Markdown.
    Md,
}

/// Rows of text under titles.
#[derive(Clone, Debug)]
pub struct Grid {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

/// To which side a column's cells go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

impl Grid {
    /// An empty table.
    #[must_use]
    pub fn new(columns: &[(&str, Align)]) -> Grid {
        let owned = |(title, align): &(&str, Align)| ((*title).to_owned(), *align);
        Grid {
            columns: columns.iter().map(owned).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row, one cell a column.
    pub fn push(&mut self, row: Vec<String>) {
        self.rows.push(row);
    }

    /// Whether it has no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The text, with a newline at its end.
    #[must_use]
    pub fn render(&self, format: Format) -> String {
        match format {
            Format::Table => self.drawn(),
            Format::Md => self.markdown(),
        }
    }

    fn drawn(&self) -> String {
        let mut table = Table::new();
        table.load_preset(presets::UTF8_FULL_CONDENSED);
        table.set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(self.columns.iter().map(|(title, _)| title));
        for row in &self.rows {
            let cells = row.iter().zip(&self.columns).map(|(text, (_, align))| {
                Cell::new(text).set_alignment(match align {
                    Align::Left => CellAlignment::Left,
                    Align::Right => CellAlignment::Right,
                })
            });
            table.add_row(cells);
        }
        format!("{table}\n")
    }

    fn markdown(&self) -> String {
        let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        let cell = |text: &str| text.replace('|', "\\|").replace('\n', " ");
        let titles = self.columns.iter().map(|(title, _)| cell(title));
        let rule = self.columns.iter().map(|(_, align)| match align {
            Align::Left => "---".to_owned(),
            Align::Right => "---:".to_owned(),
        });
        let mut text = line(titles.collect());
        text += &line(rule.collect());
        for row in &self.rows {
            text += &line(row.iter().map(|text| cell(text)).collect());
        }
        text
    }
}

/// A rate, with three digits or all that stand before the point; a dash for none.
#[must_use]
pub fn rate(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(value) if value >= 100.0 => format!("{value:.0}"),
        Some(value) if value >= 10.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_drawn_or_written_as_markdown() {
        let mut grid = Grid::new(&[("name", Align::Left), ("t/s", Align::Right)]);
        assert!(grid.is_empty());
        grid.push(vec!["a|b".to_owned(), rate(Some(1234.5))]);
        grid.push(vec!["c".to_owned(), rate(None)]);
        let markdown = "| name | t/s |\n| --- | ---: |\n| a\\|b | 1234 |\n| c | - |\n";
        assert_eq!(grid.render(Format::Md), markdown);
        let drawn = grid.render(Format::Table);
        assert!(
            drawn.contains("│ a|b  ┆ 1234 │") && drawn.contains("│ c    ┆    - │"),
            "{drawn}"
        );
    }

    #[test]
    fn rates_have_three_digits() {
        let texts = [99.96, 10.04, 9.996, 0.123].map(|value| rate(Some(value)));
        assert_eq!(texts, ["100.0", "10.0", "10.00", "0.12"]);
    }
}

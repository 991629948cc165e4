//! Reads `sml!` tables out of sources and draws them.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use syn::visit::Visit;

/// One row: `source + trigger [guard] / action = target`.
pub struct Row {
    pub initial: bool,
    pub source: String,
    pub trigger: String,
    pub guard: String,
    pub action: String,
    pub target: String,
}

/// One transition table.
pub struct Table {
    pub file: String,
    pub name: String,
    pub rows: Vec<Row>,
}

impl Table {
    /// State names in order of appearance.
    pub fn states(&self) -> Vec<&str> {
        let mut states = Vec::new();
        for name in self.rows.iter().flat_map(|row| [&row.source, &row.target]) {
            if !name.is_empty() && name != "X" && !states.contains(&name.as_str()) {
                states.push(name.as_str());
            }
        }
        states
    }
}

struct Macros(Vec<TokenStream>);

impl<'ast> Visit<'ast> for Macros {
    fn visit_macro(&mut self, node: &'ast syn::Macro) {
        if node.path.is_ident("sml") {
            self.0.push(node.tokens.clone());
        }
    }
}

/// Every table in `files`, in order.
pub fn all(files: &[PathBuf]) -> Vec<Table> {
    let mut tables = Vec::new();
    for path in files {
        let mut macros = Macros(Vec::new());
        macros.visit_file(&crate::parsed(path));
        for tokens in macros.0 {
            tables.push(table(path, tokens));
        }
    }
    tables
}

fn table(path: &Path, tokens: TokenStream) -> Table {
    let mut name = String::new();
    let mut rows = Vec::new();
    for token in tokens {
        match token {
            TokenTree::Ident(ident) if name.is_empty() => name = ident.to_string(),
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                rows = split(group.stream(), ',')
                    .into_iter()
                    .map(|row| self::row(&row))
                    .collect();
            }
            _ => {}
        }
    }
    Table {
        file: crate::name(path),
        name,
        rows,
    }
}

/// Splits at a punctuation mark that stands outside every group and angle bracket.
fn split(tokens: TokenStream, mark: char) -> Vec<Vec<TokenTree>> {
    let mut parts = vec![Vec::new()];
    let mut angles = 0usize;
    for token in tokens {
        let punct = match &token {
            TokenTree::Punct(punct) => punct.as_char(),
            _ => ' ',
        };
        match punct {
            '<' => angles += 1,
            '>' => angles = angles.saturating_sub(1),
            _ => {}
        }
        if punct == mark && angles == 0 {
            parts.push(Vec::new());
        } else if let Some(part) = parts.last_mut() {
            part.push(token);
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

fn row(tokens: &[TokenTree]) -> Row {
    let mut row = Row {
        initial: false,
        source: String::new(),
        trigger: String::new(),
        guard: String::new(),
        action: String::new(),
        target: String::new(),
    };
    let mut place = 0;
    for token in tokens {
        match (place, token) {
            (0, TokenTree::Punct(p)) if p.as_char() == '*' => row.initial = true,
            (0, TokenTree::Punct(p)) if p.as_char() == '+' => place = 1,
            (1, TokenTree::Group(g)) if g.delimiter() == Delimiter::Bracket => {
                row.guard = plain(&g.stream().to_string());
                place = 2;
            }
            (1 | 2, TokenTree::Punct(p)) if p.as_char() == '/' => place = 3,
            (1..=3, TokenTree::Punct(p)) if p.as_char() == '=' => place = 4,
            (0, other) => row.source.push_str(&other.to_string()),
            (1, other) => row.trigger.push_str(&other.to_string()),
            (3, other) => row.action.push_str(&plain(&other.to_string())),
            (4, other) => row.target.push_str(&other.to_string()),
            _ => {}
        }
    }
    row.source = state(&row.source);
    row.target = state(&row.target);
    row
}

/// `"name"_s` without its quotes and suffix.
fn state(text: &str) -> String {
    text.trim_end_matches("_s").trim_matches('"').to_owned()
}

/// Token spacing made readable.
fn plain(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    text.replace("! ", "!")
        .replace("( ", "(")
        .replace(" )", ")")
        .replace(" ,", ",")
}

fn label(row: &Row) -> String {
    let event = row
        .trigger
        .trim_start_matches("event<")
        .trim_end_matches('>');
    let event = event.split("<'").next().unwrap_or(event);
    let mut label = if event.starts_with("completion") {
        String::new()
    } else {
        event.to_owned()
    };
    if !row.guard.is_empty() {
        let _ = write!(label, " [{}]", row.guard);
    }
    if !row.action.is_empty() {
        let _ = write!(label, " / {}", row.action);
    }
    label.trim().to_owned()
}

/// docs/machines.md.
pub fn page(tables: &[Table]) -> String {
    let mut page = String::from(
        "# State machines\n\nGenerated from the transition tables in the sources by \
         `EMEL_BLESS=1 cargo test --test structure`; a test fails when this page is stale. An \
         arrow without an event is taken at once when its guard holds. Rows for unexpected \
         events, which every state has, are left out.\n",
    );
    for table in tables {
        let _ = write!(
            page,
            "\n## {}\n\n`{}`\n\n```mermaid\nstateDiagram-v2\n",
            table.name, table.file
        );
        for row in table
            .rows
            .iter()
            .filter(|row| !row.trigger.contains("unexpected_event"))
        {
            if row.initial {
                let _ = writeln!(page, "    [*] --> {}", row.source);
            }
            let target = if row.target.is_empty() {
                &row.source
            } else {
                &row.target
            };
            let label = label(row);
            let colon = if label.is_empty() { "" } else { ": " };
            let _ = writeln!(page, "    {} --> {target}{colon}{label}", row.source);
        }
        page.push_str("```\n");
    }
    page
}

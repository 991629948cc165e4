//! Rewrites a template so that the engine treats it as Python's jinja2 does.
//!
//! minijinja's language is jinja2's but for a few points that no filter, function or formatter
//! reaches. Those are settled in the source, token by token, for every template alike. Lines
//! stay where they are, so that errors name the line of the original.
//!
//! | in the source | becomes | because in Python |
//! |---|---|---|
//! | `\r\n`, `\r` | `\n` | jinja2's lexer normalises newlines |
//! | escapes in strings | what they stand for | `"\d"` keeps its backslash |
//! | `{% generation %}..{% endgeneration %}` | `{% call __generation() %}..{% endcall %}` | transformers' tag is a call block, with a scope of its own |
//! | `x.items` (a built-in method, not called) | `x.__attr("items")` | the method hides a key of that name |
//! | `a ~ b` | `__str(a) ~ __str(b)` | of how floats and nested values print |
//! | `for x in a` | `for x in __iter(a)` | None is no empty list |
//! | `a + b`, in a template that uses `safe` or `escape` | `__add(a, b)` | marked-up text escapes what is added to it |
//! | `[..]`, `{..}`, `(.., ..)` with a variable inside; `a + b` and `a * b` unless a string is written in them; what `set` assigns | `__value(..)` | a slice or a sum of lists is a list, not a view |
//!
//! `__value` is also where a template that builds a value too deep or too large is stopped
//! these are all the places where containers nest.

use super::ChatError;
use super::lexer::{Kind, Piece, Tag, Token, error, split};
use super::methods::is_method_name;

/// Brackets may nest this deep in a tag; the engine's own limit is of the same kind.
const MAX_NESTING: usize = 64;
/// `elif` branches of one `if`: the engine nests them.
const MAX_ELIFS: usize = 200;

/// The rewritten source so far.
struct Out {
    text: String,
    /// Whether sums may meet marked-up text.
    markup: bool,
}

impl Out {
    fn push(&mut self, c: char) {
        self.text.push(c);
    }

    fn push_str(&mut self, text: &str) {
        self.text.push_str(text);
    }
}

/// Macros and call blocks nest this deep: the engine's compiler looks through the inner ones once
/// for every outer one, at every level.
const MAX_MACROS: usize = 8;

/// A token, or a bracketed group of nodes.
enum Node<'s> {
    Leaf(Token<'s>),
    Group {
        open: Token<'s>,
        inner: Vec<Node<'s>>,
        close: Token<'s>,
    },
}

impl Node<'_> {
    fn is(&self, text: &str) -> bool {
        matches!(self, Node::Leaf(token) if token.is(text))
    }

    fn kind(&self) -> Option<Kind> {
        match self {
            Node::Leaf(token) => Some(token.kind),
            Node::Group { .. } => None,
        }
    }
}

/// Rewrites `source`.
///
/// # Errors
/// [`ChatError::Syntax`] as the lexer, for brackets nested too deep, and for an `if` with too
/// many `elif`.
pub(super) fn rewrite(source: &str) -> Result<String, ChatError> {
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    let pieces = split(&source)?;
    let mut out = Out {
        text: String::with_capacity(source.len() + source.len() / 4),
        markup: pieces.iter().any(makes_markup),
    };
    // the number of `elif` so far in each open `if`
    let mut elifs: Vec<usize> = Vec::new();
    let mut macros = 0;
    for piece in pieces {
        match piece {
            Piece::Verbatim(text) => out.push_str(text),
            Piece::Tag(tag) => {
                match tag.tokens.first().map(|t| t.text) {
                    Some("if") if tag.statement => elifs.push(0),
                    Some("endif") if tag.statement => drop(elifs.pop()),
                    Some("macro" | "call" | "generation") if tag.statement => {
                        macros += 1;
                        if macros > MAX_MACROS {
                            let message =
                                format!("macros nested deeper than {MAX_MACROS} are refused");
                            return Err(error(&source, tag.start, &message));
                        }
                    }
                    Some("endmacro" | "endcall" | "endgeneration") if tag.statement => {
                        macros = macros.saturating_sub(1);
                    }
                    Some("elif") if tag.statement => {
                        if let Some(count) = elifs.last_mut() {
                            *count += 1;
                            if *count > MAX_ELIFS {
                                let message = format!("more than {MAX_ELIFS} `elif` are refused");
                                return Err(error(&source, tag.start, &message));
                            }
                        }
                    }
                    _ => {}
                }
                emit_tag(&tag, &mut out).map_err(|message| error(&source, tag.start, &message))?;
            }
        }
    }
    Ok(out.text)
}

/// Whether a tag uses a filter whose result is marked-up text.
fn makes_markup(piece: &Piece<'_>) -> bool {
    let Piece::Tag(tag) = piece else { return false };
    tag.tokens.windows(2).any(|pair| {
        pair[0].is("|") && matches!(pair[1].text, "safe" | "escape" | "e" | "forceescape")
    })
}

fn emit_tag(tag: &Tag<'_>, out: &mut Out) -> Result<(), String> {
    out.push_str(tag.open);
    let mut tokens = tag.tokens.iter().copied();
    let (nodes, _) = tree(&mut tokens, None, 0)?;
    if tag.statement {
        emit_statement(&nodes, out);
    } else {
        emit_expression(&nodes, out);
    }
    out.push_str(tag.close);
    Ok(())
}

/// Groups tokens by their brackets (the lexer made sure they match).
fn tree<'s>(
    tokens: &mut impl Iterator<Item = Token<'s>>,
    open: Option<Token<'s>>,
    depth: usize,
) -> Result<(Vec<Node<'s>>, Option<Token<'s>>), String> {
    if depth > MAX_NESTING {
        return Err(format!(
            "brackets nested deeper than {MAX_NESTING} are refused"
        ));
    }
    let mut nodes = Vec::new();
    while let Some(token) = tokens.next() {
        match token.kind {
            Kind::Open => {
                let (inner, close) = tree(tokens, Some(token), depth + 1)?;
                if let Some(close) = close {
                    nodes.push(Node::Group {
                        open: token,
                        inner,
                        close,
                    });
                }
            }
            Kind::Close if open.is_some() => return Ok((nodes, Some(token))),
            _ => nodes.push(Node::Leaf(token)),
        }
    }
    Ok((nodes, None))
}

fn emit_statement(nodes: &[Node<'_>], out: &mut Out) {
    let Some(Node::Leaf(first)) = nodes.first() else {
        return emit_expression(nodes, out);
    };
    out.push_str(first.blank);
    let rest = &nodes[1..];
    match first.text {
        "generation" if rest.is_empty() => out.push_str("call __generation()"),
        "endgeneration" if rest.is_empty() => out.push_str("endcall"),
        "set" => {
            out.push_str(first.text);
            let Some(equals) = rest.iter().position(|n| n.is("=")) else {
                // a block: `{% set x | filter %}`
                let name = rest.iter().position(|n| n.is("|")).unwrap_or(rest.len());
                emit_plain(&rest[..name], out);
                return emit_expression(&rest[name..], out);
            };
            emit_plain(&rest[..=equals], out);
            let value = &rest[equals + 1..];
            let attribute = rest[..equals].iter().any(|n| n.is("."));
            let tuple = value.iter().any(|n| n.is(","));
            out.push_str(if attribute { " __field(" } else { " __value(" });
            out.push_str(if tuple { "(" } else { "" });
            emit_expression(value, out);
            out.push_str(if tuple { "))" } else { ")" });
        }
        "for" => {
            out.push_str(first.text);
            let target = rest
                .iter()
                .position(|n| n.is("in"))
                .map_or(rest.len(), |i| i + 1);
            emit_plain(&rest[..target], out);
            let rest = &rest[target..];
            let end = (0..rest.len())
                .find(|&i| is_keyword(rest, i) && (rest[i].is("if") || rest[i].is("recursive")))
                .unwrap_or(rest.len());
            out.push_str(" __iter(");
            emit_expression(&rest[..end], out);
            out.push(')');
            emit_expression(&rest[end..], out);
        }
        // `macro name(..)`, `filter name(..)`, `block name`, `call(x) f(..)`: a name, then the rest
        _ => {
            out.push_str(first.text);
            emit_after(Some(first), rest, out);
        }
    }
}

/// Copies nodes: names that are assigned to.
fn emit_plain(nodes: &[Node<'_>], out: &mut Out) {
    for node in nodes {
        match node {
            Node::Leaf(token) => emit_token(token, out),
            Node::Group { open, inner, close } => {
                emit_token(open, out);
                emit_plain(inner, out);
                emit_token(close, out);
            }
        }
    }
}

fn emit_expression(nodes: &[Node<'_>], out: &mut Out) {
    emit_after(None, nodes, out);
}

/// How a name is used, judged by the token before it.
fn is_keyword(nodes: &[Node<'_>], i: usize) -> bool {
    let Node::Leaf(token) = &nodes[i] else {
        return false;
    };
    let plain = match i.checked_sub(1).map(|p| &nodes[p]) {
        Some(before) if before.is(".") || before.is("|") || before.is("is") => false,
        Some(before) if before.is("not") => !(i >= 2 && nodes[i - 2].is("is")),
        _ => true,
    };
    plain
        && token.kind == Kind::Name
        && matches!(token.text, "and" | "or" | "not" | "if" | "else" | "in" | "recursive")
        // after `is`, this is the negation of a test
        && !(token.text == "not" && i >= 1 && nodes[i - 1].is("is"))
}

/// Whether the node ends an operand, so that a bracket after it is a call or a subscript, and a
/// sign after it is an operation.
fn ends_operand(nodes: &[Node<'_>], i: usize) -> bool {
    match nodes[i].kind() {
        None | Some(Kind::Text | Kind::Number) => true,
        Some(Kind::Name) => !is_keyword(nodes, i) && !nodes[i].is("is"),
        _ => false,
    }
}

/// Emits nodes as expressions. `before` is a tag's first word: a bracket right after it belongs
/// to it when it is `call`.
fn emit_after(before: Option<&Token<'_>>, nodes: &[Node<'_>], out: &mut Out) {
    let mut from = 0;
    for i in 0..=nodes.len() {
        let boundary = i == nodes.len()
            || is_keyword(nodes, i)
            || (nodes[i].kind() == Some(Kind::Operator)
                && [",", ":", "=", "==", "!=", "<", ">", "<=", ">="]
                    .iter()
                    .any(|op| nodes[i].is(op)));
        if boundary {
            let call = from == 0 && before.is_some_and(|t| t.text == "call");
            emit_segment(&nodes[from..i], call, out);
            if let Some(Node::Leaf(token)) = nodes.get(i) {
                emit_token(token, out);
            }
            from = i + 1;
        }
    }
}

/// Emits a run of nodes between two boundaries: sums, products and concatenations of operands.
fn emit_segment(nodes: &[Node<'_>], call: bool, out: &mut Out) {
    let operator =
        |i: usize| i > 0 && ends_operand(nodes, i - 1) && nodes[i].kind() == Some(Kind::Operator);
    let binary = |i: usize, ops: &[&str]| operator(i) && ops.iter().any(|op| nodes[i].is(op));
    let any = |ops: &[&str]| (0..nodes.len()).any(|i| binary(i, ops));
    // A string written as an operand makes the sum a string.
    let textual = (0..nodes.len()).any(|i| {
        let alone = |j: Option<usize>| match j {
            Some(j) if j < nodes.len() => binary(j, &["+"]),
            _ => true,
        };
        nodes[i].kind() == Some(Kind::Text) && alone(i.checked_sub(1)) && alone(Some(i + 1))
    });
    if out.markup && any(&["+"]) && !any(&["-"]) {
        out.push_str(" __add(");
        let mut from = 0;
        for i in 0..=nodes.len() {
            if i == nodes.len() || binary(i, &["+"]) {
                emit_segment(&nodes[from..i], call && from == 0, out);
                out.push_str(if i == nodes.len() { ")" } else { "," });
                from = i + 1;
            }
        }
        return;
    }
    let wrap = any(&["*"]) || any(&["+"]) && !textual;
    let concat = any(&["~"]);
    if wrap {
        out.push_str(" __value(");
    }
    if concat {
        let mut from = 0;
        for i in 0..=nodes.len() {
            if i == nodes.len() || binary(i, &["~", "+", "-"]) {
                let literal = i == from + 1 && nodes[from].kind() == Some(Kind::Text);
                let joined =
                    from > 0 && nodes[from - 1].is("~") || nodes.get(i).is_some_and(|n| n.is("~"));
                let convert = joined && !literal;
                out.push_str(if convert { " __str(" } else { "" });
                emit_operands(&nodes[from..i], false, out);
                out.push_str(if convert { ")" } else { "" });
                if let Some(Node::Leaf(token)) = nodes.get(i) {
                    emit_token(token, out);
                }
                from = i + 1;
            }
        }
    } else {
        emit_operands(nodes, call, out);
    }
    if wrap {
        out.push(')');
    }
}

fn emit_operands(nodes: &[Node<'_>], call: bool, out: &mut Out) {
    let mut i = 0;
    while i < nodes.len() {
        match &nodes[i] {
            Node::Leaf(dot) if dot.is(".") => {
                emit_token(dot, out);
                if let Some(Node::Leaf(name)) = nodes.get(i + 1) {
                    let called =
                        matches!(nodes.get(i + 2), Some(Node::Group { open, .. }) if open.is("("));
                    if name.kind == Kind::Name && !called && is_method_name(name.text) {
                        out.push_str("__attr(\"");
                        out.push_str(name.text);
                        out.push_str("\")");
                    } else {
                        emit_token(name, out);
                    }
                    i += 1;
                }
            }
            Node::Leaf(token) => emit_token(token, out),
            Node::Group { open, inner, close } => {
                let postfix = i > 0 && ends_operand(nodes, i - 1) || i == 0 && call;
                let literal = !postfix
                    && (!open.is("(") || inner.iter().any(|n| n.is(",")))
                    && !is_constant(inner);
                if literal {
                    out.push_str(" __value(");
                }
                emit_token(open, out);
                emit_expression(inner, out);
                emit_token(close, out);
                if literal {
                    out.push(')');
                }
            }
        }
        i += 1;
    }
}

/// Whether no name stands in the nodes that could make a container hold a variable.
fn is_constant(nodes: &[Node<'_>]) -> bool {
    nodes.iter().all(|node| match node {
        Node::Leaf(token) => {
            token.kind != Kind::Name
                || matches!(
                    token.text,
                    "true" | "True" | "false" | "False" | "none" | "None"
                )
        }
        Node::Group { inner, .. } => is_constant(inner),
    })
}

fn emit_token(token: &Token<'_>, out: &mut Out) {
    out.push_str(token.blank);
    if token.kind == Kind::Text && token.text.contains('\\') {
        emit_text(token.text, out);
    } else {
        out.push_str(token.text);
    }
}

/// Writes a quoted string anew: escapes decoded as Python's `unicode-escape` decodes them after
/// jinja2 has turned other characters than ASCII into escapes.
fn emit_text(quoted: &str, out: &mut Out) {
    let mut dropped_lines = 0;
    out.push('"');
    let mut chars = quoted[1..quoted.len() - 1].chars().peekable();
    while let Some(c) = chars.next() {
        if c != '\\' {
            push_plain(c, out);
            continue;
        }
        let Some(escape) = chars.next() else { break };
        let simple = match escape {
            '\n' => {
                dropped_lines += 1;
                continue;
            }
            '\\' | '\'' | '"' => escape,
            'a' => '\x07',
            'b' => '\x08',
            'f' => '\x0c',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\x0b',
            'x' | 'u' | 'U' => {
                let width = match escape {
                    'x' => 2,
                    'u' => 4,
                    _ => 8,
                };
                let digits: String = chars.clone().take(width).collect();
                let high = (digits.len() == width)
                    .then(|| u32::from_str_radix(&digits, 16).ok())
                    .flatten();
                match high {
                    Some(code) => {
                        chars.by_ref().take(width).for_each(drop);
                        push_code(code, &mut chars, out);
                    }
                    None => {
                        push_plain('\\', out);
                        push_plain(escape, out);
                    }
                }
                continue;
            }
            '0'..='7' => {
                let mut code = escape.to_digit(8).unwrap_or(0);
                for _ in 0..2 {
                    let Some(digit) = chars.peek().and_then(|c| c.to_digit(8)) else {
                        break;
                    };
                    code = code * 8 + digit;
                    chars.next();
                }
                push_code(code, &mut chars, out);
                continue;
            }
            other => {
                push_plain('\\', out);
                if other.is_ascii() {
                    push_plain(other, out);
                } else {
                    // jinja2 wrote this character as an escape, whose backslash the one before ate
                    let code = u32::from(other);
                    let text = match code {
                        0..=0xff => format!("x{code:02x}"),
                        0x100..=0xffff => format!("u{code:04x}"),
                        _ => format!("U{code:08x}"),
                    };
                    out.push_str(&text);
                }
                continue;
            }
        };
        if escape == 'n' {
            out.push_str("\\n");
        } else {
            push_plain(simple, out);
        }
    }
    out.push('"');
    // keep the lines where they are
    out.text.extend(std::iter::repeat_n('\n', dropped_lines));
}

/// Pushes the character of a numeric escape; a surrogate pair makes one character.
fn push_code(code: u32, chars: &mut std::iter::Peekable<std::str::Chars<'_>>, out: &mut Out) {
    let mut code = code;
    if (0xd800..0xdc00).contains(&code) {
        let next: String = chars.clone().take(6).collect();
        let low = next
            .strip_prefix("\\u")
            .and_then(|hex| u32::from_str_radix(hex, 16).ok());
        if let Some(low) = low.filter(|low| (0xdc00..0xe000).contains(low)) {
            chars.by_ref().take(6).for_each(drop);
            code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        }
    }
    // half a pair has no place in UTF-8
    let c = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
    if c == '\n' {
        out.push_str("\\n");
    } else {
        push_plain(c, out);
    }
}

/// Pushes a character inside a double-quoted string of the engine.
fn push_plain(c: char, out: &mut Out) {
    if matches!(c, '"' | '\\') {
        out.push('\\');
    }
    // A carriage return is safe here: newlines were normalised before.
    out.push(c);
}

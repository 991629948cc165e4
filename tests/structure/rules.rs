//! The rules themselves, over parsed sources.

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// A choice where none may be.
pub struct Finding {
    pub line: usize,
    pub what: String,
    pub function: String,
}

/// Functions that are made to decide: constructors and the caller's policies, which run before
/// any machine does, names for people, and `finish`, which says what a machine that has run came
/// to.
const DECIDERS: &[&str] = &[
    "new",
    "with_lanes",
    "finish",
    "detect",
    "default",
    "only",
    "name",
    "from_str",
    "fmt",
    "load",
];

/// Combinators that choose between two ways of computing.
const CHOOSERS: &[&str] = &[
    "then",
    "then_some",
    "unwrap_or_else",
    "or_else",
    "map_or_else",
    "is_some_and",
    "filter",
];

struct Choices {
    function: Vec<String>,
    found: Vec<Finding>,
}

impl Choices {
    fn note(&mut self, span: Span, what: &str) {
        if let Some(function) = self.function.last() {
            let function = function.clone();
            self.found.push(Finding {
                line: span.start().line,
                what: what.to_owned(),
                function,
            });
        }
    }

    /// A guard is a pure predicate: a method on `&self` that returns a bool, bare or in a Result.
    fn is_predicate(signature: &syn::Signature) -> bool {
        let output = signature
            .output
            .to_token_stream()
            .to_string()
            .replace(' ', "");
        let shared = signature.inputs.iter().all(|input| match input {
            syn::FnArg::Receiver(receiver) => receiver.mutability.is_none(),
            syn::FnArg::Typed(_) => true,
        });
        shared && (output == "->bool" || output.starts_with("->Result<bool,"))
    }

    fn enter(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let name = signature.ident.to_string();
        if DECIDERS.contains(&name.as_str()) || Self::is_predicate(signature) {
            return;
        }
        self.function.push(name);
        visit::visit_block(self, block);
        self.function.pop();
    }
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes
        .iter()
        .any(|a| a.to_token_stream().to_string().contains("test"))
}

impl<'ast> Visit<'ast> for Choices {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !is_test(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        if !is_test(&function.attrs) {
            self.enter(&function.sig, &function.block);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.enter(&function.sig, &function.block);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let Some(block) = &function.default {
            self.enter(&function.sig, block);
        }
    }

    fn visit_expr_if(&mut self, node: &'ast syn::ExprIf) {
        self.note(node.span(), "if");
        visit::visit_expr_if(self, node);
    }

    fn visit_expr_match(&mut self, node: &'ast syn::ExprMatch) {
        self.note(node.span(), "match");
        visit::visit_expr_match(self, node);
    }

    fn visit_expr_while(&mut self, node: &'ast syn::ExprWhile) {
        self.note(node.span(), "while");
        visit::visit_expr_while(self, node);
    }

    fn visit_local(&mut self, node: &'ast syn::Local) {
        if node
            .init
            .as_ref()
            .is_some_and(|init| init.diverge.is_some())
        {
            self.note(node.span(), "let-else");
        }
        visit::visit_local(self, node);
    }

    fn visit_expr_method_call(&mut self, node: &'ast syn::ExprMethodCall) {
        let method = node.method.to_string();
        if CHOOSERS.contains(&method.as_str()) {
            self.note(node.span(), &method);
        }
        visit::visit_expr_method_call(self, node);
    }
}

/// Choices outside guards, policies and constructors.
pub fn choices(file: &syn::File) -> Vec<Finding> {
    let mut choices = Choices {
        function: Vec::new(),
        found: Vec::new(),
    };
    choices.visit_file(file);
    choices.found
}

/// A word of code: an identifier or a string literal.
pub struct Word {
    pub line: usize,
    pub text: String,
}

/// Every identifier and literal of a file, doc comments left out.
pub fn words(file: &syn::File) -> Vec<Word> {
    struct Undocumented;
    impl syn::visit_mut::VisitMut for Undocumented {
        fn visit_attributes_mut(&mut self, attributes: &mut Vec<syn::Attribute>) {
            attributes.retain(|attribute| !attribute.path().is_ident("doc"));
        }
    }
    let mut file = file.clone();
    syn::visit_mut::VisitMut::visit_file_mut(&mut Undocumented, &mut file);
    let mut words = Vec::new();
    collect(file.into_token_stream(), &mut words);
    words
}

fn collect(tokens: TokenStream, words: &mut Vec<Word>) {
    for token in tokens {
        let line = token.span().start().line;
        match token {
            TokenTree::Group(group) => collect(group.stream(), words),
            TokenTree::Ident(ident) => words.push(Word {
                line,
                text: ident.to_string(),
            }),
            TokenTree::Literal(literal) => words.push(Word {
                line,
                text: literal.to_string(),
            }),
            TokenTree::Punct(_) => {}
        }
    }
}

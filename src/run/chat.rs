//! Chat mode: turns of a conversation, from the command line, a pipe or a person.

use std::io::{self, BufRead, IsTerminal, Write};
use std::path::Path;

use super::args::{RunConfig, TemplateSource};
use super::error::RunError;
use super::prompt::read_source;
use super::reply::Replier;
use crate::chat::{ChatTemplate, Conversation, Message, RenderOptions, needs_bos};
use crate::cli::message::{tell, tell_part};
use crate::engine::{EngineError, StopReason};
use crate::tokenizer::{EncodeOptions, TokenId, Tokenizer};

/// What a line of a person's means.
enum Input {
    Text(String),
    Regenerate,
    Clear,
    End,
}

/// The template that `config` asks for; `None` when that is the model's and it has none.
///
/// # Errors
/// [`RunError::Chat`] or [`RunError::Prompt`].
pub fn template(config: &RunConfig, own: Option<&str>) -> Result<Option<ChatTemplate>, RunError> {
    Ok(match &config.template {
        TemplateSource::Model => own.map(ChatTemplate::new).transpose()?,
        TemplateSource::NameOrText(text) if text.contains("{") => Some(ChatTemplate::new(text)?),
        TemplateSource::NameOrText(name) => Some(ChatTemplate::from_name(name)?),
        TemplateSource::File(path) => {
            let text = read_source(&super::args::Source::Binary(path.clone()))?;
            Some(ChatTemplate::new(&text)?)
        }
    })
}

/// The text of a special token, or nothing when the vocabulary has none.
fn token_text(tokenizer: &Tokenizer, id: Option<TokenId>) -> String {
    let piece = id.and_then(|id| tokenizer.piece(id, true).ok());
    piece.map_or(String::new(), |piece| {
        String::from_utf8_lossy(&piece).into_owned()
    })
}

/// Reads turns and answers them until the input or the user ends the conversation.
///
/// # Errors
/// [`RunError`] of the template, the input, the engine or an output.
pub fn converse<W: Write>(
    replier: &mut Replier<'_, W>,
    template: &ChatTemplate,
) -> Result<(), RunError> {
    let config = replier.config;
    let tokenizer = replier.tokenizer;
    let bos = token_text(tokenizer, tokenizer.bos());
    let eos = token_text(tokenizer, tokenizer.eos());
    let options = RenderOptions {
        add_generation_prompt: true,
        bos_token: &bos,
        eos_token: &eos,
        enable_thinking: match config.reasoning {
            super::args::Switch::Auto => None,
            super::args::Switch::On => Some(true),
            super::args::Switch::Off => Some(false),
        },
        kwargs: config.template_kwargs.clone(),
        ..RenderOptions::default()
    };
    let mut conversation = Conversation::new(template, options);
    let system = config.system.as_ref().map(read_source).transpose()?;
    let open = |conversation: &mut Conversation<'_>| {
        conversation.clear();
        if let Some(system) = &system {
            conversation.push(Message::new("system", system.clone()));
        }
    };
    open(&mut conversation);

    let by_hand = io::stdin().is_terminal();
    let coloured = is_coloured(config, io::stderr().is_terminal());
    let mut pending = config.prompt.as_ref().map(read_source).transpose()?;
    let mut turns = 0usize;
    loop {
        let input = match pending.take() {
            Some(text) => Input::Text(text),
            None if turns > 0 && (config.single_turn || !by_hand) => return Ok(()),
            None if by_hand => read_by_hand(config, coloured)?,
            None => Input::Text(read_all()?),
        };
        let text = match input {
            Input::End => return Ok(()),
            Input::Clear => {
                open(&mut conversation);
                continue;
            }
            Input::Regenerate => match conversation.undo() {
                Some(text) => text,
                None => {
                    tell("nothing to regenerate yet");
                    continue;
                }
            },
            Input::Text(text) => text,
        };
        turns += 1;
        if by_hand {
            // A press at the idle prompt was not meant for the reply to come.
            replier.interrupt.take();
        }
        conversation.turn(Message::new("user", text))?;
        let rendered = conversation.seen();
        let add_special = needs_bos(rendered, &bos, tokenizer.add_bos());
        let ids = tokenizer.encode(
            rendered,
            EncodeOptions {
                add_special,
                parse_special: true,
            },
        );
        let before = replier.timings;
        let reply = match replier.reply(&ids, false) {
            Err(RunError::Engine(error @ EngineError::PromptTooLong { .. })) if by_hand => {
                tell(&format!("{error}; /clear begins anew"));
                conversation.undo();
                continue;
            }
            reply => reply?,
        };
        if reply.reader_gone || replier.sink.show("\n")? == super::sink::Written::ReaderGone {
            return Ok(());
        }
        if config.timings {
            tell(&replier.timings.since(&before).chat_line());
        }
        if reply.stop == StopReason::ContextFull {
            tell("the context is full: /clear begins anew, -c N makes it larger");
        }
        conversation.replied(&reply.text, "");
    }
}

/// All of standard input, one trailing newline dropped.
fn read_all() -> Result<String, RunError> {
    Ok(read_source(&super::args::Source::Stdin)?)
}

/// What a person types is shown in this colour (bold green), as llama.cpp does.
const INPUT_COLOUR: &str = "\x1b[1;32m";
/// Ends a colour.
const PLAIN: &str = "\x1b[0m";

/// Whether input is coloured: as asked for, else on a terminal, unless `NO_COLOR` is set.
fn is_coloured(config: &RunConfig, is_terminal: bool) -> bool {
    match config.color {
        super::args::Switch::On => true,
        super::args::Switch::Off => false,
        super::args::Switch::Auto => {
            let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
            is_terminal && !config.simple_io && !refused
        }
    }
}

/// One message from a person: lines up to one that does not ask to go on, or a command.
fn read_by_hand(config: &RunConfig, coloured: bool) -> Result<Input, RunError> {
    let (begin, end) = if coloured {
        (INPUT_COLOUR, PLAIN)
    } else {
        ("", "")
    };
    let mut message = String::new();
    loop {
        tell_part(&format!("{begin}> "));
        let mut line = String::new();
        let n_read = match io::stdin().lock().read_line(&mut line) {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                tell(&format!("{end}that line is not valid UTF-8: type it again"));
                continue;
            }
            read => read.map_err(RunError::Input)?,
        };
        tell_part(end);
        if n_read == 0 {
            tell("");
            return Ok(if message.is_empty() {
                Input::End
            } else {
                Input::Text(message)
            });
        }
        let line = line.trim_end_matches(['\n', '\r']);
        let (command, argument) = line.split_once(' ').unwrap_or((line, ""));
        match command {
            "/exit" => return Ok(Input::End),
            "/regen" => return Ok(Input::Regenerate),
            "/clear" => return Ok(Input::Clear),
            "/read" => attach(Path::new(argument.trim()), &mut message),
            "/glob" => attach_all(argument.trim(), &mut message),
            "" if message.is_empty() => {}
            "" if config.multiline_input => return Ok(Input::Text(message)),
            _ => match line.strip_suffix('\\') {
                Some(part) => {
                    message.push_str(part);
                    message.push('\n');
                }
                None if config.multiline_input => {
                    message.push_str(line);
                    message.push('\n');
                }
                None => {
                    message.push_str(line);
                    return Ok(Input::Text(message));
                }
            },
        }
    }
}

/// Puts a file's text before the message.
fn attach(path: &Path, message: &mut String) {
    match read_source(&super::args::Source::Binary(path.to_owned())) {
        Ok(text) => {
            tell(&format!("read {}: {} bytes", path.display(), text.len()));
            message.push_str(&text);
            message.push('\n');
        }
        Err(error) => tell(&error.to_string()),
    }
}

/// Puts the texts of all files that match before the message, in order of their names.
fn attach_all(pattern: &str, message: &mut String) {
    match glob::glob(pattern) {
        Ok(found) => {
            let mut paths: Vec<_> = found.flatten().filter(|path| path.is_file()).collect();
            paths.sort();
            paths.iter().for_each(|path| attach(path, message));
            if paths.is_empty() {
                tell(&format!("no file matches {pattern}"));
            }
        }
        Err(error) => tell(&format!("{pattern} is no pattern: {error}")),
    }
}

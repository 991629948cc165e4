//! Flags about the text: prompt, chat, display, records, tokens only.

use super::config::{Source, Switch, TemplateSource};
use super::flag::Act::{Set, Toggle, Value};
use super::flag::{Chapter, Flag};

/// Trace lines stay readable, and the search for them cheap.
const MAX_LOGPROBS: i64 = 256;

pub(super) const FLAGS: &[Flag] = &[
    Flag {
        long: "prompt",
        also: &[],
        dash: &["p"],
        env: &[],
        chapter: Chapter::Prompt,
        help: "Prompt; in chat mode the first message",
        more: "Of several -p, -f and -bf the last counts.",
        act: Value("TEXT", |c, v| {
            c.prompt = Some(Source::Text(v.str()?.to_owned()));
            Ok(())
        }),
    },
    Flag {
        long: "file",
        also: &[],
        dash: &["f"],
        env: &[],
        chapter: Chapter::Prompt,
        help: "Prompt from a file (- = standard input), without its last newline",
        more: "",
        act: Value("FILE", |c, v| {
            c.prompt = Some(v.file_or_stdin()?);
            Ok(())
        }),
    },
    Flag {
        long: "binary-file",
        also: &[],
        dash: &["bf"],
        env: &[],
        chapter: Chapter::Prompt,
        help: "Prompt from a file, every byte of it",
        more: "",
        act: Value("FILE", |c, v| {
            c.prompt = Some(Source::Binary(v.path()?));
            Ok(())
        }),
    },
    Flag {
        long: "escape",
        also: &[],
        dash: &["e"],
        env: &[],
        chapter: Chapter::Prompt,
        help: r#"Process \n \r \t \' \" \\ \xHH in -p and -r [default: on]"#,
        more: "Texts from files are taken as they are.",
        act: Toggle {
            off: "no-escape",
            off_dash: &[],
            set: |c, on| c.escape = on,
        },
    },
    Flag {
        long: "reverse-prompt",
        also: &[],
        dash: &["r"],
        env: &[],
        chapter: Chapter::Prompt,
        help: "Stop when the model writes TEXT; may be repeated",
        more: "The text itself is not shown.",
        act: Value("TEXT", |c, v| {
            c.stop.push(v.str()?.to_owned());
            Ok(())
        }),
    },
    Flag {
        long: "conversation",
        also: &[],
        dash: &["cnv"],
        env: &[],
        chapter: Chapter::Chat,
        help: "Chat with the model through its template [default: auto]",
        more: "auto: when there is a template and standard input is a terminal.",
        act: Toggle {
            off: "no-conversation",
            off_dash: &["no-cnv"],
            set: |c, on| c.chat = if on { Switch::On } else { Switch::Off },
        },
    },
    Flag {
        long: "system-prompt",
        also: &[],
        dash: &["sys"],
        env: &[],
        chapter: Chapter::Chat,
        help: "System prompt",
        more: "",
        act: Value("TEXT", |c, v| {
            c.system = Some(Source::Text(v.str()?.to_owned()));
            Ok(())
        }),
    },
    Flag {
        long: "system-prompt-file",
        also: &[],
        dash: &["sysf"],
        env: &[],
        chapter: Chapter::Chat,
        help: "System prompt from a file, without its last newline",
        more: "",
        act: Value("FILE", |c, v| {
            c.system = Some(Source::File(v.path()?));
            Ok(())
        }),
    },
    Flag {
        long: "single-turn",
        also: &[],
        dash: &["st"],
        env: &[],
        chapter: Chapter::Chat,
        help: "Answer once, then exit",
        more: "",
        act: Set(|c| c.single_turn = true),
    },
    Flag {
        long: "multiline-input",
        also: &[],
        dash: &["mli"],
        env: &[],
        chapter: Chapter::Chat,
        help: "Input may span lines; an empty line sends it",
        more: r"Without it a line is sent as it ends, and a trailing \ continues it.",
        act: Set(|c| c.multiline_input = true),
    },
    Flag {
        long: "chat-template",
        also: &[],
        dash: &[],
        env: &["LLAMA_ARG_CHAT_TEMPLATE"],
        chapter: Chapter::Chat,
        help: "Template by name (chatml, llama3, gemma, ...) or as Jinja text",
        more: "",
        act: Value("NAME|TEXT", |c, v| {
            c.template = TemplateSource::NameOrText(v.str()?.to_owned());
            Ok(())
        }),
    },
    Flag {
        long: "chat-template-file",
        also: &[],
        dash: &[],
        env: &["LLAMA_ARG_CHAT_TEMPLATE_FILE"],
        chapter: Chapter::Chat,
        help: "Template from a file",
        more: "",
        act: Value("FILE", |c, v| {
            c.template = TemplateSource::File(v.path()?);
            Ok(())
        }),
    },
    Flag {
        long: "chat-template-kwargs",
        also: &[],
        dash: &[],
        env: &["LLAMA_ARG_CHAT_TEMPLATE_KWARGS"],
        chapter: Chapter::Chat,
        help: "Extra variables of the template, as a JSON object",
        more: "",
        act: Value("JSON", |c, v| {
            let object: serde_json::Map<_, _> = serde_json::from_str(v.str()?)
                .map_err(|error| format!("not a JSON object: {error}"))?;
            c.template_kwargs.extend(object);
            Ok(())
        }),
    },
    Flag {
        long: "jinja",
        also: &[],
        dash: &[],
        env: &[],
        chapter: Chapter::Chat,
        help: "Render templates as Jinja; always so",
        more: "",
        act: Set(|_| ()),
    },
    Flag {
        long: "reasoning",
        also: &[],
        dash: &["rea"],
        env: &["LLAMA_ARG_REASONING"],
        chapter: Chapter::Chat,
        help: "Thinking on, off or auto, for templates that know it [default: auto]",
        more: "",
        act: Value("MODE", |c, v| {
            c.reasoning = v.switch()?;
            Ok(())
        }),
    },
    Flag {
        long: "reasoning-budget",
        also: &[],
        dash: &[],
        env: &[],
        chapter: Chapter::Chat,
        help: "Tokens of thinking; -1, since there is no limit",
        more: "",
        act: Value("N", |_, v| match v.int(-1..=i64::from(u32::MAX))? {
            -1 => Ok(()),
            _ => Err("emel-run cannot limit thinking; --reasoning off ends it".to_owned()),
        }),
    },
    Flag {
        long: "display-prompt",
        also: &[],
        dash: &[],
        env: &[],
        chapter: Chapter::Display,
        help: "Print the prompt before the answer [default: on]",
        more: "In completion mode only; chat mode never prints it.",
        act: Toggle {
            off: "no-display-prompt",
            off_dash: &[],
            set: |c, on| c.display_prompt = on,
        },
    },
    Flag {
        long: "verbose-prompt",
        also: &[],
        dash: &[],
        env: &[],
        chapter: Chapter::Display,
        help: "Print the prompt's tokens to standard error",
        more: "",
        act: Set(|c| c.verbose_prompt = true),
    },
    Flag {
        long: "special",
        also: &[],
        dash: &["sp"],
        env: &[],
        chapter: Chapter::Display,
        help: "Print control tokens too",
        more: "",
        act: Set(|c| c.special = true),
    },
    Flag {
        long: "color",
        also: &[],
        dash: &["co"],
        env: &[],
        chapter: Chapter::Display,
        help: "Colour: on, off, auto [default: auto]",
        more: "auto: on a terminal, unless NO_COLOR is set.",
        act: Value("MODE", |c, v| {
            c.color = v.switch()?;
            Ok(())
        }),
    },
    Flag {
        long: "simple-io",
        also: &[],
        dash: &[],
        env: &[],
        chapter: Chapter::Display,
        help: "No progress bars, no colour",
        more: "",
        act: Set(|c| c.simple_io = true),
    },
    Flag {
        long: "perf",
        also: &["show-timings"],
        dash: &[],
        env: &[],
        chapter: Chapter::Display,
        help: "Print timings to standard error at the end [default: on]",
        more: "",
        act: Toggle {
            off: "no-perf",
            off_dash: &[],
            set: |c, on| c.timings = on,
        },
    },
    Flag {
        long: "no-show-timings",
        also: &[],
        dash: &[],
        env: &[],
        chapter: Chapter::Display,
        help: "The same as --no-perf",
        more: "",
        act: Set(|c| c.timings = false),
    },
    Flag {
        long: "verbose",
        also: &["log-verbose"],
        dash: &["v"],
        env: &[],
        chapter: Chapter::Display,
        help: "Say everything",
        more: "",
        act: Set(|c| c.verbosity = 5),
    },
    Flag {
        long: "verbosity",
        also: &["log-verbosity"],
        dash: &["lv"],
        env: &["LLAMA_ARG_LOG_VERBOSITY"],
        chapter: Chapter::Display,
        help: "How much to say: 0 (text and failures) to 5 (everything) [default: 3]",
        more: "",
        act: Value("N", |c, v| {
            let level = v.int(0..=i64::from(i32::MAX))?.min(5);
            c.verbosity = u8::try_from(level).map_err(|error| error.to_string())?;
            Ok(())
        }),
    },
    Flag {
        long: "log-disable",
        also: &[],
        dash: &[],
        env: &[],
        chapter: Chapter::Display,
        help: "Say nothing but failures",
        more: "",
        act: Set(|c| c.verbosity = 0),
    },
    Flag {
        long: "output",
        also: &[],
        dash: &["o"],
        env: &[],
        chapter: Chapter::Display,
        help: "Write the transcript to a file too",
        more: "The file appears whole when a reply ends; in a chat it holds the last one.",
        act: Value("FILE", |c, v| {
            c.output = Some(v.path()?);
            Ok(())
        }),
    },
    Flag {
        long: "trace",
        also: &[],
        dash: &[],
        env: &[],
        chapter: Chapter::Display,
        help: "Write a token trace: id, logit and next best of each token",
        more: "The file appears whole when the run ends.",
        act: Value("FILE", |c, v| {
            c.trace = Some(v.path()?);
            Ok(())
        }),
    },
    Flag {
        long: "top-logprobs",
        also: &[],
        dash: &[],
        env: &[],
        chapter: Chapter::Display,
        help: "Next-best tokens on each line of the trace [default: 0]",
        more: "",
        act: Value("N", |c, v| {
            let count = v.int(0..=MAX_LOGPROBS)?;
            c.top_logprobs = usize::try_from(count).map_err(|error| error.to_string())?;
            Ok(())
        }),
    },
    Flag {
        long: "logits-checksum",
        also: &[],
        dash: &[],
        env: &[],
        chapter: Chapter::Display,
        help: "Print checksums of text, token ids and logits to standard error",
        more: "FNV-1a, 64 bits. Equal checksums mean equal bits at every step.",
        act: Set(|c| c.logits_checksum = true),
    },
    Flag {
        long: "tokenize",
        also: &[],
        dash: &[],
        env: &[],
        chapter: Chapter::Tokenize,
        help: "Print the prompt's token ids on one line and exit",
        more: "With -v: one `id -> 'piece'` a line. Works with files that hold a vocabulary \
               alone.",
        act: Set(|c| c.tokenize = true),
    },
    Flag {
        long: "no-bos",
        also: &[],
        dash: &[],
        env: &[],
        chapter: Chapter::Tokenize,
        help: "Without the tokens that the model adds around a text",
        more: "",
        act: Set(|c| c.no_bos = true),
    },
    Flag {
        long: "no-parse-special",
        also: &[],
        dash: &[],
        env: &[],
        chapter: Chapter::Tokenize,
        help: "Take special tokens in the text as plain text",
        more: "",
        act: Set(|c| c.no_parse_special = true),
    },
];

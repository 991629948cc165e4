//! The built-in templates, by the names llama.cpp's `--chat-template` accepts.
//!
//! Each writes the text that llama.cpp's function of the same name writes (`llama-chat.cpp`):
//! no beginning-of-sequence token where that leaves it to the tokenizer, roles passed through
//! where it passes them. The sources are in `builtin/`, one template a file; names that share a
//! text share a file, and small differences are variables set in the line before it.

/// A name, lines that set variables, and the source.
type Entry = (&'static str, &'static str, &'static str);

/// The names, in alphabetical order.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    TEMPLATES.iter().map(|(name, _, _)| *name)
}

/// The source of the template of that name.
pub(super) fn source(name: &str) -> Option<String> {
    let at = TEMPLATES
        .binary_search_by_key(&name, |(known, _, _)| known)
        .ok()?;
    let (_, settings, source) = TEMPLATES[at];
    Some(format!("{settings}{}", source.trim_end()))
}

macro_rules! templates {
    ($($name:literal $(, $settings:literal)? => $file:literal;)*) => {
        &[$(($name, concat!("", $($settings)?), include_str!(concat!("builtin/", $file, ".jinja")))),*]
    };
}

/// Sorted by name.
const TEMPLATES: &[Entry] = templates! {
    "bailing" => "bailing";
    "bailing-think", "{% set think = true %}" => "bailing";
    "bailing2" => "bailing2";
    "chatglm3", "{% set head, gap, open = '[gMASK]sop', '\n ', '' %}" => "glm";
    "chatglm4", "{% set head, gap, open = '[gMASK]<sop>', '\n', '\n' %}" => "glm";
    "chatml" => "chatml";
    "command-r" => "command-r";
    "deepseek" => "deepseek";
    "deepseek-ocr" => "deepseek-ocr";
    "deepseek2", "{% set user, gap, open, space = 'User: ', '\n\n', 'Assistant:', ' ' %}" => "deepseek2";
    "deepseek3", "{% set user, gap, open, space = '<｜User｜>', '', '<｜Assistant｜>', '' %}" => "deepseek2";
    "exaone-moe" => "exaone-moe";
    "exaone3" => "exaone";
    "exaone4", "{% set tools_too = true %}" => "exaone";
    "falcon3", "{% set end = '\n' %}" => "bars";
    "gemma" => "gemma";
    "gigachat" => "gigachat";
    "glmedge", "{% set head, gap, open = '', '\n', '' %}" => "glm";
    "gpt-oss" => "gpt-oss";
    "granite" => "granite";
    "granite-4.0", "{% set call_as_assistant = true %}" => "granite";
    "granite-4.1", "{% set call_as_assistant = true %}" => "granite";
    "grok-2" => "grok-2";
    "hunyuan-dense" => "hunyuan-dense";
    "hunyuan-moe" => "hunyuan-moe";
    "hunyuan-vl" => "hunyuan-vl";
    "kimi-k2" => "kimi-k2";
    "llama2", "{% set pre, post = '', '\n' %}" => "llama2";
    "llama2-sys", "{% set pre, post = '<<SYS>>\n', '\n<</SYS>>\n\n' %}" => "llama2";
    "llama2-sys-bos", "{% set pre, post, bos = '<<SYS>>\n', '\n<</SYS>>\n\n', '<s>' %}" => "llama2";
    "llama2-sys-strip", "{% set pre, post, strip = '<<SYS>>\n', '\n<</SYS>>\n\n', true %}" => "llama2";
    "llama3", "{% set open, shut, end = '<|start_header_id|>', '<|end_header_id|>', '<|eot_id|>' %}" => "llama3";
    "llama4", "{% set open, shut, end = '<|header_start|>', '<|header_end|>', '<|eot|>' %}" => "llama3";
    "megrez" => "megrez";
    "minicpm" => "minicpm";
    "mistral-v1", "{% set before, after = ' ', ' ' %}" => "mistral";
    "mistral-v3", "{% set before, after, strip = '', ' ', true %}" => "mistral";
    "mistral-v3-tekken", "{% set before, after = '', '' %}" => "mistral";
    "mistral-v7", "{% set gap = ' ' %}" => "mistral7";
    "mistral-v7-tekken", "{% set gap = '' %}" => "mistral7";
    "monarch" => "monarch";
    "openchat" => "openchat";
    "orion" => "orion";
    "pangu-embedded" => "pangu";
    "phi3", "{% set end = '<|end|>\n' %}" => "bars";
    "phi4" => "phi4";
    "rwkv-world" => "rwkv";
    "seed_oss" => "seed";
    "smolvlm" => "smolvlm";
    "solar-open" => "solar";
    "vicuna", "{% set pre, post = '', '\n\n' %}" => "vicuna";
    "vicuna-orca", "{% set pre, post = 'SYSTEM: ', '\n' %}" => "vicuna";
    "yandex" => "yandex";
    "zephyr", "{% set end = '<|endoftext|>\n' %}" => "bars";
};

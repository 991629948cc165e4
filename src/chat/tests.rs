//! The language against Python's jinja2, and the limits.

use serde_json::Value as Json;

use super::{
    AbsentTools, ChatError, ChatTemplate, CivilTime, Limits, Message, RenderOptions, SystemRole,
};

fn golden(name: &str) -> Json {
    let path = format!(
        "{}/benchdata/golden/templates/{name}",
        env!("CARGO_MANIFEST_DIR")
    );
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{path}: {e}"))
}

fn pinned<'a>() -> RenderOptions<'a> {
    RenderOptions {
        now: CivilTime::new(2026, 7, 4, 9, 5, 3),
        system: SystemRole::AsIs,
        tools: AbsentTools::Undefined,
        ..Default::default()
    }
}

fn render(source: &str) -> Result<String, ChatError> {
    ChatTemplate::new(source)?.render(&[], pinned())
}

#[test]
fn every_snippet_renders_as_in_python() {
    let golden = golden("dialect.json");
    let variables = golden["variables"].as_object().expect("variables");
    let mut wrong = Vec::new();
    for snippet in golden["snippets"].as_array().expect("snippets") {
        let source = snippet["source"].as_str().expect("source");
        let options = RenderOptions {
            kwargs: variables.clone(),
            ..pinned()
        };
        let got = ChatTemplate::new(source).and_then(|t| t.render(&[], options));
        let fine = match (&got, snippet["text"].as_str(), snippet["raise"].as_str()) {
            (Ok(text), Some(expected), _) => text == expected,
            (Err(ChatError::Raised { message, .. }), _, Some(expected)) => message == expected,
            (Err(ChatError::Syntax { .. } | ChatError::Failed { .. }), None, None) => true,
            _ => false,
        };
        if !fine {
            let want = serde_json::json!({
                "text": snippet["text"], "raise": snippet["raise"], "error": snippet["error"]
            });
            wrong.push(format!("{source}\n  want {want}\n  got  {got:?}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} snippets differ:\n{}",
        wrong.len(),
        wrong.join("\n\n")
    );
}

/// What a template says that cannot be made equal to Python, each with what happens instead:
/// none of them stands in a known chat template.
#[test]
fn known_differences_are_errors_or_harmless() {
    // fails here, works in Python
    for source in [
        "{{ '%s' % 'x' }}",
        "{% macro m(a) %}{{ varargs }}{% endmacro %}{{ m(1, 2) }}",
        "{{ +1 }}",
        "{{ 'a b' | wordcount }}",
        "{{ '{!r}'.format('q') }}",
    ] {
        assert!(
            render(source).is_err(),
            "{source} is no longer a difference"
        );
    }
    // works here, fails in Python
    for source in [
        "{{ 'a' < 1 }}",
        "{{ none < 1 }}",
        "{{ 1 in 'abc' }}",
        "{% do namespace() %}",
    ] {
        assert!(render(source).is_ok(), "{source} is no longer a difference");
    }
}

#[test]
fn failures_name_the_line_and_the_words() {
    let raised =
        render("a\n{% if true %}\n{{ raise_exception('Only ' ~ 2 ~ ' turns') }}\n{% endif %}");
    let expected = ChatError::Raised {
        line: 3,
        message: "Only 2 turns".into(),
    };
    assert_eq!(raised, Err(expected.clone()));
    assert_eq!(
        expected.to_string(),
        "chat template, line 3: the template says: Only 2 turns"
    );
    let in_macro = "{% macro m() %}\n{{ raise_exception('no') }}{% endmacro %}\n\n{{ m() }}";
    assert_eq!(
        render(in_macro),
        Err(ChatError::Raised {
            line: 2,
            message: "no".into()
        })
    );
    for (source, line) in [
        ("x\n{% if %}", 2),
        ("\n\n{{ 'open }}", 3),
        ("\n{{ (1] }}", 2),
        ("{% for x in y %}\n", 1),
        ("{#", 1),
        ("a\n\n{{ 1", 3),
        ("{% raw %}", 1),
        ("\n{{ 1 ? 2 }}", 2),
    ] {
        match ChatTemplate::new(source) {
            Err(ChatError::Syntax { line: got, .. }) => assert!(got >= line, "{source:?}: {got}"),
            other => panic!("{source:?}: {other:?}"),
        }
    }
    match render("1\n2\n{{ missing.name }}") {
        Err(ChatError::Failed { line: 3, .. }) => {}
        other => panic!("{other:?}"),
    }
    // lines survive the rewriting of newlines, escapes and wrapped expressions
    let source = "{{ \"a\\\nb\" ~ 'c' }}\r\n{% set x = [\n1, n] %}\r{{ raise_exception('here') }}";
    assert_eq!(
        render(source),
        Err(ChatError::Raised {
            line: 5,
            message: "here".into()
        })
    );
}

/// Templates that would run for ever or fill the memory.
#[test]
fn runaway_templates_are_stopped() {
    let nest = |body: &str, times: usize| {
        format!(
            "{{% set ns = namespace(x=['aaaaaaaa'], s='aaaaaaaa') %}}\
             {{% for i in range(1000) %}}{{% for j in range({times}) %}}{body}\
             {{% endfor %}}{{% endfor %}}{{{{ ns.x ~ '' }}}}"
        )
    };
    let sources = [
        nest("", 100_000),
        nest("{% set ns.x = [ns.x] %}", 100),
        nest("{% set ns.x = {'a': ns.x} %}", 100),
        nest("{% set ns.x = [ns.x, ns.x] %}", 100),
        nest("{% set ns.x = ns.x + ns.x %}", 100),
        nest("{% set ns.x = ns.x * 2 %}", 100),
        nest("{% set ns.x = ns.x[0:] + ns.x[:1] %}", 1000),
        nest("{% set ns.s = ns.s ~ ns.s %}", 100),
        nest("{% set ns.s = ns.s + ns.s %}", 100),
        nest("{% set ns.s = ns.s | replace('a', ns.s) %}", 100),
        nest("{% set ns.s = ns.s.replace('a', 'aaaaaaaaaa') %}", 100),
        nest("{% set ns.s = ns.s.join([ns.s, ns.s, ns.s]) %}", 100),
        nest("{% set ns.s = ns.s | tojson %}", 100),
        nest("{% set ns.ns = ns %}", 1),
        nest("{% set ns.x = ns.x | map('string') | list %}", 1000),
        "{{ 'a' * 10000000000 }}".into(),
        "{{ [0] * 10000000000 }}".into(),
        "{{ 'a'.center(10000000000) }}".into(),
        "{{ 'a'.zfill(10000000000) }}".into(),
        "{{ '{:>1000000000}'.format('a') }}".into(),
        "{{ 'a\tb'.expandtabs(100000000) }}".into(),
        "{{ '%1000000000d' | format(1) }}".into(),
        "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}".into(),
        "{% macro f(x) %}{{ f([x, x]) }}{% endmacro %}{{ f('a') }}".into(),
        "{% for x in [[1]] recursive %}{{ loop([x, x]) }}{% endfor %}".into(),
        "{% for x in range(100000) %}{{ 'a' * 1000 }}{% endfor %}".into(),
        "{{ range(100000) | map('string') | join('a' * 10000) }}".into(),
    ];
    for source in sources {
        match render(&source) {
            Err(
                ChatError::OutOfFuel { .. }
                | ChatError::OutputTooLong { .. }
                | ChatError::Failed { .. },
            ) => {}
            Ok(text) => panic!("{source}: {} bytes", text.len()),
            Err(other) => panic!("{source}: {other}"),
        }
    }
    assert!(
        matches!(render(&nest("", 100_000)), Err(ChatError::OutOfFuel { fuel, .. }) if fuel >= 2_000_000)
    );
}

/// Sources whose nesting would overflow a stack.
#[test]
fn deep_sources_are_refused_or_render() {
    let many =
        |a: &str, n: usize, mid: &str, b: &str| format!("{}{mid}{}", a.repeat(n), b.repeat(n));
    for n in [10, 60, 149, 1_000, 30_000] {
        let sources = [
            format!("{{{{ {} }}}}", many("(", n, "1", ")")),
            format!("{{{{ {} }}}}", many("[", n, "n", "]")),
            format!("{{{{ {} }}}}", many("not ", n, "1", "")),
            format!("{{{{ {} }}}}", many("-", n, "1", "")),
            format!("{{{{ {} }}}}", many("1 + ", n, "1", "")),
            format!("{{{{ {} }}}}", many("1 ~ ", n, "1", "")),
            format!("{{{{ {} }}}}", many("n and ", n, "1", "")),
            format!("{{{{ {} }}}}", many("n if n else ", n, "1", "")),
            format!("{{{{ {} }}}}", many("", n, "n", "|string")),
            format!("{{{{ {} }}}}", many("", n, "n", "['a']")),
            format!("{{{{ {} }}}}", many("", n, "n", ".a")),
            format!("{{{{ {} }}}}", many("f(", n, "n", ")")),
            many("{% if n %}", n, "x", "{% endif %}"),
            many("{% for x in [1] %}", n, "x", "{% endfor %}"),
            many("{% macro m() %}", n, "x", "{% endmacro %}"),
            format!("{{% if n %}}{}{{% endif %}}", "{% elif n %}".repeat(n)),
            "{% set x = [x] %}".repeat(n) + "{{ x }}",
            "{% set x = x | list %}".repeat(n) + "{{ x }}",
        ];
        for source in sources {
            // any answer will do, as long as it is one
            let answer = render(&source);
            let wrong = matches!(answer, Err(ChatError::Thread(_)));
            assert!(
                !wrong,
                "{n}: {}: {answer:?}",
                &source[..source.len().min(60)]
            );
        }
    }
    let long = " ".repeat((1 << 20) + 1);
    assert!(matches!(
        ChatTemplate::new(&long),
        Err(ChatError::SourceTooLong { .. })
    ));
}

#[test]
fn hostile_input_is_refused() {
    let template = ChatTemplate::new("{{ messages }}").expect("a template");
    let mut deep = Json::Null;
    for _ in 0..500 {
        deep = Json::Array(vec![deep]);
    }
    let messages = serde_json::json!([{ "role": "user", "content": deep }]);
    assert_eq!(
        template.render_json(&messages, pinned()),
        Err(ChatError::InputTooDeep)
    );
    for bad in [serde_json::json!({}), serde_json::json!(["x"]), Json::Null] {
        assert_eq!(
            template.render_json(&bad, pinned()),
            Err(ChatError::NotMessages)
        );
    }
}

#[test]
fn long_conversations_fit_the_default_limits() {
    let text = "word ".repeat(2_000);
    let messages: Vec<Message> = (0..400)
        .map(|i| Message::new(if i % 2 == 0 { "user" } else { "assistant" }, text.as_str()))
        .collect();
    for name in ["chatml", "llama3", "gemma", "mistral-v7"] {
        let out = ChatTemplate::from_name(name)
            .expect(name)
            .render(&messages, pinned());
        assert!(out.expect(name).len() > 400 * text.trim().len(), "{name}");
    }
}

#[test]
fn limits_can_be_set() {
    let small = Limits {
        fuel: 100,
        output: 10,
    };
    let with = |source: &str| {
        ChatTemplate::new(source)
            .expect("a template")
            .with_limits(small)
            .render(&[], pinned())
    };
    let loops = with("{% for i in range(1000) %}{% endfor %}");
    assert!(
        matches!(loops, Err(ChatError::OutOfFuel { line: 1, .. })),
        "{loops:?}"
    );
    assert_eq!(with("{{ 'x' * 10 }}").as_deref(), Ok("xxxxxxxxxx"));
    let long = with("{{ 'x' * 500 }}");
    assert!(
        matches!(long, Err(ChatError::OutputTooLong { .. })),
        "{long:?}"
    );
}

#[test]
fn work_on_large_values_costs_fuel() {
    // Far fewer steps than there is fuel for: what ends these is the size of what they work on.
    // The first ones go through a list, or are tests, or work on an argument or a method that was
    // named before it was called: the engine charges for none of those.
    let works = [
        "{{ lst.index(19999) }}",
        "{{ lst.count(5) }}",
        "{{ lst.copy() is true }}",
        "{{ texts.count(other) }}",
        "{{ texts is eq(others) }}",
        "{{ big is in(others) }}",
        "{{ big is upper }}",
        "{{ big is lower }}",
        "{{ big is eq(other) }}",
        "{{ big is startingwith(other) }}",
        "{{ [other] | select('equalto', big) | list }}",
        "{{ texts | sort | first == 1 }}",
        "{{ texts | unique | length }}",
        "{{ texts | max == 1 }}",
        "{{ pairs.items() is true }}",
        "{{ pairs | dictsort is true }}",
        "{{ pairs.get(big) }}",
        "{{ nothings | join }}",
        "{{ ''.join(nothings) }}",
        "{{ '' | trim(big) }}",
        "{{ ''.strip(big) }}",
        "{{ ''.find(big) }}",
        "{{ '' | replace(big, '') }}",
        "{{ 'a'.startswith(texts_tuple) }}",
        "{{ '{:.0}'.format(lst) }}",
        "{{ blank_strip() }}",
        "{{ big.count('x') }}",
        "{{ big.find('x') }}",
        "{{ big.replace('x', 'y') is true }}",
        "{{ big.split('x') is true }}",
        "{{ big.strip('a') }}",
        "{{ big.startswith(other) }}",
        "{{ big.title() is true }}",
        "{{ big.isalpha() }}",
        "{{ '1'.zfill(500000) is true }}",
        "{{ big | upper is true }}",
        "{{ big | lower is true }}",
        "{{ big | title is true }}",
        "{{ big | int }}",
    ];
    let set = "{% set big = 'ab' * 200000 %}{% set other = ('ab' * 199999) ~ 'ac' %}\
               {% set lst = range(20000) | list %}{% set nothings = [''] * 20000 %}\
               {% set texts = [big, other] * 5 %}{% set others = [other, big] * 5 %}\
               {% set texts_tuple = (other, big, other, big) %}\
               {% set pairs = many %}{% set blank_strip = (' ' * 400000).strip %}";
    let limits = Limits {
        fuel: 300_000,
        ..Limits::default()
    };
    let mut members = serde_json::Map::new();
    for i in 0..2_000 {
        members.insert(format!("k{i}"), i.into());
    }
    let render = |work: &str| {
        let source = format!("{set}{{% for i in range(600) %}}{work}{{% endfor %}}");
        let template = ChatTemplate::new(&source).unwrap_or_else(|e| panic!("{work}: {e}"));
        let mut options = pinned();
        options
            .kwargs
            .insert("many".to_owned(), Json::Object(members.clone()));
        template.with_limits(limits).render(&[], options)
    };
    assert_eq!(render("").as_deref(), Ok(""), "the values themselves");
    let mut ended_otherwise = Vec::new();
    for work in works {
        match render(work) {
            Err(ChatError::OutOfFuel { .. }) => {}
            Ok(_) => ended_otherwise.push((work, "rendered".to_owned())),
            Err(error) => ended_otherwise.push((work, error.to_string())),
        }
    }
    assert!(ended_otherwise.is_empty(), "{ended_otherwise:#?}");
    // the same steps on little cost little
    let small = "{% set big = 'ab' %}{% for i in range(600) %}\
                 {{ big.count('x') }}{{ [1].index(1) }}{{ big is upper }}{% endfor %}";
    let template = ChatTemplate::new(small).expect("a template");
    assert!(template.with_limits(limits).render(&[], pinned()).is_ok());
}

#[test]
fn built_in_templates_write_what_llama_cpp_writes() {
    let golden = golden("builtin.json");
    let conversations: Vec<Vec<(String, String)>> =
        serde_json::from_value(golden["conversations"].clone()).expect("conversations");
    let templates = golden["templates"].as_object().expect("templates");
    let known: Vec<&str> = super::builtin::names().collect();
    assert!(known.is_sorted());
    assert_eq!(
        known,
        templates.keys().map(String::as_str).collect::<Vec<_>>()
    );
    let mut wrong = Vec::new();
    for (name, recorded) in templates {
        let template = ChatTemplate::from_name(name).unwrap_or_else(|e| panic!("{name}: {e}"));
        for (prompt, key) in [(true, "prompt"), (false, "bare")] {
            for (at, conversation) in conversations.iter().enumerate() {
                let messages: Vec<Message> = conversation
                    .iter()
                    .map(|(r, c)| Message::new(r.as_str(), c.as_str()))
                    .collect();
                let options = RenderOptions {
                    add_generation_prompt: prompt,
                    ..pinned()
                };
                let got = template.render(&messages, options);
                let want = recorded[key][at].as_str().expect("a text");
                if got.as_deref() != Ok(want) {
                    wrong.push(format!(
                        "{name} {key} {at}\n  want {want:?}\n  got  {got:?}"
                    ));
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    match ChatTemplate::from_name("nonesuch") {
        Err(error @ ChatError::UnknownName { .. }) => assert!(error.to_string().contains("zephyr")),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_system_message_is_merged_where_the_template_has_no_place_for_it() {
    let raises = "{% for m in messages %}{% if m.role == 'system' %}\
                  {{ raise_exception('System role not supported') }}{% endif %}\
                  [{{ m.role }}]{{ m.content }}{% endfor %}";
    let ignores =
        "{% for m in messages if m.role != 'system' %}[{{ m.role }}]{{ m.content }}{% endfor %}";
    let takes = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}";
    let chat = [
        Message::new("system", "Be brief."),
        Message::new("user", "Hi"),
    ];
    let with = |source: &str, system| {
        let template = ChatTemplate::new(source).expect("a template");
        template.render(&chat, RenderOptions { system, ..pinned() })
    };
    let merged = Ok("[user]Be brief.\nHi".to_owned());
    assert_eq!(with(raises, SystemRole::MergeIfUnsupported), merged);
    assert_eq!(with(ignores, SystemRole::MergeIfUnsupported), merged);
    assert_eq!(with(takes, SystemRole::Merge), merged);
    let kept = Ok("[system]Be brief.[user]Hi".to_owned());
    assert_eq!(with(takes, SystemRole::MergeIfUnsupported), kept);
    assert_eq!(with(ignores, SystemRole::AsIs), Ok("[user]Hi".to_owned()));
    assert!(matches!(
        with(raises, SystemRole::AsIs),
        Err(ChatError::Raised { .. })
    ));
    let alone = ChatTemplate::new(raises).expect("a template");
    assert!(!alone.supports_system());
    let options = RenderOptions {
        system: SystemRole::default(),
        ..pinned()
    };
    assert_eq!(alone.render(&chat[..1], options), Ok(String::new()));
}

#[test]
fn tools_are_none_then_undefined() {
    let strict =
        ChatTemplate::new("{% for t in tools %}{{ t }}{% endfor %}ok").expect("a template");
    let with = |tools| strict.render(&[], RenderOptions { tools, ..pinned() });
    assert!(matches!(
        with(AbsentTools::None),
        Err(ChatError::Failed { .. })
    ));
    assert_eq!(with(AbsentTools::Undefined), Ok("ok".to_owned()));
    assert_eq!(with(AbsentTools::NoneThenUndefined), Ok("ok".to_owned()));
    let tells = ChatTemplate::new("{{ tools is defined }}").expect("a template");
    let options = RenderOptions {
        tools: AbsentTools::default(),
        ..pinned()
    };
    assert_eq!(tells.render(&[], options), Ok("True".to_owned()));
}

#[test]
fn one_beginning_of_sequence_token() {
    use super::needs_bos;
    assert!(!needs_bos("<s>[INST] Hi", "<s>", true));
    assert!(needs_bos("[INST] Hi", "<s>", true));
    assert!(needs_bos("Hi <s>", "<s>", true));
    assert!(!needs_bos("Hi", "<s>", false));
    assert!(needs_bos("Hi", "", true));
}

#[test]
fn deltas_feed_what_is_new() {
    use super::{Conversation, Delta, delta};
    assert_eq!(
        delta("", "abc"),
        Delta {
            keep: 0,
            feed: "abc"
        }
    );
    assert_eq!(delta("ab", "abc"), Delta { keep: 2, feed: "c" });
    assert_eq!(delta("abX", "abc"), Delta { keep: 2, feed: "c" });
    assert_eq!(delta("abc", "ab"), Delta { keep: 2, feed: "" });
    // é and è share their first byte
    assert_eq!(
        delta("aé", "aè"),
        Delta {
            keep: 1, feed: "è"
        }
    );

    // a template that drops past reasoning makes the model forget it
    let source = "{% for m in messages %}<{{ m.role }}>{{ m.content.split('</think>')[-1] }}\
                  {% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";
    let template = ChatTemplate::new(source).expect("a template");
    let mut chat = Conversation::new(
        &template,
        RenderOptions {
            add_generation_prompt: true,
            ..pinned()
        },
    );
    chat.push(Message::new("system", "S"));
    let first = chat.turn(Message::new("user", "one")).expect("a text");
    assert_eq!(
        (first.keep, first.feed.as_str()),
        (0, "<system>S<user>one<assistant>")
    );
    chat.replied("<think>hm</think>1", "");
    let second = chat.turn(Message::new("user", "two")).expect("a text");
    assert_eq!(
        (second.keep, second.feed.as_str()),
        (first.feed.len(), "1<user>two<assistant>")
    );
    assert!(second.keep < second.seen);
    assert_eq!(chat.undo().as_deref(), Some("two"));
    assert_eq!(chat.messages().len(), 3);
    let again = chat.turn(Message::new("user", "three")).expect("a text");
    assert_eq!(again.feed, "hree<assistant>");
    assert_eq!(
        chat.seen(),
        "<system>S<user>one<assistant>1<user>three<assistant>"
    );
    chat.clear();
    assert!(chat.messages().is_empty() && chat.seen().is_empty());
}

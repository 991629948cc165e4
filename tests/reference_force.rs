//! The request `force` of the llama.cpp backend: fed the tokens that a run chose, it must give that
//! run's logits bit by bit, and tensors that are what they are called. As in
//! `reference_backend.rs`, recorded answers stand in for a program that is not built, and
//! `EMEL_BLESS=1` records them anew.

mod common;
#[path = "common/reference.rs"]
mod reference;

use common::{GEMMA3, SMOLLM2, model};
use emel::bench::protocol::{Forced, Loaded, Ran};
use emel::gguf::Gguf;
use emel::model::Point;
use emel::trace::checksum::Fnv64;
use reference::{Backend, bless, check_error, done, golden, program};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use tempfile::{TempDir, tempdir};

const TEXT: &str = "<|im_start|>user\nName a colour.<|im_end|>\n<|im_start|>assistant\n";
const TOKENS: usize = 8;
const N_VOCAB: usize = 49152;

/// A running backend with a model, and a folder for what it writes.
struct Session {
    backend: Backend,
    folder: TempDir,
}

impl Session {
    fn start(program: &Path, name: &str, n_ubatch: usize) -> Session {
        let folder = tempdir().unwrap();
        let mut backend = Backend::start(program);
        let load = json!({"op": "load", "model": model(name), "threads": 2, "threads_batch": 1,
            "n_ctx": 64, "n_ubatch": n_ubatch,
            "options": {"flash_attention": true, "repack": true}});
        let _: Loaded = done(&backend.ask(&load.to_string()));
        Session { backend, folder }
    }

    fn run(&mut self, text: &str, tokens: usize) -> Ran {
        let run = json!({"op": "run", "text": text, "prompt_tokens": null, "max_tokens": tokens,
            "stop": "limit", "observe": true, "trace": null});
        done(&self.backend.ask(&run.to_string()))
    }

    /// The answer, and what is in the files.
    fn force(&mut self, ids: &[u32], prompt: usize, shown: bool) -> (Forced, Vec<u8>, Vec<u8>) {
        let [logits, tensors] = ["logits", "tensors"].map(|name| self.folder.path().join(name));
        let request = json!({"op": "force", "ids": ids, "prompt": prompt, "logits": logits,
            "tensors": shown.then_some(&tensors)});
        let forced = done(&self.backend.ask(&request.to_string()));
        let take = |path| {
            let bytes = std::fs::read(path).unwrap();
            std::fs::remove_file(path).unwrap();
            bytes
        };
        let logits = take(&logits);
        let tensors = if shown {
            take(&tensors)
        } else {
            assert!(!tensors.exists());
            Vec::new()
        };
        (forced, logits, tensors)
    }
}

fn sum(bytes: &[u8]) -> String {
    let mut sum = Fnv64::new();
    sum.update(bytes);
    sum.to_string()
}

/// One `force`.
#[derive(Serialize, Deserialize)]
struct Piece {
    rows: usize,
    n_vocab: usize,
    /// Layer, point and length, as listed.
    tensors: Vec<(Option<usize>, String, usize)>,
    logits_bytes: usize,
    logits_checksum: String,
    tensors_bytes: usize,
    tensors_checksum: String,
}

impl Piece {
    fn new((forced, logits, tensors): &(Forced, Vec<u8>, Vec<u8>)) -> Piece {
        let places = forced.tensors.iter();
        Piece {
            rows: forced.rows,
            n_vocab: forced.n_vocab,
            tensors: places
                .map(|place| (place.layer, place.point.clone(), place.len))
                .collect(),
            logits_bytes: logits.len(),
            logits_checksum: sum(logits),
            tensors_bytes: tensors.len(),
            tensors_checksum: sum(tensors),
        }
    }
}

/// A run, and its tokens forced in several ways.
#[derive(Serialize, Deserialize)]
struct Story {
    ran: Ran,
    /// All at once.
    whole: Piece,
    /// The same, with tensors.
    shown: Piece,
    /// The prompt, two tokens, and the rest with tensors.
    parts: Vec<Piece>,
    /// Of all their logits.
    parts_checksum: String,
    /// The prompt alone, with tensors, in one physical batch.
    prompt: Piece,
}

fn story() -> Story {
    let Some(program) = program() else {
        eprintln!("the reference is not built: checking recorded answers");
        let text = std::fs::read_to_string(golden("force.json")).unwrap();
        return serde_json::from_str(&text).unwrap();
    };
    let mut session = Session::start(&program, SMOLLM2, 64);
    let ran = session.run(TEXT, TOKENS);
    let n_prompt = ran.prompt_ids.len();
    let ids = forced_ids(&ran);
    let whole = session.force(&ids, n_prompt, false);
    let shown = session.force(&ids, n_prompt, true);
    let parts = [
        session.force(&ids[..n_prompt], n_prompt, false),
        session.force(&ids[n_prompt..n_prompt + 2], 0, false),
        session.force(&ids[n_prompt + 2..], 0, true),
    ];
    let joined: Vec<u8> = parts.iter().flat_map(|part| part.1.clone()).collect();
    let prompt = session.force(&ids[..n_prompt], n_prompt, true);
    let story = Story {
        ran,
        whole: Piece::new(&whole),
        shown: Piece::new(&shown),
        parts: parts.iter().map(Piece::new).collect(),
        parts_checksum: sum(&joined),
        prompt: Piece::new(&prompt),
    };
    bless(
        "force.json",
        &(serde_json::to_string(&story).unwrap() + "\n"),
    );
    story
}

/// The prompt and what was chosen, but for the last: nothing is chosen after it.
fn forced_ids(ran: &Ran) -> Vec<u32> {
    let mut ids = ran.prompt_ids.clone();
    ids.extend(&ran.ids[..ran.ids.len() - 1]);
    ids
}

/// What SmolLM2 must show.
fn smollm2_tensors() -> Vec<(Option<usize>, String, usize)> {
    let len = |point| match point {
        Point::Key | Point::Value => 3 * 64,
        Point::FfnHidden => 1536,
        _ => 576, // d_model, and 9 heads of 64
    };
    let place = |layer, point: Point| (layer, point.name().to_owned(), len(point));
    let mut places = vec![place(None, Point::Embedding)];
    for layer in 0..30 {
        let points = &Point::ALL[1..Point::ALL.len() - 1];
        places.extend(points.iter().map(|&point| place(Some(layer), point)));
    }
    places.push(place(None, Point::OutputNorm));
    places
}

#[test]
fn forced_tokens_give_the_logits_of_the_run_that_chose_them() {
    let story = story();
    let wanted = story.ran.logits_checksum.as_deref().unwrap();
    for (piece, name) in [(&story.whole, "plain"), (&story.shown, "with tensors")] {
        assert_eq!((piece.rows, piece.n_vocab), (TOKENS, N_VOCAB), "{name}");
        assert_eq!(piece.logits_bytes, TOKENS * N_VOCAB * 4, "{name}");
        assert_eq!(piece.logits_checksum, wanted, "{name}");
    }
    let rows: Vec<usize> = story.parts.iter().map(|part| part.rows).collect();
    assert_eq!(rows, [1, 2, TOKENS - 3]);
    assert_eq!(story.parts_checksum, wanted);

    assert!(story.whole.tensors.is_empty() && story.parts[1].tensors.is_empty());
    let tensors = smollm2_tensors();
    let bytes: usize = tensors.iter().map(|(_, _, len)| len * 4).sum();
    for piece in [&story.shown, &story.parts[2], &story.prompt] {
        assert_eq!(piece.tensors, tensors);
        assert_eq!(piece.tensors_bytes, bytes);
    }
    assert_eq!(
        story.shown.tensors_checksum,
        story.parts[2].tensors_checksum
    );
    assert_ne!(story.shown.tensors_checksum, story.prompt.tensors_checksum);
    assert_eq!(story.prompt.logits_checksum, story.parts[0].logits_checksum);
}

/// Recorded tensors, by layer and point.
type Tensors = BTreeMap<(Option<usize>, Point), Vec<f32>>;

fn tensors(forced: &Forced, bytes: &[u8]) -> Tensors {
    let mut values = bytes
        .chunks_exact(4)
        .map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()));
    let tensors = forced
        .tensors
        .iter()
        .map(|place| {
            let point = place.point.parse().unwrap();
            (
                (place.layer, point),
                values.by_ref().take(place.len).collect(),
            )
        })
        .collect();
    assert_eq!(values.next(), None);
    tensors
}

/// Checks what can be computed of one tensor from another.
fn check_tensors(gguf: &Gguf, tensors: &Tensors) {
    let metadata = gguf.metadata();
    let architecture = metadata.require_str("general.architecture").unwrap();
    let key = |name: &str| format!("{architecture}.{name}");
    let eps = metadata.require_f32(&key("attention.layer_norm_rms_epsilon"));
    let eps = eps.unwrap();
    let n_layer = metadata.require_u32(&key("block_count")).unwrap() as usize;
    let norm = |name: &str, x: &[f32]| -> Option<Vec<f32>> {
        let weights = gguf.data(gguf.find(name)?).chunks_exact(4);
        let weights = weights.map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()));
        let mean = x.iter().map(|x| x * x).sum::<f32>() / x.len() as f32;
        let scale = 1.0 / (mean + eps).sqrt();
        Some(x.iter().zip(weights).map(|(x, w)| x * scale * w).collect())
    };
    let get = |layer: Option<usize>, point: Point| tensors[&(layer, point)].as_slice();
    let mut input = get(None, Point::Embedding);
    for layer in 0..n_layer {
        let name = |name: &str| format!("blk.{layer}.{name}.weight");
        let at = |point: Point| get(Some(layer), point);
        let what = |point: Point| format!("layer {layer}, {point}");
        let normed = norm(&name("attn_norm"), input).unwrap();
        check_close(at(Point::AttnNorm), &normed, &what(Point::AttnNorm));
        let residual = at(Point::AttnResidual);
        assert_ne!(residual, input, "layer {layer}");
        let normed = norm(&name("ffn_norm"), residual).unwrap();
        check_close(at(Point::FfnNorm), &normed, &what(Point::FfnNorm));
        let out = at(Point::FfnOut);
        let out = norm(&name("post_ffw_norm"), out).unwrap_or(out.to_vec());
        let sum: Vec<f32> = residual.iter().zip(&out).map(|(a, b)| a + b).collect();
        check_close(at(Point::LayerOut), &sum, &what(Point::LayerOut));
        input = at(Point::LayerOut);
    }
    let normed = norm("output_norm.weight", input).unwrap();
    check_close(get(None, Point::OutputNorm), &normed, "output_norm");
}

fn check_close(left: &[f32], right: &[f32], what: &str) {
    assert_eq!(left.len(), right.len(), "{what}");
    let largest = right.iter().fold(0.0f32, |most, x| most.max(x.abs()));
    let pairs = left.iter().zip(right).map(|(a, b)| (a - b).abs());
    let apart = pairs.fold(0.0f32, f32::max);
    assert!(
        largest > 0.0 && apart <= 1e-3 * largest,
        "{what}: {apart} apart, of {largest}"
    );
}

#[test]
fn tensors_are_what_they_are_called() {
    let Some(program) = program() else {
        eprintln!("the reference is not built: there are no tensors to check");
        return;
    };
    for (name, n_head, n_head_kv, ids) in [
        (
            SMOLLM2,
            9,
            3,
            [1, 4093, 198, 5820, 253, 7302, 30, 2, 198, 1],
        ),
        (
            GEMMA3,
            4,
            1,
            [2, 9259, 1902, 108, 818, 5279, 529, 7001, 563, 496],
        ),
    ] {
        let gguf = Gguf::open(&model(name)).unwrap();
        // Two physical batches, and the second has fewer tokens.
        let mut session = Session::start(&program, name, 6);
        let (forced, _, bytes) = session.force(&ids, ids.len(), true);
        check_tensors(&gguf, &tensors(&forced, &bytes));
        let (forced, _, bytes) = session.force(&ids, 3, true);
        check_tensors(&gguf, &tensors(&forced, &bytes));

        // The first token attends to itself alone.
        let (forced, _, bytes) = session.force(&ids[..1], 1, true);
        let tensors = tensors(&forced, &bytes);
        check_tensors(&gguf, &tensors);
        for ((layer, point), attended) in &tensors {
            if *point == Point::Attended {
                let values = &tensors[&(*layer, Point::Value)];
                let head_dim = values.len() / n_head_kv;
                let repeated: Vec<f32> = values
                    .chunks_exact(head_dim)
                    .flat_map(|head| head.repeat(n_head / n_head_kv))
                    .collect();
                check_close(attended, &repeated, &format!("{layer:?}, attended"));
            }
        }
    }
}

/// Requests that cannot be met by a session without a context, and what the answer must say.
const HOSTILE: &[(&str, &str)] = &[
    (r#""prompt":1,"logits":"FOLDER/l""#, "'ids' is missing"),
    (
        r#""ids":[],"prompt":0,"logits":"FOLDER/l""#,
        "'ids' is empty",
    ),
    (
        r#""ids":7,"prompt":1,"logits":"FOLDER/l""#,
        "must be an array",
    ),
    (
        r#""ids":[1,-1],"prompt":1,"logits":"FOLDER/l""#,
        "at index 1",
    ),
    (
        r#""ids":[1,49152],"prompt":1,"logits":"FOLDER/l""#,
        "below 49152",
    ),
    (
        r#""ids":[1.5],"prompt":1,"logits":"FOLDER/l""#,
        "at index 0",
    ),
    (r#""ids":[[]],"prompt":1,"logits":"FOLDER/l""#, "at index 0"),
    (
        r#""ids":[18446744073709551615],"prompt":1,"logits":"FOLDER/l""#,
        "at index 0",
    ),
    (r#""ids":[1,2],"logits":"FOLDER/l""#, "'prompt' is missing"),
    (
        r#""ids":[1,2],"prompt":3,"logits":"FOLDER/l""#,
        "'prompt' must be an integer from 0 to 2",
    ),
    (r#""ids":[1,2],"prompt":1"#, "'logits' is missing"),
    (
        r#""ids":[1,2],"prompt":1,"logits":"FOLDER/l","tensors":7"#,
        "'tensors' must be a string",
    ),
    (
        r#""ids":[1,2],"prompt":1,"logits":"FOLDER/l","tensors":"FOLDER/l""#,
        "name one file",
    ),
    (
        r#""ids":[1,2],"prompt":1,"logits":"FOLDER/no/l""#,
        "cannot write FOLDER/no/l",
    ),
    (
        r#""ids":[1,2],"prompt":1,"logits":"FOLDER""#,
        "something is there that is no file",
    ),
    (
        r#""ids":[1,2],"prompt":1,"logits":"/dev/full""#,
        "something is there that is no file",
    ),
    (
        r#""ids":[1,2],"prompt":1,"logits":"FOLDER/l","tensors":"FOLDER/no/t""#,
        "cannot write FOLDER/no/t",
    ),
    (
        r#""ids":[IDS],"prompt":65,"logits":"FOLDER/l""#,
        "there are 65 tokens, the context holds 64",
    ),
    (
        r#""ids":[IDS],"prompt":1,"logits":"FOLDER/l""#,
        "there are 65 tokens, the context holds 64",
    ),
    (
        r#""ids":[1],"prompt":0,"logits":"FOLDER/l""#,
        "nothing to go on from",
    ),
];

#[test]
fn hostile_requests_are_answered_with_errors() {
    let Some(program) = program() else {
        eprintln!("the reference is not built: checking recorded errors");
        let text = std::fs::read_to_string(golden("force_errors.jsonl")).unwrap();
        let answers: Vec<&str> = text.lines().collect();
        assert_eq!(answers.len(), HOSTILE.len());
        for ((request, wanted), answer) in HOSTILE.iter().zip(answers) {
            check_error(request, wanted, answer);
        }
        return;
    };
    let mut session = Session::start(&program, SMOLLM2, 64);
    let folder = session.folder.path().to_str().unwrap().to_owned();
    let answers = hostile(&mut session, &folder);
    bless("force_errors.jsonl", &answers);

    // None of them forgets what was forced, but for a run and a load.
    let (_, wanted, _) = session.force(&[1, 2, 3], 2, false);
    session.force(&[1, 2], 2, false);
    let last = HOSTILE.len() - 1; // which can be met now
    for (request, wanted) in &HOSTILE[..last] {
        refused(&mut session, request, wanted, &folder);
    }
    let ids = vec!["1"; 63].join(",");
    let full = format!(r#""ids":[{ids}],"prompt":0,"logits":"FOLDER/l""#);
    refused(&mut session, &full, "there are 65 tokens", &folder);
    let (_, row, _) = session.force(&[3], 0, false);
    assert!(wanted.ends_with(&row) && row.len() == N_VOCAB * 4);
    session.run("a", 1);
    let (request, wanted) = HOSTILE[last];
    refused(&mut session, request, wanted, &folder);
    // A context can be filled to its end, and no further.
    let (forced, ..) = session.force(&[1; 64], 60, false);
    assert_eq!(forced.rows, 5);
    refused(&mut session, request, "there are 65 tokens", &folder);
    let left: Vec<_> = std::fs::read_dir(&folder).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Sends them all; the answers, without the folder's name.
fn hostile(session: &mut Session, folder: &str) -> String {
    let mut answers = String::new();
    for (request, wanted) in HOSTILE {
        answers += &refused(session, request, wanted, folder).to_string();
        answers.push('\n');
    }
    answers
}

fn refused(session: &mut Session, request: &str, wanted: &str, folder: &str) -> String {
    let ids = vec!["1"; 65].join(",");
    let request = request.replace("FOLDER", folder).replace("IDS", &ids);
    let answer = session
        .backend
        .ask(&format!(r#"{{"op":"force",{request}}}"#));
    let answer = answer.replace(folder, "FOLDER");
    check_error(&request, wanted, &answer);
    without_process_id(&answer)
}

/// The name of a file in the making holds the process's number.
fn without_process_id(answer: &str) -> String {
    let Value::Object(fields) = serde_json::from_str(answer).unwrap() else {
        panic!("{answer}");
    };
    let error = fields["error"].as_str().unwrap();
    let digits = |text: &str| {
        text.trim_start_matches(|c: char| c.is_ascii_digit())
            .to_owned()
    };
    let error = match error.split_once(".partial-") {
        Some((before, after)) => format!("{before}.partial-1{}", digits(after)),
        None => error.to_owned(),
    };
    json!({ "error": error }).to_string()
}

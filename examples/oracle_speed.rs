//! Throwaway.
use emel::{
    gguf::Gguf,
    model,
    oracle::{Oracle, Want},
};
fn main() {
    let mut args = std::env::args().skip(1);
    let path = args.next().unwrap();
    let n: u32 = args.next().unwrap().parse().unwrap();
    let threads: usize = args.next().unwrap().parse().unwrap();
    let gguf = Gguf::open(path.as_ref()).unwrap();
    let model = model::bind(&gguf).unwrap();
    let tokens: Vec<u32> = (0..n).map(|i| 5 + (i * 97) % 3000).collect();
    for _ in 0..3 {
        let mut oracle = Oracle::new(&gguf, &model).unwrap().with_threads(threads);
        let begun = std::time::Instant::now();
        let logits = oracle.prefill(&tokens, Want::Last).unwrap();
        let s = begun.elapsed().as_secs_f64();
        println!(
            "{n} tokens, {threads} threads: {:.2} s, {:.1} tokens/s, logit {}",
            s,
            f64::from(n) / s,
            logits[0][0]
        );
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    println!(
        "{}",
        status.lines().find(|l| l.starts_with("VmHWM")).unwrap()
    );
}

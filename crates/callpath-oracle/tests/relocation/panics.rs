//! Panics that clean up, are caught, continue, and pass other threads.
use std::panic::{catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

static CLEANED: AtomicUsize = AtomicUsize::new(0);
struct Cleaned(usize);
impl Drop for Cleaned {
    fn drop(&mut self) {
        CLEANED.fetch_add(self.0, Ordering::Relaxed);
    }
}

#[inline(never)]
fn deep(n: usize, words: &[String]) -> usize {
    let _cleaned = Cleaned(n);
    if n == 0 {
        return words[words.len() + 3].len();
    }
    deep(n - 1, words) + words[n % words.len()].len()
}

fn main() {
    std::panic::set_hook(Box::new(|_| {}));
    let words: Vec<String> = (0..9).map(|n| "w".repeat(n)).collect();
    let mut caught = 0;
    for n in 0..60 {
        let result = catch_unwind(|| deep(n, &words));
        let again = catch_unwind(std::panic::AssertUnwindSafe(|| result.unwrap_or_else(|panic| resume_unwind(panic))));
        caught += usize::from(again.is_err());
    }
    let threads: Vec<_> = (0..4).map(|n| std::thread::spawn(move || deep(n, &["x".to_owned()]))).collect();
    let ended = threads.into_iter().map(|thread| thread.join()).filter(|ended| ended.is_err()).count();
    let text: Result<String, _> = catch_unwind(|| panic!("text {}", std::hint::black_box(7)));
    let text = text.unwrap_err().downcast::<String>().unwrap();
    println!("{caught} caught, {ended} threads, cleaned {}, {text}", CLEANED.load(Ordering::Relaxed));
}

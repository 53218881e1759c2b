//! Tasks in a row: each adds to the numbers that it gets and sends them on.

use tokio::sync::mpsc;

fn weigh(number: u64) -> u64 {
    (0..200).fold(number, |sum, i| sum.rotate_left(5) ^ sum.wrapping_mul(31).wrapping_add(i))
}

async fn stage(mut from: mpsc::Receiver<u64>, to: mpsc::Sender<u64>) {
    while let Some(number) = from.recv().await {
        if to.send(weigh(number)).await.is_err() {
            return;
        }
    }
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let rounds: u64 = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(100);
    let (first, mut from) = mpsc::channel(64);
    for _ in 0..20 {
        let (to, next) = mpsc::channel(64);
        tokio::spawn(stage(from, to));
        from = next;
    }
    tokio::spawn(async move {
        for number in 0..rounds * 1000 {
            if first.send(number).await.is_err() {
                return;
            }
        }
    });
    let mut sum = 0u64;
    while let Some(number) = from.recv().await {
        sum = sum.wrapping_add(number);
    }
    println!("{sum}");
}

//! Iterator chains: inlined calls, many deep.
fn main() {
    let mut lengths: Vec<u32> = std::env::args().map(|argument| argument.len() as u32).collect();
    lengths.sort();
    println!("{}", lengths.iter().map(|length| length * 2).filter(|twice| twice % 3 == 0).sum::<u32>());
}

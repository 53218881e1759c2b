//! Rust: ranges, iterators and closures, all of whose loops are tested by inlined code.
#![no_std]

unsafe extern "C" {
    safe fn out(value: usize) -> bool;
}

#[unsafe(no_mangle)]
pub fn ranges(n: usize) {
    for i in 0..n { //@ loop range: ranges
        out(i);
        for j in i..n { //@ loop inner: ranges > range
            out(j);
        }
    }
}

#[unsafe(no_mangle)]
pub fn slices(values: &[usize]) {
    for value in values { //@ loop slice: slices
        out(*value);
    }
    let mut at = 0;
    while out(at) { //@ loop while: slices
        at += 1;
        out(at + 1);
    }
}

#[unsafe(no_mangle)]
pub fn forever(mut n: usize) {
    loop { //@ O0 loop forever: forever
        out(n); //@ O1+ loop forever: forever
        if out(n + 1) {
            break;
        }
        n += 1;
    }
}

#[inline(always)]
fn each(n: usize, call: impl Fn(usize)) {
    for i in 0..n { //@ loop each: calls > rows > each()
        call(i); //@ O1+ !few inlined {closure#0}: calls > rows > each() > each
    }
}

#[unsafe(no_mangle)]
pub fn calls(values: &[usize]) {
    for value in values { //@ loop rows: calls
        each(*value, |i| _ = out(i + 1)); //@ inlined each: calls > rows
        out(*value);
    }
}

#[unsafe(no_mangle)]
pub fn chained(values: &[usize]) -> usize {
    let mut total = 0;
    for (at, value) in values.iter().enumerate() { //@ loop chained: chained
        if out(at) {
            continue;
        }
        total += value ^ at;
        out(total);
    }
    total
}

#[unsafe(no_mangle)]
pub fn labelled(n: usize) {
    'outer: for i in 0..n { //@ loop outer: labelled
        for j in 0..i { //@ loop labels: labelled > outer
            if out(j) {
                continue 'outer;
            }
            if out(j + 1) {
                break 'outer;
            }
        }
        out(i);
    }
}

//! Typical matches of programs.
#![crate_type = "lib"]
#![no_std]

unsafe extern "C" {
    safe fn out(value: i32) -> i32;
    safe fn inp() -> i32;
}

#[unsafe(no_mangle)]
pub extern "C" fn dense(value: u8) -> i32 {
    match value {
        0 => out(7) + 1,
        1 => out(3) * 2,
        2 => inp(),
        3 => out(11) - 4,
        4 => out(inp()),
        6 => inp() * 3,
        7 => out(1) + inp(),
        8 => 0,
        _ => out(100),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn in_a_loop(code: &[u8; 64], mut sum: i32) -> i32 {
    for byte in code {
        sum = match byte & 7 {
            0 => sum + out(1),
            1 => sum - inp(),
            2 => sum * out(3),
            3 => sum ^ out(sum),
            4 => return inp(),
            5 => out(inp()),
            6 => sum.wrapping_add(inp() + out(2)),
            _ => sum & inp(),
        };
    }
    sum
}

pub enum Kind {
    A,
    B,
    C(i32),
    D,
    E(u64),
    F,
}

#[unsafe(no_mangle)]
pub fn of_kind(kind: &Kind, value: i64) -> i32 {
    match kind {
        Kind::A => out(1),
        Kind::B => inp() * 2,
        Kind::C(by) => out(*by) + inp(),
        Kind::D => match value {
            -3 => out(1) + 8,
            -2 => inp() + 9,
            -1 => out(3) * 7,
            0 => inp() - out(5),
            1 => out(in_a_loop(&[0; 64], 3)),
            2 => 5 + out(8),
            _ => 0,
        },
        Kind::E(by) => out(*by as i32) - inp(),
        Kind::F => inp() / 3,
    }
}

//! Inputs of the programs, the same bytes on every machine.

use std::fmt::Write;

/// A position after the opening, so that no book answers.
pub const CHESS: &str = "r1bq1rk1/pp2bppp/2n1pn2/2pp4/3P1B2/2PBPN2/PP1N1PPP/R2QK2R w KQ - 0 8";

pub const PYTHON: &str = include_str!("inputs/bench.py");
pub const PERL: &str = include_str!("inputs/bench.pl");
pub const NUMPY: &str = include_str!("inputs/blas.py");
pub const SCENE: &str = include_str!("inputs/scene.pov");
pub const XSL: &str = include_str!("inputs/report.xsl");

/// xorshift64*: the same numbers everywhere.
pub struct Numbers(u64);

impl Numbers {
    /// `seed`: not 0.
    pub fn new(seed: u64) -> Numbers {
        let mut numbers = Numbers(seed);
        // Small seeds have few bits.
        (0..16).for_each(|_| _ = numbers.next());
        numbers
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// Text of made-up words, the frequent ones short, of about `len` bytes; it compresses as prose does.
pub fn text(len: usize) -> Vec<u8> {
    let mut numbers = Numbers(0x1234_5678_9abc_def1);
    let words: Vec<Vec<u8>> = (0..6000)
        .map(|rank| (0..2 + rank / 900 + numbers.below(5)).map(|_| b'a' + numbers.below(26) as u8).collect())
        .collect();
    let mut text = Vec::with_capacity(len + 16);
    while text.len() < len {
        // The product of two draws favours the first words.
        let rank = numbers.below(6000) * numbers.below(6000) / 6000;
        text.extend_from_slice(&words[rank as usize]);
        text.push(if numbers.below(12) == 0 { b'\n' } else { b' ' });
    }
    text
}

/// Bytes that do not compress.
pub fn noise(len: usize) -> Vec<u8> {
    let mut numbers = Numbers(0xdead_beef_1234);
    (0..len).map(|_| numbers.below(256) as u8).collect()
}

/// A script that fills, indexes and joins tables of so many rows.
pub fn sql(rows: u32) -> String {
    format!(
        "PRAGMA cache_size=-65536;
        CREATE TABLE item(id INTEGER PRIMARY KEY, family INTEGER, price INTEGER, name TEXT);
        WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<{rows})
        INSERT INTO item SELECT i, (i*7919)%1009, (i*104729)%99991, printf('item-%06x', (i*2654435761)%16777216) FROM n;
        CREATE INDEX by_family ON item(family, price);
        SELECT family, count(*), avg(price), max(name) FROM item GROUP BY family ORDER BY 3 DESC LIMIT 5;
        SELECT count(*) FROM item a JOIN item b ON b.family=a.family AND b.price BETWEEN a.price-40 AND a.price+40;
        SELECT sum(length(replace(name,'a','bb'))) FROM item WHERE name LIKE '%7%f%';
        SELECT name FROM item ORDER BY substr(name, 8) || name LIMIT 3;\n"
    )
}

const AMINO_ACIDS: &[u8] = b"ACDEFGHIKLMNPQRSTVWY";

/// A Stockholm alignment of a made-up family.
pub fn alignment() -> String {
    let mut numbers = Numbers(77);
    let ancestor: Vec<u8> = (0..180).map(|_| AMINO_ACIDS[numbers.below(20) as usize]).collect();
    let mut text = String::from("# STOCKHOLM 1.0\n\n");
    for member in 0..20 {
        let row: String = ancestor
            .iter()
            .map(|acid| if numbers.below(4) == 0 { AMINO_ACIDS[numbers.below(20) as usize] } else { *acid } as char)
            .collect();
        writeln!(text, "seq{member:02} {row}").expect("a String takes all");
    }
    text + "//\n"
}

/// Made-up proteins in FASTA.
pub fn proteins(count: usize) -> String {
    let mut numbers = Numbers(99);
    let mut text = String::new();
    for index in 0..count {
        writeln!(text, ">protein{index}").expect("a String takes all");
        for _ in 0..200 + numbers.below(400) {
            text.push(AMINO_ACIDS[numbers.below(20) as usize] as char);
        }
        text.push('\n');
    }
    text
}

/// Orders, each with a few items.
pub fn xml(orders: u32) -> String {
    let mut numbers = Numbers(5);
    let mut text = String::from("<?xml version=\"1.0\"?>\n<orders>\n");
    for id in 0..orders {
        write!(text, "<order id=\"{id}\" customer=\"c{}\">", numbers.below(500)).expect("a String takes all");
        for _ in 0..3 + numbers.below(4) {
            let (price, name) = (numbers.below(9000), numbers.below(300));
            write!(text, "<item price=\"{price}\"><name>thing {name}</name></item>").expect("a String takes all");
        }
        text.push_str("</order>\n");
    }
    text + "</orders>\n"
}

/// A stylesheet with a chain of so many variables, each of which xalan computes within the one before, some
/// eight frames deeper; the last one takes time.
pub fn deep_xsl(variables: u32) -> String {
    let mut text = format!(
        "<?xml version=\"1.0\"?>\n<xsl:stylesheet version=\"1.0\" xmlns:xsl=\"http://www.w3.org/1999/XSL/Transform\">\n\
         <xsl:output method=\"text\"/>\n<xsl:template match=\"/\"><xsl:value-of select=\"$v{variables}\"/></xsl:template>\n"
    );
    for variable in (1..=variables).rev() {
        let next = variable - 1;
        writeln!(text, "<xsl:variable name=\"v{variable}\" select=\"$v{next} + {variable}\"/>")
            .expect("a String takes all");
    }
    text + "<xsl:variable name=\"v0\" select=\"count(/orders/order[not(@id = \
            /orders/order[position() &lt; 400]/item/name)])\"/>\n</xsl:stylesheet>\n"
}

/// C++ that instantiates so many maps, sorts and streams from the standard library.
pub fn cpp(variants: u32) -> String {
    let mut text = String::from(
        "#include <algorithm>\n#include <functional>\n#include <iostream>\n#include <map>\n\
         #include <sstream>\n#include <string>\n#include <unordered_map>\n#include <vector>\n",
    );
    for index in 0..variants {
        write!(
            text,
            "struct K{index} {{ int a; std::string b; bool operator<(const K{index}& o) const {{ return a<o.a || (a==o.a && b<o.b); }} }};\n\
             long use{index}(std::istream& in) {{\n\
               std::map<K{index}, std::vector<K{index}>> m; std::unordered_map<std::string, K{index}> u; K{index} k;\n\
               while (in >> k.a >> k.b) {{ m[k].push_back(k); u.emplace(k.b, k); }}\n\
               std::vector<K{index}> v; for (auto& e : m) v.insert(v.end(), e.second.begin(), e.second.end());\n\
               std::stable_sort(v.begin(), v.end(), [](const K{index}& x, const K{index}& y) {{ return y < x; }});\n\
               std::function<long(size_t)> f = [&](size_t i) -> long {{ return i < v.size() ? v[i].a + f(i + {index} + 1) : 0; }};\n\
               std::ostringstream o; for (auto& e : u) o << e.first << e.second.a;\n\
               return f(0) + static_cast<long>(o.str().size());\n\
             }}\n"
        )
        .expect("a String takes all");
    }
    text.push_str("int main() { long n = 0;\n");
    for index in 0..variants {
        writeln!(text, "n += use{index}(std::cin);").expect("a String takes all");
    }
    text + "std::cout << n; }\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_text_every_time() {
        let first = text(5000);
        assert_eq!(first, text(5000));
        assert!((5000..5100).contains(&first.len()));
        assert!(first.iter().filter(|byte| **byte == b' ').count() > 500);
    }
}

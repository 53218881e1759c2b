//! The checksum in `.gnu_debuglink`: CRC-32 of IEEE 802.3, eight bytes at a time (Intel's "slicing by 8").

const POLYNOMIAL: u32 = 0xedb8_8320;

/// `TABLES[k][b]`: the checksum of byte `b` with `k` zero bytes behind it.
static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[table - 1][byte];
            tables[table][byte] = (before >> 8) ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        table += 1;
    }
    tables
}

/// The checksum of all `bytes`.
pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    let look_up = |table: usize, byte: u8| TABLES[table][usize::from(byte)];
    let (eights, rest) = bytes.as_chunks::<8>();
    let mut crc = !0;
    for &[a, b, c, d, e, f, g, h] in eights {
        let [a, b, c, d] = (u32::from_le_bytes([a, b, c, d]) ^ crc).to_le_bytes();
        crc = look_up(7, a)
            ^ look_up(6, b)
            ^ look_up(5, c)
            ^ look_up(4, d)
            ^ look_up(3, e)
            ^ look_up(2, f)
            ^ look_up(1, g)
            ^ look_up(0, h);
    }
    !rest.iter().fold(crc, |crc, byte| (crc >> 8) ^ look_up(0, crc as u8 ^ byte))
}

#[cfg(test)]
mod tests {
    /// The check value that the catalogue of parametrised CRC algorithms gives for CRC-32/ISO-HDLC.
    #[test]
    fn check_value() {
        assert_eq!(super::crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(super::crc32(b""), 0);
    }
}

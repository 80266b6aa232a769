//! XXH64, a fast hash, after the xxHash specification by Yann Collet.
//!
//! The hash detects damage: if any bit of the input changes, about half of the 64 output bits change, and equal bytes
//! have the same hash on every machine. The hash gives no protection against forgery, and no use of it in this crate
//! needs any. XXH64 is implemented here to avoid a dependency, and because a hash in files and packets must never
//! change.

const PRIMES: [u64; 5] =
    [0x9e37_79b1_85eb_ca87, 0xc2b2_ae3d_27d4_eb4f, 0x1656_67b1_9e37_79f9, 0x85eb_ca77_c2b2_ae63, 0x27d4_eb2f_1656_67c5];

/// Returns the XXH64 hash of `bytes`. Each seed selects a different hash function, so the hashes of the same bytes
/// under two seeds are equal only by chance.
pub fn xxh64(seed: u64, bytes: &[u8]) -> u64 {
    let (stripes, tail) = bytes.as_chunks::<32>();
    let hash = if stripes.is_empty() { seed.wrapping_add(PRIMES[4]) } else { hash_stripes(seed, stripes) };
    avalanche(hash_tail(hash.wrapping_add(bytes.len() as u64), tail))
}

/// Hashes the 32-byte stripes in four independent lanes of 8 bytes.
fn hash_stripes(seed: u64, stripes: &[[u8; 32]]) -> u64 {
    let both = PRIMES[0].wrapping_add(PRIMES[1]);
    let mut lanes = [seed.wrapping_add(both), seed.wrapping_add(PRIMES[1]), seed, seed.wrapping_sub(PRIMES[0])];
    for stripe in stripes {
        for (lane, word) in lanes.iter_mut().zip(stripe.as_chunks::<8>().0) {
            *lane = mix_word(*lane, u64::from_le_bytes(*word));
        }
    }
    let rotated = lanes.iter().zip([1, 7, 12, 18]).map(|(lane, by)| lane.rotate_left(by));
    let hash = rotated.fold(0, u64::wrapping_add);
    lanes.iter().fold(hash, |hash, lane| (hash ^ mix_word(0, *lane)).wrapping_mul(PRIMES[0]).wrapping_add(PRIMES[3]))
}

fn mix_word(lane: u64, word: u64) -> u64 {
    lane.wrapping_add(word.wrapping_mul(PRIMES[1])).rotate_left(31).wrapping_mul(PRIMES[0])
}

/// Hashes the bytes after the stripes: words of 8 bytes, then at most one of 4, then single bytes.
fn hash_tail(mut hash: u64, tail: &[u8]) -> u64 {
    let (eights, mut rest) = tail.as_chunks::<8>();
    for word in eights {
        hash ^= mix_word(0, u64::from_le_bytes(*word));
        hash = hash.rotate_left(27).wrapping_mul(PRIMES[0]).wrapping_add(PRIMES[3]);
    }
    if let Some((four, ones)) = rest.split_first_chunk() {
        hash ^= u64::from(u32::from_le_bytes(*four)).wrapping_mul(PRIMES[0]);
        hash = hash.rotate_left(23).wrapping_mul(PRIMES[1]).wrapping_add(PRIMES[2]);
        rest = ones;
    }
    for byte in rest {
        hash ^= u64::from(*byte).wrapping_mul(PRIMES[4]);
        hash = hash.rotate_left(11).wrapping_mul(PRIMES[0]);
    }
    hash
}

fn avalanche(mut hash: u64) -> u64 {
    hash = (hash ^ hash >> 33).wrapping_mul(PRIMES[1]);
    hash = (hash ^ hash >> 29).wrapping_mul(PRIMES[2]);
    hash ^ hash >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_texts_have_published_hashes() {
        let hash = |text: &str| xxh64(0, text.as_bytes());
        assert_eq!(hash(""), 0xef46_db37_51d8_e999);
        assert_eq!(hash("a"), 0xd24e_c4f1_a98c_6e5b);
        assert_eq!(hash("abc"), 0x44bc_2cf5_ad77_0999);
        assert_eq!(hash("message digest"), 0x066e_d728_fcee_b3be);
        assert_eq!(hash("abcdefghijklmnopqrstuvwxyz"), 0xcfe1_f278_fa89_835c);
        let all = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
        assert_eq!(hash(all), 0xaaa4_6907_d304_7814);
        assert_eq!(hash(&"1234567890".repeat(8)), 0xe04a_477f_19ee_145d);
    }

    /// Buffer and expected values are those of the reference implementation's sanity check.
    #[test]
    fn reference_buffer_has_published_hashes() {
        let mut generator = 2_654_435_761u64;
        let buffer = [(); 222].map(|()| {
            let byte = (generator >> 56) as u8;
            generator = generator.wrapping_mul(11_400_714_785_074_694_797);
            byte
        });
        let known = [
            (0, 0, 0xef46_db37_51d8_e999),
            (0, 2_654_435_761, 0xac75_fda2_929b_17ef),
            (1, 0, 0xe934_a84a_db05_2768),
            (1, 2_654_435_761, 0x5014_6076_43a9_b4c3),
            (4, 0, 0x9136_a0dc_a574_57ee),
            (14, 0, 0x8282_dcc4_994e_35c8),
            (14, 2_654_435_761, 0xc3bd_6bf6_3deb_6df0),
            (222, 0, 0xb641_ae8c_b691_c174),
            (222, 2_654_435_761, 0x20cb_8ab7_ae10_c14a),
        ];
        for (len, seed, hash) in known {
            assert_eq!(xxh64(seed, &buffer[..len]), hash, "{len} bytes, seed {seed}");
        }
    }
}

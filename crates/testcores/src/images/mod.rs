//! Small images for real cores, assembled here byte by byte, so that tests need no commercial game.
//!
//! In every frame, each image reads the pads and updates sixteen numbers in RAM in turn, once for each pad (on the
//! Super NES, for each of the two bytes of each pad): `number = 5 × number + previous + 1`, where `previous` is the
//! number before it, or the pressed buttons for the first one. The last number colours the screen, on the PC Engine and
//! the Super NES together with the second one.

mod assembler;
mod mos6502_images;

use assembler::Assembler;

pub use mos6502_images::{nes, pc_engine, snes};

/// Returns a Game Boy image of 32 KiB, without the manufacturer's logo.
pub fn game_boy() -> Vec<u8> {
    let mut code = Assembler::new(0x150);
    code.emit(&[0xf3, 0x31, 0xfe, 0xff]); // di; ld sp, $fffe
    code.emit(&[0x21, 0x00, 0xc0, 0xaf]); // ld hl, $c000; xor a
    let clear = code.address();
    code.emit(&[0x22, 0xcb, 0x65]); // ld (hl+), a; bit 4, l
    code.emit_branch(0x28, clear); // jr z
    let frame = code.address();
    code.emit(&[0xf0, 0x44, 0xfe, 0x90]); // ldh a, (ly); cp 144
    code.emit_branch(0x20, frame); // jr nz
    code.emit(&[0x3e, 0x20, 0xe0, 0x00, 0xf0, 0x00, 0xf0, 0x00]); // select and read directions
    code.emit(&[0xe6, 0x0f, 0xcb, 0x37, 0x47]); // and 15; swap a; ld b, a
    code.emit(&[0x3e, 0x10, 0xe0, 0x00, 0xf0, 0x00, 0xf0, 0x00, 0xf0, 0x00]); // select and read buttons
    code.emit(&[0xe6, 0x0f, 0xb0, 0x2f, 0x47]); // and 15; or b; cpl; ld b, a
    code.emit(&[0x21, 0x00, 0xc0]); // ld hl, $c000
    let mix = code.address();
    code.emit(&[0x7e, 0x4f, 0x87, 0x87, 0x81]); // a = 5 × (hl)
    code.emit(&[0x80, 0x3c, 0x22, 0x47]); // add b; inc a; ld (hl+), a; ld b, a
    code.emit(&[0xcb, 0x65]); // bit 4, l
    code.emit_branch(0x28, mix); // jr z
    code.emit(&[0x78, 0xe0, 0x47]); // ld a, b; ldh (bgp), a
    let wait = code.address();
    code.emit(&[0xf0, 0x44, 0xfe, 0x90]); // until the line has passed
    code.emit_branch(0x28, wait); // jr z
    code.emit(&[0xc3, frame as u8, (frame >> 8) as u8]); // jp

    let mut image = vec![0; 0x8000];
    image[0x100..0x104].copy_from_slice(&[0x00, 0xc3, 0x50, 0x01]); // nop; jp $150
    image[0x134..0x13a].copy_from_slice(b"COPLAY");
    image[0x14d] = image[0x134..0x14d].iter().fold(0u8, |sum, byte| sum.wrapping_sub(*byte).wrapping_sub(1));
    image[0x150..0x150 + code.bytes().len()].copy_from_slice(code.bytes());
    image
}

/// Returns a Game Boy Advance image, without the manufacturer's logo.
pub fn game_boy_advance() -> Vec<u8> {
    const START: u32 = 0xc0;
    let mut words: Vec<u32> = Vec::new();
    // Emits a branch to the word with the index `to`. The offset counts from the second word after the branch.
    fn branch(words: &mut Vec<u32>, condition: u32, to: usize) {
        let offset = (to as u32).wrapping_sub(words.len() as u32 + 2) & 0xff_ffff;
        words.push(condition << 28 | 0xa00_0000 | offset);
    }
    let (equal, unequal, always) = (0, 1, 14);
    words.extend([0xe3a0_0301, 0xe3a0_1403, 0xe3a0_5405]); // r0 = registers; r1 = RAM; r5 = palette
    words.extend([0xe3a0_2000, 0xe1c0_20b0, 0xe3a0_8000]); // show only the backdrop; r8 = 0
    let clear = words.len();
    words.extend([0xe781_2108, 0xe288_8001, 0xe358_0010]); // str r2, [r1, r8, lsl #2]; r8 += 1; cmp r8, #16
    branch(&mut words, unequal, clear);
    let frame = words.len();
    words.extend([0xe1d0_20b6, 0xe352_00a0]); // r2 = line; cmp r2, #160
    branch(&mut words, unequal, frame);
    words.extend([0xe280_6e13, 0xe1d6_40b0]); // r4 = keys, at $4000130
    words.extend([0xe1e0_4004, 0xe1a0_4b04, 0xe1a0_4b24]); // pressed ones, ten bits
    words.extend([0xe1a0_7001, 0xe3a0_8010]); // r7 = RAM; r8 = 16
    let mix = words.len();
    words.extend([0xe597_3000, 0xe083_3103]); // r3 = 5 × [r7]
    words.extend([0xe083_3004, 0xe283_3001]); // r3 += r4 + 1
    words.extend([0xe487_3004, 0xe1a0_4003, 0xe258_8001]); // [r7] = r3, r7 += 4; r4 = r3; r8 -= 1
    branch(&mut words, unequal, mix);
    words.push(0xe1c5_30b0); // backdrop = r3
    let wait = words.len();
    words.extend([0xe1d0_20b6, 0xe352_00a0]); // until the line has passed
    branch(&mut words, equal, wait);
    branch(&mut words, always, frame);

    let mut image = vec![0; 0x400];
    image[..4].copy_from_slice(&(0xea00_0000 + (START - 8) / 4).to_le_bytes());
    image[0xa0..0xa6].copy_from_slice(b"COPLAY");
    image[0xb2] = 0x96;
    image[0xbd] = image[0xa0..0xbd].iter().fold(0u8, |sum, byte| sum.wrapping_sub(*byte)).wrapping_sub(0x19);
    for (chunk, word) in image[START as usize..].chunks_exact_mut(4).zip(words) {
        chunk.copy_from_slice(&word.to_le_bytes());
    }
    image
}

//! Images for the 6502 family: NES, PC Engine (HuC6280) and Super NES (65816). The numbers are in the first sixteen
//! bytes of the zero page, the pressed buttons in byte 16, and on the NES those of the second pad in byte 17.

use super::assembler::Assembler;

const BEQ: u8 = 0xf0;
const BNE: u8 = 0xd0;
const BPL: u8 = 0x10;
const BMI: u8 = 0x30;

fn store(code: &mut Assembler, at: u16) {
    code.emit(&[0x8d, at as u8, (at >> 8) as u8]);
}

fn set(code: &mut Assembler, at: u16, value: u8) {
    code.emit(&[0xa9, value]); // lda
    store(code, at);
}

fn load(code: &mut Assembler, at: u16) {
    code.emit(&[0xad, at as u8, (at >> 8) as u8]);
}

fn jump(code: &mut Assembler, to: u16) {
    code.emit(&[0x4c, to as u8, (to >> 8) as u8]);
}

/// Emits code that clears the first 17 bytes of the zero page.
fn clear(code: &mut Assembler) {
    code.emit(&[0xa2, 0x10, 0xa9, 0x00]); // ldx #16; lda #0
    let loop_start = code.address();
    code.emit(&[0x95, 0x00, 0xca]); // sta 0, x; dex
    code.emit_branch(BPL, loop_start);
}

/// Emits code that mixes byte 16 into the sixteen numbers and leaves the last one in byte 16.
fn mix(code: &mut Assembler) {
    code.emit(&[0xa2, 0x00]); // ldx #0
    let loop_start = code.address();
    code.emit(&[0xb5, 0x00, 0x0a, 0x0a, 0x18, 0x75, 0x00]); // lda 0, x; asl; asl; clc; adc 0, x
    code.emit(&[0x18, 0x65, 0x10, 0x18, 0x69, 0x01]); // clc; adc 16; clc; adc #1
    code.emit(&[0x95, 0x00, 0x85, 0x10]); // sta 0, x; sta 16
    code.emit(&[0xe8, 0xe0, 0x10]); // inx; cpx #16
    code.emit_branch(BNE, loop_start);
}

/// Returns a NES image with 16 KiB of program, for two pads.
pub fn nes() -> Vec<u8> {
    let mut code = Assembler::new(0xc000);
    code.emit(&[0x78, 0xd8, 0xa2, 0xff, 0x9a]); // sei; cld; ldx #$ff; txs
    set(&mut code, 0x2000, 0);
    set(&mut code, 0x2001, 0);
    for _ in 0..2 {
        let wait = code.address();
        load(&mut code, 0x2002);
        code.emit_branch(BPL, wait);
    }
    clear(&mut code);
    let frame = code.address();
    load(&mut code, 0x2002);
    code.emit_branch(BPL, frame);
    set(&mut code, 0x4016, 1);
    set(&mut code, 0x4016, 0);
    for (port, into) in [(0x4016, 0x10), (0x4017, 0x11)] {
        code.emit(&[0xa2, 0x08]); // ldx #8
        let bit = code.address();
        load(&mut code, port);
        code.emit(&[0x4a, 0x26, into, 0xca]); // lsr; rol into; dex
        code.emit_branch(BNE, bit);
    }
    mix(&mut code);
    code.emit(&[0xa5, 0x11, 0x85, 0x10]); // byte 16 = byte 17
    mix(&mut code);
    set(&mut code, 0x2006, 0x3f);
    set(&mut code, 0x2006, 0);
    code.emit(&[0xa5, 0x10, 0x29, 0x3f]); // lda 16; and #$3f
    store(&mut code, 0x2007);
    set(&mut code, 0x2006, 0);
    set(&mut code, 0x2006, 0);
    jump(&mut code, frame);

    let mut image = b"NES\x1a\x01\x00\x00\x00".to_vec();
    image.resize(16 + 0x4000, 0);
    image[16..16 + code.bytes().len()].copy_from_slice(code.bytes());
    for vector in [0x3ffa, 0x3ffc, 0x3ffe] {
        image[16 + vector..16 + vector + 2].copy_from_slice(&[0x00, 0xc0]);
    }
    image
}

/// Returns a PC Engine image of 32 KiB, for two pads.
pub fn pc_engine() -> Vec<u8> {
    let mut code = Assembler::new(0xe000);
    code.emit(&[0x78, 0xd4, 0xd8]); // sei; csh; cld
    code.emit(&[0xa9, 0xff, 0x53, 0x01]); // registers at 0
    code.emit(&[0xa9, 0xf8, 0x53, 0x02]); // RAM, and with it the zero page, at $2000
    code.emit(&[0xa2, 0xff, 0x9a]); // ldx #$ff; txs
    // Display of 256 × 240 pixels, empty, with a status flag at the end of each picture.
    for (register, low, high) in
        [(5, 0x08, 0), (9, 0, 0), (10, 0x02, 0x02), (11, 0x1f, 0x04), (12, 0x02, 0x0f), (13, 0xef, 0), (14, 0x03, 0)]
    {
        code.emit(&[0x03, register, 0x13, low, 0x23, high]); // st0; st1; st2
    }
    set(&mut code, 0x0400, 0);
    clear(&mut code);
    let frame = code.address();
    load(&mut code, 0x0000);
    code.emit(&[0x29, 0x20]); // and #$20
    code.emit_branch(BEQ, frame);
    set(&mut code, 0x1000, 1);
    set(&mut code, 0x1000, 3);
    for _ in 0..2 {
        for select in [1, 0] {
            set(&mut code, 0x1000, select);
            code.emit(&[0x48, 0x68, 0xea, 0xea]); // pha; pla; nop; nop
            load(&mut code, 0x1000);
            code.emit(&[0x49, 0xff, 0x29, 0x0f]); // eor #$ff; and #15
            // First the directions in the upper half, then the buttons in the lower.
            code.emit(if select == 1 { &[0x0a, 0x0a, 0x0a, 0x0a] } else { &[0x05, 0x10] }); // asl, four times; ora 16
            code.emit(&[0x85, 0x10]); // sta 16
        }
        mix(&mut code);
    }
    for table in [0, 1] {
        set(&mut code, 0x0402, 0);
        set(&mut code, 0x0403, table);
        code.emit(&[0xa5, 0x10]); // lda 16
        store(&mut code, 0x0404);
        code.emit(&[0xa5, 0x01, 0x29, 0x01]); // lda 1; and #1
        store(&mut code, 0x0405);
    }
    jump(&mut code, frame);

    let mut image = vec![0; 0x8000];
    image[..code.bytes().len()].copy_from_slice(code.bytes());
    for vector in [0x1ff6, 0x1ff8, 0x1ffa, 0x1ffc, 0x1ffe] {
        image[vector..vector + 2].copy_from_slice(&[0x00, 0xe0]);
    }
    image
}

/// Returns a Super NES image of 32 KiB, for two pads.
pub fn snes() -> Vec<u8> {
    let mut code = Assembler::new(0x8000);
    code.emit(&[0x78, 0x18, 0xfb, 0xe2, 0x30]); // sei; clc; xce; sep #$30
    set(&mut code, 0x2100, 0x8f);
    set(&mut code, 0x212c, 0);
    clear(&mut code);
    set(&mut code, 0x4200, 0x01); // enable pad reading
    set(&mut code, 0x2100, 0x0f);
    let frame = code.address();
    load(&mut code, 0x4212);
    code.emit_branch(BPL, frame);
    code.emit(&[0xa2, 0x80]); // ldx #128
    let pause = code.address();
    code.emit(&[0xca]); // dex
    code.emit_branch(BNE, pause);
    let busy = code.address();
    load(&mut code, 0x4212);
    code.emit(&[0x29, 0x01]); // and #1
    code.emit_branch(BNE, busy);
    for half in 0x4218..=0x421b {
        load(&mut code, half);
        code.emit(&[0x85, 0x10]); // sta 16
        mix(&mut code);
    }
    set(&mut code, 0x2121, 0);
    code.emit(&[0xa5, 0x10]); // lda 16
    store(&mut code, 0x2122);
    code.emit(&[0xa5, 0x01, 0x29, 0x7f]); // lda 1; and #$7f
    store(&mut code, 0x2122);
    let wait = code.address();
    load(&mut code, 0x4212);
    code.emit_branch(BMI, wait);
    jump(&mut code, frame);

    let mut image = vec![0; 0x8000];
    image[..code.bytes().len()].copy_from_slice(code.bytes());
    image[0x7fc0..0x7fd5].copy_from_slice(b"COPLAY TEST          ");
    image[0x7fd5..0x7fdc].copy_from_slice(&[0x20, 0x00, 0x05, 0x00, 0x01, 0x33, 0x00]);
    image[0x7fdc..0x7fe0].copy_from_slice(&[0xff, 0xff, 0x00, 0x00]);
    for vector in [0x7fea, 0x7ffa, 0x7ffc, 0x7ffe] {
        image[vector..vector + 2].copy_from_slice(&[0x00, 0x80]);
    }
    let sum = image.iter().fold(0u16, |sum, byte| sum.wrapping_add(u16::from(*byte)));
    image[0x7fdc..0x7fde].copy_from_slice(&(!sum).to_le_bytes());
    image[0x7fde..0x7fe0].copy_from_slice(&sum.to_le_bytes());
    image
}

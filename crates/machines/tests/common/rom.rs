//! An NES test game that uses most parts of the console that a saved state must contain.
//!
//! The game mixes the pads, the CPU time that the main loop gets, and sprite-zero hits into a running value. It writes
//! this value to work RAM, cartridge RAM, the picture, registers of the first pulse channel, the triangle and the noise
//! channel, and to addresses that are registers of the cartridge, if it has any. The pads also set the horizontal
//! scroll. It restarts a DMC sample every 32 frames.

/// Address of the program's start.
const RESET_ADDRESS: u16 = 0xc000;
/// Address of the interrupt handler.
const NMI_ADDRESS: u16 = 0xc05a;

/// The program in 6502 machine code, one instruction per line.
#[rustfmt::skip]
const PROGRAM: &[&[u8]] = &[
    &[0x78], // reset: sei
    &[0xd8], // cld
    &[0xa2, 0xff], // ldx #$ff
    &[0x9a], // txs
    &[0xa9, 0x40], // lda #$40
    &[0x8d, 0x17, 0x40], // sta $4017
    &[0x2c, 0x02, 0x20], // wait1: bit $2002
    &[0x10, 0xfb], // bpl wait1
    &[0x2c, 0x02, 0x20], // wait2: bit $2002
    &[0x10, 0xfb], // bpl wait2
    &[0xa9, 0x3f], // lda #$3f
    &[0x8d, 0x06, 0x20], // sta $2006
    &[0xa2, 0x00], // ldx #0
    &[0x8e, 0x06, 0x20], // stx $2006
    &[0x8a], // colour: txa
    &[0x8d, 0x07, 0x20], // sta $2007
    &[0xe8], // inx
    &[0xe0, 0x20], // cpx #$20
    &[0xd0, 0xf7], // bne colour
    &[0xa9, 0xbf], // lda #$bf
    &[0x8d, 0x00, 0x40], // sta $4000
    &[0x8d, 0x08, 0x40], // sta $4008
    &[0x8d, 0x0c, 0x40], // sta $400c
    &[0xa9, 0x0f], // lda #$0f
    &[0x8d, 0x10, 0x40], // sta $4010
    &[0xa9, 0x10], // lda #$10
    &[0x8d, 0x13, 0x40], // sta $4013
    &[0xa9, 0x1f], // lda #$1f
    &[0x8d, 0x15, 0x40], // sta $4015
    &[0xa9, 0x88], // lda #$88
    &[0x8d, 0x00, 0x20], // sta $2000
    &[0xa9, 0x1e], // lda #$1e
    &[0x8d, 0x01, 0x20], // sta $2001
    &[0xe6, 0x10], // main: inc $10
    &[0xad, 0x16, 0x40], // lda $4016
    &[0x45, 0x10], // eor $10
    &[0x65, 0x11], // adc $11
    &[0x2a], // rol a
    &[0x85, 0x11], // sta $11
    &[0x4c, 0x4b, 0xc0], // jmp main
    &[0x48], // nmi: pha
    &[0x8a], // txa
    &[0x48], // pha
    &[0xa2, 0x01], // ldx #1
    &[0x8e, 0x16, 0x40], // stx $4016
    &[0xca], // dex
    &[0x8e, 0x16, 0x40], // stx $4016
    &[0xa2, 0x10], // ldx #16
    &[0xad, 0x16, 0x40], // read: lda $4016
    &[0x4a], // lsr a
    &[0x26, 0x20], // rol $20
    &[0x26, 0x21], // rol $21
    &[0xad, 0x17, 0x40], // lda $4017
    &[0x4a], // lsr a
    &[0x26, 0x22], // rol $22
    &[0x26, 0x23], // rol $23
    &[0xca], // dex
    &[0xd0, 0xed], // bne read
    &[0x2c, 0x02, 0x20], // bit $2002
    &[0x50, 0x02], // bvc nohit
    &[0xe6, 0x25], // inc $25
    &[0xa5, 0x24], // nohit: lda $24
    &[0x2a], // rol a
    &[0x65, 0x20], // adc $20
    &[0x45, 0x21], // eor $21
    &[0x65, 0x22], // adc $22
    &[0x45, 0x23], // eor $23
    &[0x65, 0x11], // adc $11
    &[0x65, 0x25], // adc $25
    &[0x85, 0x24], // sta $24
    &[0xe6, 0x00], // inc $00
    &[0xa6, 0x00], // ldx $00
    &[0x8a], // txa
    &[0x29, 0x1f], // and #$1f
    &[0xd0, 0x05], // bne quiet
    &[0xa9, 0x1f], // lda #$1f
    &[0x8d, 0x15, 0x40], // sta $4015
    &[0xa5, 0x24], // quiet: lda $24
    &[0x9d, 0x00, 0x03], // sta $0300,x
    &[0x9d, 0x00, 0x60], // sta $6000,x
    &[0x9d, 0x00, 0xe0], // sta $e000,x
    &[0x8d, 0x00, 0x02], // sta $0200
    &[0xa5, 0x21], // lda $21
    &[0x8d, 0x03, 0x02], // sta $0203
    &[0xa9, 0x02], // lda #$02
    &[0x8d, 0x14, 0x40], // sta $4014
    &[0xa5, 0x24], // lda $24
    &[0x8d, 0x02, 0x40], // sta $4002
    &[0x8d, 0x0a, 0x40], // sta $400a
    &[0x8d, 0x0e, 0x40], // sta $400e
    &[0x29, 0x07], // and #7
    &[0x8d, 0x03, 0x40], // sta $4003
    &[0x8d, 0x0b, 0x40], // sta $400b
    &[0x8d, 0x0f, 0x40], // sta $400f
    &[0xa9, 0x20], // lda #$20
    &[0x8d, 0x06, 0x20], // sta $2006
    &[0x8e, 0x06, 0x20], // stx $2006
    &[0xa5, 0x24], // lda $24
    &[0x8d, 0x07, 0x20], // sta $2007
    &[0xa5, 0x21], // lda $21
    &[0x8d, 0x05, 0x20], // sta $2005
    &[0xa9, 0x00], // lda #0
    &[0x8d, 0x05, 0x20], // sta $2005
    &[0x68], // pla
    &[0xaa], // tax
    &[0x68], // pla
    &[0x40], // rti
];

/// Returns the image of the test game on a cartridge with `flags` as the flag bytes of its header. The upper four bits
/// of the first byte are the low half of the mapper number, those of the second byte the high half.
pub fn test_image_with_flags(flags: [u8; 2]) -> Vec<u8> {
    let mut image = b"NES\x1a\x01\x01".to_vec();
    image.extend_from_slice(&flags);
    image.resize(16, 0);
    image.extend(PROGRAM.iter().flat_map(|instruction| *instruction));
    image.resize(16 + 0x4000 - 6, 0xea);
    image.extend([NMI_ADDRESS, RESET_ADDRESS, RESET_ADDRESS].iter().flat_map(|vector| vector.to_le_bytes()));
    image.extend((0..0x2000u32).map(|at| (at.wrapping_mul(0x9e37_79b1) >> 24) as u8));
    image
}

/// Returns the image of the test game on a cartridge without a mapper.
pub fn test_image() -> Vec<u8> {
    test_image_with_flags([0, 0])
}

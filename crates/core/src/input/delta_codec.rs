//! Change tokens: encodes a range of inputs such that only changes take bytes.
//!
//! A token states how many frames pass unchanged, which bytes of the packed input change then, and their new values.
//! For inputs up to four bytes wide (two pads), the number of frames and the set of bytes share one byte while few
//! frames pass unchanged: fewer than 64 if the input is one byte wide, fewer than 8 if it is four. After the last token
//! the input stays unchanged.

use crate::codec::{BufferFull, ByteReader, ByteWriter, DecodeError};

/// Encodes a change of the input from `old` to `new`, which are equally wide, after `skip` unchanged frames.
pub(crate) fn put_change(writer: &mut ByteWriter<'_>, skip: u32, old: &[u8], new: &[u8]) -> Result<(), BufferFull> {
    let width = new.len();
    if width <= 4 {
        let mask = changed_mask(old, new);
        writer.varint(skip << width | u32::from(mask))?;
    } else if width <= 8 {
        writer.varint(skip)?;
        writer.u8(changed_mask(old, new))?;
    } else {
        let groups = || old.chunks(8).zip(new.chunks(8)).map(|(old, new)| changed_mask(old, new));
        let present = groups().enumerate().fold(0, |bits, (group, mask)| bits | u32::from(mask != 0) << group);
        writer.varint(skip)?;
        writer.varint(present)?;
        for mask in groups().filter(|mask| *mask != 0) {
            writer.u8(mask)?;
        }
    }
    for (_, new) in old.iter().zip(new).filter(|(old, new)| old != new) {
        writer.u8(*new)?;
    }
    Ok(())
}

/// Returns a mask with bit k set if byte k differs, for up to eight bytes.
fn changed_mask(old: &[u8], new: &[u8]) -> u8 {
    old.iter().zip(new).enumerate().fold(0, |bits, (at, (old, new))| bits | u8::from(old != new) << at)
}

/// Decodes one token and applies it to `value`. Returns the number of unchanged frames before the change. Fails if the
/// token is truncated or malformed, such as one that names a byte beyond the width of `value`.
pub(crate) fn get_change(reader: &mut ByteReader<'_>, value: &mut [u8]) -> Result<u32, DecodeError> {
    let width = value.len();
    if width <= 4 {
        let token = reader.varint()?;
        apply_mask(reader, (token & ((1 << width) - 1)) as u8, value)?;
        return Ok(token >> width);
    }
    let skip = reader.varint()?;
    if width <= 8 {
        let mask = reader.u8()?;
        apply_mask(reader, mask, value)?;
        return Ok(skip);
    }
    let present = reader.varint()?;
    let mut masks = [0; MAX_WIDTH.div_ceil(8)];
    let groups = width.div_ceil(8);
    if present >> groups != 0 {
        return Err(DecodeError::Malformed);
    }
    for (_, mask) in masks.iter_mut().enumerate().filter(|(group, _)| present >> group & 1 != 0) {
        *mask = reader.u8()?;
    }
    for (chunk, mask) in value.chunks_mut(8).zip(masks) {
        apply_mask(reader, mask, chunk)?;
    }
    Ok(skip)
}

/// Largest width of a packed input in bytes: every byte of every player's word.
pub(crate) const MAX_WIDTH: usize = super::MAX_PLAYERS * 16;

fn apply_mask(reader: &mut ByteReader<'_>, mask: u8, value: &mut [u8]) -> Result<(), DecodeError> {
    if u32::from(mask) >> value.len() != 0 {
        return Err(DecodeError::Malformed);
    }
    for (at, byte) in value.iter_mut().enumerate() {
        if mask >> at & 1 != 0 {
            *byte = reader.u8()?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn changes_of_any_width_round_trip() {
        for width in 0..=MAX_WIDTH {
            let old = vec![0; width];
            let mut new = old.clone();
            for at in (0..width).step_by(3) {
                new[at] = at as u8 + 1;
            }
            let mut buf = [0; 512];
            let mut writer = ByteWriter::new(&mut buf);
            put_change(&mut writer, 300, &old, &new).unwrap();
            let len = writer.len();
            let (mut value, mut reader) = (old, ByteReader::new(&buf[..len]));
            assert_eq!(get_change(&mut reader, &mut value), Ok(300));
            assert_eq!(value, new);
            assert!(reader.is_empty());
        }
    }

    #[test]
    fn two_byte_pad_change_costs_one_extra_byte() {
        let mut buf = [0; 8];
        let mut writer = ByteWriter::new(&mut buf);
        put_change(&mut writer, 7, &[1, 2], &[3, 2]).unwrap();
        assert_eq!(writer.written_since(0), [7 << 2 | 1, 3]);
    }
}

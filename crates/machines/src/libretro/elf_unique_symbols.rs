//! Separates the variables of several copies of one library.
//!
//! The C++ toolchain marks some variables (of templates and inline functions) as *unique*: the loader then merges them
//! over all libraries of a process, even from different files, and never unloads them. Two instances of such a core
//! would share these variables, and one game would affect the other. So the private copy of the library gets the global
//! binding in place of the unique one.

const STB_GLOBAL: u8 = 1;
const STB_GNU_UNIQUE: u8 = 10;

/// Section type of the dynamic symbol table.
const SHT_DYNSYM: u32 = 11;

/// Makes unique symbols global and returns their number. A file that is not an ELF file of the host's byte order, or
/// has no sections, is left unchanged.
pub(super) fn make_unique_symbols_global(library: &mut [u8]) -> usize {
    patch_dynamic_symbols(library).unwrap_or(0)
}

fn patch_dynamic_symbols(library: &mut [u8]) -> Option<usize> {
    let host_order = if cfg!(target_endian = "little") { 1 } else { 2 };
    if library.get(..4)? != b"\x7fELF" || *library.get(5)? != host_order {
        return None;
    }
    // Offsets in the 32-bit and 64-bit formats: fields of the header, fields of a section, and the info byte of a
    // symbol.
    let wide = *library.get(4)? == 2;
    let [table, entry_size, entries] = if wide { [0x28, 0x3a, 0x3c] } else { [0x20, 0x2e, 0x30] };
    let [offset, size, symbol_size] = if wide { [0x18, 0x20, 0x38] } else { [0x10, 0x14, 0x24] };
    let info = if wide { 4 } else { 12 };
    let word = |bytes: &[u8], at: usize| if wide { read_uint::<8>(bytes, at) } else { read_uint::<4>(bytes, at) };

    let mut patched = 0;
    let first = word(library, table)?;
    for i in 0..read_uint::<2>(library, entries)? {
        let section = first.checked_add(i.checked_mul(read_uint::<2>(library, entry_size)?)?)?;
        if read_uint::<4>(library, section.checked_add(4)?)? != SHT_DYNSYM as usize {
            continue;
        }
        let field = |bytes: &[u8], at: usize| word(bytes, section.checked_add(at)?);
        let (start, len, step) = (field(library, offset)?, field(library, size)?, field(library, symbol_size)?);
        let symbols = library.get_mut(start..start.checked_add(len)?)?;
        for symbol in symbols.chunks_exact_mut(step.max(info + 1)) {
            if symbol[info] >> 4 == STB_GNU_UNIQUE {
                symbol[info] = STB_GLOBAL << 4 | symbol[info] & 0xf;
                patched += 1;
            }
        }
    }
    Some(patched)
}

/// Reads an integer of `BYTES` bytes in the host's byte order.
fn read_uint<const BYTES: usize>(bytes: &[u8], at: usize) -> Option<usize> {
    let bytes = bytes.get(at..at.checked_add(BYTES)?)?;
    let mut wide = [0; 8];
    if cfg!(target_endian = "little") {
        wide[..BYTES].copy_from_slice(bytes)
    } else {
        wide[8 - BYTES..].copy_from_slice(bytes)
    }
    usize::try_from(u64::from_ne_bytes(wide)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_elf_is_left_unchanged() {
        let mut header = b"\x7fELF\x02\x01\x01".to_vec();
        header.resize(64, 0xff);
        for mut garbage in [Vec::new(), b"MZ and so on".to_vec(), b"\x7fELF".to_vec(), header] {
            let before = garbage.clone();
            assert_eq!(make_unique_symbols_global(&mut garbage), 0);
            assert_eq!(garbage, before);
        }
    }
}

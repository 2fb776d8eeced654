//! NumPy's file format, version 1.0, for a matrix or a list of float32 numbers.

use std::io::{self, Write};

/// The header ends at a multiple of this, so that the numbers are aligned.
const ALIGNMENT: usize = 64;

/// Writes the beginning of a file of `rows` numbers, or of `rows` rows of `width` numbers.
pub(super) fn write_header(
    to: &mut dyn Write,
    rows: usize,
    width: Option<usize>,
) -> io::Result<()> {
    let shape = match width {
        None => format!("({rows},)"),
        Some(width) => format!("({rows}, {width})"),
    };
    let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}");
    let prefix = 10;
    let len = (prefix + header.len() + 1).next_multiple_of(ALIGNMENT) - prefix;
    to.write_all(b"\x93NUMPY\x01\x00")?;
    to.write_all(&u16::try_from(len).unwrap_or(u16::MAX).to_le_bytes())?;
    let padding = len - header.len() - 1;
    write!(to, "{header}{:padding$}", "")?;
    to.write_all(b"\n")
}

/// Writes numbers.
pub(super) fn write_values(to: &mut dyn Write, values: &[f32]) -> io::Result<()> {
    values.iter().try_for_each(|value| to.write_all(&value.to_le_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_what_numpy_writes() {
        let mut file = Vec::new();
        write_header(&mut file, 2, Some(1)).unwrap();
        write_values(&mut file, &[1.0, -2.0]).unwrap();
        assert_eq!(&file[..8], b"\x93NUMPY\x01\x00");
        assert_eq!((file.len(), file[8], file[9], file[127]), (128 + 8, 118, 0, b'\n'));
        let header = String::from_utf8_lossy(&file[10..127]).into_owned();
        let dict = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1), }";
        assert_eq!(header.trim_end(), dict);
        assert_eq!(file[128..], [0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0]);
        let mut list = Vec::new();
        write_header(&mut list, 3, None).unwrap();
        assert!(String::from_utf8_lossy(&list).contains("'shape': (3,), }"));
    }
}

//! Sizes of memory as people write them.

use bantam_runtime::words::size;

/// Units that sizes are read in.
const UNITS: [(&str, u64); 10] = [
    ("tib", 1 << 40),
    ("gib", 1 << 30),
    ("mib", 1 << 20),
    ("kib", 1 << 10),
    ("tb", 1_000_000_000_000),
    ("gb", 1_000_000_000),
    ("mb", 1_000_000),
    ("t", 1 << 40),
    ("g", 1 << 30),
    ("m", 1 << 20),
];

/// Bytes that there are in all; nobody knows everywhere.
pub(crate) fn total(bytes: u64) -> String {
    if bytes == u64::MAX { "an unknown size".into() } else { size(bytes) }
}

/// Reads a size such as `12GiB`.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let wrong = || "expected a size such as 12GiB or 800MiB".to_owned();
    let lower = text.trim().to_ascii_lowercase();
    let (number, unit) =
        UNITS.iter().find_map(|(name, unit)| Some((lower.strip_suffix(name)?, *unit))).ok_or_else(wrong)?;
    let number: f64 = number.trim().parse().map_err(|_| wrong())?;
    let bytes = number * unit as f64;
    let fits = number.is_finite() && (0.0..(1u64 << 60) as f64).contains(&bytes);
    if fits { Ok(bytes as u64) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        let read = ["12GiB", "12 gib", "1.5G", "800MiB", "2TB"].map(|text| bytes(text).unwrap());
        assert_eq!(read, [12 << 30, 12 << 30, 3 << 29, 800 << 20, 2_000_000_000_000]);
        for wrong in ["", "12", "GiB", "-1GiB", "nanGiB", "1e30GiB", "12 apples"] {
            assert!(bytes(wrong).unwrap_err().contains("12GiB"), "{wrong}");
        }
        assert_eq!([total(3 << 29), total(u64::MAX)], ["1.50 GiB", "an unknown size"]);
    }
}

//! Comparing what a device computed with what the reference says.
#![allow(dead_code)] // each test file uses its own part

/// Panics with the first element that differs by more than `absolute + relative * |want|`. NaN equals NaN.
#[track_caller]
pub fn assert_close(what: &str, got: &[f32], want: &[f64], relative: f64, absolute: f64) {
    assert_eq!(got.len(), want.len(), "{what}: number of elements");
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        let rounded = *want as f32; // overflow to infinity is right where f32 has no such number
        let same = (got.is_nan() && rounded.is_nan()) || *got == rounded;
        let near = (f64::from(*got) - want).abs() <= absolute + relative * want.abs();
        assert!(same || near, "{what}: element {i} is {got}, should be {want}");
    }
}

/// Slices as f64.
pub fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|value| f64::from(*value)).collect()
}

/// `len` numbers between -2 and 2, the same every time, different for every seed.
pub fn numbers(seed: u32, len: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9).wrapping_add(1);
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            (state >> 8) as f32 / 4_194_304.0 - 2.0
        })
        .collect()
}

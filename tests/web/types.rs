//! Element types that lie packed in words, and whole numbers.

use half::{bf16, f16};
use linn::DType;
use wasm_bindgen_test::wasm_bindgen_test;

use crate::close::numbers;
use crate::device::{device, read, tensor};

#[wasm_bindgen_test]
async fn every_half_becomes_its_f32_and_comes_back() {
    let device = device().await;
    let halves: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).collect();
    let x = tensor(&device, &[halves.len()], &halves).to_dtype(DType::F32).unwrap();
    for (got, want) in read::<f32>(&x).await.iter().zip(&halves) {
        assert!(got.to_bits() == want.to_f32().to_bits() || got.is_nan() && want.is_nan(), "{want:?} became {got}");
    }
    for (got, want) in read::<f16>(&x.to_dtype(DType::F16).unwrap()).await.iter().zip(&halves) {
        assert!(got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(), "{want:?} came back as {got:?}");
    }
}

#[wasm_bindgen_test]
async fn f32_is_rounded_to_the_nearest_half() {
    let device = device().await;
    let mut data: Vec<f32> = numbers(1, 4000).iter().map(|x| x * 100.0).collect();
    data.extend([0.0, -0.0, 65504.0, 65519.9, 65520.0, 1e30, f32::INFINITY, f32::NEG_INFINITY, f32::NAN]);
    data.extend((0..4096).map(|i| f32::from_bits(0x3f80_0000 + i * 0x1000)));
    let x = tensor(&device, &[data.len()], &data);
    for (got, from) in read::<f16>(&x.to_dtype(DType::F16).unwrap()).await.iter().zip(&data) {
        let want = f16::from_f32(*from);
        assert!(got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(), "{from:e} became {got:?}, not {want:?}");
    }
    for (got, from) in read::<bf16>(&x.to_dtype(DType::BF16).unwrap()).await.iter().zip(&data) {
        let want = bf16::from_f32(*from);
        assert!(got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(), "{from:e} became {got:?}, not {want:?}");
    }
}

#[wasm_bindgen_test]
async fn packed_types_of_odd_lengths_keep_their_neighbours() {
    let device = device().await;
    for len in [1usize, 2, 3, 5, 7, 257] {
        let data: Vec<f16> = numbers(2, len + 6).iter().map(|x| f16::from_f32(*x)).collect();
        let x = tensor(&device, &[len + 6], &data);
        x.narrow(0, 3, len).unwrap().mul_scalar_(2.0).unwrap();
        let want: Vec<f16> =
            (0..len + 6).map(|i| if (3..3 + len).contains(&i) { data[i] * f16::from_f32(2.0) } else { data[i] }).collect();
        assert_eq!(read::<f16>(&x).await, want, "{len} halves");
        let flags: Vec<u8> = (0..len + 6).map(|i| u8::from(i % 3 == 0)).collect();
        let turned = tensor(&device, &[len + 6], &flags).narrow(0, 1, len).unwrap().logical_not().unwrap();
        let want: Vec<u8> = flags[1..=len].iter().map(|flag| 1 - flag).collect();
        assert_eq!(read::<u8>(&turned).await, want, "{len} bools");
    }
}

#[wasm_bindgen_test]
async fn whole_numbers_wrap_and_mix_with_floats() {
    let device = device().await;
    let x = tensor(&device, &[3], &[i32::MAX, -1, 7]);
    assert_eq!(read::<i32>(&x.add_scalar(1).unwrap()).await, [i32::MIN, 0, 8]);
    let mixed = x.narrow(0, 1, 2).unwrap().add(&tensor(&device, &[2], &[0.5f32, 0.25])).unwrap();
    assert_eq!(read::<f32>(&mixed).await, [-0.5, 7.25]);
    assert_eq!(read::<u8>(&x.gt(&tensor(&device, &[1], &[0i32])).unwrap()).await, [1, 0, 1]);
    let large = tensor(&device, &[2], &[u32::MAX, 3]);
    assert_eq!(read::<u32>(&large.mul(&large).unwrap()).await, [1, 9]);
}

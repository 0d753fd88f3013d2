//! Promotion of element types: PyTorch's `promote_types` and `result_type`, as a table.

use linn::dtype::{Operand, result_type};
use linn::{DType, Scalar};

/// `torch.promote_types` of rows and columns in the order of [`DType::ALL`]; `-` where PyTorch refuses.
const TABLE: [&str; 6] = [
    "f32  f32  f32  f32  f32  f32",  // f32
    "f32  f16  f32  f16  f16  f16",  // f16
    "f32  f32  bf16 bf16 bf16 bf16", // bf16
    "f32  f16  bf16 i32  -    i32",  // i32
    "f32  f16  bf16 -    u32  u32",  // u32
    "f32  f16  bf16 i32  u32  bool", // bool
];

#[test]
fn promotion_follows_the_table() {
    for (a, row) in DType::ALL.into_iter().zip(TABLE) {
        let row: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(row.len(), DType::ALL.len());
        for (b, want) in DType::ALL.into_iter().zip(row) {
            let got = a.promote(b).map_or("-", DType::name);
            assert_eq!(got, want, "{a} with {b}");
        }
    }
}

/// Cases of `torch.result_type`, the result last.
#[test]
fn dimensions_come_before_numbers_unless_these_are_of_a_higher_kind() {
    use DType::*;
    use Operand::{Tensor as T, ZeroDim as Z};
    let int = Operand::Scalar(Scalar::Int(2));
    let float = Operand::Scalar(Scalar::Float(2.0));
    let truth = Operand::Scalar(Scalar::Bool(true));
    let cases: [(&[Operand], DType); 18] = [
        (&[T(I32), int], I32),
        (&[T(I32), float], F32),
        (&[T(I32), truth], I32),
        (&[T(Bool), truth], Bool),
        (&[T(Bool), int], I32),
        (&[T(Bool), float], F32),
        (&[T(F16), float], F16),
        (&[T(BF16), int], BF16),
        (&[T(U32), int], U32),
        (&[T(F16), Z(F32)], F16),
        (&[Z(F16), T(F32)], F32),
        (&[T(I32), Z(F16)], F16),
        (&[T(I32), Z(U32)], I32),
        (&[T(Bool), Z(I32)], I32),
        (&[Z(F16), float], F16),
        (&[Z(I32), float], F32),
        (&[T(F16), T(BF16)], F32),
        (&[T(Bool), Z(F16), float], F16),
    ];
    for (operands, want) in cases {
        assert_eq!(result_type("add", operands.iter().copied()).unwrap(), want, "{operands:?}");
    }
    let refused = result_type("add", [T(I32), T(U32)]).unwrap_err().to_string();
    assert_eq!(refused, "add: i32 and u32 have no common type\nhelp: convert one of them with to_dtype before the call");
}

#[test]
fn sizes_and_words() {
    for dtype in DType::ALL {
        assert_eq!(dtype.size() * dtype.per_word(), 4, "{dtype}");
    }
    assert_eq!((DType::Bool.size(), DType::F16.size(), DType::F32.size()), (1, 2, 4));
}

//! The forms of the catalogue's rows: bodies, operands, parameters and constants of every shader.

use crate::kernel::catalog::{Binding, Class, Form, FormulaKind, Inputs, Results, Role};
use crate::kernel::params::{self, Params};

/// Form of element-wise kernels over contiguous operands whose offsets are multiples of 4.
pub const CONTIGUOUS: u8 = 0;
/// Form of element-wise kernels over views: up to 4 dimensions after collapsing.
pub const STRIDED: u8 = 1;
/// As [`STRIDED`], in steps of `vec4`: innermost strides 1, all else a multiple of 4.
pub const STRIDED_VEC4: u8 = 2;
/// Form of element-wise kernels over views into a contiguous result of which several elements lie in a word.
pub const PACKED: u8 = 3;

const fn bind(name: &'static str, role: Role, ty: &'static str) -> Binding {
    Binding { name, role, ty }
}

/// The forms of an element-wise kernel over `$bindings`.
macro_rules! elementwise {
    ($in_place:expr, [$($input:literal: $ty:literal),*]) => {{
        const BINDINGS: &[Binding] = &[$(bind($input, Role::In, $ty),)* bind("out", Role::Out, "res_item")];
        const BASE: Form = Form {
            suffix: "",
            class: Class::Any,
            body: "elementwise/contiguous",
            pieces: &["shared/index"],
            bindings: BINDINGS,
            params: Some(params::Contiguous::INFO),
            lanes: 4,
            formula: FormulaKind::ElementWise,
            in_place: $in_place,
            inputs: Inputs::Any,
            results: Results::Any,
            constants: &[("WG", 64)],
        };
        const STRIDED: Form = Form {
            suffix: "strided",
            body: "elementwise/strided",
            params: Some(params::Strided::INFO),
            lanes: 1,
            results: Results::Words,
            ..BASE
        };
        &[
            BASE,
            STRIDED,
            Form { suffix: "strided_vec4", lanes: 4, ..STRIDED },
            Form { suffix: "packed", body: "elementwise/packed", results: Results::Packed, ..STRIDED },
        ]
    }};
}

pub(super) const FILL: &[Form] = elementwise!(&[], []);
pub(super) const MAP: &[Form] = elementwise!(&[0], ["a": "item"]);
pub(super) const ZIP: &[Form] = elementwise!(&[0, 1], ["a": "item", "b": "item"]);
pub(super) const WHERE: &[Form] = elementwise!(&[0, 1], ["a": "item", "b": "item", "c": "flag_item"]);
pub(super) const WHERE_SCALAR: &[Form] = elementwise!(&[0], ["a": "item", "c": "flag_item"]);
pub(super) const CAST: &[Form] = elementwise!(&[], ["a": "item"]);

/// What most other forms have in common.
const PLAIN: Form = Form {
    suffix: "",
    class: Class::Any,
    body: "",
    pieces: &["shared/index"],
    bindings: &[],
    params: None,
    lanes: 1,
    formula: FormulaKind::None,
    in_place: &[],
    inputs: Inputs::Any,
    results: Results::Any,
    constants: &[("WG", 64)],
};

/// `[f, f over vec4]` of a body over `item`s.
macro_rules! item_forms {
    ($form:expr) => {
        &[
            Form { pieces: &["shared/index", "shared/item1"], ..$form },
            Form { suffix: "vec4", lanes: 4, pieces: &["shared/index", "shared/item4"], ..$form },
        ]
    };
}

pub(super) const COPY_RANK8: &[Form] = &[Form {
    body: "copy/rank8",
    bindings: &[bind("a", Role::In, "elem"), bind("out", Role::Out, "elem")],
    params: Some(params::Rank8::INFO),
    ..PLAIN
}];
pub(super) const ARANGE: &[Form] =
    &[Form { body: "copy/arange", bindings: &[bind("out", Role::Out, "elem")], params: Some(params::Arange::INFO), ..PLAIN }];

/// Blocks of 32: with lanes and splits, the longest chain of f32 additions stays short.
const REDUCE_PLAIN: Form = Form {
    body: "reduce/split",
    bindings: &[bind("a", Role::In, "item"), bind("out", Role::Out, "item")],
    params: Some(params::Reduce::INFO),
    formula: FormulaKind::Combine,
    constants: &[("WG", 32), ("BLOCK", 32)],
    ..PLAIN
};
const REDUCE_ROWS: &[Binding] = &[bind("a", Role::In, "item"), bind("out", Role::Out, "elem")];
pub(super) const REDUCE: &[Form] = &[
    REDUCE_PLAIN,
    Form { suffix: "rows_vec4", lanes: 4, bindings: REDUCE_ROWS, ..REDUCE_PLAIN },
    Form { suffix: "columns_vec4", lanes: 4, ..REDUCE_PLAIN },
];
/// Form of reductions over `vec4`s along the reduced dimension (inner = 1, stride 1).
pub const ROWS_VEC4: u8 = 1;
/// Form of reductions of `vec4`s along the inner dimension (inner stride 1); their results are `vec4`s too.
pub const COLUMNS_VEC4: u8 = 2;

const ARGMAX_PLAIN: Form = Form {
    body: "reduce/argmax",
    bindings: &[bind("a", Role::In, "elem"), bind("values", Role::Out, "elem"), bind("out", Role::Out, "i32")],
    params: Some(params::Reduce::INFO),
    constants: &[("WG", 32)],
    ..PLAIN
};
pub(super) const ARGMAX: &[Form] = &[Form { pieces: &["shared/index", "reduce/position"], ..ARGMAX_PLAIN }];
pub(super) const ARGMAX_MERGE: &[Form] = &[Form {
    bindings: &[
        bind("a", Role::In, "elem"),
        bind("positions", Role::In, "i32"),
        bind("values", Role::Out, "elem"),
        bind("out", Role::Out, "i32"),
    ],
    pieces: &["shared/index", "reduce/merged_position"],
    ..ARGMAX_PLAIN
}];

const SCAN_RUNNING: Form = Form {
    body: "scan/walk",
    bindings: &[bind("a", Role::In, "elem"), bind("carry", Role::In, "elem"), bind("out", Role::Out, "elem")],
    pieces: &["shared/index", "scan/running"],
    params: Some(params::Scan::INFO),
    formula: FormulaKind::Combine,
    constants: &[("WG", 32)],
    ..PLAIN
};
/// Form of scans that keeps only the end of each block.
pub const TOTALS: u8 = 1;
pub(super) const SCAN: &[Form] = &[
    SCAN_RUNNING,
    Form {
        suffix: "totals",
        bindings: &[bind("a", Role::In, "elem"), bind("out", Role::Out, "elem")],
        pieces: &["shared/index", "scan/totals"],
        ..SCAN_RUNNING
    },
];

/// The form over `vec4`s of kernels that work on rows: row length and offsets are multiples of 4.
pub const VEC4: u8 = 1;
const NORM: Form = Form { params: Some(params::Norm::INFO), constants: &[("WG", 32)], ..PLAIN };
pub(super) const LAYER_NORM: &[Form] = item_forms!(Form {
    body: "norm/layer_norm",
    bindings: &[
        bind("a", Role::In, "item"),
        bind("weight", Role::In, "item"),
        bind("bias", Role::In, "item"),
        bind("out", Role::Out, "item"),
        bind("mean", Role::Out, "elem"),
        bind("rstd", Role::Out, "elem"),
    ],
    in_place: &[0],
    ..NORM
});
/// As [`item_forms`], of a form that also has the piece `$piece`.
macro_rules! layer_norm_backward_forms {
    ($piece:literal, $in_place:expr, [$($sum:literal)?]) => {{
        const BASE: Form = Form {
            body: "norm/layer_norm_backward",
            bindings: &[
                bind("a", Role::In, "item"),
                bind("dout", Role::In, "item"),
                $(bind($sum, Role::In, "item"),)?
                bind("weight", Role::In, "item"),
                bind("mean", Role::In, "elem"),
                bind("rstd", Role::In, "elem"),
                bind("out", Role::Out, "item"),
            ],
            pieces: &["shared/index", "shared/item1", $piece],
            in_place: $in_place,
            ..NORM
        };
        &[BASE, Form { suffix: "vec4", lanes: 4, pieces: &["shared/index", "shared/item4", $piece], ..BASE }]
    }};
}
pub(super) const LAYER_NORM_BACKWARD: &[Form] = layer_norm_backward_forms!("norm/alone", &[0, 1], []);
pub(super) const LAYER_NORM_BACKWARD_ADD: &[Form] = layer_norm_backward_forms!("norm/added", &[0, 1, 2], ["sum"]);
pub(super) const LAYER_NORM_BACKWARD_WEIGHT: &[Form] = item_forms!(Form {
    body: "norm/layer_norm_backward_weight",
    bindings: &[
        bind("a", Role::In, "item"),
        bind("dout", Role::In, "item"),
        bind("mean", Role::In, "elem"),
        bind("rstd", Role::In, "elem"),
        bind("dweight", Role::Out, "item"),
        bind("dbias", Role::Out, "item"),
    ],
    ..NORM
});

const SUBGROUP_PIECES: &[&str] = &["shared/index", "matmul/place", "matmul/pick", "matmul/broadcast", "matmul/touch"];
macro_rules! matmul_texture {
    ($suffix:literal, $a_along_k:literal, $b_along_k:literal) => {
        Form {
            suffix: $suffix,
            class: Class::Subgroup,
            body: "matmul/texture",
            pieces: SUBGROUP_PIECES,
            bindings: &[bind("a", Role::In, "vec4<elem>"), bind("b", Role::In, "vec4<elem>"), bind("out", Role::Out, "elem")],
            inputs: Inputs::Texture,
            constants: &[("WG", 8), ("TM", 32), ("TN", 32), ("A_ALONG_K", $a_along_k), ("B_ALONG_K", $b_along_k)],
            ..MATMUL_TILED
        }
    };
}
/// The form for the device's class is chosen by [`Kernel::select`]; `TM` x `TN` is the tile of a workgroup.
const MATMUL_TILED: Form = Form {
    body: "matmul/workgroup",
    pieces: &["shared/index", "matmul/place"],
    bindings: &[bind("a", Role::In, "elem"), bind("b", Role::In, "elem"), bind("out", Role::Out, "elem")],
    params: Some(params::Matmul::INFO),
    constants: &[("WG", 256), ("TM", 64), ("TN", 64), ("DEPTH", 16)],
    ..PLAIN
};
const MATMUL_REGISTERS: Form = Form {
    suffix: "registers",
    class: Class::Cpu,
    body: "matmul/registers",
    pieces: &["shared/index", "matmul/place", "matmul/pick"],
    constants: &[("WG", 8), ("TM", 16), ("TN", 32)],
    ..MATMUL_TILED
};
pub(super) const MATMUL: &[Form] = &[
    MATMUL_TILED,
    MATMUL_REGISTERS,
    Form {
        suffix: "subgroup",
        class: Class::Subgroup,
        body: "matmul/subgroup",
        pieces: SUBGROUP_PIECES,
        constants: &[("WG", 8), ("TM", 64), ("TN", 32)],
        ..MATMUL_TILED
    },
    matmul_texture!("texture_nn", 1, 0),
    matmul_texture!("texture_nt", 1, 1),
    matmul_texture!("texture_tn", 0, 0),
    matmul_texture!("texture_tt", 0, 1),
];
/// Of whole numbers: no barriers, so one form does for every device.
pub(super) const MATMUL_INTEGER: &[Form] = &[Form { suffix: "", class: Class::Any, ..MATMUL_REGISTERS }];
/// First of the four forms of `matmul` that read textures, for subgroups of 8: then + 2 where a is contiguous along its
/// rows and not along k, and + 1 where b is contiguous along k and not along its columns.
pub const MATMUL_TEXTURE: u8 = 3;

/// Rows of items of 1 and of 4 elements ([`VEC4`]).
macro_rules! softmax_forms {
    ($log:literal, $body:literal, $in_place:expr, [$($input:literal),*]) => {{
        const BASE: Form = Form {
            body: $body,
            pieces: &["shared/index", "shared/float", "softmax/online", "softmax/item1"],
            bindings: &[$(bind($input, Role::In, "item"),)* bind("out", Role::Out, "item")],
            params: Some(params::Softmax::INFO),
            in_place: $in_place,
            constants: &[("WG", 32), ("LANES", 1), ("BLOCK", 32), ("LOG", $log)],
            ..PLAIN
        };
        const FOURS: Form = Form {
            suffix: "vec4",
            lanes: 4,
            pieces: &["shared/index", "shared/float", "softmax/online", "softmax/item4"],
            constants: &[("WG", 32), ("LANES", 4), ("BLOCK", 32), ("LOG", $log)],
            ..BASE
        };
        &[BASE, FOURS]
    }};
}
pub(super) const SOFTMAX: &[Form] = softmax_forms!(0, "softmax/rows", &[0], ["a"]);
pub(super) const LOG_SOFTMAX: &[Form] = softmax_forms!(1, "softmax/rows", &[0], ["a"]);
pub(super) const SOFTMAX_BACKWARD: &[Form] = softmax_forms!(0, "softmax/rows_backward", &[0, 1], ["a", "dout"]);
pub(super) const LOG_SOFTMAX_BACKWARD: &[Form] = softmax_forms!(1, "softmax/rows_backward", &[0, 1], ["a", "dout"]);

const STATUS: Binding = bind("status", Role::InOut, "atomic<u32>");
const INDEX: Form = Form { params: Some(params::Index::INFO), ..PLAIN };
const INDEX_SELECT_PLAIN: Form = Form {
    body: "index/select",
    bindings: &[bind("a", Role::In, "item"), bind("ids", Role::In, "i32"), bind("out", Role::Out, "item"), STATUS],
    pieces: &["shared/index", "shared/status"],
    ..INDEX
};
pub(super) const INDEX_SELECT: &[Form] = &[INDEX_SELECT_PLAIN, Form { suffix: "vec4", lanes: 4, ..INDEX_SELECT_PLAIN }];
pub(super) const EMBEDDING_LINKS: &[Form] =
    &[Form { body: "index/links", bindings: &[bind("ids", Role::In, "i32"), bind("out", Role::Out, "u32")], ..INDEX }];
pub(super) const EMBEDDING_BACKWARD: &[Form] = item_forms!(Form {
    body: "index/scatter_rows",
    bindings: &[
        bind("dout", Role::In, "item"),
        bind("ids", Role::In, "i32"),
        bind("links", Role::In, "u32"),
        bind("out", Role::InOut, "item"),
    ],
    ..INDEX
});
pub(super) const GATHER: &[Form] = &[Form {
    body: "index/gather",
    bindings: &[bind("a", Role::In, "elem"), bind("ids", Role::In, "i32"), bind("out", Role::Out, "elem"), STATUS],
    pieces: &["shared/index", "shared/status"],
    ..INDEX
}];
pub(super) const SCATTER_REDUCE: &[Form] = &[
    Form {
        body: "index/scatter_reduce",
        bindings: &[bind("dout", Role::In, "elem"), bind("ids", Role::In, "i32"), bind("out", Role::InOut, "elem")],
        formula: FormulaKind::Combine,
        ..INDEX
    },
    Form {
        suffix: "runs",
        body: "index/scatter_runs",
        bindings: &[
            bind("dout", Role::In, "elem"),
            bind("ids", Role::In, "i32"),
            bind("order", Role::In, "i32"),
            bind("out", Role::InOut, "elem"),
        ],
        formula: FormulaKind::Combine,
        ..INDEX
    },
];
/// Form of the kernels that combine by index over positions that were sorted by their index.
pub const RUNS: u8 = 1;
pub(super) const SCATTER: &[Form] = &[Form {
    body: "index/last_position",
    bindings: &[bind("ids", Role::In, "i32"), bind("out", Role::InOut, "atomic<u32>"), STATUS],
    pieces: &["shared/index", "shared/status"],
    ..INDEX
}];

pub(super) const SORT_STEP: &[Form] = &[Form {
    body: "sort/step",
    bindings: &[bind("a", Role::In, "elem"), bind("out", Role::InOut, "i32")],
    params: Some(params::Sort::INFO),
    ..PLAIN
}];
pub(super) const SEARCHSORTED: &[Form] = &[Form {
    body: "sort/search",
    bindings: &[bind("a", Role::In, "elem"), bind("values", Role::In, "elem"), bind("out", Role::Out, "i32")],
    ..INDEX
}];

const LOSS: Form =
    Form { params: Some(params::Loss::INFO), constants: &[("WG", 32)], pieces: &["shared/index", "shared/float"], ..PLAIN };
pub(super) const CROSS_ENTROPY_PARTIAL: &[Form] = &[Form {
    body: "loss/cross_entropy_partial",
    bindings: &[bind("a", Role::In, "elem"), bind("maxima", Role::Out, "elem"), bind("sums", Role::Out, "elem")],
    ..LOSS
}];
pub(super) const CROSS_ENTROPY: &[Form] = &[Form {
    body: "loss/cross_entropy",
    bindings: &[
        bind("a", Role::In, "elem"),
        bind("targets", Role::In, "i32"),
        bind("maxima", Role::In, "elem"),
        bind("sums", Role::In, "elem"),
        bind("out", Role::Out, "elem"),
        bind("lse", Role::Out, "elem"),
        STATUS,
    ],
    pieces: &["shared/index", "shared/float", "shared/status"],
    ..LOSS
}];
pub(super) const CROSS_ENTROPY_BACKWARD: &[Form] = &[Form {
    body: "loss/cross_entropy_backward",
    bindings: &[
        bind("a", Role::In, "elem"),
        bind("targets", Role::In, "i32"),
        bind("lse", Role::In, "elem"),
        bind("dout", Role::In, "elem"),
        bind("out", Role::Out, "elem"),
    ],
    in_place: &[0],
    ..LOSS
}];

pub(super) const RANDOM: &[Form] = &[Form {
    body: "random/fill",
    bindings: &[bind("out", Role::Out, "elem")],
    params: Some(params::Random::INFO),
    pieces: &["shared/index", "shared/float", "shared/philox"],
    formula: FormulaKind::Sample,
    ..PLAIN
}];
pub(super) const CHECK_RANGE: &[Form] = &[Form {
    body: "random/check",
    pieces: &["shared/index", "shared/status"],
    bindings: &[bind("a", Role::In, "elem"), STATUS],
    params: Some(params::Check::INFO),
    ..PLAIN
}];

pub(super) const COUNT_STEPS: &[Form] = &[Form {
    body: "optim/count_steps",
    bindings: &[bind("control", Role::InOut, "u32")],
    params: Some(params::CountSteps::INFO),
    pieces: &["shared/index", "shared/float"],
    ..PLAIN
}];

pub(super) const UPDATE_SCALE: &[Form] = &[Form {
    body: "optim/update_scale",
    bindings: &[bind("found", Role::In, "f32"), bind("state", Role::InOut, "f32")],
    params: Some(params::UpdateScale::INFO),
    pieces: &["shared/index"],
    ..PLAIN
}];

/// The operands of an optimizer's step over many parameters, with state of type `$ty`.
macro_rules! update_bindings {
    ($ty:literal, [$($state:literal),*]) => {
        &[
            bind("param", Role::InOut, "many"),
            bind("grad", Role::In, "many"),
            bind("control", Role::In, "many_words"),
            $(bind($state, Role::InOut, $ty),)*
        ]
    };
}
/// Optimizer steps over many parameters at once: [state of the parameter's type, state of bf16].
macro_rules! update_forms {
    ($pieces:expr, $state:tt) => {{
        const BASE: Form = Form {
            body: "optim/update",
            bindings: update_bindings!("many", $state),
            params: Some(params::Update::INFO),
            pieces: $pieces,
            ..PLAIN
        };
        &[BASE, Form { suffix: "bf16_state", bindings: update_bindings!("many_bf16", $state), ..BASE }]
    }};
}
/// Form of optimizer steps whose state is bf16, whatever the type of the parameters.
pub const BF16_STATE: u8 = 1;
pub(super) const SCALE_GRADIENTS: &[Form] = update_forms!(&["shared/index", "optim/scaled"], []).split_at(1).0;
pub(super) const CLAMP_GRADIENTS: &[Form] = update_forms!(&["shared/index", "shared/float", "optim/clamped"], []).split_at(1).0;
pub(super) const SQUARE_PARTS: &[Form] = &[Form {
    body: "optim/squares",
    bindings: &[bind("a", Role::In, "many"), bind("table", Role::In, "many_words"), bind("out", Role::Out, "many_f32")],
    params: Some(params::Squares::INFO),
    ..PLAIN
}];
pub(super) const SGD: &[Form] = update_forms!(&["shared/index", "optim/sgd"], []).split_at(1).0;
pub(super) const SGD_MOMENTUM: &[Form] = update_forms!(&["shared/index", "optim/sgd_momentum"], ["momentum_buffer"]);
pub(super) const ADAM: &[Form] =
    update_forms!(&["shared/index", "shared/float", "optim/moments", "optim/smoothed", "optim/adam"], ["exp_avg", "exp_avg_sq"]);
pub(super) const ADAM_AMSGRAD: &[Form] = update_forms!(
    &["shared/index", "shared/float", "optim/moments", "optim/largest", "optim/adam"],
    ["exp_avg", "exp_avg_sq", "max_exp_avg_sq"]
);
pub(super) const NADAM: &[Form] =
    update_forms!(&["shared/index", "shared/float", "optim/moments", "optim/nadam"], ["exp_avg", "exp_avg_sq"]);
pub(super) const ADAGRAD: &[Form] = update_forms!(&["shared/index", "optim/adagrad"], ["sum"]);
pub(super) const RMSPROP: &[Form] =
    update_forms!(&["shared/index", "optim/uncentered", "optim/direct", "optim/rmsprop"], ["square_avg"]);
pub(super) const RMSPROP_MOMENTUM: &[Form] =
    update_forms!(&["shared/index", "optim/uncentered", "optim/buffered", "optim/rmsprop"], ["square_avg", "momentum_buffer"]);
pub(super) const RMSPROP_CENTERED: &[Form] =
    update_forms!(&["shared/index", "optim/centered", "optim/direct", "optim/rmsprop"], ["square_avg", "grad_avg"]);
pub(super) const RMSPROP_CENTERED_MOMENTUM: &[Form] = update_forms!(
    &["shared/index", "optim/centered", "optim/buffered", "optim/rmsprop"],
    ["square_avg", "grad_avg", "momentum_buffer"]
);

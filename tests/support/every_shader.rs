//! Every shader that linn can compose: kernel, form, element type, ways of binding, way of passing parameters.

use std::collections::HashMap;

use linn::DType;
use linn::kernel::params::IMMEDIATES_SIZE;
use linn::kernel::sharing::{Sharing, Textures};
use linn::kernel::source::{self, ParamPath};
use linn::kernel::{Inputs, KernelId};

pub const PATHS: [ParamPath; 2] = [ParamPath::Immediates, ParamPath::Uniform];

/// One composed shader's name, so to speak.
#[derive(Clone, Copy, Debug)]
pub struct Subject {
    pub id: KernelId,
    pub dtype: DType,
    pub sharing: Sharing,
    pub path: ParamPath,
}

impl Subject {
    pub fn compose(&self) -> Result<String, String> {
        source::compose(self.id, self.dtype, &self.sharing, self.path).map_err(|error| error.to_string())
    }

    /// Kernel, element type, the operand whose variable each operand uses (`t`: a texture), and the way of its parameters.
    pub fn name(&self) -> String {
        let operand = |i| match self.sharing.is_texture(i) {
            true => "t".to_owned(),
            false => self.sharing.first(i).to_string(),
        };
        let operands: Vec<String> = (0..self.id.form().bindings.len()).map(operand).collect();
        format!("{} of {} [{}] {:?}", self.id.name(), self.dtype, operands.join(" "), self.path)
    }
}

/// All of them.
pub fn all() -> impl Iterator<Item = Subject> {
    KernelId::all().flat_map(|id| {
        let dtypes = id.row().dtypes.iter().copied().filter(move |dtype| id.exists_for(*dtype));
        dtypes.flat_map(move |dtype| {
            let sharings = sharings(id, dtype).into_iter();
            sharings.flat_map(move |sharing| paths(id).map(move |path| Subject { id, dtype, sharing, path }))
        })
    })
}

/// The ways that its parameters fit.
fn paths(id: KernelId) -> impl Iterator<Item = ParamPath> {
    let size = id.form().params.map_or(0, |params| params.size);
    PATHS.into_iter().filter(move |path| *path == ParamPath::Uniform || size <= IMMEDIATES_SIZE)
}

/// The texts that differ, each with the first subject that it belongs to.
pub fn texts() -> Vec<(Subject, String)> {
    let mut seen = HashMap::new();
    let mut out: Vec<(Subject, String)> = Vec::new();
    for subject in all() {
        let text = subject.compose().unwrap_or_else(|error| panic!("{}: {error}", subject.name()));
        if !seen.contains_key(&text) {
            seen.insert(text.clone(), out.len());
            out.push((subject, text));
        }
    }
    out
}

/// Every set of inputs in textures beside every way in which the others can share. Of forms with more operands than
/// [`MOST_IN_FULL`]: no two share, any two do, or all that can share with one of them; and the textures alone.
pub fn sharings(id: KernelId, dtype: DType) -> Vec<Sharing> {
    let form = id.form();
    let len = form.bindings.len();
    let possible = form.texture_inputs(dtype);
    let textures = (0..=possible).filter(|set| set & !possible == 0 && (form.inputs == Inputs::Any || *set == possible));
    let ways = if len <= MOST_IN_FULL { partitions(len) } else { few_partitions(id) };
    let mut out: Vec<Sharing> = Vec::new();
    for set in textures {
        let apart = [(0..len).collect()];
        let ways: &[Vec<usize>] = if len <= MOST_IN_FULL || set == 0 { &ways } else { &apart };
        let new = ways.iter().map(|blocks| Sharing::of(blocks, set as Textures)).filter(|way| way.fits(id.row(), form));
        for sharing in new.collect::<Vec<_>>() {
            if !out.contains(&sharing) {
                out.push(sharing);
            }
        }
    }
    out
}

/// Five operands share in 52 ways, nine in 21,147.
const MOST_IN_FULL: usize = 4;

/// Every way to put `len` operands into blocks.
fn partitions(len: usize) -> Vec<Vec<usize>> {
    (0..len).fold(vec![Vec::new()], |ways, _| {
        ways.iter()
            .flat_map(|way: &Vec<usize>| {
                let blocks = way.iter().max().map_or(0, |most| most + 1);
                (0..=blocks).map(move |block| way.iter().copied().chain([block]).collect())
            })
            .collect()
    })
}

fn few_partitions(id: KernelId) -> Vec<Vec<usize>> {
    let len = id.form().bindings.len();
    let together = |i: usize, j: usize| (0..len).map(|k| if k == j { i } else { k }).collect::<Vec<_>>();
    let fits = |blocks: &[usize]| Sharing::of(blocks, 0).fits(id.row(), id.form());
    let mut out = vec![(0..len).collect()];
    out.extend((0..len).flat_map(|j| (0..j).map(move |i| together(i, j))));
    out.extend((0..len).map(|i| (0..len).map(|j| if fits(&together(i.min(j), i.max(j))) { i } else { j }).collect()));
    out
}

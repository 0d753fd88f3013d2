//! How the operands of a dispatch are bound: operands in one block share a binding, inputs may be copied to textures.

use crate::dtype::DType;
use crate::kernel::catalog::{Class, Form, Inputs, Role, Row};

/// Which operands of a dispatch are bound through one variable, because they lie in one block, and which through textures.
///
/// No dispatch may bind overlapping ranges twice, so a block is bound once and every operand in it uses that binding.
/// The first operand that shares with operand `i` (itself where it shares with none before) is `first >> 4 * i & 15`: one word,
/// because it is part of a key that every launch looks up. A texture is a copy with a binding of its own, so that operands in
/// one block need no other pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sharing {
    first: u64,
    len: u8,
    textures: Textures,
}

/// A set of operands that are read as textures: bit `i` stands for operand `i`.
pub type Textures = u16;

/// The most operands a kernel has (WebGPU guarantees 8 storage buffers, and operands that share a block need one).
pub const MAX_BINDINGS: usize = 12;

/// Width of the textures that hold copies of inputs; the shader divides by it, so it is a power of two.
pub const TEXELS_PER_ROW: u32 = 1024;

impl Sharing {
    /// Finds equal blocks among the operands (at most [`MAX_BINDINGS`]), of which `textures` are read as textures.
    pub fn of<B: PartialEq>(blocks: &[B], textures: Textures) -> Sharing {
        let len = blocks.len().min(MAX_BINDINGS);
        let mut sharing = Sharing { first: 0, len: len as u8, textures };
        for i in 0..len {
            let same = |j: &usize| blocks[*j] == blocks[i] && !sharing.is_texture(*j) && !sharing.is_texture(i);
            sharing.first |= ((0..i).find(same).unwrap_or(i) as u64) << (4 * i);
        }
        sharing
    }

    /// All operands in blocks of their own, none of them a texture.
    pub fn distinct(len: usize) -> Sharing {
        Sharing::of(&(0..len).collect::<Vec<_>>(), 0)
    }

    /// The operand whose variable operand `i` uses.
    pub fn first(&self, i: usize) -> usize {
        if i < usize::from(self.len) { (self.first >> (4 * i) & 15) as usize } else { i }
    }

    /// True where operand `i` is read as a texture.
    pub fn is_texture(&self, i: usize) -> bool {
        self.textures >> i & 1 == 1
    }

    /// The operands that have a binding of their own, in binding order.
    pub fn bound(&self) -> impl Iterator<Item = usize> + '_ {
        (0..usize::from(self.len)).filter(|i| self.first(*i) == *i)
    }

    /// The bindings that are textures, bit `i` for binding `i`.
    pub fn texture_bindings(&self) -> Textures {
        self.bound().enumerate().map(|(slot, i)| Textures::from(self.is_texture(i)) << slot).sum()
    }

    /// True when one variable can serve the operands that share: they have one element type, and at most one is written, or they are
    /// windows of many tensors, which are read and written by functions that know their places.
    /// Where it is false, a copy of a read operand must be bound instead.
    pub fn fits(&self, row: &Row, form: &Form) -> bool {
        let same = |a: &str, b: &str| a == b || (row.result.is_none() && a.replace("res_", "") == b.replace("res_", ""));
        form.bindings.iter().enumerate().all(|(i, binding)| {
            let group = (0..form.bindings.len()).filter(|j| self.first(*j) == self.first(i));
            let written = group.filter(|j| form.bindings[*j].role != Role::In).count();
            let owner = &form.bindings[self.first(i)];
            (binding.is_many() && owner.is_many()) || (written <= 1 && same(binding.ty, owner.ty))
        })
    }
}

/// Dispatches over fewer elements read storage: copying costs more than it saves.
const FEWEST_ELEMENTS: usize = 16 << 10;
/// Larger blocks are not copied: each texture that a kernel needs is kept, of 64 MiB at most.
pub const LARGEST_COPY: u64 = 64 << 20;

impl Form {
    /// The inputs that can be textures: those of f32, but not the single elements beside `vec4`s, of which there are few.
    pub fn texture_inputs(&self, dtype: DType) -> Textures {
        let fits = |ty: &str| dtype == DType::F32 && (matches!(ty, "item" | "vec4<elem>") || (ty == "elem" && self.lanes == 1));
        let inputs = self.bindings.iter().enumerate().filter(|(_, binding)| binding.role == Role::In && fits(binding.ty));
        inputs.map(|(i, _)| 1 << i).sum()
    }

    /// The inputs to read as textures where operands have so many elements and bytes of memory.
    pub(crate) fn textures(&self, class: Class, dtype: DType, operands: impl Iterator<Item = (usize, u64)> + Clone) -> Textures {
        if self.inputs == Inputs::Texture {
            return self.texture_inputs(dtype);
        }
        let len = operands.clone().map(|(len, _)| len).max().unwrap_or(0);
        if class != Class::Subgroup || len < FEWEST_ELEMENTS {
            return 0;
        }
        // Whole blocks are copied: not for the sake of a small part of a large one.
        let most = (len as u64 * 16).min(LARGEST_COPY);
        let worth = operands.enumerate().filter(|(_, (_, size))| *size <= most).map(|(i, _)| 1 << i).sum::<Textures>();
        self.texture_inputs(dtype) & worth
    }
}
